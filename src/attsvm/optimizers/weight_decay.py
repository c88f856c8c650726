"""Decoupled weight decay for any rule."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from attsvm.norms import Norm
from attsvm.optimizers.numbers import read_number
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scales, Tree

Array = jax.Array


@dataclass(frozen=True)
class WeightDecay(Rule):
    """Steps of a rule, and −ηλθ: the weights shrink by a factor 1 − ηλ in a step of length η.

    η is the product of what the transformations of a chain multiply the gradient by: learning rate and schedule.

    Parameters
    ----------
    rule : Rule
    decay : float
        λ > 0.

    Raises
    ------
    ProblemError
        If the decay is not a positive number.

    See Also
    --------
    attsvm.optimizers.chain

    Examples
    --------
    >>> from attsvm.optimizers import LearningRate, Steepest, WeightDecay, chain
    >>> chain(LearningRate(0.01), WeightDecay(Steepest("linf"), 0.1)).norm.name
    'linf'
    """

    rule: Rule
    # numbers are not compared: equal chains share their compiled training
    decay: float = field(compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", read_number("weight_decay", self.decay, "a positive number"))

    @property
    def numbers(self) -> Mapping[str, float]:
        """Those of the rule, and λ as ``weight_decay``."""
        return {**self.rule.numbers, "weight_decay": self.decay}

    @property
    def norm(self) -> Norm | None:
        return self.rule.norm

    @property
    def gradient_norm(self) -> Norm:
        return self.rule.gradient_norm

    @property
    def scale_free(self) -> bool:
        return self.rule.scale_free

    @property
    def needs_two_factors(self) -> bool:
        return self.rule.needs_two_factors

    @property
    def concurrent(self) -> bool:
        return self.rule.concurrent

    def init(self, params: Tree) -> Any:
        return self.rule.init(params)

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        """The updates of the rule, and the decay."""
        return self.follow(gradient, state, params, numbers, scales, value)

    def follow(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        updates, state = self.rule.follow(gradient, state, params, numbers, scales, value)
        for group in scales.groups:
            length = 1.0 if group.length is None else group.length
            for name in group.names:
                updates[name] = updates[name] - length * numbers["weight_decay"] * params[name]
        return updates, state

    def size_of_weights(self, names: Iterable[str], params: Tree, state: Any) -> Array:
        return self.rule.size_of_weights(names, params, state)

    def reach(self, name: str, params: Tree, state: Any) -> Array:
        return self.rule.reach(name, params, state)
