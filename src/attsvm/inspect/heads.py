"""One head of an inspection, the arrays that hold all of them, and the progress after each."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from attsvm._utils.progress import Progress
from attsvm._utils.shapes import Int
from attsvm.results import Status
from attsvm.svm import MarginInterval

COLUMNS = ("status", "layer", "head", "selected", "numbers", "margins", "rebuilt_error")
"""Attributes of an :class:`Inspection` that have an entry for each head."""

COUNTS = ("constraints", "duplicates", "support", "steps")
"""Integers of a ``MarginInterval``."""


@dataclass(frozen=True, eq=False)
class Head:
    """One head of an :class:`Inspection`, whose attributes these are."""

    layer: int
    head: int
    # of the solve for its best margin: ``optimal`` if the interval is as narrow as required, ``inaccurate`` if it is
    # wider, ``infeasible`` if no matrix keeps the selection; ``interrupted`` if it is not solved, because the
    # inspection was stopped; ``finished`` if margins were not requested
    status: Status
    selected: Int[np.ndarray, "n Q"] = field(repr=False)
    numbers: dict[str, float | None]  # None where one is not defined
    margin: MarginInterval | None  # None if it was not requested or not solved
    rebuilt_error: float  # NaN if there is nothing to compare with

    @classmethod
    def of_columns(cls, index: tuple[int, ...], **columns: Any) -> "Head":
        """The head at an index of the arrays of an :class:`Inspection`; without a head axis the index is ()."""

        def at(column: Any) -> Any:
            return np.asarray(column)[index]

        status, margin = Status(str(at(columns["status"]))), None
        if columns["margins"] is not None and status != Status.INTERRUPTED:
            found: dict[str, Any] = {name: _defined(at(values)) for name, values in columns["margins"].items()}
            margin = MarginInterval(status, **found | {name: int(found[name]) for name in COUNTS})
        numbers = {name: _defined(at(values)) for name, values in columns["numbers"].items()}
        places = int(at(columns["layer"])), int(at(columns["head"]))
        return cls(*places, status, at(columns["selected"]), numbers, margin, float(at(columns["rebuilt_error"])))


def head_columns(heads: list[Head]) -> dict[str, Any]:
    """The arrays of an :class:`Inspection` that hold these heads, by the names :data:`COLUMNS`."""
    shape = np.max([head.selected.shape for head in heads], axis=0)  # layers may see parts of a batch, as windows
    margins = [head.margin for head in heads]
    some = next((margin for margin in margins if margin is not None), None)
    names = [] if some is None else [name for name in asdict(some) if name != "status"]
    columns = (
        np.array([str(head.status) for head in heads]),
        np.array([head.layer for head in heads]),
        np.array([head.head for head in heads]),
        np.stack(
            [
                np.pad(head.selected, [(0, more) for more in shape - head.selected.shape], constant_values=-1)
                for head in heads
            ]
        ),
        {name: _column(head.numbers[name] for head in heads) for name in heads[0].numbers},
        {name: _column(getattr(margin, name, None) for margin in margins) for name in names} or None,
        np.array([head.rebuilt_error for head in heads]),
    )
    return dict(zip(COLUMNS, columns, strict=True))


def _column(values: Iterable[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _defined(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)


@dataclass(frozen=True)
class HeadProgress(Progress):
    """What the callback of :func:`inspect` receives after each head: also which one, and what is known so far.

    With margins, the heads are measured before the first step: after each layer there is a call with ``step`` 0.

    Attributes
    ----------
    layer, head : int
        Counted from 0.
    inspection : callable
        Returns the :class:`Inspection` so far. Heads that are not measured yet are missing, and those whose margins are
        not solved yet have the status ``interrupted``.
    """

    layer: int = field(kw_only=True)
    head: int = field(kw_only=True)
    inspection: Callable[[], Any] = field(kw_only=True, repr=False, compare=False)
