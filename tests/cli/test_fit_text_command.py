"""``attsvm fit-text``, end to end: what it writes, and what it refuses."""

import csv
import gzip
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from attsvm._fit import read_texts
from attsvm.errors import ProblemError
from oracles.pages import loads, opened

pytestmark = pytest.mark.slow

FILLER = [*"abcdefghijk", "the", "and", "film", "of", "it", "was", "this"]
TELLING = {"neg": ["dreadful", "worst", "tedious"], "pos": ["splendid", "best", "moving"]}


def reviews(number: int, seed: int) -> list[tuple[str, str]]:
    """Filler with one telling word a text, at a random place."""
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        label = "pos" if i % 2 else "neg"
        text = list(generator.choice(FILLER, generator.integers(8, 40)))
        text.insert(generator.integers(len(text)), str(generator.choice(TELLING[label])))
        rows.append((" ".join(text).capitalize() + ".<br />", label))
    return rows


def write_csv(path, rows, header=("text", "label")):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviews")
    source = write_csv(folder / "reviews.csv", reviews(400, 0))
    arguments = [sys.executable, "-m", "attsvm", "fit-text", source, "--out", folder / "out", "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "out", json.loads(done.stdout)


def test_attention_finds_the_telling_words_and_beats_their_mean(fitted):
    _, result = fitted
    assert result["data"]["train"] == 300
    assert result["data"]["test"] == 100
    assert result["accuracy"]["test"] >= 0.95
    losses, chosen = result["choice"]["losses"], result["choice"]["parts"]
    assert min(losses.values()) <= losses[chosen] < losses["ngrams"]
    # attention may read one label's words alone: where there are none, the text has the other label
    most = [row["word"] for row in result["words"]["most"][:3]]
    assert set(most) <= {*TELLING["neg"], *TELLING["pos"]}
    assert max(result["words"]["over_frequency"][word] for word in ("the", "a", "and")) < 1
    for row in result["words"]["most"][:3]:
        assert row["word"] in TELLING[row["class"]]
        assert row["class_share"] == 1


def test_the_folder_is_complete_and_a_browser_shows_its_numbers(fitted, tmp_path):
    """Cards, words and shaded examples as the browser has them, against result.json."""
    out, result = fitted
    assert {path.name for path in out.iterdir()} == {"index.html", "result.json", "model.npz", "figures"}
    assert json.loads((out / "result.json").read_text()) == result
    assert sorted(path.name for path in out.parent.iterdir()) == ["out", "reviews.csv"], "nothing else is left behind"
    html = (out / "index.html").read_text()
    assert loads(html) == []
    assert html.count("<figure") == len(list((out / "figures").iterdir()))
    shown = opened(html, tmp_path)
    cards = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", shown))
    assert cards["Test accuracy"] == f"{result['accuracy']['test']:.1%}"
    rows_of_mean = re.findall(r"of the mean token</t[hd]><td[^>]*>([\d.]+%)", shown)
    assert rows_of_mean[0] == f"{result['accuracy']['mean_token']['test']:.1%}"
    assert cards["N-grams alone"] == f"{result['accuracy']['ngrams']['test']:.1%}"
    assert cards["Attention alone"] == f"{result['accuracy']['attention']['test']:.1%}"
    assert cards["Effective words"] == f"{result['effective_words']['median']:.1f}"
    cells = r"<td>([\d.e-]+)</td><td>([\d.e-]+)–([\d.e-]+)</td><td>(\d+)</td><td>(\d+)% in “(\w+)”</td>"
    rows = re.findall(rf'<tr><th scope="row">(\w+)</th>{cells}</tr>', shown)
    assert len(rows) >= 12
    known = {row["word"]: row for name in ("most", "least") for row in result["words"][name]}
    for word, over, low, high, texts, *_ in rows:
        assert float(over) == pytest.approx(result["words"]["over_frequency"][word], rel=1e-3)
        assert float(low) <= float(over) * 1.05
        assert float(high) >= float(over) * 0.95
        assert int(texts) >= result["words"]["listed_from"] >= 10
        if word in known:
            assert int(texts) == known[word]["documents"]
    for name, side in (("most", 1), ("least", -1)):
        for row in result["words"][name]:
            assert all(side * (end - 1) > 0 for end in row["over_frequency_interval"])
    for example in re.findall(r"<article>.*?</article>", shown, flags=re.DOTALL):
        shares = [float(share) for share in re.findall(r'<mark[^>]*title="([\d.]+)%"', example)]
        assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares) + 0.1)
        # the slider: uniform attention before the first step, and at its end what is shown
        words = re.findall(r'data-said="([\d. ]+)"', example)
        at_steps = np.array([word.split() for word in words], dtype=float)
        assert np.abs(at_steps[:, 0] - 100 / len(shares)).max() < 0.0501
        assert at_steps[:, -1].tolist() == shares
        assert np.abs(at_steps.sum(axis=0) - 100).max() <= 0.05 * len(shares) + 0.1


