"""What heads write and what removing them costs, against hooks on the plain models of transformers."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402
from small_models import SMALL, clip_text, clip_vision, like_bert, small, spread_out, words  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm.inspect.causal import DRAWS  # noqa: E402

HEADS = [(0, 1), (1, 2)]

CASES = {
    "gpt2": (
        lambda: small("GPT2", "LMHeadModel", n_embd=24, n_head=4, n_layer=2),
        lambda model: [block.attn.c_proj for block in model.transformer.h],
        lambda model: (model.transformer.ln_f, lambda x: x - x.mean(-1, keepdim=True)),
    ),
    "gpt_neo": (  # the parent of its attention reads a norm of the stream
        lambda: small(
            "GPTNeo", "ForCausalLM", attention_types=[[["global"], 2]], num_heads=4, num_layers=2, hidden_size=24
        ),
        lambda model: [block.attn.attention.out_proj for block in model.transformer.h],
        lambda model: (model.transformer.ln_f, lambda x: x - x.mean(-1, keepdim=True)),
    ),
    "llama": (
        lambda: small("Llama", "ForCausalLM", num_key_value_heads=2, **SMALL),
        lambda model: [layer.self_attn.o_proj for layer in model.model.layers],
        lambda model: (model.model.norm, lambda x: x),
    ),
    "cohere": (  # its logits are a multiple of what the output head returns
        lambda: small("Cohere", "ForCausalLM", num_key_value_heads=2, **SMALL),
        lambda model: [layer.self_attn.o_proj for layer in model.model.layers],
        lambda model: (model.model.norm, lambda x: x - x.mean(-1, keepdim=True)),
    ),
    "bert": (
        lambda: like_bert("Bert"),
        lambda model: [layer.attention.output.dense for layer in model.encoder.layer],
        None,
    ),
}


def plain(model, batch, targets):
    """The loss, or the hidden states at the places that are no padding."""
    with torch.no_grad():
        output = model(**batch)
    there = batch["attention_mask"].bool()
    if targets is None:
        return output.last_hidden_state[there]
    log = output.logits.log_softmax(-1)
    counts = there[:, :-1] & there[:, 1:]  # padding is on the right
    return -log[:, :-1].gather(-1, targets[:, 1:, None])[..., 0][counts].mean()


def cost_of(model, projection, at, new, batch, targets, before):
    """With a head's part of the input of its output projection replaced where there is no padding."""
    there = batch["attention_mask"].bool()

    def replace(_, arguments):
        heads = arguments[0].clone()
        heads[..., at] = torch.where(there[..., None], new, heads[..., at])
        return (heads,)

    hook = projection.register_forward_pre_hook(replace)
    after = plain(model, batch, targets)
    hook.remove()
    if targets is not None:
        return float(after - before)
    return float(((after - before).norm(dim=-1) / before.norm(dim=-1)).mean())


