"""Random problems of every kind that Frobenius and ℓ2 cover, against CVXPY with Clarabel."""

import cvxpy as cp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import attsvm
from oracles.att_svm import at, bounds, explicit_rows


@st.composite
def svm_problems(draw):
    """Sizes around the border of feasibility, with prompts, several queries, masks, sets and relaxed queries."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, T, d = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["prompt", "one query", "several queries"]))
    Q = draw(st.integers(1, 3)) if kind == "several queries" else None
    shape = (n,) if Q is None else (n, Q)
    tokens = generator.standard_normal((n, T, d))
    queries = None if kind == "prompt" else generator.standard_normal((*shape, draw(st.integers(1, 4))))
    mask = generator.random((*shape, T)) < draw(st.sampled_from([0.6, 1.0]))
    selected = generator.integers(0, T, shape)
    np.put_along_axis(mask, selected[..., None], True, axis=-1)
    if draw(st.booleans()):
        kept = mask & (generator.random(mask.shape) < 0.25)
        np.put_along_axis(kept, selected[..., None], True, axis=-1)
        selected = kept
    relaxed = generator.random(shape) < 0.4 if draw(st.booleans()) else None
    return attsvm.Problem(tokens, queries=queries, mask=mask), selected, relaxed


def cvxpy_value(rows, right, equality):
    weights = cp.Variable(rows.shape[1])
    constraints = [rows[~equality] @ weights >= right[~equality]] if (~equality).any() else []
    constraints += [rows[equality] @ weights == 0] if equality.any() else []
    problem = cp.Problem(cp.Minimize(cp.norm(weights, 2)), constraints)
    problem.solve(solver="CLARABEL")
    return problem.status, problem.value


seen = {"optimal": 0, "infeasible": 0}


@settings(max_examples=120)
@given(svm_problems())
def agrees_with_cvxpy(case):
    problem, selected, relaxed = case
    solution = attsvm.solve_svm(problem, selected, relaxed=relaxed)
    n = problem.num_sequences
    mask = problem.canonical.allowed
    kept = selected if problem.has_query_axis else selected.reshape(n, 1, *selected.shape[1:])
    rows, right, equality, places = explicit_rows(problem.tokens, problem.queries, kept, mask, relaxed)
    seen[solution.status] += 1
    if len(rows) == 0 or not right.any():
        assert (solution.status, solution.value) == ("optimal", 0.0)
        return
    status, value = cvxpy_value(rows, right, equality)
    dual = at(places, solution.dual, problem.has_query_axis)
    if solution.status == "infeasible":
        assert status.startswith("infeasible")
        assert (dual[~equality] >= 0).all()
        pull = np.linalg.norm(rows.T @ dual)
        assert pull == 0 or (dual * np.linalg.norm(rows, axis=1)) @ right / pull > 1e12
    else:
        assert status.startswith("optimal")
        assert abs(solution.value - value) <= 1e-6 * value
        lower, upper, broken = bounds(rows, right, equality, solution.direction, dual)
        assert (upper - lower) / upper <= max(1e-10, 1e-15 * value)
        assert broken <= 1e-9


def test_agrees_with_cvxpy():
    seen.update(optimal=0, infeasible=0)
    agrees_with_cvxpy()
    assert min(seen.values()) >= sum(seen.values()) / 5, seen
