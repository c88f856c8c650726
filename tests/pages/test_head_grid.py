"""The grid of all heads in a notebook: every head, its attention, names that are known, and pictures."""

import base64
import json
import re
import zlib

import numpy as np
import pytest

from oracles.hostile import NAMES, escaped, faults_of_page
from oracles.pages import codes_that_run, loads, said

torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import attsvm.inspect  # noqa: E402

SIZES = {
    "attn_implementation": "eager",
    "hidden_size": 24,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "initializer_range": 0.3,
}


def data_of(html):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.S)[1])


def attention_of(data):
    """The attention of each head on the first sequence of its grid, from the data of the script."""
    found = {}
    for number, grid in enumerate(data["grids"]):
        one = grid["sequences"][0]
        levels = np.frombuffer(zlib.decompress(base64.b64decode(one["packed"])), np.uint8)
        heads = [tuple(head["at"]) for head in data["heads"] if head["grid"] == number]
        maps = levels.reshape(len(heads), -1, len(one["tokens"]))
        found |= dict(zip(heads, (maps / grid["levels"]) ** 2, strict=True))
    return found


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=50, num_hidden_layers=2, **SIZES)
    model = transformers.BertModel(config).eval()
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    batch = {"input_ids": torch.randint(50, (2, 7)), "attention_mask": mask}
    return model, batch, attsvm.inspect.inspect(model, batch, margins=False)


READ = """<script>
const say = (text) => { document.body.appendChild(document.createElement("output")).textContent = text; };
const waiting = setInterval(() => {
const section = document.querySelector(".picker.ready");
if (!section) return;
clearInterval(waiting);
section.querySelector("button[value='1.2']").click();
section.querySelectorAll(".text:not(.queries) button")[TOKEN].dispatchEvent(new PointerEvent("pointerenter"));
say(section.querySelector(".said").textContent);
say(JSON.stringify(section.querySelector("[aria-pressed=true]").title.split("\\n")));
const canvas = section.querySelector("button[value='1.2'] canvas");
const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
say(JSON.stringify([...pixels].filter((_, k) => k % 4 === 3)));
say(JSON.stringify([...section.querySelectorAll(".board button")].map((one) => +one.style.getPropertyValue("--a"))));
});
</script></body>"""


def test_every_head_has_a_pattern_of_its_attention_and_opens(bert, tmp_path):
    model, batch, inspection = bert
    tokens = [[*"abcdefg"], [*"hijkl", "[PAD]", "[PAD]"]]
    html = inspection.view(sequence=1, tokens=tokens)._repr_html_()
    assert re.findall(r'<button type="button" value="(\d\.\d)">', html) == [
        f"{k}.{h}" for k in (0, 1) for h in range(4)
    ]
    assert loads(html) == []
    expected = model(**batch, output_attentions=True).attentions
    attention = attention_of(data_of(html))
    for (layer, head), of_head in attention.items():
        # padding is left out, and √p is rounded to steps of 1/255
        np.testing.assert_allclose(of_head, expected[layer][1, head, :5, :5].detach(), atol=1 / 255)
    words, title, alphas, _ = said(f"<body>{html}</body>", READ.replace("TOKEN", "2"), tmp_path)
    row = attention[1, 2][2]
    assert words.startswith(f"j attends to {'hijkl'[row.argmax()]} {float(f'{100 * row.max():.2g}'):g}%")
    assert f"Selected: {'hijkl'[inspection.heads[6].selected[1, 2]]}." in words
    assert json.loads(title)[:2] == [
        "Head 1.2",
        f"Largest probability: {inspection.heads[6].numbers['largest_probability']:.3g}",
    ]
    np.testing.assert_allclose(np.square(np.array(json.loads(alphas)) / 255), attention[1, 2].ravel(), atol=1e-6)
    with pytest.raises(
        attsvm.ProblemError, match="tokens: expected names for 2 sequences of 7 tokens, got 2 of 1 or 7"
    ):
        inspection.view(tokens=[tokens[0], ["a"]])
    with pytest.raises(attsvm.ProblemError, match="sequence: expected an integer from 0 to 1, got 2"):
        inspection.view(sequence=2)


