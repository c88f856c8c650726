"""The optimizers that are known by name, and how ``optimizer=`` is read."""

import inspect
from collections.abc import Callable
from typing import Any

import optax

from attsvm._utils.extensions import Registry
from attsvm.errors import ProblemError
from attsvm.optimizers.chain import chain
from attsvm.optimizers.foreign import not_an_optimizer
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.rule import Rule

Factory = Callable[..., optax.GradientTransformation | Rule]


def _factory(found: object) -> Factory | optax.GradientTransformation | Rule:
    if isinstance(found, optax.GradientTransformation | Rule) or callable(found):
        return found
    raise ProblemError(f"expected an optimizer or a function that returns one, got {type(found).__name__}")


OPTIMIZERS: Registry[Factory | optax.GradientTransformation | Rule] = Registry(
    "optimizer", group="attsvm.optimizers", package="attsvm.optimizers", check=_factory
)


DEFAULT = "normalized_gradient_descent"
"""The optimizer that options without a name belong to."""


def optimizer_options(name: str) -> dict[str, inspect.Parameter]:
    """The options of an optimizer: the parameters of its factory that are not optimizers themselves.

    Parameters
    ----------
    name : str
        A registered name, or an import path ``package.module:name``.

    Raises
    ------
    ProblemError
        If there is no such optimizer.

    See Also
    --------
    attsvm.optimizers.parse_optimizer

    Examples
    --------
    >>> from attsvm.optimizers import optimizer_options
    >>> list(optimizer_options("steepest_descent"))
    ['norm', 'learning_rate', 'normalize', 'relative']
    """
    found = OPTIMIZERS.find(name)
    if isinstance(found, optax.GradientTransformation | Rule):
        return {}
    parameters = inspect.signature(found).parameters
    return {option: parameter for option, parameter in parameters.items() if option != "inner"}


def parse_optimizer(
    optimizer: str | optax.GradientTransformation | Rule | None, **options: Any
) -> optax.GradientTransformation:
    """Read an optimizer.

    Parameters
    ----------
    optimizer : str, optax.GradientTransformation, Rule or None
        A registered name, an import path ``package.module:name`` of an optimizer or of a function that returns one, or
        an optimizer, which is returned as it is. None is normalized gradient descent.
    **options
        Arguments of the function. An optimizer that is given as an object takes none.

    Raises
    ------
    ProblemError
        If there is no such optimizer, it does not have an option, or it lacks one.

    See Also
    --------
    attsvm.optimizers.optimizer_options, attsvm.optimizers.OPTIMIZERS

    Examples
    --------
    >>> from attsvm.optimizers import parse_optimizer
    >>> parse_optimizer("mirror_descent", p=1.75)
    mirror_descent(p=1.75, learning_rate=0.1, normalize=True, scope='all', relative=False)
    """
    if optimizer is None or isinstance(optimizer, str):
        return _by_name(optimizer or DEFAULT, options)
    for option, value in options.items():
        raise ProblemError(f"{option}: expected None with an optimizer that has its own, got {value!r}")
    if isinstance(optimizer, Rule):
        return chain(optimizer)
    if isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    raise not_an_optimizer(optimizer)


def _by_name(name: str, options: dict[str, Any]) -> optax.GradientTransformation:
    found = OPTIMIZERS.find(name)
    known = optimizer_options(name)
    for option in options:
        if option not in known and option != "inner":
            has = f"its options are {', '.join(known)}" if known else "it has none"
            raise ProblemError(f"{option}: not an option of {name}; {has}")
    if isinstance(found, optax.GradientTransformation | Rule):
        return parse_optimizer(found)
    parameters = inspect.signature(found).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for parameter in parameters:
        required = parameter.default is inspect.Parameter.empty and parameter.kind not in variadic
        if required and parameter.name not in options:
            raise ProblemError(f"{parameter.name}: expected a value for {name}, got none")
    made = parse_optimizer(found(**options))
    if isinstance(made, Optimizer) and made.arguments is None:
        # with its name and options a run can be resumed from a file
        return Optimizer(
            made.rule,
            name,
            norm=made.norm,
            arguments=options,
            limits=made.limits,
            gradient_step=made.gradient_step,
        )
    return made
