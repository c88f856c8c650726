"""What ``attsvm sweep`` says of a sweep that was run, and of those that there are."""

import re
from typing import Any

from attsvm._utils.progress import counted
from attsvm.pages.page import Page, Table
from attsvm.pages.schemas.sweeps import SweepResult
from attsvm.sweeps import MEASURES, READY, SOURCES


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


def list_page() -> Page:
    """The page of the ready sweeps, the measures and the sources; it has no numbers."""
    kinds = {
        ("sweep", "what it shows"): {name: definition.summary for name, definition in READY.items()},
        ("measure", "what it measures"): {name: _summary(MEASURES[name]) for name in sorted(MEASURES)},
        ("source", "what it draws"): {name: _summary(draw) for name, draw in SOURCES.items()},
    }
    return Page({}, terminal=[Table([*rows.items()], columns, words=2) for columns, rows in kinds.items()])


def _summary(documented: object) -> str:
    """The first line of a docstring, without the markup of Sphinx."""
    return re.sub(r":\w+:(?=`)|`", "", (documented.__doc__ or "").partition("\n")[0])
