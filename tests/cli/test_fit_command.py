"""``attsvm fit``, end to end: what it writes, and what it refuses."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import cvxpy
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import attsvm
from attsvm.pages import number
from attsvm.training import Run
from oracles.attention import softmax
from oracles.pages import loads
from oracles.schemas import check_result

pytestmark = pytest.mark.slow

ATTSVM = [sys.executable, "-m", "attsvm"]


def attsvm_fit(*arguments: object, **options) -> subprocess.CompletedProcess:
    command = [*ATTSVM, "fit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture
def fit_here(command):
    """The result of ``attsvm fit ... --json``, run in this process, where JAX is loaded already."""

    def run(*arguments: object) -> dict:
        status, out, error = command("fit", *arguments, "--json")
        assert status == 0, error
        return json.loads(out)

    return run


def saturating_problem(**more) -> dict[str, np.ndarray]:
    """Twelve separable prompt sequences: the first token carries the label, at a margin."""
    generator = np.random.default_rng(3)
    labels = np.where(np.arange(12) % 2, 1.0, -1.0)
    tokens = 0.3 * generator.standard_normal((12, 4, 6))
    tokens[:, 0, 0] += 2.0
    tokens[:, 0, 1] += 2.0 * labels
    return {"tokens": tokens, "labels": labels, **more}


@pytest.fixture(scope="module")
def digits_out(tmp_path_factory):
    """A fixed-head run on patches of digits, short but long enough to saturate."""
    out = tmp_path_factory.mktemp("digits") / "result"
    done = attsvm_fit("digit-patches", "--classes", "3,8", "--no-train-head", "--steps", 5_000, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def test_numbers_follow_from_run_and_data_alone(digits_out):
    """Re-derived from the saved run and scikit-learn's digits, by NumPy, without our code for the measures."""
    out, result = digits_out
    data = load_digits()
    chosen = np.isin(data.target, (3, 8))
    pictures = data.images[chosen] / 16
    patches = pictures.reshape(-1, 4, 2, 4, 2).swapaxes(2, 3).reshape(-1, 16, 4)
    tokens = np.concatenate([patches, np.broadcast_to(np.eye(16), (len(patches), 16, 16))], axis=-1)
    labels = np.where(data.target[chosen] == 3, 1, -1)
    test = np.array(result["data"]["test_rows"])
    train = np.setdiff1d(np.arange(len(labels)), test)
    run = Run.load(out / "run.npz")
    p, v = run.parameters["p"], run.parameters["v"]
    logits = tokens @ p
    attention = softmax(logits)
    correct = labels * np.einsum("nt,ntd,d->n", attention, tokens, v) > 0
    assert result["accuracy"]["test"] == correct[test].mean()
    assert result["accuracy"]["train"] == correct[train].mean()
    assert result["saturation"]["median_largest_probability"] == pytest.approx(
        np.median(attention[train].max(axis=1)), rel=1e-12
    )
    assert result["selection"]["selected"] == logits[train].argmax(axis=1).tolist()
    selected = logits[train].argmax(axis=1)
    others = np.arange(16) != selected[:, None]
    rows = (tokens[train, selected][:, None] - tokens[train])[others]
    shortest = cvxpy.Variable(20)
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(shortest)), [rows @ shortest >= 1]).solve(cvxpy.CLARABEL)
    value = np.linalg.norm(shortest.value)
    assert result["att_svm"]["value"] == pytest.approx(value, rel=1e-6)
    assert result["att_svm"]["margin_ratio"] == pytest.approx((rows @ p).min() / np.linalg.norm(p) * value, rel=1e-6)
    error = ((p / np.linalg.norm(p) - shortest.value / value) ** 2).sum() / 2
    assert result["direction_error"]["final"] == pytest.approx(error, rel=1e-3)
    assert not result["saturation"]["soft"]


def test_the_folder_is_complete_and_the_page_shows_the_numbers(digits_out):
    out, result = digits_out
    assert {path.name for path in out.iterdir()} == {"index.html", "result.json", "run.npz", "figures"}
    assert json.loads((out / "result.json").read_text()) == result
    assert [path.name for path in out.parent.iterdir()] == ["result"], "nothing else is left behind"
    html = (out / "index.html").read_text()
    assert loads(html) == []
    for shown in (
        f"{result['accuracy']['test']:.1%}",
        "{:.1%} ({:.1f}-{:.1f}%)".format(
            result["accuracy"]["test"], *(100 * end for end in result["accuracy"]["test_interval"])
        ),
        f"{result['accuracy']['baseline_test']:.1%}",
        number(result["direction_error"]["final"]),
        result["data"]["sha256"],
    ):
        assert shown in html
    assert html.count("<figure") == len(list((out / "figures").iterdir()))


