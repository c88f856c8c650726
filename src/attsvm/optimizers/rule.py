"""Transformations of the gradient, the rules that make a step of it, and their chains, as in optax.

A rule may be an optimizer of optax itself, or another rule with weight decay.
"""

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from attsvm._utils.checks import check_positive
from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers.scales import Scaled, Tree
from attsvm.optimizers.sizes import over_trials
from attsvm.optimizers.unit_steps import GradientLength, UnitSteps

Array = jax.Array

LOG_EXCESS = "log_excess"
"""The name under which training passes log(L − L*) among the numbers, shape (B,)."""


class Transformation(ABC):
    """A change of the gradient, as optax's: ``init`` makes a state, ``update`` changes gradient and state.

    The trailing axis of each array holds the trials. Gradients come as :class:`Scaled`: numbers near 1, and the scale
    that was taken out of them. Equal transformations share their compiled training: define one as a frozen dataclass.
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

        If one part of a chain does, training gives each head to the chain as a parameter with its own scale, so that a
        head moves as far as the others however small its gradient is.
        """
        return False

    @property
    def reads_excess(self) -> bool:
        """Whether ``numbers`` has to hold :data:`LOG_EXCESS`, for the sequences of the step."""
        return False

    def length_of(self, gradient: GradientLength) -> GradientLength | None:
        """What is known of the length of the result; None if it is multiplied by an unknown factor, as by default."""
        return None

    def init(self, params: Tree) -> Any:
        """State before the first step: any tree of arrays whose trailing axis holds the trials."""
        return ()

    @abstractmethod
    def update(
        self, updates: Any, state: Any, params: Tree, *, numbers: Mapping[str, Any], value: Array
    ) -> tuple[Any, Any]:
        """Return what the next transformation gets, or the updates that are added to the parameters, and the state.

        Parameters
        ----------
        updates : Scaled
        state : tree of Array
        params : dict of str to Array, shape (..., B)
        numbers : dict of str to Array
            All :attr:`numbers` of the chain.
        value : Array, shape (B,)
            The loss.
        """


class Rule(Transformation):
    """The last transformation of a chain: it makes the updates that are added to the parameters."""

    @property
    def norm(self) -> Norm | None:
        """The norm whose Att-SVM the steps are compared with; None if it is not known."""
        return None

    @property
    def on_each_head(self) -> bool:
        """True, because a step in general depends on all entries of a parameter.

        A rule that returns False gets parameters (r, c, H, B) of all heads, with one scale.
        """
        return True

    def unit_steps(self, gradient: GradientLength) -> UnitSteps | None:
        """The norm in which the steps for such a gradient have the length of its rate; None if it is not known."""
        return None


class ChainState(NamedTuple):
    """States of the transformations, and of the rule."""

    parts: tuple[Any, ...]
    rule: Any


class SizeOfWeights(Transformation):
    """Base class of steps whose length depends on the size of the weights.

    ``power``: the steps are proportional to this power of the size; None if they are to none.
    """

    power: float | None = None


@dataclass(frozen=True)
class Chain(Rule):
    """Transformations, one after the other, and a rule."""

    parts: tuple[Transformation, ...]
    rule: Rule

    @property
    def numbers(self) -> Mapping[str, float]:
        return {name: number for part in (*self.parts, self.rule) for name, number in part.numbers.items()}

    @property
    def norm(self) -> Norm | None:
        return self.rule.norm

    @property
    def scale_free(self) -> bool:
        """Whether the gradient is normalized, or the rule does not depend on its size."""
        return any(part.scale_free for part in (*self.parts, self.rule))

    @property
    def on_each_head(self) -> bool:
        return any(part.on_each_head for part in (*self.parts, self.rule))

    @property
    def reads_excess(self) -> bool:
        return any(part.reads_excess for part in (*self.parts, self.rule))

    def unit_steps(self, gradient: GradientLength) -> UnitSteps | None:
        """Those of the rule, for what the transformations make of the gradient."""
        for part in self.parts:
            changed = part.length_of(gradient)
            if changed is None:
                return None
            gradient = changed
        return self.rule.unit_steps(gradient)

    @property
    def state_degree(self) -> float | None:
        """The degree to which the rule's state is homogeneous in the weights, if steps are proportional to them.

        Such steps make the weights grow exponentially. None for any other steps.
        """
        powers = [part.power for part in self.parts if isinstance(part, SizeOfWeights)]
        return powers[0] if len(powers) == 1 and self.scale_free else None

    def init(self, params: Tree) -> ChainState:
        return ChainState(tuple(part.init(params) for part in self.parts), self.rule.init(params))

    def update(
        self, updates: Any, state: ChainState, params: Tree, *, numbers: Mapping[str, Any], value: Array
    ) -> tuple[Tree, ChainState]:
        """Apply the transformations in their order, then the rule."""
        states = []
        for part, own in zip(self.parts, state.parts, strict=True):
            updates, own = part.update(updates, own, params, numbers=numbers, value=value)
            states.append(own)
        updates, of_rule = self.rule.update(updates, state.rule, params, numbers=numbers, value=value)
        return updates, ChainState(tuple(states), of_rule)

    def rescaled(self, state: ChainState, power: Array) -> ChainState:
        """Return the state for weights multiplied by 2^power, shape (B,), of a chain with a :attr:`state_degree`."""
        factor = jnp.exp2((self.state_degree or 0.0) * power)

        def scaled(x: Array) -> Array:
            # integers count steps, or are keys of random numbers
            return x * factor.astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.inexact) else x

        return state._replace(rule=jax.tree.map(scaled, state.rule))


