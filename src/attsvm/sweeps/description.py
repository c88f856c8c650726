"""The values of a sweep as JSON: equal values have equal descriptions in every process."""

import hashlib
import inspect
import pickle
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from tokenize import TokenError
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import optax
from joblib.hashing import NumpyHasher

from attsvm._utils.extensions import import_object
from attsvm.errors import ProblemError
from attsvm.optimizers import OPTIMIZERS, Optimizer

_IMPORT_PATH = re.compile(r"[\w.]+:[\w.]+")


def described(value: Any, name: str = "sweep") -> Any:
    """A value as JSON that is the same in every process.

    Numbers, texts, and lists and dicts of them are themselves. Others are described by joblib's hash of their pickle.
    For it functions are their code, defaults and closures, classes their source, dataclasses their fields, optimisers
    their arguments, and import paths what they refer to.

    ``name``: what it is called in an error.

    Raises ProblemError if it cannot be described.
    """
    if isinstance(value, np.generic | np.ndarray) and not value.shape and value.dtype.kind in "biufU":
        value = value.item()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _import_path(value) if _IMPORT_PATH.fullmatch(value) else value
    if isinstance(value, list | tuple) and not isinstance(value, optax.GradientTransformation):
        return [described(each, name) for each in value]
    if isinstance(value, Mapping):
        return {str(key): described(each, name) for key, each in value.items()}
    try:
        return f"{_path(value if isinstance(value, type) else type(value))} {_Hasher().hash(value)}"
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ProblemError(
            f"{name}: expected values that can be described in the store, as numbers, arrays, dataclasses and "
            f"functions, got {type(value).__name__} ({error})"
        ) from error


class _Hasher(NumpyHasher):  # type: ignore[misc]
    """joblib's hash, which by itself knows functions and classes by their names alone."""

    def reducer_override(self, value: Any) -> Any:
        """Return what pickle writes in place of a value."""
        if isinstance(value, Optimizer):
            return tuple, (_optimizer(value),)
        if isinstance(value, optax.GradientTransformation):
            raise TypeError("the settings of an optax optimiser cannot be read; give an import path of it")
        if type(value) is object:
            raise TypeError("it has no value")
        if isinstance(value, set | frozenset):  # their order differs from process to process
            return frozenset, (sorted(value, key=repr),)
        if isinstance(value, FunctionType):
            # the closure may hold the function itself, so it is written after the function is known
            parts = [value.__defaults__, value.__kwdefaults__, _closure(value)]
            return tuple, (_path(value), _code(value.__code__)), parts
        if callable(getattr(value, "__wrapped__", None)):  # of jax.jit
            return tuple, (_path(type(value)), value.__wrapped__)
        if isinstance(value, ModuleType):
            return tuple, (value.__name__,)
        if isinstance(value, type):
            return NotImplemented if value.__module__ == "builtins" else (tuple, (_path(value), _source(value)))
        if is_dataclass(value):
            return tuple, (type(value), {each.name: getattr(value, each.name) for each in fields(value)})
        return NotImplemented


def _optimizer(value: Optimizer) -> list[Any]:
    """The name and arguments of an optimiser whose factory is known; its rule otherwise."""
    if value.arguments is not None and (":" in value.name or value.name in OPTIMIZERS):
        return [described(value.name), dict(value.arguments)]
    return [value.name, value.arguments, value.rule, dict(value.numbers)]


def _import_path(text: str) -> Any:
    """The text, and what it refers to if it is an import path; the source of its module for what has no description."""
    try:
        found = import_object(text)
    except Exception:  # another text, or a module that fails in any way, which is an error where it is used
        return text
    try:
        return [text, described(found)]
    except ProblemError:
        return [text, _source(sys.modules[text.partition(":")[0]])]


def _closure(value: FunctionType) -> list[Any]:
    cells = []
    for key, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            cells.append([key, cell.cell_contents])
        except ValueError:  # not assigned yet
            continue
    return cells


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
    """Describe what a function computes. Its source is not known where it was sent to another process."""
    return repr([code.co_code.hex(), code.co_names, [_constant(each) for each in code.co_consts]])


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _code(value)
    # the order of a set differs from process to process
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)
