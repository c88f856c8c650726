"""Optimizers that do not use scales, such as those of optax."""

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
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scales, Tree
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

    @property
    def heads_apart(self) -> bool:
        """True: optimizers of optax that treat matrices in a special way, such as Muon, treat those of each head so."""
        return True

    def init(self, params: Tree) -> Any:
        """Its own state, for each trial."""
        return over_trials(self.transformation.init)(params)

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
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

        updates, state = over_trials(of_trial)(gradient, state, params, dict(scales.items()), value)
        return updates, state


def rule_of(optimizer: object) -> Rule:
    """The rule of an optimizer: what the compiled training depends on.

    Raises
    ------
    ProblemError
        If it is not an optimizer.

    See Also
    --------
    attsvm.optimizers.Rule

    Examples
    --------
    >>> from attsvm.optimizers import gradient_descent, rule_of
    >>> type(rule_of(gradient_descent(0.1))).__name__
    'Chain'
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
