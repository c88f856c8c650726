"""Factor ratio and KKT ratio: convex programs for the linearised margins, and factors for which both are known."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm import ProblemError

NORMS = {
    "spectral": cp.sigma_max,
    "linf,2": lambda K: cp.max(cp.norm(K, 2, axis=1)),
}


def _largest_slope(tokens, queries, selected, K, Q, groups):
    """The largest smallest change of a margin of any head, under bounds on what is one matrix."""
    changes = [[cp.Variable(part.shape) for part in factor] for factor in (K, Q)]
    slopes = []
    for h, n in np.ndindex(selected.shape):
        kept = selected[h, n]
        for t in set(range(tokens.shape[1])) - {kept}:
            a, c = tokens[n, kept] - tokens[n, t], queries[n]
            slopes.append((a @ changes[0][h]) @ (Q[h].T @ c) + (a @ K[h]) @ (changes[1][h].T @ c))
    u = cp.Variable()
    return cp.Problem(cp.Maximize(u), [*[slope >= u for slope in slopes], *groups(changes)]).solve(cp.CLARABEL)


@pytest.mark.parametrize(
    ("norm", "scope", "num_heads"),
    [("spectral", "heads", 2), ("spectral", "fused", 2), ("spectral", "kq", 1), ("linf,2", "heads", 1)],
)
def test_the_kkt_ratio_is_that_of_a_convex_program(norm, scope, num_heads):
    generator = np.random.default_rng(2)
    tokens, queries = generator.standard_normal((3, 3, 4)), generator.standard_normal((3, 4))
    problem = attsvm.Problem(tokens, queries=queries, num_heads=num_heads)
    selected = generator.integers(0, 3, (num_heads, 3))
    # factors that separate, not far from a solution
    U, sigma, Vt = np.linalg.svd(attsvm.solve_svm(problem, selected).direction)
    K, Q = (part * np.sqrt(sigma)[:, None] for part in (U, Vt.mT))
    K = K + 0.02 * generator.standard_normal(K.shape)
    size = NORMS[norm]

    def value(X):
        return float(size(np.asarray(X)).value)

    one = {"heads": list, "fused": lambda parts: [np.hstack(parts)], "kq": lambda parts: [np.hstack(parts)]}[scope]
    if scope == "kq":
        K, Q = (part / value(np.hstack([K[0], Q[0]])) for part in (K, Q))
    else:
        largest = [np.array([value(X) for X in one(list(part))]) for part in (K, Q)]
        common = np.sqrt(largest[0] * largest[1])
        K, Q = (
            part * np.broadcast_to(common / own, num_heads)[:, None, None] / common.max()
            for part, own in zip((K, Q), largest, strict=True)
        )

    def groups(changes):
        if scope == "heads":
            return [size(X) <= 1 for part in changes for X in part]
        if scope == "fused":
            return [size(cp.hstack(part)) <= 1 for part in changes]
        return [size(cp.hstack([*changes[0], *changes[1]])) <= 1]

    smallest = min(
        np.delete(tokens[n, kept] @ K[h] @ Q[h].T @ queries[n] - tokens[n] @ K[h] @ Q[h].T @ queries[n], kept).min()
        for h in range(num_heads)
        for n, kept in enumerate(selected[h])
    )
    expected = 2 * smallest / _largest_slope(tokens, queries, selected, K, Q, groups)
    assert smallest > 0
    # scaled at random per head, the factors are scaled back
    found = attsvm.kkt_ratio(problem, {"K": 3 * K, "Q": (3 if scope == "kq" else 5) * Q}, selected, norm, scope=scope)
    assert found == pytest.approx(expected, rel=1e-6)
    assert found < 0.999


def test_both_ratios_are_1_at_the_best_factors():
    problem = attsvm.datasets.random_problem(3, 4, 4, seed=1)
    selected = attsvm.optimal_tokens(problem)
    rotation = 0.5 * np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    best = {"spectral": "spectral", "frobenius": "nuclear", "linf,2-columns": "nuclear"}
    for norm, of_weights in best.items():
        U, sigma, Vt = np.linalg.svd(attsvm.solve_svm(problem, selected, norm=of_weights).direction)
        # with the Hadamard matrix all columns have one length
        factors = {"K": U * np.sqrt(sigma) @ rotation, "Q": Vt.T * np.sqrt(sigma) @ rotation}
        for ratio in (attsvm.factor_ratio, attsvm.kkt_ratio):
            assert 1 - 1e-6 < ratio(problem, factors, selected, norm) <= 1 + 1e-12
    # N(K)N(Q) bounds the norm of the products for all factors
    generator = np.random.default_rng(0)
    for norm in (*best, "linf,2", "linf"):
        random = {name: generator.standard_normal((4, 3)) + factors[name][:, :3] for name in ("K", "Q")}
        assert attsvm.factor_ratio(problem, random, selected, norm) < 1
    heads = attsvm.Problem(problem.tokens, queries=problem.queries, num_heads=2)
    both = {name: np.stack([part, 2 * part]) for name, part in factors.items()}
    each = attsvm.factor_ratio(problem, factors, selected, "spectral")
    # the margins of the second head are four times as large, and so is its norm
    found = attsvm.factor_ratio(heads, both, [selected] * 2, "spectral")
    assert found == pytest.approx(each / 4, rel=1e-9)


def test_what_does_not_fit_is_refused():
    problem = attsvm.datasets.random_problem(3, 4, 4, seed=1)
    K = np.ones((4, 2))
    for parameters, norm, message in (
        ({"K": K}, "spectral", 'expected "K" and "Q", got K'),
        ({"K": K, "Q": np.ones((3, 2))}, "spectral", r"Q: expected shape \(4, m\), got \(3, 2\)"),
        ({"K": K, "Q": np.ones((4, 3))}, "spectral", "as many columns of Q as of K, 2, got 3"),
        ({"K": K, "Q": K}, "l3", "norm of products is known"),
    ):
        with pytest.raises(ProblemError, match=message):
            attsvm.factor_ratio(problem, parameters, [0, 0, 0], norm)