@pytest.mark.parametrize("name", CASES)
def test_effects_are_those_of_hooks_on_the_plain_model(name):
    make, projections, last = CASES[name]
    model, batch = spread_out(make().double()), words()
    model.set_attn_implementation("eager")  # as inspections run
    there, targets = batch["attention_mask"].bool(), None if last is None else batch["input_ids"]
    found = attsvm.inspect.inspect(model, batch, margins=False).effects(HEADS, seed=3)
    assert found.measure == ("relative change of the last hidden state" if last is None else "loss")
    assert found.costs.shape == (2, DRAWS)
    inputs, streams, seen = {}, [], {}
    hooks = [
        projection.register_forward_pre_hook(lambda _, given, k=k: inputs.__setitem__(k, given[0]))
        for k, projection in enumerate(projections(model))
    ]
    if last is not None:
        norm, centred = last(model)
        hooks.append(norm.register_forward_hook(lambda _, given, made: seen.update(x=given[0], y=made)))
    before = plain(model, batch, targets)
    with torch.no_grad():
        streams = model(**batch, output_hidden_states=True).hidden_states
    for hook in hooks:
        hook.remove()
    for k, (layer, head) in enumerate(HEADS):
        projection = projections(model)[layer]
        weight = projection.weight.detach()
        weight = weight if type(projection).__name__ == "Conv1D" else weight.T
        size = len(weight) // 4
        at = slice(head * size, (head + 1) * size)
        own = inputs[layer][..., at]
        part = own @ weight[at]
        norms = part.norm(dim=-1)
        np.testing.assert_allclose(found.norm[k], norms[there].mean(), rtol=1e-10)
        share = (norms / streams[layer].norm(dim=-1))[there].mean()
        np.testing.assert_allclose(found.share[k], share, rtol=1e-10)
        pool, generator = own[there], np.random.default_rng([3, layer, head])
        mean = pool.mean(dim=0).expand_as(own)
        expected = cost_of(model, projection, at, mean, batch, targets, before)
        np.testing.assert_allclose(found.mean_cost[k], expected, atol=1e-10)
        for draw in range(2):
            new = pool[torch.as_tensor(generator.integers(len(pool), size=there.numel()))].view_as(own)
            expected = cost_of(model, projection, at, new, batch, targets, before)
            np.testing.assert_allclose(found.costs[k, draw], expected, atol=1e-10)
        if last is None:
            assert np.isnan(found.attribution[k])
            assert "no output head; a method get_output_embeddings() that" in found.unattributed
            assert f"; no logits, because {found.unattributed}" in repr(found)
            continue
        # the gains over the actual scale are y/x of the norm, entry by entry
        bias = getattr(norm, "bias", None)
        y = seen["y"] if bias is None else seen["y"] - bias
        rows = model.lm_head.weight.detach() * getattr(model, "logit_scale", 1)
        logits = centred(part) * (y / centred(seen["x"])) @ rows.T
        logits = logits - logits.mean(dim=-1, keepdim=True)
        counts = there[:, :-1] & there[:, 1:]
        of_target = logits[:, :-1].gather(-1, targets[:, 1:, None])[..., 0][counts].mean()
        # the norms of Llama and Cohere compute in float32
        rtol = 1e-5 if name in ("llama", "cohere") else 1e-10
        np.testing.assert_allclose(found.attribution[k], of_target.detach(), rtol=rtol)
        top = logits[there].mean(dim=0).topk(5).indices
        assert found.written[k].tolist() == top.tolist()


@pytest.fixture(scope="module")
def llama():
    return spread_out(small("Llama", "ForCausalLM", num_key_value_heads=2, **SMALL).double())


def test_a_head_whose_output_is_zero_writes_nothing_and_costs_exactly_nothing(llama):
    value = llama.model.layers[1].self_attn.v_proj.weight
    before = value.detach().clone()
    with torch.no_grad():
        value[:6] = 0  # of the first two heads
    found = attsvm.inspect.inspect(llama, words(), margins=False).effects([(1, 0), (1, 1), (1, 2)], draws=2)
    with torch.no_grad():
        value.copy_(before)
    assert not np.any([found.norm[:2], found.share[:2], found.attribution[:2], found.mean_cost[:2]])
    assert not np.any(found.costs[:2])
    assert found.norm[2] > 0
    assert np.abs(found.costs[2]).min() > 0
    assert "removing it costs 0 ± 0" in repr(found)
    written = found.rows(lambda numbers: [None] * len(numbers))[2][2]  # a tokenizer with fewer tokens than the model
    assert written.startswith(" ".join(f"#{one}" for one in found.written[2]))


def test_neither_padding_nor_what_it_holds_counts(llama):
    batch = words()
    other = {**batch, "input_ids": batch["input_ids"].where(batch["attention_mask"].bool(), torch.tensor(7))}
    one, two = (
        attsvm.inspect.inspect(llama, given, margins=False).effects([(0, 1)], draws=2) for given in (batch, other)
    )
    for name in ("norm", "share", "attribution", "mean_cost", "costs"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-12)
    alone = attsvm.inspect.inspect(llama, batch["input_ids"][:1], margins=False).effects([(0, 1)], draws=2)
    named = attsvm.inspect.inspect(llama, {"input_ids": batch["input_ids"][:1]}, margins=False)
    assert alone.costs.tolist() == named.effects([(0, 1)], draws=2).costs.tolist()


