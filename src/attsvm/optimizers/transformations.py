"""Changes of a gradient on its way to a rule: the length of a step, normalisation, relative steps, momentum."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import settle
from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.optimizers.hyperparameters import check_number, check_positive
from attsvm.optimizers.rule import Changed, Numbers, SizeOfWeights, Transformation
from attsvm.optimizers.scaled_gradient import Scale, ScaledGradient, Scope, read_scope, subtree, zero_logs
from attsvm.optimizers.sizes import Tree, map_trials, norm_of, power
from attsvm.optimizers.steps import ARGUMENTS
from attsvm.optimizers.unit_steps import GradientLength, Schedule

Array = jax.Array


@dataclass(frozen=True)
class Decaying:
    """A schedule that decays: η/(1 + k/K)^a at step k.

    It does not depend on the number of steps of a run, and is written to files: a resumed run makes the steps of one
    that was not interrupted.

    Parameters
    ----------
    rate : float
        η, the rate of the first step.
    steps : float
        K, the number of steps after which the rate is a factor 2^a smaller.
    power : float
        a. With a = 1/2 every step of descent in a norm changes the logits of factors K and Q by about as much, because
        the factors grow as fast as the steps decay.

    Raises
    ------
    ProblemError
        If a number is not positive.

    See Also
    --------
    attsvm.optimizers.normalized_gradient_descent

    Examples
    --------
    >>> from attsvm.optimizers import Decaying, normalized_gradient_descent
    >>> normalized_gradient_descent(Decaying(0.03, 4000), relative=True)
    normalized_gradient_descent(learning_rate=Decaying(rate=0.03, steps=4000.0, power=1.0), scope='all', relative=True)
    """

    rate: float
    steps: float
    power: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rate", "steps", "power"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))

    def __call__(self, step: Array) -> Array:
        """The rate after a number of steps."""
        # η/(1 + k/K)^a
        return self.rate / (1.0 + step / self.steps) ** self.power


@dataclass(frozen=True)
class Growing:
    """A schedule that grows linearly: η(1 + k/K) at step k."""

    rate: float = 0.03
    steps: float = 1000.0
    power: ClassVar[float] = -1.0  # that of the decay

    def __call__(self, step: Array) -> Array:
        """The rate after a number of steps."""
        return self.rate * (1.0 + step / self.steps)


ARGUMENTS |= {"decaying": Decaying, "growing": Growing}


class Taken(NamedTuple):
    """Number of steps taken, shape (B,)."""

    steps: Array


@dataclass(frozen=True)
class LearningRate(Transformation):
    """Multiply the gradient by a number, or by a function of the number of steps taken.

    Parameters
    ----------
    rate : float or callable
        A number >= 0, or a schedule: a JAX function of the number of steps taken.

    Raises
    ------
    ProblemError
        If it is neither.
    """

    # numbers are not compared: equal chains share their compiled training
    rate: float | Schedule = field(compare=False)
    schedule: Schedule | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.rate):
            rate = check_number("learning_rate", self.rate, "a number >= 0 or a schedule", lambda x: x >= 0)
            object.__setattr__(self, "rate", rate)
        object.__setattr__(self, "schedule", self.rate if callable(self.rate) else None)

    @property
    def numbers(self) -> Mapping[str, float]:
        """The learning rate, unless it is a schedule."""
        return {} if callable(self.rate) else {"learning_rate": self.rate}

    def length_of(self, gradient: GradientLength) -> GradientLength | None:
        """The rate times it; None for a product of two rates.

        Raises ProblemError if the rate is 0, because steps have no direction then.
        """
        if self.rate == 0:
            raise ProblemError("learning_rate: expected a positive number or a schedule, got 0")
        return gradient._replace(rate=self.rate) if gradient.rate == 1.0 else None

    def init(self, params: Tree) -> Taken | tuple[()]:
        """The initial state: 0 steps with a schedule, otherwise an empty state."""
        if self.schedule is None:
            return ()
        return Taken(jnp.zeros(next(iter(params.values())).shape[-1], jnp.int32))

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Changed:
        """Multiply all gradients by the rate of this step."""
        if self.schedule is None:
            rate = numbers["learning_rate"]
        else:
            # the count is part of the state, so a resumed run continues its schedule
            rate, state = map_trials(self.schedule)(state.steps), Taken(state.steps + 1)
        return updates.times(rate), state


@dataclass(frozen=True)
class _ByNorm:
    """A change by a norm of all parameters together, or of each."""

    scope: Scope = "all"
    by: str | float | Norm = 2.0

    def __post_init__(self) -> None:
        read_scope(self.scope)
        object.__setattr__(self, "by", parse_norm(self.by))

    @property
    def on_each_head(self) -> bool:
        return self.scope == "each"


@dataclass(frozen=True)
class Normalize(_ByNorm, Transformation):
    """Divide the gradient by its norm, exactly, however small it is: training continues where the gradient underflows.

    Parameters
    ----------
    scope : {"all", "each"}
        One norm over all parameters, those of all attention heads together, or one for each of each head.
    by : str, float or Norm
        ℓ2 by default. Steps have length one if it is the dual of the norm in which the rule of the chain descends.

    Raises
    ------
    ProblemError
        If the scope or the norm is unknown.
    """

    scale_free = True

    def length_of(self, gradient: GradientLength) -> GradientLength:
        """One, whatever it was before."""
        return GradientLength(unit=parse_norm(self.by), together=self.scope == "all")

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Changed:
        """Mark the gradients as divided by their norm, which the rule computes if it needs it."""
        given, unit = updates, parse_norm(self.by)
        if any(scale.unit is not None or scale.length is not None for scale in given.scales):
            given = given.resolved()
        if self.scope == "all" and len(given.scales) > 1:
            # one norm of parameters with different scales leaves each its own
            largest, size = given.joint_norm(unit)
            scales = (Scale(scale.names, scale.log - largest, unit, size) for scale in given.scales)
        else:
            given = given.regrouped(self.scope)
            scales = (Scale(scale.names, scale.log, unit) for scale in given.scales)
        return given._replace(scales=tuple(scales)), state


@dataclass(frozen=True)
class Relative(_ByNorm, SizeOfWeights):
    """Multiply the gradient by a power of the size of the weights. Steps cannot leave zero weights.

    Parameters
    ----------
    scope : {"all", "each"}
        One norm over all parameters, those of all attention heads together, or one for each of each head.
    by : str, float or Norm
        The norm of the weights, ℓ2 by default.
    power : float
        Of the norm: the degree to which the state of the rule is homogeneous in the weights, if the rule steps on its
        state, and 1 otherwise.

    Raises
    ------
    ProblemError
        If the scope or the norm is unknown.
    """

    power: float = 1.0

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Changed:
        """Multiply each group by the size of its weights, or of all weights."""
        given, each, norm = updates, self.scope == "each", parse_norm(self.by)
        if each and any(len(scale.names) > 1 or scale.unit is None for scale in given.scales):
            given = given.resolved().regrouped("each")
        scales = []
        for scale in given.scales:
            # N(θ)^power, of the parameters that share the scale or of all
            weights = subtree(params, scale.names if each else given.gradient)
            scales.append(scale.times(power(norm_of(norm, weights), self.power)))
        return given._replace(scales=tuple(scales)), state


class SumState(NamedTuple):
    """The decaying sum of gradients, with its scale taken out: it does not underflow with them."""

    sum: Tree
    log_scale: Tree


@dataclass(frozen=True)
class DecayingSum(Transformation):
    """Replace the gradient by m⁺ = β m + ∇L, or by β m⁺ + ∇L (Nesterov).

    Parameters
    ----------
    decay : float
        β, 0 ≤ β < 1.
    nesterov : bool

    Raises
    ------
    ProblemError
        If the decay is out of range.
    """

    # numbers are not compared: equal chains share their compiled training
    decay: float = field(default=0.9, compare=False)
    nesterov: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", check_number("decay", self.decay, "0 <= decay < 1", lambda x: 0 <= x < 1))

    @property
    def numbers(self) -> Mapping[str, float]:
        """Return β under the name ``momentum``."""
        return {"momentum": self.decay}

    def length_of(self, gradient: GradientLength) -> GradientLength:
        """Not known, whatever it was before."""
        return GradientLength()

    def init(self, params: Tree) -> SumState:
        zeros = {name: jnp.zeros_like(x) for name, x in params.items()}
        return SumState(zeros, zero_logs(params))

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Changed:
        """Add the gradient to the sum."""
        decay, given = numbers["momentum"], updates.resolved()
        # m⁺ = β m + ∇L
        added = _add(decay, state, given)
        kept = SumState(added.gradient, added.logs)
        return _add(decay, kept, given) if self.nesterov else added, kept


def _add(decay: Array, state: SumState, given: ScaledGradient) -> ScaledGradient:
    """The sum decay · state + gradient. Parameters that share a scale keep sharing one."""
    # without decay nothing of the state is left, so it must not set a scale at which the gradient underflows
    before = {name: jnp.where(decay > 0, log, -jnp.inf) for name, log in state.log_scale.items()}
    total: Tree = {}
    scales = []
    for scale, own in given.parts:
        largest = jnp.maximum(scale.log, before[scale.names[0]])
        common = settle(jnp.where(jnp.isneginf(largest), 0.0, largest))
        scales.append(Scale(scale.names, common))
        for name, g in own.items():
            # β m + ∇L on the scale of the larger one
            kept = decay * jnp.exp(before[name] - common) * state.sum[name]
            total[name] = kept + jnp.exp(scale.log - common) * g
    added, _ = ScaledGradient(total, tuple(scales)).rescaled()
    return added
