"""The attention monitor, against attention by hand; in a loop, in two trainers, and its files."""

import csv

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `torch`) is not installed")

import torch  # noqa: E402

import attsvm  # noqa: E402
from attsvm.torch import AttentionMonitor  # noqa: E402
from attsvm.torch.inspection.attention_only import AttentionOnly  # noqa: E402
from attsvm.torch.inspection.families.fused import FusedCall  # noqa: E402
from attsvm.torch.monitoring import Margins  # noqa: E402
from attsvm.torch.monitoring.measures import of_call  # noqa: E402

NAMES = {"largest_logit", "largest_probability", "entropy", "first_share", "spectral_norm"} | {
    "frobenius_norm",
    "effective_rank",
}


def trained(monitor, model, steps, size=16):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randint(size, (3, 6))).square().mean().backward()
        optimizer.step()
        monitor.step()


def small_model():
    torch.manual_seed(0)
    return AttentionOnly(vocabulary=16, length=6, size=8, heads=2)


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
    found = of_call(FusedCall(query, key, mask, kind == "causal", 0.5)).numpy()
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


def test_a_loop_is_recorded_and_trained_as_without_a_monitor(tmp_path):
    held = {"input_ids": torch.randint(16, (2, 6), generator=torch.Generator().manual_seed(1))}
    models = []
    for watched in (True, False):
        model = small_model()
        torch.manual_seed(2)
        monitor = AttentionMonitor(model, every=3, log=tmp_path / f"{watched}.csv", margins=Margins(held, every=6))
        if not watched:
            monitor.close()
        trained(monitor, model, 8)
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


def test_records_are_written_to_zarr_and_tensorboard(tmp_path):
    zarr = pytest.importorskip("zarr")
    held = {"input_ids": torch.randint(16, (2, 6), generator=torch.Generator().manual_seed(1))}
    model = small_model()
    with AttentionMonitor(model, every=2, log=tmp_path / "run.zarr", margins=Margins(held, every=4)) as monitor:
        trained(monitor, model, 5)
    group = zarr.open_group(str(tmp_path / "run.zarr"), mode="r")
    assert group.attrs["heads"] == monitor.heads
    np.testing.assert_array_equal(group["step"][:], [0, 2, 4])
    for at, (_, record) in enumerate(monitor.records):
        np.testing.assert_array_equal(group["entropy"][at], record["entropy"])
    np.testing.assert_array_equal(np.isnan(group["margin_upper"][:]).all(axis=1), [False, True, False])

    class Writer:
        scalars = {}

        def add_scalar(self, name, value, step):
            self.scalars[name, step] = value

    with AttentionMonitor(small_model(), every=1, log=Writer()) as monitor:
        trained(monitor, monitor.model, 1)
    assert Writer.scalars["entropy/1.0", 0] == pytest.approx(monitor.records[0][1]["entropy"][2])


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


def test_what_cannot_be_monitored_is_refused_by_name():
    model = small_model()
    for options, words in (
        ({"every": 0}, "every: expected an integer >= 1, got 0"),
        ({"margins": Margins({}, every=150)}, "margins.every: expected a multiple of every = 100, got 150"),
        ({"log": "run.txt"}, "log: expected a path that ends with .csv or .zarr"),
    ):
        with pytest.raises(attsvm.ProblemError, match=words):
            AttentionMonitor(model, **options)
    sizes = {"n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 8}
    config = transformers.GPT2Config(vocab_size=16, attn_implementation="eager", **sizes)
    eager = transformers.GPT2Model(config).train()
    with AttentionMonitor(eager), pytest.raises(attsvm.ProblemError, match='with attn_implementation="sdpa"'):
        eager(torch.randint(16, (1, 4)))
