"""The numbers of a sweep as JSON and as a table."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from attsvm.pages.plain import command_result
from attsvm.pages.sweep.estimates import Series, Summary

SCHEMA = "attsvm.sweep_show/1"

COLUMNS = ("measure", "of", "estimate", "low", "high", "trials")


def sweep_numbers(summary: Summary, command: str, level: float) -> dict[str, Any]:
    """The JSON-able result of ``attsvm sweep show``.

    Arrays of estimates have the shape of the grid, in the order of the store.
    """
    return command_result(
        SCHEMA,
        command,
        {
            "sweep": summary.attributes,
            "axes": {axis.name: axis.values for axis in summary.axes},
            "trials": summary.trials,
            "finished_trials": summary.done,
            "errors": summary.errors,
            "level": level,
            "estimates": [
                {
                    "measure": one.measure,
                    "of": one.name,
                    "interval": "wilson" if one.is_share else "bootstrap",
                    "estimate": one.estimate.value,
                    "low": one.estimate.low,
                    "high": one.estimate.high,
                    "trials": one.estimate.trials,
                }
                for one in summary.series
            ],
        },
    )


def table_rows(summary: Summary, series: Iterable[Series] | None = None) -> Iterator[list[Any]]:
    """A row for each cell and series: the cell's values, then :data:`COLUMNS`; None for what is not known."""
    series = summary.series if series is None else [*series]
    for at, values in summary.cells():
        for one in series:
            numbers = [float(x[at]) for x in one.estimate[:3]]
            known = [x if np.isfinite(x) else None for x in numbers]
            yield [*values.values(), one.measure, one.name, *known, int(one.estimate.trials[at])]


def table_csv(summary: Summary, series: Iterable[Series] | None = None) -> str:
    """The table as CSV, with the full precision of the numbers; of all series, or of those given."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*(axis.name for axis in summary.axes), *COLUMNS])
    writer.writerows(table_rows(summary, series))
    return stream.getvalue()
