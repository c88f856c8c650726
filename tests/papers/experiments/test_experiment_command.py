"""`attsvm experiment` on a handful of rows made here: page, results, going on, and refusals."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from oracles.pages import loads

torch = pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402
from PIL import Image  # noqa: E402
from tokenizers import BertWordPieceTokenizer  # noqa: E402

from attsvm.errors import ProblemError  # noqa: E402
from attsvm.papers import find_task  # noqa: E402
from attsvm.papers.experiments.blocks import Blocks  # noqa: E402
from attsvm.papers.experiments.measurements import attention_evenness, evenness, key_query_norms, weight_histograms  # noqa: E402
from attsvm.papers.experiments.models import TextShape  # noqa: E402
from attsvm.papers.experiments.pictures import load_pictures, varied  # noqa: E402
from attsvm.papers.experiments.reviews import load_reviews, load_tokenizer  # noqa: E402
from attsvm.papers.experiments.sentences import SENTENCES, read_sentences  # noqa: E402
from attsvm.papers.experiments.tables import read_splits  # noqa: E402

pytestmark = pytest.mark.slow

GOOD, BAD = ("wonderful", "great", "perfect"), ("awful", "boring", "terrible")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviews")
    for name, n in (("train", 48), ("test", 20)):
        labels = [row % 2 for row in range(n)]
        words = [(GOOD if label else BAD)[row % 3] for row, label in enumerate(labels)]
        texts = [f"the story<br /><br />was {word} and the film was {word}" for word in words]
        pq.write_table(pa.table({"text": texts, "label": labels}), folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    words = {word for sentence in SENTENCES for word in re.findall(r"\w+|[^\w\s]", sentence.text.lower())}
    words |= {*GOOD, *BAD, "story"}
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)]) + "\n")
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    for name, n in (("train", 40), ("test", 20)):
        encoded, labels = [], [row % 10 for row in range(n)]
        for label in labels:
            stream = io.BytesIO()
            points = generator.integers(0, 100, (32, 32, 3)) + 15 * label
            Image.fromarray(points.astype(np.uint8)).save(stream, "PNG")
            encoded.append({"bytes": stream.getvalue(), "path": None})
        pq.write_table(pa.table({"img": encoded, "label": labels}), folder / f"{name}.parquet")
    return folder


def self_contained(page):
    return loads(page) == []


def test_reviews_leave_a_page_with_every_optimiser_and_sentence(reviews, vocabulary, tmp_path, command):
    out = tmp_path / "out"
    optimizers = ("mirror-1.1", "mirror-3", "sgd", "adam")
    arguments = ["experiment", "imdb", "--data", reviews, "--vocabulary", vocabulary]
    arguments += ["--preset", "tiny", "--device", "cpu"]
    arguments += ["--optimizer", ",".join(optimizers), "--out", out, "--json"]
    status, _, err = command(*arguments)
    assert status == 0, err
    result = json.loads((out / "result.json").read_text())
    assert [run["optimizer"] for run in result["runs"]] == list(optimizers)
    for run in result["runs"]:
        assert run["status"] == "finished"
        assert [row["epoch"] for row in run["history"]] == [0, 1, 2]
        assert len(run["key_words"]["sentences"]) == len(SENTENCES) == 50
        for shares in run["histograms"].values():
            assert sum(shares) == pytest.approx(1)
        for sentence in run["key_words"]["sentences"]:
            assert sum(piece[2] for piece in sentence["pieces"]) + sentence["special"] == pytest.approx(1, abs=1e-5)
        # records of the attention that is shown; 12 steps, and the last one is the end
        assert [record["step"] for record in run["over_steps"]] == [0, 1, 2, 4, 8, 12]
        end = run["over_steps"][-1]["attention"]
        for sentence, found in zip(run["key_words"]["sentences"], end, strict=True):
            assert found["shares"] == pytest.approx([piece[2] for piece in sentence["pieces"]], abs=6e-5)
            assert found["scaled"] == pytest.approx(sentence["scaled"], abs=6e-5)
        assert run["over_steps"][0] == result["runs"][0]["over_steps"][0], "all runs begin with the same weights"
        assert run["over_steps"][0] != run["over_steps"][4]
    page = (out / "index.html").read_text()
    assert self_contained(page)
    assert page.count('data-steps="[0, 1, 2, 4, 8, 12]"') == 1
    of_slider = re.findall(r'<mark[^>]*--a:([\d.]+)" title="([\d.]+)%" data-over="(.*?)" data-said="(.*?)"', page)
    assert len(of_slider) == page.count("<mark")
    for opacity, share, over, said in of_slider:
        assert float(over.split()[-1]) == pytest.approx(float(opacity), abs=0.0101)
        assert float(said.split()[-1]) == pytest.approx(float(share), abs=0.101)
    assert page.count("<svg") == 8
    assert page.count('class="reading"') == 4 * 50
    assert '<mark class="key"' in page
    assert {path.stem for path in (out / "figures").iterdir()} >= {"accuracy", "histograms", "key-words"}
    assert result["published"] is None
    # nothing is left to train, and nothing changes but the page, which compares with another experiment
    weights = {path: path.read_bytes() for path in (out / "runs").rglob("model.safetensors")}
    assert len(weights) == 4
    six = tmp_path / "six"
    _, _, err = command(*arguments, "--resume", "--compare", six)
    assert err == f"attsvm: {six / 'result.json'}: no such file\n"
    six.mkdir()
    (six / "result.json").write_text(json.dumps(measured_with_six_layers(result)))
    assert command(*arguments, "--resume", "--compare", six)[0] == 0
    assert all(path.read_bytes() == before for path, before in weights.items())
    page = (out / "index.html").read_text()
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", page[page.index('class="published"') :])
    row = ["paper-6", "6", "ℓ1.1", "82.57", "80.00 ± 0.25", "4 of 2", "1"]
    assert cells[cells.index("paper-6") :][: len(row)] == row
    # with 3 and 4 layers nothing was run, with 6 layers ℓ2 was not; and ℓ3 is better than ℓ1.1 there
    assert cells.count("not run") == 3 + 3 + 1
    order = ["ℓ1.1 &gt; ℓ2 &gt; ℓ3", "ℓ3 &gt; ℓ1.1", "does not hold"]
    assert cells[cells.index(order[0]) :][:3] == order


def test_a_run_that_diverges_is_a_row_of_the_page_and_the_others_are_shown(reviews, vocabulary, tmp_path, command):
    out = tmp_path / "out"
    arguments = ["experiment", "imdb", "--data", reviews, "--vocabulary", vocabulary]
    arguments += ["--preset", "tiny", "--device", "cpu"]
    several = ["--optimizer", "mirror-1.1,adam", "--learning-rate", "1e4,1e-3"]
    status, shown, _ = command(*arguments, *several, "--out", out)
    assert status == 3  # some did not end as requested
    diverged, healthy = json.loads((out / "result.json").read_text())["runs"]
    assert (diverged["status"], healthy["status"]) == ("non_finite", "finished")
    assert not diverged["over_steps"]
    assert len(healthy["key_words"]["sentences"]) == len(SENTENCES)
    assert f"diverged after {diverged['steps']} steps" in shown
    page = (out / "index.html").read_text()
    assert f"diverged after {diverged['steps']} steps" in page
    assert page.count('class="reading"') == len(SENTENCES)
    one = ["--optimizer", "mirror-1.1", "--learning-rate", "1e4"]
    assert command(*arguments, *one, "--out", tmp_path / "alone")[0] == status
    assert (tmp_path / "alone/index.html").exists()


@pytest.mark.parametrize(
    ("texts", "labels", "said"),
    [
        (["", " "], [0, 1], "expected texts in the column text, got 2 empty ones"),
        (["good"], [1], "expected rows of at least two classes to train on, got 1 of class 1"),
    ],
)
def test_rows_that_nothing_can_be_learned_from_are_refused(reviews, vocabulary, tmp_path, texts, labels, said, refused):
    pq.write_table(pa.table({"text": texts, "label": labels}), tmp_path / "train.parquet")
    (tmp_path / "test.parquet").write_bytes((reviews / "test.parquet").read_bytes())
    out = tmp_path / "out"
    arguments = ["--data", tmp_path, "--vocabulary", vocabulary, "--preset", "tiny", "--out", out]
    refused(re.escape(said), "experiment", "imdb", *arguments)
    assert not out.exists()


def measured_with_six_layers(result):
    """The result of an experiment with the preset paper-6 on 25,000 test rows."""
    accuracies = {"mirror-1.1": 0.8, "mirror-3": 0.83}
    runs = [
        {**result["runs"][0], "optimizer": optimizer, "best": {"epoch": 4, "test_accuracy": accuracy}}
        for optimizer, accuracy in accuracies.items()
    ]
    return {**result, "preset": "paper-6", "data": {"test": 25_000}, "runs": runs}


def test_pictures_leave_a_page_with_their_attention(pictures, tmp_path, command):
    out = tmp_path / "out"
    status, shown, err = command(
        "experiment", "cifar10", "--data", pictures, "--preset", "tiny", "--optimizer", "mirror-1.5,adam",
        "--learning-rate", "0.01,0.001", "--device", "cpu", "--out", out,
    )  # fmt: skip
    assert status == 0, err
    result = json.loads((out / "result.json").read_text())
    assert [(run["optimizer"], run["learning_rate"]) for run in result["runs"]] == [
        ("mirror-1.5", 0.01),
        ("adam", 0.001),
    ]
    assert np.shape(result["runs"][0]["pictures"][0]["attention"]) == (4, 4)
    page = (out / "index.html").read_text()
    assert [np.shape(record["attention"]) for record in result["runs"][0]["over_steps"]] == [(6, 4, 4)] * 6
    # one layer is shown for each picture and run
    layers = re.findall(r'id="pictures-step-(\d+)-\d-\d" data-at="(\d)"( display="none")?', page)
    expected = [(str(step), str(k), ' display="none"' * (k < 5)) for k, step in enumerate((0, 1, 2, 4, 8, 10))]
    assert sorted(layers) == sorted(12 * expected)
    assert page.count("<svg") == 7
    assert "What the class token attends to" in page
    assert "Traceback" not in shown + err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mnist"], "task: expected imdb or cifar10, got 'mnist'"),
        (["imdb", "--preset", "huge"], "preset: expected one of paper-3"),
        (
            ["imdb", "--preset", "tiny", "--optimizer", "lion"],
            "optimizer: expected one of mirror-P with P > 1, sgd, adam, got 'lion'",
        ),
        (
            ["imdb", "--preset", "tiny", "--optimizer", "adam,adam"],
            "--optimizer: expected each name only once, got 'adam,adam'",
        ),
        (["imdb", "--preset", "tiny", "--optimizer", "mirror-7"], "--learning-rate: expected one for 'mirror-7'"),
        (
            ["imdb", "--preset", "tiny", "--learning-rate", "much"],
            "--learning-rate: expected a number, or one per optimiser, got 'much'",
        ),
        (["imdb", "--preset", "tiny", "--data", "/nowhere"], "/nowhere: no such folder"),
        (
            ["imdb", "--preset", "tiny", "--data", "/nowhere", "--vocabulary", "/nowhere"],
            "no tokenizer.json or vocab.txt",
        ),
        (["imdb", "--preset", "tiny", "--precision", "fp8"], "precision: expected 'float32' or 'bf16', got 'fp8'"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(arguments, message, tmp_path, vocabulary, refused):
    if "--vocabulary" not in arguments:
        arguments = [*arguments, "--vocabulary", vocabulary]
    refused(re.escape(message), "experiment", *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_numbers_of_special_tokens_fit_the_model(vocabulary, tmp_path):
    path, task = tmp_path / "tokenizer.json", find_task("imdb")
    BertWordPieceTokenizer(str(vocabulary), lowercase=True).save(str(path))
    state = json.loads(path.read_text())
    state["post_processor"]["sep"][1] = 2**31  # which no token of the vocabulary has
    path.write_text(json.dumps(state))
    said = f"{path}: expected numbers of tokens below {task.preset('tiny').shape.vocabulary}, got {2**31}"
    with pytest.raises(ProblemError, match=f"^{re.escape(said)}$"):
        task.load(task.preset("tiny"), "reviews", vocabulary=str(path))
    # a special token that is not listed: the library, in Rust, panics
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    state["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {}}
    path.write_text(json.dumps(state))
    with pytest.raises(ProblemError, match=f"^{re.escape(f'{path}: the tokenizer cannot be read (')}"):
        load_tokenizer(str(path))


def test_a_folder_of_something_else_is_left_alone(reviews, vocabulary, tmp_path, refused):
    (tmp_path / "thesis.tex").write_text("years")
    arguments = ["imdb", "--data", reviews, "--vocabulary", vocabulary, "--preset", "tiny", "--out", tmp_path]
    for option in ([], ["--force"], ["--resume"]):
        refused("holds no experiment", "experiment", *arguments, *option)
    assert (tmp_path / "thesis.tex").read_text() == "years"


def test_data_and_vocabulary_that_do_not_fit_are_named(reviews, vocabulary, pictures, tmp_path):
    tokenizer = load_tokenizer(str(vocabulary))
    with pytest.raises(ProblemError, match=r"train.parquet: expected a column 'text', got 'img', 'label'"):
        load_reviews(str(pictures), tokenizer, 8)
    for name in ("train", "test"):
        pq.write_table(pa.table({"text": ["a", "b"], "label": [0, 2]}), tmp_path / f"{name}.parquet")
    with pytest.raises(ProblemError, match=r"expected labels 0 .*, got 2"):
        load_reviews(str(tmp_path), tokenizer, 8)
    for name in ("train", "test"):
        pq.write_table(pa.table({"img": [{"bytes": b"x", "path": ""}], "label": [0]}), tmp_path / f"{name}.parquet")
    with pytest.raises(ProblemError, match="row 0, counted from 0, is not a readable picture"):
        load_pictures(str(tmp_path))
    bad = tmp_path / "vocab.txt"
    bad.write_text("[UNK]\n[PAD]\n[CLS]\n[SEP]\n")
    with pytest.raises(ProblemError, match="as number 0"):
        load_tokenizer(str(bad))
    bad.write_text("[PAD]\n[CLS]\n[SEP]\n")
    with pytest.raises(ProblemError, match=r"the tokenizer cannot be read \(.*\[UNK\]"):
        load_tokenizer(str(bad))
    with pytest.raises(ProblemError, match="validation: expected fewer rows than the 48 to train on, got 48"):
        load_reviews(str(reviews), tokenizer, 8, validation_rows=48)


def test_other_folders_are_read_by_datasets(monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets (extra `papers`) is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "reviews"
    folder.mkdir()
    rows = {"train": [("good", 1), ("bad", 0), ("so so", 0)], "test": [("fine", 1)]}
    for split, pairs in rows.items():
        lines = (json.dumps({"text": text, "label": label}) for text, label in pairs)
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    for split, pairs in zip(read_splits(str(folder), "text"), rows.values(), strict=True):
        assert list(zip(split.inputs, split.labels.tolist(), strict=True)) == pairs
    with pytest.raises(ProblemError, match="expected a column 'review', got 'text', 'label'"):
        read_splits(str(folder), "review")
    (folder / "test.jsonl").unlink()
    with pytest.raises(ProblemError, match="no split 'test'"):
        read_splits(str(folder), "text")


def test_what_is_not_installed_is_named(monkeypatch, reviews, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ProblemError, match=r"stanfordnlp/imdb: no such folder.*attsvm\[papers\]"):
        read_splits("stanfordnlp/imdb", "text")
    with pytest.raises(ProblemError, match=r"holds no train\*\.parquet.*attsvm\[papers\]"):
        read_splits(str(tmp_path), "text")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ProblemError, match="Parquet needs pyarrow"):
        read_splits(str(reviews), "text")
    monkeypatch.setattr("attsvm.papers.experiments.reviews.VOCABULARY_PACKAGE", "no_such_package")
    with pytest.raises(ProblemError, match=r"vocabulary: expected .*, got none"):
        load_tokenizer()


def test_rows_to_choose_on_are_not_trained_on(tmp_path, vocabulary):
    words = sorted(vocabulary.read_text().split())[-60:]
    for name in ("train", "test"):
        texts = [f"{name if name in words else 'the'} {word}" for word in words]
        pq.write_table(pa.table({"text": texts, "label": [0, 1] * 30}), tmp_path / f"{name}.parquet")
    tokenizer = load_tokenizer(str(vocabulary))
    train, validation = load_reviews(str(tmp_path), tokenizer, 4, train_rows=30, validation_rows=20)
    assert (len(train), len(validation)) == (30, 20)
    rows = [{tuple(row.tolist()) for row in part.inputs} for part in (train, validation)]
    assert not rows[0] & rows[1]
    again, _ = load_reviews(str(tmp_path), tokenizer, 4, train_rows=30)
    assert len(again) == 30


def test_variation_moves_and_flips_whole_pictures():
    picture = torch.arange(3 * 32 * 32).remainder(251).to(torch.uint8).unflatten(0, (3, 32, 32))
    torch.manual_seed(0)
    found = varied(picture.expand(64, -1, -1, -1))
    assert found.dtype == torch.uint8
    padded = torch.from_numpy(np.pad(picture.numpy(), ((0, 0), (4, 4), (4, 4)), mode="reflect"))
    windows = {
        window.contiguous().numpy().tobytes()
        for down in range(9)
        for right in range(9)
        for window in (padded[:, down : down + 32, right : right + 32],)
    }
    mirrored = torch.from_numpy(np.pad(picture.flip(-1).numpy(), ((0, 0), (4, 4), (4, 4)), mode="reflect"))
    windows |= {
        mirrored[:, down : down + 32, right : right + 32].contiguous().numpy().tobytes()
        for down in range(9)
        for right in range(9)
    }
    made = {one.contiguous().numpy().tobytes() for one in found}
    assert made <= windows
    assert len(made) > 30


def test_measures_agree_with_their_formulas(vocabulary):
    values = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [-3.0, 3.0, 0.0, 0.0]])
    assert evenness(values, 4).tolist() == pytest.approx([1.0, 0.25, 0.5])
    torch.manual_seed(0)
    model = TextShape(Blocks(width=12, layers=2, heads=3, hidden=8), length=24, vocabulary=200).build()
    attention = model.blocks[1].attention
    keys, queries = attention.key.weight.detach().double(), attention.query.weight.detach().double()
    by_hand = [torch.linalg.norm(keys[4 * h : 4 * h + 4].T @ queries[4 * h : 4 * h + 4]) for h in range(3)]
    assert key_query_norms(model)[1] == pytest.approx(float(sum(by_hand) / 3))
    attention.query.weight.data.zero_()
    texts = torch.randint(1, 200, (5, 9))
    texts[0, 4:] = 0
    assert attention_evenness(model, texts)["all"][1] == pytest.approx(1)
    # with no logits every token of a sentence gets the same, so the score is the share of key words
    found = read_sentences(model, load_tokenizer(str(vocabulary)), 24)
    assert found.score == pytest.approx(found.even)
    readings = found.sentences
    assert readings[0]["text"] == "The acting was wonderful from the first scene to the last."
    assert [readings[0]["text"][a:b] for a, b, _, key in readings[0]["pieces"] if key] == ["wonderful"]
    assert weight_histograms(model)["query"][0] == pytest.approx(0.5)


def test_help_starts_without_torch():
    code = (
        "import sys, attsvm.cli.experiment, attsvm.cli.inspect\nassert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
