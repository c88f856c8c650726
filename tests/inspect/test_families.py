"""Attention of every family rebuilt from tokens and W alone; what cannot be is refused in one line."""

import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import attsvm
import attsvm.torch
from attsvm._utils.linear_algebra import softmax
from attsvm.inspect.capture import Sampler, capture
from attsvm.inspect.families import Family
from attsvm.inspect.families.transformers import Gpt2
from attsvm.inspect.layers import attention_layers
from attsvm.pretrained.models import tower

transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

from small_models import (  # noqa: E402
    CASES,
    NEOX,
    SHARED,
    bert,
    clip_text,
    clip_vision,
    deepseek,
    falcon,
    gemma3,
    gpt2,
    like_bert,
    llama,
    pictures,
    qwen3,
    spread_out,
    t5,
    words,
)

CLOSE = 1e-5

WITHOUT_WEIGHTS = {"mpt, with clipped queries and keys"}
"""Models of which W is not known: queries and keys are more than rotated projections of tokens."""


def own_attention(model, batch):
    """The model's, by its own output_attentions, in the order of its modules."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    if not hasattr(output, "decoder_attentions"):
        return [layer.numpy() for layer in output.attentions]
    decoder = [layer for pair in zip(output.decoder_attentions, output.cross_attentions, strict=True) for layer in pair]
    return [layer.numpy() for layer in (*output.encoder_attentions, *decoder)]


@pytest.mark.parametrize("case", CASES)
def test_attention_is_rebuilt_from_tokens_and_weights(case):
    make, batch = CASES[case]
    model = spread_out(make())
    found = attention_layers(model)
    theirs = own_attention(model, batch)
    assert len(found) == len(theirs) == (6 if case in ("t5", "whisper") else 2)
    layers = list(capture(model, batch, found, Sampler(4096, 3, 0)))
    for number, (layer, attention) in enumerate(zip(layers, theirs, strict=True)):
        assert layer.num_heads == 4
        assert (layer.projections is None) == (case in WITHOUT_WEIGHTS)
        assert layer.is_self == (len(layers) == 2 or number not in (3, 5))
        there = layer.positions >= 0
        for head in range(4):
            ours = layer.probabilities(head)
            picked = np.take_along_axis(attention[:, head], np.maximum(layer.positions, 0)[..., None], axis=1)
            assert np.abs(ours - picked)[there].max() < CLOSE
            assert ours[there].max() > 0.4, "nothing is shown where attention is even"
            assert layer.rebuilt_error[head] < CLOSE
            # the Att-SVM is about the logits of W, without a cap or a sink
            logits = np.where(layer.allowed, layer.head(head).logits(), -np.inf)
            assert (logits.argmax(-1) == picked.argmax(-1))[there].all()
            if layer.softcap is None and layer.sink is None:
                assert np.abs(softmax(logits) - picked)[there].max() < CLOSE


def test_the_table_of_the_guide_says_what_is_known_of_each_model():
    found = {}
    for case, (make, batch) in CASES.items():
        model = spread_out(make())
        inspection = attsvm.inspect.inspect(model, batch, heads=[(0, 0)], margins=False)
        known = inspection.available()._replace(reasons=inspection.available(1).reasons)
        name = type(model).__name__.removesuffix("Model")
        found.setdefault(known, {}).setdefault(name, case.partition(", ")[2])
    several = {name for one in found.values() for name in one if sum(name in other for other in found.values()) > 1}
    rows = []
    for known, models in found.items():
        names = (f"{name} {variant}".strip() if name in several else name for name, variant in models.items())
        marks = ("yes" if one else "no" for one in known[1:])
        rows.append(f"| {', '.join(sorted(names, key=str.lower))} | {known.weights} | {' | '.join(marks)} |")
    guide = Path(__file__).parents[2] / "docs" / "guide" / "inspect.md"
    missing = [row for row in rows if row not in guide.read_text().splitlines()]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("case", CASES)
def test_inspection_counts_what_is_there_and_leaves_the_model_as_it_was(case):
    make, batch = CASES[case]
    model = spread_out(make()).train()
    if model._supports_sdpa:
        model.set_attn_implementation("sdpa")
    implementation = model.config._attn_implementation
    function = transformers.AttentionInterface.get_interface
    inspection = attsvm.inspect.inspect(model, batch, heads=[(0, 0), (0, 3), (1, 1)])
    assert model.training
    assert model.config._attn_implementation == implementation
    assert transformers.AttentionInterface.get_interface is function
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    there = batch["attention_mask"].sum().item() if "attention_mask" in batch else 27 if case == "whisper" else 3 * 17
    assert inspection.num_tokens == inspection.num_queries == there
    for head in inspection.heads:
        assert head.rebuilt_error < CLOSE
        assert 0 < head.margin.lower <= head.margin.upper <= 1 + 1e-9
        assert head.margin.width <= 1e-2
        assert head.margin.duplicates == 0
        assert 1 <= head.numbers["effective_tokens"] <= 17
        if case in WITHOUT_WEIGHTS:
            assert head.numbers["effective_rank"] is None
        else:
            assert 1 <= head.numbers["effective_rank"] <= 6 + 1e-9


FUSED = [case for case in CASES if not case.startswith(("bloom", "falcon", "mpt", "gemma 2", "gpt-oss"))]
"""The others have no fused attention, or another implementation cannot be chosen."""


@pytest.mark.parametrize("case", FUSED)
def test_a_fused_call_is_read_where_a_model_has_no_eager_attention(case, monkeypatch):
    make, batch = CASES[case]
    eager, model = spread_out(make()), spread_out(make())
    model.set_attn_implementation("sdpa")
    monkeypatch.setattr(model, "set_attn_implementation", lambda _: None)
    inspection = attsvm.inspect.inspect(model, batch, margins=False)
    assert inspection.rebuilt_error.max() < CLOSE
    assert (inspection.selected == attsvm.inspect.inspect(eager, batch, margins=False).selected).all()


def test_both_ways_of_falcon_to_compute_attention_are_read():
    eager, sdpa = (spread_out(falcon(attention, alibi=False)) for attention in ("eager", "sdpa"))
    one, other = (attsvm.inspect.inspect(model, words(), margins=False) for model in (eager, sdpa))
    assert (one.selected == other.selected).all()


@pytest.mark.parametrize("case", CASES)
def test_weights_in_half_precision(case):
    make, batch = CASES[case]
    batch = {name: part.bfloat16() if part.is_floating_point() else part for name, part in batch.items()}
    inspection = attsvm.inspect.inspect(spread_out(make()).bfloat16(), batch, margins=False)
    assert inspection.rebuilt_error.max() < 4 * torch.finfo(torch.bfloat16).eps
    assert (inspection.source.layers[0].recipe is None) == (case in WITHOUT_WEIGHTS)


class TwoModels(nn.Module):
    """Two models of the same words, the second one only on request."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, both=True, parts=False, **batch):
        found = self.first(**batch)
        if parts:  # as a block that does the work of its attention module itself
            self.second.encoder.layer[0].attention.self.query(found[0])
        return found, self.second(**batch) if torch.as_tensor(both).any() else None


