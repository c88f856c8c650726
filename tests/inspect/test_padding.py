"""Padding is no query and no token on either side of a model: padded sequences have the numbers of those alone."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402
from small_models import SMALL, like_bert, small, spread_out, t5, whisper, words  # noqa: E402
from torch import nn  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm.inspect import AttentionMonitor  # noqa: E402

LENGTHS = [7, 5, 2]
PLACES = (torch.arange(7) < torch.tensor(LENGTHS)[:, None]).long()


def bart():
    sides = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in
             (("layers", 2), ("attention_heads", 4), ("ffn_dim", 32))}  # fmt: skip
    return small("Bart", d_model=24, dropout=0.0, **sides)


def both_sides(source_is_padded=True):
    ids = words()["input_ids"]
    of_source = {"input_ids": ids, "attention_mask": PLACES if source_is_padded else torch.ones_like(PLACES)}
    return of_source | {"decoder_input_ids": ids.flip(0), "decoder_attention_mask": PLACES}


def sounds():
    inputs = torch.randn(3, 8, 18, generator=torch.Generator().manual_seed(2))
    return {"input_features": inputs, "decoder_input_ids": words()["input_ids"], "decoder_attention_mask": PLACES}


def alone(batch, i):
    """One sequence without its padding."""
    texts = (key for key in batch if batch[key].ndim == 2)
    of_text = {
        key: batch[key][i : i + 1, : batch[key.replace("input_ids", "attention_mask")][i].sum()] for key in texts
    }
    return {key: of_text.get(key, value[i : i + 1]) for key, value in batch.items()}


ENCODER_DECODERS = {
    "t5": (t5, both_sides()),
    "t5, with a source of the same length that is not padded": (t5, both_sides(source_is_padded=False)),
    "bart": (bart, both_sides()),
    "whisper": (whisper, sounds()),
}


@pytest.mark.parametrize("case", ENCODER_DECODERS)
def test_padded_places_of_a_decoder_are_no_queries_of_its_cross_attention(case):
    make, batch = ENCODER_DECODERS[case]
    model = spread_out(make())
    found = attsvm.inspect.inspect(model, batch, margins=False)
    for index in (2, 3, 4, 5):  # of the decoder, self and cross in turn
        assert ((found.source.captured(index).positions >= 0) == PLACES.numpy().astype(bool)).all()
    # also where the self-attention before it is not inspected
    (head,) = attsvm.inspect.inspect(model, batch, margins=False, heads=[(3, 1)]).heads
    assert head.numbers == found.heads[3 * 4 + 1].numbers
    weighted, weights = [], []
    for i in range(3):
        one = attsvm.inspect.inspect(model, alone(batch, i), margins=False)
        np.testing.assert_array_equal(one.selected[12:, 0, : LENGTHS[i]], found.selected[12:, i, : LENGTHS[i]])
        weighted.append(one.measure("first_share")[3])
        weights.append(LENGTHS[i])
    np.testing.assert_allclose(
        found.measure("first_share")[3], np.average(weighted, axis=0, weights=weights), rtol=1e-4
    )


@pytest.mark.parametrize("source_is_padded", [True, False])
def test_the_monitor_counts_the_queries_of_cross_attention_that_the_decoder_has(source_is_padded):
    model = spread_out(bart()).train()
    model.set_attn_implementation("eager")
    batch = both_sides(source_is_padded)
    with AttentionMonitor(model, every=1) as monitor:
        own = model(**batch, output_attentions=True).cross_attentions[0].detach().double()
        monitor.step()
    entropy = -(own * own.clamp(min=1e-300).log()).sum(-1).transpose(1, 2)[PLACES.bool()].mean(0)
    np.testing.assert_allclose(monitor.records[0][1]["entropy"][12:16], entropy, rtol=1e-5)


@pytest.mark.parametrize("padding", ["right", "left"])
def test_tokens_that_no_query_of_sparse_attention_selects_are_no_padding(padding):
    """DeepSeek-V3.2 lets each query see the two tokens that an index chooses."""
    ranks = {"q_lora_rank": 8, "kv_lora_rank": 6, "qk_rope_head_dim": 4, "qk_nope_head_dim": 2, "v_head_dim": 6}
    experts = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1}
    index = {"index_topk": 2, "index_n_heads": 2, "index_head_dim": 8, "moe_intermediate_size": 16}
    model = spread_out(like_bert("DeepseekV32", num_key_value_heads=4, **ranks, **experts, **index))
    batch = words(padding)
    found = attsvm.inspect.inspect(model, batch, margins=False)
    there = batch["attention_mask"].numpy().astype(bool)
    layers = [found.source.captured(index) for index in range(2)]
    assert any((layer.allowed.any(axis=1) != there).any() for layer in layers), "nothing is shown without such tokens"
    assert all(((layer.positions >= 0) == there).all() for layer in layers)
    assert found.num_tokens == found.num_queries == there.sum()


@pytest.mark.parametrize("padding", ["right", "left"])
def test_the_first_token_is_the_first_that_is_no_padding(padding):
    config = transformers.LlamaConfig(vocab_size=50, num_key_value_heads=4, attn_implementation="eager", **SMALL)
    model, batch = spread_out(transformers.LlamaModel(config)).train(), words(padding)
    with AttentionMonitor(model, every=1) as monitor:
        own = model(**batch, output_attentions=True).attentions[0].detach().double()
        monitor.step()
    there = batch["attention_mask"].bool()
    # without the first query, which has no choice
    first = [own[i][:, there[i]][:, 1:, there[i].int().argmax()] for i in range(3)]
    np.testing.assert_allclose(monitor.records[0][1]["first_share"][:4], torch.cat(first, 1).mean(1), rtol=1e-5)


def test_the_first_token_is_known_where_no_sampled_query_sees_it():
    """Of a model with a window, the sampled queries of long sequences may all be beyond it."""
    model = spread_out(like_bert("Mistral", sliding_window=3, num_key_value_heads=2, pad_token_id=0))
    ids = torch.randint(3, 50, (1, 40), generator=torch.Generator().manual_seed(0))
    found = attsvm.inspect.inspect(model, {"input_ids": ids}, margins=False, queries=3)
    assert (found.positions >= 3).all()
    assert (found.measure("first_share") == 0).all()
    assert found.num_tokens == 40


def test_padding_of_the_decoder_of_torch():
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(12, 3, 8, dropout=0.0, batch_first=True)
    model, tokens, memory = nn.TransformerDecoder(layer, 1).eval(), torch.randn(3, 7, 12), torch.randn(3, 7, 12)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, tokens, memory):
            return self.inner(tokens, memory, tgt_key_padding_mask=PLACES == 0)

    found = attsvm.inspect.inspect(Model(), (tokens, memory), margins=False, heads=[(1, 0)])
    assert ((found.positions >= 0) == PLACES.numpy().astype(bool)).all()
