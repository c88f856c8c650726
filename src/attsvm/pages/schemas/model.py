"""The model of results: classes whose annotated fields are those of ``result.json``, and their JSON schemas.

A field is described by the comment beside it or above it, which is its description in the schema.
"""

import ast
import inspect
from collections.abc import Mapping
from enum import Enum
from operator import attrgetter
from types import UnionType
from typing import Any, ClassVar, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from attsvm._version import __version__
from attsvm.pages import plain

T = TypeVar("T")

Number = float | None
"""A number; null if it is not finite or not known."""


class Missing:
    """In a union: the field may be missing."""


class Nested(Generic[T]):
    """Lists of lists to any depth, of these values."""


class Fields:
    """Named values, all of them required. An underscore at the end of a name that Python reserves is left out."""

    @classmethod
    def fill(cls, value: object, **given: Any) -> dict[str, Any]:
        """The fields: those that are given, and the others from an object or a dict; forms in them are filled, too.

        A field that may be missing is left out where the object or the dict has none. A given name that is no field is
        a TypeError; further names in a dict are left out.
        """
        names = {"threads", *(field.removesuffix("_") for field in _hints(cls))}  # not all commands limit threads
        if unknown := given.keys() - names:
            raise TypeError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}; add a line to its class")
        found = {}
        for field, hint in _hints(cls).items():
            name = field.removesuffix("_")
            if name in given:
                own = given[name]
            elif isinstance(value, Mapping):
                own = value.get(name, Missing) if Missing in get_args(hint) else value[name]
            else:
                own = getattr(cls, field, attrgetter(name))(value)
            if own is not Missing:
                found[name] = _filled(hint, own)
        return found


class CommandResult(Fields):
    """The result of a command; its subclasses give the name and version of their schema."""

    SCHEMA: ClassVar[str]

    schema: str  # name and version of this format
    version: str  # version of attsvm
    command: str  # the command line

    def __init_subclass__(cls, schema: str) -> None:
        super().__init_subclass__()
        cls.SCHEMA = schema

    @classmethod
    def fill(cls, value: object, **given: Any) -> dict[str, Any]:
        """The fields as JSON-able values; the ``command`` is given, and ``threads`` if they are limited."""
        about = {"schema": cls.SCHEMA, "version": __version__, "threads": None}
        return plain.jsonable_dict(super().fill(value, **{**about, **given}))


def path(name: str) -> Any:
    """Say where an object has the value of a field whose name it does not have, as in "problem.num_sequences"."""
    return attrgetter(name)


def _hints(form: type[Fields]) -> dict[str, Any]:
    return {field: hint for field, hint in get_type_hints(form).items() if get_origin(hint) is not ClassVar}


def _filled(hint: Any, value: Any) -> Any:
    """A value, or the fields of the form or forms that its type names."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for kind in () if value is None else kinds:
        if get_origin(kind) is list and not isinstance(value, np.ndarray):
            return [_filled(get_args(kind)[0], one) for one in value]
        if get_origin(kind) is dict:
            return {name: _filled(get_args(kind)[1], one) for name, one in value.items()}
        if isinstance(kind, type) and issubclass(kind, Fields) and not isinstance(value, list):
            return value if issubclass(kind, CommandResult) else kind.fill(value)  # a result in another one is complete
    return value


def schema_of(form: type[CommandResult]) -> dict[str, Any]:
    """The JSON schema of a form of results, strict: a field that it does not name is an error."""
    defs: dict[str, Any] = {}
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": form.SCHEMA, **_object(form, defs)}
    return found | ({"$defs": defs} if defs else {})


_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _object(form: type[Fields], defs: dict[str, Any]) -> dict[str, Any]:
    properties, required = {}, []
    said = _descriptions(form)
    for field, hint in _hints(form).items():
        name = field.removesuffix("_")
        if Missing not in get_args(hint):
            required.append(name)
        found = _schema(hint, defs)
        if name == "schema" and issubclass(form, CommandResult):
            found["const"] = form.SCHEMA
        properties[name] = {"description": said[field]} | found
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(hint: Any, defs: dict[str, Any]) -> dict[str, Any]:
    origin, inside = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if origin in (Union, UnionType):
        return _union([_schema(one, defs) for one in inside if one is not Missing])
    if origin is Literal:
        return {"type": "string", "enum": list(inside)}
    if hint is Any:
        return {}
    if origin is list:
        return {"type": "array", "items": _schema(inside[0], defs)}
    if origin is tuple:
        return {"type": "array", "items": _schema(inside[0], defs), "minItems": len(inside), "maxItems": len(inside)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(inside[1], defs)}
    if origin is Nested:
        values = _schema(inside[0], defs)
        types = [values["type"]] if isinstance(values["type"], str) else values["type"]
        name = f"nested-{'-or-'.join(sorted(types))}"
        of = {"$ref": f"#/$defs/{name}"}
        defs[name] = {"type": "array", "items": {"anyOf": [values, of]}}
        return of
    if issubclass(hint, Enum):
        return {"type": "string", "enum": [member.value for member in hint]}
    return _object(hint, defs)


def _union(members: list[dict[str, Any]]) -> dict[str, Any]:
    """Values of one of several types, each of which has names of its own for what is inside."""
    named = [one for one in members if "type" in one]
    types = [one["type"] for one in named]
    merged = {key: value for one in named for key, value in one.items()} | {"type": types}
    if len(types) == 1:
        merged["type"] = types[0]
    references = [one for one in members if "type" not in one]
    return {"anyOf": [merged, *references]} if references else merged


def _descriptions(form: type) -> dict[str, str]:
    """Read the comment of each field of a class and of its bases."""
    found = {}
    for one in reversed(form.__mro__):
        if not issubclass(one, Fields):
            continue
        source = inspect.getsource(one)
        lines = source.splitlines()
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                _, _, beside = lines[node.end_lineno - 1].partition("  # ")  # type: ignore[operator]
                above = node.lineno - 1
                while lines[above - 1].startswith("    # "):
                    above -= 1
                words = [line.strip().removeprefix("# ") for line in lines[above : node.lineno - 1]]
                found[node.target.id] = beside or " ".join(words)
    return found
