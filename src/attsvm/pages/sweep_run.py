"""What ``attsvm sweep`` says: of a sweep that was run, of one that would be, and of those that there are."""

import re
from typing import TYPE_CHECKING, Any

from attsvm._utils.progress import counted, duration
from attsvm.pages.page import Page, Table
from attsvm.pages.schemas.sweeps import SweepEstimateResult, SweepResult
from attsvm.sweeps import MEASURES, READY, SOURCES, Definition

if TYPE_CHECKING:
    from attsvm.sweeps.estimate import Estimate


def store_page(found: Any, *, store: str, command: str) -> Page:
    """The page of a finished or interrupted sweep, from its xarray dataset; ``attsvm sweep show`` has its estimates."""
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


def estimate_page(definition: Definition, found: "Estimate", *, command: str) -> Page:
    """The page of a sweep that was not run: its trials, and estimates of its time and its disk space."""
    cells = f"{counted(definition.num_cells, 'cell')} × {definition.trials:,}"
    blocks = counted(found.measured, "measured block")
    said = [
        f"{counted(found.trials, 'trial')}: {cells} in {counted(found.chunks, 'chunk')}",
        f"about {duration(found.seconds)} on {counted(found.workers, 'worker')}, from {blocks}",
        f"at most {duration(found.compile_seconds)} more to import and compile, and some seconds to start the workers",
        f"at most {found.bytes / 1e6:,.1f} MB on disk",
    ]
    return Page(SweepEstimateResult.fill(found, command=command), terminal=said)


def list_page() -> Page:
    """The page of the ready sweeps, the measures and the sources; it has no numbers."""
    kinds = {
        ("sweep", "what it shows"): {name: definition.summary for name, definition in READY.items()},
        ("measure", "what it measures"): {name: _summary(MEASURES[name]) for name in sorted(MEASURES)},
        ("source", "what it draws"): {name: _summary(draw) for name, draw in SOURCES.items()},
    }
    tables = [
        Table([(f"[bold]{name}[/bold]", said) for name, said in rows.items()], columns, words=2)
        for columns, rows in kinds.items()
    ]
    return Page({}, terminal=tables)


def _summary(documented: object) -> str:
    """The first line of a docstring, without the markup of Sphinx."""
    return re.sub(r":\w+:(?=`)|`", "", (documented.__doc__ or "").partition("\n")[0])
