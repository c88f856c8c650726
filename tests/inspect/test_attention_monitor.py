"""The attention monitor, against attention by hand; in a loop, in two trainers, and its files."""

import contextlib
import copy
import csv
import gc
import re

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402

import attsvm  # noqa: E402
from attsvm.inspect import AttentionMonitor, Layout  # noqa: E402
from attsvm.inspect.families import AttentionCall  # noqa: E402
from attsvm.inspect.families.call import read_call  # noqa: E402
from attsvm.inspect.padding import Padding  # noqa: E402
from attsvm.inspect.passes import OF_WEIGHTS, of_call  # noqa: E402
from attsvm.pages import read_records  # noqa: E402
from oracles.attention_only import AttentionOnly  # noqa: E402

NAMES = {"largest_logit", "largest_probability", "entropy", "first_share", "spectral_norm"} | {
    "frobenius_norm",
    "effective_rank",
}


def trained(monitor, model, steps, size=16, measures=lambda step: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randint(size, (3, 6))).square().mean().backward()
        optimizer.step()
        monitor.step(measures(monitor.steps))


def small_model():
    torch.manual_seed(0)
    return AttentionOnly(vocabulary=16, length=6, size=8, heads=2)


def test_the_repr_of_a_monitor_says_in_one_line_what_it_holds():
    model = small_model()
    with AttentionMonitor(model, every=2) as monitor:
        trained(monitor, model, 3)
        assert (
            repr(monitor)
            == "AttentionMonitor(AttentionOnly: 2 attention layers, every 2 steps; 2 records after 3 steps)"
        )


@pytest.mark.parametrize("kind", ["causal", "padding", "bias"])
def test_measures_of_a_call_are_those_of_a_loop(kind):
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(3, heads, 5, 4, generator=generator).double() * 3 for heads in (4, 2))
    mask = None
    if kind == "padding":
        mask = torch.ones(3, 1, 5, 5, dtype=torch.bool)
        mask[1, :, :, 3:] = False
        mask[2, :, 0] = False  # a query without tokens
    if kind == "bias":
        mask = torch.randn(1, 4, 5, 5, generator=generator).double()
    if kind == "causal":
        mask = torch.ones(5, 5, dtype=torch.bool).tril()
    call = AttentionCall(query, key, mask, 0.5)
    found = of_call(call, Padding().places(call, mask, True))[0].numpy()
    for head in range(4):
        logits, probabilities = [], []
        for i in range(3):
            for q in range(5):
                row = 0.5 * key[i, head // 2].numpy() @ query[i, head, q].numpy()
                allowed = np.ones(5, bool)
                if kind == "causal":
                    allowed = np.arange(5) <= q
                elif kind == "padding":
                    allowed = mask[i, 0, q].numpy()
                else:
                    row = row + mask[0, head, q].numpy()
                is_padding = kind == "padding" and i == 1 and q >= 3  # no query may attend to it
                if allowed.any() and not is_padding:
                    row = np.where(allowed, row, -np.inf)
                    logits.append(row.max())
                    if allowed.sum() > 1:
                        probabilities.append(np.exp(row - row.max()) / np.exp(row - row.max()).sum())
        p = np.array(probabilities)
        entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1).mean()
        expected = [max(logits), p.max(axis=1).mean(), entropy, p[:, 0].mean()]
        np.testing.assert_allclose(found[:, head], expected, rtol=1e-5, atol=1e-7)


def test_padding_changes_no_measure():
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 8}
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(vocab_size=16, hidden_dropout_prob=0.0,
                                                           attention_probs_dropout_prob=0.0, **sizes))  # fmt: skip
    tokens, records = torch.randint(1, 16, (2, 5)), []
    for width in (5, 9):
        padded = torch.nn.functional.pad(tokens, (0, width - 5))
        with AttentionMonitor(model.train(), every=1) as monitor:
            model(input_ids=padded, attention_mask=(torch.arange(width) < 5).long().expand(2, -1))
            monitor.step()
        records.append(monitor.records[0][1])
    for name, values in records[0].items():
        np.testing.assert_allclose(records[1][name], values, rtol=1e-5, err_msg=name)


