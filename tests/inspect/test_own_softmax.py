"""Attention of modules that compute their softmax themselves, against what the models return, and by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import attsvm
import attsvm.torch
from attsvm.inspect.capture import Sampler, capture
from attsvm.inspect.layers import attention_layers

transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

from small_models import SMALL, like_bert, small, spread_out, words  # noqa: E402

SIDES = {f"{side}_{what}": size for side in ("encoder", "decoder")
         for what, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 32))}  # fmt: skip
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 8}
DECODED = {"decoder_input_ids": words(seed=2)["input_ids"][:, :5]}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SHARED = {"position_buckets": 4, "share_att_key": True}
NEO = {"hidden_size": 24, "num_layers": 2, "num_heads": 4, "intermediate_size": 32, "window_size": 3,
       "attention_types": [[["global", "local"], 1]]}  # fmt: skip
XLNET = {"d_model": 24, "n_head": 4, "n_layer": 2, "d_inner": 32, "d_head": 6}

ON_TOKENS, BEFORE = "acts on tokens", "before the rotation"

# model, arguments beside the words, what W is, and whether there are biases, of positions or of tokens as well
CASES = {
    "mpnet": (lambda: like_bert("MPNet"), {}, ON_TOKENS, "positions"),
    "deberta": (lambda: like_bert("Deberta", **RELATIVE), {}, ON_TOKENS, "tokens"),
    "deberta without positions": (lambda: like_bert("Deberta"), {}, ON_TOKENS, None),
    "deberta v2": (lambda: like_bert("DebertaV2", **RELATIVE), {}, ON_TOKENS, "tokens"),
    "deberta v3": (lambda: like_bert("DebertaV2", **RELATIVE, **SHARED), {}, ON_TOKENS, "tokens"),
    "gpt-neo, with a window": (lambda: small("GPTNeo", **NEO), {}, ON_TOKENS, None),
    "roformer": (lambda: like_bert("RoFormer", embedding_size=24), {}, BEFORE, None),
    "roformer, rotary values": (lambda: like_bert("RoFormer", embedding_size=24, rotary_value=True), {}, BEFORE, None),
    "xlnet": (lambda: small("XLNet", **XLNET), {}, ON_TOKENS, "tokens"),
    "gpt": (lambda: small("OpenAIGPT", n_embd=24, n_head=4, n_layer=2), {}, ON_TOKENS, None),
    "xglm": (lambda: small("XGLM", d_model=24, ffn_dim=32, num_layers=2, attention_heads=4), {}, ON_TOKENS, None),
    "mvp": (lambda: small("Mvp", d_model=24, **SIDES, **SPECIAL), DECODED, ON_TOKENS, None),
    "luke": (lambda: like_bert("Luke", entity_vocab_size=8), {}, ON_TOKENS, None),
    "gpt-neox japanese": (lambda: like_bert("GPTNeoXJapanese"), {}, BEFORE, None),
    "albert": (lambda: like_bert("Albert", embedding_size=8), {}, ON_TOKENS, None),
}


GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "inspect.md").read_text()


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def made(case):
    make, more, *_ = CASES[case]
    return spread_out(make()), words() | more


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_attention_is_that_which_the_model_returns(case, double):
    model, batch = made(case)
    if double and case == "xglm":
        pytest.skip("the model itself fails in double precision")
    if case == "albert":
        model.set_attn_implementation("eager")
    model = model.double() if double else model
    close = 1e-10 if double and "neo" not in case else 1e-5  # GPT-Neo computes its logits in single precision
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    theirs = output.attentions if "attentions" in output else [*output.encoder_attentions]
    if "decoder_attentions" in output:
        theirs += [one for pair in zip(output.decoder_attentions, output.cross_attentions, strict=True) for one in pair]
    layers = list(capture(model, batch, attention_layers(model), Sampler(4096, 3, 0)))
    assert len(layers) == len(theirs) > 1
    for layer, attention in zip(layers, theirs, strict=True):
        there = layer.positions >= 0
        assert there.sum() == (15 if len(layers) > 2 and attention.shape[2] == 5 else batch["attention_mask"].sum())
        for head in range(4):
            at = np.maximum(layer.positions, 0)[..., None]
            picked = np.take_along_axis(attention[:, head].numpy(), at, axis=1)
            assert np.abs(layer.probabilities(head) - picked)[there].max() < close
            assert layer.rebuilt_error[head] < close
            logits = np.where(layer.allowed, layer.head(head).logits(), -np.inf)
            assert (logits.argmax(-1) == picked.argmax(-1))[there].all()
        assert layer.probabilities(1)[there].max() > 0.4, "nothing is shown where attention is even"


@pytest.mark.parametrize("case", CASES)
def test_what_is_known_of_it(case):
    model, batch = made(case)
    *_, weights, biases = CASES[case]
    found = attsvm.inspect.inspect(model, batch, heads=[(0, 1), (1, 0)], margins=case in ("xlnet", "deberta"))
    known = found.available()._replace(reasons=found.available(1).reasons)
    assert known.weights == weights
    assert found.biased == (biases is not None)
    assert known.factors == (weights == ON_TOKENS and biases is None)
    assert known.keys == (biases != "tokens")
    assert known.reasons == (case not in ("luke", "xlnet"))
    name = type(model).__name__.removesuffix("Model") + (" without positions" if "without" in case else "")
    marks = " | ".join("yes" if one else "no" for one in known[1:])
    rows = [row for row in GUIDE.splitlines() if row.endswith(f" | {weights} | {marks} |")]
    names = [one for row in rows for one in row.split(" | ")[0].removeprefix("| ").split(", ")]
    assert name in names, f"the guide does not list {name} as {known}"
    assert np.isfinite(found.numbers["effective_rank"]).all()
    # changes of a query change biases that depend on it, so that its smallest change is not known
    assert np.isfinite(found.numbers["query_robustness"]).all() == (biases != "tokens")
    if biases == "tokens":
        with pytest.raises(attsvm.ProblemError, match="has biases that depend on its tokens"):
            found.robustness(0, 1)
    if known.reasons:
        explanation = found.explain(1, [0])
        assert explanation.error < 1e-4
        assert {"head 0.0", "head 0.3", "MLP 0"} <= {*explanation.splits[0].origins}
        assert (explanation.terms().biases != 0) == (biases is not None)
    else:
        with pytest.raises(attsvm.ProblemError, match="its residual stream is not known behind its function"):
            found.explain(1, [0])
    for head in found.heads if found.margins is not None else ():
        assert 0 < head.margin.lower <= head.margin.upper <= 1 + 1e-9


def test_weights_of_deberta_are_those_of_its_content():
    """Logits of the tokens by hand, from W alone; the rest of them are biases."""
    model, batch = made("deberta")
    layer = next(capture(model, batch, attention_layers(model), Sampler(4096, 3, 0)))
    module, parts, x = model.encoder.layer[0].attention.self, layer.projections, torch.tensor(layer.tokens).float()
    query, key, _ = module.transpose_for_scores(module.in_proj(x)).chunk(3, dim=-1)
    query = query + module.transpose_for_scores(module.q_bias[None, None])
    content = (query @ key.mT / math.sqrt(6 * 3)).detach().numpy()
    for head in range(4):
        of_queries = layer.queries @ parts.query[head] + parts.query_bias[head]
        ours = parts.scale * of_queries @ (layer.tokens @ parts.key[head]).mT
        assert np.abs(ours - content[:, head])[layer.allowed].max() < 1e-5
        assert np.abs(layer.logits(head) - ours - layer.bias[:, head])[layer.allowed].max() < 1e-12


def wavlm():
    config = transformers.WavLMConfig(
        vocab_size=20, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, conv_dim=[8, 8], conv_kernel=[4, 4],
        conv_stride=[4, 4], num_feat_extract_layers=2, num_buckets=8, max_distance=16, feat_extract_norm="layer",
        **SMALL,
    )  # fmt: skip
    return spread_out(transformers.WavLMModel(config))


def test_heads_of_wavlm_have_the_mean_that_it_returns():
    model, sounds = wavlm(), torch.randn(2, 160, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        theirs = model(sounds, output_attentions=True).attentions
    found = attsvm.inspect.inspect(model, {"input_values": sounds}, margins=False)
    assert found.biased
    assert found.rebuilt_error.max() < 1e-5
    assert not found.available().keys
    origins = ["constant", "position", "embedding", "attention 0", "MLP 0", "biases of positions and tokens"]
    assert [*found.explain(1, 2).groups] == origins
    for index, mean in enumerate(theirs):
        ours = np.mean([found.source.captured(index).probabilities(head) for head in range(4)], axis=0)
        assert np.abs(ours - mean[:, 0].numpy()).max() < 1e-5


def test_sinks_of_granite_take_their_share():
    options = {
        "num_key_value_heads": 2,
        "sliding_window": 3,
        "pad_token_id": 0,
        "layer_types": ["sliding_attention"] * 2,
    }
    model = spread_out(like_bert("GraniteSWA", **options))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        theirs = model(**words(), output_attentions=True).attentions[0]
    found = attsvm.inspect.inspect(model, words(), margins=False)
    assert found.rebuilt_error.max() < 1e-5
    layer, sinks = found.source.captured(0), model.layers[0].self_attn.sinks.detach().numpy()
    for head in range(4):
        total = np.logaddexp.reduce(np.where(layer.allowed, layer.logits(head), -np.inf), axis=-1)
        share = 1 / (1 + np.exp(sinks[head] - total))
        expected = theirs[:, head].numpy() * share[..., None]
        assert np.abs(layer.probabilities(head) - expected)[layer.positions >= 0].max() < 1e-5
        assert share[layer.positions >= 0].min() < 0.9


def test_layers_that_share_a_module_are_read_one_by_one():
    model = spread_out(like_bert("Albert", embedding_size=8))
    found = attsvm.inspect.inspect(model, words(), margins=False)
    assert len(found.heads) == 8
    assert [name.rpartition(" (")[2] for name in found.layer_names] == ["run 0)", "run 1)"]
    assert not np.array_equal(found.selected[:4], found.selected[4:])
    with pytest.raises(attsvm.ProblemError, match="shares its weights with other layers"):
        found.edit(0, 1, [(0, 1, 0)])
    unequal = like_bert("Albert", embedding_size=8, num_hidden_groups=2)
    unequal.config.num_hidden_layers = 5
    with pytest.raises(attsvm.ProblemError, match="groups of ALBERT of equal size, got 5 layers in 2 groups"):
        attsvm.inspect.inspect(unequal, words(), margins=False)


def test_edits_reach_the_weights_of_gpt_neo_and_are_refused_where_biases_follow_them():
    model, batch = made("gpt-neo, with a window")
    found = attsvm.inspect.inspect(model, batch, margins=False)
    edit = found.edit(0, 1, [(0, 4, 2)])
    assert edit.status == "optimal"
    with edit.apply(model):
        again = attsvm.inspect.inspect(model, batch, margins=False)
    assert again.selected[1, 0, 4] == 2
    for case in ("deberta", "deberta v3"):
        model, batch = made(case)
        with pytest.raises(attsvm.ProblemError, match="biases that depend on its tokens, which edits do not support"):
            attsvm.inspect.inspect(model, batch, margins=False).edit(0, 1, [(0, 4, 2)])
    model, batch = made("deberta without positions")
    found = attsvm.inspect.inspect(model, batch, margins=False)
    with pytest.raises(attsvm.ProblemError, match="one that is made of other parameters"):
        found.edit(0, 1, [(0, 4, 2)], change="queries")


@pytest.mark.parametrize("case", ["mpnet", "deberta v3", "xlnet", "roformer", "albert"])
def test_a_training_is_monitored(case):
    model, batch = made(case)
    theirs = attsvm.inspect.inspect(model, batch, margins=False)
    model = without_dropout(model).train()
    monitor = attsvm.inspect.AttentionMonitor(model, every=1)
    model(**batch)
    monitor.step()
    [(_, measures)] = monitor.records
    assert monitor.heads == [f"{layer}.{head}" for layer in range(2) for head in range(4)]
    for name in ("largest_probability", "first_share"):
        np.testing.assert_allclose(measures[name], theirs.numbers[name], rtol=1e-3)


class OwnAttention(nn.Module):
    """One head, as in lectures; ``kind``: how its logits are changed on their way."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.query, self.key, self.value = kind, *(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x, cache=None):
        q, k, v = (one(x)[:, None] for one in (self.query, self.key, self.value))
        logits = q @ k.transpose(-2, -1) / 8**0.5
        T = x.shape[1]
        match self.kind:
            case "causal":
                logits = logits.masked_fill(torch.ones(T, T).tril() == 0, float("-inf"))
            case "cosine of logits":
                logits = logits.cos()
            case "gated":
                logits = logits + x[:, None, :, :1] * torch.arange(T)
            case "queries by their logits":  # as ProbSparse attention of Informer
                logits = q[:, :, logits.amax((0, 1, 3)).argsort()] @ k.transpose(-2, -1)
            case "two":
                v = v + logits.sin().softmax(-1) @ v
        return (logits.softmax(dim=-1) @ v)[:, 0]