def test_labels_have_the_names_that_are_given_or_that_a_file_holds(tmp_path):
    rows = [(text, "1" if label == "pos" else "0") for text, label in reviews(8, 0)]
    given = read_texts(write_csv(tmp_path / "a.csv", rows), names={"0": "negative", "1": "positive"})
    assert given.labels.tolist() == ["negative", "positive"] * 4
    with pytest.raises(ProblemError, match="classes: expected different names for different labels, got positive"):
        read_texts(tmp_path / "a.csv", names={"0": "positive", "1": "positive"})
    with pytest.raises(ProblemError, match="--classes: expected labels among 0, 1, got 'gud'"):
        read_texts(tmp_path / "a.csv", names={"gud": "positive"})
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"text": [text for text, _ in rows], "label": [int(label) for _, label in rows]})
    features = {"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), tmp_path / "a.parquet")
    assert read_texts(tmp_path / "a.parquet").classes == ["neg", "pos"]
    pq.write_table(table.replace_schema_metadata({"huggingface": "[1"}), tmp_path / "b.parquet")
    assert read_texts(tmp_path / "b.parquet").classes == ["0", "1"]


def test_labels_seen_once_words_never_seen_and_endless_texts_are_answered(tmp_path, command):
    source = write_csv(tmp_path / "train.csv", [*reviews(60, 0), ("the film of a week", "once")])
    test = write_csv(tmp_path / "test.csv", [("zyx wvu", "neg"), ("the best film " * 50_000, "pos"), *reviews(20, 1)])
    arguments = [
        source,
        "--test",
        test,
        "--steps",
        50,
        "--max-length",
        300,
        "--option",
        "p=1.5",
        "--parts",
        "attention",
        "--json",
    ]
    status, out, error = command("fit-text", *arguments)
    assert status == 0, error
    result = json.loads(out)
    assert result["data"]["classes"] == ["neg", "once", "pos"]
    assert result["data"]["test_without_words"] == 1
    assert result["data"]["test_cut"] == 1
    assert result["training"]["optimizer"] == "mirror_descent"
    assert result["training"]["p"] == 1.5
    assert (result["choice"]["parts"], result["choice"]["losses"], result["accuracy"]["ngrams"]) == (
        "attention",
        None,
        None,
    )


def test_files_of_other_programs_are_read_as_the_options_say(tmp_path, command):
    rows = [f'"{text} café\t{label == "pos":.1f}' for text, label in reviews(40, 0)]
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress("\n".join(["text\tlabel", *rows]).encode("latin-1")))
    options = ["--encoding", "latin-1", "--quoting", "none", "--tokenizer", "builtins:str.split", "--json"]
    status, out, error = command("fit-text", tmp_path / "a.tsv.gz", "--classes", "1=good", "--steps", 25, *options)
    assert status == 0, error
    result = json.loads(out)
    assert (result["data"]["train"], result["data"]["test"]) == (30, 10)
    assert result["data"]["classes"] == ["0", "good"]
    assert result["data"]["tokenizer"] == "builtins:str.split"
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(("ab ba\n" * 40).encode("utf-16")))
    options = ["--encoding", "utf-16", "--tokenizer", "characters", "--words", 1, "--steps", 5, "--json"]
    status, out, error = command("next-token", tmp_path / "a.txt.gz", *options)
    assert status == 0, error
    assert json.loads(out)["data"]["vocabulary"] == 2


def test_what_does_not_fit_is_refused_in_one_line(tmp_path, refused):
    source = write_csv(tmp_path / "a.csv", reviews(20, 0))
    other = write_csv(tmp_path / "other.csv", [*reviews(4, 1), ("so so", "middling")])
    rare = write_csv(tmp_path / "rare.csv", [("one two", "x"), ("three four", "y"), ("five", "x"), ("six", "y")])
    for said, *arguments in (
        ("expected a column 'review', got 'text', 'label'", source, "--text", "review"),
        ("expected a column 'stars'", source, "--label", "stars"),
        ("encoding: expected one that Python knows", source, "--encoding", "utf9"),
        ("quoting: expected double, backslash, none, got 'all'", source, "--quoting", "all"),
        ("tokenizer: nowhere:f cannot be imported", source, "--tokenizer", "nowhere:f"),
        ("tokenizer: expected None with embed", source, "--tokenizer", "characters", "--embed", tmp_path),
        ("no such file", tmp_path / "b.csv"),
        ("--steps: expected an integer >= 1, got 0", source, "--steps", 0),
        ("p: expected none for the optimiser adam, got 1.5", source, "--optimizer", "adam", "--option", "p=1.5"),
        ("p: expected a number for the optimiser mirror_descent", source, "--optimizer", "mirror_descent"),
        ('parts: expected "auto", "attention" or "both", got \'ngrams\'', source, "--parts", "ngrams"),
        ("--optimizer: expected a name", source, "--optimizer", "sgd"),
        (r"--test-fraction: expected a number in \(0, 1\), got 0", source, "--test-fraction", 0),
        ("got no config.json", source, "--embed", tmp_path),
        ("expected the labels 'neg', 'pos', got 'middling'", source, "--test", other),
        ("words that occur in at least 5 of", rare, "--test-fraction", 0.5),
    ):
        refused(said, "fit-text", *arguments)
