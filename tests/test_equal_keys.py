"""Tokens of a query with equal keys are one token of their mean value, whose logit is larger by log m.

The oracle merges them by hand, in Python's dictionaries, and descends with the gradient by its definition.
"""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import attsvm
from attsvm import theory
from attsvm.training import LossGradient

KINDS = ("plain", "prompt", "ragged", "masks of queries")


def draw(kind: str, seed: int = 0) -> attsvm.Problem:
    """Keys of which some occur two or three times in a sequence, with values of their own."""
    generator = np.random.default_rng(seed)
    n, T, d, Q = 3, 6, 5, 4 if kind in ("masks of queries", "causal") else None
    keys, tokens = generator.standard_normal((n, T, d)), generator.standard_normal((n, T, 4))
    keys[0, [2, 5]], keys[1, [1, 4]], keys[1, 3] = keys[0, 0], keys[1, 0], keys[1, 2]
    keys[0, [0, 2, 5], 1], keys[0, 2, 1] = 0.0, -0.0
    of_queries = (n,) if Q is None else (n, Q)
    mask = None
    if kind == "ragged":
        mask = np.arange(T) < np.array([6, 5, 4])[:, None]
    elif kind == "causal":
        mask = np.tril(np.ones((T, T), bool))[None, T - Q :].repeat(n, 0)
    elif kind == "masks of queries":
        mask = generator.random((n, Q, T)) < 0.6
        mask[..., 1] = True
    queries = None if kind == "prompt" else generator.standard_normal((*of_queries, 3))
    labels = np.where(generator.random(of_queries) < 0.5, -1.0, 1.0)
    return attsvm.Problem(tokens, labels, queries, generator.standard_normal(4), keys, mask)


def merged(problem: attsvm.Problem) -> list[dict[tuple, list[int]]]:
    """The tokens of each query by their keys, in the order of sequences and queries."""
    keys, _, allowed, _ = problem.canonical
    found = []
    for i, q in np.ndindex(allowed.shape[:2]):
        found.append({})
        for t in np.flatnonzero(allowed[i, q]):
            # tuples compare 0 and −0 as equal
            found[-1].setdefault(tuple(keys[i, t].tolist()), []).append(int(t))
    return found


