"""The sizes of a run that the user gives, and conditions that were not tested."""

import numpy as np
import pytest

from attsvm.errors import ProblemError
from attsvm.papers import FIGURES, Standing, sizes_of


def test_sizes_of_the_user_hold_in_both_parts():
    sizes = sizes_of(FIGURES.find("kinds"), given={"dims": "3,7", "runs": 64})
    assert sizes["queries"]["self"].keys() == FIGURES.find("kinds").full["queries"]["self"].keys() - {"dims", "runs"}
    own = {"self": {"dims": [4]}}
    assert sizes_of(FIGURES.find("kinds"), given={"dims": "3,7", "queries": own})["queries"] == own


@pytest.mark.parametrize(
    ("figure", "name", "value", "message"),
    [
        ("kinds", "dim", "2,4", r"^dim: expected a size of kinds \(shapes, .*\), got 'dim'$"),
        ("kinds", "runs", "many", "^runs: expected an integer, got 'many'$"),
        ("kinds", "runs", "0", "^runs: expected an integer > 0, got 0$"),
        ("kinds", "runs", "1e2", "^runs: expected an integer, got 100.0$"),
        ("kinds", "dims", "[]", "^dims: expected a list with at least one value, got \\[\\]$"),
        ("kinds", "dims", "2,x", "^dims: expected a list with at least one value, got '\\[2,x\\]'$"),
        ("kinds", "dims", "2,0", r"^dims\[1\]: expected an integer > 0, got 0$"),
        ("kinds", "shapes", "5,5", r"^shapes\[0\]: expected a list with at least one value, got 5$"),
        ("kinds", "shapes", "[[5, 5, 5]]", r"^shapes\[0\]: expected a list of 2 values, got \[5, 5, 5\]$"),
        ("kinds", "queries", '{"none": {}}', "^queries: expected an object with names among cross, self, got"),
        ("vanishing-penalty", "log_penalties", "-10,3", r"^log_penalties\[1\]: expected a number < 0, got 3$"),
        ("key-prompt", "fixed head", "p,x", "^fixed head: expected a list of different names among p; .*, got"),
        ("key-prompt", "fixed head", "p,p", "^fixed head: expected a list of different names among p; .*, got"),
        ("key-prompt", "n, T, d", "3,4", "^n, T, d: expected a list of 3 values, got \\[3, 4\\]$"),
        ("saturation", "published", "yes", "^published: expected true or false, got 'yes'$"),
        ("tokens-kept", "lambda", "-1,0", r"^lambda\[0\]: expected a number >= 0, got -1$"),
    ],
)
def test_sizes_that_a_figure_lacks_and_values_of_another_kind_are_refused(figure, name, value, message):
    with pytest.raises(ProblemError, match=message):
        sizes_of(FIGURES.find(figure), given={name: value})


@pytest.mark.parametrize(
    ("figure", "name", "text", "expected"),
    [
        ("kinds", "dims", "8,2,4,2", [2, 4, 8]),
        ("kinds", "queries", '{"self": {"dims": [4, 2, 4]}}', {"self": {"dims": [2, 4]}}),
        ("vanishing-penalty", "log_penalties", "-10,-30.5,-10", [-10, -30.5]),
        ("vanishing-penalty", "kinds", "(K, Q)", ["(K, Q)"]),
        ("key-prompt", "fixed head", "W,p", ["W", "p"]),
        ("one-layer-transformer", "trained", "W, V, MLP; W, V", ["W, V, MLP", "W, V"]),
        ("rates", "others", "[]", []),
        ("tokens-kept", "lambda", "0.5,0", [0, 0.5]),
        ("key-prompt", "n, T, d", "3,4,5", [3, 4, 5]),
        ("step-length", "lengths", "3,1", [1, 3]),
        ("bregman", "p", "3,2", [3, 2]),
    ],
)
def test_lists_of_numbers_and_names_are_read(figure, name, text, expected):
    assert sizes_of(FIGURES.find(figure), given={name: text})[name] == expected


@pytest.mark.parametrize("figure", list(FIGURES), ids=FIGURES.names())
def test_the_sizes_of_a_figure_are_sizes_of_the_user(figure):
    for sizes in (figure.full, figure.quick):
        assert sizes_of(figure, given=sizes) == sizes


@pytest.mark.parametrize("name", ["feasibility", "kinds"])
def test_a_verdict_tells_which_condition_was_not_tested(name):
    """Nothing is said of d ≥ max(T − 1, n) where no such d was measured."""
    figure = FIGURES.find(name)
    sizes = sizes_of(figure, quick=True, given={"shapes": [[9, 9]], "dims": [2], "queries": {"cross": {}}})
    share = np.zeros((1, 1, 4))
    share[..., 0] = 1
    found = {"feasible": np.zeros((1, 1)), "undecided": np.zeros((1, 1))} | {
        f"{key} {attention}": array
        for attention in ("combined", "factored")
        for key, array in {"share": share, "left": np.zeros((1, 1)), "all_support": np.zeros((1, 1))}.items()
    }
    verdict = figure.judge(sizes, found | {"all_support wide": np.ones((1, 2))})
    assert verdict.standing is Standing.HOLDS
    assert "No d ≥ max(T − 1, n) was measured." in verdict.why
    assert "For d ≥" not in verdict.why