def test_attention_of_your_own_is_read_or_refused():
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(3))
    plain, causal, gated = (
        attsvm.inspect.inspect(spread_out(nn.Sequential(OwnAttention(kind))), x, margins=False)
        for kind in ("plain", "causal", "gated")
    )
    assert all(one.rebuilt_error.max() < 1e-5 for one in (plain, causal, gated))
    assert (causal.selected <= np.arange(5)).all()
    assert plain.available() == (ON_TOKENS, True, True, True)
    assert gated.biased
    assert not gated.available().keys
    for kind in ("cosine of logits", "queries by their logits", "two"):
        with pytest.raises(attsvm.ProblemError, match=r"softmax of logits other than|one call of attention .* got 2;"):
            attsvm.inspect.inspect(spread_out(nn.Sequential(OwnAttention(kind))), x, margins=False)
    assert not [name for name in vars(x) if "attsvm" in name]


class Cache:
    """As those of hybrid models, which have layers without keys."""

    def __iter__(self):
        raise AttributeError


def test_caches_are_left_alone():
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(3))
    found = attsvm.inspect.inspect(spread_out(OwnAttention("causal")), {"x": x, "cache": Cache()}, margins=False)
    assert found.rebuilt_error.max() < 1e-5


def test_attention_in_blocks_is_refused_with_the_way_out():
    blocks = {"block_size": 2, "num_random_blocks": 1, "max_position_embeddings": 64}
    model, ids = like_bert("BigBird", **blocks), torch.arange(32)[None]
    with pytest.raises(attsvm.ProblemError, match=r"got 5; .* in blocks, .*attention_type='original_full'"):
        attsvm.inspect.inspect(model, {"input_ids": ids}, margins=False)
    model = like_bert("BigBird", **blocks, attention_type="original_full")
    assert attsvm.inspect.inspect(model, {"input_ids": ids}, margins=False).rebuilt_error.max() < 1e-5


def test_approximations_of_attention_are_refused():
    model = spread_out(like_bert("Nystromformer", segment_means_seq_len=6, num_landmarks=3))
    batch = {"input_ids": words()["input_ids"][:, :6]}
    with pytest.raises(attsvm.ProblemError, match=r"computes a softmax|expected one call|does not weight"):
        attsvm.inspect.inspect(model, batch, margins=False)
