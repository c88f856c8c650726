"""Optimisers written to a file and read back."""

from collections.abc import Callable
from typing import Any

from attsvm.errors import ProblemError
from attsvm.optimizers.gradient_descent import gradient_descent, normalized_gradient_descent
from attsvm.optimizers.mirror_descent import mirror_descent
from attsvm.optimizers.momentum import momentum
from attsvm.optimizers.normalized import normalized
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.polyak import polyak
from attsvm.optimizers.steepest_descent import steepest_descent

FACTORIES: dict[str, Callable[..., Optimizer]] = {
    factory.__name__: factory
    for factory in (
        gradient_descent,
        normalized_gradient_descent,
        polyak,
        mirror_descent,
        steepest_descent,
        momentum,
        normalized,
    )
}
"""Every optimiser by its name."""


def configuration(optimizer: Any) -> dict[str, Any] | None:
    """What a file needs to rebuild an optimiser: its name and arguments. None where a part cannot be written."""
    if not isinstance(optimizer, Optimizer):
        return None
    written: dict[str, Any] = {}
    for name, value in optimizer.arguments.items():
        inner = configuration(value) if callable(getattr(value, "update", None)) else value
        if callable(inner) or (inner is None and value is not None):
            return None
        written[name] = inner
    return {"name": optimizer.name, "arguments": written}


def from_configuration(written: dict[str, Any]) -> Optimizer:
    """The optimiser that :func:`configuration` wrote.

    Raises
    ------
    ProblemError
        If the name is unknown or the arguments do not fit.
    """
    if written.get("name") not in FACTORIES:
        raise ProblemError(f"optimizer: {written.get('name')!r} found, one of {', '.join(FACTORIES)} wanted")
    arguments = {
        name: from_configuration(value) if isinstance(value, dict) else value
        for name, value in written["arguments"].items()
    }
    try:
        return FACTORIES[written["name"]](**arguments)
    except TypeError as error:
        raise ProblemError(f"optimizer: {error}") from None
