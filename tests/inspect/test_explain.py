"""The split of logits by origin, against the model's own attention, a split by hand and a circuit written by hand."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402
from known_circuit import induction_circuit, repeated  # noqa: E402
from small_models import CASES, gemma3, like_bert, llama, qwen3, t5, whisper  # noqa: E402

import attsvm.torch  # noqa: E402
from oracles.attention_only import AttentionOnly, repeated_sequences, rotated  # noqa: E402

SMALL = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 32}


def bert():
    return transformers.BertModel(transformers.BertConfig(vocab_size=50, **SMALL))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=50, n_embd=24, n_head=4, n_layer=3))


def gpt_neox(parallel=True):
    rotary = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.67}
    config = transformers.GPTNeoXConfig(vocab_size=50, rope_parameters=rotary, use_parallel_residual=parallel, **SMALL)
    return transformers.GPTNeoXModel(config)


def gemma2():
    return like_bert("Gemma2", num_key_value_heads=2, head_dim=6, attn_logit_softcapping=None)


def spread_out(model):
    """Weights large enough for attention to be far from even, and biases that are not zero, in float64."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            norm = "norm" in name.lower() or "ln_" in name
            parameter.copy_(1 + 0.3 * noise if norm and "bias" not in name else 0.4 * noise)
    return model.double().eval()


