"""Norms whose problems are solved one after the other: limits of steps, callbacks and tolerances."""

import numpy as np
import pytest

import attsvm


def _problem(norm, times=()):
    """A problem and a selection, or a batch of equal ones."""
    one = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    heads = 2 if norm == "fused_heads" else None
    selected = np.array([[0, 1, 2, 3], [3, 2, 1, 0]]) if heads else np.arange(4)
    arrays = [np.broadcast_to(each, times + each.shape) for each in (one.tokens, one.queries, selected)]
    return attsvm.Problem(arrays[0], queries=arrays[1], num_heads=heads), arrays[2]


@pytest.mark.parametrize("norm", ["gamma2", "nu", "fused_kq", "fused_heads"])
def test_a_limit_of_steps_a_callback_and_a_large_tolerance_end_the_solve(norm):
    problem, selected = _problem(norm)
    seen = []
    whole = attsvm.solve_svm(problem, selected, norm, callback=seen.append)
    assert [progress.step for progress in seen] == list(range(len(seen)))
    assert whole.stats["steps"] - seen[-1].step in (0, 1)  # where rounding ends the iteration, the last step has no gap
    assert seen[0].gap == 1
    assert min(progress.gap for progress in seen) < 1e-9
    assert attsvm.solve_svm(problem, selected, norm).value == whole.value

    few = attsvm.solve_svm(problem, selected, norm, max_steps=2)
    assert (few.status, few.stats["steps"]) == ("inaccurate", 2)
    assert 1 < few.value / whole.value <= 1 / (1 - few.gap)

    seen.clear()
    batch = _problem(norm, times=(2,))
    stopped = attsvm.solve_svm(*batch, norm, callback=lambda progress: seen.append(progress) or progress.step == 2)
    assert [progress.step for progress in seen] == [0, 1, 2]
    # the second problem is not begun: its answer is that of the Frobenius norm
    frobenius = attsvm.solve_svm(problem, selected, "frobenius")
    np.testing.assert_allclose(stopped.direction[1], frobenius.direction, rtol=1e-9, atol=1e-12)
    assert stopped.stats["steps"][0] == 2
    assert (stopped.value[0], stopped.gap[0]) == (few.value, few.gap)
    # the bounds of the certificate are better than those of the iteration
    assert 0.1 * seen[-1].gap < stopped.gap[0] < seen[-1].gap * (1 + 1e-6)
    assert (stopped.value >= whole.value).all()
    assert (stopped.value * (1 - stopped.gap) <= whole.value).all()
    assert stopped.status.tolist() == ["inaccurate", "inaccurate"]

    # one that is stopped at once has the Frobenius answer, and a large tolerance takes fewer steps
    at_once = attsvm.solve_svm(problem, selected, norm, callback=lambda progress: True)
    assert at_once.status == "inaccurate"
    assert whole.value < at_once.value <= whole.value / (1 - at_once.gap)
    if norm.startswith("fused"):
        rough = attsvm.solve_svm(problem, selected, norm, tol=1e-3)
        assert rough.status == "optimal"
        assert rough.stats["steps"] < whole.stats["steps"]
        assert whole.value < rough.value <= whole.value / (1 - rough.gap)


@pytest.mark.parametrize("seed", [6, 29, 39, 76])
def test_gamma2_of_whole_numbers_ends_at_1e_10_or_says_why(seed):
    generator = np.random.default_rng([seed, 3])
    n, T, d_k, d_q = (int(generator.integers(1, top)) for top in (4, 5, 5, 4))
    tokens = np.round(1.5 * generator.standard_normal((n, T, d_k)))
    problem = attsvm.Problem(tokens, queries=np.round(1.5 * generator.standard_normal((n, d_q))))
    solution = attsvm.solve_svm(problem, generator.integers(0, T, n), "gamma2")
    assert solution.status == "optimal"
    assert solution.gap <= 1e-10 or "rounding ended it" in solution.stats["why"]


def test_gamma2_of_weights_that_few_entries_determine():
    """Its optimum is 1/3; the factors of the optimum prove it where those of its matrix alone do not."""
    tokens = np.array([[[0, 0, -1, 1], [1, 0, 0, -2], [2, -2, 2, 2]], [[-2, 0, 0, 0], [-1, 0, -2, 0], [-1, -1, 2, 0]]])
    more = np.array([[[2, 1, 2, -2], [-1, 0, -2, -1], [-1, -2, 2, 2]]])
    queries = np.array([[[1, -2, 2], [0, 2, 0]], [[0, 0, 2], [0, 0, 0]], [[-2, 0, 2], [0, 0, 0]]], float)
    problem = attsvm.Problem(
        np.concatenate([tokens, more]).astype(float),
        queries=queries,
        query_mask=[[True, True], [True, False], [True, False]],
    )
    solution = attsvm.solve_svm(problem, [[2, 1], [0, 0], [0, 0]], "gamma2")
    assert solution.gap <= 1e-10