def test_what_heads_write_does_not_reach_the_logits_through_norms_of_the_stream():
    model = spread_out(small("Bert", "ForMaskedLM", **SMALL).double())
    inspection = attsvm.inspect.inspect(model, words(), margins=False)
    found = inspection.effects([(0, 0)], draws=2)
    assert found.measure == "loss"
    assert "normalise their stream" in found.unattributed
    targets = words()["input_ids"].flip(1)
    assert inspection.effects([(0, 0)], draws=2, targets=targets).mean_cost != found.mean_cost
    rows = found.to_frame()
    assert rows.cost_value[0] == pytest.approx(found.costs.mean())


def test_a_piece_whose_queries_see_no_later_token_makes_no_model_causal(monkeypatch):
    model, batch = spread_out(small("Bert", "ForMaskedLM", **SMALL).double()), words()
    batch["attention_mask"][2, 1:] = 0
    inspection = attsvm.inspect.inspect(model, batch, margins=False)
    at_once = inspection.effects([(0, 0)], draws=2)
    monkeypatch.setattr("attsvm.inspect.model_calls.CHUNK_LOGITS", 1)  # a sequence in each call
    np.testing.assert_allclose(inspection.effects([(0, 0)], draws=2).costs, at_once.costs, atol=1e-12)


def test_heads_of_pictures_select_no_word_of_the_texts():
    parts = {"text_config": clip_text().config.to_dict(), "vision_config": clip_vision().config.to_dict()}
    parts["vision_config"]["patch_size"] = 8  # five tokens, fewer than the seven of the texts
    model = spread_out(transformers.CLIPModel(transformers.CLIPConfig(**parts)))
    batch = words() | {"pixel_values": torch.randn(3, 3, 16, 16)}
    found = attsvm.inspect.inspect(model, batch, margins=False).effects([(0, 0), (2, 0)], draws=2)
    assert [bool(one or two >= 0) for one, two in zip(found.pattern, found.selected, strict=True)] == [True, False]


def test_what_has_no_effects_of_single_heads_is_refused_by_name(llama):
    attention, tokens = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 4, 8)
    plain = attsvm.inspect.inspect(attention, (tokens, tokens, tokens), margins=False)
    of_llama = attsvm.inspect.inspect(llama, words(), margins=False)
    for inspection, options, said in (
        (plain, {}, "heads: layer 0 .* no linear layer reads the outputs of its heads"),
        (of_llama, {"heads": [(5, 0)]}, r"heads: expected heads of the inspection, as \(layer, head\), got \(5, 0\)"),
        (of_llama, {"heads": [3]}, r"heads: expected heads of the inspection, as \(layer, head\), got 3"),
        (of_llama, {"heads": 3}, r"heads: expected heads of the inspection, as \[\(layer, head\), ...\], got 3"),
        (of_llama, {"targets": np.zeros((3, 7))}, "targets: expected integers, got torch.float64"),
        (of_llama, {"draws": 1}, "draws: expected an integer >= 2, got 1"),
        (
            of_llama,
            {"targets": [[1, 2]]},
            r"targets: expected tokens of the shape \(3, 7\) of the logits, got \(1, 2\)",
        ),
        (of_llama, {"targets": np.full((3, 7), -100)}, "targets: expected tokens from 0 to 49, got none that counts"),
        (of_llama, {"targets": np.full((3, 7), 50)}, "targets: expected tokens from 0 to 49, got 50 to 50"),
    ):
        with pytest.raises(attsvm.ProblemError, match=said):
            inspection.effects(**options)


def test_heads_are_any_collection(llama):
    inspection = attsvm.inspect.inspect(llama, words(), margins=False)
    assert len(inspection.effects(heads={(0, 1)}, draws=2).costs) == 1