def test_every_layer_that_runs_is_read_or_the_model_is_refused(monkeypatch):
    """Attention that is neither read nor part of what is read, and a module that runs for several layers."""
    model = TwoModels(bert(), like_bert("Yoso"))
    unread = r"expected attention of a known family \(ALBERT, .*\), got YosoAttention, YosoSelfAttention; family= can"
    refused(unread, model, words())
    refused(unread, like_bert("Yoso"), words())
    assert len(attention_layers(model, "BERT")) == 2
    found = attsvm.inspect.inspect(model, words() | {"both": False}, margins=False)
    assert found.layer_names[:2] == [f"first.encoder.layer.{k}.attention.self" for k in range(2)]
    assert found.not_run == found.layer_names[2:]
    assert all(name.startswith("second.") for name in found.not_run)
    alone = attsvm.inspect.inspect(model.first, words(), margins=False)
    assert (found.selected == alone.selected).all()
    refused(unread, model, words() | {"both": False, "parts": True})
    with monkeypatch.context() as patch:
        patch.setattr("attsvm.inspect.model_calls.CHUNK_LOGITS", 1)  # a sequence in each call
        refused(unread, model, words() | {"both": torch.tensor([False, False, True])})
    model = bert()
    model.encoder.layer[1] = model.encoder.layer[0]
    refused("expected one call of .*attention.self per pass, got several", model, words())


