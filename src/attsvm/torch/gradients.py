"""Gradients before a step: their checks and factors, and skipping a step."""

import math
import warnings
from collections.abc import Collection
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from attsvm.torch.sharding import is_finite, largest_entry

NonFinite = Literal["skip", "raise", "unchecked"]
NONFINITE: tuple[NonFinite, ...] = ("skip", "raise", "unchecked")

Given = tuple[int, Tensor, Tensor]
"""A parameter that has a gradient: its index in its group, the parameter, the gradient."""


class NonFiniteGradientError(RuntimeError):
    """A gradient is not finite, or new weights would not be; weights and state are as before the step.

    See Also
    --------
    attsvm.torch.MirrorDescent

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import MirrorDescent
    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> weight.grad = torch.tensor([1.0, float("inf")])
    >>> MirrorDescent([weight], lr=0.1, p=1.5, nonfinite="raise").step()
    Traceback (most recent call last):
        ...
    attsvm.torch.gradients.NonFiniteGradientError: step skipped, weights and state are unchanged: ...
    """


def gradient_scale(
    optimizer: Optimizer, everything: list[list[Given]], nonfinite: NonFinite, known: Collection[int] = ()
) -> tuple[float, float] | None:
    """The factor of all gradients, and their largest entry; None if one is not finite and the step must be skipped.

    The entry is that of the gradients that are not ``known``, and infinity if nothing was tested here.

    ``optimizer``: a GradScaler has set ``found_inf`` and ``grad_scale`` on it. ``everything``: for each parameter
    group, the parameters that have a gradient. ``nonfinite``: {"skip", "raise", "unchecked"}, as
    :class:`attsvm.torch.MirrorDescent` documents it. ``known``: ids of parameters whose gradients are finite.

    Raises NonFiniteGradientError with ``nonfinite="raise"``.
    """
    found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
    if found_inf is not None:
        # the scaler has tested the gradients; it lowers its scale and tries again, so there is no warning
        grad_scale = getattr(optimizer, "grad_scale", None)
        scale = torch.ones_like(found_inf) if grad_scale is None else grad_scale.to(found_inf.device)
        found, value = torch.stack([found_inf.double(), scale.double()]).tolist()
        return None if found else (1.0 / value, math.inf)
    if nonfinite == "unchecked":
        return 1.0, math.inf
    tested = [gradient for given in everything for _, x, gradient in given if id(x) not in known]
    largest = largest_entry(tested)
    if largest < math.inf:
        return 1.0, largest
    bad = {id(x) for given in everything for _, x, gradient in given if not is_finite(gradient)}
    refuse(optimizer, everything, nonfinite, "the gradient of {} is not finite", bad)
    return None


def refuse(
    optimizer: Optimizer, everything: list[list[Given]], nonfinite: NonFinite, reason: str, bad: Collection[int]
) -> None:
    """Warn that a step is skipped, or raise; {} in the reason is for the names of the bad parameters, given by id."""
    names = [
        name_of(group, number, index)
        for number, (group, given) in enumerate(zip(optimizer.param_groups, everything, strict=True))
        for index, parameter, _ in given
        if id(parameter) in bad
    ] or ["a parameter on another process"]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    message = f"step skipped, weights and state are unchanged: {reason.format(', '.join(names[:3]) + more)}"
    if nonfinite == "raise":
        raise NonFiniteGradientError(message)
    # the caller of step, above this function and its caller, step itself and the four wrappers around it
    warnings.warn(message, RuntimeWarning, stacklevel=8)


def name_of(group: dict[str, Any], number: int, index: int) -> str:
    names = group.get("param_names")
    return repr(names[index]) if names else f"parameter {index} of group {number}"
