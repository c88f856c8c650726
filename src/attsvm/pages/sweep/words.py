"""The sentences about a sweep, for the terminal and the page."""

from typing import Any

import numpy as np

from attsvm._utils.progress import counted
from attsvm.pages.sweep.estimates import Summary
from attsvm.pages.words import Rows, number, percent

MOST_NAMED = 8
"""Unfinished cells and failed chunks that are named; the others are counted."""


def value_text(value: Any) -> str:
    """A value of an axis."""
    return number(value) if isinstance(value, float) else str(value)


def cell_value(value: Any) -> str:
    """A cell of the table."""
    return "-" if value is None else value_text(value)


def cell_text(values: dict[str, Any]) -> str:
    """A cell by the values of its axes."""
    return ", ".join(f"{name} = {value_text(value)}" for name, value in values.items())


def heading(summary: Summary) -> str:
    """The title of the page."""
    return f"Sweep {summary.attributes['name']}" if summary.attributes["name"] else "Sweep"


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


def estimate_text(value: float, low: float, high: float, is_share: bool) -> str:
    """An estimate with its interval."""
    text = percent if is_share else number
    if not np.isfinite(value):
        return "no value"
    return text(value) + (f" [{text(low)}, {text(high)}]" if np.isfinite(low) else "")


def facts(summary: Summary) -> Rows:
    """The axes and what identifies the sweep."""
    rows = [(axis.label, ", ".join(value_text(axis.values[i]) for i in axis.order)) for axis in summary.axes]
    rows += [("trials in a cell", f"{summary.trials:,}"), ("seed", str(summary.attributes["seed"]))]
    return [*rows, ("definition, SHA-256", str(summary.attributes["hash"]))]
