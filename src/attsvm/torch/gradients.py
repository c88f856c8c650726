"""Gradients before a step: their checks and factors, and skipping a step."""

import math
import warnings
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from attsvm.torch.options import NonFinite
from attsvm.torch.sharding import is_finite, largest_entry

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
    optimizer: Optimizer, everything: list[list[Given]], policies: list[NonFinite], known: Collection[int] = ()
) -> tuple[float, float] | None:
    """The factor of all gradients, and their largest entry; None if one is not finite and the step must be skipped.

    The entry is that of the gradients that are not ``known``, and infinity if nothing was tested here.

    ``optimizer``: a GradScaler has set ``found_inf`` and ``grad_scale`` on it. ``everything``: for each parameter
    group, the parameters that have a gradient. ``policies``: the option ``nonfinite`` of each group. ``known``: ids of
    parameters whose gradients are finite.

    Raises NonFiniteGradientError with ``nonfinite="raise"``.
    """
    found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
    if found_inf is not None:
        # the scaler has tested the gradients; it lowers its scale and tries again, so there is no warning
        grad_scale = getattr(optimizer, "grad_scale", None)
        scale = torch.ones_like(found_inf) if grad_scale is None else grad_scale.to(found_inf.device)
        # both hold one entry, in any shape
        found, value = torch.cat([found_inf.double().view(1), scale.double().view(1)]).tolist()
        return None if found else (1.0 / value, math.inf)
    tested = [given for given, policy in zip(everything, policies, strict=True) if policy != "unchecked"]
    if not tested:
        return 1.0, math.inf
    largest = largest_entry([gradient for given in tested for _, x, gradient in given if id(x) not in known])
    if largest < math.inf:
        return 1.0, largest
    bad = {id(x) for given in tested for _, x, gradient in given if not is_finite(gradient)}
    refuse(optimizer, everything, policies, "the gradient of {} is not finite", bad)
    return None


def refuse(
    optimizer: Optimizer, everything: list[list[Given]], policies: list[NonFinite], reason: str, bad: Collection[int]
) -> None:
    """Warn that a step is skipped, or raise; {} in the reason is for the names of the bad parameters, given by id."""
    found = [
        (policy, name_of(group, number, index))
        for number, (group, policy) in enumerate(zip(optimizer.param_groups, policies, strict=True))
        for index, parameter, _ in everything[number]
        if id(parameter) in bad
    ] or [(policy, "a parameter on another process") for policy in policies]
    names = list(dict.fromkeys(name for _, name in found))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    message = f"step skipped, weights and state are unchanged: {reason.format(', '.join(names[:3]) + more)}"
    if any(policy == "raise" for policy, _ in found):
        raise NonFiniteGradientError(message)
    # the caller of step, above this function and its caller, step itself and the four wrappers around it
    warnings.warn(message, RuntimeWarning, stacklevel=8)


def name_of(group: dict[str, Any], number: int, index: int) -> str:
    names = group.get("param_names")
    return repr(names[index]) if names else f"parameter {index} of group {number}"
