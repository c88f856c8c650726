"""Queries and keys that were kept of a model are inspected as the model is."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402
from small_models import CASES, spread_out, words  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm.inspect import Cache  # noqa: E402
from attsvm.inspect.layers import attention_layers, reading  # noqa: E402


def kept(model, batch):
    """The calls of the attention of each layer."""
    calls = {}
    layers = attention_layers(model)
    with torch.no_grad(), reading(layers, lambda layer, inputs: calls.update({layer.name: inputs().call})):
        model(**batch)
    return list(calls.values())


def compare(cache, model, batch, lengths):
    inspection = attsvm.inspect.inspect(cache, gap=0.05)
    assert "attention not compared with the model's" in repr(inspection)
    assert np.isnan(inspection.rebuilt_error).all()
    own = attsvm.inspect.inspect(model, batch, gap=0.05)
    for i, length in enumerate(lengths):
        assert (inspection.selected[:, i, :length] == own.selected[:, i, :length]).all()
        assert (inspection.selected[:, i, length:] == -1).all()
    for name in ("largest_probability", "effective_tokens", "first_share", "duplicate_share", "query_robustness"):
        np.testing.assert_allclose(inspection.measure(name), own.measure(name), rtol=1e-5, err_msg=name)
    return inspection, own


class ActivationCache:
    """As TransformerLens returns it: neither a dict nor a Mapping, and it has the entries by their full names."""

    def __init__(self, entries):
        self.cache_dict = entries

    def keys(self):
        return self.cache_dict.keys()

    def __iter__(self):
        return iter(self.cache_dict)

    def __getitem__(self, name):
        return self.cache_dict[name]


@pytest.mark.parametrize("case", ["gpt2", "llama"])
def test_a_cache_of_transformer_lens_is_inspected_as_its_model(case):
    model, batch = spread_out(CASES[case][0]()), words()
    entries = {"hook_embed": torch.zeros(2)}
    for number, call in enumerate(kept(model, batch)):
        for name, part in (("q", call.query), ("k", call.key)):
            rotated = "rot_" if case == "llama" else ""
            # TransformerLens keeps those before the rotation, too
            entries[f"blocks.{number}.attn.hook_{name}"] = part.transpose(1, 2) * (0.3 if rotated else 1)
            if rotated:
                entries[f"blocks.{number}.attn.hook_{rotated}{name}"] = part.transpose(1, 2)
    lengths = batch["attention_mask"].sum(1)
    heads = {"hook_q": 4, "hook_k": 2 if case == "llama" else 4}  # keys of groups have fewer heads
    for name, count in heads.items():
        assert entries[f"blocks.0.attn.{name}"].shape == (3, 7, count, 6), "sequences, places, heads, coordinates"
    entries = ActivationCache(entries)
    # the second layer of GPT-2 divides its logits by 2
    cache = Cache(
        entries, lengths=lengths, tokens=batch["input_ids"], scale=None if case == "llama" else {1: 6**-0.5 / 2}
    )
    inspection, own = compare(cache, model, batch, lengths)
    if case == "llama":  # its problems are about queries and keys, too
        np.testing.assert_allclose(inspection.measure("margin_ratio"), own.measure("margin_ratio"), rtol=1e-4)
    known = inspection.available()
    assert (known.weights, known.reasons) == ("not known", False)
    assert np.isnan(inspection.measure("effective_rank")).all()
    with pytest.raises(attsvm.ProblemError, match="queries and keys of layer_0 are not known"):
        inspection.reading_directions(0, 0)


def test_pairs_by_layer_with_a_mask_that_is_no_triangle():
    """A bidirectional model, and NumPy arrays; layers are in the order of their numbers."""
    model, batch = spread_out(CASES["bert"][0]()), words()
    calls = kept(model, batch)
    entries = {number: (calls[number].query.numpy(), calls[number].key.numpy()) for number in (1, 0)}
    there = batch["attention_mask"].numpy().astype(bool)[:, None, None].repeat(7, axis=2)
    cache = Cache(entries, causal=False, mask=there, tokens=batch["input_ids"].numpy())
    inspection, _ = compare(cache, model, batch, there[:, 0, 0].sum(-1))
    assert inspection.layer_names == ["layer_0", "layer_1"]


WINDOW = (torch.arange(7)[:, None] - torch.arange(7) < 3).bool()
HOOKS = ("blocks.{}.attn.hook_q", "blocks.{}.attn.hook_k", "blocks.{}.attn.hook_pattern")
WITH_PATTERN = {  # what a cache does not hold
    "bert": {"causal": False},
    "gpt2": {"scale": {1: 6**-0.5 / 2}},
    "mistral, with a sliding window": {"mask": WINDOW},
    "gemma 3, with a sliding window": {"mask": {0: WINDOW, 1: WINDOW}},
    "gemma 2, with a soft cap": {"softcap": 2.0, "scale": 1.0},
    "gpt-oss, with sinks": {"sink": lambda model: {k: layer.self_attn.sinks for k, layer in enumerate(model.layers)}},
    "bloom, with ALiBi": {"mask": lambda model: {k: call.mask for k, call in enumerate(kept(model, words()))}},
}


@pytest.mark.parametrize("case", WITH_PATTERN)
@pytest.mark.parametrize("by_name", [True, False])
def test_a_cache_with_the_attention_of_its_model_is_compared_with_it(case, by_name):
    model, batch = spread_out(CASES[case][0]()), words()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        patterns = model(**batch, output_attentions=True).attentions
    entries = {}
    for number, (call, pattern) in enumerate(zip(kept(model, batch), patterns, strict=True)):
        parts = (call.query.transpose(1, 2), call.key.transpose(1, 2), pattern) if by_name else (*call[:2], pattern)
        entries |= (
            {name.format(number): part for name, part in zip(HOOKS, parts, strict=True)} if by_name else {number: parts}
        )
    lengths = batch["attention_mask"].sum(1)
    given = {name: value(model) if callable(value) else value for name, value in WITH_PATTERN[case].items()}
    found = attsvm.inspect.inspect(Cache(entries, lengths=lengths, **given), margins=False)
    own = attsvm.inspect.inspect(model, batch, margins=False)
    assert (found.rebuilt_error < 1e-5).all()
    for name in ("largest_probability", "effective_tokens", "first_share"):
        np.testing.assert_allclose(found.measure(name), own.measure(name), rtol=1e-4, err_msg=name)
    with pytest.raises(
        attsvm.ProblemError, match=r"layer_\d: its attention differs .*; give what it depends on: causal"
    ):
        attsvm.inspect.inspect(Cache(entries, lengths=lengths), margins=False)


def test_what_is_no_cache_is_refused():
    pair = (np.zeros((2, 4, 5, 3)), np.zeros((2, 2, 5, 3)))
    for entries, options, words_ in (
        ({}, {}, "entries: expected blocks.0.attn.hook_q .*, got nothing"),
        ([pair], {}, "entries: expected pairs by the number of the layer, got list"),
        ({"blocks.0.hook_z": 1}, {}, "got blocks.0.hook_z"),
        ({"blocks.0.attn.hook_q": pair[0]}, {}, r"queries and keys of the same layers, got \[0\] and \[\]"),
        (dict.fromkeys(("blocks.0.attn.hook_q", "blocks.0.attn.hook_k"), np.ones((5, 3))), {}, r"got \(5, 3\) and"),
        ({0: pair[0]}, {}, r"entries\[0\]: expected a pair of queries and keys, got ndarray"),
        ({0: (pair[0], np.zeros((2, 3, 5, 3)))}, {}, r"where G divides H, got \(2, 4, 5, 3\) and \(2, 3, 5, 3\)"),
        ({0: pair, 1: tuple(part[:1] for part in pair)}, {}, "the same sequences in every layer"),
        ({0: pair}, {"lengths": [5, 6]}, r"lengths: expected 2 numbers from 1 to 5, got \[5, 6\]"),
        ({0: (*pair, np.ones((2, 4, 5, 4)))}, {}, r"expected attention of shape \(2, 4, 5, 5\), got \(2, 4, 5, 4\)"),
        ({0: pair}, {"scale": {1: 2.0}}, r"scale: expected numbers of layers, \[0\], got \[1\]"),
        ({0: pair}, {"softcap": 0}, "softcap: expected a positive number, got 0"),
        ({0: pair}, {"sink": [0.0, 1.0]}, "sink: expected 4 finite numbers, one for each head, got"),
        ({0: pair}, {"mask": np.full((5, 5), np.nan)}, "mask: expected booleans or numbers, got NaN"),
        ({0: pair}, {"mask": np.ones((5, 4), bool)}, r"mask: expected shape \(5, 5\) or \(2, heads, 5, 5\), got"),
        ({0: pair}, {"tokens": [[1, 2]]}, r"tokens: expected shape \(2, 5\), got \(1, 2\)"),
        ({np.int64(0): pair}, {"scale": "a"}, "scale: expected a positive number, got 'a'"),
        ({0: ("q", "k")}, {}, r"entries\[0\]: expected an array or a tensor, got str"),
    ):
        with pytest.raises(attsvm.ProblemError, match=words_):
            Cache(entries, **options)
