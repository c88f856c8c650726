"""Which function an argument of a sweep belongs to."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attsvm._utils.extensions import import_object
from attsvm.errors import ProblemError
from attsvm.optimizers import optimizer_options, parse_optimizer
from attsvm.optimizers.registry import DEFAULT
from attsvm.svm import solve_svm
from attsvm.sweeps.sources import find_source
from attsvm.training import train

_NOT_TRAIN = {"problem", "callback", "progress", "seed", "optimizer", "learning_rate", "device"}
_NOT_SVM = {"problem", "selected", "relaxed", "slack", "warm_start", "callback", "progress"}


@dataclass(frozen=True)
class Arguments:
    """The arguments of one cell, by what they are passed to."""

    data: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    svm: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Any] = field(default_factory=dict)

    def of_train(self) -> dict[str, Any]:
        """The arguments of ``train``, with the optimizer made from its options."""
        found = dict(self.train)
        optimizer = found.get("optimizer")
        if self.optimizer:
            found["optimizer"] = parse_optimizer(optimizer, **self.optimizer)
        return found


def group_of(data: str | Callable[..., Any], optimizers: tuple[Any, ...]) -> Callable[[str], tuple[str, str]]:
    """The function from the name of an argument to its group and its own name.

    ``optimizers``: all optimizers of the sweep. An option has to be one of each. Options without any are those of the
    default.

    Raises ProblemError from the function: if no group has such an argument, or several groups have and the name has no
    prefix.
    """
    optimizers = optimizers or (DEFAULT,)
    named = [optimizer for optimizer in optimizers if isinstance(optimizer, str)]
    options = [set(optimizer_options(name)) for name in named] if len(named) == len(optimizers) else []
    known = {
        "data": set(inspect.signature(find_source(data)).parameters) - {"generators"},
        "train": set(inspect.signature(train).parameters) - _NOT_TRAIN | {"optimizer"},
        "svm": set(inspect.signature(solve_svm).parameters) - _NOT_SVM,
        "optimizer": set.intersection(*options) if options else set(),
    }

    def place(name: str) -> tuple[str, str]:
        group, _, own = name.rpartition(".")
        found = [each for each in known if (own in known[each]) and group in ("", each)]
        if len(found) == 1:
            return found[0], own
        if found:
            raise ProblemError(f"{name}: expected one of {', '.join(f'{each}.{own}' for each in found)}, got {name!r}")
        listed = "; ".join(f"{each}: {', '.join(sorted(names))}" for each, names in known.items() if names)
        others = "" if options else "; those of an optimizer that is given by name"
        raise ProblemError(f"grid: expected arguments of the sweep ({listed}{others}), got {name!r}")

    return place


def read_function(text: str) -> Callable[..., Any]:
    """The function at an import path ``package.module:name``.

    Raises ProblemError if there is none.
    """
    try:
        found = import_object(text)
    except Exception as error:  # a module may fail in any way
        raise ProblemError(f"{text}: cannot be imported ({type(error).__name__}: {error})") from error
    if not callable(found):
        raise ProblemError(f"{text}: expected a function, got {type(found).__name__}")
    return found