def test_the_same_seed_gives_the_same_numbers(digits_out):
    _, first = digits_out
    again = json.loads(attsvm_fit("digit-patches", "--no-train-head", "--steps", 5_000, "--json").stdout)
    for volatile in ("command", "seconds"):
        del again[volatile]
    del again["training"]["seconds"]
    assert again == {
        **{name: value for name, value in first.items() if name not in ("command", "seconds")},
        "training": {name: value for name, value in first["training"].items() if name != "seconds"},
    }


def test_theory_has_one_sentence_where_no_theorem_applies(tmp_path, fit_here):
    np.savez(tmp_path / "problem.npz", **saturating_problem())
    results, pages = {}, {}
    fixed = {"soft": ["--no-train-head", "--steps", 3], "saturated": ["--no-train-head", "--steps", 4000]}
    for name, options in {**fixed, "trained": ["--steps", 4000]}.items():
        out = tmp_path / name
        results[name] = fit_here(tmp_path / "problem.npz", *options, "--test-fraction", 0, "--out", out)
        html = re.sub(
            r"<style>.*?</style>|<svg.*?</svg>|<[^>]*>", " ", (out / "index.html").read_text(), flags=re.DOTALL
        )
        pages[name] = html.partition("</script>")[2] or html
    error = results["saturated"]["direction_error"]["final"]
    assert 0 <= error < 0.1
    assert number(error) in pages["saturated"]
    assert "What theory says" in pages["saturated"]
    assert results["saturated"]["accuracy"]["test"] is None
    for name, reason in (("soft", "not saturated"), ("trained", "no theorem covers")):
        result, page = results[name], pages[name]
        assert result["direction_error"] is None
        assert result["theory"] is None
        assert reason in result["direction_error_missing"]
        assert page.count(f"No Att-SVM comparison is reported: {result['direction_error_missing']}.") == 1
        for words in ("What theory says", "Optimal tokens", "largest possible margin", "infinity", "not reported"):
            assert words not in page.replace("No Att-SVM comparison", "")
    assert results["soft"]["att_svm"]["status"] == "optimal"
    assert results["trained"]["att_svm"] is None


