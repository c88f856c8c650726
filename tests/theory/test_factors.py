"""Factor ratio and KKT ratio: convex programs for both denominators, and factors for which both are known."""

from itertools import product

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm import ProblemError
from attsvm.norms.factors import induced_norm

RATIOS = (attsvm.theory.factor_ratio, attsvm.theory.kkt_ratio)

NORMS = {
    "spectral": cp.sigma_max,
    "frobenius": lambda K: cp.norm(K, "fro"),
    "linf,2": lambda K: cp.max(cp.norm(K, 2, axis=1)),
    "linf,2-columns": lambda K: cp.max(cp.norm(K, 2, axis=0)),
    "linf": lambda K: cp.max(cp.abs(K)),
}

# the bounds on A = KK' that N(K) ≤ 1 means if K may have any factor of A with m columns
SQUARES = {
    "spectral": lambda A, m: [A << np.eye(4)],
    "frobenius": lambda A, m: [cp.trace(A) <= 1],
    "linf,2": lambda A, m: [cp.diag(A) <= 1],
    "linf,2-columns": lambda A, m: [cp.trace(A) <= m],  # a rotation of the columns gives them one length
}

# the matrices that the scope makes of those of all heads, side by side
MATRICES = {
    "heads": lambda K, Q, join: [*K, *Q],
    "fused": lambda K, Q, join: [join(K), join(Q)],
    "kq": lambda K, Q, join: [join([*K, *Q])],
}


def _margins(tokens, queries, selected):
    """a and c of the margins a'Wc, and the head of each."""
    for h, n in np.ndindex(selected.shape):
        for t in set(range(tokens.shape[1])) - {selected[h, n]}:
            yield tokens[n, selected[h, n]] - tokens[n, t], queries[n], h


def _largest_slope(margins, norm, scope, K, Q):
    """The largest smallest change of a margin of any head, under bounds on what is one matrix."""
    changes = [[cp.Variable(part.shape) for part in factor] for factor in (K, Q)]
    u = cp.Variable()
    bounds = [(a @ changes[0][h]) @ (Q[h].T @ c) + (a @ K[h]) @ (changes[1][h].T @ c) >= u for a, c, h in margins]
    bounds += [NORMS[norm](X) <= 1 for X in MATRICES[scope](*changes, cp.hstack)]
    return cp.Problem(cp.Maximize(u), bounds).solve(cp.CLARABEL)


def _best_margin(margins, norm, scope, num_heads, m):
    """The largest smallest margin of KQ' over all factors of size 1; for the largest entry, a bound on it."""
    u = cp.Variable()
    if norm == "linf":  # column j adds a multiple of k_j q_j', which lies in the hull of the sign matrices
        signs = np.array(list(product((-1, 1), repeat=4)))
        shares = [cp.Variable(len(signs) ** 2, nonneg=True) for _ in range(num_heads)]
        bounds = [np.outer(signs @ a, signs @ c).ravel() @ shares[h] >= u for a, c, h in margins]
        bounds += [cp.sum(share) <= m for share in shares]
    else:
        M = [cp.Variable((8, 8), PSD=True) for _ in range(num_heads)]
        bounds = [a @ M[h][:4, 4:] @ c >= u for a, c, h in margins]
        # the squares of matrices side by side are added up
        for A in MATRICES[scope]([X[:4, :4] for X in M], [X[4:, 4:] for X in M], sum):
            bounds += SQUARES[norm](A, m)
    return cp.Problem(cp.Maximize(u), bounds).solve(cp.CLARABEL)


