"""What the page and the terminal say, on input that is awkward to draw or to put into words."""

import re
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attsvm import Problem, fit
from attsvm._fit import fit_text, read_texts
from attsvm._utils.displays import summary_of
from attsvm.datasets import random_problem
from attsvm.pages import fit_figures, make_page, number
from attsvm.pages.fit import comparison_rows, tables
from attsvm.pages.words import mean_interval, share_interval, short
from attsvm.theory import Hypothesis

GENERATOR = np.random.default_rng(5)
LABELS = np.where(np.arange(8) % 2, 1.0, -1.0)
TOKENS = GENERATOR.standard_normal((8, 3, 4)) + LABELS[:, None, None] * np.eye(4)[0]


@given(st.floats(-1e300, 1e300) | st.sampled_from([np.inf, -np.inf, np.nan]) | st.floats(0.99, 1))
def test_a_number_is_short_and_reads_back(value):
    text = number(value)
    if not np.isfinite(value):
        assert text == "-"
        return
    assert len(text) <= len("1 − 1.0e-05")
    if text.startswith("1 − "):
        assert 1 - value == pytest.approx(float(text.removeprefix("1 − ")), rel=0.051)
    else:
        assert float(text) == pytest.approx(value, rel=5.1e-3)


@dataclass(frozen=True)
class Awkward:
    """A problem, how it is fitted, and what a reader must be told."""

    said: str
    arrays: dict
    options: dict


def interrupt(_):
    raise KeyboardInterrupt


