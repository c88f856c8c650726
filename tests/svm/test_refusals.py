"""Arguments of ``solve_svm`` that do not fit the problem or each other are refused by name."""

import numpy as np
import pytest

import attsvm

PROBLEM = attsvm.datasets.random_problem(3, 4, 4, seed=0)
PROMPT = attsvm.Problem(PROBLEM.tokens)
SETS = np.eye(3, 4, dtype=bool) | np.eye(3, 4, 1, dtype=bool)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selected": [4, 5, 6]}, "selected"),
        ({"relaxed": np.ones(5, bool)}, "relaxed: expected shape"),
        ({"relaxed": np.ones(3)}, "relaxed: expected booleans"),
        ({"warm_start": np.ones((2, 2))}, "warm_start: expected shape"),
        ({"method": "simplex"}, r"method: expected .* got .simplex."),
        ({"norm": 3, "method": "linear-program"}, "method"),
        ({"norm": 1, "method": "newton"}, "method"),
        ({"norm": np.inf, "method": "newton"}, "method"),
        ({"norm": 3, "method": "simplex"}, "method"),
        ({"norm": "nuclear", "method": "newton"}, "newton"),
        ({"norm": "spectral", "method": "newton"}, "newton"),
        ({"required": np.ones((3, 3))}, r"required: expected shape \(3, 4\), got \(3, 3\)"),
        ({"required": np.full((3, 4), np.inf)}, "required: expected finite numbers"),
        ({"required": "one"}, "required: expected real numbers"),
        ({"required": np.full((3, 4), 1e200)}, "required: expected margins up to 1e\\+90"),
        ({"center": np.ones(4)}, r"center: expected shape \(4, 4\), got \(4,\)"),
        ({"center": np.full((4, 4), np.nan)}, "center: expected finite numbers"),
        ({"center": np.full((4, 4), 1e308)}, "center: expected weights with finite margins"),
        ({"center": np.ones((4, 4)), "relaxed": np.ones(3, bool)}, "relaxed: expected None with center"),
        ({"center": np.ones((4, 4)), "selected": np.ones((3, 4), bool)}, "selected: expected one token"),
        ({"required": np.ones((3, 4)), "slack": 1.0}, "slack: expected None with required"),
        ({"required": np.ones((3, 4)), "rank": 1, "norm": "nuclear"}, "rank: expected None with required"),
        ({"rank": 0, "norm": "nuclear"}, "rank: expected an integer >= 1, got 0"),
        ({"rank": 2.5, "norm": "nuclear"}, "rank: expected an integer"),
        ({"rank": 1, "norm": "frobenius"}, "rank: expected the nuclear norm, got frobenius"),
        ({"rank": 1, "norm": "nuclear", "slack": 1.0}, "slack: expected the Frobenius norm"),
        ({"rank": 1, "norm": "nuclear", "problem": PROMPT}, "rank: expected None for a problem without queries"),
        ({"slack": 0.0}, "slack: expected a positive number C, got 0.0"),
        ({"slack": np.nan}, "slack: expected a positive number C, got nan"),
        ({"slack": "much"}, "slack: expected a positive number C, got 'much'"),
        (
            {"slack": 1.0, "norm": "nuclear"},
            "slack: expected the Frobenius norm, or the l2 norm of a prompt, got nuclear",
        ),
        ({"slack": 1.0, "relaxed": [True, False, False]}, "slack, relaxed: expected only one"),
        ({"slack": 1.0, "selected": SETS}, "got sets of tokens"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(attsvm.ProblemError, match=message):
        attsvm.solve_svm(**{"problem": PROBLEM, "selected": [0, 1, 2], **options})