@pytest.mark.parametrize(
    ("norm", "scope", "num_heads"),
    [
        ("spectral", "heads", 2),
        ("spectral", "fused", 2),
        ("spectral", "kq", 1),
        ("frobenius", "heads", 2),
        ("frobenius", "fused", 2),
        ("frobenius", "kq", 2),
        ("linf,2", "heads", 2),
        ("linf,2-columns", "heads", 2),
        ("linf", "heads", 2),
    ],
)
def test_both_ratios_are_those_of_convex_programs(norm, scope, num_heads):
    generator = np.random.default_rng(2)
    tokens, queries = generator.standard_normal((3, 3, 4)), generator.standard_normal((3, 4))
    problem = attsvm.Problem(tokens, queries=queries, num_heads=num_heads)
    selected = generator.integers(0, 3, (num_heads, 3))
    # factors that separate, not far from a solution
    U, sigma, Vt = np.linalg.svd(attsvm.solve_svm(problem, selected).direction)
    K, Q = (part * np.sqrt(sigma)[:, None] for part in (U, Vt.mT))
    K = K + 0.02 * generator.standard_normal(K.shape)

    # of size 1, and K and Q of each head, or of all heads, of one norm
    sizes = np.array([float(NORMS[norm](X).value) for X in MATRICES[scope](K, Q, np.hstack)])
    if scope == "kq":
        K, Q = K / sizes, Q / sizes
    else:
        of_K, of_Q = np.split(sizes, 2)
        common = np.sqrt(of_K * of_Q)
        K, Q = (
            part * np.broadcast_to(common / own, num_heads)[:, None, None] / common.max()
            for part, own in ((K, of_K), (Q, of_Q))
        )
    margins = list(_margins(tokens, queries, selected))
    smallest = min(a @ K[h] @ Q[h].T @ c for a, c, h in margins)
    expected = (
        smallest / _best_margin(margins, norm, scope, num_heads, 4),
        2 * smallest / _largest_slope(margins, norm, scope, K, Q),
    )
    assert smallest > 0
    # at another scale, the factors are scaled back
    scaled = {"K": 3 * K, "Q": (3 if scope == "kq" else 5) * Q}
    found = [ratio(problem, scaled, selected, norm, scope=scope) for ratio in RATIOS]
    # Clarabel stops at about 1e-8
    assert found == pytest.approx(expected, rel=1e-6)
    assert max(found) < 0.999


def _best_factors(problem, selected, norm="nuclear"):
    U, sigma, Vt = np.linalg.svd(attsvm.solve_svm(problem, selected, norm=norm).direction)
    # with the Hadamard matrix all columns have one length
    rotation = 0.5 * np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    return {"K": U * np.sqrt(sigma) @ rotation, "Q": Vt.T * np.sqrt(sigma) @ rotation}


def test_both_ratios_are_1_at_the_best_factors():
    problem = attsvm.datasets.random_problem(3, 4, 4, seed=1)
    selected = attsvm.optimal_tokens(problem)
    best = {"spectral": "spectral", "frobenius": "nuclear", "linf,2-columns": "nuclear"}
    for norm, of_weights in best.items():
        factors = _best_factors(problem, selected, of_weights)
        for ratio in RATIOS:
            assert 1 - 1e-6 < ratio(problem, factors, selected, norm) <= 1 + 1e-12
            # without heads, nothing is fused
            assert ratio(problem, factors, selected, norm) == ratio(problem, factors, selected, norm, scope="fused")
    # each of two equal heads has the best factors, and the largest and the sum of their sizes are the least
    heads = attsvm.Problem(problem.tokens, queries=problem.queries, num_heads=2)
    factors = _best_factors(problem, selected)
    both = {name: np.stack([part, part]) for name, part in factors.items()}
    for ratio, scope in product(RATIOS, ("heads", "fused", "kq")):
        assert 1 - 1e-6 < ratio(heads, both, [selected] * 2, "frobenius", scope=scope) <= 1 + 1e-12
    # the margins of the second head are four times as large, and so is its norm
    both = {name: np.stack([part, 2 * part]) for name, part in factors.items()}
    each = attsvm.theory.factor_ratio(problem, factors, selected, "spectral")
    assert attsvm.theory.factor_ratio(heads, both, [selected] * 2, "spectral") == pytest.approx(each / 4, rel=1e-9)


