"""Attention of every family rebuilt from tokens and W alone; what cannot be is refused in one line."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import attsvm
import attsvm.torch
from attsvm._utils.linear_algebra import softmax
from attsvm.inspect import models
from attsvm.inspect.capture import capture
from attsvm.inspect.families import Family, LayerInputs, allowed_tokens, projections_of
from attsvm.inspect.layers import attention_layers
from attsvm.inspect.sampling import Sampler

transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

SMALL = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 32}
CLOSE = 1e-5


def bert():
    return transformers.BertModel(transformers.BertConfig(vocab_size=50, **SMALL))


def roberta():
    return transformers.RobertaModel(transformers.RobertaConfig(vocab_size=50, **SMALL))


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=24, n_head=4, n_layer=2, scale_attn_by_inverse_layer_idx=True
    )
    return transformers.GPT2Model(config)


def llama():
    config = transformers.LlamaConfig(vocab_size=50, num_key_value_heads=2, attention_bias=True, **SMALL)
    return transformers.LlamaModel(config)


def vit():
    return transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=4, **SMALL))


def small_language_model(name, **options):
    """A model without its head, from the name of its classes."""
    make, config = getattr(transformers, f"{name}Model"), getattr(transformers, f"{name}Config")
    return make(config(vocab_size=50, **SMALL, **options))


def mistral():
    return small_language_model("Mistral", num_key_value_heads=2, sliding_window=3)


def qwen2():
    return small_language_model("Qwen2", num_key_value_heads=2)


def qwen3():
    return small_language_model("Qwen3", num_key_value_heads=2, head_dim=6)


def gemma():
    return small_language_model("Gemma", num_key_value_heads=1, head_dim=6)


def gemma3():
    config = transformers.Gemma3TextConfig(
        vocab_size=50, num_key_value_heads=2, head_dim=6, sliding_window=3, query_pre_attn_scalar=6, **SMALL
    )
    return transformers.Gemma3TextModel(config)


def gpt_neox():
    # 4 of 6 coordinates are rotated
    rotary = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.67}
    return small_language_model("GPTNeoX", rope_parameters=rotary)


def bloom():
    return transformers.BloomModel(transformers.BloomConfig(vocab_size=50, hidden_size=24, n_head=4, n_layer=2))


def mpt(heads=4, clip=None):
    config = transformers.MptConfig(vocab_size=50, d_model=24, n_heads=heads, n_layers=2, max_seq_len=16)
    config.attn_config.clip_qkv = clip
    return transformers.MptModel(config)


def distilbert():
    config = transformers.DistilBertConfig(vocab_size=50, dim=24, n_heads=4, n_layers=2, hidden_dim=32)
    return transformers.DistilBertModel(config)


def t5():
    config = transformers.T5Config(vocab_size=50, d_model=24, d_kv=5, d_ff=32, num_heads=4, num_layers=2)
    return transformers.T5EncoderModel(config)


def clip_text():
    return transformers.CLIPTextModel(transformers.CLIPTextConfig(vocab_size=50, eos_token_id=2, **SMALL))


def clip_vision():
    return transformers.CLIPVisionModel(transformers.CLIPVisionConfig(image_size=16, patch_size=4, **SMALL))


def dinov2():
    config = transformers.Dinov2Config(image_size=16, patch_size=4, **(SMALL | {"intermediate_size": 24}))
    return transformers.Dinov2Model(config)


def dinov3():
    return transformers.DINOv3ViTModel(
        transformers.DINOv3ViTConfig(image_size=16, patch_size=4, **(SMALL | {"hidden_size": 16}))
    )


def spread_out(model, seed=0):
    """Weights large enough for attention to be far from even, biases that are not zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower() and "ln_" not in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return model.eval()


def words(padding="right", seed=1):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 50, (3, 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    mask[2, 2:] = 0
    if padding == "left":
        mask = mask.flip(1)
    return {"input_ids": ids, "attention_mask": mask}


def pictures():
    return {"pixel_values": torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(2))}


CASES = {
    "bert": (bert, words()),
    "roberta": (roberta, words()),
    "gpt2": (gpt2, words()),
    "llama": (llama, words()),
    "llama, padded on the left": (llama, words("left")),
    "vit": (vit, pictures()),
    "mistral, with a sliding window": (mistral, words()),
    "qwen2": (qwen2, words()),
    "qwen3": (qwen3, words()),
    "gemma": (gemma, words()),
    "gemma 3, with a sliding window": (gemma3, words()),
    "gpt-neox, partly rotary": (gpt_neox, words()),
    "bloom, with ALiBi": (bloom, words()),
    "mpt, with ALiBi": (mpt, words("left")),
    "mpt, with clipped queries and keys": (lambda: mpt(clip=1.0), words()),
    "distilbert": (distilbert, words()),
    "t5": (t5, words()),
    "clip, texts": (clip_text, words()),
    "clip, pictures": (clip_vision, pictures()),
    "dinov2": (dinov2, pictures()),
    "dinov3": (dinov3, pictures()),
}