@pytest.fixture(scope="module")
def canvases_out(tmp_path_factory):
    """A short fixed-head run on canvases of digits, with two draws."""
    out = tmp_path_factory.mktemp("canvases") / "result"
    sizes = ["--option", "train=120", "--option", "test=100", "--draws", 2, "--seed", 5]
    done = attsvm_fit("digits", "--no-train-head", "--steps", 1_000, *sizes, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def exact_kernel_accuracy(canvases):
    """Best test accuracy, over widths and penalties, of an SVM with the mean Gaussian kernel of two bags."""
    train, test = canvases.train.tokens, canvases.test.tokens
    T, d = train.shape[1:]

    def gram(left, right, gamma):
        pairs = rbf_kernel(left.reshape(-1, d), right.reshape(-1, d), gamma)
        return pairs.reshape(len(left), T, len(right), T).mean(axis=(1, 3))

    return max(
        SVC(kernel="precomputed", C=C)
        .fit(gram(train, train, gamma), canvases.train.labels)
        .score(gram(test, train, gamma), canvases.test.labels)
        for gamma in (0.05, 0.1, 0.2)
        for C in (1e2, 1e3, 1e4)
    )


def test_canvases_are_compared_on_the_same_rows(canvases_out):
    """Re-derived from the saved run and scikit-learn's digits: accuracy, right picks, intervals, baselines."""
    out, result = canvases_out
    canvases = attsvm.datasets.digit_canvases(120, 100, test_fraction=0.25, seed=5)
    tokens = canvases.test.tokens
    run = Run.load(out / "run.npz")
    p, v = run.parameters["p"], run.parameters["v"]
    attention = softmax(tokens @ p)
    correct = canvases.test.labels * np.einsum("nt,ntd,d->n", attention, tokens, v) > 0
    right = attention.argmax(axis=1) == canvases.test_places
    assert result["accuracy"]["test"] == correct.mean()
    assert result["selection"]["right"]["test"] == right.mean()
    for value, (low, high) in (
        (correct.mean(), result["accuracy"]["test_interval"]),
        (right.mean(), result["selection"]["right"]["test_interval"]),
    ):
        for end in (low, high):  # Wilson's ends are the shares that are z standard errors of their own away
            assert abs(value - end) == pytest.approx(1.959963985 * np.sqrt(end * (1 - end) / 100), rel=1e-8)
        assert low < value < high
    compared = {one["classifier"]: one for one in result["comparison"]["classifiers"]}
    assert result["comparison"]["seeds"] == [5, 6]
    assert compared["this layer"]["accuracies"][0] == correct.mean()
    assert compared["this layer"]["right_shares"][0] == right.mean()
    # an exhaustive choice on the test rows bounds what cross-validation can find
    features = {
        "mean token": lambda part, _: part.tokens.mean(axis=1),
        "all tokens side by side": lambda part, _: part.tokens.reshape(len(part.tokens), -1),
        "largest entries over the tokens": lambda part, _: part.tokens.max(axis=1),
        "the right token alone": lambda part, places: part.tokens[np.arange(len(places)), places],
    }
    for name, of in features.items():
        scores = [
            make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=2000, tol=1e-3))
            .fit(of(canvases.train, canvases.train_places), canvases.train.labels)
            .score(of(canvases.test, canvases.test_places), canvases.test.labels)
            for C in (1e-3, 1e-2, 1e-1, 1.0, 10.0)
        ]
        assert min(scores) - 0.04 <= compared[name]["accuracies"][0] <= max(scores) + 0.04, name
    usual = np.sign(canvases.train.labels.sum()) or -1
    assert compared["always the largest class"]["accuracies"][0] == (canvases.test.labels == usual).mean()
    # the kernel of bags without random features: the Gram matrix of the exact means, at the best width and penalty
    kernel = compared["mean of random Fourier features of the tokens"]["accuracies"][0]
    assert abs(kernel - exact_kernel_accuracy(canvases)) <= 0.08
    assert kernel > compared["mean token"]["accuracies"][0]
    for one in compared.values():
        values = one["accuracies"]
        half = 12.7062047 * abs(values[0] - values[1]) / 2  # Student's quantile with one degree of freedom
        interval = [*np.clip([np.mean(values) - half, np.mean(values) + half], 0, 1)] if half else None
        assert one["mean_accuracy_interval"] == pytest.approx(interval, abs=1e-8)
    html = (out / "index.html").read_text()
    for name in ("picks", "direction"):
        assert (out / "figures" / f"{name}.png").exists()
    assert html.count("<figure") == len(list((out / "figures").iterdir()))
    assert "Theorem 3" in result["theory"]["theorem"]
    assert "Theorem 3" in html
    holds = {one["statement"]: one["holds"] for one in result["theory"]["hypotheses"]}
    assert next(h for s, h in holds.items() if "constant learning rate" in s) is False
    assert any("cone" in statement for statement in holds)
    if result["direction_error"] is not None:
        assert "does not prove that this is the limit" in html


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes most of the time of a short fit."""
    monkeypatch.setattr("attsvm.pages.fit_figures.draw_fit", lambda fit: [])


@pytest.mark.usefixtures("no_figures")
def test_few_test_sequences_have_no_percentage(tmp_path, fit_here):
    """Of fewer than 20 test sequences the page and the terminal state the counts."""
    np.savez(tmp_path / "problem.npz", **saturating_problem())
    result = fit_here(tmp_path / "problem.npz", "--steps", 3, "--test-fraction", 0.5, "--out", tmp_path / "out")
    html = (tmp_path / "out" / "index.html").read_text()
    headline = re.search(r'<p class="verdict">(.*?)</p>', html, re.DOTALL)[1]
    cards = re.search(r'<dl class="cards">.*?</div>', html, re.DOTALL)[0]
    assert f"{round(6 * result['accuracy']['test'])} of the 6 test sequences" in headline
    for shown in (headline, cards):
        assert "%" not in shown


@pytest.mark.usefixtures("no_figures")
def test_with_queries_the_attention_is_combined_and_a_given_head_stays(tmp_path, fit_here):
    problem = attsvm.datasets.random_problem(6, 5, 4, seed=1, num_queries=3)
    problem.save(tmp_path / "problem.npz")
    result = fit_here(tmp_path / "problem.npz", "--steps", 50, "--test-fraction", 0, "--out", tmp_path / "out")
    assert result["training"]["attention"] == "combined"
    assert result["training"]["head"] == "fixed"
    run = Run.load(tmp_path / "out" / "run.npz")
    assert run.weights.shape == (4, 4)
    assert np.array_equal(run.parameters["v"], problem.head)


def bad_file(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "bad.npz"
    arrays = saturating_problem()
    if name == "nan":
        arrays["tokens"][1, 2, 3] = np.nan
    elif name == "unknown name":
        arrays["weights"] = np.zeros(3)
    elif name == "no labels":
        del arrays["labels"]
    np.savez(path, **arrays)
    if name == "truncated":
        path.write_bytes(path.read_bytes()[:700])
    elif name == "text":
        path.write_text("tokens, labels\n")
    elif name == "folder":
        path.unlink()
        path.mkdir()
    elif name == "pickled":
        np.savez(path, tokens=np.array([{"a": 1}], dtype=object))
    return path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nan", r"tokens: .*nan at \(1, 2, 3\)"),
        ("unknown name", "weights"),
        ("no labels", "attsvm solve"),
        ("truncated", "not a readable"),
        ("folder", "bad.npz: expected a file, got a folder"),
        ("text", "not a readable .npz archive .neither an archive nor an array"),
        ("pickled", "bad.npz"),
    ],
)
def test_a_bad_file_is_one_line_and_leaves_nothing(tmp_path, refused, name, said):
    path = bad_file(tmp_path, name)
    refused(said, "fit", path, "--out", tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.npz"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["nothing"],
            "source: expected digits, digit-patches, npz, a file .npz, or package.* got 'nothing'",
        ),
        (["absent.npz"], "absent.npz: no such file"),
        (["digits", "--classes", "3,3"], "two different digits"),
        (["digits", "--classes", "3,x"], "classes: expected two different digits, like 3,8, got '3,x'"),
        (["digit-patches", "--option", "patch=3"], "patch: expected 1, 2 or 4"),
        (["digit-patches", "--option", "size=3"], "expected one of the options classes, patch, got 'size'"),
        (["digits", "--option", "patch=2"], "digits: expected one of the options classes, train, test, got 'patch'"),
        (
            ["digit-patches", "--draws", "2"],
            "--draws: expected 1 for digit-patches, whose data are not random, got 2",
        ),
        (["digits", "--option", "patch"], "--option: expected NAME=VALUE, got 'patch'"),
        (["problem.npz", "--classes", "3,8"], "npz: expected one of the options path, got 'classes'"),
        (
            ["reviews.csv"],
            r"--label: .* in reviews.csv; for labelled texts use attsvm fit-text",
        ),
        (["x.npy"], r"got 'x.npy'; numpy.savez\('problem.npz', tokens=X, labels=y\) writes such a file .npz"),
        (["mine"], "got 'mine'; did you mean mine.npz\\?"),
        (["no_such_module:Source"], "source: 'no_such_module:Source' cannot be imported"),
        (["digits", "--threads", "0"], "--threads: expected an integer >= 1, got 0"),
    ],
)
def test_a_bad_argument_is_one_line_and_leaves_nothing(tmp_path, refused, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    names = {"mine.npz", "problem.npz", "reviews.csv"}
    for name in names:
        (tmp_path / name).touch()
    np.savez(tmp_path / "problem.npz", **saturating_problem())
    refused(said, "fit", *arguments)
    assert {entry.name for entry in tmp_path.iterdir()} == names


def test_a_fill_whose_model_cannot_be_written_is_refused_before_training(tmp_path, refused, monkeypatch):
    (tmp_path / "bags.csv").touch()
    monkeypatch.setattr("attsvm._utils.extras.find_spec", lambda _: None)
    refused(
        "model file needs skops: pip install", "fit", tmp_path / "bags.csv", "--fill", "mean", "--out", tmp_path / "x"
    )


def test_a_missing_file_is_refused_before_anything_slow_is_imported(tmp_path):
    code = "import sys\nfrom attsvm.cli.main import main\ntry: main()\nfinally: assert 'jax' not in sys.modules"
    for arguments in (["absent.npz"], ["problem.npz", "--test", "absent.csv"]):
        (tmp_path / "problem.npz").touch()
        command = [sys.executable, "-c", code, "fit", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (2, f"attsvm: {arguments[-1]}: no such file\n")


WITHIN_STEPS = """
import itertools, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
from attsvm.cli.main import main
from attsvm.training.session import Session

