"""Sizes of a figure that the user gives in place of its own."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from attsvm.errors import ProblemError
from attsvm.reproduce.figure import Figure, Sizes


class SizeKind(StrEnum):
    """Whose sizes a run has: the full or the quick ones of the figure, or others.

    See Also
    --------
    attsvm.reproduce.Outcome

    Examples
    --------
    >>> from attsvm.reproduce import SizeKind
    >>> [kind.value for kind in SizeKind]
    ['full', 'quick', 'own']
    """

    FULL = "full"
    QUICK = "quick"
    OWN = "own"

    @property
    def prefix(self) -> str:
        """Before a verdict."""
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
    attsvm.reproduce.run

    Examples
    --------
    >>> from attsvm.reproduce import FIGURES, sizes_of
    >>> sizes = sizes_of(FIGURES.find("feasibility"), quick=True, given={"dims": "2,4", "problems": 100})
    >>> sizes["dims"], sizes["problems"], sizes["shapes"]
    ([2, 4], 100, [[5, 5], [5, 10]])
    """
    sizes = dict(figure.quick if quick else figure.full)
    for name, value in (given or {}).items():
        if name not in sizes:
            raise ProblemError(f"{name}: expected a size of {figure.name} ({', '.join(sizes)}), got {name!r}")
        model = figure.full[name]
        sizes[name] = _checked(name, _read(value, model) if isinstance(value, str) else value, model, sizes)
    if "queries" in sizes and "queries" not in (given or {}):
        # a size of the user holds in both parts
        own = sizes["queries"].items()
        sizes["queries"] = {query: {k: v for k, v in parts.items() if k not in (given or {})} for query, parts in own}
    return sizes


def _read(text: str, model: Any) -> Any:
    """The value of a text: JSON, and without brackets a list."""
    if isinstance(model, str):
        return text
    for candidate in (f"[{text}]", text) if isinstance(model, list | tuple) and text[:1] != "[" else (text,):
        try:
            return json.loads(candidate)
        except json.JSONDecodeError:
            continue
    return text


def _checked(name: str, value: Any, model: Any, sizes: Sizes) -> Any:
    """A value of the kind of another one: a number, a text, or a list or dict of them."""
    if isinstance(model, Mapping):
        if not isinstance(value, Mapping) or not value:
            raise _wrong(name, "an object as JSON", value)
        # what is empty in the figure changes other sizes, as those of self-attention
        known = model or sizes
        for key in value:
            if key not in known:
                raise _wrong(name, f"an object with names among {', '.join(known)}", value)
        checked = {key: _checked(f"{name}.{key}", each, known[key], sizes) for key, each in value.items() if each != {}}
        return {key: checked.get(key, {}) for key in value}
    if isinstance(model, list | tuple):
        if not isinstance(value, list | tuple) or not value:
            raise _wrong(name, "a list with at least one value", value)
        return [_checked(name, each, model[0], sizes) if model else each for each in value]
    if isinstance(model, bool | str) or model is None:
        if not isinstance(value, type(model)) and model is not None:
            raise _wrong(name, "true or false" if isinstance(model, bool) else "a text", value)
        return value
    kinds = (int,) if isinstance(model, int) else (int, float)
    what = "an integer" if isinstance(model, int) else "a number"
    if isinstance(value, bool) or not isinstance(value, kinds) or not abs(value) < 1e300:
        raise _wrong(name, what, value)
    # a seed may be zero; steps, dimensions and numbers of trials are positive
    if value < 0 or (value == 0 and model > 0):
        raise _wrong(name, f"{what} {'> 0' if model > 0 else '>= 0'}", value)
    return value


def _wrong(name: str, expected: str, value: Any) -> ProblemError:
    return ProblemError(f"{name}: expected {expected}, got {value!r}")
