"""The smallest changes that alter a selection: a little more alters it, and a little less does not."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402
from small_models import CASES, spread_out  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm.inspect.robustness import robustness  # noqa: E402

BLOOM = "bloom, with ALiBi"
WITH_W = ["bert", "llama", "gpt-neox, partly rotary", BLOOM]
WITHOUT_W = ["qwen3", "deepseek v3"]
CASES_HERE = [*WITH_W, *WITHOUT_W]


def inspected(case):
    make, batch = CASES[case]
    inspection = attsvm.inspect.inspect(spread_out(make()), batch, margins=False)
    return inspection, inspection.source.captured(1)


def argmax(layer, keys, queries, head, i, q):
    """The selection of one query from its keys, by hand."""
    logits = layer.scale * keys @ queries + (0.0 if layer.bias is None else layer.bias[i, head, q])
    return int(np.where(layer.allowed[i, q], logits, -np.inf).argmax())


@pytest.mark.parametrize("case", CASES_HERE)
def test_the_smallest_change_of_a_query_alters_its_selection(case):
    inspection, layer = inspected(case)
    head = 2
    selected = inspection.selected[4 + head]
    keys, queries = layer.vectors(head)
    found = robustness(layer, head, selected)
    shares = []
    for i, q in np.argwhere(selected >= 0):
        if layer.allowed[i, q].sum() == 1:
            assert np.isinf(found.query[i, q])
            continue
        direction = keys[i, selected[i, q]] - keys[i, found.token[i, q]]
        change = -found.query[i, q] * direction / np.linalg.norm(direction)
        more, less = ((1 + sign * 1e-6) * change for sign in (1, -1))
        assert argmax(layer, keys[i], queries[i, q] + more, head, i, q) == found.token[i, q]
        assert argmax(layer, keys[i], queries[i, q] + less, head, i, q) == selected[i, q]
        shares.append(found.query[i, q] / np.linalg.norm(queries[i, q]))
        # no random change of the same size alters it
        random = np.random.default_rng(q).normal(size=(200, len(change)))
        random *= np.linalg.norm(less) / np.linalg.norm(random, axis=-1, keepdims=True)
        assert all(argmax(layer, keys[i], queries[i, q] + one, head, i, q) == selected[i, q] for one in random)
    assert inspection.measure("query_robustness")[1, head] == pytest.approx(np.mean(shares))
    assert len(shares) > 5


@pytest.mark.parametrize("case", CASES_HERE)
def test_the_smallest_change_of_a_token_alters_the_selection_of_a_query(case):
    inspection, layer = inspected(case)
    head = 1
    selected = inspection.selected[4 + head]
    found = robustness(layer, head, selected)
    if case in WITHOUT_W:
        assert found.key is None
        assert np.isnan(inspection.measure("key_robustness")[1, head])
        return
    _, queries = layer.vectors(head)

    def selects(i, q, token, change):
        tokens = layer.tokens.copy()
        tokens[i, token] += change
        return argmax(layer, layer.projected(head, tokens, layer.queries)[0][i], queries[i, q], head, i, q)

    shares = []
    for i, q in np.argwhere(np.isfinite(found.key)):
        token = found.changed[i, q]
        # the gradient of the token's logit by its input, by finite differences: it is linear
        eye, zero = np.eye(layer.tokens.shape[-1]), np.zeros(layer.tokens.shape)
        base = layer.projected(head, zero, layer.queries)[0][i, token]
        gradient = []
        for unit in eye:
            moved = zero.copy()
            moved[i, token] = unit
            gradient.append((layer.projected(head, moved, layer.queries)[0][i, token] - base) @ queries[i, q])
        step = found.key[i, q] * np.array(gradient) / np.linalg.norm(gradient)
        step = -step if token == selected[i, q] else step
        assert selects(i, q, token, (1 + 1e-6) * step) != selected[i, q]
        assert selects(i, q, token, (1 - 1e-6) * step) == selected[i, q]
        shares.append(found.key[i, q] / np.linalg.norm(layer.tokens[i, token]))
    assert inspection.measure("key_robustness")[1, head] == pytest.approx(np.mean(shares))
    assert len(shares) > 5
    rng = np.random.default_rng(0)
    for i, q in np.argwhere(np.isfinite(found.key)):
        for token in np.flatnonzero(layer.allowed[i, q]):
            change = rng.normal(size=layer.tokens.shape[-1])
            change *= (1 - 1e-6) * found.key[i, q] / np.linalg.norm(change)
            assert selects(i, q, token, change) == selected[i, q]


def test_equal_keys_with_other_biases_of_positions_are_other_tokens():
    """Words that occur several times have equal keys in the first layer of BLOOM, which ALiBi tells apart."""
    words = torch.tensor([[5, 6, 5, 6, 5, 7, 5], [8, 9, 8, 9, 8, 9, 8]])
    inspection = attsvm.inspect.inspect(spread_out(CASES[BLOOM][0]()), {"input_ids": words}, margins=False)
    layer = inspection.source.captured(0)
    altered = 0
    for head in range(4):
        selected, found = inspection.selected[head], robustness(layer, head, inspection.selected[head])
        keys, queries = layer.vectors(head)
        for i, q in np.argwhere(np.isfinite(found.key)):
            gradient = layer.weights().key[head] @ queries[i, q]
            for token in np.flatnonzero(layer.allowed[i, q]):
                sign = -1 if token == selected[i, q] else 1
                change = sign * found.key[i, q] * gradient / np.linalg.norm(gradient)
                for factor, alters in ((1 - 1e-6, False), (1 + 1e-6, token == found.changed[i, q])):
                    moved = keys[i].copy()
                    moved[token] += factor * change @ layer.weights().key[head]
                    if argmax(layer, moved, queries[i, q], head, i, q) != selected[i, q]:
                        altered += 1
                        assert factor > 1
                    else:
                        assert not alters
    assert altered > 20


def test_duplicates_of_the_selected_token_are_no_other_selection():
    """Equal keys cannot be told apart by a query; a tie of different keys needs no change."""
    from attsvm.inspect.weights import Layer

    keys = np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])[:, None]
    queries = np.array([[[2.0, 1.0]], [[1.0, 1.0]]])[:, None]
    layer = Layer(
        name="",
        tokens=np.zeros((2, 3, 0)),
        queries=np.zeros((2, 1, 0)),
        allowed=np.ones((2, 1, 3), bool),
        positions=np.zeros((2, 1), int),
        there=np.ones((2, 3), bool),
        projections=None,
        scale=3.0,
        rotation=None,
        given=(keys, queries),
        bias=None,
        softcap=None,
        sink=None,
        is_self=False,
        rebuilt_error=np.zeros(1),
    )
    found = robustness(layer, 0, np.array([[0], [0]]))
    np.testing.assert_allclose(found.query, [[1 / np.sqrt(2)], [0.0]])
    assert found.token.tolist() == [[2], [1]]
