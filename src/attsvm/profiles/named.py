"""The optimiser that a profile steps, from what a caller gives."""

import contextlib
import inspect
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from attsvm._utils.checks import check_number
from attsvm._utils.extensions import import_object, unknown_name
from attsvm._utils.extras import check_installed
from attsvm.errors import ProblemError
from attsvm.optimizers import OPTIMIZERS
from attsvm.profiles.of_optax import OfOptax, idle_update
from attsvm.profiles.of_torch import OfTorch
from attsvm.profiles.stepped import Stepped, first_line, refusal

_DEFAULT_RATE = 0.1
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_EXPECTED = (
    "expected an optax transformation, a function of a learning rate that returns one, a class of PyTorch optimisers, "
    "a function of parameters that returns one, or the name of any of these"
)


def stepped(optimizer: Any, learning_rate: float | None) -> Stepped:
    """Find what makes the steps of an optimiser.

    Raises ProblemError if it is none of the kinds that a profile takes, or a learning rate is given for one that has
    its own.
    """
    if learning_rate is not None:
        learning_rate = check_number("learning_rate", learning_rate, "a positive number", lambda rate: rate > 0)
    name = optimizer if isinstance(optimizer, str) else _name(optimizer)
    if name.startswith("torch."):
        check_installed(f"optimizer: {name}", "torch", "torch")
    found: Any = import_optimizer(optimizer) if isinstance(optimizer, str) else optimizer
    if isinstance(found, optax.GradientTransformation):
        if learning_rate is not None:
            raise ProblemError(
                f"learning_rate: expected None for {name}, which has its own, got {learning_rate:g}; "
                "give a function of the learning rate instead"
            )
        return OfOptax.of_transformation(found, name)
    if not callable(found):
        instance = _is_of_torch(found)
        bound = ", whose parameters are given already; give its class" if instance else ""
        raise ProblemError(f"optimizer: {_EXPECTED}; got {type(found).__name__}{bound}")
    kind = found.func if isinstance(found, partial) else found
    if inspect.isclass(kind) and _is_of_torch(kind):
        return _of_torch_class(found, name, learning_rate)
    if isinstance(found, partial) and "learning_rate" in {*_parameters(found.func)} - {*_parameters(found)}:
        raise ProblemError(
            f"optimizer: expected a function of a learning rate, got {name}, which has one already; call it"
        )
    return _of_function(found, name, learning_rate)


def _of_torch_class(found: Any, name: str, learning_rate: float | None) -> Stepped:
    """A class of PyTorch optimisers with its own learning rate, the given one, or a default if it needs one."""
    given = isinstance(found, partial) and "lr" in found.keywords
    if given and learning_rate is not None:
        raise _has_its_own(name, learning_rate)
    attempts = [found] if learning_rate is None else []
    if not given:
        attempts.append(partial(found, lr=_DEFAULT_RATE if learning_rate is None else learning_rate))
    failures: list[Exception] = []
    for make in attempts:
        try:
            return OfTorch(make, name)
        except Exception as error:  # a constructor may refuse its arguments in any way
            failures.append(error)
    raise _unmade(found, name, failures)


def _of_function(function: Callable[..., Any], name: str, learning_rate: float | None) -> Stepped:
    """Wrap what a function makes when it is called with a schedule, with a number, or with parameters."""
    make = _by_keyword(function)
    rate = _rate(function) if learning_rate is None else learning_rate
    failures: list[Exception] = []
    returned: list[Any] = []
    refused: Exception | None = None
    for argument in (lambda k: rate + 0.0 * k, rate):
        try:
            made = make(argument)
        except Exception as error:  # a user's function may fail in any way
            failures.append(error)
            continue
        returned.append(made)
        if isinstance(made, optax.GradientTransformation):
            takes_schedules, name = callable(argument), _unless_anonymous(name, made)
            refused = _error_of_a_step(made)
            if refused is None:
                wrap = OfOptax.of_factory if takes_schedules else OfOptax.of_transformation
                return wrap(make if takes_schedules else made, name, rate)
    if refused is not None:
        raise refusal(name, refused)
    if "torch" in sys.modules:
        import torch

        try:
            made = function([torch.nn.Parameter(torch.ones(2, 2))])
        except Exception as error:
            failures.append(error)
        else:
            returned.append(made)
            if isinstance(made, torch.optim.Optimizer):
                if learning_rate is not None:
                    raise _has_its_own(name, learning_rate)
                return OfTorch(function, _unless_anonymous(name, made))
    if not returned:
        raise _unmade(function, name, failures)
    raise ProblemError(f"optimizer: {_EXPECTED}; {name} returned something else ({type(returned[-1]).__name__})")


