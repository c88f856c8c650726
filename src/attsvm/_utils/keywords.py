"""Arguments under the names that other libraries give them."""

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from attsvm._utils.extensions import did_you_mean

Made = TypeVar("Made", bound=Callable[..., Any])

_NAMES = (
    ("seed", "random_state"),
    ("learning_rate", "lr", "step_size"),
    ("progress", "verbose"),
    ("steps", "max_steps", "epochs", "max_iter", "num_steps"),
    ("slack", "c"),
    ("norm", "p"),
    ("tokens", "x"),
    ("labels", "y"),
    ("queries", "query", "z"),
)


def suggests(function: Made) -> Made:
    """Decorate a function or a class, so that the error for an unknown argument names the one that was meant."""
    if isinstance(function, type):
        function.__init__ = suggests(function.__init__)  # type: ignore[misc]
        return function

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # from inside the function
            arrays = bool(args) and isinstance(args[0], list | tuple | np.ndarray)
            hint = _hint(str(error), list(inspect.signature(function).parameters), arrays)
            # Python 3.13 suggests a name by its spelling alone
            raise TypeError(f"{str(error).partition('. Did you mean')[0]}{hint}" if hint else str(error)) from None

    return call  # type: ignore[return-value]


def _hint(error: str, known: list[str], arrays: bool) -> str:
    unknown = re.search(r"unexpected keyword argument '(\w+)'", error)
    if unknown is None:
        if arrays and "problem" in known:
            return "; attsvm.Problem(tokens, labels) makes a problem from arrays"
        return "; give a Run, or attsvm.optimal_tokens(problem)" if "argument: 'selected'" in error else ""
    if unknown[1] in ("weight_decay", "momentum") and "optimizer" in known:
        return f"; it is an option of optimisers, as in optimizer=attsvm.optimizers.spectral_descent({unknown[1]}=...)"
    others = {other: name for names in _NAMES for name in names if name in known for other in names}
    return did_you_mean(unknown[1], known, others)
