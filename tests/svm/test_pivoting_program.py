"""Pivoting with a block of the matrix only, against CVXPY."""

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attsvm.svm.frobenius.bounded_program import BoundedProgram, Stopped
from attsvm.svm.frobenius.proximal_pivoting import ProximalPivoting


def rows(seed, m, dimension):
    """Unit rows A and h > 0 such that some w has Aw ≥ h, and the least norm of such a w."""
    generator = np.random.default_rng(seed)
    A = generator.standard_normal((m, dimension))
    A *= np.sign(A @ generator.standard_normal(dimension))[:, None] / np.linalg.norm(A, axis=1, keepdims=True)
    h = generator.uniform(0.05, 1, m)
    w = cvxpy.Variable(dimension)
    return A, h, cvxpy.Problem(cvxpy.Minimize(cvxpy.norm(w)), [A @ w >= h]).solve(solver="CLARABEL")


class Bounds:
    """The best bounds on the least norm, which end the search when they are close."""

    def __init__(self, A, h, gap):
        self.A, self.h, self.gap, self.lower, self.upper = A, h, gap, 0.0, np.inf

    def __call__(self, steps, point, image):
        size, smallest = np.linalg.norm(self.A.T @ point.ravel()), (image.ravel() / self.h).min()
        if (point >= 0).all() and size > 0:
            self.lower = max(self.lower, float(self.h @ point.ravel()) / size)
        if smallest > 0:
            self.upper = min(self.upper, size / smallest)
        if self.lower >= (1 - self.gap) * self.upper:
            raise Stopped
        return False


@settings(max_examples=12)
@given(st.integers(0, 10_000), st.sampled_from([(4, 2), (30, 40), (60, 12)]), st.sampled_from([np.float32, np.float64]))
def test_bounds_meet_at_the_least_norm(seed, shape, dtype):
    gap = 1e-3 if dtype == np.float32 else 1e-7
    A, h, least = rows(seed, *shape)
    K = A @ A.T
    bounds = Bounds(A, h, gap)

    def block(some, others):
        return K[np.ix_(some, others)].astype(dtype)

    two = (2, len(h) // 2)
    all_rows = np.ones(two, bool)
    program = BoundedProgram(lambda x: (K @ x.ravel()).reshape(two), h.reshape(two), all_rows, all_rows, bounds, 200)
    ProximalPivoting(program, block, 0.2 * gap * h.reshape(two)).solve(h.reshape(two), all_rows)
    assert bounds.lower <= least * (1 + 1e-6)
    assert bounds.upper >= least * (1 - 1e-6)
    assert bounds.lower >= (1 - gap) * bounds.upper


def test_it_makes_no_more_products_than_allowed():
    A, h, _ = rows(0, 30, 40)
    calls = []

    def times(point):
        calls.append(point)
        return A @ (A.T @ point)

    all_rows = np.ones(len(h), bool)
    program = BoundedProgram(times, h, all_rows, all_rows, lambda *_: False, 3)
    ProximalPivoting(program, lambda a, b: A[a] @ A[b].T, 1e-9).solve(h, all_rows)
    assert program.steps == len(calls) == 3


@pytest.mark.parametrize("start", [np.zeros(4), np.ones(4)])
def test_it_ends_without_an_answer_where_there_is_none(start):
    A = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])  # w and −w cannot both be positive
    all_rows = np.ones(4, bool)
    program = BoundedProgram(lambda x: A @ (A.T @ x), np.ones(4), all_rows, all_rows, lambda *_: False, 500)
    ProximalPivoting(program, lambda a, b: A[a] @ A[b].T, 0.1).solve(start, start > 0)
    assert program.steps < 500
