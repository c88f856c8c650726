"""The update in `torch._foreach_*` operations: one pass over memory per operation, on any device, dtype and layout."""

import torch
from torch import Tensor

from attsvm.torch.optimizers.powers import LIST, signed_power

# on the CPU larger tensors are updated one by one: an operation on a list is a loop there, and the first results would
# have left the caches before the next operation
LARGEST_IN_CPU_LISTS = 1 << 14


def pays_in_lists(parameter: Tensor) -> bool:
    """Whether updating a parameter together with others is faster."""
    return parameter.device.type != "cpu" or parameter.numel() <= LARGEST_IN_CPU_LISTS


def accumulate(
    gradients: list[Tensor], buffers: list[Tensor] | None, scale: float, momentum: float, nesterov: bool
) -> list[Tensor]:
    """Momentum: b ← momentum·b + scale·g in place; the directions are b, or scale·g + momentum·b with ``nesterov``.

    Without buffers the directions are scale·g. The result may be the gradients or the buffers themselves.
    """
    if buffers is None:
        return gradients if scale == 1.0 else list(torch._foreach_mul(gradients, scale))
    torch._foreach_mul_(buffers, momentum)
    torch._foreach_add_(buffers, gradients, alpha=scale)
    if not nesterov:
        return buffers
    ahead = torch._foreach_mul(buffers, momentum)
    torch._foreach_add_(ahead, gradients, alpha=scale)
    return list(ahead)


def descend(
    weights: list[Tensor],
    mirrors: list[Tensor],
    directions: list[Tensor],
    *,
    exponent: float,
    step: float = 0.0,
    scaling: tuple[list[Tensor], list[Tensor]] | None = None,
    decay: float = 1.0,
) -> None:
    """In place: z ← decay·z − step·d, w ← sign(z)|z|^exponent.

    With ``scaling`` each tensor has its own step and divisor, 0-d tensors: z ← decay·z − step·(d/divisor).
    ``weights[i] is mirrors[i]`` if the weights are their own mirror variable (exponent 1, no narrower dtype).
    """
    if decay != 1.0:
        torch._foreach_mul_(mirrors, decay)
    if scaling is None:
        torch._foreach_add_(mirrors, directions, alpha=-step)
    else:
        steps, divisors = scaling
        torch._foreach_sub_(mirrors, torch._foreach_mul(torch._foreach_div(directions, divisors), steps))
    if weights[0] is not mirrors[0]:
        torch._foreach_copy_(weights, signed_power(mirrors, exponent, LIST))
