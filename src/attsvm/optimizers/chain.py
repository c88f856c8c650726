"""Optimizers that consist of transformations of the gradient and a rule that makes the step."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers.foreign import rule_of
from attsvm.optimizers.limit import Limits
from attsvm.optimizers.optimizer import GradientStep, Optimizer
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scales, Tree

Array = jax.Array


class Context(NamedTuple):
    """What a transformation may read.

    See Also
    --------
    attsvm.optimizers.Transformation : Its ``apply`` receives one.
    """

    params: Tree
    numbers: Mapping[str, Any]
    rule: Rule
    """The rule at the end of the chain."""

    of_rule: Any
    """The state of that rule."""


class Transformation(ABC):
    """A change of the gradient on its way to a rule. Equal transformations share their compiled training.

    See Also
    --------
    attsvm.optimizers.chain, attsvm.optimizers.Rule
    """

    @property
    def numbers(self) -> Mapping[str, float]:
        """Numbers that may change without compiling anew."""
        return {}

    @property
    def normalizes(self) -> bool:
        """Whether the result does not depend on the gradient's size."""
        return False

    @property
    def degree(self) -> int | None:
        """The power of the weights' size by which the gradient is multiplied; None if there is none, or not known."""
        return None

    @property
    def heads_apart(self) -> bool:
        """Whether each attention head has to be a parameter of its own, as for :attr:`Rule.heads_apart`."""
        return False

    def init(self, params: Tree) -> Any:
        """State before the first step."""
        return ()

    @abstractmethod
    def apply(self, gradient: Tree, scales: Scales, state: Any, context: Context) -> tuple[Tree, Scales, Any]:
        """The changed gradient and scales, and the next state."""


class ChainState(NamedTuple):
    """States of the transformations, and of the rule."""

    parts: tuple[Any, ...]
    rule: Any


@dataclass(frozen=True)
class Chain(Rule):
    """Transformations, one after the other, and a rule.

    See Also
    --------
    attsvm.optimizers.chain : Makes one.

    Examples
    --------
    >>> from attsvm.optimizers import normalized_gradient_descent
    >>> rule = normalized_gradient_descent(0.1).rule
    >>> [type(part).__name__ for part in rule.parts], type(rule.rule).__name__
    (['Normalize', 'LearningRate'], 'Descent')
    """

    parts: tuple[Transformation, ...]
    rule: Rule

    @property
    def _all(self) -> tuple[Transformation | Rule, ...]:
        return *self.parts, self.rule

    @property
    def numbers(self) -> Mapping[str, float]:
        return {name: number for part in self._all for name, number in part.numbers.items()}

    @property
    def norm(self) -> Norm | None:
        return self.rule.norm

    @property
    def scale_free(self) -> bool:
        """Whether the gradient is normalized, or the rule does not depend on its size."""
        return self.rule.scale_free or any(part.normalizes for part in self.parts)

    @property
    def relative(self) -> bool:
        """Whether the steps are proportional to the weights, which then grow exponentially."""
        degrees = [part.degree for part in self.parts if part.degree is not None]
        known = self.rule.state_degree is not None and len(degrees) == len(self.parts)
        return known and self.scale_free and sum(degrees) == 1

    @property
    def heads_apart(self) -> bool:
        return any(part.heads_apart for part in self._all)

    @property
    def needs_two_factors(self) -> bool:
        return self.rule.needs_two_factors

    @property
    def concurrent(self) -> bool:
        """Whether steps of the rule may run on several threads at once."""
        return self.rule.concurrent

    def init(self, params: Tree) -> ChainState:
        return ChainState(tuple(part.init(params) for part in self.parts), self.rule.init(params))

    def rescaled(self, state: ChainState, power: Array) -> ChainState:
        """The state for weights multiplied by 2^power, shape (B,), of a chain that is :attr:`relative`."""
        factor = jnp.exp2((self.rule.state_degree or 0.0) * power)
        return state._replace(rule=jax.tree.map(lambda x: x * factor.astype(x.dtype), state.rule))

    def update(
        self, gradient: Tree, state: ChainState, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, ChainState]:
        """Apply the transformations in their order, then the rule."""
        gradient, scales, states = self._transformed(gradient, state, params, numbers, scales)
        updates, of_rule = self.rule.follow(gradient, state.rule, params, numbers, scales, value)
        return updates, ChainState(states, of_rule)

    def _transformed(
        self, gradient: Tree, state: ChainState, params: Tree, numbers: Mapping[str, Any], scales: Scales
    ) -> tuple[Tree, Scales, tuple[Any, ...]]:
        context = Context(params, numbers, self.rule, state.rule)
        states = []
        for part, own in zip(self.parts, state.parts, strict=True):
            gradient, scales, own = part.apply(gradient, scales, own, context)
            states.append(own)
        return gradient, scales, tuple(states)