@dataclass(frozen=True)
class Foreign(Rule):
    """An optax optimizer, which gets the gradient itself: gradient·exp(scale).

    If its ``update`` has a parameter ``log_scale``, it gets the scaled gradient and the logarithms of the scales.
    """

    transformation: optax.GradientTransformation

    @property
    def scale_free(self) -> bool:
        """Whether it uses the scales."""
        return "log_scale" in inspect.signature(self.transformation.update).parameters

    def init(self, params: Tree) -> Any:
        """Its own state, for each trial."""
        return over_trials(lambda one: _without_keys(self.transformation.init(one)))(params)

    def update(
        self, updates: Scaled, state: Any, params: Tree, *, numbers: Mapping[str, Any], value: Array
    ) -> tuple[Tree, Any]:
        """Its own update, for each trial."""

        def of_trial(gradient: Tree, state: Any, params: Tree, log_scale: Tree, value: Array) -> tuple[Tree, Any]:
            extra: dict[str, Any] = {}
            if isinstance(self.transformation, optax.GradientTransformationExtraArgs):
                extra["value"] = value
            if self.scale_free:
                extra["log_scale"] = log_scale
            else:
                gradient = {name: g * jnp.exp(log_scale[name]) for name, g in gradient.items()}
                extra |= {"grad": gradient} if extra else {}
            try:
                updates, state = self.transformation.update(gradient, _with_keys(state), params, **extra)
            except TypeError as error:
                if "required keyword-only argument" not in str(error):
                    raise
                needs = ", ".join(re.findall("'(.+?)'", str(error)))
                raise ProblemError(
                    f"optimizer: expected one whose update needs the gradient and the value, got one that needs {needs}"
                ) from None
            return updates, _without_keys(state)

        gradient, scales = updates
        logs = dict(scales.resolved(gradient).items())
        moves, state = over_trials(of_trial)(gradient, state, params, logs, value)
        return moves, state


@partial(jax.tree_util.register_dataclass, data_fields=["numbers"], meta_fields=["kind"])
@dataclass(frozen=True)
class _Key:
    """A key of random numbers, as integers: NumPy, and with it a saved run, has no array of keys."""

    numbers: Array
    kind: Any


def _without_keys(state: Any) -> Any:
    def plain(x: Any) -> Any:
        is_key = isinstance(x, Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return _Key(jax.random.key_data(x), jax.random.key_impl(x)) if is_key else x

    return jax.tree.map(plain, state)


def _with_keys(state: Any) -> Any:
    def typed(x: Any) -> Any:
        return jax.random.wrap_key_data(x.numbers, impl=x.kind) if isinstance(x, _Key) else x

    return jax.tree.map(typed, state, is_leaf=lambda x: isinstance(x, _Key))


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


@dataclass(frozen=True)
class WeightDecay(Wrapped):
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
        """Those of the rule, and λ as ``weight_decay``."""
        return {**self.rule.numbers, "weight_decay": self.decay}

    def unit_steps(self, gradient: GradientLength) -> UnitSteps | None:
        """Those of the rule, with decay."""
        steps = self.rule.unit_steps(gradient)
        return None if steps is None else steps._replace(decays=True)

    def update(
        self, updates: Scaled, state: Any, params: Tree, *, numbers: Mapping[str, Any], value: Array
    ) -> tuple[Tree, Any]:
        """The updates of the rule, and the decay."""
        moves, state = self.rule.update(updates, state, params, numbers=numbers, value=value)
        for group in updates.scales.groups:
            length = 1.0 if group.length is None else group.length
            for name in group.names:
                moves[name] = moves[name] - length * numbers["weight_decay"] * params[name]
        return moves, state