keep, calls = Session._keep, itertools.count()

def told(*arguments):
    if next(calls) == 5:
        print("well into training", flush=True)
    return keep(*arguments)

Session._keep = told
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_a_whole_result_or_none(tmp_path, number):
    np.savez(tmp_path / "problem.npz", **saturating_problem())
    arguments = ["fit", str(tmp_path / "problem.npz"), "--no-train-head", "--steps", "2000000000"]
    arguments += ["--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", WITHIN_STEPS, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "well into training\n"
        process.send_signal(number)
        _, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    left = {entry.name for entry in tmp_path.iterdir()}
    if number == signal.SIGINT:
        assert process.returncode == 130, stderr
        assert left == {"problem.npz", "out"}
        run = Run.load(tmp_path / "out" / "run.npz")
        assert run.status == "interrupted"
        assert 0 < run.step < 2_000_000_000
        written = {entry.name for entry in (tmp_path / "out").iterdir()}
        # where the machine is busy, there is no time for the rest
        assert written <= {"run.npz", "index.html", "result.json"}
        if "result.json" in written:
            result = json.loads((tmp_path / "out" / "result.json").read_text())
            assert result["interrupted"]
            assert result["training"]["steps_done"] == run.step
            assert "Interrupted" in (tmp_path / "out" / "index.html").read_text()
    else:
        assert process.returncode == 128 + signal.SIGTERM
        assert left == {"problem.npz"}


BETWEEN_STEPS = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from attsvm._fit import comparison
from attsvm.cli.main import main

calls, accuracy = [], comparison.kernel_mean_accuracy

def interrupted_in_the_draw(*arguments):
    calls.append(arguments)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)
    return accuracy(*arguments)