FIXED = {"train_head": False}
AWKWARD = {
    "one sequence a class": Awkward("no softmax", {"tokens": TOKENS[:2], "labels": LABELS[:2]}, FIXED | {"steps": 3}),
    "one step": Awkward(
        "still changing at the last record", {"tokens": TOKENS, "labels": LABELS}, FIXED | {"steps": 1}
    ),
    "one token": Awkward("nothing is selected", {"tokens": TOKENS[:, :1], "labels": LABELS}, FIXED),
    "one token, trained": Awkward("no theorem", {"tokens": TOKENS[:, :1], "labels": LABELS}, {}),
    "one sequence a class, trained": Awkward("no theorem", {"tokens": TOKENS[:2], "labels": LABELS[:2]}, {"steps": 3}),
    "zero tokens": Awkward("no theorem", {"tokens": TOKENS * 0, "labels": LABELS}, {}),
    "head zero": Awkward("exactly zero", {"tokens": TOKENS, "labels": LABELS, "head": np.zeros(4)}, {}),
    "equal tokens": Awkward("nothing is selected", {"tokens": TOKENS[:, [0, 0]], "labels": LABELS}, FIXED),
    "tiny tokens": Awkward("scale the tokens", {"tokens": TOKENS * 1e-6, "labels": LABELS}, FIXED | {"steps": 50}),
    "huge tokens": Awkward("passed 1e8", {"tokens": TOKENS * 1e9, "labels": LABELS}, FIXED | {"steps": 50}),
    "huge tokens, trained": Awkward("no theorem", {"tokens": TOKENS * 1e200, "labels": LABELS}, {"steps": 50}),
    "one direction": Awkward(
        "step 50",
        {"tokens": np.stack([LABELS[:, None] * np.array([1.0, 0.2, 0.1]), np.ones((8, 3))], axis=-1)}
        | {"labels": LABELS, "head": np.array([1.0, 0.0]), "keys": TOKENS[:, :, :1] * 0 + np.array([[30.0], [1], [0]])},
        {"steps": 50},
    ),
    "interrupted": Awkward(
        "Interrupted", {"tokens": TOKENS, "labels": LABELS}, FIXED | {"steps": 10**6, "callback": interrupt}
    ),
    "interrupted, trained": Awkward(
        "Interrupted", {"tokens": TOKENS, "labels": LABELS}, {"steps": 10**6, "callback": lambda _: True}
    ),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_input_is_drawn_without_a_warning_and_said_in_words(name, tmp_path):
    case = AWKWARD[name]
    problem = Problem(**case.arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = fit(problem, **case.options)
        result = done.numbers()
        make_page(done, command="attsvm fit").write(tmp_path)
    words = re.sub(
        r"<style>.*?</style>|<script>.*?</script>|<svg.*?</svg>|<[^>]*>",
        " ",
        re.sub(r"</?a\b[^>]*>", "", (tmp_path / "index.html").read_text()),  # terms have links
        flags=re.S,
    )
    assert case.said in words
    assert not re.search(r"\b(nan|inf|None|True|False|array)\b", words)
    on_terminal = " ".join(cell for _, rows in tables(done, result) for row in rows for cell in row)
    assert all(word in words for word in on_terminal.split())
    assert all(drawn.stat().st_size > 1000 for drawn in (tmp_path / "figures").glob("*"))


def test_a_figure_that_cannot_be_drawn_leaves_a_note_and_the_whole_result(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("Data cannot be log-scaled")

    monkeypatch.setattr(fit_figures, "_saturation", fail)
    done = fit(Problem(TOKENS, labels=LABELS), steps=50)
    with pytest.warns(RuntimeWarning, match="'saturation' could not be drawn"):
        make_page(done, command="attsvm fit").write(tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "The figure &#39;saturation&#39; could not be drawn (ValueError: Data cannot be log-scaled)." in page
    assert {path.name for path in tmp_path.iterdir()} == {
        "index.html",
        "result.json",
        "run.npz",
        "model.npz",
        "figures",
    }
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"selection", "learning"}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    path.write_text("text,label\n" + "good the film,+\nbad the film,-\n" * 50)
    return fit_text(read_texts(path), min_documents=1, dim=2, max_steps=3)


@pytest.mark.parametrize("attention", [0.0, 1e-320, 1e-200])
def test_words_without_attention_are_drawn(attention, texts):
    done = texts
    occurs = done.words.frequency > 0
    words = replace(
        done.words,
        attention=np.where(occurs, attention, 0.0),
        by_class=np.where(attention > 0, done.words.by_class, np.nan),
    )
    done = replace(done, words=words)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = make_page(done, source="here", test=None, command="attsvm fit-text here", seed=0).html()
    assert "Words below 1e-06 are drawn there." in page
    assert "nan" not in page[page.index("<body>") :].partition(">Figures</h2>")[0]


def test_steps_and_indices_that_are_none_are_no_part_of_a_median():
    assert summary_of(np.array([-1, 40, -1]), (3,)) == "median 40 (40 to 40); 2 without"
    assert summary_of(np.array([-1, -1]), (2,)) == "none"
    assert summary_of(np.array([np.nan, 2.0, np.inf]), (3,)) == "median 2 (2 to 2); 2 without"


def test_no_number_is_written_as_minus_zero():
    logits, share = Hypothesis("name", "a step", True, -0.0, "logits"), Hypothesis("name", "a share", True, -0.0)
    texts = [number(-0.0), short(-0.0), summary_of(np.array(-0.0), ()), summary_of(np.array([-0.0, -0.0]), (2,))]
    texts += [str(logits), str(share)]
    assert [text for text in texts if re.search(r"-0(?![.\d]*[1-9])", text)] == []
    assert str(logits) == "a step: holds (0 logits)"


def test_intervals_of_several_queries_count_the_sequences():
    problem = random_problem(24, 3, 4, seed=1, num_queries=3)
    done = fit(problem, steps=50, test_fraction=0)
    result = done.numbers()
    assert result["accuracy"]["train_interval"] == pytest.approx(share_interval(done.on_train.accuracy, 24))
    assert any("count each sequence once" in note for note in make_page(done, command="attsvm fit").notes)
    assert "of the 72 training queries" in make_page(done, command="attsvm fit").verdict


@pytest.mark.parametrize(
    ("count", "said"), [(1000, "75.0% (the same in all draws)"), (12, "9 of the 12 (the same in all draws)")]
)
def test_draws_that_agree_have_no_interval(count, said):
    accuracies = np.full(3, 0.75)
    one = {"classifier": "mean token", "mean_accuracy": 0.75, "mean_accuracy_interval": mean_interval(accuracies)}
    rows = comparison_rows(
        {
            "test_sequences": count,
            "seeds": [0, 1, 2],
            "classifiers": [one | {"mean_right": None, "mean_right_interval": None}],
        }
    )
    assert [row[1:] for row in rows] == [(said, "-")]
