"""Sinks, position biases and offsets of problems: their arrays, and what is refused."""

import numpy as np
import pytest

import attsvm


def layer(n: int = 2, T: int = 4, d: int = 3) -> attsvm.Problem:
    tokens = np.random.default_rng(0).standard_normal((n, T, d))
    return attsvm.Problem(tokens, queries=tokens, mask=np.broadcast_to(np.tril(np.ones((T, T), bool)), (n, T, T)))


def test_relative_positions_count_from_the_least_difference():
    problem = layer().with_position_bias("relative")
    expected = [[t - q + 3 for t in range(4)] for q in range(4)]
    assert problem.bias_index[1].tolist() == expected
    assert problem.weights_shape == (3 + 7, 4)
    clipped = layer().with_position_bias("relative", max_distance=1)
    assert clipped.bias_index[0].tolist() == [[1, 2, 2, 2], [0, 1, 2, 2], [0, 0, 1, 2], [0, 0, 0, 1]]


def test_positions_of_queries_may_be_given():
    plain = attsvm.datasets.random_problem(2, 4, 3, seed=0)
    problem = plain.with_position_bias("relative", query_positions=[3, 1])
    assert problem.bias_index.tolist() == [[0, 1, 2, 3], [2, 3, 4, 5]]


def test_a_sink_is_a_last_token_of_zeros_without_a_position():
    problem = layer().with_position_bias("relative").with_sink(trained=True)
    assert not problem.tokens[:, -1].any()
    assert problem.mask[..., -1].all()
    assert (problem.bias_index[..., -1] == 7).all()
    assert problem.num_biases == 8
    # logit 0 under all weights without a trained logit
    sink = attsvm.datasets.random_problem(2, 4, 3, seed=0).with_sink()
    weights = np.random.default_rng(0).standard_normal((3, 3))
    assert not sink.terms.logits(weights)[..., -1].any()


def test_files_keep_them(tmp_path):
    problem = layer().with_position_bias("relative").with_sink(trained=True)
    problem = attsvm.Problem(**problem.arrays(), offsets=np.ones((2, 4, 5)))
    problem.save(tmp_path / "problem.npz")
    loaded = attsvm.Problem.load(tmp_path / "problem.npz")
    assert loaded.data_hash == problem.data_hash != layer().data_hash
    assert repr(loaded).endswith("8 trained biases; fixed offsets; 70% of the tokens allowed)")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer().with_position_bias("rotary"), "kind: expected"),
        (lambda: layer().with_sink().with_position_bias("relative"), "tokens: expected no sink"),
        (lambda: layer().with_position_bias("absolute").with_position_bias("relative"), "bias_index: expected None"),
        (lambda: layer().with_position_bias("absolute", max_distance=2), 'max_distance: expected None for "absolute"'),
        (
            lambda: attsvm.datasets.random_problem(2, 4, 3).with_position_bias("relative"),
            "query_positions: expected the positions",
        ),
        (
            lambda: attsvm.datasets.random_problem(2, 4, 3, prompt=True).with_position_bias("relative"),
            'kind: expected "absolute" for a problem without queries',
        ),
        (lambda: layer().with_position_bias("relative", query_positions=[0, 1]), "query_positions: expected shape"),
        (lambda: attsvm.Problem(np.ones((1, 2, 3)), bias_index=[[0, 1]]), "bias_index: expected None"),
        (
            lambda: attsvm.Problem(np.ones((1, 2, 3)), queries=np.ones((1, 3)), bias_index=[[-2, 0]]),
            "bias_index: expected integers >= -1",
        ),
        (
            lambda: attsvm.Problem(np.ones((1, 2, 3)), queries=np.ones((1, 3)), bias_index=[[0.5, 1]]),
            "bias_index: expected integers",
        ),
        (lambda: attsvm.Problem(np.ones((1, 2, 3)), offsets=[[np.nan, 0]]), "offsets: expected finite numbers"),
        (lambda: attsvm.Problem(np.ones((1, 2, 3)), offsets=[[1.0, 0]]).copies, "offsets: expected equal ones"),
        (lambda: layer().with_position_bias("absolute").blocks(np.eye(3)), "weights: expected shape"),
        (
            lambda: attsvm.margin(layer().with_position_bias("absolute"), np.ones((7, 4)), np.zeros((2, 4), int)),
            "weights: expected zeros outside of the blocks",
        ),
        (
            lambda: attsvm.train(
                attsvm.datasets.random_problem(2, 4, 3).with_position_bias("absolute"), init=np.ones((7, 4)), steps=1
            ),
            "init: W: expected zeros outside of the blocks",
        ),
        (lambda: layer().with_position_bias("absolute").canonical.keys, "problem: expected logits of keys and queries"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(attsvm.ProblemError, match=message):
        call()