comparison.kernel_mean_accuracy = interrupted_in_the_draw
main()
"""


def test_ctrl_c_while_other_classifiers_are_trained_keeps_the_finished_draws(tmp_path):
    """No step is made then that could stop, and the process ends at once."""
    sizes = ["--no-train-head", "--steps", "200", "--option", "train=40", "--option", "test=40"]
    command = [sys.executable, "-c", BETWEEN_STEPS, "fit", "digits", *sizes, "--json", "--out", "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1].startswith("attsvm: interrupted; out holds the run and ")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    out = tmp_path / "out"
    assert {entry.name for entry in out.iterdir()} == {"index.html", "result.json", "run.npz"}
    result = json.loads((out / "result.json").read_text())
    assert json.loads(done.stdout) == result
    check_result(result)
    assert (result["status"], result["interrupted"]) == ("finished", True)
    assert Run.load(out / "run.npz").step == 200
    assert result["comparison"]["seeds"] == [0]
    assert "the comparison with other classifiers covers 1 draw." in (out / "index.html").read_text()
    assert "1 of 3 draws" in done.stderr


STRIPES = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attsvm import Problem
from attsvm.datasets import Pictures, Source, option


@dataclass(frozen=True)
class Stripes(Source):
    """Pictures of 2 x 6 pixels in two halves: a bright left half is labelled +1, a bright right half -1."""

    name: ClassVar[str] = "stripes"
    summary: ClassVar[str] = "bright halves"
    number: int = option(20, read=int, help="number of pictures")

    def load(self):
        labels = np.where(np.arange(self.number) % 2, 1.0, -1.0)
        tokens = np.full((self.number, 2, 6), 0.1)
        tokens[np.arange(self.number), (labels < 0).astype(int)] = 1
        tokens[:, 0, 0] = 0
        return Problem(tokens, labels=labels, head=np.eye(6)[0])

    def title(self):
        return "Bright halves"

    def label_names(self):
        return "left", "right"

    def pictures(self, tokens):
        brightness = tokens.reshape(-1, 2, 2, 3).swapaxes(1, 2).reshape(-1, 2, 6)
        return Pictures(brightness, np.array([[0, 0, 2, 3], [0, 3, 2, 3]]))


ten = Stripes(10)
'''


def test_a_source_outside_the_package_is_read_and_shown(tmp_path, fit_here, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stripes_source.py").write_text(STRIPES)
    arguments = ["--steps", 30, "--out", tmp_path / "out"]
    result = fit_here("stripes_source:Stripes", "--option", "number=12", *arguments)
    assert result["data"]["sequences"] == 12
    assert result["data"]["classes"] == ["left", "right"]
    html = (tmp_path / "out" / "index.html").read_text()
    assert "<title>Bright halves: attention, fixed prediction head</title>" in html
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} >= {"pictures", "attention"}
    assert fit_here("stripes_source:ten", "--steps", 30)["data"]["sequences"] == 10
    for said, *arguments in (
        ("stripes: expected no options for a source object", "stripes_source:ten", "--option", "number=3"),
        ("number: expected number of pictures, got 'x'", "stripes_source:Stripes", "--option", "number=x"),
        ("expected a Source or a subclass of it, got str", "stripes_source:__name__"),
    ):
        refused(said, "fit", *arguments)
