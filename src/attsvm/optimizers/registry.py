"""The optimisers that are known by name, how ``optimizer=`` is read, and optimisers written to files."""

import copyreg
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import optax

from attsvm._utils.extensions import Registry, is_trusted, named_by_file, unknown_name
from attsvm.errors import ProblemError
from attsvm.norms import JointNorm, Norm, read_norm, written_norm
from attsvm.optimizers.foreign import as_transformation
from attsvm.optimizers.limit import limit_of
from attsvm.optimizers.optimizer import Optimizer, not_an_optimizer
from attsvm.optimizers.steps import ARGUMENTS, Steps, written_steps

Factory = Callable[..., optax.GradientTransformation]


def _factory(found: object) -> Factory | optax.GradientTransformation:
    found = as_transformation(found)
    if isinstance(found, optax.GradientTransformation) or callable(found):
        return found
    raise ProblemError(f"expected an optimiser or a function that returns one, got {type(found).__name__}")


OPTIMIZERS: Registry[Factory | optax.GradientTransformation] = Registry(
    "optimizer", group="attsvm.optimizers", package="attsvm.optimizers", check=_factory
)


def optimizer_options(name: str) -> dict[str, inspect.Parameter]:
    """The options of an optimiser: the parameters of its factory that are not optimisers themselves.

    Parameters
    ----------
    name : str
        A registered name, or an import path ``package.module:name``.

    Raises
    ------
    ProblemError
        If there is no such optimiser.

    See Also
    --------
    attsvm.optimizers.parse_optimizer

    Examples
    --------
    >>> from attsvm.optimizers import optimizer_options
    >>> list(optimizer_options("steepest_descent"))
    ['learning_rate', 'norm', 'normalize', 'relative', 'weight_decay']
    """
    found = _find(name)
    if isinstance(found, optax.GradientTransformation):
        return {}
    parameters = inspect.signature(found).parameters
    return {option: parameter for option, parameter in parameters.items() if option != "inner"}


