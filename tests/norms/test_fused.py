"""Norms of fused keys and queries, their dual norms and their Att-SVMs against semidefinite programs."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm import ProblemError
from attsvm.norms import Spectral, check
from attsvm.norms.factors import FusedHeads, FusedKeysQueries
from attsvm.norms.factors.fused_bounds import balanced


def _program(shape, num_heads, tied, constraints):
    """The least t of the definition, for constraints on the corners W_h."""
    rows, columns = shape
    M = [cp.Variable((rows + columns, rows + columns), PSD=True) for _ in range(num_heads)]
    t = cp.Variable()
    sums = [sum(each[:rows, :rows] for each in M), sum(each[rows:, rows:] for each in M)]
    sizes = [sums[0] + sums[1]] if tied else sums
    bounds = [t * np.eye(size.shape[0]) - size >> 0 for size in sizes]
    return cp.Problem(cp.Minimize(t), bounds + constraints([each[:rows, rows:] for each in M]))


def test_values_and_dual_norms_are_those_of_semidefinite_programs():
    generator = np.random.default_rng(0)
    for norm, W, tied in (
        (FusedHeads(), generator.standard_normal((2, 4, 3)), False),
        (FusedKeysQueries(), generator.standard_normal((4, 2)) @ generator.standard_normal((2, 4)), True),
    ):
        heads = W.reshape(-1, *W.shape[-2:])
        sizes = heads.shape[1:], len(heads), tied
        program = _program(*sizes, lambda own, heads=heads: [C == V for C, V in zip(own, heads, strict=True)])
        # Clarabel stops at about 1e-8, and the value is a bound from above
        assert norm.value(W) == pytest.approx(program.solve(cp.CLARABEL), rel=1e-7)
        assert balanced(heads, tied).size == pytest.approx(norm.value(W), rel=1e-5)  # for large weights
        # the largest ⟨G, W⟩ over the ball is 1 over the least norm with ⟨G, W⟩ = 1
        unit = _program(*sizes, lambda own, heads=heads: [sum(map(cp.vdot, own, heads)) == 1])
        assert norm.dual.value(W) == pytest.approx(1 / unit.solve(cp.CLARABEL), rel=1e-7)
    assert check(FusedKeysQueries(), shape=(2, 2)).missing == ("prox", "steepest")
    one = generator.standard_normal((1, 5, 4))
    assert FusedHeads().value(one) == pytest.approx(Spectral().value(one[0]), rel=1e-8)
    for value in (FusedKeysQueries().value, FusedKeysQueries().values):
        with pytest.raises(ProblemError, match=r"^norm: fused_kq: expected keys and queries of the same dimension"):
            value(one[0])


def test_balanced_factors_of_nearly_singular_weights_multiply_to_them():
    generator = np.random.default_rng(0)
    W = generator.normal(size=(3, 10, 2)) @ generator.normal(size=(3, 2, 10))
    W[:, -1] *= 1e-6
    # the scaling converges slowly; the factors bound the norm from above
    assert balanced(W, tied=False)(W) == pytest.approx(FusedHeads().value(W), rel=0.02)


@pytest.mark.parametrize("tied", [False, True])
def test_their_att_svms_are_those_of_semidefinite_programs(tied):
    generator = np.random.default_rng(1)
    tokens, queries = generator.standard_normal((2, 3, 4, 5)), generator.standard_normal((2, 3, 5))
    num_heads = 1 if tied else 2
    problem = attsvm.Problem(tokens, queries=queries, num_heads=None if tied else 2)
    sets = np.zeros((2, num_heads, 3, 4), bool)
    for index in np.ndindex(sets.shape[:-1]):
        sets[index][generator.integers(4)] = True
    sets[0, 0, 0, :2] = True  # a set of two tokens or more, so that there are equalities
    kept = sets[:, 0] if tied else sets
    solution = attsvm.solve_svm(problem, kept, "fused_kq" if tied else "fused_heads")
    assert (solution.status == "optimal").all()
    for b in range(2):

        def rows(corners, b=b):
            found = []
            for h, n in np.ndindex(num_heads, 3):
                logits = tokens[b, n] @ corners[h] @ queries[b, n]
                reference, *others = np.flatnonzero(sets[b, h, n])
                found += [logits[reference] == logits[t] for t in others]
                found += [logits[reference] - logits[t] >= 1 for t in np.flatnonzero(~sets[b, h, n])]
            return found

        expected = _program((5, 5), num_heads, tied, rows).solve(cp.CLARABEL)
        assert solution.value[b] == pytest.approx(expected, rel=1e-6)
    if not tied:
        assert solution.direction.shape == (2, 2, 5, 5)
        ratio = attsvm.margin_ratio(problem, solution.direction, kept, "fused_heads")
        np.testing.assert_allclose(ratio, 1, atol=1e-5)  # the value of given weights is only a bound


@pytest.mark.parametrize(("norm", "factor"), [("fused_kq", 2), ("gamma2", 1)])
def test_many_rows_on_one_weight_leave_a_division(norm, factor):
    generator = np.random.default_rng(0)
    for _ in range(10):
        tokens = generator.permuted(np.tile(np.arange(-3.0, 4.0), (4, 1)), axis=1)[:, :4]
        ordered = np.sort(tokens, axis=1)
        problem = attsvm.Problem(tokens[..., None], queries=np.ones((4, 1)))
        solution = attsvm.solve_svm(problem, tokens.argmax(axis=1), norm=norm)
        assert solution.gap <= 1e-10
        assert solution.value == pytest.approx(factor / (ordered[:, -1] - ordered[:, -2]).min(), rel=1e-10)
