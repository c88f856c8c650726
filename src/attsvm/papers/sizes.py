"""Sizes of a figure that the user gives."""

import json
import operator
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from attsvm.errors import ProblemError
from attsvm.papers.figure import Figure


class SizeKind(StrEnum):
    """Whose sizes a run has: the full or the quick ones of the figure, or others.

    See Also
    --------
    attsvm.papers.Outcome
    """

    FULL = "full"
    QUICK = "quick"
    OWN = "own"

    @property
    def prefix(self) -> str:
        """The words before a verdict."""
        return "own sizes" if self is SizeKind.OWN else self.value


def sizes_of(figure: Figure, quick: bool = False, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The sizes of a run: the full or quick ones, with those that are given in their place.

    Parameters
    ----------
    figure : Figure
    quick : bool
        Whether the others are the quick ones.
    given : Mapping, optional
        By name: a value of the kind that the figure has, or a text of the command line, as ``500`` and ``2,4,8``.

    Raises
    ------
    ProblemError
        If the figure has no size of this name, or a value is not of its kind.

    See Also
    --------
    attsvm.papers.run

    Examples
    --------
    >>> from attsvm.papers import FIGURES, sizes_of
    >>> sizes = sizes_of(FIGURES.find("feasibility"), quick=True, given={"dims": "2,4", "problems": 100})
    >>> sizes["dims"], sizes["problems"], sizes["shapes"]
    ([2, 4], 100, [[5, 5], [5, 10]])
    """
    sizes = dict(figure.quick if quick else figure.full)
    for name, value in (given or {}).items():
        if name not in sizes:
            raise ProblemError(f"{name}: expected a size of {figure.name} ({', '.join(sizes)}), got {name!r}")
        models = [figure.full[name], figure.quick[name]]
        read = _read(value, models) if isinstance(value, str) else value
        sizes[name] = _ordered(figure, name, _checked(name, read, models, figure))
    if "queries" in sizes:
        # a size of the user holds in both parts
        also = {} if "queries" in (given or {}) else (given or {})
        sizes["queries"] = {
            query: {k: _ordered(figure, k, v) for k, v in parts.items() if k not in also}
            for query, parts in sizes["queries"].items()
        }
    return sizes


def _ordered(figure: Figure, name: str, values: Any) -> Any:
    """Values along an axis of the figure, each once and in the order of the axis."""
    if name not in (*figure.ascending, *figure.descending):
        return values
    return sorted(set(values), reverse=name in figure.descending)


def _read(text: str, models: list[Any]) -> Any:
    """The value of a text: JSON, and without brackets a list."""
    if isinstance(models[0], str):
        return text
    if all(isinstance(model, list | tuple) for model in models) and text[:1] != "[":
        names = {each for model in models for each in model if isinstance(each, str)}
        if names:
            # names may have commas
            return [text] if text in names else [each.strip() for each in text.split(";" if ";" in text else ",")]
        text = f"[{text}]"
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _checked(name: str, value: Any, models: list[Any], figure: Figure) -> Any:
    """A value of the kind of all values that the figure has: a number, a text, or a list or dict of them."""
    if isinstance(models[0], Mapping):
        return _checked_object(name, value, models, figure)
    if isinstance(models[0], list | tuple):
        return _checked_list(name, value, models, figure)
    if isinstance(models[0], bool):
        if not isinstance(value, bool):
            raise _wrong(name, "true or false", value)
        return value
    if isinstance(models[0], str):
        if not isinstance(value, str):
            raise _wrong(name, "a text", value)
        return value
    return _checked_number(name, value, models)


def _checked_object(name: str, value: Any, models: list[Any], figure: Figure) -> Any:
    if not isinstance(value, Mapping) or not value:
        raise _wrong(name, "an object as JSON", value)
    # a part of a figure, as that of self-attention, changes sizes of the figure
    whole = [figure.full, figure.quick] if re.fullmatch(r"queries\.\w+", name) else models
    known: dict[str, list[Any]] = {}
    for model in whole:
        for key, each in model.items():
            known.setdefault(key, []).append(each)
    checked = {}
    for key, each in value.items():
        if key not in known:
            raise _wrong(name, f"an object with names among {', '.join(known)}", value)
        checked[key] = _checked(f"{name}.{key}", each, known[key], figure) if each != {} else each
    return checked


def _checked_list(name: str, value: Any, models: list[Any], figure: Figure) -> Any:
    lengths = {len(model) for model in models}
    fewest = min(1, *lengths)
    if not isinstance(value, list | tuple) or len(value) < fewest:
        raise _wrong(name, "a list" + " with at least one value" * fewest, value)
    # "n, T, d" names the values, and inner lists of one length are sizes of one problem
    if ("," in name or "[" in name) and len(lengths) == 1 and len(value) not in lengths:
        raise _wrong(name, f"a list of {len(models[0])} values", value)
    entries = [each for model in models for each in model]
    names = [each for each in entries if isinstance(each, str)]
    if names and (len(set(value)) < len(value) or not set(value) <= set(names)):
        raise _wrong(name, f"a list of different names among {'; '.join(dict.fromkeys(names))}", value)
    return [_checked(f"{name}[{i}]", each, entries, figure) if entries else each for i, each in enumerate(value)]


def _checked_number(name: str, value: Any, models: list[Any]) -> Any:
    whole = all(isinstance(model, int) for model in models)
    what = "an integer" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not abs(value) < 1e300:
        raise _wrong(name, what, value)
    # a seed may be zero, and the logarithm of a penalty negative; steps, dimensions and numbers of trials are positive
    for sign, holds in (("> 0", operator.gt), (">= 0", operator.ge), ("< 0", operator.lt)):
        if all(holds(model, 0) for model in models):
            if not holds(value, 0):
                raise _wrong(name, f"{what} {sign}", value)
            break
    return value


def _wrong(name: str, expected: str, value: Any) -> ProblemError:
    return ProblemError(f"{name}: expected {expected}, got {value!r}")
