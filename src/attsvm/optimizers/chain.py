"""Chains of transformations and a rule, among them any optimizer of optax."""

import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers.limit import Limits
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.rule import Chain, Rule, Transformation
from attsvm.optimizers.scales import Scaled, Tree
from attsvm.optimizers.sizes import over_trials

Array = jax.Array

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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
        return over_trials(self.transformation.init)(params)

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
                updates, state = self.transformation.update(gradient, state, params, **extra)
            except TypeError as error:
                if "required keyword-only argument" not in str(error):
                    raise
                needs = ", ".join(re.findall("'(.+?)'", str(error)))
                raise ProblemError(
                    f"optimizer: expected one whose update needs the gradient and the value, got one that needs {needs}"
                ) from None
            return updates, state

        gradient, scales = updates
        logs = dict(scales.resolved(gradient).items())
        moves, state = over_trials(of_trial)(gradient, state, params, logs, value)
        return moves, state


def chain(
    *parts: Transformation | optax.GradientTransformation,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    norm: Norm | None = None,
    limits: Limits | None = None,
) -> Optimizer:
    """Chain transformations of the gradient and a rule, in this order, into an optimizer.

    Parameters
    ----------
    *parts : Transformation, ..., optax.GradientTransformation
        Any number of transformations of ``attsvm.optimizers.transformations``, then one rule, such as
        ``attsvm.optimizers.mirror.Mirror``, or an optimizer, of optax too.
    name : str, optional
        The name of the optimizer; that of the rule's class by default. A factory that is registered in ``OPTIMIZERS``
        passes its own name and ``arguments``, and then runs can be resumed from a file.
    arguments : dict, optional
        The arguments of that factory.
    norm : Norm, optional
        The norm whose Att-SVM the optimizer is compared with; that of the rule by default.
    limits : dict of str to Limit, optional
        The Att-SVM that it is compared with, for each attention; by default that of steps of unknown kind.

    Raises
    ------
    ProblemError
        If the last part is not a rule or an earlier one is not a transformation, or two parts have the same number.

    See Also
    --------
    attsvm.optimizers.momentum, attsvm.optimizers.normalized

    Examples
    --------
    >>> import attsvm, optax
    >>> from attsvm.datasets import random_problem
    >>> lion = attsvm.optimizers.chain(optax.lion(0.01), name="lion")
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=lion, steps=20).optimizer
    'lion'
    """
    if not parts:
        raise ProblemError("chain: expected at least a rule, got no part")
    last = parts[-1]
    if isinstance(last, Transformation) and not isinstance(last, Rule):
        raise ProblemError(f"chain: expected a rule at the end, got {type(last).__name__}")
    rule = rule_of(last)
    before: list[Transformation] = []
    for part in parts[:-1]:
        if isinstance(part, Rule) or not isinstance(part, Transformation):
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
    )


def rule_of(optimizer: object) -> Rule:
    """The rule of an optimizer: what the compiled training depends on.

    Raises ProblemError if it is not an optimizer.
    """
    if isinstance(optimizer, Rule):
        return optimizer
    if isinstance(optimizer, Optimizer):
        return optimizer.rule
    if isinstance(optimizer, optax.GradientTransformation):
        return Foreign(optimizer)
    raise not_an_optimizer(optimizer)


def not_an_optimizer(got: object) -> ProblemError:
    """The error for what is no optimizer; it says what to do with a function that makes one, and with PyTorch's."""
    shown, hint = repr(got), ""
    kind = got if isinstance(got, type) else type(got)
    if any(base.__module__.startswith("torch.optim") for base in kind.__mro__):
        shown = kind.__name__
        hint = "; optimizers of PyTorch work in attsvm.margin_profile and on models of PyTorch only"
    elif inspect.isfunction(got):
        home, name = got.__module__.split(".")[0], got.__name__
        path = f"{home}.{name}" if getattr(sys.modules[home], name, None) is got else name
        given = [each for each in inspect.signature(got).parameters.values() if each.kind not in _VARIADIC]
        needed = ", ".join(each.name for each in given if each.default is inspect.Parameter.empty)
        shown, hint = f"the function {name}", f"; call it: {path}({needed})"
    return ProblemError(f"optimizer: expected a name, one of attsvm.optimizers or one of optax, got {shown}{hint}")