def _error_of_a_step(transformation: optax.GradientTransformation) -> Exception | None:
    """Return what one update raises, since a schedule where a number is expected shows then."""
    try:
        with jax.enable_x64(True), contextlib.suppress(ProblemError):  # it may be one for K and Q
            idle_update(transformation, {"W": np.ones((2, 2))})
    except Exception as error:
        return error
    return None


def _has_its_own(name: str, learning_rate: float) -> ProblemError:
    return ProblemError(f"learning_rate: expected None for {name}, which sets its own, got {learning_rate:g}")


def _unmade(function: Callable[..., Any], name: str, failures: list[Exception]) -> ProblemError:
    """The error for an optimiser whose constructor, or a function that makes it, failed in each attempt."""
    given = _parameters(function)
    required = [one.name for one in given.values() if one.default is one.empty and one.kind not in _VARIADIC]
    # the learning rate, or the parameters, which a module cannot be made of
    passed = "learning_rate" if "learning_rate" in given else next(iter(given), "")
    needed = [f"`{one}`" for one in required if one == "model" or one not in (passed, "lr")]
    if needed:
        return ProblemError(f"optimizer: {name} needs the argument{'s' * (len(needed) > 1)} {', '.join(needed)}")
    # an argument of another kind than expected says nothing about the optimiser
    said = [error for error in failures if not re.search("'(function|float|list)'", str(error))]
    return ProblemError(f"optimizer: {name} cannot be made ({first_line((said or failures)[-1])})")


def _by_keyword(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """The function of one argument; a learning rate is passed by its name where there is one."""
    if "learning_rate" in _parameters(function):
        return lambda rate: function(learning_rate=rate)
    return function


def _rate(function: Callable[..., Any]) -> float:
    parameter = _parameters(function).get("learning_rate")
    default = None if parameter is None else parameter.default
    return float(default) if isinstance(default, int | float) else _DEFAULT_RATE


def _parameters(function: Callable[..., Any]) -> Any:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some functions of C have none
        return {}


def _is_of_torch(found: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return (
        issubclass(found, torch.optim.Optimizer) if inspect.isclass(found) else isinstance(found, torch.optim.Optimizer)
    )


def import_optimizer(name: str) -> Any:
    """A registered optimiser, ``package.module:name`` or ``package.module.name``."""
    if name in OPTIMIZERS.names():
        return OPTIMIZERS.find(name)
    path = name if ":" in name or "." not in name else ":".join(name.rsplit(".", 1))
    if ":" not in path:
        raise unknown_name("optimizer", name, OPTIMIZERS.names(), "one such as torch.optim.Adam")
    try:
        return import_object(path)
    except Exception as error:  # a module may fail on import in any way
        raise ProblemError(f"optimizer: {name!r} cannot be imported ({type(error).__name__}: {error})") from error


def _name(optimizer: Any) -> str:
    if isinstance(optimizer, partial):
        return _name(optimizer.func)
    own = getattr(optimizer, "__qualname__", None) or getattr(optimizer, "name", None)
    unnamed = "optax" if isinstance(optimizer, optax.GradientTransformation) else type(optimizer).__name__
    return str(own or unnamed)


def _unless_anonymous(name: str, made: Any) -> str:
    """The name of a function; that of what it returned if it has none."""
    return _name(made) if "<lambda>" in name else name
