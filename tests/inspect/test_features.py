"""Features of an autoencoder and probes, as origins and in edits, against splits by hand and planted directions."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402
from scipy.optimize import nnls  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm.inspect import Features  # noqa: E402
from oracles.attention_only import AttentionOnly  # noqa: E402

TOKENS = torch.randint(50, (3, 9), generator=torch.Generator().manual_seed(1))
RNG = np.random.default_rng(0)


def inspected():
    """GPT-2 in float64, with weights far from even attention."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=50, n_embd=24, n_head=4, n_layer=2, initializer_range=0.4)
    model = transformers.GPT2Model(config).double().eval()
    return model, attsvm.inspect.inspect(model, {"input_ids": TOKENS}, margins=False)


def test_features_and_error_add_up_and_the_largest_of_all_pairs_are_named():
    """Against every pair of 60 features, by hand from the hidden states of GPT-2."""
    model, inspection = inspected()
    vectors, bias = torch.tensor(RNG.normal(size=(60, 24))), torch.tensor(RNG.normal(size=24))

    def encode(stream):
        return torch.relu((stream - bias) @ vectors.T / 24 - 0.1)

    names = [f"probe {k}" for k in range(60)]
    explanation = inspection.explain(1, [1, 3], origins=Features(vectors, encode, bias, names, pairs=6))
    assert explanation.error < 1e-10
    assert explanation.margin == pytest.approx(inspection.explain(1, [1, 3]).margin)
    assert explanation.shares().sum() == pytest.approx(1)
    assert [*explanation.groups][-3:] == ["other features", "biases", "error"]
    assert len(explanation.features) <= 19

    with torch.no_grad():
        x = model(TOKENS, output_hidden_states=True).hidden_states[1]
        active, block = encode(x), model.h[1]
        rebuilt = active @ vectors
        parts = [*torch.einsum("ita,ad->aitd", active, vectors), bias.expand_as(x), x - rebuilt - bias]
        assert sum(parts).numpy() == pytest.approx(x.numpy())
        deviation = (x.var(-1, unbiased=False, keepdim=True) + block.ln_1.eps).sqrt()
        parts = torch.stack([(p - p.mean(-1, keepdim=True)) / deviation * block.ln_1.weight for p in parts]).numpy()
    means = parts.reshape(62, -1, 24).mean(1)
    parts = np.concatenate([parts - means[:, None, None], np.broadcast_to(means.sum(0), (1, 3, 9, 24))])
    weight, total = block.attn.c_attn.weight.detach().numpy(), 0.0
    for head, split in zip((1, 3), explanation.splits, strict=True):
        own = slice(6 * head, 6 * head + 6)
        queries, keys = parts @ weight[:, :24][:, own], parts @ weight[:, 24:48][:, own]
        for i, q in np.argwhere(split.selected >= 0):
            difference = keys[:, i, split.selected[i, q]] - keys[:, i, split.runner_up[i, q]]
            total = total + queries[:, i, q] @ difference.T / 6**0.5
    shares, every = total / total.sum(), [*names, "biases", "error", "constant"]
    largest = np.argsort(-np.abs(shares), axis=None)
    theirs = [(every[at // 63], every[at % 63], shares.flat[at]) for at in largest]
    of_two = [pair for pair in theirs if pair[0] in names and pair[1] in names][:6]
    theirs = of_two + [pair for pair in theirs if pair[0] in names or pair[1] in names][:6]
    ours = {(pair.query, pair.key): pair.share for pair in explanation.pairs(None)}
    for query, key, share in theirs:
        assert ours[query, key] == pytest.approx(share, abs=1e-10)

    left = explanation.error_terms()
    assert left.share == pytest.approx(1 - np.delete(np.delete(shares, 61, 0), 61, 1).sum(), abs=1e-10)
    assert 0 <= left.kept <= 1
    assert explanation.error_variance > 0.01
    assert "of the decisions remain without it" in str(explanation)


def planted():
    """A layer whose queries read one direction of the stream, "plural nouns", and whose keys another, "determiners"."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=50, n_embd=24, n_head=4, n_layer=1, initializer_range=0.1)
    model = transformers.GPT2Model(config).double().eval()
    basis = torch.randn(24, 20).double()
    basis = torch.linalg.qr(basis - basis.mean(0))[0].T  # directions that the norm reads
    with torch.no_grad():
        model.wpe.weight.zero_()
        model.wte.weight[10:20] += 2 * basis[0]
        model.wte.weight[20:30] += 2 * basis[1]
        model.h[0].attn.c_attn.weight[:, 6] = 2 * basis[0]  # head 1
        model.h[0].attn.c_attn.weight[:, 30] = 2 * basis[1]
        # on average the queries prefer no token
        model.h[0].attn.c_attn.bias[6] = -2 * (model.h[0].ln_1(model.wte.weight) @ basis[0]).mean()
    return model, basis


@pytest.mark.parametrize("encoded", [True, False])
def test_planted_directions_are_named(encoded):
    model, basis = planted()
    inspection = attsvm.inspect.inspect(model, {"input_ids": torch.randint(50, (20, 9))}, margins=False)
    vectors = torch.cat([basis, -basis])
    names = ["plural nouns", "determiners", *(f"feature {k}" for k in range(2, 40))]
    given = dict(zip(names[:2], basis, strict=False))
    if encoded:
        given = Features(vectors, lambda stream: torch.relu(stream @ vectors.T), names=names, pairs=3)
    explanation = inspection.explain(0, 1, origins=given)
    best = explanation.pairs(1)[0]
    assert (best.query, best.key) == ("plural nouns", "determiners")
    assert best.share > 0.5
    if encoded:
        assert "the features do not explain these heads" not in str(explanation)
        few = Features(vectors[2:], lambda stream: torch.relu(stream @ vectors[2:].T))
        assert "the features do not explain these heads" in str(inspection.explain(0, 1, origins=few))


@pytest.mark.parametrize("change", ["keys", "queries"])
def test_an_edit_along_directions_is_the_smallest_in_their_span(change):
    """Against least squares with multipliers, from the hidden states of GPT-2."""
    model, inspection = inspected()
    probes = {"one": RNG.normal(size=24), "two": RNG.normal(size=24)}
    target = (0, 8, 3)
    edit = inspection.edit(1, 2, [target], along=probes, change=change)
    block = model.h[1]
    with torch.no_grad():
        x = block.ln_1(model(TOKENS, output_hidden_states=True).hidden_states[1])[0].numpy()
    gain, weight = block.ln_1.weight.detach().numpy(), block.attn.c_attn.weight.detach().numpy()
    read = np.linalg.qr((np.array([p - p.mean() for p in probes.values()]) * gain).T)[0]
    query, key = (weight[:, first : first + 6] for first in (12, 36))
    bias = block.attn.c_attn.bias.detach().numpy()
    asked, seen = x[8] @ query + bias[12:18], x @ key + bias[36:42]
    others = [t for t in range(9) if t != 3]
    if change == "keys":
        rows = np.array([np.outer((x[3] - x[t]) @ read, asked).ravel() / 6**0.5 for t in others])
    else:
        rows = np.array([np.outer(x[8] @ read, seen[3] - seen[t]).ravel() / 6**0.5 for t in others])
    wanted = np.log(8 * 9) - np.array([(seen[3] - seen[t]) @ asked / 6**0.5 for t in others])
    # min ‖c‖ over Rc ≥ h (Lawson and Hanson, chapter 23)
    system = np.vstack([rows.T, wanted])
    residual = system @ nnls(system, np.eye(len(system))[-1])[0] - np.eye(len(system))[-1]
    least = -residual[:-1] / residual[-1]
    np.testing.assert_allclose(edit.weights[:24], read @ least.reshape(2, 6), atol=1e-6 * np.abs(least).max())
    assert edit.norm > inspection.edit(1, 2, [target], change=change).norm
    assert edit.value == pytest.approx(edit.norm)
    after = attsvm.inspect.inspect(edit.edited(model), {"input_ids": TOKENS}, margins=False)
    assert after.heads[6].selected[0, 8] == 3
    both = edit.reads({"both": np.array([*probes.values()]), "other": RNG.normal(size=24)})
    assert [*both] == ["both", "other"]
    assert both["both"] == pytest.approx(1)
    if change == "keys":
        kept = inspection.edit(1, 2, [target], along=probes, keep={"input_ids": TOKENS})
        assert kept.reads({"both": np.array([*probes.values()])})["both"] == pytest.approx(1)
        assert kept.value < np.inf


def test_what_fits_no_stream_is_refused_by_name():
    _, inspection = inspected()
    vectors = torch.randn(30, 24, dtype=torch.float64)
    for arguments, words in (
        ({"names": ["a", "b"] * 15}, "names: expected different names, got 'a' twice"),
        ({"names": ["a"]}, "names: expected 30, one for each vector, got 1"),
        ({"bias": np.zeros(3)}, r"bias: expected shape \(24,\), got \(3,\)"),
        ({"pairs": 0}, "pairs: expected an integer >= 1"),
    ):
        with pytest.raises(attsvm.ProblemError, match=words):
            Features(vectors, lambda stream: stream, **arguments)

    def features(k=30, d=24, encode=None, names=None):
        return Features(vectors[:k, :d], encode or (lambda stream: stream @ vectors[:k].T), names=names)

    hostile = ["error", "constant", "MLP 0", "other features", "a\nb", "\x1b[31mred", " "]
    for origins, words in (
        (features(d=20), r"origins\['feature 0'\]: expected finite vectors .* with d = 24, got shape \(20,\)"),
        (features(encode=lambda stream: stream), r"encode: .* activations of shape \(1, 9, 30\), got \(1, 9, 24\)"),
        (features(encode=lambda stream: torch.full((1, 9, 30), torch.nan)), "encode: expected finite activations"),
        ([np.ones(24)], "origins: expected vectors by their names, or Features, got list"),
        *((features(1, names=[name]), "give it another name|printed in one line") for name in hostile),
        *(({name: np.ones(24)}, "give it another name|printed in one line") for name in hostile),
    ):
        with pytest.raises(attsvm.ProblemError, match=words):
            inspection.explain(1, 2, origins=origins)
    with pytest.raises(attsvm.ProblemError, match="because only these can be resampled, got 'feature"):
        inspection.explain(1, 2, origins=features()).test({"input_ids": TOKENS})
    with pytest.raises(attsvm.ProblemError, match=r"along\['ones'\]: expected finite vectors"):
        inspection.edit(1, 2, [(0, 8, 3)], along={"ones": np.ones(3)})
    with pytest.raises(attsvm.ProblemError, match="along: expected a direction that the layer reads"):
        inspection.edit(1, 2, [(0, 8, 3)], along={"ones": np.ones(24)})
    rotary = AttentionOnly(rotary=True).double()
    found = attsvm.inspect.inspect(rotary, {"input_ids": TOKENS}, margins=False)
    wide = torch.eye(found.source.captured(0).tokens.shape[-1]).double()
    with pytest.raises(attsvm.ProblemError, match=r"without rotary positions .* as a mapping"):
        found.explain(0, 0, origins=Features(wide, lambda stream: stream))
