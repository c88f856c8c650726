"""Training of W and biases b as blocks of one matrix.

The oracle has no blocks: a prompt on the features vec(k z') and unit vectors has the same logits and the same norm.
"""

import numpy as np
import pytest

import attsvm
from attsvm.optimizers import Growing, mirror_descent, normalized_gradient_descent
from attsvm.training.attention import base


def drawn(kind: str, seed: int, n: int = 4) -> attsvm.Problem:
    plain = attsvm.datasets.random_problem(n, 5, 6, seed=seed)
    if kind == "absolute":
        return plain.with_position_bias("absolute")
    if kind == "sink logit":
        return plain.with_sink(trained=True)
    generator = np.random.default_rng(seed)
    mask = np.broadcast_to(np.tril(np.ones((5, 5), bool)), (n, 5, 5))
    labels = generator.choice([-1.0, 1.0], (n, 5))
    layer = attsvm.Problem(plain.tokens, labels, queries=plain.tokens, head=plain.head, mask=mask)
    return layer.with_position_bias("relative").with_sink()


def of_features(problem: attsvm.Problem) -> attsvm.Problem:
    """The problem of one prompt: each query is a sequence, and its keys are features."""
    n, T, m = problem.num_sequences, problem.num_tokens, problem.num_biases
    queries = problem.queries.reshape(n, -1, problem.query_dim)
    Q = queries.shape[1]
    products = np.einsum("ntk,nqe->nqtke", problem.tokens, queries).reshape(n * Q, T, -1)
    index = np.broadcast_to(problem.bias_index.reshape(n, -1, T), (n, Q, T)).reshape(n * Q, T)
    keys = np.concatenate([products, index[..., None] == np.arange(m)], axis=-1)
    mask = None if problem.mask is None else problem.mask.reshape(n * Q, T)
    offsets = None if problem.offsets is None else problem.offsets.reshape(n * Q, T)
    tokens = np.repeat(problem.tokens, Q, axis=0)
    return attsvm.Problem(tokens, problem.labels.reshape(-1), head=problem.head, keys=keys, mask=mask, offsets=offsets)


def flat(problem: attsvm.Problem, weights: np.ndarray) -> np.ndarray:
    W, b = problem.blocks(weights)
    return np.concatenate([W.reshape(*W.shape[:-2], -1), b], axis=-1)