def test_the_same_names_are_the_same_numbers_in_an_inspection():
    torch.manual_seed(0)
    dropout = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    config = transformers.GPT2Config(vocab_size=16, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5, **dropout)
    model, tokens = transformers.GPT2Model(config), torch.randint(16, (2, 5))
    batch = {"input_ids": tokens, "attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])}
    found = attsvm.inspect.inspect(model, batch, margins=False)
    for inputs in (batch, {"input_ids": tokens[:, :1]}):
        with AttentionMonitor(model.train(), every=1) as monitor:
            model(**inputs)
            monitor.step()
        [(_, record)] = monitor.records
        for name in ("largest_probability", "first_share", "effective_rank"):
            alone = inputs is not batch and name != "effective_rank"  # no query has a choice
            wanted = np.full(4, np.nan) if alone else found.measure(name).ravel()
            np.testing.assert_allclose(record[name], wanted, rtol=1e-5, err_msg=name)


SMALL = {"vocab_size": 16, "attn_implementation": "eager"}
BY_HAND = {
    "BLOOM": lambda: transformers.BloomModel(transformers.BloomConfig(hidden_size=12, n_head=3, n_layer=2, **SMALL)),
    "MPT": lambda: transformers.MptModel(transformers.MptConfig(d_model=12, n_heads=3, n_layers=2, **SMALL)),
    "MPT, clipped": lambda: transformers.MptModel(
        transformers.MptConfig(d_model=12, n_heads=3, n_layers=2, attn_config={"clip_qkv": 0.02}, **SMALL)
    ),
    "GPT-NeoX, eager": lambda: transformers.GPTNeoXModel(
        transformers.GPTNeoXConfig(
            hidden_size=24, num_attention_heads=3, num_hidden_layers=2, intermediate_size=8, rotary_pct=0.5, **SMALL
        )
    ),
}


def expected_record(own, logits, real):
    """The measures of the attention (b, H, Q, T) and the logits of each layer at the real queries (b, Q), by hand."""
    of_layers = []
    for probabilities, scores in zip(own, logits, strict=True):
        p = probabilities.detach().double().transpose(0, 1)[:, real]
        s = scores.detach().double().transpose(0, 1)[:, real]
        entropy = -torch.where(p > 0, p * p.clamp(min=1e-300).log(), 0.0).sum(-1)
        means = [of[(p > 0).sum(-1) > 1].reshape(len(p), -1).mean(1) for of in (p.amax(-1), entropy, p[..., 0])]
        of_layers.append([s.amax((1, 2)), *means])
    names = "largest_logit", "largest_probability", "entropy", "first_share"
    return {name: torch.cat(parts).numpy() for name, parts in zip(names, zip(*of_layers, strict=True), strict=True)}


def assert_recorded(monitor, expected):
    [(_, record)] = monitor.records
    for name, values in expected.items():
        np.testing.assert_allclose(record[name], values, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", BY_HAND)
def test_models_that_compute_attention_by_hand_are_recorded(name, monkeypatch):
    torch.manual_seed(0)
    model = BY_HAND[name]().train()
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    logits, softmax = {}, torch.nn.functional.softmax

    def kept(scores, *arguments, **types):
        logits[id(scores)] = scores  # PyTorch calls it twice, because the monitor looks at its calls
        return softmax(scores, *arguments, **types)

    monkeypatch.setattr(torch.nn.functional, "softmax", kept)
    with AttentionMonitor(model, every=1) as monitor:
        found = model(torch.randint(16, (2, 6)), attention_mask=mask, output_attentions=True)
        monitor.step()
    assert_recorded(monitor, expected_record(found.attentions, logits.values(), mask.bool()))


@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_of_torch_are_recorded_although_they_ask_for_no_weights(batch_first):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(12, 3, 8, dropout=0.0, batch_first=batch_first)
    model, tokens = torch.nn.TransformerEncoder(layer, 1).train(), torch.randn(4, 6, 12)
    padding = torch.arange(6) >= torch.tensor([6, 4, 6, 2])[:, None]
    with AttentionMonitor(model, every=1) as monitor:
        model(tokens if batch_first else tokens.transpose(0, 1), src_key_padding_mask=padding)
        monitor.step()
    attention = model.layers[0].self_attn
    query, key = (
        torch.nn.functional.linear(tokens, attention.in_proj_weight[at], attention.in_proj_bias[at])
        .unflatten(-1, (3, 4))
        .transpose(1, 2)
        for at in (slice(0, 12), slice(12, 24))
    )
    logits = (query @ key.mT / 2).masked_fill(padding[:, None, None], -torch.inf)
    assert_recorded(monitor, expected_record([logits.softmax(-1)], [logits], ~padding))


def by_kernel(seen):
    """Attention with the arguments of FlashAttention: heads before positions, and no mask but that of padding."""

    def attention(module, query, key, value, padding, scaling, sliding_window=None, **_):
        b, heads, T, _ = query.shape
        groups = heads // key.shape[1]
        logits = torch.full((b, heads, T, T), -torch.inf)
        for i, head, q, t in np.ndindex(b, heads, T, T):
            if 0 <= q - t < sliding_window and (padding is None or padding[i, t]):
                logits[i, head, q, t] = scaling * query[i, head, q].detach() @ key[i, head // groups, t].detach()
        probabilities = logits.softmax(-1).nan_to_num()
        seen.append((logits, probabilities))
        return (probabilities @ value.repeat_interleave(groups, 1)).transpose(1, 2), None

    return attention


def test_attention_functions_that_receive_no_mask_are_recorded_and_inspected(monkeypatch):
    interface, masks = transformers.AttentionInterface, transformers.AttentionMaskInterface
    seen = []
    for registry in (interface, masks):
        monkeypatch.setattr(registry, "_global_mapping", dict(registry._global_mapping))
    interface.register("by_kernel", by_kernel(seen))
    masks.register("by_kernel", transformers.masking_utils.flash_attention_mask)
    torch.manual_seed(0)
    config = transformers.MistralConfig(
        vocab_size=16, hidden_size=16, intermediate_size=8, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=3, initializer_range=0.5, attn_implementation="by_kernel",
    )  # fmt: skip
    model = transformers.MistralModel(config).train()
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
    batch = {"input_ids": torch.randint(16, (2, 7)), "attention_mask": mask}
    with AttentionMonitor(model, every=1) as monitor:
        model(**batch)
        monitor.step()
    own, calls = seen[:2], len(seen)
    assert_recorded(monitor, expected_record([p for _, p in own], [s for s, _ in own], mask.bool()))

    class Wrapped(torch.nn.Module):  # whose implementation of attention cannot be changed
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, **arguments):
            return self.inner(**arguments)

    found = attsvm.inspect.inspect(Wrapped(), batch, margins=False)
    assert len(seen) > calls
    assert max(head.rebuilt_error for head in found.heads) < 1e-5
    eager = attsvm.inspect.inspect(model, batch, margins=False)
    for one, other in zip(found.heads, eager.heads, strict=True):
        for name, value in one.numbers.items():
            assert (value is None) == (other.numbers[name] is None)
            assert value is None or value == pytest.approx(other.numbers[name], rel=1e-4, abs=1e-7), name
        np.testing.assert_array_equal(one.selected, other.selected)


def test_attention_that_a_function_of_a_user_steers_is_not_measured_as_if_it_did_not(monkeypatch):
    """Neither by the inspection, which would switch to the eager implementation, nor by the monitor."""
    interface = transformers.AttentionInterface
    monkeypatch.setattr(interface, "_global_mapping", dict(interface._global_mapping))
    how = {"factor": 100.0, "returns": True}

    def steered(module, query, key, value, mask, scaling, dropout=0.0, **_):
        logits = (query @ key.mT * scaling).masked_fill(
            torch.ones(query.shape[-2], key.shape[-2]).triu(1) > 0, -torch.inf
        )
        weights = logits.softmax(-1)
        weights = torch.cat([weights[..., :2], how["factor"] * weights[..., 2:3], weights[..., 3:]], dim=-1)
        weights = torch.nn.functional.dropout(weights / weights.sum(-1, keepdim=True), dropout, module.training)
        return (weights @ value).transpose(1, 2).contiguous(), weights if how["returns"] else None

    interface.register("steered", steered)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=4,
        initializer_range=0.5, attn_implementation="steered", attention_dropout=0.3,
    )  # fmt: skip
    model, batch = transformers.LlamaModel(config), {"input_ids": torch.randint(16, (2, 7))}

    def recorded(training_dropout):
        model.train().layers[0].self_attn.attention_dropout = training_dropout
        with AttentionMonitor(model, every=1) as monitor:
            model(**batch)
            monitor.step()
        return len(monitor.records)

    for how["returns"] in (True, False):  # its attention, or only what it makes of the values
        with pytest.raises(attsvm.ProblemError, match=r"layers.0.self_attn: its attention differs .* by \d"):
            attsvm.inspect.inspect(model, batch, margins=False)
        assert model.config._attn_implementation == "steered"
        with pytest.warns(
            RuntimeWarning,
            match=r"1 of 1 attention layer \(layers.0.self_attn\) did not attend as their queries, keys and mask imply",
        ):
            assert recorded(0.0) == 0
    how["returns"] = True
    with pytest.warns(RuntimeWarning, match="such as an attention function that changes it"):
        assert recorded(0.3) == 0
    how["factor"] = 1.0  # a function that computes what it should is read
    for how["returns"] in (True, False):
        assert attsvm.inspect.inspect(model, batch, margins=False).rebuilt_error.max() < 1e-5
        assert recorded(0.0) == recorded(0.3) == 1


@pytest.mark.parametrize("second", ["eager", None])
def test_every_model_inside_a_module_is_inspected_eagerly_and_keeps_its_implementations(second):
    """Then its attention is compared, also where the module around it has no configuration."""
    config = transformers.GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2, attn_implementation="sdpa")
    models = torch.nn.ModuleList([transformers.GPT2Model(config), transformers.GPT2Model(copy.deepcopy(config))])
    models[1].config._attn_implementation = second
    used = []

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.models = models

        def forward(self, input_ids):
            used.append([model.config._attn_implementation for model in models])
            return [model(input_ids) for model in models]

    found = attsvm.inspect.inspect(Two(), {"input_ids": torch.randint(16, (2, 6))}, margins=False)
    assert used == [["eager", "eager"]] * len(used)
    assert len(found.heads) == 4
    assert found.rebuilt_error.max() < 1e-5
    assert [model.config._attn_implementation for model in models] == ["sdpa", second]


