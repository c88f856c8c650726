"""A figure of ``attsvm reproduce`` defined outside the package: run from Python, by the command, and on its page."""

import json

# docs: begin
import numpy as np

import attsvm
from attsvm.papers import Figure, Row, verdict
from attsvm.plot.style import panel


def least_norms(tokens, seed):
    problem = attsvm.datasets.random_problem(4, tokens, 12, seed, batch=(8,))
    return {"value": attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).value}


class NormByTokens(Figure):
    name = "norm-by-tokens"
    paper = "Tests"
    title = "Norm of the Att-SVM by the number of tokens"
    claim = "Every further token is a constraint: the least norm grows with the number of tokens."
    criterion = "The median norm grows with every step."
    full = {"tokens": [2, 4, 8, 16], "seed": 0}
    quick = {"tokens": [2, 8], "seed": 0}

    def measure(self, sizes, piece):
        found = [piece(f"{T}-tokens", least_norms, T, sizes["seed"])["value"] for T in sizes["tokens"]]
        return {"norm": np.median(found, axis=1)}

    def judge(self, sizes, arrays):
        passed = {"a median is smaller": bool((np.diff(arrays["norm"]) > 0).all())}
        return verdict(passed, f"The median grows to {arrays['norm'][-1]:.2g}.")

    def rows(self, sizes, arrays):
        return [Row(f"{T} tokens", f"{x:.3g}") for T, x in zip(sizes["tokens"], arrays["norm"], strict=True)]

    def draw(self, sizes, arrays):
        drawing, axis = panel("tokens", "least norm", height=2)
        axis.plot(sizes["tokens"], arrays["norm"], marker="o")
        return drawing


# docs: end

import pytest  # noqa: E402

from attsvm.papers import Standing, run, several  # noqa: E402

HERE = "test_new_figure:NormByTokens"


@pytest.mark.parametrize("figure", [NormByTokens, NormByTokens(), HERE])
def test_it_is_measured_and_judged(figure, tmp_path):
    outcome = run(figure, tmp_path, quick=True)
    assert outcome.verdict.standing is Standing.HOLDS
    assert [row.name for row in outcome.rows] == ["2 tokens", "8 tokens"]
    assert outcome.pieces == 2


def test_the_command_line_measures_it_beside_a_built_in_one_and_writes_the_page(command, tmp_path, monkeypatch):
    monkeypatch.setattr(several, "num_threads", lambda: 1)  # no processes
    code, out, error = command("reproduce", HERE, "feasibility", "--quick", "--json", "--out", tmp_path)
    assert code == 0, error
    result = json.loads(out)["figures"]["norm-by-tokens"]
    assert result["verdict"] == "quick: criterion met"
    assert result["claim"] == NormByTokens.claim
    page = (tmp_path / "index.html").read_text()
    for shown in (NormByTokens.title, NormByTokens.claim, NormByTokens.criterion, result["why"], HERE):
        assert shown in page
    assert page.index("feasibility") < page.index("norm-by-tokens")
    assert {path.name for path in tmp_path.glob("norm-by-tokens.*")} == {
        "norm-by-tokens.png",
        "norm-by-tokens.svg",
        "norm-by-tokens.json",
    }


def test_what_a_figure_lacks_is_named(command, tmp_path):
    class Incomplete(Figure):
        measure, rows, draw = NormByTokens.measure, NormByTokens.rows, NormByTokens.draw
        name, paper, title, claim, full, quick = "incomplete", "Tests", "", "", {}, {}

    with pytest.raises(attsvm.ProblemError, match=r"^Incomplete: .* no judge\(\), no criterion$"):
        run(Incomplete, tmp_path, quick=True)
    code, _, error = command("reproduce", "test_new_figure:least_norms", "--out", tmp_path)
    assert (code, "expected a Figure" in error) == (2, True)
