"""Every command that shows a name of a user shows hostile ones in full, and obeys none of them."""

import csv
import json
import sys

import numpy as np
import pytest

import attsvm
from attsvm._utils.text import as_label
from attsvm.papers import Figure, Row, several, verdict
from attsvm.plot import style
from oracles.hostile import NAMES, escaped, faults_of_output, faults_of_page, files_below, is_control
from oracles.pages import codes_that_run

pytestmark = pytest.mark.long

FILE = '"><svg onload=top.postMessage(`pwned`,`*`)> [unused1] \x1b[31m \u202e'
"""The name of a file: it has no slash and is not too long."""

MEASURES = [*NAMES[:2], NAMES[4], NAMES[9], NAMES[12], NAMES[14], *NAMES[19:22]]
"""There is a figure of each."""

TOKENS = [name for name in ("".join(name.split()) for name in NAMES) if not any(map(is_control, name))]


def record(folder):
    with (folder / "heads.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(step, "0.0", name, 0.5 + step) for step in (0, 100) for name in MEASURES]
        csv.writer(file).writerows([("step", "head", "measure", "value"), *rows])


def labelled(folder):
    """Texts with two labels, in a file with another name."""
    generator = np.random.default_rng(0)
    words = [("bad", NAMES[4]), ("good", "$5 [/b]")]
    rows = [(" ".join(generator.choice(["a", "b", "c"], 6)) + " " + word, label) for word, label in 20 * words]
    with (folder / f"{FILE}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])


def models(folder):
    """Two small models whose vocabulary has the names as tokens, and a text of them, one line with U+2028."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = {word: i for i, word in enumerate(dict.fromkeys(["[PAD]", "[UNK]", *TOKENS]))}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    config = transformers.BertConfig(
        vocab_size=len(numbers), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    for seed, name in enumerate((f"{FILE} $x", "[b]")):
        torch.manual_seed(seed)
        transformers.BertModel(config).save_pretrained(folder / name)
        saved = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
        saved.save_pretrained(folder / name)
    (folder / "text.txt").write_text("\u2028".join(TOKENS) + "\n" + " ".join(TOKENS[:3]) + "\n", encoding="utf-8")


class OfNames(Figure):
    name = "of-names"
    paper = title = claim = criterion = " ".join(NAMES[:12])
    full = quick = {"cases": list(NAMES)}

    def measure(self, sizes, piece):
        return {"one": np.ones(1)}

    def judge(self, sizes, arrays):
        return verdict(dict.fromkeys(NAMES, False), " ".join(NAMES))

    def rows(self, sizes, arrays):
        return [Row(name, name, name) for name in NAMES]

    def draw(self, sizes, arrays):
        figure, axis = style.panel(as_label(NAMES[4]), as_label(NAMES[9]), 2)
        axis.plot([1, 2], [1, 2], label=as_label(NAMES[20]))
        return figure


def test_no_command_obeys_a_name_and_no_page_runs_one(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "5000")  # so that no name is folded
    monkeypatch.setattr(several, "num_threads", lambda: 1)  # no processes
    monkeypatch.setitem(sys.modules, "of_names", sys.modules[__name__])
    for write in (record, labelled, models):
        write(tmp_path)
    capsys.readouterr()  # transformers shows how it saves
    attsvm.datasets.random_problem(16, 4, 5, seed=0).save(f"{FILE}.npz")
    before = files_below(tmp_path)
    steps = ("--steps", 20)
    calls = [
        (("problem", f"{FILE}.npz"), []),
        (("solve", f"{FILE}.npz", "--selected", "optimal"), []),
        (("fit", f"{FILE}.npz", *steps), []),
        (("reproduce", "of_names:OfNames", "--quick"), NAMES),
        (("fit-text", f"{FILE}.csv", *steps), []),
        (("monitor", "heads.csv"), MEASURES),
        (("inspect", f"{FILE} $x", "--text", "text.txt", "--no-margins", "--head", "0.1", "--head", "all"), TOKENS),
        (("compare", f"{FILE} $x", "[b]", "--text", "text.txt"), []),
    ]
    pages = {}
    for arguments, names in calls:
        page = arguments[0] not in ("problem", "solve")
        given = [*arguments, *(("--out", f"out-{arguments[0]}") if page else ())]
        status, out, err = command(*given)
        assert status == 0, (arguments, err)
        assert faults_of_output(out, names) == [], arguments
        assert faults_of_output(err) == [], arguments
        if page:
            pages[arguments[0]] = (tmp_path / f"out-{arguments[0]}" / "index.html").read_text()
            assert faults_of_page(pages[arguments[0]]) == [], arguments
        status, out, err = command(*(f"{FILE} missing" if part == arguments[1] else part for part in arguments))
        assert (status, out, len(err.splitlines())) == (2, "", 1), (arguments, err)
        assert faults_of_output(err) == [], arguments
    after = files_below(tmp_path)
    assert {name: content for name, content in after.items() if not name.startswith("out")} == before
    assert codes_that_run([*pages.values()], tmp_path) == ["expected"]
    assert escaped(NAMES[0]) in json.loads((tmp_path / "out-monitor" / "result.json").read_text())["measures"]
