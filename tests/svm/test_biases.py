"""The Att-SVM of weights with two blocks, W and the biases b, under one norm; the oracle is CVXPY."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm.svm.constraints import constraints as constraints_module

NORMS = {
    "frobenius": lambda W, b, entries: cp.norm(entries, 2),
    "l1.75": lambda W, b, entries: cp.norm(entries, 1.75),
    "l3": lambda W, b, entries: cp.norm(entries, 3),
    "l1": lambda W, b, entries: cp.norm(entries, 1),
    "linf": lambda W, b, entries: cp.norm(entries, "inf"),
    "nuclear": lambda W, b, entries: cp.normNuc(W) + cp.norm(b, 2),
    "spectral": lambda W, b, entries: cp.maximum(cp.sigma_max(W), cp.norm(b, 2)),
}


def drawn(kind: str, seed: int = 0) -> tuple[attsvm.Problem, np.ndarray]:
    """A problem and a selection of allowed tokens."""
    plain = attsvm.datasets.random_problem(4, 5, 6, seed=seed)
    causal = np.broadcast_to(np.tril(np.ones((5, 5), bool)), (4, 5, 5))
    problem = {
        "sink logit": lambda: plain.with_sink(trained=True),
        "absolute": lambda: plain.with_position_bias("absolute"),
        "both": lambda: plain.with_position_bias("absolute").with_sink(trained=True),
        "relative": lambda: (
            attsvm.Problem(plain.tokens, queries=plain.tokens, mask=causal)
            .with_position_bias("relative", max_distance=3)
            .with_sink()
        ),
    }[kind]()
    generator, allowed = np.random.default_rng(seed), problem.canonical.allowed
    picked = [generator.choice(np.flatnonzero(row)) for row in allowed.reshape(-1, problem.num_tokens)]
    return problem, np.reshape(picked, problem.query_shape)


def least(problem: attsvm.Problem, selected: np.ndarray, norm: str) -> float:
    """The least norm, from the rows written by hand."""
    T, own = problem.num_tokens, problem.query_shape
    queries = problem.queries.reshape(len(problem.tokens), -1, problem.query_dim)
    shape = (*queries.shape[:2], T)
    index = np.broadcast_to(problem.bias_index.reshape(len(queries), -1, T), shape)
    mask = True if problem.mask is None else problem.mask.reshape(len(queries), -1, T)
    mask, selected = np.broadcast_to(mask, shape), selected.reshape(own[0], -1)
    W, b = cp.Variable((problem.tokens.shape[-1], queries.shape[-1])), cp.Variable(index.max() + 1)
    rows = []
    for i, q, t in np.argwhere(mask):
        a = selected[i, q]
        if t != a:
            terms = [(problem.tokens[i, a] - problem.tokens[i, t]) @ W @ queries[i, q]]
            terms += [sign * b[j] for sign, j in ((1, index[i, q, a]), (-1, index[i, q, t])) if j >= 0]
            rows.append(cp.sum(cp.hstack(terms)) >= 1)
    entries = cp.hstack([cp.vec(W, order="C"), b])
    program = cp.Problem(cp.Minimize(NORMS[norm](W, b, entries)), rows)
    return float(program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10))


@pytest.mark.parametrize("kind", ["sink logit", "absolute", "both", "relative"])
@pytest.mark.parametrize("norm", NORMS)
def test_values_are_those_of_cvxpy(kind, norm):
    problem, selected = drawn(kind)
    solution = attsvm.solve_svm(problem, selected, norm=norm)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(least(problem, selected, norm), rel=1e-8)
    # the blocks are all there is
    _, b = problem.blocks(solution)
    rest = solution.direction.copy()
    rest[: problem.key_dim, : problem.query_dim], rest[problem.key_dim :, -1] = 0.0, 0.0
    assert not rest.any()
    assert b.shape == (problem.num_biases,)
    assert attsvm.margin(problem, solution, selected, norm) * solution.value == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("norm", ["frobenius", "l3", "nuclear"])
def test_the_ways_of_large_problems_find_the_same(norm, monkeypatch):
    problem, selected = drawn("relative", seed=1)
    value = attsvm.solve_svm(problem, selected, norm=norm).value
    # queries share their tokens, and rows are not stored
    monkeypatch.setattr(constraints_module, "STORED_NUMBERS", 0)
    for module in ("attsvm.svm.methods.frobenius.choice", "attsvm.svm.methods.lp.choice"):
        monkeypatch.setattr(f"{module}.STORED_NUMBERS", 0)
        monkeypatch.setattr(f"{module}.DENSE_NUMBERS", 0)
    method = "projected-gradient" if norm == "frobenius" else None
    found = attsvm.solve_svm(problem, selected, norm=norm, method=method)
    assert found.gap < 1e-8
    assert found.value == pytest.approx(value, rel=1e-8)


def test_a_prompt_has_its_biases_among_its_entries():
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=0, prompt=True)
    with_biases = problem.with_position_bias("absolute").with_sink(trained=True)
    by_hand = np.zeros((4, 6, 12))
    by_hand[:, :5, :6], by_hand[:, :5, 6:11], by_hand[:, 5, 11] = problem.tokens, np.eye(5), 1.0
    np.testing.assert_array_equal(with_biases.canonical.keys, by_hand)


def test_a_batch_and_its_problems_agree():
    problems = attsvm.datasets.random_problem(4, 5, 6, seed=2, batch=(3,)).with_position_bias("absolute")
    selected = attsvm.optimal_tokens(problems)
    for norm in ("frobenius", "l1.75", "nuclear"):
        found = attsvm.solve_svm(problems, selected, norm=norm)
        each = [attsvm.solve_svm(problems[i], selected[i], norm=norm).value for i in range(3)]
        np.testing.assert_allclose(found.value, each, rtol=1e-8)


def test_sets_relaxed_queries_slack_and_centres_work():
    problem, selected = drawn("both", seed=3)
    sets = np.arange(problem.num_tokens) < 2
    kept = attsvm.solve_svm(problem, np.broadcast_to(sets, (4, problem.num_tokens)))
    W, b = problem.blocks(kept)
    logits = np.einsum("ntk,kq,nq->nt", problem.tokens, W, problem.queries) + np.append(b[:5], b[5])
    np.testing.assert_allclose(logits[:, 0], logits[:, 1], atol=1e-12)
    assert kept.gap < 1e-10
    assert attsvm.solve_svm(problem, selected, relaxed=[True, False, False, False]).status == "optimal"
    assert attsvm.solve_svm(problem, selected, slack=0.3).gap < 1e-8
    center = np.zeros(problem.weights_shape)
    center[-1, -1] = 2.0
    assert attsvm.solve_svm(problem, selected, center=center).status == "optimal"


def test_offsets_move_no_direction():
    problem, selected = drawn("absolute", seed=4)
    offsets = np.random.default_rng(0).standard_normal((4, 5))
    moved = attsvm.Problem(**problem.arrays(), offsets=offsets)
    assert attsvm.solve_svm(moved, selected).value == attsvm.solve_svm(problem, selected).value


def test_equal_keys_with_other_biases_are_other_tokens():
    tokens = np.ones((1, 3, 2))
    problem = attsvm.Problem(tokens, queries=np.ones((1, 2)), bias_index=[[0, 1, 0]])
    assert problem.copies.first.tolist() == [[[0, 1, 0]]]
    # the biases alone tell them apart: 1 = b_1 − b_0, so ‖b‖ = 1/√2
    solution = attsvm.solve_svm(problem, [1])
    assert solution.value == pytest.approx(0.5**0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "gamma2"}, "norm: expected an entrywise norm, nuclear or spectral"),
        ({"norm": "nuclear", "rank": 1}, "rank: expected None for a problem with bias_index, got 1"),
        ({"norm": "nuclear", "method": "semidefinite"}, "method: expected semismooth-newton or douglas-rachford"),
    ],
)
def test_what_needs_rows_of_rank_one_is_refused(options, message):
    problem, selected = drawn("absolute")
    with pytest.raises(attsvm.ProblemError, match=message):
        attsvm.solve_svm(problem, selected, **options)


def test_what_knows_no_biases_refuses_them():
    problem, selected = drawn("absolute")
    calls = (
        lambda: attsvm.regularization_path(problem, [1.0]),
        lambda: attsvm.theory.lipschitz_constant(problem),
        lambda: attsvm.theory.local_convergence_conditions(problem, selected),
        lambda: attsvm.theory.constrained_limit(problem, radius=1.0),
        lambda: attsvm.stack.Stack(problem, 2),
    )
    for call in calls:
        with pytest.raises(attsvm.ProblemError, match=r"problem: expected .*without bias_index and offsets"):
            call()
    heads = attsvm.datasets.random_problem(4, 5, 6, seed=0, num_heads=2).with_position_bias("absolute")
    with pytest.raises(attsvm.ProblemError, match="norm: expected a norm of each attention head alone"):
        attsvm.solve_svm(heads, np.zeros((2, 4), int), norm="sum over heads of nuclear")
