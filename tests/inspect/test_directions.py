"""Changes of the factors by trying them out, directions against an SVD."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")

pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch
from small_models import CASES, spread_out, words

import attsvm.torch
from attsvm.inspect.reasons import factor_change
from attsvm.inspect.weights import Projections
from attsvm.pages.inspection_view import detail
from oracles.attention_only import AttentionOnly


def factors(seed):
    generator = np.random.default_rng(seed)
    tokens, queries = generator.standard_normal((3, 5, 6)), generator.standard_normal((3, 4, 7))
    tokens[0, 1] = tokens[0, 0]  # an exact duplicate is never selected instead
    queries[..., -1] = 1
    allowed = np.ones((3, 4, 5), bool)
    allowed[1, :, 3:] = False
    key, query = generator.standard_normal((1, 6, 2)), generator.standard_normal((1, 6, 2))
    parts = Projections(query, generator.standard_normal((1, 2)), key, np.zeros((1, 2)), 0.7)
    return tokens, queries, parts, allowed


def selection(tokens, queries, key, query, allowed):
    logits = np.einsum("itd,dh,zh,iqz->iqt", tokens, key, query, queries)
    return np.where(allowed, logits, -np.inf).argmax(-1)


@pytest.mark.parametrize("seed", range(3))
def test_no_change_of_the_factors_below_the_bound_alters_a_selection(seed):
    tokens, queries, parts, allowed = factors(seed)
    key, query = parts.key[0], np.vstack([parts.query[0], parts.query_bias[0]])
    selected = selection(tokens, queries, key, query, allowed)
    change = factor_change(tokens, queries, parts, 0, allowed, selected)
    assert 0 < change.lower <= change.upper
    i, q, t = change.sequence, change.query, change.token
    x, z = tokens[i, selected[i, q]] - tokens[i, t], queries[i, q]
    of_key, of_query = -np.outer(x, z @ query), -np.outer(z, x @ key)
    for factor, flipped in ((1 - 1e-6, False), (1 + 1e-6, True)):
        step = factor * change.upper
        changed = [
            selection(tokens, queries, key + step * of_key / np.linalg.norm(of_key), query, allowed),
            selection(tokens, queries, key, query + step * of_query / np.linalg.norm(of_query), allowed),
        ]
        assert any(one[i, q] == t for one in changed) == flipped
    generator = np.random.default_rng(seed)
    margin = x @ key @ query.T @ z
    for _ in range(300):  # random changes, and steps against the margin of the row
        one, other = generator.standard_normal(key.shape), generator.standard_normal(query.shape)
        mix = generator.random()
        one, other = mix * one + of_key, mix * other + of_query
        scale = (1 - 1e-9) * change.lower / np.hypot(np.linalg.norm(one), np.linalg.norm(other))
        np.testing.assert_array_equal(
            selection(tokens, queries, key + scale * one, query + scale * other, allowed), selected
        )
    assert margin > 0


def test_directions_are_those_of_the_singular_value_decomposition():
    torch.manual_seed(0)
    model = AttentionOnly(vocabulary=16, length=8, size=8, heads=2).double()
    tokens = torch.randint(16, (3, 8))
    inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
    first, second = inspection.reading_directions(0, 1, count=2, ends=3)
    weights = model.layers[0].qkv.weight.detach().numpy()
    W = weights[12:16].T @ weights[4:8] / 2
    values = np.linalg.svd(W, compute_uv=False)
    assert (first.value, second.value) == pytest.approx(tuple(values[:2]))
    assert first.share == pytest.approx(values[0] ** 2 / (values**2).sum())
    assert first.key @ W @ first.query[:-1] == pytest.approx(values[0])
    states = (model.embedding(tokens) + model.position.weight).detach().numpy()
    for ends, coordinates in (
        (first.key_ends, states @ first.key),
        (first.query_ends, states @ first.query[:-1]),
    ):
        for places, sign in zip(ends, (1, -1), strict=True):
            best = {}
            for at in np.ndindex(3, 8):
                token = int(tokens[at])
                best[token] = max(best.get(token, (-np.inf, None)), (sign * coordinates[at], at))
            assert [tuple(place) for place in places] == [at for _, at in sorted(best.values(), reverse=True)[:3]]
    along = model.embedding.weight.detach().numpy() @ first.key
    np.testing.assert_array_equal(first.vocabulary_ends[0], np.argsort(-along)[:3])
    np.testing.assert_array_equal(first.vocabulary_ends[1], np.argsort(along)[:3])
    with pytest.raises(attsvm.ProblemError, match=r"head 0\.2: layer 0 has 2 heads, counted from 0"):
        inspection.reading_directions(0, 2)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("bert", "W with the largest"),
        ("llama", "W (before the rotation) with the largest"),
        ("qwen3", "W (before the rotation, without the norms) with the largest"),
        ("deepseek v3", "W (of coordinates without rotation, without the norms) with the largest"),
    ],
)
def test_the_page_says_what_w_is_whose_directions_it_shows(case, said):
    model, batch = spread_out(CASES[case][0]()), {"input_ids": words()["input_ids"]}
    view = attsvm.inspect.inspect(model, batch, margins=False, view=(0, 1)).detail
    found = SimpleNamespace(tests=(), done=SimpleNamespace(layer_names=["0"]))
    parts = detail(found, view, [[*"abcdefg"]] * 3, 0, None)
    assert [said in part.text for part in parts if "singular directions" in getattr(part, "text", "")] == [True]
