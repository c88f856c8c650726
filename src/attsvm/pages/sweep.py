"""The pages of sweeps.

That of ``attsvm sweep show`` has heat maps or curves of every measure and the table of all estimates, and that of
``attsvm sweep`` says what was measured.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import lazy_loader
import numpy as np
from markupsafe import Markup

from attsvm._utils.files import atomic_write
from attsvm._utils.progress import counted
from attsvm._utils.text import slugs
from attsvm.pages.links import csv_text
from attsvm.pages.page import AnyPart, Details, Figures, Heading, Page, Table, Tables, Text
from attsvm.pages.schemas.sweeps import EstimateFields, SweepResult, SweepShowResult
from attsvm.pages.sweep_estimates import Summary, SweepEstimate, cell_text, value_text

sweep_figures = lazy_loader.load("attsvm.pages.sweep_figures", suppress_warning=True)

COLUMNS = ("measure", "of", "estimate", "low", "high", "trials")

LONGEST_TABLE = 1000
"""Most rows of the table on the page; ``table.csv`` has all of them."""

MOST_NAMED = 8
"""Unfinished cells and failed chunks that are named; the others are counted."""


def sweep_page(summary: Summary, *, command: str) -> Page:
    """Make the page of a sweep, whose numbers docs/guide/results.md documents.

    Arrays of estimates have the shape of the grid, in the order of the store.
    """
    columns = [*(axis.name for axis in summary.axes), *COLUMNS]
    rows = [["-" if cell is None else value_text(cell) for cell in row] for row in table_rows(summary)]
    table = Table(rows, columns, kind="estimates", words=len(columns) - 4)
    return Page(
        _numbers(summary, command),
        title=f"Sweep {summary.attributes['name']}" if summary.attributes["name"] else "Sweep",
        kicker=str(summary.attributes["command"] or "attsvm sweep"),
        verdict=verdict(summary),
        body=partial(_body, summary, table),
        notes=notes(summary),
        terminal=[table],
        made_by=f"Seed {summary.attributes['seed']}",
        kept=("the table", "table.csv"),
        origin=summary.attributes,
        others={"table.csv": partial(_write_table, summary)},
        is_wide=True,
    )


def store_page(found: Any, *, store: str, command: str) -> Page:
    """Make the page of a finished or interrupted sweep, from its xarray dataset, without estimates."""
    variables = {
        name: {"dims": list(array.dims), "shape": list(array.shape), "attributes": dict(array.attrs)}
        for name, array in found.data_vars.items()
    }
    done = found["done"].values
    cells = int(found["done"].isel(trial=0).size)
    measured = ", ".join(sorted({*map(str, variables)} - {"done"}))
    said = f"{store}: {done.sum():,} of {counted(done.size, 'trial')} in {counted(cells, 'cell')}: {measured}"
    given = {"store": store, "attributes": dict(found.attrs), "variables": variables}
    return Page(SweepResult.fill(given, command=command), terminal=[said])


def _body(summary: Summary, table: Table) -> Iterator[AnyPart]:
    measures = [[*group] for _, group in groupby(summary.series, key=lambda one: one.measure)]
    groups = dict(zip(slugs(group[0].measure for group in measures), measures, strict=True))
    tables = {name: table_csv(summary, group) for name, group in groups.items()}
    drawn = sweep_figures.draw_sweep(summary, groups, tables)
    if drawn:
        yield Heading("Measures")
        yield Text(
            f"Point at a cell or a point to see its estimate, with the {summary.level:.0%} interval and the number of "
            "trials."
        )
        yield Figures(drawn, wide=sweep_figures.wide(summary, groups))
    yield Heading("Sweep")
    axes = [(axis.label, ", ".join(value_text(axis.values[i]) for i in axis.order)) for axis in summary.axes]
    facts = [("trials in a cell", f"{summary.trials:,}"), ("seed", str(summary.attributes["seed"]))]
    facts.append(("definition, SHA-256", str(summary.attributes["hash"])))
    yield Tables([Table([*axes, *facts])])
    some = f"The first {LONGEST_TABLE:,} rows. " if len(table.rows) > LONGEST_TABLE else ""
    whole = Markup('{}The whole table: <a href="table.csv" download>table.csv</a>').format(some)
    shown = Table(table.rows[:LONGEST_TABLE], table.columns, kind="estimates")
    yield Details(f"All estimates: {len(table.rows):,} rows", [Text(whole, ""), shown], open=not drawn)


def _write_table(summary: Summary, path: Path) -> None:
    with atomic_write(path) as stream:
        stream.write(table_csv(summary).encode())


def verdict(summary: Summary) -> str:
    """How much of the sweep is finished."""
    complete, cells = int((summary.done == summary.trials).sum()), summary.done.size
    trials = f"{int(summary.done.sum()):,} of {cells * summary.trials:,} trials"
    if complete == cells:
        return f"Complete: {counted(cells, 'cell')}, {counted(summary.trials, 'trial')} in each."
    return f"{complete:,} of {counted(cells, 'cell')} {'is' if cells == 1 else 'are'} complete: {trials}."


def notes(summary: Summary) -> list[str]:
    """Failed chunks and unfinished cells by name, and how many finished trials are undecided or left out."""
    found = [
        f"Failed after {counted(error['attempts'], 'attempt')}: {cell_text(error['cell']) or 'the only cell'}, trials "
        f"{error['trials'][0]} to {error['trials'][1] - 1}: {error['error']}"
        for error in summary.errors[:MOST_NAMED]
    ]
    if len(summary.errors) > MOST_NAMED:
        more = counted(len(summary.errors) - MOST_NAMED, "further chunk")
        found.append(f"{more} failed; result.json lists all of them.")
    unfinished = [(values, summary.done[at]) for at, values in summary.cells() if summary.done[at] < summary.trials]
    if unfinished:
        named = "; ".join(
            f"{cell_text(values) or 'the only cell'} ({done:,})" for values, done in unfinished[:MOST_NAMED]
        )
        more = f"; and {len(unfinished) - MOST_NAMED:,} more" if len(unfinished) > MOST_NAMED else ""
        found.append(f"Cells with fewer than {summary.trials:,} finished trials: {named}{more}.")
    finished = int(summary.done.sum())
    # each once: the shares of the codes of one output leave out the same trials
    not_used = {
        f"{one.title}{'' if one.is_share or not one.name else f', {one.name}'}: {number:,} of {finished:,} finished "
        f"trials are {reason}."
        for one in summary.series
        for reason, number in one.left_out.items()
        if number
    }
    return [*found, *sorted(not_used)]


def table_rows(summary: Summary, series: Iterable[SweepEstimate] | None = None) -> Iterator[list[Any]]:
    """A row for each cell and series: the cell's values, then :data:`COLUMNS`; None for what is not known."""
    series = summary.series if series is None else [*series]
    for at, values in summary.cells():
        for one in series:
            numbers = [float(x[at]) for x in one.estimate[:3]]
            known = [x if np.isfinite(x) else None for x in numbers]
            yield [*values.values(), one.measure, one.name, *known, int(one.estimate.trials[at])]


def table_csv(summary: Summary, series: Iterable[SweepEstimate] | None = None) -> str:
    """The table as CSV, with the full precision of the numbers; of all series, or of those given."""
    return csv_text([*(axis.name for axis in summary.axes), *COLUMNS], table_rows(summary, series))


def _numbers(summary: Summary, command: str) -> dict[str, Any]:
    return SweepShowResult.fill(
        summary,
        command=command,
        axes={axis.name: axis.values for axis in summary.axes},
        estimates=[
            EstimateFields.fill(one, interval="wilson" if one.is_share else "bootstrap") for one in summary.series
        ],
    )
