"""The mirror variable z = ∇ψ(w) = sign(w)|w|^(p−1) of a parameter."""

from functools import cache

import torch
from torch import Tensor

from attsvm.torch.optimizers.powers import signed_power


@cache
def mirror_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the mirror variable and the momentum of weights of a dtype: float32 or wider."""
    return torch.promote_types(dtype, torch.float32)


def mirror_of(parameter: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """The mirror variable of a parameter, as a new tensor."""
    weights = parameter.detach().to(dtype)
    mirror: Tensor = signed_power(weights, p - 1.0)
    return mirror.clone() if mirror is weights else mirror


def adopt_changes(parameter: Tensor, mirror: Tensor, p: float) -> None:
    """Update the mirror variable of the weights that were changed between steps (by a checkpoint or a clamp).

    The other entries keep their mirror variable: recomputing it would lose it wherever the weight has underflowed.
    """
    weights = parameter.detach()
    linked = signed_power(mirror, 1.0 / (p - 1.0)).to(weights.dtype)
    limits = torch.finfo(weights.dtype)
    # compiled and eager steps round the last digits differently, and flush subnormal numbers to zero (but not those of
    # float16, which are needed; they may differ by two units in the last place)
    tolerance = 4.0 * limits.eps * weights.abs() + min(limits.tiny, 2.0**-23)
    changed = (linked - weights).abs() > tolerance
    mirror.copy_(torch.where(changed, mirror_of(parameter, p, mirror.dtype), mirror))
