"""Two processes that hold half a model each (FSDP2) step, and are monitored, as one process that holds all of it."""

import csv
import gc
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.inspect import AttentionMonitor, inspect  # noqa: E402
from attsvm.torch import MirrorDescent, SignDescent, SpectralDescent  # noqa: E402
from oracles.attention_only import AttentionOnly  # noqa: E402

pytestmark = [
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="needs gloo"
    ),
    pytest.mark.slow,
]

PROCESSES = 2
MAKERS = [
    lambda params: MirrorDescent(params, lr=0.1, p=1.1),
    lambda params: MirrorDescent(params, lr=0.1, p=1.75, momentum=0.9, normalize=True),
    lambda params: MirrorDescent(params, lr=0.1, p=3.0, normalize=True, scope="all"),
    lambda params: SignDescent(params, lr=0.1, normalize=False),
]


def model():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(3, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))


def train(network, optimizer, steps):
    for step in range(steps):
        optimizer.zero_grad()
        network(torch.linspace(-1, 1 + step, 12).reshape(4, 3)).square().mean().backward()
        optimizer.step()


def process(rank, address, log):
    """What each of the processes does; an error in one of them ends the test."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=PROCESSES)
    steps_of_halves(rank)
    records_of_halves(rank, log)
    # the group's threads end only when no model holds the group, and PyTorch aborts a process that exits before them
    gc.collect()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def steps_of_halves(rank):
    """Steps of models that both processes hold together equal those of whole models."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    for make in MAKERS:
        whole, sharded = model(), fully_shard(model())
        train(whole, make(whole.parameters()), 4)
        train(sharded, make(sharded.parameters()), 4)
        for one, other in zip(whole.parameters(), sharded.parameters(), strict=True):
            assert isinstance(other, DTensor)
            torch.testing.assert_close(other.full_tensor(), one)

    before = [parameter.full_tensor().clone() for parameter in sharded.parameters()]
    optimizer = MirrorDescent(sharded.parameters(), lr=0.1)
    # at p = 1.1 the second makes weights infinite
    for skipped, (bad, message) in enumerate([(float("nan"), "is not finite"), (1e10, "would not be finite")], 1):
        if rank == 1:
            next(sharded.parameters()).grad.to_local()[0] = bad
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step()
        assert optimizer.skipped_steps == skipped
        assert any(message in str(warning.message) for warning in caught)
        for value, parameter in zip(before, sharded.parameters(), strict=True):
            assert torch.equal(parameter.full_tensor(), value)

    for parameters, name in (
        (sharded.parameters(), "parameter 0 of a group"),
        (sharded.named_parameters(), r"0\.weight"),
    ):
        says = rf"whole matrices, got {name} of shape \(.*sharded over processes; MirrorDescent and SignDescent"
        with pytest.raises(RuntimeError, match=says):
            SpectralDescent(parameters, lr=0.1).step()


def records_of_halves(rank, log):
    """Records of a model that both processes hold together, each with its own batches, equal those of whole models."""
    from torch.distributed.fsdp import fully_shard

    tokens = torch.randint(16, (2, 6), generator=torch.Generator().manual_seed(rank))
    records = []
    for sharded in (False, True):
        torch.manual_seed(0)
        network = AttentionOnly(vocabulary=16, length=6, size=8, heads=2)
        for part in (*network.layers, network) if sharded else ():
            fully_shard(part)
        with AttentionMonitor(network, every=1, log=log if sharded else None) as monitor:
            for _ in range(2):
                network(tokens).square().mean().backward()
                margins = inspect(network, {"input_ids": tokens}, gap=0.1, workers=1).margins
                monitor.step({f"margin_{end}": margins[end] for end in ("lower", "upper")})
        records.append(monitor.records)
    for (_, whole), (_, halves) in zip(*records, strict=True):
        for name, values in whole.items():
            np.testing.assert_allclose(halves[name], values, rtol=1e-5, err_msg=name)
    if rank == 0:
        with open(log, newline="") as file:
            written = {(int(row["step"]), row["head"], row["measure"]): row["value"] for row in csv.DictReader(file)}
        assert written == {
            (step, head, name): repr(float(value))
            for step, record in records[1]
            for name, values in record.items()
            for head, value in zip(monitor.heads, values, strict=True)
        }
    else:
        assert monitor.log is None


def test_sharded_steps_and_records_are_those_of_the_whole(tmp_path):
    arguments = f"file://{tmp_path}/rendezvous", str(tmp_path / "heads.csv")
    torch.multiprocessing.spawn(process, args=arguments, nprocs=PROCESSES)
