"""The margin of a head in the norm of rotations, against the Att-SVM of the problem with these rotations."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

from small_models import CASES, spread_out  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm import ProblemError  # noqa: E402
from attsvm.norms import Nuclear, Rotary  # noqa: E402


def inspected(case):
    make, batch = CASES[case]
    return attsvm.inspect.inspect(spread_out(make()), batch, margins=False)


def with_constant(vectors):
    return np.concatenate([vectors, np.ones((*vectors.shape[:-1], 1))], axis=-1)


def stacked(layer, head, pairs):
    """[A_1; B_1; …] of the rotated pairs of a head, from its weights and biases."""
    parts = layer.projections
    key = np.vstack([parts.key[head], parts.key_bias[head]])
    query = np.vstack([parts.query[head], parts.query_bias[head]])
    blocks = []
    for j in range(pairs):
        k, q = (side[:, j] + sign * 1j * side[:, pairs + j] for side, sign in ((key, -1), (query, 1)))
        M = parts.scale * np.outer(k, q)
        blocks += [M.real, M.imag]
    return np.concatenate(blocks), parts.scale * key[:, 2 * pairs :] @ query[:, 2 * pairs :].T


def test_the_bound_is_below_the_margin_ratio_of_the_norm():
    inspection = inspected("llama")
    layer, head, pairs = inspection.source.captured(1), 2, 3
    W, _ = stacked(layer, head, pairs)
    T = layer.tokens.shape[1]
    active = layer.positions >= 0
    problem = attsvm.Problem(
        with_constant(layer.tokens), queries=with_constant(layer.queries), mask=layer.allowed, query_mask=active
    )
    # the frequencies of Llama
    rotated = problem.with_rotations(
        10_000.0 ** (-np.arange(pairs) / pairs), np.arange(T), np.maximum(layer.positions, 0)
    )
    logits = attsvm.measures.token_logits(rotated, W)[:, 0].reshape(layer.allowed.shape)
    np.testing.assert_allclose(logits[layer.allowed], layer.logits(head)[layer.allowed], atol=1e-5)
    found = inspection.rotary_margin(1, head)
    selected = inspection.selected[4 + head].reshape(-1, 1)
    solution = attsvm.solve_svm(rotated, selected, norm=Rotary(pairs))
    assert solution.status == "optimal"
    assert found.norm == pytest.approx(Rotary(pairs).value(W), rel=1e-9)
    assert found.margin == pytest.approx(attsvm.margin(rotated, W, selected, Rotary(pairs)), rel=1e-4)
    ratio = found.margin * solution.value
    assert 0 < found.least_ratio <= ratio * (1 + 1e-6) <= 1 + 1e-5
    assert found.least_ratio > 0.2 * ratio  # it says something


def test_coordinates_without_rotation_have_the_nuclear_norm():
    inspection = inspected("gpt-neox, partly rotary")
    layer = inspection.source.captured(1)
    W, rest = stacked(layer, 1, 2)
    found = inspection.rotary_margin(1, 1)
    assert found.norm == pytest.approx(Rotary(2).value(W) + Nuclear().value(rest), rel=1e-9)
    assert 0 < found.least_ratio < 1


@pytest.mark.parametrize("case", ["bert", "qwen3", "bloom, with ALiBi"])
def test_other_layouts_are_refused_by_name(case):
    with pytest.raises(ProblemError, match="rotary_margin: expected a layer with rotary positions"):
        inspected(case).rotary_margin(1, 0)


def test_a_sink_is_one_more_token_of_logit_zero():
    inspection = inspected("gpt-oss, with sinks")
    layer, head = inspection.source.captured(1), 0
    pairs = layer.rotation[0].shape[-1] // 2
    cosine, sine = (part[0, 1, :pairs].astype(float) for part in layer.rotation)
    W, _ = stacked(layer, head, pairs)
    W *= np.square(np.hypot(cosine, sine)).mean()  # YaRN lengthens keys and queries
    T = layer.tokens.shape[1]
    problem = attsvm.Problem(
        with_constant(layer.tokens),
        queries=with_constant(layer.queries),
        mask=layer.allowed,
        query_mask=layer.positions >= 0,
    )
    with_sink = problem.with_rotations(
        np.arctan2(sine, cosine), np.arange(T), np.maximum(layer.positions, 0)
    ).with_sink()
    logits = attsvm.measures.token_logits(with_sink, W)[:, 0]
    allowed = with_sink.mask
    selected = np.where(allowed, logits, -np.inf).argmax(axis=-1)
    assert 0 < (selected == T).sum() < len(selected)  # the sink, and tokens
    found = inspection.rotary_margin(1, head)
    stretch = np.square(np.hypot(cosine, sine)).mean()
    assert found.margin == pytest.approx(
        stretch * attsvm.margin(with_sink, W, selected[:, None], Rotary(pairs)), rel=1e-4
    )
    assert 0 < found.least_ratio <= attsvm.margin_ratio(with_sink, W, selected[:, None], Rotary(pairs)) * (1 + 1e-6)
