"""Memory that does not suffice, how much memory is free, and tensors that stay in their files.

JAX is not imported here, and PyTorch in functions only.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from attsvm.errors import ProblemError

if TYPE_CHECKING:
    import torch

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")

_WORDS = ("DefaultCPUAllocator", "RESOURCE_EXHAUSTED")
"""What the errors of PyTorch (in main memory) and of JAX say, which have no types of their own."""


@contextlib.contextmanager
def enough_memory(device: "torch.device | Literal['cpu']", what: str, size: int) -> Iterator[None]:
    """Raise :func:`batch_out_of_memory` for each error of memory that does not suffice. The device is PyTorch's."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise batch_out_of_memory(str(device), _available(device), what, size) from error


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error of Python, NumPy, JAX or PyTorch says that memory does not suffice."""
    # torch.OutOfMemoryError, without an import of PyTorch
    of_gpu = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or of_gpu or any(word in str(error) for word in _WORDS)


def _available(device: "torch.device | Literal['cpu']") -> int:
    """Bytes that a device has free; 0 if unknown."""
    if str(device) == "cpu":
        return free_memory()
    import torch

    return torch.cuda.mem_get_info(device)[0]


def free_memory() -> int:
    """Bytes of main memory that are free or can be freed on the machine; 0 where the system does not say.

    A control group, such as that of a container, may allow less: it ends a process that exceeds its limit.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0


def check_fits(path: object, size: int) -> None:
    """Raise ProblemError if the content of a file takes more memory than there is: a small one may unpack to any size.

    ``size``: in bytes.
    """
    if 0 < free_memory() < size:
        free = in_bytes(free_memory())
        raise ProblemError(f"{path}: expected content that fits into the free memory of {free}, got {in_bytes(size)}")


def map_tensor(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the tensor of a file ``.pt``; the file is mapped into memory, so that only rows in use are read.

    Raises TypeError if the file holds something else, and the errors of ``torch.load``.
    """
    import torch

    try:
        tensor = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:  # files of PyTorch before 1.6 cannot be mapped
        tensor = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a tensor, got {type(tensor).__name__}")
    # NumPy does not have bfloat16
    return np.asarray((tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach())


def batch_out_of_memory(where: str, available: int, what: str, size: int) -> MemoryError:
    """Return the error of ``size`` things that do not fit, such as "sequences of a batch": it says which size to try.

    ``where`` names the device, and ``available`` is the number of its free bytes, 0 if unknown.
    """
    room = f", which has {in_bytes(available)} available" if available else ""
    tried = f"try {size // 2:,}" if size > 1 else "not even one fits"
    return MemoryError(f"{size:,} {what} need more memory than there is on {where}{room}; {tried}")


def in_bytes(number: int) -> str:
    """A number of bytes in a readable unit.

    Examples
    --------
    >>> from attsvm._utils.memory import in_bytes
    >>> in_bytes(3 * 2**29)
    '1.5 GiB'
    """
    power = max(0, min(len(UNITS) - 1, (number.bit_length() - 1) // 10))
    return f"{number / 1024**power:.4g} {UNITS[power]}"
