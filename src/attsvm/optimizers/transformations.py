"""Changes of a gradient on its way to a rule: the length of a step, normalization, relative steps, decay, momentum."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import settle
from attsvm.norms import Norm, parse_norm
from attsvm.optimizers.chain import Context, Transformation
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scale, Scales, Scope, Tree, by_head, read_number, read_scope, regrouped, rescaled
from attsvm.optimizers.sizes import over_trials

Array = jax.Array
Schedule = Callable[[Array], Array]


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
    attsvm.optimizers.LearningRate

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
            object.__setattr__(self, name, read_number(name, getattr(self, name), "a positive number"))

    def __call__(self, step: Array) -> Array:
        """The rate after a number of steps."""
        return self.rate / (1.0 + step / self.steps) ** self.power


class Taken(NamedTuple):
    """Number of steps taken, shape (B,)."""

    steps: Array


@dataclass(frozen=True)
class LearningRate(Transformation):
    """Multiply the gradient by a number, or by a function of the number of steps taken.

    Parameters
    ----------
    rate : float or callable
        A positive number, or a schedule: a JAX function of the number of steps taken.

    Raises
    ------
    ProblemError
        If it is neither.

    See Also
    --------
    attsvm.optimizers.Decaying, attsvm.optimizers.chain

    Examples
    --------
    >>> from attsvm.optimizers import Descent, LearningRate, Normalize, chain
    >>> chain(Normalize(), LearningRate(0.1), Descent()).numbers
    {'learning_rate': 0.1}
    >>> chain(Normalize(), LearningRate(lambda k: 1 / (1 + k)), Descent()).norm.name
    'frobenius'
    """

    # numbers are not compared: equal chains share their compiled training
    rate: float | Schedule = field(compare=False)
    schedule: Schedule | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.rate):
            rate = read_number("learning_rate", self.rate, "a positive number or a schedule")
            object.__setattr__(self, "rate", rate)
        object.__setattr__(self, "schedule", self.rate if callable(self.rate) else None)

    @property
    def numbers(self) -> Mapping[str, float]:
        """The learning rate, unless it is a schedule."""
        return {} if callable(self.rate) else {"learning_rate": self.rate}

    @property
    def degree(self) -> int:
        return 0

    def init(self, params: Tree) -> Taken | tuple[()]:
        """The initial state: 0 steps with a schedule, otherwise an empty state."""
        if self.schedule is None:
            return ()
        return Taken(jnp.zeros(next(iter(params.values())).shape[-1], jnp.int32))

    def apply(self, gradient: Tree, scales: Scales, state: Any, context: Context) -> tuple[Tree, Scales, Any]:
        """Multiply all gradients by the rate of this step."""
        if self.schedule is None:
            rate = context.numbers["learning_rate"]
        else:
            rate, state = over_trials(self.schedule)(state.steps), Taken(state.steps + 1)
        return gradient, scales.times(rate), state


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


@dataclass(frozen=True)
class ByLogit(Transformation):
    """Divide the gradients by N(K) + N(Q), the sizes of all weights in the norm of the rule, the largest of the heads.

    A step of length η then changes the logits k'KQ'z of unit keys and queries by about η at most.

    See Also
    --------
    attsvm.optimizers.chain, attsvm.optimizers.Relative

    Examples
    --------
    >>> from attsvm.optimizers import ByLogit, Decaying, LearningRate, Steepest, chain
    >>> chain(ByLogit(), LearningRate(Decaying(0.3, 1000, 1 / 3)), Steepest("linf")).norm.name
    'linf'
    """

    @property
    def degree(self) -> int:
        """−1: steps are inversely proportional to the weights' size."""
        return -1

    def apply(self, gradient: Tree, scales: Scales, state: Any, context: Context) -> tuple[Tree, Scales, Any]:
        """Divide all gradients by the sum; by 1 where all weights are zero."""
        sizes = {name: context.rule.reach(name, context.params, context.of_rule) for name in gradient}
        whole = reduce(jnp.maximum, [reduce(jnp.add, [sizes[name] for name in names]) for names in by_head(gradient)])
        return gradient, scales.times(1.0 / jnp.where(whole > 0, whole, 1.0)), state


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

    See Also
    --------
    attsvm.optimizers.momentum, attsvm.optimizers.chain

    Examples
    --------
    >>> from attsvm.optimizers import DecayingSum, Descent, LearningRate, Normalize, chain
    >>> chain(Normalize(), DecayingSum(0.9), LearningRate(0.1), Descent()).numbers
    {'momentum': 0.9, 'learning_rate': 0.1}
    """

    # numbers are not compared: equal chains share their compiled training
    decay: float = field(default=0.9, compare=False)
    nesterov: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", read_number("decay", self.decay, "0 <= decay < 1", lambda x: 0 <= x < 1))

    @property
    def numbers(self) -> Mapping[str, float]:
        """Return β under the name ``momentum``."""
        return {"momentum": self.decay}

    @property
    def degree(self) -> int:
        return 0

    def init(self, params: Tree) -> SumState:
        zeros = {name: jnp.zeros_like(x) for name, x in params.items()}
        return SumState(zeros, {name: jnp.full(x.shape[-1:], -jnp.inf, x.dtype) for name, x in params.items()})

    def apply(self, gradient: Tree, scales: Scales, state: SumState, context: Context) -> tuple[Tree, Scales, Any]:
        """Add the gradient to the sum."""
        decay, scales = context.numbers["momentum"], scales.resolved(gradient)
        added, sum_scales = _add(decay, state, gradient, scales)
        kept = SumState(added, dict(sum_scales.items()))
        if not self.nesterov:
            return added, sum_scales, kept
        return (*_add(decay, kept, gradient, scales), kept)


def _add(decay: Array, state: SumState, gradient: Tree, scales: Scales) -> tuple[Tree, Scales]:
    """The sum decay · state + gradient. Parameters that share a scale keep sharing one."""
    # without decay nothing of the state is left, so it must not set a scale at which the gradient underflows
    before = {name: jnp.where(decay > 0, log, -jnp.inf) for name, log in state.log_scale.items()}
    groups = []
    for group in scales.groups:
        largest = jnp.maximum(group.log, before[group.names[0]])
        groups.append(Scale(group.names, settle(jnp.where(jnp.isneginf(largest), 0.0, largest))))
    common = Scales(tuple(groups))
    total = {
        name: decay * jnp.exp(before[name] - c) * state.sum[name] + jnp.exp(scales[name] - c) * gradient[name]
        for name, c in common.items()
    }
    added, sum_scales, _ = rescaled(total, common)
    return added, sum_scales
