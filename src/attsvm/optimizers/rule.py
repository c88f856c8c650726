"""Transformations of the gradient, as in optax, and the rules that make a step of it.

A transformation or a rule is ``init`` and ``update``, and says of itself what training has to know.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from attsvm.norms import Norm
from attsvm.optimizers.hyperparameters import check_positive
from attsvm.optimizers.scaled_gradient import ScaledGradient
from attsvm.optimizers.sizes import Tree
from attsvm.optimizers.steps import Steps
from attsvm.optimizers.unit_steps import UNKNOWN_LENGTH, GradientLength, Schedule, UnitSteps

Array = jax.Array
Numbers = Mapping[str, Any]  # learning rates and the like, numbers of each trial
Changed = tuple[ScaledGradient, Any]  # what a transformation makes of a gradient, and its next state
NO_VALUE = "value: expected the loss as value= in update"
Moves = tuple[Tree, Any]  # the updates that are added to the parameters, and the next state


class Transformation(ABC):
    """A change of the gradient, as optax's: ``init`` makes a state, ``update`` changes gradient and state.

    The trailing axis of each array holds the trials. Gradients come as :class:`ScaledGradient`: numbers near 1, and the
    scale that was taken out of them. Equal transformations share their compiled training: define one as a frozen
    dataclass.
    """

    @property
    def numbers(self) -> Mapping[str, float]:
        """Learning rate and the like: they may change without compiling anew, and take no part in comparisons."""
        return {}

    @property
    def scale_free(self) -> bool:
        """Whether the result does not depend on the gradient's size, so that one too small for a float counts."""
        return False

    @property
    def on_each_head(self) -> bool:
        """Whether it treats each attention head by itself.

        If one part of a chain does, training gives each head h to the chain as a parameter ``"K[h]"`` with its own
        scale, so that a head moves as far as the others however small its gradient is.
        """
        return False

    @property
    def reads_excess(self) -> bool:
        """Whether training passes log(L − L*) of the sequences of the step as the number ``log_excess``, shape (B,)."""
        return False

    def length_of(self, gradient: GradientLength) -> GradientLength | None:
        """The length of the result as far as it is known; None if its factor is unknown, as by default."""
        return None

    def init(self, params: Tree) -> Any:
        """State before the first step: any tree of arrays whose trailing axis holds the trials."""
        return ()

    @abstractmethod
    def update(self, updates: Any, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> tuple[Any, Any]:
        """Return what the next transformation gets, or the updates that are added to the parameters, and the state.

        Parameters
        ----------
        updates : ScaledGradient
        state : tree of Array
        params : dict of str to Array, shape (..., B)
        numbers : dict of str to Array
            All :attr:`numbers` of the chain.
        value : Array, shape (B,)
            The loss; None where the caller of an optimiser does not pass it.
        """


class Rule(Transformation):
    """The last transformation of a chain: it makes the updates that are added to the parameters."""

    @property
    def norm(self) -> Norm | None:
        """The norm whose Att-SVM the steps are compared with; None if it is not known."""
        return None

    @property
    def steps(self) -> Steps:
        """What is known of the steps by the rule alone."""
        return Steps(norm=self.norm)

    @property
    def on_each_head(self) -> bool:
        """True, because a step in general depends on all entries of a parameter.

        A rule that returns False gets parameters (r, c, H, B) of all heads, with one scale.
        """
        return True

    @property
    def rate(self) -> float | Schedule | None:
        """The learning rate by which gradients are multiplied, or its schedule; None if there is not one."""
        return None

    @property
    def state_degree(self) -> float | None:
        """The degree to which the state is homogeneous in the weights, if steps are proportional to them.

        Such steps make the weights grow exponentially. None for any other steps.
        """
        return None

    def unit_steps(self, gradient: GradientLength = UNKNOWN_LENGTH) -> UnitSteps | None:
        """The norm in which the steps for such a gradient have the length of its rate; None if it is not known."""
        return None

    def following(self, state: Any, params: Tree, rounding: Mapping[str, float]) -> Any:
        """Return the state for parameters that others may have changed since the last update, beyond their rounding."""
        return state

    def rescaled(self, state: Any, power: Array) -> Any:
        """Return the state for weights multiplied by 2^power, shape (B,), of a rule with a :attr:`state_degree`."""
        return state


class SizeOfWeights(Transformation):
    """Base class of steps whose length depends on the size of the weights.

    ``power``: the steps are proportional to this power of the size; None if they are to none.
    """

    power: float | None = None


@dataclass(frozen=True)
class Wrapped(Rule):
    """Base class of rules that change the updates of another one, and are like it otherwise."""

    rule: Rule

    @property
    def numbers(self) -> Mapping[str, float]:
        return self.rule.numbers

    @property
    def norm(self) -> Norm | None:
        return self.rule.norm

    @property
    def scale_free(self) -> bool:
        return self.rule.scale_free

    @property
    def on_each_head(self) -> bool:
        return self.rule.on_each_head

    @property
    def reads_excess(self) -> bool:
        return self.rule.reads_excess

    def init(self, params: Tree) -> Any:
        return self.rule.init(params)

    def following(self, state: Any, params: Tree, rounding: Mapping[str, float]) -> Any:
        return self.rule.following(state, params, rounding)


@dataclass(frozen=True)
class DecoupledWeightDecay(Wrapped):
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
    """

    # numbers are not compared: equal chains share their compiled training
    decay: float = field(compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", check_positive("weight_decay", self.decay))

    @property
    def numbers(self) -> Mapping[str, float]:
        """Numbers of the rule, and λ as ``weight_decay``."""
        return {**self.rule.numbers, "weight_decay": self.decay}

    def unit_steps(self, gradient: GradientLength = UNKNOWN_LENGTH) -> UnitSteps | None:
        """Steps of the rule, with decay."""
        steps = self.rule.unit_steps(gradient)
        return None if steps is None else steps._replace(decays=True)

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """The updates of the rule, and the decay."""
        moves, state = self.rule.update(updates, state, params, numbers=numbers, value=value)
        # θ ← θ − η λ θ, with the length η that the transformations have given to the step
        lengths = updates.lengths
        return {
            name: move - lengths[name] * numbers["weight_decay"] * params[name] for name, move in moves.items()
        }, state


@dataclass(frozen=True)
class Multiplied(Wrapped):
    """The steps of a rule, times a factor that can change without compiling anything anew."""

    # numbers are not compared: equal chains share their compiled training
    factor: float = field(compare=False)

    @property
    def numbers(self) -> Mapping[str, float]:
        """Numbers of the rule, and the factor as ``step_factor``."""
        return {**self.rule.numbers, "step_factor": self.factor}

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """The updates of the rule, multiplied."""
        moves, state = self.rule.update(updates, state, params, numbers=numbers, value=value)
        return {name: numbers["step_factor"] * move for name, move in moves.items()}, state
