"""Steps relative to the weights."""

from dataclasses import dataclass
from typing import Any

from attsvm.optimizers.chain import Context, Transformation
from attsvm.optimizers.numbers import read_scope
from attsvm.optimizers.scales import Scales, Scope, Tree, regrouped


@dataclass(frozen=True)
class Relative(Transformation):
    """Multiply the gradient by the size of the weights, in the norm of the rule. Steps cannot leave zero weights.

    Parameters
    ----------
    scope : {"all", "each"}
        One norm over all parameters, those of all attention heads together, or one for each of each head.

    Raises
    ------
    ProblemError
        If the scope is unknown; in training, if the rule does not define the size of its weights.

    See Also
    --------
    attsvm.optimizers.chain, attsvm.optimizers.normalized_gradient_descent

    Examples
    --------
    >>> from attsvm.optimizers import Descent, LearningRate, Normalize, Relative, chain
    >>> chain(Normalize(), Relative(), LearningRate(0.01), Descent()).norm.name
    'frobenius'
    """

    scope: Scope = "all"

    def __post_init__(self) -> None:
        read_scope(self.scope)

    @property
    def heads_apart(self) -> bool:
        """Whether the scope is each parameter, that of each attention head."""
        return self.scope == "each"

    @property
    def degree(self) -> int:
        """1: steps are proportional to the weights' size."""
        return 1

    def apply(self, gradient: Tree, scales: Scales, state: Any, context: Context) -> tuple[Tree, Scales, Any]:
        """Multiply each group by the size of its weights, or of all weights."""
        if self.scope == "each" and any(len(group.names) > 1 or group.unit is None for group in scales.groups):
            gradient, scales = regrouped(gradient, scales.resolved(gradient), "each")
        groups = []
        for group in scales.groups:
            names = group.names if self.scope == "each" else tuple(gradient)
            groups.append(group.times(context.rule.size_of_weights(names, context.params, context.of_rule)))
        return gradient, Scales(tuple(groups)), state
