"""What an ``AttentionMonitor`` recorded, as arrays, and how they are read from its files.

They are CSV files, zarr groups, and event files of TensorBoard.
"""

import csv
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attsvm._utils.extras import check_installed
from attsvm._utils.files import read_text, reading
from attsvm.errors import ProblemError

COLUMNS = ["step", "head", "measure", "value"]
"""Of a CSV file."""

EVENTS = "*tfevents*"
"""Names of the event files of TensorBoard."""

SCALAR = re.compile(r"(?P<measure>[^/]+)/(?P<head>\d+\.\d+)")
"""Names of a monitor's scalars; a training may write others to the same file."""

Cells = dict[str, dict[tuple[int, str], float]]
"""By measure: the values by step and head."""


class Records(NamedTuple):
    """Measures of every head at some steps."""

    steps: Int[np.ndarray, " R"]  # in ascending order
    heads: list[str]  # "layer.head"
    values: dict[str, Float[np.ndarray, "R heads"]]  # by the name of the measure; NaN where it was not recorded


def read_records(path: str | Path) -> Records:
    """Read what a monitor wrote: a CSV file, a zarr group, or event files of TensorBoard or their folder.

    TensorBoard keeps numbers in float32. Of several values at a step, as after a restart, the last one counts.

    Raises ProblemError if there is none, it has another form, or it holds no records.
    """
    place = Path(path)
    with reading(path, "not what an AttentionMonitor writes"):
        if place.match(EVENTS) or (place.is_dir() and any(place.glob(EVENTS))):
            found = _of_cells(_events(path))
        elif place.is_dir():
            found = _of_group(path)
        else:
            found = _of_cells(_rows(read_text(path)))
    if not len(found.steps) or not found.heads:
        raise ProblemError(f"{path}: expected at least one record, got none")
    return found


def joined(heads: list[str], records: list[tuple[int, dict[str, np.ndarray]]]) -> Records:
    """The records of a monitor.

    Raises ProblemError if there are none.
    """
    if not records:
        raise ProblemError("records: expected at least one record, got none")
    names = dict.fromkeys(name for _, record in records for name in record)
    nothing = np.full(len(heads), np.nan)
    values = {name: np.stack([record.get(name, nothing) for _, record in records]) for name in names}
    return Records(np.array([step for step, _ in records]), list(heads), values)


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


def _of_cells(cells: Cells) -> Records:
    places = {place for of_measure in cells.values() for place in of_measure}
    steps = sorted({step for step, _ in places})
    heads = sorted({head for _, head in places}, key=lambda head: [int(part) for part in head.split(".")])
    row_of, column_of = ({one: k for k, one in enumerate(each)} for each in (steps, heads))
    values = {}
    for measure, of_measure in cells.items():
        values[measure] = np.full((len(steps), len(heads)), np.nan)
        for (at, of_head), number_there in of_measure.items():
            values[measure][row_of[at], column_of[of_head]] = number_there
    return Records(np.array(steps, dtype=np.int64), heads, values)


def _of_group(path: str | Path) -> Records:
    check_installed(f"{path}: reading a zarr group", "sweep", "zarr")
    import zarr

    group: Any = zarr.open_group(str(path), mode="r")
    names: list[str] = sorted(group)
    values = {name: np.asarray(group[name][:], dtype=np.float64) for name in names if name != "step"}
    heads = [str(head) for head in np.atleast_1d(group.attrs["heads"])]
    steps = np.asarray(group["step"][:], dtype=np.int64)
    if any(array.shape != (len(steps), len(heads)) for array in values.values()):
        raise ValueError("its arrays do not fit its steps and heads")
    return Records(steps, heads, values)