def test_layers_whose_weights_are_no_matrix_are_inspected_without_w():
    model = spread_out(bert())
    expected = attsvm.inspect.inspect(model, words(), margins=False)
    for module in model.modules():
        if isinstance(module, nn.Linear):  # as quantised layers hold it
            module.forward, module.weight = partial(functional.linear, weight=module.weight, bias=module.bias), None
    found = attsvm.inspect.inspect(model, words(), margins=False)
    assert (found.selected == expected.selected).all()
    assert np.isnan(found.numbers["effective_rank"]).all()
    with pytest.raises(attsvm.ProblemError, match="make the queries and keys of encoder"):
        found.reading_directions(0, 0)


class Scaled(Gpt2):
    """A family that reads another attention than that of its model."""

    def call(self, module, arguments, output, seen):
        return seen._replace(scale=2 * seen.scale)


def test_attention_that_depends_on_something_else_is_refused():
    refused("h.0.attn: its attention differs .* by 0", spread_out(gpt2()), words(), family=Scaled)


def test_a_sink_takes_its_share_of_the_attention():
    """Shares are of the whole; the effective number of tokens is of what the tokens have."""
    model = spread_out(CASES["gpt-oss, with sinks"][0]())
    [layer, _] = own_attention(model, words())
    found = attsvm.inspect.inspect(model, words(), heads=[(0, 1)], margins=False)
    p = layer[:, 1][words()["attention_mask"] > 0].astype(float)
    p = p[(p > 0).sum(-1) > 1]
    assert p.sum(-1).min() < 0.9
    assert found.numbers["largest_probability"][0] == pytest.approx(p.max(-1).mean(), rel=1e-5)
    p /= p.sum(-1, keepdims=True)
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(-1)
    assert found.numbers["effective_tokens"][0] == pytest.approx(np.exp(entropy).mean(), rel=1e-5)


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
    for pictured, part in ((False, model.text_model), (True, model.vision_model)):
        assert tower(model, pictures=pictured) is part
        one = attsvm.inspect.inspect(part, pictures() if pictured else words(), margins=False)
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


@pytest.mark.parametrize("rank", [6, None], ids=["queries from latent vectors", "queries from tokens"])
def test_w_of_latent_attention_is_that_of_the_coordinates_without_rotation(rank):
    """Logits of DeepSeek-V3 by hand: W, the scales of both latent norms, and the rotated coordinates."""
    model = spread_out(deepseek(rank))
    batch = {"input_ids": words()["input_ids"]}
    found = attsvm.inspect.inspect(model, batch, margins=False)
    source, module = found.source, model.layers[0].self_attn
    layer = source.captured(0)
    assert found.available() == (
        "of coordinates without rotation, without the norms", False, False, False
    )  # fmt: skip
    assert found.rebuilt_error.max() < CLOSE
    tokens = torch.as_tensor(layer.tokens, dtype=torch.float32)
    latent = module.kv_a_proj_with_mqa(tokens)[..., :6]
    norms = [module.kv_a_layernorm] + ([] if rank is None else [module.q_a_layernorm])
    latents = [latent] + ([] if rank is None else [module.q_a_proj(tokens)])
    scales = [
        (one.square().mean(-1) + norm.variance_epsilon).rsqrt().detach().numpy()
        for one, norm in zip(latents, norms, strict=True)
    ]
    of_queries = 1.0 if rank is None else scales[1]
    for head in range(4):
        parts = layer.projections
        W = parts.key[head] @ parts.query[head].T
        ours = np.einsum("btd,de,bqe->bqt", layer.tokens, W, layer.tokens) * scales[0][:, None]
        keys, queries = layer.given
        theirs = queries[:, head, :, :2] @ keys[:, head, :, :2].mT
        np.testing.assert_allclose(ours * np.broadcast_to(of_queries, scales[0].shape)[..., None], theirs, atol=1e-5)


