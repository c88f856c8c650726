"""The Python of the README and of the guide runs as it stands, block after block, and prints what the page shows."""

import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.optimized, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
# the other pages need a model, or are run by tests/torch/test_recipes.py and tests/test_docs.py
GUIDE = (
    *("att_svm", "training", "theory", "regularization_path", "estimator", "results"),
    *("margin_profile", "plots", "sweeps", "next_token"),
)
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def blocks(page):
    """Pairs of Python code and the output that the page shows below it, or None."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)


def check_output(printed, shown):
    """The same words, and the same numbers to three digits; numbers below 1e-9 are rounding errors."""
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    numbers = ([float(x.replace(",", "")) for x in NUMBER.findall(text)] for text in (printed, shown))
    assert next(numbers) == pytest.approx(next(numbers), rel=1e-3, abs=1e-9)


def run(page, names, capsys):
    for code, shown in blocks(page):
        exec(compile(code, str(page), "exec"), names)
        printed = capsys.readouterr().out
        if shown:
            check_output(printed, shown)


def test_the_readme_runs_and_prints_what_it_shows(capsys):
    torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    names = {"model": torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)}
    assert len(blocks(README)) >= 4
    assert blocks(README)[0][1]
    run(README, names, capsys)
    # the direction error falls like 1/k² under steps of constant length, and is 2.5e-7 after 20,000
    assert names["attsvm"].direction_error(names["run"].weights, names["solution"].direction) < 3e-7
    score = float(re.search(r"classifier\.score.*# (0\.\d+);", README.read_text(encoding="utf-8"))[1])
    assert round(names["classifier"].score(names["bags"].test, names["bags"].test_labels), 2) == score


@pytest.mark.parametrize("name", GUIDE)
def test_the_guide_runs_and_prints_what_it_shows(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(ROOT / "docs" / "guide" / f"{name}.md", {}, capsys)


@pytest.mark.parametrize("name", ["guide/which_call", "howto"])
def test_the_short_answers_run_and_print_what_they_show(name, capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    monkeypatch.chdir(tmp_path)
    run(ROOT / "docs" / f"{name}.md", {}, capsys)