def parse_optimizer(
    optimizer: str | optax.GradientTransformation | None, **options: Any
) -> optax.GradientTransformation:
    """Read an optimiser.

    Parameters
    ----------
    optimizer : str, optax.GradientTransformation, optax.MultiSteps or None
        A registered name, an import path ``package.module:name`` of an optimiser or of a function that returns one, or
        an optimiser, which is returned as it is. None is normalised gradient descent.
    **options
        Arguments of the function. An optimiser that is given as an object takes none.

    Raises
    ------
    ProblemError
        If there is no such optimiser, it does not have an option, or it lacks one.

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
        return _by_name(optimizer or "normalized_gradient_descent", options)
    for option, value in options.items():
        raise ProblemError(f"{option}: expected None with an optimiser object, which has its own, got {value!r}")
    found = as_transformation(optimizer)
    if isinstance(found, optax.GradientTransformation):
        return found
    raise not_an_optimizer(optimizer)


def _find(name: str) -> Factory | optax.GradientTransformation:
    if ":" not in name and name not in OPTIMIZERS and callable(getattr(optax, name, None)):
        # the name that is spelled most alike may be another algorithm: adam for adamw
        raise unknown_name("optimizer", name, OPTIMIZERS.names(), hint=f"; for optax's {name}, write optax:{name}.")
    if not is_trusted(name) and ":" in name and not re.fullmatch(r"optax:\w+", name):
        # it would be called with arguments of the file, and might be os:system
        raise ProblemError(f"a file names {name}: pass the optimiser, or load the file with trusted=True")
    return OPTIMIZERS.find(name)


def _by_name(name: str, options: dict[str, Any]) -> optax.GradientTransformation:
    found = _find(name)
    known = optimizer_options(name)
    for option in options:
        if option not in known and option != "inner":
            has = f"its options are {', '.join(known)}" if known else "it has none"
            raise ProblemError(f"{option}: not an option of {name}; {has}")
    if isinstance(found, optax.GradientTransformation):
        return found
    parameters = inspect.signature(found).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for parameter in parameters:
        required = parameter.default is inspect.Parameter.empty and parameter.kind not in variadic
        if required and parameter.name not in options:
            raise ProblemError(f"{parameter.name}: expected a value for {name}")
    # a function of another package may return anything
    returned = as_transformation(found(**options))
    if not isinstance(returned, optax.GradientTransformation):
        raise ProblemError(f"optimizer: {name}: expected a function that returns an optimiser, got {returned!r}")
    made = parse_optimizer(returned)
    if isinstance(made, Optimizer) and made.arguments is None:
        # with its name and options a run can be resumed from a file
        return Optimizer(made.rule, name, arguments=options, steps=made.steps)
    return made


def configuration(optimizer: Any) -> dict[str, Any] | None:
    """Write what a file needs to rebuild an optimizer: its name and arguments. None where a part cannot be written."""
    if not isinstance(optimizer, Optimizer) or optimizer.arguments is None:
        return None
    written: dict[str, Any] = {}
    # numbers are JSON already; norms, schedules and other optimisers become dictionaries with a key of their own
    for name, value in optimizer.arguments.items():
        if isinstance(value, Norm):
            written[name] = {"norm": written_norm(value)}
            continue
        part = next((key for key, kind in ARGUMENTS.items() if isinstance(value, kind)), None)
        if part is not None:
            written[name] = {part: asdict(value)}
            continue
        inner = configuration(value) if callable(getattr(value, "update", None)) else value
        # a function, or an optimiser of optax
        if callable(inner) or (inner is None and value is not None):
            return None
        written[name] = inner
    return {"name": optimizer.name, "arguments": written}


def from_configuration(written: dict[str, Any]) -> Any:
    """The optimiser that :func:`configuration` wrote.

    Raises ProblemError if the name is unknown or the arguments do not fit.
    """
    if not isinstance(written, dict) or not isinstance(written.get("arguments"), dict):
        raise ProblemError("optimizer: expected a name and arguments in the file")
    name = str(written.get("name"))
    if name not in OPTIMIZERS and ":" not in name:
        raise ProblemError(f"optimizer: expected one of {', '.join(OPTIMIZERS.names())}, got {name!r}")
    try:
        # an import path of a file runs nothing that the user has not imported
        with named_by_file():
            return parse_optimizer(name, **{key: _read(value) for key, value in written["arguments"].items()})
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ProblemError(f"optimizer: {name} cannot be rebuilt from the file ({error})") from None


def optimizer_of(run: Any) -> Any:
    """Return the optimiser of a run; raise ProblemError if it was loaded from a file and cannot be rebuilt."""
    if run.live_optimizer is not None:
        return run.live_optimizer
    if run.optimizer_config is None:
        raise ProblemError(
            f"optimizer: {run.optimizer} cannot be rebuilt, because it was not saved; pass it to resume the run"
        )
    return from_configuration(run.optimizer_config)


def converted(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read what a file has of a run; in versions 0.2 and 1.0, limits named their steps, which become a record.

    It is that of the optimiser, rebuilt from its arguments, and unknown if it cannot be. In these versions runs had the
    norm of their optimiser, in place of which comes that of the limit.
    """
    limit = meta.get("limit")
    if not isinstance(limit, Mapping):
        return meta
    meta = {**meta, "norm": limit["norm"]}
    if isinstance(limit.get("steps"), Mapping):
        return meta
    steps = Steps()
    with suppress(ProblemError):
        own = from_configuration(meta.get("optimizer_config") or {}).steps
        # these files do not have the numbers of heads and groups, of which only counts whether there are any
        several = 2 if limit["norm"] is not None and isinstance(read_norm(limit["norm"]), JointNorm) else None
        groups = 1 if several and "shared keys" in str(limit.get("steps")) else None
        steps = limit_of(own, meta["attention"], several, groups, layers="layers" in meta).steps
    if meta.get("schedule", "not recorded") == "not recorded":
        steps = replace(steps, schedule=None)
    return {**meta, "limit": {**limit, "steps": written_steps(steps)}}


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "norm" in value:
        return read_norm(value["norm"])
    part = next((key for key in ARGUMENTS if key in value), None)
    return from_configuration(value) if part is None else ARGUMENTS[part](**value[part])


def _pickled(optimizer: Optimizer) -> tuple[Callable[[], Any], tuple[()]]:
    """How an optimiser is pickled: by its name and arguments if they make it, as the functions of optax are local."""
    of = optimizer
    if of.arguments is not None and (":" in of.name or of.name in OPTIMIZERS):
        return partial(parse_optimizer, of.name, **of.arguments), ()
    return partial(Optimizer, of.rule, of.name, arguments=of.arguments, steps=of.steps), ()


copyreg.pickle(Optimizer, _pickled)
