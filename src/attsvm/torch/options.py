"""The options of the optimizers: type and range of each, for constructors, parameter groups and loaded states."""

import math
from collections.abc import Callable, Collection, Iterable
from numbers import Integral, Number
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attsvm._utils.extensions import did_you_mean

NonFinite = Literal["skip", "raise", "unchecked"]
NONFINITE: tuple[NonFinite, ...] = ("skip", "raise", "unchecked")

LABELS = frozenset(
    {"params", "param_names", "name", "group_name", "lr_scale", "swa_lr"}
    | {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum"}
)
"""What a group may hold besides options: what torch's schedulers write, and usual names for other code to read."""


class Option(NamedTuple):
    """Which values of an option are valid, once ``read`` has made them what is used."""

    expected: str
    fits: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value
    hint: str = ""


def number(value: Any) -> float:
    """The number that a value is, or a tensor or array of one entry holds; NaN if it is none."""
    single = isinstance(value, (Number, Tensor, np.ndarray)) and not isinstance(value, (bool, complex, np.bool_))
    return float(value) if single and (not hasattr(value, "shape") or math.prod(value.shape) == 1) else math.nan


def _number_in(low: float, high: float) -> Option:
    return Option(f"a number in [{low}, {high})", lambda value: low <= number(value) < high)


def _one_of(values: tuple[Any, ...], expected: str | None = None) -> Option:
    # 1 == True, so types are compared, too
    return Option(
        expected or f"one of {', '.join(map(repr, values))}",
        lambda value: any(type(value) is type(one) and value == one for one in values),
    )


def _integer(low: int, high: float, expected: str) -> Option:
    return Option(expected, lambda x: isinstance(x, Integral) and not isinstance(x, bool) and low <= int(x) < high)


def _or_none(option: Option) -> Option:
    return Option(f"None or {option.expected}", lambda x: x is None or option.fits(x), option.read)


def _named_dtype(value: Any) -> Any:
    return getattr(torch, value, value) if isinstance(value, str) else value


def _three_numbers(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 3 and all(math.isfinite(number(x)) for x in value)


def _integers(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(_AT_LEAST_ONE.fits(x) for x in value)


def _tuple_of_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _two_numbers(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(0.0 <= number(x) < 1.0 for x in value)


_AT_LEAST_ONE = _integer(1, math.inf, "an integer >= 1")
_SWITCH, _THREE_WAYS = _one_of((True, False), "True or False"), _one_of((True, False, None), "True, False or None")

OPTIONS: dict[str, Option] = {
    "lr": _number_in(0.0, math.inf),
    "p": Option("1 < p < inf", lambda value: 1.0 < number(value) < math.inf, hint="; p = 1.05 is close to l1"),
    "linear": _number_in(0.0, math.inf),
    "momentum": _number_in(0.0, 1.0),
    "nesterov": _SWITCH,
    "weight_decay": _number_in(0.0, math.inf),
    "normalize": _SWITCH,
    "scope": _one_of(("each", "all")),
    "maximize": _SWITCH,
    "nonfinite": _one_of(NONFINITE),
    "foreach": _THREE_WAYS,
    "compiled": _THREE_WAYS,
    "heads": Option(
        "an integer >= 1 or a tuple of them", lambda x: _AT_LEAST_ONE.fits(x) or _integers(x), _tuple_of_list
    ),
    "blocks": _or_none(Option("a tuple of integers >= 1", _integers, _tuple_of_list)),
    "fused": _SWITCH,
    "flatten": _THREE_WAYS,
    "transposed": _SWITCH,
    "scale": _one_of((None, "match_rms", "muon")),
    "iterations": _or_none(_integer(1, 100, "an integer in [1, 100)")),
    "coefficients": Option("three numbers", _three_numbers, _tuple_of_list),
    "dtype": Option(
        "None, 'auto' or a torch.dtype", lambda x: x in (None, "auto") or isinstance(x, torch.dtype), _named_dtype
    ),
    "adamw": _SWITCH,
    "betas": Option("two numbers in [0, 1)", _two_numbers, _tuple_of_list),
    "eps": _number_in(0.0, math.inf),
}
"""Every option of an optimiser of this package."""


def read_option(name: str, value: Any) -> Any:
    """The value of an option that is used. Raises ValueError if it is of another type or out of range."""
    option = OPTIONS[name]
    value = option.read(value)
    if not option.fits(value):
        raise ValueError(f"{name}: expected {option.expected}, got {value!r}{option.hint}")
    return value


def check_names(kind: str, names: Iterable[str], known: Collection[str], hint: str = "") -> None:
    """Raise TypeError if a name is not a known option."""
    for name in names:
        if name not in known:
            more = did_you_mean(name, known) or hint
            raise TypeError(f"{kind}: expected options among {', '.join(known)}, got {name}{more}")


def check_names_of_group(kind: str, names: Iterable[str], known: Collection[str], options: Collection[str]) -> None:
    """Raise TypeError if a name is neither a known option nor a label; ``options`` are all those of the optimiser."""
    names = list(names)
    for name in names:
        if name in OPTIONS and name not in options:  # the groups may be those of param_groups_of for another optimiser
            raise TypeError(
                f"{kind}: expected options among {', '.join(known)}, got {name}, an option of other optimisers; "
                f"param_groups_of(model, {kind}, lr=...) makes groups for {kind}"
            )
    hint = "; a label of a group begins with an underscore"
    check_names(kind, (name for name in names if name not in LABELS and not name.startswith("_")), known, hint)