def padded_batch():
    tokens = torch.randint(1, 50, (3, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    mask[1, 5:] = 0
    return {"input_ids": tokens, "attention_mask": mask}


@pytest.mark.parametrize(
    ("make", "layer", "exact", "close"),  # some compute norms, and most the softmax, in float32
    [
        (bert, 2, 1e-12, 1e-10), (gpt2, 2, 1e-12, 1e-10), (gpt_neox, 2, 1e-12, 1e-6),
        (lambda: gpt_neox(parallel=False), 2, 1e-12, 1e-6), (llama, 1, 1e-5, 1e-4), (qwen3, 1, 1e-5, 1e-4),
        (gemma2, 1, 1e-5, 1e-4), (gemma3, 1, 1e-5, 1e-4), (lambda: t5("T5Encoder"), 1, 1e-12, 1e-4),
    ],
    ids=["BERT", "GPT-2", "GPT-NeoX", "GPT-NeoX in turn", "Llama", "Qwen 3", "Gemma 2", "Gemma 3", "T5"],
)  # fmt: skip
def test_the_parts_add_up_to_the_models_own_decision_margins(make, layer, exact, close):
    model, batch = spread_out(make()), padded_batch()
    explanation = attsvm.inspect.inspect(model, batch, margins=False).explain(layer, [0, 3])
    assert explanation.error < exact
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(**batch, output_attentions=True).attentions[layer].numpy()
    for split in explanation.splits:
        margins = split.margins().sum(axis=(0, 1))
        for margin, (i, q) in zip(margins, np.argwhere(split.selected >= 0), strict=True):
            theirs = own[i, split.head, q]
            assert theirs.argmax() == split.selected[i, q]
            others = np.delete(theirs, split.selected[i, q])
            if others.max() > 1e-6:  # of float32
                assert margin == pytest.approx(np.log(theirs.max() / others.max()), abs=close)
    assert explanation.shares().sum() == pytest.approx(1)
    assert sum(explanation.terms()) == pytest.approx(1)
    origins = {*explanation.splits[0].origins}
    last = layer - 1
    assert {"embedding", "head 0.0", f"head {last}.3", "MLP 0", f"MLP {last}", "biases"} <= origins
    assert not any(name.startswith(f"head {layer}") for name in origins)


def test_each_part_of_a_rotary_head_is_what_its_origin_wrote():
    """A split of Qwen 3 by hand: norms of the stream, of queries and of keys at their actual scale, then rotations."""
    model, batch = spread_out(qwen3()), padded_batch()
    split = attsvm.inspect.inspect(model, batch, margins=False).explain(1, 2).splits[0]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        run = model(**batch, output_attentions=True, output_hidden_states=True)
        (first, second), (before, after) = model.layers, run.hidden_states[:2]
        values = first.self_attn.v_proj(first.input_layernorm(before)).unflatten(-1, (2, 6)).transpose(1, 2)
        heads = [
            run.attentions[0][:, h] @ values[:, h // 2] @ first.self_attn.o_proj.weight[:, 6 * h : 6 * h + 6].T
            for h in range(4)
        ]
        parts = {"embedding": before, "head 0.1": heads[1], "MLP 0": after - before - sum(heads)}
        norm, attention, there = second.input_layernorm, second.self_attn, batch["attention_mask"] > 0
        scale = norm.weight * (after.square().mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()
        mean = (after * scale)[there].mean(0)
        centred = {name: part * scale - (part * scale)[there].mean(0) for name, part in parts.items()}
        centred["constant"] = mean.expand(3, 7, -1)
        frequencies = 10_000.0 ** (-torch.arange(3).double() / 3)
        angles = torch.arange(7).double()[:, None] * frequencies.repeat(2)
        made = []
        for linear, norm in (
            (attention.q_proj.weight[12:18], attention.q_norm),
            (attention.k_proj.weight[6:12], attention.k_norm),
        ):
            whole = after * scale @ linear.T
            factor = norm.weight * (whole.square().mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()
            made.append({name: rotated(part @ linear.T * factor, angles.cos(), angles.sin())
                         for name, part in centred.items()})  # fmt: skip
        for query, key in (("embedding", "head 0.1"), ("MLP 0", "embedding"), ("constant", "MLP 0"), ("head 0.1",
                           "constant")):  # fmt: skip
            theirs = (made[0][query] @ made[1][key].mT / 6**0.5)[there].numpy()
            ours = split.scale * (split.queries[split.origins.index(query)] @ split.keys[split.origins.index(key)].mT)
            np.testing.assert_allclose(ours[there.numpy()], theirs, atol=1e-6 * np.abs(theirs).max())


def test_biases_of_positions_are_an_origin_of_their_own():
    """The decoder of T5, by its table of biases; its biases are no part of the queries and keys."""
    model, batch = spread_out(t5()), padded_batch()
    batch["decoder_input_ids"] = batch["input_ids"][:, :5]
    explanation = attsvm.inspect.inspect(model, batch, margins=False).explain(2, 1)
    split, module = explanation.splits[0], model.decoder.block[0].layer[0].SelfAttention
    biases = module.compute_bias(5, 5, device="cpu")[0, 1].detach().numpy()
    theirs = sum(
        biases[q, split.selected[i, q]] - biases[q, split.runner_up[i, q]] for i, q in np.argwhere(split.selected >= 0)
    )
    assert explanation.terms().biases == pytest.approx(theirs / split.margins().sum())
    assert list(explanation.groups)[-1] == "position biases"
    assert any(str(pair).startswith("position biases: ") for pair in explanation.pairs(None))
    with pytest.raises(attsvm.ProblemError, match=r"key: expected an origin of queries or keys, .* got 'position bi"):
        explanation.test(batch, "embedding", "position biases")


def test_biases_of_positions_are_passed_over_where_a_test_chooses_its_pair():
    model, batch = spread_out(t5()), padded_batch()
    batch["decoder_input_ids"] = batch["input_ids"][:, :5]
    with torch.no_grad():
        model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.mul_(30)
    explanation = attsvm.inspect.inspect(model, batch, margins=False).explain(1, 1)
    first, second = explanation.pairs(2)
    assert first.query == "position biases"
    test = explanation.test(batch, controls=1, draws=2)
    assert (test.query, test.key) == ([second.query], [second.key])


@pytest.mark.parametrize("make", [t5, whisper], ids=["T5", "Whisper"])
def test_cross_attention_reads_two_streams(make):
    """The queries are made from the decoder and the keys from the encoder, against the model's own attention."""
    model, tokens = spread_out(make()), padded_batch()["input_ids"]
    batch = {"input_ids": tokens, "decoder_input_ids": tokens[:, :5]}
    if make is whisper:
        sounds = torch.randn(3, 8, 18, generator=torch.Generator().manual_seed(2)).double()
        batch = {"input_features": sounds, "decoder_input_ids": tokens[:, :5]}
    explanation = attsvm.inspect.inspect(model, batch, margins=False).explain(5, 1)
    assert explanation.error < 1e-12
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(**batch, output_attentions=True).cross_attentions[1][:, 1].numpy()
    split, ordered = explanation.splits[0], np.sort(own, axis=-1)
    np.testing.assert_allclose(
        split.margins().sum(axis=(0, 1)), np.log(ordered[..., -1] / ordered[..., -2]).ravel(), atol=1e-4
    )
    of_encoder, of_decoder = (split.origins.index(name) for name in ("head 1.0", "head 3.0"))
    assert not split.queries[of_encoder].any()
    assert not split.keys[of_decoder].any()
    assert explanation.offsets() == []
    with pytest.raises(attsvm.ProblemError, match="layer: expected one of self-attention, got 5"):
        explanation.test(batch)


def test_each_part_is_what_its_origin_wrote():
    """A split of GPT-2 by hand, from its weights, its hidden states and its attention."""
    model, batch = spread_out(gpt2()), padded_batch()
    split = attsvm.inspect.inspect(model, batch, margins=False).explain(1, 2).splits[0]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        run = model.transformer(**batch, output_attentions=True, output_hidden_states=True)
        first, second = model.transformer.h[:2]
        before, after = run.hidden_states[:2]
        values = (first.ln_1(before) @ first.attn.c_attn.weight + first.attn.c_attn.bias)[..., 48:]
        heads = [
            run.attentions[0][:, h] @ values[..., 6 * h : 6 * h + 6] @ first.attn.c_proj.weight[6 * h : 6 * h + 6]
            for h in range(4)
        ]
        parts = {"embedding": model.transformer.wte(batch["input_ids"]), "head 0.1": heads[1]}
        parts["position"] = before - parts["embedding"]
        parts["MLP 0"] = after - before - sum(heads) - first.attn.c_proj.bias
        deviation = (after.var(-1, unbiased=False, keepdim=True) + second.ln_1.eps).sqrt()
        scaled = {
            name: (part - part.mean(-1, keepdim=True)) / deviation * second.ln_1.weight for name, part in parts.items()
        }
        there = batch["attention_mask"] > 0
        whole = (after - after.mean(-1, keepdim=True)) / deviation * second.ln_1.weight + second.ln_1.bias
        mean = whole[there].mean(0)
        centred = {name: part - part[there].mean(0) for name, part in scaled.items()} | {
            "constant": mean.expand(3, 7, -1)
        }
        weight, bias = second.attn.c_attn.weight, second.attn.c_attn.bias
        constant = {"constant": 1.0}
        for query, key in (
            ("embedding", "head 0.1"), ("head 0.1", "MLP 0"), ("MLP 0", "position"), ("constant", "position"),
            ("MLP 0", "constant"),
        ):  # fmt: skip
            queries = centred[query] @ weight[:, 12:18] + constant.get(query, 0) * bias[12:18]
            keys = centred[key] @ weight[:, 36:42] + constant.get(key, 0) * bias[36:42]
            theirs = (queries @ keys.mT / 6**0.5)[there].numpy()
            ours = split.scale * (split.queries[split.origins.index(query)] @ split.keys[split.origins.index(key)].mT)
            np.testing.assert_allclose(ours[there.numpy()], theirs, atol=1e-10)


def test_constants_of_several_origins_that_cancel_are_no_reason():
    """The margin is that of the mean query, computed from the attention of the running model."""
    model, batch = spread_out(bert()), padded_batch()
    explanation = attsvm.inspect.inspect(model, batch, margins=False).explain(1, 2)
    split, module = explanation.splits[0], model.encoder.layer[1].attention.self
    with torch.no_grad():
        states = model(**batch, output_hidden_states=True).hidden_states[1]
        there = batch["attention_mask"] > 0
        mean = module.query(states[there].mean(0))[12:18]
        preferred = (module.key(states)[..., 12:18] @ mean / 6**0.5).numpy()
    constant = 0.0
    for i, q in np.argwhere(split.selected >= 0):
        constant += preferred[i, split.selected[i, q]] - preferred[i, split.runner_up[i, q]]
    terms, total = explanation.terms(), split.margins().sum()
    assert terms.constant_query == pytest.approx(constant / total)
    assert terms.interaction == pytest.approx(1 - constant / total)
    assert max(abs(terms.constant_key), abs(terms.constants)) < 1e-12


def test_attention_by_rotary_distance_alone_is_constant_on_both_sides():
    torch.manual_seed(0)
    model = AttentionOnly(rotary=True).double()
    with torch.no_grad():
        model.embedding.weight[:] = model.embedding.weight[0]
    inspection = attsvm.inspect.inspect(model, {"input_ids": torch.randint(64, (4, 16))}, margins=False)
    assert inspection.explain(0, 1).terms().constants == pytest.approx(1)


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("norm", [True, False])
def test_the_two_layer_model_is_split_exactly(rotary, norm):
    torch.manual_seed(0)
    model = AttentionOnly(rotary=rotary, norm=norm).double()
    tokens = repeated_sequences(4, torch.Generator().manual_seed(0))
    inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
    assert inspection.rebuilt_error.max() < 1e-12
    assert inspection.explain(1, range(4)).error < 1e-13


def test_the_circuit_is_named():
    inspection = attsvm.inspect.inspect(induction_circuit(), {"input_ids": repeated(6, seed=1)}, margins=False)
    assert inspection.sets(0.8) == {
        "previous token": [(0, 1)],
        "induction": [(1, 1)],
        "none of these": [(0, 0), (1, 0)],
    }
    explanation = inspection.explain(1, 1, pattern="induction")
    assert explanation.groups["previous token heads"] == ["head 0.1"]
    best = explanation.pairs(1)[0]
    assert (best.query, best.key) == ("embedding", "previous token heads")
    assert best.share == pytest.approx(1, abs=2e-2)  # the mean embedding prefers the frequent tokens a little
    previous = inspection.explain(0, 1, pattern="previous token")
    position = previous.pairs(1)[0]
    assert (position.query, position.key) == ("position", "position")
    [offset] = previous.offsets(1)
    assert (offset.offset, offset.decisions) == (-1, 1)
    assert offset.positions == pytest.approx(1, abs=2e-2)
    for one in explanation.offsets():  # the induction head selects by content, at whatever distance
        assert one.content == pytest.approx(1, abs=5e-2)
        assert (one.pair.query, one.pair.key) == ("embedding", "previous token heads")


@pytest.mark.parametrize("name", ["Deberta", "Mpt", "Falcon", "Mixtral"])
def test_what_earlier_layers_write_is_never_called_an_embedding(name):
    """Of modules that compute their attention themselves, project outside of it, or have experts."""
    make, batch = CASES[{"Mpt": "mpt, with ALiBi", "Falcon": "falcon, grouped", "Mixtral": "mixtral"}.get(name, "bert")]
    model = spread_out(like_bert(name) if name == "Deberta" else make()).float()
    explanation = attsvm.inspect.inspect(model, batch, margins=False).explain(1, 0)
    assert explanation.error < 1e-4
    origins = {*explanation.splits[0].origins}
    assert {"embedding", *(f"head 0.{head}" for head in range(4)), "MLP 0"} <= origins


def test_what_is_printed_fits_a_screen(capsys):
    inspection = attsvm.inspect.inspect(spread_out(bert()), padded_batch(), view=(2, 1))
    view = inspection.detail
    for one in (view.explanation, view.explanation.splits, view, view.reasons, inspection, inspection.heads[0]):
        print(one)
        said = capsys.readouterr().out
        assert len(said) < 800
        assert said.count("\n") < 10
    assert "head 2.1: mean margin" in str(view.explanation)


def test_what_cannot_be_explained_is_refused_by_name(tmp_path):
    batch = padded_batch()
    inspection = attsvm.inspect.inspect(spread_out(gpt2()), batch, heads=[(0, 0)], margins=False)
    for arguments, words in (
        ((3, 0), "layer: expected an integer from 0 to 2, got 3"),
        ((0, 4), "head 0.4: layer 0 has 4 heads, counted from 0"),
        ((0, 0.5), "heads: expected an integer >= 0, got 0.5"),
        ((0, []), "heads: expected at least one head, got none"),
        ((0, 0, "rhyme"), "pattern: expected one of previous token, duplicate token, induction, got 'rhyme'"),
    ):
        with pytest.raises(attsvm.ProblemError, match=words):
            inspection.explain(*arguments)
    assert inspection.explain(0, np.int64(1)).heads == (1,)
    inspection.save(tmp_path / "saved.npz")
    with pytest.raises(attsvm.ProblemError, match="has no model and batch"):
        attsvm.inspect.Inspection.load(tmp_path / "saved.npz").explain(0, 0)
    mpt, words = CASES["mpt, with clipped queries and keys"]
    with pytest.raises(attsvm.ProblemError, match=r"that make the queries and keys of blocks.0.attn are not known"):
        attsvm.inspect.inspect(spread_out(mpt()).float(), words, margins=False).explain(0, 0)

    half = spread_out(gpt2()).bfloat16()
    with pytest.raises(attsvm.ProblemError, match=r"model: its weights are torch.bfloat16, .* by model.float\(\)"):
        attsvm.inspect.inspect(half, batch, margins=False).explain(2, 0)

    class Mixed(AttentionOnly):
        def forward(self, input_ids):
            states = self.embedding(input_ids)
            states = states + self.layers[0](states)
            return self.layers[1](states.roll(1, dims=1))

    mixed = attsvm.inspect.inspect(Mixed().double(), {"input_ids": batch["input_ids"]}, margins=False)
    assert mixed.explain(0, 0).error < 1e-12
    with pytest.raises(attsvm.ProblemError, match="residual stream is not known behind its function roll"):
        mixed.explain(1, 0)


def test_features_take_what_the_other_origins_add_along_their_vectors():
    """Against least squares by hand, on the states of GPT-2 and on what its MLP adds."""
    model, batch = spread_out(gpt2()), padded_batch()
    rng = np.random.default_rng(0)
    features = {"feature 12": rng.normal(size=24), "sentiment": rng.normal(size=(2, 24))}
    inspection = attsvm.inspect.inspect(model, batch, margins=False)
    given = {"feature 12": torch.nn.Parameter(torch.tensor(features["feature 12"])), "sentiment": features["sentiment"]}
    explanation = inspection.explain(1, 2, origins=given)
    assert explanation.error < 1e-12
    assert explanation.margin == pytest.approx(inspection.explain(1, 2).margin)
    assert explanation.features == ("feature 12", "sentiment")
    assert explanation.shares().sum() == pytest.approx(1)
    assert {"feature 12", "sentiment", "MLP 0"} <= set(explanation.groups)

    added = {}
    hook = model.transformer.h[0].mlp.register_forward_hook(lambda _, __, output: added.update(mlp=output.numpy()))
    with torch.no_grad():
        states = model.transformer(**batch, output_hidden_states=True).hidden_states[1].numpy()
    hook.remove()
    second, there = model.transformer.h[1], batch["attention_mask"].numpy() > 0
    gain, weight = second.ln_1.weight.detach().numpy(), second.attn.c_attn.weight.detach().numpy()
    deviation = np.sqrt(states.var(-1, keepdims=True) + second.ln_1.eps)
    vectors = np.vstack([features["feature 12"], features["sentiment"]])

    def along(part):
        flat = part.reshape(-1, 24)
        return np.linalg.lstsq(vectors.T, flat.T, rcond=None)[0].T.reshape(*part.shape[:2], 3)

    def read(part):
        scaled = (part - part.mean(-1, keepdims=True)) / deviation * gain
        return (scaled - scaled[there].mean(0)) @ weight[:, 12:18]

    queries = dict(zip(explanation.splits[0].origins, explanation.splits[0].queries, strict=True))
    for name, part in (
        ("feature 12", along(states)[..., :1] @ vectors[:1]),
        ("sentiment", along(states)[..., 1:] @ vectors[1:]),
        ("MLP 0", added["mlp"] - along(added["mlp"]) @ vectors),
    ):
        np.testing.assert_allclose(queries[name][there], read(part)[there], atol=1e-10)

    for origins, words in (
        ({"feature": np.ones(3)}, r"origins\['feature'\]: expected finite vectors .* with d = 24, got shape \(3,\)"),
        ({"one": np.ones(24), "two": 2 * np.ones(24)}, "origins: expected linearly independent vectors"),
        ({"MLP 0": np.ones(24)}, "'MLP 0' is an origin of the model"),
    ):
        with pytest.raises(attsvm.ProblemError, match=words):
            inspection.explain(1, 2, origins=origins)
    with pytest.raises(attsvm.ProblemError, match="because only these can be resampled, got 'feature 12'"):
        explanation.test(batch)
