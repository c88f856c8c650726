"""Shares of attention that follow a pattern, against loops; heads with a known pattern are named by it."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm._utils.linear_algebra import softmax  # noqa: E402
from attsvm.inspect.measures import attention_measures  # noqa: E402
from attsvm.svm import HeadProblem  # noqa: E402


def by_hand(probabilities, allowed, own, tokens):
    """The three shares, query by query."""
    found = {"previous_share": [], "duplicate_share": [], "induction_share": []}
    for i, q in np.ndindex(own.shape):
        place = own[i, q]
        if place < 0 or allowed[i, q].sum() < 2:
            continue
        earlier = [t for t in range(place) if tokens[i, t] == tokens[i, place]]
        for name, places in (
            ("previous_share", [place - 1] if place > 0 else []),
            ("duplicate_share", earlier),
            ("induction_share", [t + 1 for t in earlier if t + 1 < place]),
        ):
            places = [t for t in places if allowed[i, q, t]]
            if places:
                found[name].append(sum(probabilities[i, q, t] for t in places))
    return {name: np.mean(shares) if shares else None for name, shares in found.items()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("causal", [True, False])
def test_shares_are_those_of_a_loop(seed, causal):
    generator = np.random.default_rng(seed)
    n, T, d = 3, 9, 4
    keys, tokens = generator.standard_normal((n, T, d)), generator.integers(0, 4, (n, T))
    own = np.sort(generator.permuted(np.tile(np.arange(T), (n, 1)), axis=1)[:, :6], axis=1)
    own[1, -2:] = -1  # a sequence with fewer queries
    queries = np.take_along_axis(keys, np.maximum(own, 0)[..., None], axis=1)
    problem = HeadProblem(keys, queries, generator.standard_normal((d, d)))
    allowed = np.ones((n, 6, T), bool) & (own >= 0)[..., None]
    allowed[2, :, :2] = False  # padding on the left
    if causal:
        allowed &= np.arange(T) <= own[..., None]
    probabilities = softmax(problem.logits(), allowed)
    found = attention_measures(probabilities, allowed, allowed.any(axis=1), None, own, tokens)
    for name, value in by_hand(probabilities, allowed, own, tokens).items():
        assert found[name] == (None if value is None else pytest.approx(value, abs=1e-12)), name
    without = attention_measures(probabilities, allowed, allowed.any(axis=1), None, own)
    assert without["previous_share"] == found["previous_share"]
    assert without["duplicate_share"] is without["induction_share"] is None


def previous_token_model():
    """GPT-2 whose positions are one-hot and whose head 0.1 matches each position with the one before it."""
    T = 8
    config = transformers.GPT2Config(
        vocab_size=10, bos_token_id=0, eos_token_id=0, n_positions=T, n_embd=2 * T, n_head=2, n_layer=1
    )
    model = transformers.GPT2Model(config).eval()
    with torch.no_grad():
        model.wte.weight.zero_()
        model.wpe.weight.copy_(torch.eye(T, 2 * T))
        attention = model.h[0].attn
        attention.c_attn.weight.zero_()
        attention.c_attn.bias.zero_()
        attention.c_attn.weight[:T, T : 2 * T] = 10 * torch.eye(T).roll(-1, 1)  # query of head 1: its place minus one
        attention.c_attn.weight[:T, 3 * T : 4 * T] = torch.eye(T)
    return model


def test_heads_are_named_by_the_patterns_they_follow():
    batch = {"input_ids": torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8], [3, 1, 4, 5, 9, 2, 6, 7]])}
    inspection = attsvm.inspect.inspect(previous_token_model(), batch, margins=False)
    assert inspection.numbers["previous_share"][1] > 0.95
    sets = inspection.sets()
    assert sets["previous token"] == [(0, 1)]
    assert sets["none of these"] == [(0, 0)]  # its attention is uniform
    assert inspection.sets(share=0.1)["first token"] == [(0, 0), (0, 1)]
    assert "induction" not in sets
    with pytest.raises(attsvm.ProblemError, match="share: expected a number above 0 and at most 1, got 0"):
        inspection.sets(share=0)
