"""The norms that are known by name, and how they are written to files."""

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from attsvm._utils.checks import as_number
from attsvm._utils.extensions import Registry, did_you_mean, import_object, kind_check, named_by_file
from attsvm._utils.files import reason
from attsvm.errors import ProblemError
from attsvm.norms.base import MissingPiece, Norm
from attsvm.norms.norm_check import checked

NORMS: Registry[type[Norm] | Norm] = Registry(
    "norm", group="attsvm.norms", package="attsvm.norms", check=kind_check(Norm)
)


OTHER_NAMES = {
    "operator": "spectral", "trace": "nuclear", "max": "linf", "sup": "linf", "euclidean": "frobenius",
    "nuc": "nuclear", "f": "frobenius", "inf": "linf",
}  # fmt: skip
"""What norms are called elsewhere, NumPy's names in the second line, for error messages."""

_MOVED = {"attsvm.norms.schatten": "attsvm.norms.singular_values"}
"""Modules that files of 0.2 and 1.0 name, and where their norms are now."""


def parse_norm(norm: "str | float | Norm") -> Norm:
    """Read a norm.

    Parameters
    ----------
    norm : str, float or Norm
        "frobenius", "nuclear", "spectral", "l1.75", "linf" or another registered name; an import path
        ``package.module:name``; the p of an entrywise ℓp norm; or a norm, which is returned as it is.

    Returns
    -------
    Norm

    Raises
    ------
    ProblemError
        If it names no norm, or p < 1; or if a norm of another package fails a test of :func:`attsvm.norms.check`.

    See Also
    --------
    attsvm.norms.Norm

    Examples
    --------
    >>> from attsvm.norms import parse_norm
    >>> parse_norm("l1.75"), parse_norm(2)
    (Lp(p=1.75), Lp(p=2.0))
    """
    if isinstance(norm, Norm):
        return checked(norm)
    text = norm.strip() if isinstance(norm, str) else _number(norm)
    return checked(_instance(NORMS.find(text)) if ":" in text else _named(text))


def norms_in(text: str) -> list[str]:
    """Split a text into names of norms: at semicolons, or at commas unless the whole text names one norm.

    Examples
    --------
    >>> from attsvm.norms.registry import norms_in
    >>> norms_in("l2,1"), norms_in("l2,1;nuclear"), norms_in("l2,nuclear"), norms_in("1,2")
    (['l2,1'], ['l2,1', 'nuclear'], ['l2', 'nuclear'], ['1', '2'])
    """
    if ";" in text:
        return text.split(";")
    by_commas = text.split(",")
    if all(re.fullmatch(r"\s*[\d.]+\s*", each) for each in by_commas):
        return by_commas
    try:
        parse_norm(text)
    except ProblemError:
        return by_commas
    return [text]


@lru_cache(maxsize=256)  # a small solve takes a quarter of a millisecond, so that reading its norm would count
def _named(text: str) -> Norm:
    same_name = [(text.lower(), NORMS.find(text.lower()))] if text.lower() in NORMS else []
    for name, known in chain(same_name, NORMS.items(later=False)):
        if isinstance(known, Norm):
            if text.lower() in (name, known.name):
                return known
            continue
        read = known.parse(text.lower())
        if read is not None:
            return read
        if text.lower() == name and not known.spelling:
            return known()
    expected = norm_spellings()
    hint = did_you_mean(text, ["l1", "linf", *re.findall(r'"([\w,]+)"', expected)], OTHER_NAMES) or "."
    raise ProblemError(f"norm: expected a name or package.module:name, got {text!r}{hint} The names are {expected}")


def written_norm(norm: Norm) -> dict[str, Any]:
    """Write a norm as JSON-able data: its name, its class, and the fields of a dataclass.

    See Also
    --------
    attsvm.norms.read_norm

    Examples
    --------
    >>> from attsvm.norms import Lp, written_norm
    >>> written_norm(Lp(3))["name"]
    'l3'
    """
    if isinstance(norm, MissingNorm):
        return dict(norm.written)
    kind = type(norm)
    fields: dict[str, Any] | None = {}
    if dataclasses.is_dataclass(norm):
        fields = {field.name: getattr(norm, field.name) for field in dataclasses.fields(norm)}
        try:
            # JSON has no ∞
            fields = {name: repr(x) if isinstance(x, float) else _written(x) for name, x in fields.items()}
        except TypeError:
            fields = None
    return {"name": norm.name, "class": f"{kind.__module__}:{kind.__qualname__}", "fields": fields}


