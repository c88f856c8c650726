"""The reasons of a head, against CVXPY, and its smallest change of W, against least squares and by trying it out."""

import cvxpy
import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")

from attsvm.inspect.reasons import reasons_of
from attsvm.svm import HeadProblem, margin_interval


def head(seed, n=3, Q=4, T=5, d=6):
    """A random head with a duplicate token, masked tokens and a missing query; and what it selects."""
    generator = np.random.default_rng(seed)
    keys, queries = generator.standard_normal((n, T, d)), generator.standard_normal((n, Q, d + 1))
    keys[0, 1] = keys[0, 0]
    problem = HeadProblem(keys, queries, generator.standard_normal((d, d + 1)))
    allowed = np.ones((n, Q, T), bool)
    allowed[0, :, 3:] = False
    allowed[1, -1] = False
    return problem, allowed, selection(problem, allowed)


def selection(problem, allowed):
    logits = np.where(allowed, np.einsum("itk,kz,iqz->iqt", problem.keys, problem.weights, problem.queries), -np.inf)
    return np.where(allowed.any(-1), logits.argmax(-1), -1)


def rows_of(problem, allowed, selected):
    """Every (sequence, query, token) with its row, in a loop; tokens with equal keys are one token."""
    found = {}
    for i, q, t in np.argwhere(allowed):
        difference = problem.keys[i, selected[i, q]] - problem.keys[i, t]
        before = problem.keys[i, :t][allowed[i, q, :t]]
        if difference.any() and not (before == problem.keys[i, t]).all(-1).any():
            found[int(i), int(q), int(t)] = np.outer(difference, problem.queries[i, q])
    return found


def reasons(problem, allowed, selected):
    _, multipliers = margin_interval(problem, allowed, selected, 1e-8)
    return reasons_of(problem, allowed, selected, multipliers)


@pytest.mark.parametrize("seed", range(3))
def test_multipliers_and_directions_are_those_of_cvxpy(seed):
    problem, allowed, selected = head(seed)
    rows = rows_of(problem, allowed, selected)
    W = cvxpy.Variable(problem.weights.shape)
    constraints = [cvxpy.sum(cvxpy.multiply(row, W)) >= 1 for row in rows.values()]
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(W) / 2), constraints).solve(solver="CLARABEL")
    found = reasons(problem, allowed, selected)
    theirs = dict(zip(rows, (float(one.dual_value) for one in constraints), strict=True))
    total = sum(theirs.values())
    ours = dict(zip(map(tuple, found.triples.tolist()), found.shares, strict=True))
    assert max(abs(ours.get(at, 0.0) - theirs[at] / total) for at in rows) < 1e-3
    assert (np.diff(found.shares) <= 0).all()
    assert found.shares.sum() == pytest.approx(1)
    cosine = np.vdot(W.value, problem.weights) / np.linalg.norm(W.value) / np.linalg.norm(problem.weights)
    assert found.cosine == pytest.approx(cosine, abs=1e-3)
    by_tightness = sorted(rows, key=lambda at: np.vdot(rows[at], problem.weights) / np.linalg.norm(rows[at]))
    assert found.overlap == pytest.approx(np.mean([at in ours for at in by_tightness[: len(ours)]]))
    assert found.chance == pytest.approx(len(ours) / len(rows))


@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_change_flips_the_named_selection_and_no_smaller_one_flips_any(seed):
    problem, allowed, selected = head(seed)
    change = reasons(problem, allowed, selected).change
    rows = rows_of(problem, allowed, selected)
    least = min(  # the least-norm solution of ⟨row, D⟩ = −⟨row, W⟩, for each row
        np.linalg.norm(np.linalg.lstsq(row.reshape(1, -1), [-np.vdot(row, problem.weights)])[0])
        for row in rows.values()
    )
    assert change.norm == pytest.approx(least, rel=1e-9)
    assert change.relative == pytest.approx(least / np.linalg.norm(problem.weights), rel=1e-9)
    row = rows[change.sequence, change.query, change.token]
    direction = -row / np.linalg.norm(row)
    for factor, flipped in ((1 - 1e-6, {}), (1 + 1e-6, {(change.sequence, change.query): change.token})):
        other = selection(problem._replace(weights=problem.weights + factor * change.norm * direction), allowed)
        assert {tuple(at): other[tuple(at)] for at in np.argwhere(other != selected).tolist()} == flipped
    generator = np.random.default_rng(seed)
    for _ in range(200):
        noise = generator.standard_normal(row.shape)
        noise *= (1 - 1e-6) * change.norm / np.linalg.norm(noise)
        assert (selection(problem._replace(weights=problem.weights + noise), allowed) == selected).all()


def test_without_a_choice_there_are_no_reasons():
    problem, allowed, selected = head(0)
    assert reasons_of(problem, allowed, selected, np.zeros(allowed.shape)) is None
    nothing = problem._replace(weights=np.zeros_like(problem.weights))
    assert reasons_of(nothing, allowed, selected, np.ones(allowed.shape)) is None
