"""Division of the gradient by its norm."""

from dataclasses import dataclass
from typing import Any

from attsvm.norms import Norm, parse_norm
from attsvm.optimizers.chain import Context, Transformation
from attsvm.optimizers.numbers import read_scope
from attsvm.optimizers.scales import Scale, Scales, Scope, Tree, regrouped


@dataclass(frozen=True)
class Normalize(Transformation):
    """Divide the gradient by its norm, exactly, however small it is: training continues where the gradient underflows.

    Parameters
    ----------
    scope : {"all", "each"}
        One norm over all parameters, those of all attention heads together, or one for each of each head.
    norm : str, float or Norm, optional
        By default the dual of the norm in which the rule of the chain descends: ℓ2 for :class:`Descent`, ℓq with
        1/p + 1/q = 1 for :class:`Mirror`, the dual norm for :class:`Steepest`; ℓ2 if the rule has none.

    Raises
    ------
    ProblemError
        If the scope or the norm is unknown.

    See Also
    --------
    attsvm.optimizers.normalized, attsvm.optimizers.chain

    Examples
    --------
    >>> from attsvm.optimizers import LearningRate, Normalize, Steepest, chain
    >>> chain(Normalize("each"), LearningRate(0.1), Steepest("linf")).norm.name
    'linf'
    """

    scope: Scope = "all"
    norm: str | float | Norm | None = None

    def __post_init__(self) -> None:
        read_scope(self.scope)
        if self.norm is not None:
            object.__setattr__(self, "norm", parse_norm(self.norm))

    @property
    def normalizes(self) -> bool:
        return True

    @property
    def heads_apart(self) -> bool:
        """Whether the scope is each parameter, that of each attention head."""
        return self.scope == "each"

    @property
    def degree(self) -> int:
        return 0

    def apply(self, gradient: Tree, scales: Scales, state: Any, context: Context) -> tuple[Tree, Scales, Any]:
        """Mark the gradients as divided by their norm, which the rule computes if it needs it."""
        unit = parse_norm(self.norm) if self.norm is not None else context.rule.gradient_norm
        if any(group.unit is not None or group.length is not None for group in scales.groups):
            scales = scales.resolved(gradient)
        gradient, scales = regrouped(gradient, scales, self.scope)
        return gradient, Scales(tuple(Scale(group.names, group.log, unit) for group in scales.groups)), state
