"""Devices by name, and one error for a device that does not exist and for memory that does not suffice.

The names are those of JAX and of PyTorch: "cpu", "gpu" or "cuda" for the first GPU, "cuda:1". JAX is not imported here,
and PyTorch inside functions only.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attsvm.errors import ProblemError

if TYPE_CHECKING:
    import torch

GPU_NAMES = ("gpu", "cuda")
_OF_THE_CPU = "DefaultCPUAllocator"
"""What PyTorch's error says if main memory does not suffice; it has no type of its own."""

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


class Named(NamedTuple):
    """A device by name: its kind, "cpu" or "gpu", and its number among the devices of that kind."""

    kind: str
    number: int = 0


def parse_device(name: str, number_of_gpus: int) -> Named:
    """Return the device of a name: "cpu", "gpu" or "cuda", the latter with ":N" for the N-th GPU, counted from 0.

    Raises ProblemError, which names the devices that exist, if there is no such device.

    Examples
    --------
    >>> from attsvm._utils.devices import parse_device
    >>> parse_device("cuda:1", number_of_gpus=2)
    Named(kind='gpu', number=1)
    """
    kind, colon, digits = name.partition(":") if isinstance(name, str) else ("", "", "")
    number = int(digits) if digits.isdecimal() else 0
    if kind == "cpu" and (not colon or digits == "0"):
        return Named("cpu")
    if kind in GPU_NAMES and (not colon or digits.isdecimal()) and number < number_of_gpus:
        return Named("gpu", number)
    existing = ["cpu", *(f"cuda:{i}" for i in range(number_of_gpus))]
    raise ProblemError(f"device: expected one that exists here, {' or '.join(map(repr, existing))}, got {name!r}")


def find_torch_device(name: str | None) -> "torch.device":
    """Return PyTorch's device of a name. Without a name it is the first GPU, or the CPU if there is none.

    Examples
    --------
    >>> from attsvm._utils.devices import find_torch_device
    >>> find_torch_device("cpu")
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
    """Raise :func:`batch_out_of_memory` for each of PyTorch's errors of memory that does not suffice."""
    import torch

    try:
        yield
    except (MemoryError, RuntimeError) as error:
        lacks = isinstance(error, MemoryError | torch.OutOfMemoryError) or _OF_THE_CPU in str(error)
        if not lacks:
            raise
        raise batch_out_of_memory(str(device), _available(device), what, size) from error


def _available(device: "torch.device") -> int:
    """Bytes that a device has free; 0 if unknown."""
    if device.type == "cpu":
        return free_memory()
    import torch

    return torch.cuda.mem_get_info(device)[0]


def free_memory() -> int:
    """Bytes of main memory that are free or can be freed; 0 where the system does not say.

    A control group, such as that of a container or of a job of a cluster, may leave less than the machine has.
    """
    limits = [*_of_machine(), *_of_control_groups()]
    return max(0, min(limits)) if limits else 0


def _of_machine() -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    yield int(line.split()[1]) * 1024
                    return
        yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_control_groups(root: Path = Path("/")) -> Iterator[int]:
    """What each limited control group of this process leaves, of version 2 or 1 of Linux's groups."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            for controller in {*controllers.split(",")} & set(_GROUP_FILES):
                mount, most, used, cached = _GROUP_FILES[controller]
                group = root / mount / name.lstrip("/")
                for folder in (group, *group.parents):  # of a container, only some of them are visible
                    with contextlib.suppress(OSError, ValueError):  # without a limit there is "max", or no file
                        limit, use = (int((folder / file).read_text()) for file in (most, used))
                        yield limit - use + _statistic(folder / "memory.stat", cached)


_GROUP_FILES = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By the controller in a line of /proc/self/cgroup: mount point, limit, use, and what of the use can be freed."""


def _statistic(path: Path, name: str) -> int:
    rows = (row.split() for row in path.read_text().splitlines())
    return next((int(row[1]) for row in rows if row[0] == name), 0)


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
    >>> from attsvm._utils.devices import in_bytes
    >>> in_bytes(3 * 2**29)
    '1.5 GiB'
    """
    power = max(0, min(len(UNITS) - 1, (number.bit_length() - 1) // 10))
    return f"{number / 1024**power:.4g} {UNITS[power]}"
