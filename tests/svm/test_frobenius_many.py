"""Many Frobenius Att-SVMs together: the same statuses, values and weights as one by one."""

import numpy as np
import pytest

import attsvm

BATCH = 24


def one_by_one(problem, selected, relaxed):
    return [
        attsvm.solve_svm(problem[k], selected[k], relaxed=None if relaxed is None else relaxed[k]) for k in range(BATCH)
    ]


def draw(kind, seed):
    """A batch of problems, its selection and its relaxed queries."""
    generator = np.random.default_rng(seed)
    n, T, d = {"prompt": (4, 5, 6), "crowded": (5, 8, 3), "small": (1, 2, 1)}.get(kind, (4, 6, 8))
    relaxed = None
    Q = 2 if kind == "shared tokens" else None
    problem = attsvm.datasets.random_problem(
        n, T, d, seed, batch=(BATCH,), prompt=kind in ("prompt", "small"), num_queries=Q
    )
    shape = problem.query_shape
    selected = generator.integers(0, T, shape)
    if kind == "ragged":
        mask = generator.random((*shape, T)) < 0.6
        np.put_along_axis(mask, selected[..., None], True, axis=-1)
        problem = attsvm.Problem(problem.tokens, queries=problem.queries, mask=mask)
    if kind == "duplicates":
        tokens = problem.tokens.copy()
        tokens[::3, :, 1] = tokens[::3, :, 0]
        problem = attsvm.Problem(tokens, queries=problem.queries)
    if kind == "lengths":
        lengths = 10.0 ** generator.uniform(-3, 3, (BATCH, n, 1))
        problem = attsvm.Problem(problem.tokens, queries=problem.queries * lengths)
    if kind in ("sets", "relaxed sets"):
        kept = generator.random((*shape, T)) < 0.25
        np.put_along_axis(kept, selected[..., None], True, axis=-1)
        selected = kept
    if kind in ("relaxed", "relaxed sets"):
        relaxed = generator.random(shape) < 0.4
        relaxed[0] = True
    return problem, selected, relaxed


KINDS = (
    "plain", "prompt", "crowded", "small", "shared tokens", "ragged", "duplicates", "lengths", "sets", "relaxed",
    "relaxed sets",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_together_is_as_one_by_one(kind, gap_without_rounding):
    problem, selected, relaxed = draw(kind, len(kind))
    together = attsvm.solve_svm(problem, selected, relaxed=relaxed)
    alone = one_by_one(problem, selected, relaxed)
    assert together.status.tolist() == [one.status for one in alone]
    gaps = gap_without_rounding(problem, selected, together, relaxed)
    for k, one in enumerate(alone):
        if one.status == "infeasible":
            assert together.bound[k] > 1e12
            continue
        assert gaps[k] <= max(1e-10, 1e-15 * one.value)
        assert together.gap[k] <= 1e-9  # with rounding errors, which long rows and large weights have
        np.testing.assert_allclose(together.value[k], one.value, rtol=1e-12)
        np.testing.assert_allclose(together.direction[k], one.direction, atol=1e-12 * one.value)
        np.testing.assert_array_equal(together.support[k], one.support)
        np.testing.assert_allclose(together.dual[k], one.dual, atol=1e-10 * np.abs(one.dual).max())
    infeasible = {"infeasible"} if kind in ("prompt", "crowded") else set()
    assert set(together.status) == {"optimal"} | infeasible


def test_statuses_are_each_problem_s_own():
    """Of a batch one has no solution, one asks for nothing, one is nearly infeasible: the others do not mind."""
    problem = attsvm.datasets.random_problem(1, 3, 2, 0, batch=(5,), prompt=True)
    tokens = problem.tokens.copy()
    tokens[1] = [[[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]]  # also between its competitors
    tokens[2] = [[[0.0, 0.0], [-1e-6, -1.0], [-1e-6, 1.0]]]  # value 1e6
    tokens[3] = [[[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]]  # between its competitors
    relaxed = np.array([[False], [False], [False], [False], [True]])
    solution = attsvm.solve_svm(attsvm.Problem(tokens), np.zeros((5, 1), int), relaxed=relaxed)
    assert solution.status.tolist() == ["optimal", "infeasible", "optimal", "infeasible", "optimal"]
    assert solution.value[2] == pytest.approx(1e6, rel=1e-9)
    assert solution.value[4] == 0
    assert solution.bound[1] > 1e12
    assert np.isnan(solution.value[[1, 3]]).all()


def test_a_batch_of_ordinary_problems_needs_no_second_method(monkeypatch):
    """Else the vectorised way would be of no use."""

    def unexpected(*arguments):
        raise AssertionError("solved one by one")

    monkeypatch.setattr("attsvm.svm.methods.frobenius.choice._solve_rows", unexpected)
    for kind in ("plain", "shared tokens", "relaxed"):
        problem, selected, relaxed = draw(kind, 0)
        assert set(attsvm.solve_svm(problem, selected, relaxed=relaxed).status) == {"optimal"}
