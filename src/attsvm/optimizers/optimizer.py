"""Optimizers as optax transformations around a rule.

Training passes two extra arguments to ``update``: ``log_scale``, the logarithm of the factor exp(c) taken out of each
parameter's gradient, and ``value``, the loss. The optimizers of this package use them, so that a normalized step is
exact where the gradient itself underflows. Any other optax optimizer gets gradient·exp(c).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers.limit import Limit, Limits, limits_of
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scaled, Scales, Tree, rescaled


class Optimizer(optax.GradientTransformationExtraArgs):
    """An optax transformation that takes ``log_scale`` and ``value``, of any tree of parameters.

    Use :func:`chain` or one of the factories to make one.

    Attributes
    ----------
    name : str
    norm : Norm or None
        The norm whose Att-SVM the optimizer is compared with; None if it is not known.
    rule : Rule
        The method, hashable.
    numbers : dict of str to float
        Learning rate and the like. They can change without compiling anything anew.
    arguments : dict
        The arguments of its factory.
    limits : dict of str to Limit
        The Att-SVM that it is compared with, for each attention.

    See Also
    --------
    attsvm.optimizers.chain, attsvm.optimizers.parse_optimizer

    Examples
    --------
    >>> from attsvm.optimizers import Optimizer, mirror_descent
    >>> optimizer = mirror_descent(learning_rate=0.1, p=3)
    >>> isinstance(optimizer, Optimizer), optimizer.name, optimizer.norm.name, optimizer.numbers
    (True, 'mirror_descent', 'l3', {'learning_rate': 0.1})
    """

    name: str
    norm: Norm | None
    rule: Rule
    numbers: Mapping[str, float]
    arguments: Mapping[str, Any] | None
    limits: Limits

    def __new__(
        cls,
        rule: Rule,
        name: str,
        *,
        norm: Norm | None = None,
        arguments: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> "Optimizer":
        """Wrap a rule.

        ``arguments``: None if the optimizer was not made by a factory; it is then not written to files. ``limits``: of
        steps of unknown kind in the given norm by default.
        """
        numbers = dict(rule.numbers)

        def update(
            updates: Any, state: Any, params: Any = None, *, log_scale: Any = None, value: Any = np.nan, **extra: Any
        ) -> tuple[Any, Any]:
            gradient = _named(updates)
            logs = (
                _named(log_scale) if log_scale is not None else {k: jnp.zeros(1, g.dtype) for k, g in gradient.items()}
            )
            gradient, scales, _ = rescaled(gradient, Scales.separate(logs))
            dtype = jnp.result_type(*gradient.values())
            given = {name: jnp.asarray(number, dtype) for name, number in numbers.items()}
            known = _Unknown() if params is None else _named(params)
            loss = jnp.asarray(value, dtype)[..., None]
            moves, state = rule.update(Scaled(gradient, scales), _last(state), known, numbers=given, value=loss)
            structure = jax.tree.structure(updates)
            leaves = [_leading_heads(move) for move in _one_trial([moves[key] for key in gradient])]
            return jax.tree.unflatten(structure, leaves), _one_trial(state)

        def init(params: Any) -> Any:
            return _one_trial(rule.init(_named(params)))

        optimizer: Optimizer = super().__new__(cls, init, update)
        optimizer.rule, optimizer.name, optimizer.norm, optimizer.numbers = rule, name, norm, numbers
        optimizer.arguments = arguments
        optimizer.limits = limits_of(norm) if limits is None else limits
        return optimizer

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(
            Optimizer,
            norm=self.norm,
            arguments=self.arguments,
            limits=self.limits,
        )
        return made, (self.rule, self.name)

    def limit(self, attention: str) -> Limit:
        """The Att-SVM that it is expected to converge to.

        Parameters
        ----------
        attention : {"combined", "prompt", "factored", "key_prompt"}
            The parametrization that is trained.

        Examples
        --------
        >>> from attsvm.optimizers import normalized_gradient_descent
        >>> limit = normalized_gradient_descent(0.1).limit("factored")
        >>> limit.norm, limit.steps
        (Nuclear(), 'normalized gradient descent')
        """
        return self.limits.get(attention, Limit(None))

    def __repr__(self) -> str:
        shown = (
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in (self.arguments or {}).items()
        )
        return f"{self.name}({', '.join(shown)})"


class _Unknown(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise ProblemError("params: expected the parameters in update, got None")


def _named(tree: Any) -> Tree:
    """The leaves of any tree as the dictionary that rules work on, with a trailing axis of one trial."""
    leaves = jax.tree.leaves(tree)
    return {f"{i:06}": _trailing_heads(jnp.asarray(leaf))[..., None] for i, leaf in enumerate(leaves)}


def _trailing_heads(x: jax.Array) -> jax.Array:
    """(*heads, r, c) as (r, c, *heads)."""
    return x if x.ndim <= 2 else jnp.moveaxis(x, (-2, -1), (0, 1))


def _leading_heads(x: jax.Array) -> jax.Array:
    return x if x.ndim <= 2 else jnp.moveaxis(x, (0, 1), (-2, -1))


def _last(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.expand_dims(x, -1), tree)


def _one_trial(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.squeeze(x, -1), tree)