def test_packed_sequences_and_other_masks_of_attention_functions():
    query, key = torch.zeros(1, 2, 5, 4), torch.zeros(1, 1, 5, 4)
    module = torch.nn.Module()
    positions = torch.tensor([[0, 1, 0, 1, 2]])
    packed = read_call(module, query, key, None, {"position_ids": positions, "scaling": 0.5}, eager=False)
    assert packed.mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]
    for positions in ([0, 1, 0, 0, 1], [0, 0, 0, 1, 2], [2, 3, 2, 2, 3]):  # documents of one token among them
        starts = np.cumsum([place == min(positions) for place in positions])
        options = {"position_ids": torch.tensor([positions])}
        packed = read_call(module, query, key, None, options, eager=False).mask[0, 0].numpy()
        assert (packed == (np.tri(5, dtype=bool) & (starts[:, None] == starts))).all()
    padded = read_call(
        module,
        query,
        key,
        torch.tensor([[0, 0, 1, 1, 1]]),
        {"position_ids": torch.tensor([[0, 0, 0, 1, 2]])},
        eager=False,
    )
    assert padded.mask[0, 0, -1].tolist() == [False, False, True, True, True], "padding is no document"
    both_ways = read_call(module, query, key, None, {"is_causal": False, "sliding_window": 2}, eager=False)
    assert (both_ways.mask[0, 0] == (torch.ones(5, 5).tril(1).triu(-1) > 0)).all()
    assert both_ways.scale == 0.5
    last = read_call(module, query[:, :, -1:], key, None, {}, eager=False)
    assert last.mask.all(), "the last query is at the last token"
    for mask, options, words in (
        (torch.ones(5, 5, 5), {}, r"expected a mask of shape .*, got \(5, 5, 5\)"),
        (None, {"cu_seq_lens_q": [0, 5]}, "cu_seq_lens_q, which is not supported"),
    ):
        with pytest.raises(attsvm.ProblemError, match=words):
            read_call(module, query, key, mask, options, eager=False)


