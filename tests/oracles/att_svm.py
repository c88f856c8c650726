"""What the tests know about Att-SVMs without the package: plain NumPy over explicit rows."""

import numpy as np

import attsvm
from oracles.norms import norm_and_dual


def nearly_infeasible(epsilon, seed):
    """A problem and its selection: two sequences ask for opposite margins of one query, but for a size of epsilon."""
    generator = np.random.default_rng(seed)
    tokens, queries = generator.standard_normal((4, 4, 5)), generator.standard_normal((4, 5))
    queries[1] = queries[0]
    tokens[1, 1] = tokens[1, 0] + tokens[0, 0] - tokens[0, 1] + epsilon * generator.standard_normal(5)
    return attsvm.Problem(tokens, queries=queries), np.zeros(4, int)


def explicit_rows(tokens, queries, selected, allowed=None, relaxed=None):
    """Rows, right sides, equality flags and places (i, q, t) of one problem; queries (n, Q, d) or None.

    Tokens that are equal to one before them, or to the reference, have none.
    """
    n, T, _ = tokens.shape
    queries = np.ones((n, 1, 1)) if queries is None else queries.reshape(n, -1, queries.shape[-1])
    Q = queries.shape[1]
    allowed = np.ones((n, Q, T), bool) if allowed is None else np.broadcast_to(allowed, (n, Q, T))
    rows, right, equality, places = [], [], [], []
    for i in range(n):
        for q in range(Q):
            chosen = np.atleast_1d(selected[i][q] if Q > 1 or np.ndim(selected[i]) == 2 else selected[i])
            kept = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
            for t in np.flatnonzero(allowed[i, q]):
                equal = [u for u in np.flatnonzero(allowed[i, q]) if (tokens[i, u] == tokens[i, t]).all()]
                if equal[0] < t or kept[0] in equal:
                    continue
                rows.append(np.outer(tokens[i, kept[0]] - tokens[i, t], queries[i, q]).ravel())
                inside = bool(set(equal) & set(kept))
                lenient = relaxed is not None and np.reshape(relaxed, (n, Q))[i, q]
                right.append(0.0 if inside or lenient else 1.0)
                equality.append(inside)
                places.append((i, q, t))
    return np.array(rows), np.array(right), np.array(equality), places


def bounds(rows, right, equality, weights, multipliers, p=2.0):
    """Lower and upper bound on the optimum, and the worst row that scaling cannot repair, over ‖row‖‖W‖."""
    norm, dual_norm = norm_and_dual(p, weights.shape)
    w = weights.ravel()
    asked = right > 0
    margins = rows @ w
    upper = norm(w) / (margins[asked] / right[asked]).min()
    assert (multipliers[~equality] >= 0).all()
    lower = right @ multipliers / dual_norm(rows.T @ multipliers)
    size = np.linalg.norm(rows, axis=1) * np.linalg.norm(w)
    rigid = np.where(equality, np.abs(margins), np.where(asked, 0, np.maximum(-margins, 0)))
    return lower, upper, (rigid[size > 0] / size[size > 0]).max(initial=0.0)


def at(places, dual, has_query_axis):
    """Multipliers of the rows out of an array (n[, Q], T)."""
    return np.array([dual[i, q, t] if has_query_axis else dual[i, t] for i, q, t in places])


def gap_by_hand(problem, selected, solution, p=2.0, relaxed=None):
    """The gap that the numbers of an optimal answer prove; fails if a constraint is violated or the value is wrong."""
    mask = problem.mask if problem.mask is None or problem.has_query_axis else problem.mask[:, None]
    rows, right, equality, places = explicit_rows(problem.tokens, problem.queries, list(selected), mask, relaxed)
    weights = solution.direction if problem.has_queries else solution.direction[:, None]
    room = np.linalg.norm(rows, axis=1) * np.linalg.norm(weights)
    assert (rows @ weights.ravel() - right >= -1e-9 * room)[~equality].all()
    value = norm_and_dual(p, weights.shape)[0](weights.ravel())
    assert abs(solution.value - value) <= 1e-12 * value
    dual = at(places, solution.dual, problem.has_query_axis)
    lower, upper, broken = bounds(rows, right, equality, weights, dual, p)
    assert broken <= 1e-9
    assert lower <= upper * (1 + 1e-12)
    return (upper - lower) / upper


def convex_norm(name):
    """The norm of a matrix of CVXPY variables."""
    import cvxpy as cp

    if name in ("nuclear", "spectral"):
        return {"nuclear": cp.normNuc, "spectral": cp.sigma_max}[name]
    p = 2.0 if name == "frobenius" else float(name.removeprefix("l"))
    return lambda W: cp.pnorm(cp.vec(W, order="C"), p)


def by_cvxpy(rows, right, equality, norm, shape, solver="CLARABEL", **options):
    """Status and least norm of weights of a shape that keep the rows; ``norm`` is a name, or a function of a variable.

    The weights are one matrix, whose shape some norms need.
    """
    import cvxpy as cp

    weights = cp.Variable(shape)
    flat = cp.vec(weights, order="C")
    constraints = [rows[~equality] @ flat >= right[~equality]] if (~equality).any() else []
    constraints += [rows[equality] @ flat == 0] if equality.any() else []
    size = norm if callable(norm) else convex_norm(norm)
    problem = cp.Problem(cp.Minimize(size(weights)), constraints)
    problem.solve(solver=solver, **options)
    return problem.status, problem.value
