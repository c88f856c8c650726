"""The values of a sweep as JSON: equal values have equal descriptions in every process."""

import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from tokenize import TokenError
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np
import optax

from attsvm._utils.extensions import import_object
from attsvm.errors import ProblemError
from attsvm.optimizers import OPTIMIZERS, Optimizer

_IMPORT_PATH = re.compile(r"[\w.]+:[\w.]+")


def described(value: Any, name: str = "sweep", inside: tuple[int, ...] = ()) -> Any:
    """A value as JSON that is the same in every process.

    Arrays are described by the hash of their bytes, dataclasses by their fields, functions by their code, defaults and
    closures, optimizers by their configuration, import paths by what they refer to.

    ``name``: what it is called in an error. ``inside``: ids of the objects it is a part of. A recursive function is a
    part of itself.

    Raises ProblemError if it cannot be described.
    """
    if id(value) in inside:
        return "recursive"
    part = functools.partial(described, name=name, inside=(*inside, id(value)))
    simple = _simple(value)
    if simple is not None:
        return simple[0]
    if isinstance(value, str):
        return _import_path(value, part) if _IMPORT_PATH.fullmatch(value) else value
    if isinstance(value, Optimizer):
        return _optimizer(value, part)
    if isinstance(value, optax.GradientTransformation):
        raise ProblemError(
            f"{name}: expected an optimizer of attsvm.optimizers or an import path, got an optax optimizer, whose "
            "settings cannot be read"
        )
    if isinstance(value, list | tuple):
        return [part(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((part(each) for each in value), key=str)
    if isinstance(value, Mapping):
        return {str(key): part(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _array(np.asarray(value), part)
    if isinstance(value, FunctionType):
        code = hashlib.sha256(_code(value.__code__).encode()).hexdigest()
        return [_path(value), code, part([value.__defaults__, value.__kwdefaults__]), _closure(value, part)]
    if isinstance(value, functools.partial):
        return ["partial", part(value.func), part(value.args), part(value.keywords)]
    if isinstance(value, MethodType):
        return [part(value.__func__), part(value.__self__)]
    if callable(getattr(value, "__wrapped__", None)):  # of functools.wraps, and of jax.jit
        return [_path(type(value)), part(value.__wrapped__)]
    if isinstance(value, type):
        return [_path(value), _source(value)]
    if is_dataclass(value):
        return [part(type(value)), {each.name: part(getattr(value, each.name)) for each in fields(value)}]
    raise ProblemError(
        f"{name}: expected values that can be described in the store, as numbers, arrays, dataclasses and functions, "
        f"got {type(value).__name__}"
    )


def _simple(value: Any) -> tuple[Any] | None:
    """The description of a value without parts, in a tuple; None for other values."""
    if value is None or (isinstance(value, bool | int | float) and not isinstance(value, np.generic)):
        return (value,)
    if isinstance(value, Enum):
        return ([_path(type(value)), value.name],)
    if isinstance(value, complex | PurePath | np.dtype | range | slice):
        return (repr(value),)
    if isinstance(value, bytes):
        return (hashlib.sha256(value).hexdigest(),)
    if isinstance(value, ModuleType):
        return (value.__name__,)
    if isinstance(value, np.ufunc):
        return (value.__name__,)
    if isinstance(value, BuiltinFunctionType) and (value.__self__ is None or isinstance(value.__self__, ModuleType)):
        return (_path(value),)
    return None


def _array(value: np.ndarray, part: Any) -> Any:
    if value.dtype.hasobject:
        return [list(value.shape), [part(each) for each in value.ravel().tolist()]]
    if not value.shape and value.dtype.kind in "biufU":
        return value.item()
    return [list(value.shape), str(value.dtype), hashlib.sha256(value.tobytes()).hexdigest()]


def _optimizer(value: Optimizer, part: Any) -> Any:
    """The name and arguments of an optimizer whose factory is known; its rule otherwise."""
    if value.arguments is not None and (":" in value.name or value.name in OPTIMIZERS):
        return ["optimizer", part(value.name), part(value.arguments)]
    return ["optimizer", value.name, part(value.arguments), part(value.rule), part(dict(value.numbers))]


def _import_path(text: str, part: Any) -> Any:
    """The text, and what it refers to if it is an import path; the source of its module for what has no description."""
    try:
        found = import_object(text)
    except Exception:  # another text, or a module that fails in any way, which is an error where it is used
        return text
    try:
        return [text, part(found)]
    except ProblemError:
        return [text, _source(sys.modules[text.partition(":")[0]])]


def _closure(value: FunctionType, part: Any) -> list[Any]:
    cells = {}
    for key, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            cells[key] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return [[key, part(content)] for key, content in cells.items()]


def _path(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"


def _source(value: Any) -> str:
    """SHA-256 of the source of a class or module."""
    try:
        source = inspect.getsource(value)
    except (OSError, TypeError, SyntaxError, TokenError):  # code that was executed has no file, or the lines of another
        source = ""
    return hashlib.sha256(source.encode()).hexdigest()


def _code(code: CodeType) -> str:
    """What a function computes. Its source is not known where it was sent to another process."""
    return repr([code.co_code.hex(), code.co_names, [_constant(each) for each in code.co_consts]])


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _code(value)
    # the order of a set differs from process to process
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)
