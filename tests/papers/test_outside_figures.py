"""A figure outside the package: found, run, reused only while its source is the same, or refused by name."""

import re
import sys

import pytest

from attsvm import ProblemError
from attsvm.papers import FIGURES, Standing, chosen, run, several, write

pytestmark = pytest.mark.slow

SOURCE = """
import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.papers import Figure, Row, verdict


def halves(count):
    return {"halves": 0.5 ** np.arange(count)}


class Halving(Figure):
    name, paper = "halving", "A paper <of one page>"
    title, claim, criterion = "Halving", "Halves tend to 0.", "The last one is below 0.1."
    full, quick = {"count": 9}, {"count": 5}

    def measure(self, sizes, piece):
        return piece("all", halves, sizes["count"])

    def judge(self, sizes, arrays):
        return verdict({"the last one is too large": arrays["halves"][-1] < 0.1}, f"It is {arrays['halves'][-1]}.")

    def rows(self, sizes, arrays):
        return [Row("last", f"{arrays['halves'][-1]:.4f}")]

    def draw(self, sizes, arrays):
        drawing = Drawing(figsize=(3, 2))
        drawing.subplots().plot(arrays["halves"])
        return drawing


FIGURE = Halving()
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A module in the current folder, and the function that imports it anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which a change in the same second would not replace
    monkeypatch.syspath_prepend(tmp_path)  # before the folders of earlier tests
    (tmp_path / "outside_figure.py").write_text(SOURCE)

    def find():
        sys.modules.pop("outside_figure", None)
        return FIGURES.find("outside_figure:FIGURE")

    yield find
    sys.modules.pop("outside_figure", None)


def test_it_runs_by_its_import_path_after_the_built_in_ones(outside, tmp_path, monkeypatch, command):
    monkeypatch.setattr(several, "num_threads", lambda: 2)  # two figures side by side, in processes
    outside()
    assert list(chosen(["outside_figure:FIGURE", "feasibility"])) == ["feasibility", "outside_figure:FIGURE"]
    status, shown, err = command("reproduce", "outside_figure:FIGURE", "feasibility", "--quick", "--out", "out")
    assert status == 0, err
    assert shown.index("feasibility") < shown.index("halving")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "A paper &lt;of one page&gt;" in page
    assert "attsvm reproduce outside_figure:FIGURE --quick" in page
    assert (tmp_path / "out" / "halving.svg").stat().st_size > 1000


def test_its_pieces_are_reused_only_while_its_own_file_is_the_same(outside, tmp_path):
    assert [run(outside(), tmp_path / "out").reused for _ in range(2)] == [0, 1]
    path = tmp_path / "outside_figure.py"
    path.write_text(path.read_text().replace("0.5 ** np", "0.4 ** np"))
    changed = run(outside(), tmp_path / "out")
    assert changed.reused == 0
    assert changed.arrays["halves"][1] == 0.4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no-such-figure", "got 'no-such-figure'. The names are adamw-epsilon,"),
        (3, "expected a Figure, got int"),
    ],
)
def test_what_is_no_figure_is_refused_by_name(given, message, tmp_path):
    with pytest.raises(ProblemError, match=re.escape(message)):
        run(given, tmp_path)


def test_a_taken_name_is_refused(outside):
    figure = outside()
    type(figure).name = "rank"
    with pytest.raises(ProblemError, match="the name 'rank' is taken by another figure"):
        chosen(["rank", "outside_figure:FIGURE"])


def test_a_drawing_that_fails_keeps_what_was_measured(outside, tmp_path, monkeypatch):
    figure = outside()

    def draw(self, sizes, arrays):
        raise ValueError("Data cannot be log-scaled.")

    monkeypatch.setattr(type(figure), "draw", draw)
    with pytest.warns(RuntimeWarning, match="halving could not be drawn .*log-scaled"):
        outcome = run(figure, tmp_path / "out", quick=True)
    write(outcome, tmp_path / "out", "a command")
    assert outcome.verdict.standing == Standing.HOLDS
    assert b"log-scaled" in (tmp_path / "out" / "halving.svg").read_bytes()
    assert (tmp_path / "out" / "halving.json").exists()
