"""Optimizers as optax transformations around a rule.

Training passes two extra arguments to ``update``: ``log_scale``, the logarithm of the factor exp(c) taken out of each
parameter's gradient, and ``value``, the loss. The optimisers of this package use them, so that a normalised step is
exact where the gradient itself underflows. Any other optax optimiser gets gradient·exp(c).
"""

import inspect
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers.chained import Chain
from attsvm.optimizers.foreign import Foreign, as_transformation
from attsvm.optimizers.hyperparameters import is_traced
from attsvm.optimizers.limit import Limit, limit_of
from attsvm.optimizers.rule import Multiplied, Rule, SizeOfWeights, Transformation
from attsvm.optimizers.scaled_gradient import ScaledGradient
from attsvm.optimizers.sizes import Tree
from attsvm.optimizers.steps import ARGUMENTS, Steps
from attsvm.optimizers.transformations import DecayingSum, LearningRate

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Optimizer(optax.GradientTransformationExtraArgs):
    """An optax transformation that takes ``log_scale`` and ``value``, of any tree of parameters.

    Use :func:`chain` or one of the factories to make one.

    Attributes
    ----------
    name : str
    norm : Norm or None
        The norm whose Att-SVM the optimiser is compared with; None if it is not known.
    rule : Rule
        The method, hashable.
    numbers : dict of str to float
        Learning rate and the like. They can change without compiling anything anew.
    arguments : dict
        The arguments of its factory.
    steps : Steps
        What its steps are; the Att-SVM that it is compared with follows from them.

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
    rule: Rule
    numbers: Mapping[str, float]
    arguments: Mapping[str, Any] | None
    steps: Steps

    def __new__(
        cls, rule: Rule, name: str, *, arguments: Mapping[str, Any] | None = None, steps: Steps | None = None
    ) -> "Optimizer":
        """Wrap a rule.

        ``arguments``: None if the optimiser was not made by a factory; it is then not written to files. ``steps``:
        without momentum and schedule, which the arguments and the parts of the rule say; of unknown kind by default.
        """
        numbers = dict(rule.numbers)

        def update(
            updates: Any, state: Any, params: Any = None, *, log_scale: Any = None, value: Any = None, **extra: Any
        ) -> tuple[Any, Any]:
            own = _dtypes(updates)
            # masks of optax leave empty trees
            if not own:
                return updates, state
            dtype = jnp.result_type(jnp.float32, *own)
            common = [dtype] * len(own)
            # any tree is a dictionary of arrays with a trailing axis of one trial for a rule
            gradient = _named(updates, common)
            logs = dict.fromkeys(gradient, jnp.zeros(1, dtype)) if log_scale is None else _named(log_scale, common)
            # entries near 1, as those of a training
            scaled, _ = ScaledGradient.separate(gradient, logs).rescaled()
            given = {name: jnp.asarray(number, dtype) for name, number in numbers.items()}
            known = _Unknown() if params is None else _named(params, common)
            loss: Any = None if value is None else jnp.asarray(value, dtype)[..., None]
            # the step is computed in one dtype; state and updates keep theirs, as loops of JAX need it
            before = _last(state)
            wide = jax.tree.map(lambda x: x.astype(dtype) if x.dtype in own else x, before)
            if params is not None:
                rounding = {name: float(jnp.finfo(each).eps) for name, each in zip(gradient, own, strict=True)}
                wide = rule.following(wide, known, rounding)
            moves, after = rule.update(scaled, wide, known, numbers=given, value=loss)
            if any(each != dtype for each in own):
                after = jax.tree.map(lambda x, old: x.astype(old.dtype), after, before)
            # back to the tree of the caller
            narrow = [moves[name].astype(each) for name, each in zip(gradient, own, strict=True)]
            leaves = [_leading_heads(move) for move in _one_trial(narrow)]
            return jax.tree.unflatten(jax.tree.structure(updates), leaves), _one_trial(after)

        def init(params: Any) -> Any:
            own = _dtypes(params)
            if not own:
                return ()
            dtype = jnp.result_type(jnp.float32, *own)
            state = rule.init(_named(params, [dtype] * len(own)))
            if any(each != dtype for each in own):
                of_own = jax.eval_shape(rule.init, _named(params, own))
                state = jax.tree.map(lambda x, like: x.astype(like.dtype), state, of_own)
            return _one_trial(state)

        optimizer: Optimizer = super().__new__(cls, init, update)
        optimizer.rule, optimizer.name, optimizer.numbers = rule, name, numbers
        optimizer.arguments = arguments
        optimizer.steps = _with_parts(Steps() if steps is None else steps, rule, arguments or {})
        return optimizer

    @property
    def norm(self) -> Norm | None:
        """The norm in which it steps."""
        return self.steps.norm

    def limit(self, attention: str, heads: int | None = None, key_groups: int | None = None) -> Limit:
        """The Att-SVM that it is expected to converge to.

        Parameters
        ----------
        attention : {"combined", "prompt", "factored", "gain", "key_prompt"}
            The parametrization that is trained.
        heads : int, optional
            The number of attention heads, for problems with their axis.
        key_groups : int, optional
            The number of groups of heads that share K.

        Examples
        --------
        >>> from attsvm.optimizers import normalized_gradient_descent
        >>> limit = normalized_gradient_descent(0.1).limit("factored")
        >>> limit.norm, str(limit.steps)
        (Nuclear(), 'normalized gradient descent')
        """
        return limit_of(self.steps, attention, heads, key_groups)

    def __repr__(self) -> str:
        shown = (
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in (self.arguments or {}).items()
        )
        return f"{self.name}({', '.join(shown)})"


def chain(
    *parts: Transformation | optax.GradientTransformation,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    norm: Norm | None = None,
    steps: Steps | None = None,
) -> Optimizer:
    """Chain transformations of the gradient and a rule, in this order, into an optimiser.

    Parameters
    ----------
    *parts : Transformation, ..., optax.GradientTransformation
        Any number of transformations of ``attsvm.optimizers.transformations``, then one rule, such as
        ``attsvm.optimizers.mirror.Mirror``, or an optimiser, of optax too.
    name : str, optional
        The name of the optimiser; that of the rule's class by default. A factory that is registered in ``OPTIMIZERS``
        passes its own name and ``arguments``, and then runs can be resumed from a file.
    arguments : dict, optional
        The arguments of that factory.
    norm : Norm, optional
        The norm whose Att-SVM the optimiser is compared with; that of the rule by default.
    steps : Steps, optional
        What its steps are, without momentum and schedule, which the parts say; by default of unknown kind.

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
        raise ProblemError("chain: expected at least one part, a rule")
    last = parts[-1]
    if isinstance(last, Transformation) and not isinstance(last, Rule):
        raise ProblemError(f"chain: expected a rule at the end, got {type(last).__name__}")
    rule = rule_of(last)
    before: list[Transformation] = []
    for part in parts[:-1]:
        if isinstance(part, Rule) or not isinstance(part, Transformation):
            raise ProblemError(f"chain: expected a transformation before the rule, got {part!r}")
        before.append(part)
    # a chain in a chain is one chain
    if isinstance(rule, Chain):
        before, rule = [*before, *rule.parts], rule.rule
    # numbers of one name would share their value
    names = [number for part in before for number in part.numbers] + list(rule.numbers)
    for number in names:
        if names.count(number) > 1:
            raise ProblemError(f"{number}: expected once in a chain, got {names.count(number)}")
    if steps is None:
        of_rule = last.steps if isinstance(last, Optimizer) else rule.steps
        known = norm if norm is not None else of_rule.norm
        # of what else changes the gradient of an optimiser of optax nothing is known
        steps = Steps(norm=known) if before or "." not in of_rule.kind else replace(of_rule, norm=known)
    return Optimizer(Chain(tuple(before), rule), name or type(rule).__name__, arguments=arguments, steps=steps)


