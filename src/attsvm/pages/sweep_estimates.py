"""The axes of a sweep, and the estimates of its measures with their intervals."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm._utils.progress import counted
from attsvm.pages.words import number, percent
from attsvm.statistics import LEVEL, Estimate, mean, share

if TYPE_CHECKING:
    import xarray as xr

YES_NO = ["no", "yes"]

UNDECIDED = "undecided"
"""A code that is named above the page. These trials are part of the estimates."""

NO_VALUE = "without a value, and left out"


@dataclass(frozen=True)
class Axis:
    """An axis of the grid."""

    name: str  # its key in the grid
    label: str  # its long name with units
    values: list[Any]  # numbers or strings, in the order of the grid

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers, which are shown in their order."""
        return not any(isinstance(value, str) for value in self.values)

    @property
    def order(self) -> list[int]:
        """Places of the values as they are shown: numbers ascending, names as given."""
        places = range(len(self.values))
        return sorted(places, key=lambda i: self.values[i]) if self.numeric else list(places)


@dataclass(frozen=True)
class SweepEstimate:
    """An estimate of one output of a measure, for each cell of the grid."""

    measure: str  # name of the variable of the store
    title: str  # its long name with units
    name: str  # which code or coordinate of the output it is; empty if there is only one
    # whether it is a share of trials, with a Wilson interval; otherwise a mean with a bootstrap interval
    is_share: bool
    estimate: Estimate  # of the shape of the grid
    # finished trials that the estimate does not use, by the reason, unless only some trials have a value by definition;
    # those of the code "undecided", which it uses
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class Summary:
    """The axes of a sweep, its estimates, and how much of it is finished."""

    axes: list[Axis]
    series: list[SweepEstimate]
    done: np.ndarray  # finished trials of each cell
    trials: int  # trials of a cell, if it is complete
    level: float  # confidence level of the intervals
    errors: list[dict[str, Any]]  # failed chunks: "cell", "trials", "attempts", "error"
    attributes: dict[str, Any]  # of the store: version, command, seed, hash, name

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each axis."""
        return tuple(len(axis.values) for axis in self.axes)

    def cells(self) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """The index of every cell, and its values by the name of the axis, in the order they are shown."""
        for index in np.ndindex(self.shape):
            place = tuple(axis.order[i] for axis, i in zip(self.axes, index, strict=True))
            yield place, {axis.name: axis.values[i] for axis, i in zip(self.axes, place, strict=True)}


def summarize(dataset: "xr.Dataset", level: float = LEVEL) -> Summary:
    """Estimate every output of every measure in every cell, from its finished trials.

    ``dataset``: of :func:`attsvm.sweeps.open_sweep`. ``level``: the confidence level of the intervals.
    """
    names = [str(name) for name in dataset["done"].dims if name != "trial"]
    axes = [_axis(dataset, name) for name in names]
    done = dataset["done"].values
    series = [one for name in dataset.data_vars if name != "done" for one in _series(dataset, str(name), done, level)]
    kept = ("name", "version", "command", "seed", "hash")
    return Summary(
        axes,
        series,
        done.sum(axis=-1),
        int(dataset.sizes["trial"]),
        level,
        json.loads(dataset.attrs.get("errors", "[]")),
        {name: dataset.attrs.get(name) for name in kept},
    )


def _axis(dataset: "xr.Dataset", name: str) -> Axis:
    coordinate = dataset[name]
    values = [value if isinstance(value, int | float) else str(value) for value in coordinate.values.tolist()]
    return Axis(name, _label(coordinate, name), values)


def _label(array: "xr.DataArray", name: str) -> str:
    title, units = array.attrs.get("long_name") or name, array.attrs.get("units")
    return f"{title} ({units})" if units else str(title)


def _series(dataset: "xr.Dataset", name: str, done: np.ndarray, level: float) -> Iterator[SweepEstimate]:
    """The series of one variable: of each code that occurs, or of each coordinate of its own axes."""
    variable = dataset[name]
    own = [str(axis) for axis in variable.dims[done.ndim :]]
    values = variable.values
    codes = str(variable.attrs.get("flag_meanings", "")).split()
    title, partial = _label(variable, name), variable.attrs.get("partial", False)
    for place in np.ndindex(values.shape[done.ndim :]):
        here = values[(..., *place)]
        coordinate = ", ".join(str(dataset[axis].values[i]) for axis, i in zip(own, place, strict=True))
        if codes:
            valid = done & (here != variable.attrs["missing"])
            without = {} if partial else {NO_VALUE: int((done & ~valid).sum())}
            for code, meaning in enumerate(codes):
                successes = (valid & (here == code)).sum(axis=-1)
                # of yes and no one is enough; statuses that never occur would only fill the page
                shown = meaning == "yes" if codes == YES_NO else successes.any()
                if shown:
                    label = "" if codes == YES_NO else meaning.replace("_", " ")
                    parts = ", ".join(part for part in (coordinate, label) if part)
                    counted = without | ({UNDECIDED: int(successes.sum())} if meaning == UNDECIDED else {})
                    yield SweepEstimate(name, title, parts, True, share(successes, valid.sum(axis=-1), level), counted)
        else:
            missing = variable.attrs.get("missing")
            values_here = np.where(done if missing is None else done & (here != missing), here, np.nan)
            counted = {"infinite, and left out": int(np.isinf(values_here).sum())}
            if not partial:
                counted[NO_VALUE] = int((done & np.isnan(values_here)).sum())
            yield SweepEstimate(name, title, coordinate, False, mean(values_here, level), counted)


def value_text(value: Any) -> str:
    """A value of an axis."""
    return number(value) if isinstance(value, float) else str(value)


def cell_text(values: dict[str, Any]) -> str:
    """A cell by the values of its axes."""
    return ", ".join(f"{name} = {value_text(value)}" for name, value in values.items())


def hover_text(values: dict[str, Any], one: SweepEstimate, at: tuple[int, ...]) -> str:
    """Write what appears at the pointer: the cell, the estimate with its interval, the number of trials."""
    value, low, high, trials = (x[at] for x in one.estimate)
    name = f"{one.name}: " if one.name else ""
    equal = ", all equal" if np.isfinite(value) and np.isnan(low) and trials > 1 else ""
    return (
        f"{cell_text(values)}: {name}{estimate_text(value, low, high, one.is_share)}, {counted(trials, 'trial')}{equal}"
    )


def estimate_text(value: float, low: float, high: float, is_share: bool) -> str:
    """An estimate with its interval."""
    text = percent if is_share else number
    if not np.isfinite(value):
        return "no value"
    return text(value) + (f" [{text(low)}, {text(high)}]" if np.isfinite(low) else "")
