"""The devices of PyTorch, by name, and its errors of memory that does not suffice."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attsvm._utils.devices import batch_out_of_memory, free_memory, parse_device

if TYPE_CHECKING:
    import torch

_OF_THE_CPU = "DefaultCPUAllocator"
"""What PyTorch's error says if main memory does not suffice; it has no type of its own."""


def find_device(name: str | None) -> "torch.device":
    """PyTorch's device of a name; the first GPU, or the CPU if there is none, if there is no name.

    Parameters
    ----------
    name : str or None
        "cpu", "gpu" or "cuda" for the first GPU, "cuda:1" for the second.

    Raises
    ------
    ProblemError
        If there is no such device.

    Examples
    --------
    >>> from attsvm._utils.torch_devices import find_device
    >>> find_device("cpu")
    device(type='cpu')
    """
    import torch

    gpus = torch.cuda.device_count()
    if name is None:
        name = "gpu" if gpus else "cpu"
    found = parse_device(name, gpus)
    return torch.device("cpu") if found.kind == "cpu" else torch.device("cuda", found.number)


@contextlib.contextmanager
def enough_memory(device: "torch.device", what: str, size: int) -> Iterator[None]:
    """Make one error of PyTorch's errors of memory that does not suffice.

    Parameters
    ----------
    device : torch.device
    what : str
        What needs the memory, in the plural, such as "sequences of a batch".
    size : int
        How many there are.

    Raises
    ------
    MemoryError
        Which says what is available, and which size to try.
    """
    import torch

    try:
        yield
    except (MemoryError, RuntimeError) as error:
        lacks = isinstance(error, MemoryError | torch.OutOfMemoryError) or _OF_THE_CPU in str(error)
        if not lacks:
            raise
        raise batch_out_of_memory(str(device), available(device), what, size) from error


def available(device: "torch.device") -> int:
    """Bytes that a device has free; 0 if unknown."""
    if device.type == "cpu":
        return free_memory()
    import torch

    return torch.cuda.mem_get_info(device)[0]