def read_norm(written: dict[str, Any]) -> Norm:
    """Return the norm that :func:`written_norm` wrote.

    No module is imported for it, unless it is one of attsvm or of an installed package with a norm. A norm whose class
    cannot be reached has a name only, and errors of it say why.

    See Also
    --------
    attsvm.norms.written_norm, attsvm.norms.parse_norm

    Examples
    --------
    >>> from attsvm.norms import parse_norm, read_norm, written_norm
    >>> read_norm(written_norm(parse_norm("l1.75"))).name
    'l1.75'
    """
    name, path, fields = written["name"], written["class"], written["fields"]
    try:
        module, _, kind = path.partition(":")
        path = f"{_MOVED.get(module, module)}:{kind}"
        with named_by_file():
            if module not in sys.modules and not path.startswith("attsvm."):
                tuple(NORMS)  # imports the installed ones
            found = import_object(path)
            if not (isinstance(found, type) and issubclass(found, Norm)):
                return MissingNorm(name, path, "it is not a norm", written)
            if fields is None:
                return MissingNorm(name, path, "its fields could not be written", written)
            types = {field.name: field.type for field in dataclasses.fields(found)} if fields else {}  # type: ignore[arg-type]
            return found(**{key: float(x) if types[key] in (float, "float") else _read(x) for key, x in fields.items()})
    except Exception as error:  # the code of a norm from outside may fail in any way
        return MissingNorm(name, path, reason(error), written)


def _written(value: Any) -> Any:
    """Write a field as JSON-able data; raise ``TypeError`` if it is of another kind than those of built-in norms."""
    if isinstance(value, Norm):
        return {"norm": written_norm(value)}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, tuple):
        return {"tuple": [_written(part) for part in value]}
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, str | int | bool | None):
        return value
    raise TypeError(f"a field of type {type(value).__name__}")


def _read(written: Any) -> Any:
    """Read the field that :func:`_written` wrote."""
    if not isinstance(written, dict):
        return written
    ((kind, content),) = written.items()
    return _READERS[kind](content)


_READERS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda content: read_norm(content),
    "array": lambda content: np.array(content, dtype=np.float64),
    "tuple": lambda content: tuple(_read(part) for part in content),
    "float": float,
}


@dataclasses.dataclass(frozen=True)
class MissingNorm(Norm):
    """Stands in for the norm of a saved result whose class cannot be reached; it has a name only.

    Parameters
    ----------
    name : str
    path : str
        Where the class was defined.
    why : str
        Why it cannot be reached.
    written : dict
        What the file holds; it is saved again as it is.

    See Also
    --------
    attsvm.norms.read_norm, attsvm.norms.written_norm
    """

    name: str = ""
    path: str = ""
    why: str = dataclasses.field(default="", compare=False)
    written: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def value(self, x: Any, axes: int = 2) -> Any:
        """Raise MissingPiece, because the class of the norm is not known."""
        raise self._missing("value", "")

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        raise self._missing("value", "")

    def _missing(self, piece: str, consequence: str) -> MissingPiece:
        return MissingPiece(f"norm: {self.name} was defined in {self.path}, which cannot be used here ({self.why})")


def _instance(found: type[Norm] | Norm) -> Norm:
    if isinstance(found, Norm):
        return found
    try:
        return found()
    except TypeError as error:
        raise ProblemError(f"norm: {found.__name__} needs arguments; refer to an instance instead ({error})") from None


def _number(norm: Any) -> str:
    number = as_number(norm)
    if math.isnan(number):
        raise ProblemError(f"norm: expected {norm_spellings()}, got {norm!r}")
    return repr(number)


def norm_spellings() -> str:
    """Return how registered norms are written, for help and error messages; those made of others come last."""
    spellings = [norm.spelling or f'"{name}"' for name, norm in NORMS.items(later=False)]
    spellings += [f'"{name}"' for name in NORMS.later]
    return ", ".join(sorted(spellings, key=lambda one: ("<norm>" in one, one)))