@pytest.mark.parametrize("kind", ["absolute", "sink logit", "relative"])
@pytest.mark.parametrize("gathers", [False, True])
def test_steps_are_those_of_a_prompt_on_features(kind, gathers, monkeypatch):
    if gathers:
        monkeypatch.setattr(base, "LARGEST_WRITTEN_OUT", 0)
    # of another size, because programs of one size are compiled once
    problem = drawn(kind, seed=1, n=3 if gathers else 4)
    optimizer = normalized_gradient_descent(0.1) if gathers else mirror_descent(p=1.75, learning_rate=0.1)
    run = attsvm.train(problem, optimizer=optimizer, steps=201, record=[100, 201])
    other = attsvm.train(of_features(problem), optimizer=optimizer, steps=201, record=[100, 201])
    np.testing.assert_allclose(flat(problem, run.weights), other.weights, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(run.loss, other.loss, rtol=1e-10)
    assert run.selected.ravel().tolist() == other.selected.tolist()


@pytest.mark.optimized
@pytest.mark.parametrize("kind", ["absolute", "sink logit"])
def test_the_direction_is_that_of_the_att_svm(kind):
    descent = normalized_gradient_descent(Growing(0.1, 4000))
    for seed in (62_101, 62_102):
        problem = drawn(kind, seed)
        run = attsvm.train(problem, optimizer=descent, steps=40_000)
        prediction = attsvm.predict_direction(problem, run)
        solution = prediction.solution
        assert attsvm.direction_error(run.weights, prediction.direction) < 1e-6
        assert prediction.standing == "measured"
        assert "attention_today_blocks.py" in prediction.source
        assert "b = (" in repr(run)
        assert "b = (" in repr(solution)
    # outside of what was measured it is a conjecture: steps of another kind, and fewer steps
    for options in ({"optimizer": "spectral_descent", "steps": 3000}, {"steps": 300}):
        other = attsvm.predict_direction(problem, attsvm.train(problem, **options))
        assert other.standing == "conjecture"


@pytest.mark.optimized
def test_biases_vanish_beside_factors():
    problem = drawn("sink logit", seed=62_103)
    run = attsvm.train(problem, attention="factored", steps=20_000)
    prediction = attsvm.predict_direction(problem, run)
    assert prediction.norm.name == "nuclear"
    (vanished,) = [one for one in prediction.hypotheses if one.name == "biases_vanish"]
    assert vanished.holds
    assert vanished.number < 1e-10
    # the limit is that of a sink of logit 0
    zero = attsvm.datasets.random_problem(4, 5, 6, seed=62_103).with_sink()
    np.testing.assert_allclose(
        problem.blocks(prediction.direction)[0], attsvm.solve_svm(zero, run.selected, norm="nuclear").direction
    )
    assert not problem.blocks(prediction.direction)[1].any()
    assert attsvm.direction_error(run.weights, prediction.direction) < 1e-3
    assert prediction.standing == "measured"
    assert attsvm.classify(problem, run).kind in ("global", "local")
    # after a few steps they have not vanished, and nothing is predicted
    short = attsvm.predict_direction(problem, attsvm.train(problem, attention="factored", steps=2))
    assert short.standing == "none"


def test_offsets_are_logarithms_of_numbers_of_tokens():
    """m tokens with one key train as one token of their mean value with the offset log m."""
    generator = np.random.default_rng(0)
    tokens, keys = generator.standard_normal((2, 3, 4, 5))
    tokens[:, 3], keys[:, 3] = tokens[:, 2], keys[:, 2]
    queries, head = generator.standard_normal((3, 5)), generator.standard_normal(5)
    twice = attsvm.Problem(tokens, [1, -1, 1], queries, head, keys)
    offsets = np.broadcast_to([0.0, 0.0, np.log(2.0)], (3, 3))
    once = attsvm.Problem(tokens[:, :3], [1, -1, 1], queries, head, keys[:, :3], offsets=offsets)
    runs = [attsvm.train(problem, steps=101, record=[101]) for problem in (twice, once)]
    np.testing.assert_allclose(runs[0].weights, runs[1].weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(runs[0].probability, runs[1].probability, rtol=1e-9)
    sharing = attsvm.measures.attention_of(once, runs[1].weights)
    np.testing.assert_allclose(sharing.max(axis=-1)[:, 0], runs[1].probability, rtol=1e-12)


def test_batches_heads_precisions_and_files(tmp_path):
    problems = attsvm.datasets.random_problem(4, 5, 6, seed=3, batch=(2,)).with_position_bias("absolute").with_sink()
    run = attsvm.train(problems, steps=50)
    np.testing.assert_array_equal(attsvm.train(problems[1], steps=50).weights, run.weights[1])
    small = attsvm.train(problems, steps=50, dtype="float32")
    np.testing.assert_allclose(small.weights, run.weights, rtol=2e-4, atol=1e-4)
    assert attsvm.train(problems, steps=20, init=attsvm.train(problems, steps=30)).step.tolist() == [50, 50]
    heads = attsvm.datasets.random_problem(4, 5, 6, seed=3, num_heads=2, key_groups=1).with_position_bias("absolute")
    shapes = {name: x.shape for name, x in attsvm.train(heads, steps=5).parameters.items()}
    assert shapes == {"K": (1, 6, 6), "Q": (2, 6, 6), "b": (2, 5), "v": (2, 6)}
    run.save(tmp_path / "run.npz")
    assert attsvm.Run.load(tmp_path / "run.npz").num_biases == 5
    assert attsvm.train(drawn("relative", 3), steps=50, batch_size=2).step == 50


def test_what_the_factors_of_biased_logits_do_not_have_is_named():
    problem = drawn("absolute", seed=3)
    with pytest.raises(attsvm.ProblemError, match="fixed: expected none for a problem with bias_index, got K"):
        attsvm.train(problem, attention="factored", fixed=("K",), steps=1)
    run = attsvm.train(problem, attention="factored", optimizer="spectral_descent", steps=5)
    with pytest.raises(attsvm.ProblemError, match="norm: expected the norm of the Att-SVM to compare with"):
        attsvm.predict_direction(problem, run)
