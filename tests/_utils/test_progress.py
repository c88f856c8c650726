"""How progress is shown: a bar in a terminal and in a notebook, plain lines elsewhere, and only what is known."""

import io
import re
import signal
import sys
from types import SimpleNamespace

import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import attsvm
from attsvm import Progress
from attsvm._utils import progress, progress_display
from attsvm._utils.interruption import interruptions
from attsvm._utils.progress import shown, words
from attsvm._utils.progress_display import Lines

NAN = float("nan")


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves one second with each step."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.seconds)
    return now


def run(clock, steps, total, loss=0.5, stage=lambda step: None, seconds=10.0):
    with shown(True, "training", seconds_a_line=seconds) as callback:
        for step in range(1, steps + 1):
            clock.seconds += 1
            callback(Progress(step, total, loss=loss, stage=stage(step)))


LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d training: (.*)"


def lines(capsys):
    return [re.fullmatch(LINE, line)[1] for line in capsys.readouterr().err.splitlines()]


def test_off_a_terminal_there_is_a_line_every_ten_seconds_with_the_time_left(clock, capsys):
    run(clock, 25, 100)
    # the time is that of the steps after the second call: 90 steps of a second are left after step 10
    assert lines(capsys) == [
        "10/100, loss 0.5, 90 s left",
        "20/100, loss 0.5, 80 s left",
        "25/25, loss 0.5",  # it ended there by itself
    ]


def test_what_is_stopped_does_not_end_at_its_last_step(clock, capsys):
    def stops(at):
        return at.step == 25

    def interrupts(at):
        if at.step == 25:
            with interruptions():
                signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    for callback in (stops, interrupts):
        with shown(True, "training", callback, seconds_a_line=10) as update:
            for step in range(1, 26):
                clock.seconds += 1
                update(Progress(step, 100))
        assert lines(capsys)[-1].startswith("25/100")
    signal.signal(signal.SIGINT, before)


def test_a_new_stage_is_a_line_and_a_short_computation_is_none(clock, capsys):
    run(clock, 6, 6, stage=lambda step: f"epoch {(step + 2) // 3} of 2")
    assert lines(capsys) == [
        "epoch 1 of 2, 1/6, loss 0.5",
        "epoch 2 of 2, 4/6, loss 0.5, 2 s left",
        "epoch 2 of 2, 6/6, loss 0.5",
    ]
    run(clock, 9, 100)
    assert not lines(capsys)


def test_what_is_not_known_is_not_shown(clock, capsys):
    run(clock, 3, None, loss=NAN, seconds=1.0)
    assert lines(capsys) == ["1", "2", "3"]
    assert words(Progress(0, 5, loss=None, gap=NAN), None) == "0/5"


def test_in_a_terminal_there_is_a_bar_that_is_removed(clock, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    for total in (100, None):
        run(clock, 25, total)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "25/25, loss 0.5" in plain
    assert "━" in plain
    assert "?" not in plain
    assert stream.getvalue().endswith("\x1b[2K")  # the line of the bar is erased


def test_a_notebook_has_a_bar_that_replaces_itself(clock, monkeypatch, capsys):
    made = []

    class Handle:
        update = staticmethod(lambda shown, raw: made.append(shown))

    def display(shown, raw, display_id):
        assert raw is display_id is True
        made.append(shown)
        return Handle

    kernel = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    run(clock, 3, 10)
    run(clock, 1, None)
    html = [one["text/html"] for one in made]
    assert made[2]["text/plain"] == "training: 3/10, loss 0.5, 7 s left"
    assert len(html) == 5
    assert '<progress max="10" value="3"' in html[2]
    assert "training: 3/10, loss 0.5, 7 s left" in html[2]
    assert '<progress max="3" value="3"' in html[3]
    assert "<progress style" in html[4]
    assert capsys.readouterr() == ("", "")


def test_functions_show_their_progress_and_still_call_back(monkeypatch):
    seen, called = [], []

    class Kept(Lines):
        def show(self, at):
            seen.append((self.name, at.step, at.steps))

    monkeypatch.setattr(progress_display, "find_display", Kept)
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    run = attsvm.train(problem, steps=30, progress=True, callback=called.append)
    assert seen[-1] == ("training", 30, 30)
    assert called[-1].step == 30
    seen.clear()
    attsvm.solve_svm(problem, run.selected, "nuclear", progress=True)
    assert seen
    seen.clear()
    pipeline = make_pipeline(FunctionTransformer(), attsvm.AttentionClassifier(max_steps=50, random_state=0))
    pipeline.fit(problem.tokens, [0, 1, 1], attentionclassifier__progress=True)
    assert seen[-1] == ("training", 50, 50)
    with pytest.raises(attsvm.errors.ProblemError, match="progress: expected True or False, got 'yes'"):
        attsvm.train(problem, steps=1, progress="yes")
    with pytest.raises(attsvm.errors.ProblemError, match="callback: expected a function"):
        attsvm.train(problem, steps=1, progress=True, callback=3)
