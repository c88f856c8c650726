"""The options that every optimizer here has, and the checks of their values."""

import math
from typing import Any, Literal, TypedDict

NonFinite = Literal["skip", "raise", "unchecked"]
NONFINITE: tuple[NonFinite, ...] = ("skip", "raise", "unchecked")


class SharedOptions(TypedDict, total=False):
    """Keyword arguments of every optimizer; :class:`attsvm.torch.MirrorDescent` documents them.

    All but ``nonfinite`` are options of a parameter group.
    """

    momentum: float
    nesterov: bool
    weight_decay: float
    maximize: bool
    nonfinite: NonFinite
    foreach: bool | None
    compiled: bool | None


DEFAULTS: SharedOptions = {
    "momentum": 0.0,
    "nesterov": False,
    "weight_decay": 0.0,
    "maximize": False,
    "nonfinite": "skip",
    "foreach": None,
    "compiled": None,
}


def group_defaults(name: str, own: dict[str, Any], shared: SharedOptions) -> tuple[dict[str, Any], NonFinite]:
    """The options of a parameter group, and what to do with gradients that are not finite.

    ``name``: class of the optimizer. ``own``: options that this optimizer has besides the shared ones. ``shared``:
    those of :class:`SharedOptions` that were given.

    Raises TypeError if there is no option of that name. Raises ValueError if ``nonfinite`` is none of its values.
    """
    unknown = sorted(set(shared) - set(DEFAULTS))
    if unknown:
        raise TypeError(f"{name}: expected options among {', '.join([*own, *DEFAULTS])}, got {', '.join(unknown)}")
    options: dict[str, Any] = {**own, **DEFAULTS, **shared}
    nonfinite = options.pop("nonfinite")
    if nonfinite not in NONFINITE:
        raise ValueError(f"nonfinite: expected one of {', '.join(map(repr, NONFINITE))}, got {nonfinite!r}")
    return options, nonfinite


def check_number(name: str, value: float, low: float, high: float) -> None:
    """Raise ValueError unless low ≤ value < high."""
    if not low <= value < high:
        raise ValueError(f"{name}: expected a number in [{low}, {high}), got {value!r}")


def check_shared(group: dict[str, Any]) -> None:
    """Raise ValueError if a shared option of a parameter group is out of range."""
    check_number("lr", float(group["lr"]), 0.0, math.inf)
    check_number("momentum", group["momentum"], 0.0, 1.0)
    check_number("weight_decay", group["weight_decay"], 0.0, math.inf)
    if group["compiled"] not in (True, False, None):
        raise ValueError(f"compiled: expected True, False or None, got {group['compiled']!r}")
    if group["nesterov"] and not group["momentum"]:
        raise ValueError("nesterov: expected momentum > 0 with nesterov=True, got momentum = 0")
