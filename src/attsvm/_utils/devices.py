"""Devices by name, and one error for a device that does not exist and for memory that does not suffice.

Nothing here imports JAX or PyTorch, whose devices it names: "cpu", "gpu" or "cuda" for the first GPU, "cuda:1".
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from attsvm.errors import ProblemError

GPU_NAMES = ("gpu", "cuda")
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


class Named(NamedTuple):
    """A device by name: its kind, "cpu" or "gpu", and its number among the devices of that kind."""

    kind: str
    number: int = 0


def parse_device(name: str, number_of_gpus: int) -> Named:
    """The device of a name.

    Parameters
    ----------
    name : str
        "cpu", "gpu" or "cuda", the latter with ":N" for the N-th GPU, counted from 0.
    number_of_gpus : int
        GPUs that can be used here.

    Raises
    ------
    ProblemError
        If there is no such device. The message names those that exist.

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


class Needs(NamedTuple):
    """Bytes of memory that a computation needs: for all trials together, and for each of them."""

    shared: int
    each: int


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


def out_of_memory(where: str, available: int, needs: Needs, trials: int) -> MemoryError:
    """The error of a computation that does not fit, which says what would.

    Parameters
    ----------
    where : str
        The device.
    available : int
        Bytes; 0 if unknown.
    needs : Needs
    trials : int
        The number of trials that were asked for.
    """
    asked = "1 trial needs" if trials == 1 else f"{trials:,} trials need"
    needed = f"{asked} about {in_bytes(needs.shared + trials * needs.each)} on {where}"
    if not available:
        return MemoryError(needed)
    fitting = max(0, (available - needs.shared) // max(1, needs.each))
    most = f"about {fitting:,} would fit" if fitting else "not even one would fit"
    # an estimate that fits was too low
    most = most if fitting < trials else f"fewer would fit: try {max(1, trials // 2):,}"
    return MemoryError(f"{needed}, which has {in_bytes(available)} available; {most}")


def batch_out_of_memory(where: str, available: int, what: str, size: int) -> MemoryError:
    """The error of a batch that does not fit, which says which size to try.

    Parameters
    ----------
    where : str
        The device.
    available : int
        Bytes; 0 if unknown.
    what : str
        What needs the memory, in the plural, such as "sequences of a batch".
    size : int
        How many there are.
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
