"""``attsvm compare``, end to end: numbers against the models' own attention, the page, the order, and refusals."""

import json

import numpy as np
import pytest

from oracles.pages import loads

torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

NAMES = "[PAD] [UNK] [CLS] [SEP] the cat dog sat ran on mat road . and then home"
WORDS = NAMES.split()
TEXTS = ["the cat sat on the mat .", "the dog and the cat ran on the road and then home ."]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Checkpoints of which only the second has a tokenizer, a model with another one, and a text."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "text.txt").write_text("\n".join(TEXTS))
    config = transformers.BertConfig(
        vocab_size=len(WORDS), max_position_embeddings=16, initializer_range=0.5, hidden_size=16,
        num_attention_heads=2, num_hidden_layers=2, intermediate_size=16,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertModel(config)
    for step in (50, 200, 1000):
        model.save_pretrained(folder / "runs" / f"checkpoint-{step}")
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "layer.1" in name:  # the first layer stays as it is
                    parameter.add_(0.2 * torch.randn(parameter.shape))
    for name, words in (("runs/checkpoint-200", WORDS), ("other", [*WORDS[:4], *WORDS[:3:-1]])):
        (folder / "words.txt").write_text("\n".join(words))
        transformers.BertTokenizer(str(folder / "words.txt"), model_max_length=16).save_pretrained(folder / name)
    model.save_pretrained(folder / "other")
    return folder


@pytest.fixture
def run(command, monkeypatch, home):
    """The command, beside the models."""
    monkeypatch.chdir(home)
    return lambda *arguments: command("compare", *arguments)


def selections(folder):
    """What every head selects, from the attention that transformers returns: (layer, head, sequence) to tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.parent / "checkpoint-200")
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
    found = {}
    for i, text in enumerate(TEXTS):
        with torch.no_grad():
            layers = model(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions
        for layer, attention in enumerate(layers):
            for head, probabilities in enumerate(attention[0].numpy()):
                found[layer, head, i] = probabilities.argmax(-1)
    return found


def test_checkpoints_of_a_folder_are_compared_in_the_order_of_their_steps(run, home):
    status, out, err = run("runs", "--text", "text.txt", "--no-margins", "--json", "--out", "training")
    assert status == 0, err
    result = json.loads(out)
    assert [model["step"] for model in result["models"]] == [50, 200, 1000]
    steps = [selections(home / "runs" / f"checkpoint-{step}") for step in (50, 200, 1000)]
    for change in result["changes"]:
        place = change["layer"], change["head"]
        of_step = [np.concatenate([one[*place, i] for i in range(len(TEXTS))]) for one in steps]
        expected = [
            [np.mean(of_step[i] != of_step[j]) for i, j in pairs] for pairs in ([(0, 1), (0, 2)], [(0, 1), (1, 2)])
        ]
        assert change["since_first"] == pytest.approx(expected[0])
        assert change["since_previous"] == pytest.approx(expected[1])
        assert change["changed"] == change["since_first"][-1]
        for (i, q), before, after in zip(change["queries"], change["before"], change["after"], strict=True):
            assert (steps[0][*place, i][q], steps[-1][*place, i][q]) == (before, after)
    assert [one["layer"] for one in result["changes"]] == [1, 1, 0, 0]
    assert result["changes"][0]["changed"] > 0 == result["changes"][-1]["changed"]
    html = (home / "training" / "index.html").read_text()
    assert loads(html) == []
    for words in (
        "3 checkpoints, from step 50 to step 1,000",
        "2 of 4 attention heads changed",
        "training steps",
        "Contents",
    ):
        assert words in html
    assert html.count('class="square"') == 2 * 2  # the two changed heads, before and after
    # three models in any order are put into that of their steps
    status, out, _ = run(
        *(f"runs/checkpoint-{step}" for step in (1000, 200, 50)), "--text", "text.txt", "--no-margins", "--json"
    )
    assert json.loads(out)["changes"] == result["changes"]


def test_two_models_with_margins(run, home):
    options = "--text", "text.txt", "--head", "1.0", "--head", "0.1", "--gap", 0.1, "--sentence", 0
    status, out, err = run("runs/checkpoint-200", "runs/checkpoint-1000", *options, "--json", "--out", "two")
    assert status == 0, err
    result = json.loads(out)
    assert [model["step"] for model in result["models"]] == [None, None]
    intervals = {
        (head["layer"], head["head"]): head["margin_ratio"] for model in result["models"] for head in model["heads"]
    }
    assert set(intervals) == {(1, 0), (0, 1)}
    for change in result["changes"]:
        ends = [
            next(head["margin_ratio"] for head in model["heads"] if head["layer"] == change["layer"])
            for model in result["models"]
        ]
        assert change["margin_moved"] == (ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0])
    html = (home / "two" / "index.html").read_text()
    assert "Margin over the best margin, before and after" in html
    assert "could not be drawn" not in html
    assert "Sequence 0" in html


def test_a_model_compared_with_itself_changes_nothing(run):
    model = "runs/checkpoint-200"
    status, out, _ = run(model, model, "--text", "text.txt", "--no-margins")
    assert status == 0
    assert "All 4 attention heads select the same tokens. No key or query weights differ." in " ".join(out.split())
    assert "→" not in out
    assert "4 heads that select the same tokens are left out." in out


def test_a_head_with_other_weights_is_told_from_those_with_other_input(run, home):
    model = transformers.AutoModel.from_pretrained(home / "runs/checkpoint-200")
    with torch.no_grad():
        before = model.encoder.layer[0].attention.self.query.weight[:8].clone()
        model.encoder.layer[0].attention.self.query.weight[:8] *= -2  # head 0.0
    model.save_pretrained(home / "perturbed")
    status, out, _ = run("runs/checkpoint-200", "perturbed", "--text", "text.txt", "--no-margins", "--json")
    assert status == 0
    result = json.loads(out)
    weights = {(one["layer"], one["head"]): one["weights"] for one in result["changes"]}
    bias = model.encoder.layer[0].attention.self.query.bias[:8].detach()
    size = float((before.square().sum() + bias.square().sum()).sqrt())
    assert weights.pop((0, 0)) == pytest.approx(
        {"product": 3 * float(before.norm()) / size, "key": 0.0, "query": 3 * float(before.norm()) / size}, rel=0.2
    )
    assert list(weights.values()) == 3 * [{"product": 0.0, "key": 0.0, "query": 0.0}]
    changed = sum(one["changed"] > 0 for one in result["changes"][1:])
    status, out, _ = run("runs/checkpoint-200", "perturbed", "--text", "text.txt", "--no-margins")
    said = " ".join(out.split())
    assert "The key or query weights of 1 head (0.0) differ" in said
    assert " 0.0%" not in out
    assert changed == 0 or "because their input changed" in said


def test_of_clip_the_tower_is_compared_that_sees_the_input(run, home):
    from PIL import Image

    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16}
    text = {"vocab_size": len(WORDS), "max_position_embeddings": 16, "bos_token_id": 2, "eos_token_id": 3, **sizes}
    config = transformers.CLIPConfig(
        text_config=text | {"num_hidden_layers": 1}, vision_config={"image_size": 16, "patch_size": 8, **sizes}
    )
    transformers.CLIPModel(config).save_pretrained(home / "clip")
    transformers.BertTokenizer(str(home / "words.txt"), model_max_length=16).save_pretrained(home / "clip")
    transformers.CLIPImageProcessorPil(size=16, crop_size=16).save_pretrained(home / "clip")
    (home / "pictures").mkdir()
    Image.new("RGB", (16, 16)).save(home / "pictures" / "one.png")
    for given, layers, tokens in ((("--text", "text.txt"), 1, 2), (("--images", "pictures"), 2, 5)):
        status, out, err = run("clip", "clip", *given, "--no-margins", "--json")
        assert status == 0, err
        result = json.loads(out)
        assert len(result["changes"]) == 2 * layers
        assert result["data"]["tokens"] >= tokens


REFUSED = {
    "one model": (
        ["other", "--text", "text.txt"],
        "expected two models, or a folder of checkpoints, got one model: other",
    ),
    "another tokenizer": (
        ["runs/checkpoint-200", "other", "--text", "text.txt"],
        "other: its tokenizer gives other tokens for this text than that of runs/checkpoint-200",
    ),
    "no text": (["runs"], "--text, --images: expected at least one of them"),
    "no such sequence": (["runs", "--text", "text.txt", "--sentence", 2], "--sentence: expected a number from 0 to 1"),
    "no such folder": (["nowhere", "--text", "text.txt"], "nowhere: no such folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_compared_is_refused_in_one_line(refused, monkeypatch, home, case):
    monkeypatch.chdir(home)
    arguments, words = REFUSED[case]
    refused(words, "compare", *arguments)
