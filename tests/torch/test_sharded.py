"""Two processes that hold half a model each (FSDP2) step as one process does that holds all of it."""

import gc
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent, SignDescent, SpectralDescent  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="needs gloo"
)

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


def process(rank, address):
    """What each of the processes does; an error in one of them ends the test."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=PROCESSES)
    steps_of_halves(rank)
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

    with pytest.raises(RuntimeError, match="whole matrices"):
        SpectralDescent(sharded.parameters(), lr=0.1).step()


def test_sharded_steps_are_those_of_the_whole(tmp_path):
    torch.multiprocessing.spawn(process, args=(f"file://{tmp_path}/rendezvous",), nprocs=PROCESSES)