def multiplied(optimizer: optax.GradientTransformation, factor: float) -> Optimizer:
    """An optimiser whose steps are multiplied by a factor; those of several factors share their compiled training."""
    return chain(Multiplied(rule_of(optimizer), factor))


def _with_parts(steps: Steps, rule: Rule, arguments: Mapping[str, Any]) -> Steps:
    """The steps with what the parts of a rule say of their momentum and schedule."""
    parts = rule.parts if isinstance(rule, Chain) else ()
    in_chain = next((part.rate for part in parts if isinstance(part, LearningRate)), steps.schedule)
    rate = arguments.get("learning_rate", in_chain)
    # of schedules only those that files can hold are known; a rate of 0 leads nowhere
    is_known = isinstance(rate, tuple(ARGUMENTS.values())) if callable(rate) else not (is_traced(rate) or not rate)
    momenta: list[float | None] = [part.decay for part in parts if isinstance(part, DecayingSum)] or [steps.momentum]
    return replace(
        steps,
        schedule=None if not is_known else rate if callable(rate) else float(rate),
        momentum=None if is_traced(momenta[0]) else momenta[0],
        relative=steps.relative or any(isinstance(part, SizeOfWeights) for part in parts),
    )


def rule_of(optimizer: object) -> Rule:
    """The rule of an optimizer: what the compiled training depends on.

    Raises ProblemError if it is not an optimiser.
    """
    if isinstance(optimizer, Rule):
        return optimizer
    if isinstance(optimizer, Optimizer):
        return optimizer.rule
    found = as_transformation(optimizer)
    if isinstance(found, optax.GradientTransformation):
        return Foreign(found)
    raise not_an_optimizer(optimizer)