def chain(
    *parts: Transformation | Rule | optax.GradientTransformation,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    norm: Norm | None = None,
    limits: Limits | None = None,
    gradient_step: GradientStep | None = None,
) -> Optimizer:
    """Chain transformations of the gradient and a rule, in this order, into an optimizer.

    Parameters
    ----------
    *parts : Transformation, ..., Rule
        Any number of :class:`Normalize`, :class:`Relative`, :class:`LearningRate`, :class:`DecayingSum` or other
        transformations, then one rule: :class:`Descent`, :class:`Mirror`, :class:`Steepest`, another :class:`Rule`, or
        an optimizer, of optax too.
    name : str, optional
        The name of the optimizer; that of the rule's class by default. A factory that is registered in ``OPTIMIZERS``
        passes its own name and ``arguments``, and then runs can be resumed from a file.
    arguments : dict, optional
        The arguments of that factory.
    norm : Norm, optional
        The norm whose Att-SVM the optimizer is compared with; that of the rule by default.
    limits : dict of str to Limit, optional
        The Att-SVM that it is compared with, for each attention; by default that of steps of unknown kind.
    gradient_step : GradientStep, optional
        The size of the steps, if they are of constant size along the negative gradient. The conditions of convergence
        read it.

    Raises
    ------
    ProblemError
        If the last part is not a rule or an earlier one is not a transformation, or two parts have the same number.

    See Also
    --------
    attsvm.optimizers.Transformation, attsvm.optimizers.Rule

    Examples
    --------
    ℓ3 mirror descent whose steps grow, on the gradient divided by its ℓ1.5 norm:

    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> from attsvm.optimizers import LearningRate, Mirror, Normalize, chain
    >>> growing = chain(Normalize(), LearningRate(lambda step: 0.1 * (1 + step / 100)), Mirror(p=3))
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=growing, steps=200).norm
    Lp(p=3.0)
    """
    if not parts:
        raise ProblemError("chain: expected at least a rule, got no part")
    last = parts[-1]
    if isinstance(last, Transformation):
        raise ProblemError(f"chain: expected a rule at the end, got {type(last).__name__}")
    rule = rule_of(last)
    before: list[Transformation] = []
    for part in parts[:-1]:
        if not isinstance(part, Transformation):
            raise ProblemError(f"chain: expected a transformation before the rule, got {part!r}")
        before.append(part)
    if isinstance(rule, Chain):
        before, rule = [*before, *rule.parts], rule.rule
    names = [number for part in before for number in part.numbers] + list(rule.numbers)
    for number in names:
        if names.count(number) > 1:
            raise ProblemError(f"{number}: expected once in a chain, got {names.count(number)}")
    known = norm if norm is not None else getattr(last, "norm", None)
    default = type(rule).__name__
    return Optimizer(
        Chain(tuple(before), rule),
        name or default,
        norm=known,
        arguments=arguments,
        limits=limits,
        gradient_step=gradient_step,
    )