def test_scales_do_not_matter():
    problem = attsvm.datasets.random_problem(3, 4, 4, seed=1)
    selected = attsvm.optimal_tokens(problem)
    best = _best_factors(problem, selected)
    heads = attsvm.Problem(1e200 * problem.tokens, queries=1e200 * problem.queries, num_heads=2)
    most = 1.7e308 / max(np.abs(part).max() for part in best.values())  # the norms are no floats
    for ratio, (of_K, of_Q) in product(RATIOS, [(1e-90, 1e-90), (most, most), (1e-290, 1e290)]):
        scaled = {"K": of_K * best["K"], "Q": of_Q * best["Q"]}
        assert ratio(problem, scaled, selected, "frobenius") == pytest.approx(1, abs=1e-12)
        if of_K == of_Q:
            assert ratio(problem, scaled, selected, "frobenius", scope="kq") == pytest.approx(1, abs=1e-12)
        # the second head has the same products from other factors
        other = {"K": of_Q * best["K"], "Q": of_K * best["Q"]}
        both = {name: np.stack([scaled[name], other[name]]) for name in best}
        assert ratio(heads, both, [selected] * 2, "frobenius") == pytest.approx(1, abs=1e-12)
    # in a batch, zero factors leave those of the other problem alone
    pair = attsvm.Problem(np.stack([problem.tokens] * 2), queries=np.stack([problem.queries] * 2))
    for ratio, zero in product(RATIOS, ("K", "Q")):
        factors = {name: np.stack([part * (name != zero), part]) for name, part in best.items()}
        assert ratio(pair, factors, selected, "frobenius") == pytest.approx([0, 1], abs=1e-12)


def test_what_does_not_fit_is_refused():
    problem = attsvm.datasets.random_problem(3, 4, 4, seed=1)
    K, tokens = np.ones((4, 2)), [0, 0, 0]
    prompts = attsvm.Problem(problem.tokens)
    between = [[[0, 0, 0, 0], [1, -1, 0, 0], [-1, 1, 0, 0]]]  # the first token is between the others
    impossible = attsvm.Problem(between, queries=np.ones((1, 4)))
    heads = attsvm.Problem(problem.tokens, queries=problem.queries, num_heads=2)
    sets = np.tile([True, True, False, False], (3, 1))
    fits = {"K": K, "Q": K}
    for of, parameters, selected, message in (
        (problem, {"K": K}, tokens, 'expected "K" and "Q", got K'),
        (problem, {"K": K, "Q": np.ones((3, 2))}, tokens, r"Q: expected shape \(4, m\) with m >= 1, got \(3, 2\)"),
        (problem, {"K": K[:, :0], "Q": K[:, :0]}, tokens, r"K: expected shape \(4, m\) with m >= 1, got \(4, 0\)"),
        (problem, {"K": K, "Q": np.ones((4, 3))}, tokens, "as many columns of Q as of K, 2, got 3"),
        (prompts, {"K": K, "Q": np.ones((1, 2))}, tokens, "problem: expected queries"),
        # factors of sets need not give equal logits, as the weights of their Att-SVM do
        (problem, fits, sets, "selected: expected one token per query, got sets"),
        (problem, fits, [tokens] * 2, r"selected: expected one selection for each problem, .* got batch axes \(2,\)"),
    ):
        for ratio in RATIOS:
            with pytest.raises(ProblemError, match=message):
                ratio(of, parameters, selected)
    # a set of one token is a token
    one = np.tile(np.arange(4) == 0, (3, 1))
    assert attsvm.theory.factor_ratio(problem, fits, one) == attsvm.theory.factor_ratio(problem, fits, tokens)
    for of, selected, norm, scope, message in (
        (problem, tokens, "l3", "heads", "norm of products is known .* got l3"),
        (problem, tokens, "fused_heads", "heads", "norm of products is known .* got fused_heads"),
        (heads, [tokens] * 2, "spectral", "kq", 'known for scope "kq" and 2 attention heads, frobenius, got spectral'),
        (impossible, [0], "spectral", "heads", "selected: expected a separable selection"),
    ):
        factors = fits if of is not heads else {name: np.stack([K, K]) for name in ("K", "Q")}
        with pytest.raises(ProblemError, match=message):
            attsvm.theory.factor_ratio(of, factors, selected, norm, scope=scope)
    assert attsvm.theory.kkt_ratio(impossible, fits, [0]) == 0
    for arguments, message in (
        (("linf", 0), "num_columns: expected an integer >= 1, got 0"),
        (("spectral", 3, "bogus"), 'scope: expected "heads", "fused" or "kq", got \'bogus\''),
        (("spectral", 3, "fused", 0), "num_heads: expected an integer >= 1, got 0"),
    ):
        with pytest.raises(ProblemError, match=message):
            induced_norm(*arguments)