def slope(problem: attsvm.Problem, W: np.ndarray, number=float) -> np.ndarray:
    """The gradient of the mean logistic loss in W (d_k, d_q) on the merged tokens, by its definition."""
    exp, log = (np.exp, np.log) if number is float else (np.vectorize(mpmath.exp), mpmath.log)
    array = np.vectorize(number, otypes=[float if number is float else object])
    queries = array(problem.canonical.queries).reshape(-1, problem.query_dim)
    labels, head, tokens = np.ravel(problem.labels), array(problem.head), array(problem.tokens)
    total, Q = array(np.zeros(W.shape)), len(queries) // len(tokens)
    for place, groups in enumerate(merged(problem)):
        keys = array(np.array(list(groups)))
        values = np.array([sum(tokens[place // Q][list(of)] @ head) / len(of) for of in groups.values()])
        offsets = np.array([log(number(len(of))) for of in groups.values()])
        logits, gamma = keys @ W @ queries[place] + offsets, values * number(labels[place])
        a = exp(logits - max(logits))
        a = a / sum(a)
        f = a @ gamma
        inner = a * (gamma - f)
        total = total - np.outer(inner @ keys, queries[place]) / (1 + exp(np.array([f]))[0]) / len(queries)
    return total


@given(st.integers(0, 10**6), st.sampled_from(["none", "tokens", "queries"]), st.booleans())
def test_copies_means_and_sets_by_their_definition(seed, masked, several):
    generator = np.random.default_rng(seed)
    batch, (n, T, d, Q) = (2,) * several, generator.integers(1, [4, 7, 4, 4])
    # whole numbers with both zeros, of which a third are moved
    keys = generator.integers(-1, 2, (*batch, n, T, d)) * generator.choice([1.0, -0.0])
    keys += (generator.random(keys.shape) < 0.3) * generator.standard_normal(keys.shape)
    mask = None if masked == "none" else generator.random((*batch, n, *((Q,) if masked == "queries" else ()), T)) < 0.6
    if mask is not None:
        mask[..., 0] = True
    problem = attsvm.Problem(np.ones((*batch, n, T, 1)), queries=np.ones((*batch, n, Q, 1)), keys=keys, mask=mask)
    keys, _, allowed, _ = problem.canonical
    values, sets = generator.standard_normal((3, *allowed.shape)), allowed & (generator.random(allowed.shape) < 0.3)
    copies = problem.copies
    means, kept, number = copies.mean(values), copies.largest(sets), np.broadcast_to(copies.number, allowed.shape)
    for *query, t in np.argwhere(allowed).tolist():
        every = np.flatnonzero(allowed[*query])
        same = [u for u in every if (keys[*query[:-1], u] == keys[*query[:-1], t]).all()]
        assert copies.distinct[*query, t] == (t == same[0])
        assert number[*query, t] == len(same)
        assert kept[*query, t] == sets[*query, same].any()
        np.testing.assert_allclose(means[:, *query, t], values[:, *query, same].mean(axis=-1), atol=1e-12)
    assert not copies.distinct[~allowed].any()
    np.testing.assert_array_equal(means[:, ~allowed], values[:, ~allowed])


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_that_of_merged_tokens_with_an_offset(kind):
    problem = draw(kind)
    run = attsvm.train(problem, steps=60, learning_rate=0.05, record=[60])
    W = np.zeros((5, problem.query_dim))
    for _ in range(60):
        g = slope(problem, W)
        W = W - 0.05 * g / np.linalg.norm(g)
    np.testing.assert_allclose(run.weights.reshape(W.shape), W, rtol=0, atol=1e-10 * np.abs(W).max())
    groups = merged(problem)
    logits = (problem.canonical.keys[:, None] @ W @ problem.canonical.queries[..., None])[..., 0].reshape(-1, 6)
    for place, (selected, probability) in enumerate(zip(run.selected.ravel(), run.probability.ravel(), strict=True)):
        sizes = {of[0]: len(of) * np.exp(logits[place, of[0]]) for of in groups[place].values()}
        assert selected in sizes  # the first of equal tokens
        assert probability == pytest.approx(sizes[selected] / sum(sizes.values()), rel=1e-9)


@pytest.mark.parametrize("logits", [1.0, 700.0])
def test_the_gradient_keeps_its_digits_however_saturated_attention_is(logits):
    problem = draw("causal", 1)
    W = np.random.default_rng(2).standard_normal((5, 3)) * logits
    gradient, log_scale = LossGradient(problem)({"W": W[None]})
    mpmath.mp.dps = 1000
    exact = slope(problem, np.vectorize(mpmath.mpf, otypes=[object])(W), mpmath.mpf)
    factor = mpmath.exp(mpmath.mpf(float(log_scale[0])))
    found = gradient["W"][0]
    scaled = np.array([[float(x / factor) for x in row] for row in exact])
    # the logits are rounded to eps · |s|, and so are their exponentials
    np.testing.assert_allclose(found, scaled, rtol=0, atol=1e-12 * (1 + logits) * np.abs(scaled).max())
    assert np.abs(scaled).max() > 1e-3


@pytest.mark.optimized
def test_a_run_converges_to_the_att_svm_of_the_mean():
    """The pair is kept, and each of its tokens has another value: what remains then are dropped tokens only."""
    generator = np.random.default_rng(41201)
    tokens, queries, head = (generator.standard_normal(shape) for shape in ((4, 5, 6), (4, 6), 6))
    labels = np.where(generator.random(4) < 0.5, -1.0, 1.0)
    keys, best = tokens.copy(), (labels[:, None] * (tokens @ head)).argmax(1)
    copy = (best[0] + 1) % 5
    keys[0, copy] = keys[0, best[0]]
    problem = attsvm.Problem(tokens, labels, queries, head, keys)
    run = attsvm.train(problem, steps=20_000)
    mask = np.ones((4, 5), bool)
    mask[0, max(copy, best[0])] = False
    alone = attsvm.Problem(keys, queries=queries, mask=mask)
    assert run.selected[0] == min(copy, best[0])
    assert attsvm.direction_error(run.weights, attsvm.solve_svm(alone, run.selected).direction) < 1e-6
    assert attsvm.predict_direction(problem, run).standing in ("proved", "measured")
    assert attsvm.classify(problem, run).largest_dropped < 1e-100


def test_classes_keep_equal_tokens_together_as_one_of_mean_value():
    generator = np.random.default_rng(15)
    values, keys = generator.standard_normal((3, 5, 8)), generator.standard_normal((3, 5, 8))
    keys[0, 4] = keys[0, 1]
    labels, queries = generator.integers(0, 3, 3), generator.standard_normal((3, 8))
    head, mask = generator.standard_normal((3, 8)), np.ones((3, 5), bool)
    mask[1:, 4] = False
    twice = attsvm.Problem(values, labels, queries, head, keys, mask)
    values[0, 1], mask[0, 4] = (values[0, 1] + values[0, 4]) / 2, False
    once = attsvm.Problem(values, labels, queries, head, keys, mask)
    runs = [attsvm.train(one, loss="cross_entropy", learning_rate=0.05, steps=8000) for one in (twice, once)]
    of_copies, of_mean = (attsvm.predict_direction(*pair) for pair in zip((twice, once), runs, strict=True))
    assert of_copies.selected[0].tolist() == [False, True, True, False, True]
    np.testing.assert_array_equal(of_copies.selected & mask, of_mean.selected)
    np.testing.assert_allclose(of_copies.direction, of_mean.direction, rtol=0, atol=1e-8)
    scores = values[0] @ head.T

    def loss(share):
        outputs = share * scores[1] + (1 - share) * scores[2]
        return np.log(np.exp(outputs - outputs[labels[0]]).sum())

    share = minimize_scalar(loss, bounds=(0, 1), options={"xatol": 1e-10}).x
    assert 0.1 < share < 0.9
    for found, number in ((of_copies, 2), (of_mean, 1)):
        # the finite part has the attention of least loss, to which the pair adds log 2
        logits = keys[0] @ found.finite @ queries[0]
        assert logits[1] + np.log(number) - logits[2] == pytest.approx(np.log(share / (1 - share)), abs=1e-6)
    assert attsvm.direction_error(runs[0], of_copies) < 0.02
    assert runs[0].probability[0] > 0.5


def test_heads_with_shared_keys_train_as_merged_tokens():
    """If every token is there twice, all offsets are larger by log 2, which changes nothing."""
    problem, generator = draw("plain", 3), np.random.default_rng(3)
    heads = np.stack([problem.head, -0.5 * problem.head])
    init = {"K": generator.standard_normal((1, 5, 2)), "Q": generator.standard_normal((2, 3, 2))}

    def trained(tokens, keys):
        several = attsvm.Problem(tokens, problem.labels, problem.queries, heads, keys, num_heads=2, key_groups=1)
        return attsvm.train(several, rank=2, steps=20, init=init)

    run = trained(problem.tokens, problem.keys)
    twice = trained(np.tile(problem.tokens, (1, 2, 1)), np.tile(problem.keys, (1, 2, 1)))
    np.testing.assert_allclose(twice.weights, run.weights, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(twice.selected, run.selected)
    np.testing.assert_allclose(twice.probability, run.probability, rtol=1e-9)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(0, 3), st.integers(1, 3), st.sampled_from(["frobenius", "l3", "nuclear"]))
def test_a_copy_never_changes_the_att_svm(seed, of, times, norm):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=seed)
    tokens = np.concatenate([problem.tokens, problem.tokens[:, [of] * times]], axis=1)
    # the copies are anywhere
    order = np.random.default_rng(seed).permutation(4 + times)
    doubled = attsvm.Problem(tokens[:, order], queries=problem.queries)
    selected = np.random.default_rng(seed).integers(0, 4, 3)
    one = attsvm.solve_svm(problem, selected, norm)
    two = attsvm.solve_svm(doubled, np.argsort(order)[selected], norm)
    assert (one.status, two.status) == ("optimal", "optimal")
    np.testing.assert_allclose(
        two.direction, one.direction, rtol=0, atol=1e-3 * one.value if norm != "frobenius" else 1e-9 * one.value
    )
    assert two.value == pytest.approx(one.value, rel=1e-7)
    # the certificate, by rows that are written out here: a feasible W, and multipliers that bound the value
    rows = np.einsum("ntk,ne->ntke", tokens[np.arange(3), selected][:, None] - tokens[:, order], problem.queries)
    margins = np.einsum("ntke,ke->nt", rows, two.direction)
    assert margins[np.abs(rows).any(axis=(-2, -1))].min() >= 1 - 1e-8
    dual = attsvm.norms.parse_norm(norm).dual
    pulled = np.einsum("nt,ntke->ke", two.dual, rows)
    assert (two.dual >= 0).all()
    assert two.dual.sum() / dual.value(pulled) >= one.value * (1 - 1e-7)
    assert (two.support == np.isclose(margins, 1, atol=1e-5))[two.dual > 1e-3 * two.dual.max()].all()


def test_required_margins_of_equal_tokens_are_their_largest():
    problem = attsvm.Problem([[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]])
    solution = attsvm.solve_svm(problem, [3], required=[[5.0, 1.0, 3.0, np.nan]])
    assert solution.direction == pytest.approx([3.0, 0.0])
    assert attsvm.solve_svm(problem, [0], slack=1e6).objective == pytest.approx(0.5)


def test_scores_selections_and_heads_use_the_mean():
    tokens, keys = [[[3.0], [0.0], [2.0], [-1.0]]], [[[1.0], [2.0], [3.0], [1.0]]]
    problem = attsvm.Problem(tokens, labels=[1.0], head=[1.0], keys=keys)
    assert attsvm.scores(problem).tolist() == [[1.0, 0.0, 2.0, 1.0]]
    assert attsvm.optimal_tokens(problem).tolist() == [2]
    assert attsvm.solve_head(problem, [3]).direction == pytest.approx([1.0])
    found = theory.mixture_conditions(problem)
    assert found.constant == pytest.approx(1.0)
    # 0 is between: no weights keep it, and the pair has the key of least value
    assert attsvm.solve_svm(problem, [3]).direction == pytest.approx([-1.0])
    assert attsvm.margin(problem, [-1.0], [0]) == pytest.approx(1.0)
    equal = attsvm.finite_part(problem, [[0.2, 0.4, 0.2, 0.2]], [[True, True, False, False]])
    assert equal.residual < 1e-12
    unequal = attsvm.finite_part(problem, [[0.1, 0.4, 0.2, 0.3]], [[True, True, False, False]])
    assert unequal.residual == pytest.approx(np.log(3))


def test_the_earliest_selection_counts_copies():
    tokens = np.concatenate([np.tile([1.0, 0.0], (19, 1)), np.zeros((1, 2))])
    problem = attsvm.Problem(tokens[None], labels=[1.0], head=[1.0, 0.0])
    assert theory.earliest_selection(problem, selected=[3], miss=0.1).steps.tolist() == [0.0]
    # 19 tokens to overcome: log 9 + log 19
    others = theory.earliest_selection(problem, selected=[19], norm="frobenius", learning_rate=0.1, miss=0.1)
    assert others.length == pytest.approx(np.log(9 * 19), rel=1e-7)


def test_no_step_leaves_the_cone_of_a_token_with_copies():
    problem = attsvm.datasets.random_problem(2, 3, 4, seed=0)
    best = attsvm.optimal_tokens(problem)
    tokens = np.concatenate([problem.tokens] + 40 * [problem.tokens[np.arange(2), best][:, None]], axis=1)
    problem = attsvm.Problem(tokens, problem.labels, problem.queries, problem.head)
    cone = theory.local_convergence_conditions(problem, best)
    assert cone.holds
    D, c = cone.solution.direction / cone.solution.value, 1 - cone.opening
    generator, s = np.random.default_rng(0), np.sqrt(1 - c * c)
    for radius in (cone.radius, 2 * cone.radius):
        across = generator.standard_normal((400, 4, 4))
        across -= np.einsum("kij,ij->k", across, D)[:, None, None] * D
        across /= np.linalg.norm(across, axis=(1, 2), keepdims=True)
        units = c * D + s * across
        descent = np.array([-slope(problem, radius * unit) for unit in units])
        assert (np.einsum("kij,kij->k", descent, D - c * units) > 0).all()
        assert (np.einsum("kij,kij->k", descent, units) > 0).all()


def test_paths_and_balls_count_copies():
    """At a radius the loss is that of merged tokens; a projected descent from its minimum finds nothing lower."""
    problem = draw("plain", 5)
    path = attsvm.regularization_path(problem, [3.0])
    limit = theory.constrained_limit(problem, radius=3.0, start=path.weights[-1])

    def loss(W):
        outputs = []
        for place, groups in enumerate(merged(problem)):
            values = np.array([np.mean(problem.tokens[place, of] @ problem.head) for of in groups.values()])
            sizes = np.array([len(of) for of in groups.values()])
            a = sizes * np.exp(np.array(list(groups)) @ W @ problem.queries[place])
            outputs.append(problem.labels[place] * (a @ values) / a.sum())
        return np.mean(np.log1p(np.exp(-np.array(outputs))))

    for weights, value in ((path.weights[-1], path.loss[-1]), (limit.weights, limit.loss)):
        assert value == pytest.approx(loss(weights), rel=1e-12)
        g = slope(problem, weights)
        # the minimum over the ball is along the negative gradient
        assert -np.sum(g * weights) / np.linalg.norm(g) / 3 == pytest.approx(1.0, abs=1e-6)
        assert np.linalg.norm(weights) == pytest.approx(3.0, rel=1e-6)
