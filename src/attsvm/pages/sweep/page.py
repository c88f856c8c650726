"""The page of ``attsvm sweep show``: heat maps or curves of every measure, and the table."""

from itertools import groupby
from pathlib import Path
from typing import Any

from attsvm._utils.files import atomic_write
from attsvm.pages.figure_data import file_links
from attsvm.pages.render import render
from attsvm.pages.sweep import curves
from attsvm.pages.sweep.curves import Diagram, curve_axis, diagram
from attsvm.pages.sweep.estimates import Axis, Series, Summary
from attsvm.pages.sweep.heat_maps import WIDEST, colour_scale, heat_maps, map_axes
from attsvm.pages.sweep.numbers import COLUMNS, table_csv, table_rows
from attsvm.pages.sweep.scales import Scale
from attsvm.pages.sweep.words import cell_value, facts, heading, notes, verdict
from attsvm.pages.words import short
from attsvm.pages.write import write_page

LONGEST_TABLE = 1000
"""Most rows of the table on the page; ``table.csv`` has all of them."""

NARROW = 7
"""Most columns of a map that shares a line with another measure."""


def write_sweep(folder: Path, summary: Summary, result: dict[str, Any]) -> None:
    """Write ``index.html``, ``table.csv`` and ``result.json``.

    ``folder``: an existing folder, from :func:`attsvm.pages.claim.claim_folder`. ``result``: of
    :func:`attsvm.pages.sweep.numbers.sweep_numbers`.
    """
    write_page(folder, sweep_page(summary, result), [], result)
    with atomic_write(folder / "table.csv") as stream:
        stream.write(table_csv(summary).encode())


def sweep_page(summary: Summary, result: dict[str, Any]) -> str:
    """The whole page as HTML, from the arguments of :func:`write_sweep`."""
    longer = sum(len(axis.values) > 1 for axis in summary.axes)
    groups = [[*group] for _, group in groupby(summary.series, key=lambda one: one.measure)]
    rows = [[cell_value(x) for x in row] for row in table_rows(summary)]
    return render(
        "sweep.html.j2",
        title=heading(summary),
        kicker=str(summary.attributes["command"] or "attsvm sweep"),
        verdict=verdict(summary),
        notes=notes(summary),
        diagrams=[_diagram(summary, group) for group in groups] if longer == 1 else [],
        maps=[_maps(summary, group) for group in groups] if longer > 1 else [],
        geometry=curves,
        wide=WIDEST,
        facts=facts(summary),
        columns=[*(axis.name for axis in summary.axes), *COLUMNS],
        rows=rows[:LONGEST_TABLE],
        num_rows=len(rows),
        level=f"{result['level']:.0%}",
        command=result["command"],
        result=result,
    )


def _diagram(summary: Summary, series: list[Series]) -> dict[str, Any]:
    drawn = diagram(summary, series)
    # without a zoom each point has its own tip
    zoomed = {} if drawn.panel is None else {1: drawn.panel}
    places = _places(drawn) if zoomed else None
    return {
        "name": series[0].measure,
        "title": series[0].title,
        "x": summary.axes[curve_axis(summary)].label,
        "drawn": drawn,
        "links": file_links(series[0].measure, table_csv(summary, series), places, zoomed),
        "interval": _interval(series),
    }


def _places(drawn: Diagram) -> list[dict[str, Any]]:
    """Where the points of each curve are, and what appears at them."""
    return [
        {
            "axes": 1,
            "at": [round(part, 1) for point in curve.points for part in (point.x, point.y)],
            "texts": [point.hover for point in curve.points],
        }
        for curve in drawn.curves
    ]


def _maps(summary: Summary, series: list[Series]) -> dict[str, Any]:
    scale = colour_scale(series)
    up, right = map_axes(summary)
    drawn = [(one.name, heat_maps(summary, one, scale)) for one in series]
    panels = len(drawn[0][1])
    # a line of maps for each series, or all of them in one line if each is one map
    lines = [{"name": name, "maps": [(one.panel, one) for one in maps]} for name, maps in drawn]
    if panels == 1:
        lines = [{"name": "", "maps": [(name, maps[0]) for name, maps in drawn]}]
    return {
        "title": series[0].title,
        "y": _pointed(summary.axes[up], "↑"),
        "x": _pointed(summary.axes[right], "→"),
        "lines": lines,
        "links": file_links(series[0].measure, table_csv(summary, series)),
        "wide": panels * len(series) > 1 or len(summary.axes[right].values) > NARROW,
        "legend": _legend(scale),
        "interval": _interval(series),
    }


def _pointed(axis: Axis, arrow: str) -> str:
    """The label of an axis, with an arrow if its values grow."""
    return f"{axis.label} {arrow}" if axis.numeric else axis.label


def _legend(scale: Scale) -> dict[str, str]:
    """The ends of the colours."""
    return {"low": short(scale.low), "high": short(scale.high), "kind": ", logarithmic" if scale.log else ""}


def _interval(series: list[Series]) -> str:
    if series[0].is_share:
        return "share of the trials, Wilson interval"
    return "mean of the trials, bootstrap interval if they are not all equal"
