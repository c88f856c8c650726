"""The fields of results: how they are declared, and checks of what a file holds against their declarations."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np

from attsvm.errors import ProblemError

Declared = Field[Any]
_ROLE = "attsvm.role"


def per_trial(default: Any = MISSING) -> Any:
    """Declare a field with the batch axes in front: an array, a number, a dict of these, a result, or None.

    Entries of a dict that have no axes, such as a string, belong to all trials. Without batch axes, a string is a
    member of the enumeration that the field declares.
    """
    return field(default=default, metadata={_ROLE: "trial"})


def per_record(default: Any = MISSING) -> Any:
    """Declare a field with an array, a dict of arrays, or None: axis 0 counts records and the batch axes follow.

    The entry ``"steps"`` of a dict has axis 0 only.
    """
    return field(default=default, metadata={_ROLE: "record"})


def shared(
    default: Any = MISSING, *, write: Callable[[Any], Any] | None = None, read: Callable[[Any], Any] | None = None
) -> Any:
    """Declare a field that is the same for all trials. ``write`` makes it JSON-able and ``read`` is its inverse."""
    return field(default=default, metadata={_ROLE: "shared", "write": write, "read": read})


def unsaved(default: Any = None) -> Any:
    """Declare a field that is not written to files; it is ``default`` after loading."""
    return field(default=default, metadata={_ROLE: "unsaved"})


def role_of(entry: Declared) -> str:
    """Return which of the four declares a field: "trial", "record", "shared" or "unsaved"."""
    if _ROLE not in entry.metadata:
        raise TypeError(f"{entry.name}: expected a field made by per_trial, per_record, shared or unsaved")
    return str(entry.metadata[_ROLE])


def alternatives(declared: Any) -> tuple[Any, ...]:
    """Return the types that a declaration such as ``float | None`` allows."""
    return get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)


def words_of(declared: Any) -> type[StrEnum] | None:
    """Return the enumeration of words among the declared types, if there is one."""
    return next((kind for kind in alternatives(declared) if isinstance(kind, type) and issubclass(kind, StrEnum)), None)


def check_fields(result: Any) -> None:
    """Check what a file holds against the declared types of the fields, and the shapes of arrays against each other.

    Raises ProblemError if a value does not fit its declaration, or the others.
    """
    batch = result.batch_shape
    shapes: dict[str, tuple[int, ...]] = {}
    records: dict[str, Any] = {}
    for entry in fields(result):
        name, role, value = entry.name, role_of(entry), getattr(result, entry.name)
        if role == "shared" or value is None:
            _check_value(name, value, entry.type)
            continue
        _check_is_dict(name, isinstance(value, Mapping), entry.type)
        if isinstance(value, np.ndarray):
            shapes[name] = value.shape[role == "record" :]
        if role == "record":
            records |= value if isinstance(value, Mapping) else {name: value}
        elif isinstance(value, Mapping):
            _check_entries(name, value, batch)
        elif hasattr(value, "batch_shape"):
            if value.batch_shape != batch:
                raise ProblemError(f"{name}: expected the batch axes {batch}, got {value.batch_shape}")
        elif role == "trial":
            _check_per_trial(name, np.asarray(value), entry.type, batch)
    _check_records(records, batch)
    for group in result.equal_shapes:
        found = {name: shapes[name] for name in group if name in shapes}
        if len(set(found.values())) > 1:
            raise ProblemError(f"{', '.join(found)}: expected arrays that fit each other, got shapes {found}")


def _check_value(name: str, value: Any, declared: Any) -> None:
    """Check the type of a value that all trials share."""
    if isinstance(value, np.ndarray):
        _check_numbers(name, value)
        if not value.ndim or not value.size:
            raise ProblemError(f"{name}: expected an array with entries, got shape {value.shape}")
    if not any(_fits(value, kind) for kind in alternatives(declared)):
        raise ProblemError(f"{name}: expected {_in_words(declared)}, got {type(value).__name__}")


def _check_is_dict(name: str, found: bool, declared: Any) -> None:
    """Check that there is a dict of arrays where one is declared, and an array where not."""
    kinds = {_plain(kind) for kind in alternatives(declared)} - {type(None)}
    if Any not in kinds and found != (kinds == {dict}):
        raise ProblemError(f"{name}: expected {_in_words(declared)}, got {'a dict' if found else 'an array'}")


def _check_per_trial(name: str, array: np.ndarray, declared: Any, batch: tuple[int, ...]) -> None:
    """Check that the batch axes are in front. What is declared to be a number or a word has no other axes."""
    kinds, words = alternatives(declared), words_of(declared)
    if words:
        known = [word.value for word in words]
        if array.dtype.kind != "U" or not np.isin(array, known).all():
            raise ProblemError(f"{name}: expected some of {', '.join(known)}, got other entries")
    elif Any not in kinds:
        _check_numbers(name, array)
    single = words is not None or any(kind in kinds for kind in (bool, int, float))
    axes = array.shape[len(batch) :]
    if array.shape[: len(batch)] != batch or (single and axes) or (np.ndarray in kinds and not single and not axes):
        expected = ", ".join(map(str, batch)) + ("" if single else ", ..." if batch else "...")
        raise ProblemError(f"{name}: expected shape ({expected}), got {array.shape}")


def _check_entries(name: str, entries: Mapping[str, Any], batch: tuple[int, ...]) -> None:
    """Check that the batch axes are in front of the arrays of a dict. Entries without axes belong to all trials."""
    for key, value in entries.items():
        if np.shape(value)[: len(batch)] != batch and np.shape(value):
            raise ProblemError(f"{name}/{key}: expected the batch axes {batch}, got shape {np.shape(value)}")


def _check_records(records: Mapping[str, Any], batch: tuple[int, ...]) -> None:
    """Check that arrays have the same number of records, and then the batch axes. ``steps`` has no batch axes."""
    counts = set()
    for key, value in records.items():
        array = np.asarray(value)
        _check_numbers(f"records/{key}", array)
        lead = () if key == "steps" else batch
        if not array.ndim or array.shape[1 : 1 + len(lead)] != lead:
            raise ProblemError(f"records/{key}: expected records with the batch axes {lead}, got shape {array.shape}")
        counts.add(len(array))
    if len(counts) > 1:
        raise ProblemError(f"records: expected arrays with equally many records, got {sorted(counts)}")


def _check_numbers(name: str, array: np.ndarray) -> None:
    if array.dtype.kind not in "biuf":
        raise ProblemError(f"{name}: expected numbers or booleans, got {array.dtype}")


def _fits(value: Any, kind: Any) -> bool:
    plain = _plain(kind)
    if isinstance(value, bool):
        return plain in (bool, Any)
    if plain is float:
        return isinstance(value, int | float)
    if plain is list and isinstance(value, list):
        return all(_fits(entry, of) for entry in value for of in get_args(kind))
    return plain is Any or not isinstance(plain, type) or isinstance(value, plain)


def _in_words(declared: Any) -> str:
    return " or ".join(getattr(_plain(kind), "__name__", str(kind)) for kind in alternatives(declared))


def _plain(kind: Any) -> Any:
    """A type without its arguments, and an array without its shape."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else get_origin(kind) or kind
