"""classify against brute force: every selection of tiny problems, its SVM by enumeration of active sets."""

import itertools

import numpy as np
import optax
import pytest

import attsvm

# beyond it a token is not a support token; the tiny problems keep all others at least this far away
TIGHT = 1e-7


def least_norm(rows):
    """The shortest w with rows @ w ≥ 1 and the tight rows, over all active sets; None where there is none."""
    best = None
    for size in range(len(rows) + 1):
        for active in map(list, itertools.combinations(range(len(rows)), size)):
            part = rows[active]
            w = np.linalg.pinv(part, rcond=1e-10) @ np.ones(size) if size else np.zeros(rows.shape[1])
            if (rows @ w >= 1 - 1e-9).all() and (best is None or w @ w < best @ best * (1 - 1e-12)):
                best = w
    return None if best is None else (best, rows @ best < 1 + TIGHT)


def by_definition(problem):
    """Kind of each selection that some weights keep, with the shortest weights that do: a dict of α."""
    n, T, d = problem.tokens.shape
    gamma = problem.labels[:, None] * (problem.tokens @ problem.head)
    found = {}
    for alpha in itertools.product(range(T), repeat=n):
        pairs = [(i, t) for i in range(n) for t in range(T) if t != alpha[i]]
        rows = np.array(
            [np.outer(problem.tokens[i, alpha[i]] - problem.tokens[i, t], problem.queries[i]).ravel() for i, t in pairs]
        )
        shortest = least_norm(rows)
        if shortest is None:
            continue
        weights, tight = shortest
        optimal = all(gamma[i, alpha[i]] == gamma[i].max() for i in range(n))
        worse = [gamma[i, t] < gamma[i, alpha[i]] for (i, t), here in zip(pairs, tight, strict=True) if here]
        kind = "global" if optimal else "local" if all(worse) else "not_local"
        found[alpha] = kind, weights.reshape(d, d)
    return found


def tiny(seed, d, number):
    generator = np.random.default_rng(seed)
    tokens, queries = generator.standard_normal((number, 2, 3, d)), generator.standard_normal((number, 2, d))
    head, labels = generator.standard_normal((number, d)), generator.choice([-1.0, 1.0], (number, 2))
    return attsvm.Problem(tokens, labels, queries=queries, head=head)


@pytest.mark.parametrize(
    ("d", "number", "starts"),
    [(2, 10, 20), (3, 10, 20), (4, 10, 20)]
    # two hundred problems, fifty starts each
    + [pytest.param(d, number, 50, marks=pytest.mark.long) for d, number in ((2, 67), (3, 67), (4, 66))],
)
def test_classify_agrees_with_brute_force_and_runs_end_in_local_optima(d, number, starts):
    problems = tiny(10 + d, d, number)
    init = np.random.default_rng(d).standard_normal((starts, number, d, d))
    rule = attsvm.optimizers.normalized_gradient_descent(lambda k: 0.1 * (1 + k / 100))
    run = attsvm.train(problems, optimizer=rule, steps=8000, init=init, record=1)
    ends = attsvm.classify(problems, run.weights)
    decided = ends.kind != "undecided"
    assert decided.mean() > 0.97
    kinds = set()
    for i in range(number):
        selections = by_definition(problems[i])
        found = attsvm.classify(problems[i], np.array([1e3 * weights for _, weights in selections.values()]))
        np.testing.assert_array_equal(found.selected, list(selections))
        assert found.kind.tolist() == [kind for kind, _ in selections.values()]
        assert (found.breaking.any(axis=(1, 2)) == (found.kind == "not_local")).all()
        kinds |= set(found.kind)
        optimal = {alpha for alpha, (kind, _) in selections.items() if kind != "not_local"}
        assert {tuple(alpha) for alpha in run.selected[decided[:, i], i]} <= optimal
    assert kinds == {"global", "local", "not_local"}


def test_what_is_not_saturated_is_undecided():
    problem = tiny(0, 3, 1)[0]
    weights = next(found for kind, found in by_definition(problem).values() if kind == "global")
    assert attsvm.classify(problem, 1e-3 * weights).kind == "undecided"
    assert attsvm.classify(problem, np.zeros((3, 3))).kind == "undecided"
    # e⁻ᵐ < 1e-6 from m = 13.8 on, m the margin, which is 1 for the SVM's weights
    assert attsvm.classify(problem, 13 * weights).kind == "undecided"
    found = attsvm.classify(problem, 15 * weights)
    assert found.kind == "global"
    assert np.exp(-15) / 3 < found.largest_dropped < 2 * np.exp(-15)


def test_a_tie_breaks_local_optimality():
    # tokens 0 and 1 score alike, token 2 best; all are support tokens of each other in one dimension of queries
    tokens = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [-1.0, -1.0, 2.0]]])
    problem = attsvm.Problem(tokens, [1.0], queries=[[1.0]], head=[0.0, 0.0, 1.0])
    found = attsvm.classify(problem, 1e4 * np.array([[1.0], [0.0], [0.0]]))
    assert found.kind == "not_local"
    assert found.breaking.tolist() == [[False, True, True]]


def test_padded_queries_and_prompts_are_classified():
    generator = np.random.default_rng(1)
    tokens, head = generator.standard_normal((3, 4, 5)), generator.standard_normal(5)
    queries, mask = generator.standard_normal((3, 2, 5)), np.array([[True, True], [True, False], [True, True]])
    problem = attsvm.Problem(tokens, np.ones((3, 2)), queries=queries, head=head, query_mask=mask)
    solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    found = attsvm.classify(problem, 1e4 * solution.direction)
    assert found.kind == "global"
    assert found.selected[1, 1] == -1
    prompt = attsvm.Problem(tokens, np.ones(3), head=head)
    solution = attsvm.solve_svm(prompt, attsvm.optimal_tokens(prompt))
    assert attsvm.classify(prompt, 1e4 * solution.direction).kind == "global"


def test_the_kind_depends_on_the_norm():
    # in another norm other tokens are support tokens: over random problems the kinds differ somewhere
    differing = 0
    for seed in range(6):
        problem = tiny(100 + seed, 3, 1)[0]
        for _, weights in by_definition(problem).values():
            kinds = {attsvm.classify(problem, 1e3 * weights, norm).kind for norm in ("frobenius", 1.0, "nuclear")}
            differing += len(kinds) > 1
    assert differing > 0


def test_a_run_is_classified_in_the_norm_of_its_optimizer():
    problem = tiny(0, 3, 1)[0]
    run = attsvm.train(problem, optimizer=attsvm.optimizers.mirror_descent(p=1.5, learning_rate=1.0), steps=3000)
    assert repr(attsvm.classify(problem, run)) == repr(attsvm.classify(problem, run.weights, 1.5))
    foreign = attsvm.train(problem, optimizer=optax.sgd(0.1, momentum=0.5), steps=10)
    with pytest.raises(attsvm.ProblemError, match="norm: expected the norm of the Att-SVM"):
        attsvm.classify(problem, foreign)
    assert attsvm.classify(problem, foreign, "frobenius").kind == "undecided"


def test_what_is_refused():
    problem = tiny(0, 3, 2)
    with pytest.raises(attsvm.ProblemError, match="weights: expected axes that end with"):
        attsvm.classify(problem, np.zeros((3, 3, 3)))
    with pytest.raises(attsvm.ProblemError, match="a prediction head for token scores, but it has no head"):
        attsvm.classify(attsvm.Problem(problem.tokens, problem.labels, queries=problem.queries), np.zeros((2, 3, 3)))
