"""The records of an ``AttentionMonitor`` as arrays, read from its files.

They are CSV files, and event files of TensorBoard.
"""

import csv
import io
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attsvm._utils.extras import check_installed
from attsvm._utils.files import read_text, reading
from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError

COLUMNS = ["step", "head", "measure", "value"]
"""Of a CSV file."""

EVENTS = "*tfevents*"
"""Names of the event files of TensorBoard."""

SCALAR = re.compile(r"(?P<measure>[^/]+)/(?P<head>\d+\.\d+([ _].*)?)")
"""Names of a monitor's scalars; a training may write others to the same file. TensorBoard writes _ for a space."""

Cells = dict[str, dict[tuple[int, str], float]]
"""By measure: the values by step and head."""


class Records(NamedTuple):
    """Measures of every head at some steps."""

    steps: Int[np.ndarray, " R"]  # in ascending order
    heads: list[str]  # "layer.head", and the name of the layer where a model has several kinds
    values: dict[str, Float[np.ndarray, "R heads"]]  # by the name of the measure; NaN where it was not recorded


def read_records(path: str | Path) -> Records:
    """Read what a monitor wrote: a CSV file, or event files of TensorBoard or their folder.

    TensorBoard keeps numbers in float32. Of several values at a step, as after a restart, the last one counts.

    Raises ProblemError if there is none, it has another form, or it holds no records.
    """
    place = Path(path)
    with reading(path, "not written by an AttentionMonitor"):
        if place.match(EVENTS) or (place.is_dir() and any(place.glob(EVENTS))):
            found = _tabulated(_events(path))
        else:
            found = _tabulated(_rows(read_text(path)))
    if not len(found.steps) or not found.heads:
        raise ProblemError(f"{path}: expected at least one record, got none")
    return found


def _events(path: str | Path) -> Cells:
    check_installed(f"{path}: reading event files", "papers", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path), size_guidance={"scalars": 0})  # all of them, not a sample
    events.Reload()
    cells: Cells = {}
    for tag in events.Tags()["scalars"]:
        named = SCALAR.fullmatch(tag)
        if named:
            values = {(int(event.step), named["head"]): float(event.value) for event in events.Scalars(tag)}
            cells[named["measure"]] = cells.get(named["measure"], {}) | values
    return cells


def _rows(text: str) -> Cells:
    # the last line may be incomplete while the training is running
    rows = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]))
    if next(rows, None) != COLUMNS:
        raise ValueError(f"the first line is not {','.join(COLUMNS)}")
    cells: Cells = {}
    for number, row in enumerate(rows, start=2):
        if len(row) != len(COLUMNS):
            raise ValueError(f"line {number} has {len(row)} values")
        step, head, measure, value = row
        if np.isinf(float(value)):
            raise ValueError(f"line {number} has the value {value}")
        cells.setdefault(measure, {})[int(step), head] = float(value)
    return cells


def _place(head: str) -> list[int]:
    return [int(part) for part in re.split("[ _]", head)[0].split(".")]


def _tabulated(cells: Cells) -> Records:
    places = {place for of_measure in cells.values() for place in of_measure}
    steps = sorted({step for step, _ in places})
    heads = sorted({head for _, head in places}, key=_place)
    values = {
        measure: np.array([[of_measure.get((step, head), np.nan) for head in heads] for step in steps])
        for measure, of_measure in cells.items()
    }
    return Records(np.array(steps, dtype=np.int64), heads, values)