NORMS = {"rope_parameters": NEOX, "pad_token_id": 0}


@pytest.mark.parametrize(
    ("name", "options"),
    [("Phi", NORMS | {"qk_layernorm": True}), ("Persimmon", NORMS), ("Cohere", SHARED | {"use_qk_norm": True})],
)
def test_w_is_not_known_behind_norms_that_do_more_than_scale_coordinates(name, options):
    """LayerNorm subtracts a mean and adds a bias, Cohere's norms have gains for each head: they are no gains of W."""
    found = attsvm.inspect.inspect(spread_out(like_bert(name, **options)), words(), margins=False)
    assert found.available().weights == "not known"
    assert np.isnan(found.measure("effective_rank")).all()
    assert found.rebuilt_error.max() < CLOSE


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


class Turned(Block):
    """Queries and keys that no linear layer makes."""

    def forward(self, x):
        return super().forward(x.sin())


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", [Block, Turned])
def test_modules_named_by_a_layout(fused, kind):
    model = spread_out(nn.Sequential(nn.LayerNorm(16), kind(fused)))
    x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(5))
    inspection = attsvm.inspect.inspect(model, x, family=attsvm.inspect.Layout("1"))
    assert inspection.rotary == (kind is Turned)
    for head in inspection.heads:
        assert head.rebuilt_error < CLOSE
        assert (head.numbers["effective_rank"] is None) == (kind is Turned)
        assert (head.selected <= np.arange(6)).all()


def test_the_star_of_a_layout_matches_no_dot():
    model = nn.Module()
    model.layers = nn.ModuleList([Block(True), Block(True)])
    found = attention_layers(model, attsvm.inspect.Layout("layers.*"))
    assert [layer.name for layer in found] == ["layers.0", "layers.1"]
    compiled = attention_layers(torch.compile(model), attsvm.inspect.Layout("layers.*"))
    assert [layer.module for layer in compiled] == [layer.module for layer in found], "as param_groups_of finds them"
    model.layers[0] = torch.compile(model.layers[0])
    assert len(attention_layers(model, attsvm.inspect.Layout("layers.*"))) == 2


def test_a_model_that_replaces_its_attention_for_a_batch_says_so():
    model, x = Encoder(), torch.zeros(2, 6, 16)

    def replace(*_):
        for name, module in list(model.named_modules()):
            if isinstance(module, nn.MultiheadAttention):
                model.set_submodule(name, nn.MultiheadAttention(16, module.num_heads, batch_first=True))

    model.register_forward_pre_hook(replace)
    refused("the model replaced it by a MultiheadAttention: inspect it again", model, x)


def refused(match, model, batch, **options):
    with pytest.raises(attsvm.ProblemError, match=match) as error:
        attsvm.inspect.inspect(model, batch, **options)
    assert "\n" not in str(error.value)


