"""The causal test, on a circuit written by hand; streams with parts of other sequences, against the model's modules."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402
from known_circuit import induction_circuit, repeated  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm.inspect.causal import CausalTest  # noqa: E402
from attsvm.inspect.layers import attention_layers  # noqa: E402
from attsvm.inspect.residual import residual_stream  # noqa: E402
from oracles.attention_only import AttentionOnly  # noqa: E402


def circuit_explanation():
    inspection = attsvm.inspect.inspect(induction_circuit(), {"input_ids": repeated(6, seed=1)}, margins=False)
    return inspection.explain(1, 1, pattern="induction")


def test_the_reason_of_the_circuit_passes_and_others_fail():
    explanation, held_out = circuit_explanation(), {"input_ids": repeated(30, seed=2)}
    true = explanation.test(held_out)
    assert (true.query, true.key) == (["embedding"], ["head 0.1"])
    assert true.verdict == "passed"
    assert true.sufficiency.low > 0.95
    assert true.necessity.low > 0.9
    assert true.control_sufficiency.shape == (20, 10)
    assert max(true.control_sufficiency.max(), true.control_necessity.max()) < 0.2
    assert "passed" in str(true)
    again = explanation.test(held_out)
    np.testing.assert_array_equal(again.control_necessity, true.control_necessity)
    for query, key in (("embedding", "position"), ("head 0.0", "previous token heads"), ("position", "embedding")):
        assert explanation.test(held_out, query, key, controls=3, draws=4).verdict == "failed"
    half = explanation.test(held_out, "embedding", "head 0.0", controls=1, draws=4)
    assert half.sufficiency.high < 0.2  # the queries are right, the keys are not


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 32}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=50, initializer_range=0.3, **sizes))
    return model.double().eval()


def test_norms_are_computed_again_after_the_mix(bert):
    tokens = torch.randint(50, (4, 6))
    places = torch.stack([torch.randint(4, (4, 6)), torch.randint(6, (4, 6))], dim=-1)
    other = places[..., 0], places[..., 1]
    layers = attention_layers(bert)
    seen = {}
    first, embeddings = bert.encoder.layer[0], bert.embeddings
    for name, module in (("dense", first.output.dense), ("attended", first.attention.output)):
        module.register_forward_hook(lambda _, __, output, name=name: seen.__setitem__(name, output))
    streams = [residual_stream(bert, {"input_ids": tokens}, layers, k) for k in range(2)]
    with torch.no_grad():
        states = bert(tokens, output_hidden_states=True).hidden_states
        words, rest = embeddings.word_embeddings(tokens), embeddings.position_embeddings(torch.arange(6))
        rest = rest + embeddings.token_type_embeddings.weight[0]
        rest = rest.expand(4, -1, -1)
        mixed_words = embeddings.LayerNorm(words[other] + rest)
        mixed_places = embeddings.LayerNorm(words + rest[other])
        mixed_mlp = first.output.LayerNorm(seen["attended"] + seen["dense"][other])
    for stream, entering in zip(streams, states, strict=False):
        torch.testing.assert_close(stream.mixed(lambda _: True)(places), entering)
        torch.testing.assert_close(stream.mixed(lambda _: False)(places), entering[other])
    torch.testing.assert_close(streams[0].mixed(lambda origin: origin != "embedding")(places), mixed_words)
    torch.testing.assert_close(streams[0].mixed(lambda origin: origin != "position")(places), mixed_places)
    torch.testing.assert_close(streams[1].mixed(lambda origin: origin != "MLP 0")(places), mixed_mlp)


def test_a_model_of_transformers_is_tested_with_padding(bert):
    """Controls of a random model: the test runs end to end, with padding, and leaves the model as it was."""
    tokens = torch.randint(50, (6, 9), generator=torch.Generator().manual_seed(4))
    mask = torch.ones_like(tokens)
    mask[2, 6:] = 0
    batch = {"input_ids": tokens, "attention_mask": mask}
    before = bert.config._attn_implementation, bert.config.use_cache
    test = attsvm.inspect.inspect(bert, batch, margins=False).explain(1, [0, 1]).test(batch, controls=2, draws=3)
    assert 0 <= test.resampled.min() < test.score <= 1
    assert np.isfinite([*test.sufficiency, *test.necessity, *test.control_sufficiency.flat]).all()
    assert (bert.config._attn_implementation, bert.config.use_cache) == before


def test_a_head_that_attends_by_position_passes_and_its_words_do_not_matter():
    """Head 0.1 of the circuit attends to the place before; its attention is that of shuffled places by hand."""
    batch = {"input_ids": repeated(40, seed=1)}
    explanation = attsvm.inspect.inspect(induction_circuit(), batch, margins=False).explain(0, 1, "previous token")
    test = explanation.test({"input_ids": repeated(40, seed=2)}, controls=3, draws=4)
    assert (test.query, test.key, test.verdict) == (["position"], ["position"], "passed")
    assert test.score > 0.99
    assert test.alone.min() > 0.99
    # a random place is the right one, or masked with all right ones, about once in a sequence
    assert max(test.resampled.max(), test.without_query.max(), test.without_key.max()) < 0.25
    assert explanation.test(batch, "embedding", "position", controls=3, draws=4).verdict == "failed"


def test_a_constant_query_is_tested_by_the_mean_query():
    """Queries that are nearly the same, and keys that differ by their words."""
    torch.manual_seed(0)
    model = AttentionOnly(norm=False).double()
    size = model.embedding.weight.shape[1]
    with torch.no_grad():
        model.position.weight[:] = 3 * torch.randn(size)
        model.layers[0].qkv.weight.mul_(3)
    tokens = torch.randint(64, (12, 16))
    explanation = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False).explain(0, 1)
    assert explanation.terms().constant_query > 0.8
    best = explanation.pairs(1)[0]
    assert (best.query, best.key) == ("constant", "embedding")
    test = explanation.test({"input_ids": torch.randint(64, (12, 16))}, controls=2)
    assert test.sufficiency.low > 0.5
    assert np.isnan(test.without_query).all()
    effect = test.score - test.resampled.mean()
    assert test.necessity.value == pytest.approx((test.score - test.without_key.mean()) / effect)
    assert test.verdict == "passed"


def test_intervals_are_those_of_the_jackknife_and_verdicts_follow_from_them():
    """Sufficiency and necessity are ratios of means; the jackknife needs no derivative of the ratio."""
    generator = np.random.default_rng(0)
    draws, names = 200, (["a"], ["b"])
    resampled, alone, query, key = (mean + 0.02 * generator.standard_normal(draws) for mean in (0.2, 0.7, 0.3, 0.4))
    alone += resampled - 0.2  # correlated with it
    weak = np.full((20, draws), 0.1)
    test = CausalTest(*names, 0.9, resampled, alone, query, key, weak, weak)

    def ratios(left):
        r, a, w = (one[left].mean() for one in (resampled, alone, key))  # the side with the smaller effect
        return np.array([(a - r) / (0.9 - r), (0.9 - w) / (0.9 - r)])

    whole, parts = ratios(np.arange(draws)), np.stack([ratios(np.arange(draws) != k) for k in range(draws)])
    half = stats.t.ppf(0.995, draws - 1) * np.sqrt((draws - 1) * parts.var(axis=0))
    for one, value, width in zip((test.sufficiency, test.necessity), whole, half, strict=True):
        np.testing.assert_allclose([one.value, one.high - value, value - one.low], [value, width, width], rtol=0.02)
    assert test.verdict == "passed"
    near = replace(test, alone=alone - alone.mean() + 0.5 * (0.9 + resampled.mean()))
    strong = np.full((20, draws), 0.95)
    some = np.where(np.arange(20)[:, None] < 9, strong, weak)
    most = np.where(np.arange(20)[:, None] < 10, strong, weak)
    verdicts = [
        one.verdict
        for one in (
            near,  # its sufficiency is 0.5
            replace(test, without_key=key + 0.4),
            replace(test, control_sufficiency=some),
            replace(test, control_sufficiency=most),
        )
    ]
    assert verdicts == ["undecided", "failed", "undecided", "failed"]


def test_twelve_seeds_give_no_opposite_verdicts_where_single_draws_do():
    """A head whose positions are nearly sufficient."""
    torch.manual_seed(3)
    model = AttentionOnly(norm=False).double()
    with torch.no_grad():
        model.layers[0].qkv.weight.mul_(2)
        model.position.weight.mul_(2.1)
    batch = {"input_ids": torch.randint(64, (4, 16))}
    explanation = attsvm.inspect.inspect(model, batch, margins=False).explain(0, 1)
    tests = [explanation.test(batch, "position", "position", controls=1, seed=seed) for seed in range(12)]
    single = np.array([(one.alone - one.resampled) / (one.score - one.resampled) for one in tests])
    assert single[:, 0].min() < 0.4 < 0.5 < single[:, 0].max()
    assert {one.verdict for one in tests} == {"failed", "undecided"}


def test_what_cannot_be_tested_is_refused_by_name():
    explanation, batch = circuit_explanation(), {"input_ids": repeated(6, seed=1)}
    for arguments, options, words in (
        ((batch, "mlp"), {}, "query: expected one of constant, embedding, .*, got 'mlp'"),
        ((batch["input_ids"],), {}, "pattern: expected a batch with input_ids, so that tokens are known"),
        ((batch,), {"controls": 0}, "controls: expected an integer >= 1, got 0"),
        ((batch,), {"draws": 1}, "draws: expected an integer >= 2, got 1"),
        ((batch, "constant", "constant"), {}, "expected at least one origin that can be resampled"),
    ):
        with pytest.raises(attsvm.ProblemError, match=words):
            explanation.test(*arguments, **options)
    model = induction_circuit()
    with torch.no_grad():
        model.layers[0].qkv.weight[24:48] = 0  # no queries of head 0.1
    even = attsvm.inspect.inspect(model, batch, margins=False).explain(0, 0)
    with pytest.raises(attsvm.ProblemError, match="attention that is nearly even, or by rotary positions"):
        even.test(batch)