def own_attention(model, batch):
    """The model's, by its own output_attentions."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return [layer.numpy() for layer in model(**batch, output_attentions=True).attentions]


@pytest.mark.parametrize("case", CASES)
def test_attention_is_rebuilt_from_tokens_and_weights(case):
    make, batch = CASES[case]
    model = spread_out(make())
    found = attention_layers(model)
    theirs = own_attention(model, batch)
    assert len(found) == len(theirs) == 2
    for layer, attention in zip(capture(model, batch, found, Sampler(4096, 3, 0)), theirs, strict=True):
        assert layer.num_heads == 4
        for head in range(4):
            problem = layer.head(head)
            ours = softmax(problem.queries @ problem.weights.T @ problem.keys.mT, layer.allowed)
            there = layer.positions >= 0
            picked = np.take_along_axis(attention[:, head], np.maximum(layer.positions, 0)[..., None], axis=1)
            assert np.abs(ours - picked)[there].max() < CLOSE
            assert ours[there].max() > 0.6  # nothing is shown where attention is even
            assert layer.rebuilt_error[head] < CLOSE


@pytest.mark.parametrize("case", CASES)
def test_inspection_counts_what_is_there_and_leaves_the_model_as_it_was(case):
    make, batch = CASES[case]
    model = spread_out(make()).train()
    if model._supports_sdpa:
        model.set_attn_implementation("sdpa")
    implementation = model.config._attn_implementation
    inspection = attsvm.inspect.inspect(model, batch)
    assert model.training
    assert model.config._attn_implementation == implementation
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert len(inspection.heads) == 8
    there = batch["attention_mask"].sum().item() if "attention_mask" in batch else 3 * 17
    assert inspection.num_tokens == inspection.num_queries == there
    for head in inspection.heads:
        assert head.rebuilt_error < CLOSE
        assert 0 < head.margin.lower <= head.margin.upper <= 1 + 1e-9
        assert head.margin.width <= 1e-2
        assert head.margin.duplicates == 0
        assert 1 <= head.numbers["effective_tokens"] <= 17
        assert 1 <= head.numbers["effective_rank"] <= 6 + 1e-9


def test_queries_and_tokens_are_counted_with_the_padding_on_the_left():
    model, batch = spread_out(llama()), words("left")
    inspection = attsvm.inspect.inspect(model, batch, margins=False)
    theirs, there = own_attention(model, batch), batch["attention_mask"].numpy() > 0
    assert (inspection.positions == np.where(there, np.arange(7), -1)).all()
    for head in inspection.heads:
        assert (head.selected == np.where(there, theirs[head.layer][:, head.head].argmax(-1), -1)).all()


def test_both_towers_of_clip_are_inspected_at_once():
    """The model runs the tower of pictures first, although that of texts comes first among its modules."""
    parts = {"text_config": clip_text().config.to_dict(), "vision_config": clip_vision().config.to_dict()}
    model, batch = spread_out(transformers.CLIPModel(transformers.CLIPConfig(**parts))), words() | pictures()
    special = torch.zeros(3, 7, dtype=torch.long)
    inspection = attsvm.inspect.inspect(model, batch | {"special_tokens_mask": special}, margins=False)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model(**batch, output_attentions=True)
    layers = [*found.text_model_output.attentions, *found.vision_model_output.attentions]
    assert [name.split(".")[0] for name in inspection.layer_names] == ["text_model"] * 2 + ["vision_model"] * 2
    assert len(inspection.heads) == 16
    for head in inspection.heads:
        assert head.rebuilt_error < CLOSE
        expected = layers[head.layer][:, head.head].argmax(-1).numpy()
        there = head.selected >= 0
        assert there.sum() == (batch["attention_mask"].sum() if head.layer < 2 else 3 * 17)
        wide = np.full(head.selected.shape, -1)
        wide[:, : expected.shape[1]] = expected
        assert (head.selected == wide)[there].all()
    for pictured, tower in ((False, model.text_model), (True, model.vision_model)):
        assert models.tower(model, pictures=pictured) is tower
        one = attsvm.inspect.inspect(tower, pictures() if pictured else words(), margins=False)
        assert (one.selected == inspection.selected[8 * pictured : 8 + 8 * pictured, :, : one.selected.shape[2]]).all()


def test_a_sample_of_queries_is_part_of_all_of_them():
    model = spread_out(bert())
    batch = words()
    whole, part = (attsvm.inspect.inspect(model, batch, queries=most, margins=False) for most in (None, 6))
    assert part.sampled
    assert not whole.sampled
    assert part.num_queries == 6
    for one, other in zip(whole.heads, part.heads, strict=True):
        at = np.maximum(part.positions, 0)
        picked = np.take_along_axis(one.selected, at, axis=1)
        assert (picked == other.selected)[part.positions >= 0].all()


def test_processes_of_their_own_find_the_same_margins_and_stop_when_told(monkeypatch, recwarn, capfd, tmp_path):
    alone = attsvm.inspect.inspect(spread_out(bert()), words(), workers=1)
    # so that even these few pairs are worth a process
    monkeypatch.setattr("attsvm.inspect.solves.LEAST_PAIRS", 0)
    beside = attsvm.inspect.inspect(spread_out(bert()), words(), workers=2)
    assert [vars(head.margin) for head in beside.heads] == [vars(head.margin) for head in alone.heads]
    seen = []

    def stop(at):
        seen.append((at.step, len(at.inspection().heads)))
        return at.step == 6

    stopped = attsvm.inspect.inspect(spread_out(bert()), words(), workers=2, callback=stop)
    # all heads are measured first, and the heads that are not solved keep their measures
    assert seen == [(0, 4), (0, 8), *((step, 8) for step in range(1, 7))]
    assert stopped.interrupted
    assert list(stopped.status) == [*beside.status[:6], "interrupted", "interrupted"]
    for one, other in zip(stopped.heads, beside.heads, strict=True):
        solved = (one.layer, one.head) <= (1, 1)
        assert (vars(one.margin) if solved else one.margin) == (vars(other.margin) if solved else None)
        assert one.numbers == other.numbers | ({} if solved else {"margin_ratio": None})
    stopped.save(tmp_path / "stopped.npz")
    loaded = attsvm.inspect.Inspection.load(tmp_path / "stopped.npz")
    assert [head.margin is None for head in loaded.heads] == 6 * [False] + 2 * [True]
    assert not beside.interrupted
    assert not [warning for warning in recwarn if "joblib" in warning.filename]
    assert "Traceback" not in capfd.readouterr().err


def test_ctrl_c_keeps_what_was_measured():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        inspection = attsvm.inspect.inspect(
            bert(), words(), margins=False, callback=lambda at: at.step == 3 and signal.raise_signal(signal.SIGINT)
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert inspection.interrupted
    assert [(head.layer, head.head, head.status) for head in inspection.heads] == [(0, k, "finished") for k in range(3)]


class Encoder(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=batch_first, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x, padding=None):
        return self.encoder(x, src_key_padding_mask=padding)


@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention_of_torch(batch_first):
    model = spread_out(Encoder(batch_first))
    x = torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(3))
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[0, 4:] = True
    inspection = attsvm.inspect.inspect(model, (x if batch_first else x.transpose(0, 1), padding))
    assert inspection.family == "nn.MultiheadAttention"
    assert inspection.num_queries == 16
    for head in inspection.heads:
        assert head.rebuilt_error < CLOSE
        assert 0 < head.margin.lower <= head.margin.upper <= 1 + 1e-9


def test_cross_attention_of_torch_selects_among_the_keys():
    module = spread_out(nn.MultiheadAttention(16, 4, kdim=10, vdim=10, batch_first=True))
    generator = torch.Generator().manual_seed(4)
    query, key = torch.randn(2, 3, 16, generator=generator), torch.randn(2, 5, 10, generator=generator)
    inspection = attsvm.inspect.inspect(module, (query, key, key), margins=False)
    _, attention = module(query, key, key, average_attn_weights=False)
    for head in inspection.heads:
        assert (head.selected == attention[:, head.head].argmax(-1).numpy()).all()
        assert head.numbers["own_share"] is None


class Block(nn.Module):
    def __init__(self, fused):
        super().__init__()
        if fused:
            self.qkv = nn.Linear(16, 48)
        else:
            self.to_q, self.to_k, self.to_v = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).split(16, -1) if hasattr(self, "qkv") else (self.to_q(x), self.to_k(x), self.to_v(x))
        q, k, v = (part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in (q, k, v))
        k, v = (part.repeat_interleave(4 // part.shape[1], 1) for part in (k, v))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.7).transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("rotary", [True, False])
def test_a_declared_layout(fused, rotary):
    model = spread_out(nn.Sequential(nn.LayerNorm(16), Block(fused)))
    names = {"fused": "qkv"} if fused else {"query": "to_q", "key": "to_k", "key_heads": 2}
    layout = attsvm.inspect.Layout("1", heads=4, rotary=rotary, **names)
    x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(5))
    inspection = attsvm.inspect.inspect(model, x, family=layout)
    assert inspection.rotary == rotary
    for head in inspection.heads:
        assert head.rebuilt_error < CLOSE
        assert (head.selected <= np.arange(6)).all()


def test_the_star_of_a_layout_matches_no_dot():
    model = nn.Module()
    model.layers = nn.ModuleList([Block(True), Block(True)])
    found = attention_layers(model, attsvm.inspect.Layout("layers.*", heads=4, fused="qkv"))
    assert [layer.name for layer in found] == ["layers.0", "layers.1"]


def refused(match, model, batch, **options):
    with pytest.raises(attsvm.ProblemError, match=match) as error:
        attsvm.inspect.inspect(model, batch, **options)
    assert "\n" not in str(error.value)


def test_what_cannot_be_inspected_is_refused_in_one_line():
    x = torch.zeros(2, 6, 16)
    refused("has no attention layer", nn.Linear(16, 16), x)
    xlnet = transformers.XLNetModel(transformers.XLNetConfig(vocab_size=50, d_model=8, n_head=2, n_layer=1, d_inner=8))
    refused(r"expected attention of a known family \(BERT, .*\), got XLNetRelativeAttention", xlnet, words())
    refused(
        "has no attention layer that Layout", nn.Linear(16, 16), x, family=attsvm.inspect.Layout("a", 2, fused="qkv")
    )
    refused("does not call scaled_dot_product", nn.Sequential(nn.Linear(16, 16)), x, family=layout_of("0"))
    refused("no nn.Linear named", nn.Sequential(Block(False)), x, family=layout_of("0"))
    refused("expected at least one token", Encoder(), x[:0])
    refused("without tensors", Encoder(), {})
    refused("does not accept it", Encoder(), x[..., :5])
    refused("expected a torch.nn.Module, got str", "bert", x)
    refused("2 layers", Encoder(), x, heads=[(2, 0)])
    refused("4 heads", Encoder(), x, heads=[(0, 4)])
    refused("4 heads", Encoder(), x, heads=[(0, -1), (0, 0)])
    with pytest.raises(attsvm.ProblemError, match="either query and key, or fused"):
        attsvm.inspect.Layout("0", 2, query="to_q")


def layout_of(name):
    return attsvm.inspect.Layout(name, 4, fused="qkv")


def test_biases_of_positions_are_a_part_of_the_weights():
    """The Att-SVM of T5 has one-hot positions beside its tokens; without the biases the attention is another one."""
    model = spread_out(t5())
    (layer, _) = capture(model, words(), attention_layers(model), Sampler(4096, 3, 0))
    assert not layer.shares_tokens
    problem, plain = layer.head(1), replace(layer, bias=None).head(1)
    assert problem.keys.shape[-1] == plain.keys.shape[-1] + 7
    difference = problem.logits() - plain.logits()
    assert np.allclose(difference, layer.bias[:, 1], atol=1e-12)
    assert np.abs(difference - difference[..., :1]).max() > 0.1
    assert attsvm.inspect.inspect(model, words(), margins=False).biased
    assert not attsvm.inspect.inspect(spread_out(bert()), words(), margins=False).biased


FUSED = [case for case in CASES if not case.startswith(("bloom", "mpt"))]  # these compute their attention themselves


@pytest.mark.parametrize("case", FUSED)
def test_a_fused_call_is_read_where_a_model_has_no_eager_attention(case, monkeypatch):
    make, batch = CASES[case]
    eager, model = spread_out(make()), spread_out(make())
    model.set_attn_implementation("sdpa")
    monkeypatch.setattr(model, "set_attn_implementation", lambda _: None)
    inspection = attsvm.inspect.inspect(model, batch, margins=False)
    assert inspection.rebuilt_error.max() < CLOSE
    assert (inspection.selected == attsvm.inspect.inspect(eager, batch, margins=False).selected).all()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision(case, dtype):
    make, batch = CASES[case]
    batch = {name: part.to(dtype) if part.is_floating_point() else part for name, part in batch.items()}
    inspection = attsvm.inspect.inspect(spread_out(make()).to(dtype), batch, margins=False)
    assert inspection.rebuilt_error.max() < 4 * torch.finfo(dtype).eps


def test_biases_in_the_logits_are_refused():
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 4, 8)
    refused("adds biases", module, {"query": x, "key": x, "value": x, "attn_mask": torch.full((4, 4), -0.5)})


class BlockFamily(Family):
    """A family that is defined outside the package."""

    name = "block"

    def matches(self, name, module):
        return isinstance(module, Block)

    def projections(self, module):
        query, key = (layer.weight for layer in (module.to_q, module.to_k))
        biases = module.to_q.bias, module.to_k.bias
        return projections_of((query, biases[0]), (key, biases[1]), heads=4, key_heads=2, scale=0.7)

    def inputs(self, module, arguments, keywords, call):
        (x,) = arguments
        return LayerInputs(x, x, allowed_tokens(call.effective_mask, len(x), x.shape[1], x.shape[1]))


@pytest.mark.parametrize("family", [BlockFamily, BlockFamily(), f"{__name__}:BlockFamily"])
def test_a_family_outside_the_package(family):
    model = spread_out(nn.Sequential(nn.LayerNorm(16), Block(False)))
    x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(5))
    layout = attsvm.inspect.Layout("1", heads=4, query="to_q", key="to_k", key_heads=2)
    inspection, declared = (attsvm.inspect.inspect(model, x, family=one) for one in (family, layout))
    assert inspection.family == "block"
    assert (inspection.selected == declared.selected).all()
    assert (inspection.measure("margin_ratio") == declared.measure("margin_ratio")).all()
    assert inspection.rebuilt_error.max() < CLOSE


class Halfway(BlockFamily):
    inputs = Family.inputs


def test_what_a_family_lacks_is_named():
    refused("Halfway cannot be created.*inputs", nn.Linear(2, 2), torch.zeros(1, 2, 2), family=Halfway)
    refused("expected a Family or a subclass of it, got int", nn.Linear(2, 2), torch.zeros(1, 2, 2), family=3)
    refused("family: expected one of BERT, .*got 'XLNet'", nn.Linear(2, 2), torch.zeros(1, 2, 2), family="XLNet")


def test_an_inspection_is_saved_loaded_and_indexed(tmp_path):
    model = spread_out(bert())
    for margins in (True, False):
        inspection = attsvm.inspect.inspect(model, words(), margins=margins)
        inspection.save(tmp_path / "inspection.npz")
        loaded = attsvm.inspect.Inspection.load(tmp_path / "inspection.npz")
        assert loaded.status.tolist() == ["optimal" if margins else "finished"] * 8
        assert (loaded.positions == inspection.positions).all()
        for one, other in zip(loaded.heads, inspection.heads, strict=True):
            assert one.numbers == other.numbers
            assert str(one.margin) == str(other.margin)
            assert (one.selected == other.selected).all()
        assert np.array_equal(loaded.measure("margin_ratio"), inspection.measure("margin_ratio"), equal_nan=True)
        third = loaded[2]
        assert third.status == loaded.status[2]
        assert (third.heads[0].layer, third.heads[0].head) == (0, 2)
        assert "head 0.2" in repr(third)
        assert repr(loaded).startswith("Inspection(8 heads; BertModel: 2 layers")
        for shown in (loaded, third, loaded[:0]):
            page = shown._repr_html_()
            assert "Largest probability" in page
            assert "array of shape" not in page


@pytest.mark.parametrize("make", [qwen3, gemma3], ids=["Qwen3", "Gemma 3"])
def test_the_gains_of_norms_of_queries_and_keys_are_part_of_the_effective_rank(make):
    model = spread_out(make())
    batch = {"input_ids": torch.randint(50, (2, 6))}
    module = model.layers[0].self_attn
    with torch.no_grad():
        for norm in (module.k_norm, module.q_norm):
            norm.weight.normal_()
        gains = [norm(torch.ones(6)) for norm in (module.k_norm, module.q_norm)]
        W = (module.k_proj.weight[:6].T * gains[0]) @ (module.q_proj.weight[:6].T * gains[1]).T
        share = torch.linalg.svdvals(W.double())[:6]
    share = share / share.sum()
    found = attsvm.inspect.inspect(model, batch, heads=[(0, 0)], margins=False).numbers["effective_rank"][0]
    assert found == pytest.approx(float((-share * share.log()).sum().exp()), rel=1e-4)
