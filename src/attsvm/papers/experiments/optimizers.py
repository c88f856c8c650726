"""The optimisers that the experiments compare."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf

import torch
from torch import Tensor

from attsvm.errors import ProblemError
from attsvm.torch import MirrorDescent

BUILTIN: dict[str, Callable[..., torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
"""Those of ``torch.optim``, with their default options."""

SPELLINGS = ("mirror-P with P > 1", *BUILTIN)
"""How a user writes them, for help and error messages."""


def make_optimizer(name: str, parameters: Iterable[Tensor], learning_rate: float) -> torch.optim.Optimizer:
    """The optimiser of a name. The training loop itself checks that gradients are finite."""
    p = _power(name)
    if p is not None:
        return MirrorDescent(parameters, lr=learning_rate, p=p, nonfinite="unchecked")
    return BUILTIN[name](parameters, lr=learning_rate)


def check_optimizer(name: str) -> None:
    """Raise ProblemError if there is no optimiser of this name."""
    if _power(name) is None and name not in BUILTIN:
        raise ProblemError(f"optimizer: expected one of {', '.join(SPELLINGS)}, got {name!r}")


def _power(name: str) -> float | None:
    """The p of ℓp mirror descent, 1 < p < ∞, in ``mirror-p``; None for another name."""
    head, _, power = name.partition("-")
    with suppress(ValueError):
        if head == "mirror" and 1 < float(power) < inf:
            return float(power)
    return None
