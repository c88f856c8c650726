"""Limits of steps and callbacks of every iterative method: the answer is honest about what it did not reach."""

import numpy as np
import pytest

import attsvm

METHODS = [("frobenius", "projected-gradient"), ("l20", None), ("nuclear", None), ("spectral", None), ("l2,1", None)]


def solve(norm, method, **options):
    problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
    return attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm, method=method, **options)


def assert_unfinished(solution, whole):
    assert solution.status == "inaccurate"
    assert 1e-8 < solution.gap < np.inf
    assert solution.value * (1 - solution.gap) <= whole.value <= solution.value * (1 + 1e-12)


@pytest.mark.parametrize(("norm", "method"), METHODS)
def test_a_limit_of_steps_is_kept_and_a_callback_sees_the_gap_fall_and_can_stop(norm, method):
    seen = []
    whole = solve(norm, method, callback=seen.append)
    steps, gaps = zip(*((progress.step, progress.gap) for progress in seen), strict=True)
    assert list(steps) == sorted(set(steps))
    assert whole.status == "optimal"
    assert gaps[-1] <= 1e-6 < gaps[0]
    limited = solve(norm, method, max_steps=1)
    assert limited.stats["steps"] == 1
    assert_unfinished(limited, whole)
    calls = []
    assert_unfinished(solve(norm, method, callback=lambda progress: calls.append(progress) or len(calls) == 2), whole)
    assert len(calls) == 2
