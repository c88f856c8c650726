"""The size of the steps of gradient descent, which theorems assume to be constant."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GradientStep:
    """Steps of constant size along the negative gradient: −η∇L, or −η∇L/‖∇L‖.

    Attributes
    ----------
    rate : float
        η.
    normalized : bool
        Whether η is the length of each step.

    See Also
    --------
    attsvm.theory.global_convergence_conditions : Compares it with the largest step of the theorem.
    """

    rate: float
    normalized: bool = False


def constant_step(learning_rate: Any, *, relative: bool, normalized: bool = False) -> GradientStep | None:
    """The steps of a learning rate; None if they follow a schedule or the size of the weights."""
    if callable(learning_rate) or relative:
        return None
    return GradientStep(float(learning_rate), normalized)
