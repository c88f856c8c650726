"""Devices by name, and one error for a device that does not exist.

The names are those of JAX and of PyTorch: "cpu", "gpu" or "cuda" for the first GPU, "cuda:1". JAX is not imported here,
and PyTorch inside functions only.
"""

from typing import TYPE_CHECKING, NamedTuple

from attsvm.errors import ProblemError

if TYPE_CHECKING:
    import torch

GPU_NAMES = ("gpu", "cuda")


class Named(NamedTuple):
    """A device by name: its kind, "cpu" or "gpu", and its number among the devices of that kind."""

    kind: str
    number: int = 0


def parse_device(name: str, number_of_gpus: int) -> Named:
    """Return the device of a name: "cpu", "gpu" or "cuda", the latter with ":N" for the N-th GPU, counted from 0.

    Raises ProblemError, which names the devices that exist, if there is no such device.
    """
    kind, colon, digits = name.partition(":") if isinstance(name, str) else ("", "", "")
    number = int(digits) if digits.isdecimal() else 0
    if kind == "cpu" and (not colon or digits == "0"):
        return Named("cpu")
    if kind in GPU_NAMES and (not colon or digits.isdecimal()) and number < number_of_gpus:
        return Named("gpu", number)
    existing = ["cpu", *(f"cuda:{i}" for i in range(number_of_gpus))]
    raise ProblemError(
        f"device: expected one of those available here, {' or '.join(map(repr, existing))}, got {name!r}"
    )


def find_torch_device(name: str | None) -> "torch.device":
    """Return PyTorch's device of a name. Without a name it is the first GPU, or the CPU if there is none."""
    import torch

    gpus = torch.cuda.device_count()
    if name is None:
        name = "gpu" if gpus else "cpu"
    found = parse_device(name, gpus)
    return torch.device("cpu") if found.kind == "cpu" else torch.device("cuda", found.number)