def test_names_of_tokens_are_shown_and_do_not_run(bert, tmp_path):
    inspection = bert[2]
    pages = []
    for k in range(0, len(NAMES), 7):
        names = (NAMES * 2)[k : k + 7]
        html = f"<body>{inspection.view(tokens=[names, names])._repr_html_()}</body>"
        assert ["".join(one.split()) for one in data_of(html)["grids"][0]["sequences"][0]["tokens"]] == [
            *map(escaped, names)
        ]
        assert faults_of_page(html) == []
        pages.append(html)
    assert codes_that_run(pages, tmp_path) == ["expected"]


def test_a_head_in_detail_is_that_of_the_inspection(bert):
    model, batch, inspection = bert
    view = inspection.view(1, 2)
    assert f"HeadView(head 1.2; W {view.weights}, norm {view.norm:.3g})\n  singular values" in repr(view)
    expected = model(**batch, output_attentions=True).attentions[1][:, 2].detach()
    np.testing.assert_allclose(view.probabilities[view.positions >= 0], expected[view.positions >= 0], atol=1e-5)
    assert view.interval is None
    same = attsvm.inspect.inspect(model, batch, margins=False, heads=[(1, 2)], view=(1, 2))
    assert same.view(1, 2) is same.detail
    for arguments, message in {(1, None): "a layer and a head, or neither", (1, 4): "layer 1 has 4 heads"}.items():
        with pytest.raises(attsvm.ProblemError, match=message):
            inspection.view(*arguments)


def test_the_attention_of_the_class_token_lies_on_the_picture(tmp_path):
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=(16, 24), patch_size=8, num_hidden_layers=2, **SIZES)
    model = transformers.ViTModel(config).eval()
    values = torch.randn(2, 3, 16, 24)
    html = attsvm.inspect.inspect(model, {"pixel_values": values}, margins=False).view()._repr_html_()
    source, *places = data_of(html)["grids"][0]["sequences"][0]["picture"]
    assert (source[:23], places) == ("data:image/jpeg;base64,", [1, 2, 3])
    words, _, _, shades = said(f"<body>{html}</body>", READ.replace("TOKEN", "0"), tmp_path)
    row = model(values, output_attentions=True).attentions[1][0, 2, 0, 1:].detach().numpy()
    assert words.startswith("[CLS] attends to ")
    assert float(re.search(r" All patches: (\S+)%\.", words)[1]) == pytest.approx(100 * row.sum(), abs=1)
    np.testing.assert_allclose(json.loads(shades), np.maximum(row - row.mean(), 0) / row.max(), atol=0.02)


def test_names_of_a_text_name_no_patch_and_no_other_text():
    """CLIP sees 5 tokens of a text and 5 of a picture; the decoder of T5 reads a text of another length."""
    text, sight = ({**SIZES, "num_hidden_layers": 1}, {"image_size": 16, "patch_size": 8})
    config = transformers.CLIPConfig(
        text_config={"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, **text}, vision_config={**text, **sight}
    )
    batch = {"input_ids": torch.randint(50, (2, 5)), "pixel_values": torch.randn(2, 3, 16, 16)}
    names = [[*"abcde"]] * 2
    grid = attsvm.inspect.inspect(transformers.CLIPModel(config).eval(), batch, margins=False).view(tokens=names)
    assert [one.sequences[0].tokens for one in grid.grids] == [names[0], ["[CLS]", "0,0", "0,1", "1,0", "1,1"]]
    t5 = transformers.T5Config(vocab_size=50, d_model=24, d_kv=6, d_ff=32, num_layers=1, num_heads=4)
    both = {"input_ids": batch["input_ids"], "decoder_input_ids": torch.randint(50, (2, 3))}
    inspection = attsvm.inspect.inspect(transformers.T5Model(t5).eval(), both, margins=False)
    numbers = ["#0", "#1", "#2"]
    seen = [(one.sequences[0].tokens, one.sequences[0].queries) for one in inspection.view(tokens=names).grids]
    assert seen == [(names[0], names[0]), (numbers, numbers), (names[0], numbers)]
    both["decoder_input_ids"] = 1 + both["input_ids"]
    inspection = attsvm.inspect.inspect(transformers.T5Model(t5).eval(), both, margins=False)
    with pytest.raises(attsvm.ProblemError, match="tokens: expected an encoder and a decoder with the same text"):
        inspection.view(tokens=names)