def not_an_optimizer(got: object) -> ProblemError:
    """The error for what is no optimiser; it says what to do with a function that makes one, and with PyTorch's."""
    shown, hint = repr(got), ""
    kind = got if isinstance(got, type) else type(got)
    # by the name of the module, as PyTorch need not be installed
    if any(base.__module__.startswith("torch.optim") for base in kind.__mro__):
        shown = kind.__name__
        hint = "; PyTorch's optimisers work only in attsvm.margin_profile and on PyTorch models"
    elif inspect.isfunction(got):
        home, name = got.__module__.split(".")[0], got.__name__
        # the shortest path under which users know the function
        path = f"{home}.{name}" if getattr(sys.modules[home], name, None) is got else name
        given = [each for each in inspect.signature(got).parameters.values() if each.kind not in _VARIADIC]
        needed = ", ".join(each.name for each in given if each.default is inspect.Parameter.empty)
        shown, hint = f"the function {name}", f"; call it: {path}({needed})"
    return ProblemError(
        f"optimizer: expected a name, or an optimiser from attsvm.optimizers or optax, got {shown}{hint}"
    )


class _Unknown(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise ProblemError("params: expected the parameters in update")

    def items(self) -> Any:
        return self[""]


def _dtypes(tree: Any) -> list[Any]:
    """The dtype of the steps of each leaf: its own, or that of floats for integers."""
    found = [jnp.asarray(leaf).dtype for leaf in jax.tree.leaves(tree)]
    for dtype in found:
        if jnp.issubdtype(dtype, jnp.complexfloating):
            hint = "wrap the optimiser in optax.contrib.split_real_and_imaginary"
            raise ProblemError(f"params: expected real numbers, got {dtype}; {hint}")
    return [dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.promote_types(dtype, jnp.float32) for dtype in found]


def _named(tree: Any, dtypes: list[Any]) -> Tree:
    """The leaves of any tree as the dictionary that rules work on, with a trailing axis of one trial."""
    leaves = jax.tree.leaves(tree)
    if len(leaves) != len(dtypes):
        raise ProblemError(f"params: expected {len(dtypes)} arrays, one for each gradient, got {len(leaves)}")
    return {
        f"{i:06}": _trailing_heads(jnp.asarray(leaf, dtype))[..., None]
        for i, (leaf, dtype) in enumerate(zip(leaves, dtypes, strict=True))
    }


def _trailing_heads(x: jax.Array) -> jax.Array:
    """(*heads, r, c) as (r, c, *heads)."""
    return x if x.ndim <= 2 else jnp.moveaxis(x, (-2, -1), (0, 1))


def _leading_heads(x: jax.Array) -> jax.Array:
    return x if x.ndim <= 2 else jnp.moveaxis(x, (0, 1), (-2, -1))


def _last(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.expand_dims(x, -1), tree)


def _one_trial(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.squeeze(x, -1), tree)