def test_what_cannot_be_inspected_is_refused_in_one_line():
    x, layout = torch.zeros(2, 6, 16), attsvm.inspect.Layout("0")
    own = r"; family=attsvm\.inspect\.Layout\(\.\.\.\) can name your own modules$"
    refused(r"Linear has no attention layer of a known family \(ALBERT, BLOOM, .*" + own, nn.Linear(16, 16), x)
    refused(r"has no attention layer that Layout\(modules='0'\) matches", nn.Linear(16, 16), x, family=layout)
    refused("Linear does not call scaled_dot_product", nn.Sequential(nn.Linear(16, 16)), x, family=layout)
    refused("expected at least one token", Encoder(), x[:0])
    refused('without tensors; tokenizers make tensors with return_tensors="pt"', Encoder(), {"input_ids": [[1, 2]]})
    refused("does not accept it", Encoder(), x[..., :5])
    refused("expected a torch.nn.Module, got str", "bert", x)
    refused("2 layers", Encoder(), x, heads=[(2, 0)])
    refused("4 heads", Encoder(), x, heads=[(0, 4)])
    refused("head: expected an integer >= 0, got -1", Encoder(), x, heads=[(0, -1), (0, 0)])
    refused("family: expected a Family or a subclass of it, got int", nn.Linear(2, 2), x, family=3)
    refused("family: expected a name .*got 'Yoso'. The names are ALBERT, ", nn.Linear(2, 2), x, family="Yoso")
    refused("Family cannot be created.*matches", nn.Linear(2, 2), x, family=Family)


def test_patterns_are_not_reported_for_a_decoder_that_reads_other_tokens_of_the_same_shape():
    model, batch = t5(), words()
    tokens = batch["input_ids"]
    tokens[:, 3] = tokens[:, 0]

    def known(decoded):
        inspection = attsvm.inspect.inspect(model, batch | {"decoder_input_ids": decoded}, margins=False)
        return np.isfinite(inspection.measure("duplicate_share")[:, 0]).tolist()

    # two layers of the encoder; then self-attention and cross-attention in turn
    assert known(tokens) == [True, True, True, False, True, False]
    assert known(tokens[:, :5]) == [True, True, False, False, False, False]
    assert not any(known(tokens.flip(1)))


def test_biases_of_positions_are_a_part_of_the_weights():
    """The Att-SVM of T5 has one-hot positions beside its tokens; without the biases the attention is another one."""
    model = spread_out(t5("T5Encoder"))
    (layer, _) = capture(model, words(), attention_layers(model), Sampler(4096, 3, 0))
    assert not layer.shares_tokens
    problem, plain = layer.head(1), replace(layer, bias=None).head(1)
    assert problem.keys.shape[-1] == plain.keys.shape[-1] + 7
    difference = problem.logits() - plain.logits()
    assert np.allclose(difference, layer.bias[:, 1], atol=1e-12)
    assert np.abs(difference - difference[..., :1]).max() > 0.1
    assert attsvm.inspect.inspect(model, words(), margins=False).biased
    assert not attsvm.inspect.inspect(spread_out(bert()), words(), margins=False).biased


def test_a_mask_may_add_to_the_logits_of_some_sequences_alone(monkeypatch):
    model, ids = spread_out(bert()), words()["input_ids"]
    mask = torch.zeros(3, 1, 7, 7)
    mask[1] = torch.randn(7, 7, generator=torch.Generator().manual_seed(3))
    batch = {"input_ids": ids, "attention_mask": mask}
    whole = attsvm.inspect.inspect(model, batch, margins=False)
    monkeypatch.setattr("attsvm.inspect.model_calls.CHUNK_LOGITS", 1)  # a sequence in each call
    found = attsvm.inspect.inspect(model, batch, margins=False)
    assert found.biased
    first, other = (one.source.captured(0) for one in (found, whole))
    np.testing.assert_allclose(first.bias, np.broadcast_to(mask.double().numpy(), (3, 4, 7, 7)), atol=1e-12)
    np.testing.assert_allclose(first.probabilities(1), other.probabilities(1), atol=1e-6)


def test_additive_masks_of_torch_are_biases_of_positions():
    module = spread_out(nn.MultiheadAttention(8, 2, batch_first=True))
    generator = torch.Generator().manual_seed(4)
    x, mask = torch.randn(1, 4, 8, generator=generator), torch.randn(4, 4, generator=generator)
    found = attsvm.inspect.inspect(module, {"query": x, "key": x, "value": x, "attn_mask": mask}, margins=False)
    assert found.biased
    assert found.rebuilt_error.max() < CLOSE


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