def test_a_loop_is_recorded_and_trained_as_without_a_monitor(tmp_path):
    held = {"input_ids": torch.randint(16, (2, 6), generator=torch.Generator().manual_seed(1))}
    models, model = [], None

    def margins(step):
        if step % 6 == 0:
            found = attsvm.inspect.inspect(model, held, gap=0.1, workers=1).margins
            return {f"margin_{end}": found[end] for end in ("lower", "upper")}

    for watched in (True, False):
        model = small_model()
        torch.manual_seed(2)
        monitor = AttentionMonitor(model, every=3, log=tmp_path / f"{watched}.csv")
        if not watched:
            monitor.close()
        trained(monitor, model, 8, measures=margins)
        monitor.close()
        models.append(model)
        if watched:
            assert [step for step, _ in monitor.records] == [0, 3, 6]
            assert monitor.heads == ["0.0", "0.1", "1.0", "1.1"]
            records = [record for _, record in monitor.records]
            assert [set(record) - NAMES for record in records] == [{"margin_lower", "margin_upper"}, set()] * 1 + [
                {"margin_lower", "margin_upper"}
            ]
            assert (records[0]["margin_lower"] > 0).all()
            assert (records[0]["margin_lower"] <= records[0]["margin_upper"]).all()
            weights = small_model().layers[0].qkv.weight.detach().double().numpy()
            W = weights[8:12].T @ weights[:4] / 2
            values = np.linalg.svd(W, compute_uv=False)[:4]
            assert records[0]["spectral_norm"][0] == pytest.approx(values[0])
            assert records[0]["frobenius_norm"][0] == pytest.approx(np.linalg.norm(W))
            share = values / values.sum()
            assert records[0]["effective_rank"][0] == pytest.approx(np.exp(-(share * np.log(share)).sum()))
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one, other)
    assert not models[0]._forward_hooks
    assert not models[0].layers[0]._forward_hooks
    with (tmp_path / "True.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["measure"] for row in rows} == NAMES | {"margin_lower", "margin_upper"}
    assert len(rows) == 4 * (3 * len(NAMES) + 2 * 2)


def test_every_row_of_a_record_is_given_to_a_function():
    rows, model = [], small_model()
    with AttentionMonitor(model, every=2, log=rows.extend) as monitor:
        trained(monitor, model, 3, measures=lambda step: {"margin": [0.5, np.nan, 0.25, 1]} if step else None)
    expected = [
        (step, head, name, value)
        for step, record in monitor.records
        for name, values in record.items()
        for head, value in zip(monitor.heads, values.tolist(), strict=True)
        if not np.isnan(value)
    ]
    assert rows == expected
    assert [row for row in rows if row[2] == "margin"] == [
        (2, "0.0", "margin", 0.5),
        (2, "1.0", "margin", 0.25),
        (2, "1.1", "margin", 1.0),
    ]


def test_a_head_keeps_its_column_where_a_pass_leaves_out_its_layer(tmp_path, recwarn):
    class Dropping(AttentionOnly):
        left_out = None

        def forward(self, tokens):
            states = self.embedding(tokens)
            for number, layer in enumerate(self.layers):
                if number != self.left_out:
                    states = states + layer(self.norms[number](states))
            return self.unembedding(states)

    torch.manual_seed(0)
    model, path = Dropping(vocabulary=16, length=6, size=8, heads=2), tmp_path / "heads.csv"
    with AttentionMonitor(model, every=1, log=path) as monitor:
        for model.left_out in (0, None, 1, None):
            model(torch.zeros(1, 6, dtype=torch.long))
            monitor.step()
    [warned] = recwarn
    assert "1 of 2 attention layers (layers.0) did not run in a complete forward pass of step 0" in str(warned.message)
    assert warned.filename == __file__
    assert sorted(monitor.heads) == ["0.0", "0.1", "1.0", "1.1"]
    written = read_records(path)
    names = {name: None for _, record in monitor.records for name in record}
    for name in names:
        values = np.stack([record.get(name, np.full(4, np.nan)) for _, record in monitor.records])
        for head, column in zip(monitor.heads, values.T, strict=True):
            np.testing.assert_array_equal(written.values[name][:, written.heads.index(head)], column)
            read = [True, True, False, True] if head.startswith("1.") else [False, True, True, True]
            np.testing.assert_array_equal(np.isfinite(column), read)
            assert len({*column[read]}) == 1 or name not in OF_WEIGHTS, "the weights do not change"


def test_a_pass_that_fails_is_read_again():
    model, tokens = small_model(), torch.randint(16, (2, 6), generator=torch.Generator().manual_seed(1))

    def fail(*_):
        raise MemoryError

    monitors = [AttentionMonitor(model, every=1) for _ in range(2)]
    failing = model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(MemoryError):
        model(torch.zeros_like(tokens))
    failing.remove()
    model(tokens)
    with AttentionMonitor(model, every=1) as undisturbed:
        model(tokens)
        undisturbed.step()
        for monitor in monitors:
            monitor.step()
            assert monitor.heads == undisturbed.heads == ["0.0", "0.1", "1.0", "1.1"]
            assert monitor.records[0][1]["entropy"].tolist() == undisturbed.records[0][1]["entropy"].tolist()


def test_several_monitors_leave_the_attention_functions_as_they_were(monkeypatch):
    ask, asked = transformers.AttentionInterface.get_interface, []

    def get_interface(*arguments):
        asked.append(arguments)
        return ask(*arguments)

    monkeypatch.setattr(transformers.AttentionInterface, "get_interface", get_interface)
    sizes = {"n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 8, "bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2Model(transformers.GPT2Config(vocab_size=16, **sizes)).train()
    monitors = [AttentionMonitor(model, every=1) for _ in range(3)]
    for _ in range(2):
        model(torch.zeros(1, 4, dtype=torch.long))
        assert asked.pop()
        assert transformers.AttentionInterface.get_interface is get_interface
        for monitor in monitors:
            monitor.step()
    assert [len(monitor.records) for monitor in monitors] == [2, 2, 2]


def test_compiled_models_are_recorded_where_they_run_uncompiled():
    """In recorded passes alone, whether they were compiled before or not, and with several monitors."""
    compiled, model, tokens = [], small_model(), torch.randint(16, (2, 6))

    def backend(graph, _):
        return lambda *arguments: compiled.append(1) or graph.forward(*arguments)

    def ran(call, monitors, steps):
        before, runs = len(compiled), []
        for _ in range(steps):
            call(tokens).sum().backward()
            for monitor in monitors:
                monitor.step()
            runs.append(len(compiled) > before)
            before = len(compiled)
        return runs

    AttentionMonitor(small_model())  # nobody closes it
    gc.collect()
    plain = AttentionMonitor(model, every=2)
    ran(model, [plain], 3)
    plain.close()
    for call in (torch.compile(model, backend=backend), torch.compile(model, backend=backend)):
        with AttentionMonitor(model, every=2) as one, AttentionMonitor(model, every=3) as other:
            assert ran(call, [one, other], 6) == [False, True, False, False, False, True]
        assert [step for step, _ in one.records] == [0, 2, 4]
        assert [step for step, _ in other.records] == [0, 3]
        assert one.records[0][1]["entropy"].tolist() == plain.records[0][1]["entropy"].tolist()
        assert ran(call, [], 1) == [True]
        model.eval()
        found = attsvm.inspect.inspect(call, {"input_ids": tokens}, margins=False)
        assert found.rebuilt_error.max() < 1e-6
        model.train()
        torch._dynamo.reset()


class Unreadable(torch.Tensor):
    """A weight of its own kind, which has no rows, as weights of 8 bits."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        if function is torch.Tensor.__getitem__:
            raise NotImplementedError("no rows")
        found = super().__torch_function__(function, types, arguments, keywords or {})
        return found.as_subclass(torch.Tensor) if function is torch.nn.functional.linear else found


@pytest.mark.parametrize("what", ["weights", "infinite", "attention", "options"])
def test_no_error_in_reading_ends_a_step(what, monkeypatch):
    """Nor does the inspection call it an error of the batch."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=8, num_hidden_layers=2, num_attention_heads=4, use_cache=False,
    )  # fmt: skip
    model, batch = transformers.LlamaModel(config).train(), {"input_ids": torch.randint(16, (2, 7))}
    attention, expected = model.layers[1].self_attn, model(**batch)[0]
    if what == "weights":
        weight = attention.q_proj.weight.detach().as_subclass(Unreadable)
        attention.q_proj.weight = torch.nn.Parameter(weight, requires_grad=False)
        why = "computed queries and keys by weights that cannot be read, so norms of W are NaN; no rows"
    elif what == "infinite":
        monkeypatch.setattr("attsvm.inspect.passes.triangular_product", lambda *_: np.full((4, 4, 4), np.nan))
        why = "computed queries and keys by weights that cannot be read, so norms of W are NaN; SVD did not converge"
    elif what == "attention":
        monkeypatch.setattr(attention, "forward", wrapped(attention.forward))
        why = "cannot be read, so their heads are not recorded; "
    else:
        forward = attention.forward
        monkeypatch.setattr(attention, "forward", lambda *a, **k: forward(*a, **k, indices=torch.zeros(1)))
        why = "cannot be read, so their heads are not recorded; LlamaAttention calls its attention with indices"
    with AttentionMonitor(model, every=1) as monitor:
        assert torch.equal(model(**batch)[0], expected)
        with pytest.warns(RuntimeWarning, match=why):
            monitor.step()
        model(**batch)
        monitor.step()
    known = what in ("weights", "infinite")
    assert [len(record["entropy"]) for _, record in monitor.records] == [8 if known else 4] * 2
    assert np.isfinite(monitor.records[0][1]["entropy"]).all()
    norms = np.isfinite(monitor.records[0][1]["spectral_norm"])
    assert norms.tolist() == {"weights": [True] * 4 + [False] * 4, "infinite": [False] * 8}.get(what, [True] * 4)
    if what == "weights":
        found = attsvm.inspect.inspect(model, batch, margins=False)
        assert found.rebuilt_error.max() < 1e-5
        assert found.available(1).weights == "not known"
        with pytest.raises(attsvm.ProblemError, match=r"layers.1.self_attn are not known \(no rows\)"):
            found.reading_directions(1, 0)
    elif what != "infinite":
        with pytest.raises(attsvm.ProblemError, match=r"^model: "):
            attsvm.inspect.inspect(model, batch, margins=False)


def wrapped(forward):
    def call(*arguments, **keywords):  # calls its attention twice
        forward(*arguments, **keywords)
        return forward(*arguments, **keywords)

    return call


@pytest.mark.parametrize("name", ["GPT2", "Llama"])
def test_keys_of_a_cache_before_the_tokens_are_read(name):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=16, hidden_size=16, intermediate_size=8, num_hidden_layers=2, num_attention_heads=4,
        initializer_range=0.5, attn_implementation="eager", bos_token_id=0, eos_token_id=0,
        **({"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0} if name == "GPT2" else {}),
    )  # fmt: skip
    model, tokens = getattr(transformers, f"{name}Model")(config), torch.randint(16, (2, 7))

    def batch():
        with torch.no_grad():
            return {"input_ids": tokens[:, 4:], "past_key_values": model(tokens[:, :4], use_cache=True).past_key_values}

    with torch.no_grad():
        own = model(**batch(), output_attentions=True).attentions
    found = attsvm.inspect.inspect(model, batch(), margins=False)
    assert found.rebuilt_error.max() < 1e-5
    np.testing.assert_array_equal(found.selected, torch.cat([of.argmax(-1).transpose(0, 1) for of in own]).numpy())
    prepared = batch()
    with AttentionMonitor(model.train(), every=1) as monitor:
        model(**prepared)
        monitor.step()
    means = torch.cat([of.amax(-1).mean((0, 2)) for of in own])
    np.testing.assert_allclose(monitor.records[0][1]["largest_probability"], means, rtol=1e-5)


def test_layers_with_different_numbers_of_sequences_are_inspected_and_recorded():
    """The windows of Swin: a layer of eight windows, and one of two."""
    torch.manual_seed(0)
    config = transformers.SwinConfig(
        image_size=16, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=2, drop_path_rate=0.0,
        initializer_range=0.3, attn_implementation="eager",
    )  # fmt: skip
    model, batch = transformers.SwinModel(config).eval(), {"pixel_values": torch.randn(2, 3, 16, 16)}
    with torch.no_grad():
        own = model(**batch, output_attentions=True).attentions
    found = attsvm.inspect.inspect(model, batch, gap=0.1)
    assert found.rebuilt_error.max() < 1e-5
    assert set(found.status.tolist()) == {"optimal"}
    assert found.selected.shape == (6, 8, 4)
    for head, selected in enumerate(found.selected):
        of = own[found.layer[head]][:, found.head[head]].argmax(-1).numpy()
        np.testing.assert_array_equal(selected[: len(of)], of)
        assert (selected[len(of) :] == -1).all(), "there are no queries"
    with AttentionMonitor(model.train(), every=1) as monitor:
        model(**batch)
        monitor.step()
    means = torch.cat([of.amax(-1).mean((0, 2)) for of in own])
    np.testing.assert_allclose(monitor.records[0][1]["largest_probability"], means, rtol=1e-5)


def test_attention_that_never_runs_is_warned_of_once(recwarn):
    model, tokens = small_model(), torch.zeros(1, 6, dtype=torch.long)
    around = torch.nn.ModuleDict({"model": model})
    with AttentionMonitor(model, every=1) as direct, AttentionMonitor(around, every=1) as uncalled:
        model(tokens)
        direct.step()
        model.layers = copy.deepcopy(model.layers)
        for monitor in (direct, uncalled):
            said = f"of step {monitor.steps} in training mode"
            for _ in range(3):
                model(tokens)
                monitor.step()
            assert "2 of 2 attention layers" in str(recwarn[-1].message)
            assert said in str(recwarn[-1].message)
    uncalled.step()  # it is closed
    assert len(recwarn) == 2
    assert [step for step, _ in direct.records] == [0]
    assert uncalled.records == []


def test_a_path_is_opened_by_the_process_of_rank_0_alone(monkeypatch, tmp_path):
    path = tmp_path / "heads.csv"
    for variable in ("RANK", "LOCAL_RANK"):
        with monkeypatch.context() as launched:
            launched.setenv(variable, "1")
            assert AttentionMonitor(small_model(), log=path).log is None
            assert AttentionMonitor(small_model(), log=print).log is print
    assert not path.exists()


def test_the_trainer_of_transformers_calls_it(tmp_path):
    sizes = {"n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 8}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=16, **sizes))
    monitor = AttentionMonitor(model, every=2)
    tokens = torch.randint(16, (12, 8))
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[monitor.trainer_callback()]).train()
    assert [step for step, _ in monitor.records] == [0, 2]
    assert not model._forward_hooks


def test_the_trainer_of_lightning_calls_it(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = small_model()

        def training_step(self, batch, _):
            return self.model(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    task = Task()
    monitor = AttentionMonitor(task.model, every=2)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, callbacks=[monitor.lightning_callback()],
    )  # fmt: skip
    trainer.fit(task, torch.utils.data.DataLoader(torch.randint(16, (8, 6)), batch_size=2))
    assert [step for step, _ in monitor.records] == [0, 2]


def test_what_cannot_be_monitored_is_refused_by_name(tmp_path):
    model, missing = small_model(), tmp_path / "missing" / "heads.csv"
    (tmp_path / "folder.csv").mkdir()
    for options, words in (
        ({"every": 0}, "every: expected an integer >= 1, got 0"),
        ({"log": "run.txt"}, "log: expected a path that ends with .csv, or a function, got 'run.txt'"),
        ({"log": missing}, rf"^{re.escape(str(missing))}: cannot be written \(No such file or directory\)$"),
        ({"log": tmp_path / "folder.csv"}, "folder.csv: expected a file or a free name, got a folder"),
    ):
        with pytest.raises(attsvm.ProblemError, match=words):
            AttentionMonitor(model, **options)

    for values, said in (
        ([1, 2, 3], r"measures\['margin'\]: expected 4 values, one for each head, got shape \(3,\)"),
        (["small"] * 4, r"measures\['margin'\]: expected real numbers, got entries of type <U5"),
        ([[1], [2, 3]], r"measures\['margin'\]: expected real numbers, got list"),
    ):
        with AttentionMonitor(model, every=1) as monitor, pytest.raises(attsvm.ProblemError, match=said):
            trained(monitor, model, 1, measures=lambda _, values=values: {"margin": values})

    class ByHand(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(4, 12)

        def forward(self, tokens):
            query, key, value = self.qkv(tokens).chunk(3, dim=-1)
            return (query @ key.mT).softmax(-1) @ value

    by_hand = torch.nn.Sequential(ByHand())
    said = r"cannot be read, .*; ByHand does not call scaled_dot_product_attention or an attention function of transf"
    with AttentionMonitor(by_hand, every=1, family=Layout("0")) as monitor:
        for warns in (pytest.warns(RuntimeWarning, match=said), contextlib.nullcontext()):
            assert by_hand(torch.zeros(1, 3, 4)).shape == (1, 3, 4)
            with warns:
                monitor.step()
    assert monitor.records == []
