"""PyTorch's devices by name, and one error of memory that does not suffice."""

import pytest

import attsvm
from attsvm._utils.devices import find_torch_device
from attsvm._utils.memory import enough_memory
from attsvm.errors import ProblemError

torch = pytest.importorskip("torch")

CPU = torch.device("cpu")


def test_the_names_are_those_of_train(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = [str(find_torch_device(name)) for name in (None, "gpu", "cuda", "cuda:1", "cpu")]
    assert found == ["cuda:0", "cuda:0", "cuda:0", "cuda:1", "cpu"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert find_torch_device(None) == CPU
    with pytest.raises(ProblemError, match="device: expected one of those available here, 'cpu', got 'gpu'"):
        find_torch_device("gpu")


def allocate_too_much():
    torch.empty(2**50)


def run_out_on_a_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("fail", [allocate_too_much, run_out_on_a_gpu])
def test_memory_that_does_not_suffice_is_one_error_that_says_which_size_to_try(fail):
    said = r"^64 rows need more memory than there is on cpu, which has .* available; try 32$"
    with pytest.raises(MemoryError, match=said), enough_memory(CPU, "rows", 64):
        fail()


def test_other_errors_are_not_changed():
    with pytest.raises(RuntimeError, match="size mismatch"), enough_memory(CPU, "rows", 64):
        raise RuntimeError("size mismatch")


def test_a_step_of_an_optimizer_names_the_entries_that_do_not_fit(monkeypatch):
    weight = torch.nn.Parameter(torch.ones(6, 4))
    weight.grad = torch.ones(6, 4)
    optimizer = attsvm.torch.MirrorDescent([weight, torch.nn.Parameter(torch.ones(3))], lr=0.1)
    monkeypatch.setattr(optimizer, "_state_of", lambda *_: run_out_on_a_gpu())
    with pytest.raises(MemoryError, match=r"^24 entries of MirrorDescent need more memory .*; try 12$"):
        optimizer.step()
    assert (weight == 1).all()


def test_the_inspection_of_a_model_names_the_batch_that_does_not_fit():
    model = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    model.register_forward_pre_hook(lambda *_: run_out_on_a_gpu())
    tokens = torch.zeros(4, 3, 4)
    batch = {"query": tokens, "key": tokens, "value": tokens}
    with pytest.raises(MemoryError, match=r"^4 sequences in a call of the model need .*; try 2$"):
        attsvm.inspect.inspect(model, batch, device="cpu")
    with pytest.raises(ProblemError, match="device: expected one of those available here"):
        attsvm.inspect.inspect(model, batch, device="cuda:7")
