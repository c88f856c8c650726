"""What an ``AttentionMonitor`` recorded, as arrays, and how they are read from its CSV files and zarr groups."""

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attsvm.errors import ProblemError
from attsvm.reading import read_text, reading

COLUMNS = ["step", "head", "measure", "value"]
"""Of a CSV file."""


class Records(NamedTuple):
    """Measures of every head at some steps.

    Attributes
    ----------
    steps : int ndarray, shape (R,)
        In ascending order.
    heads : list of str
        "layer.head".
    values : dict of str to ndarray, shape (R, heads)
        By the name of the measure; NaN where it was not recorded.
    """

    steps: Int[np.ndarray, " R"]
    heads: list[str]
    values: dict[str, Float[np.ndarray, "R heads"]]


def read_records(path: str | Path) -> Records:
    """Read a CSV file or a zarr group that a monitor wrote.

    Raises
    ------
    ProblemError
        If there is none, it has another form, or it holds no records.
    """
    is_group = Path(path).is_dir()
    text = "" if is_group else read_text(path)
    with reading(path, "not what an AttentionMonitor writes"):
        found = _of_group(path) if is_group else _of_rows(text)
    if not len(found.steps) or not found.heads:
        raise ProblemError(f"{path}: expected at least one record, got none")
    return found


def joined(heads: list[str], records: list[tuple[int, dict[str, np.ndarray]]]) -> Records:
    """The records of a monitor.

    Raises
    ------
    ProblemError
        If there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.report.monitor.records import joined
    >>> found = joined(["0.0"], [(0, {"entropy": np.array([1.5])}), (100, {"entropy": np.array([0.5])})])
    >>> found.steps, found.values["entropy"].ravel()
    (array([  0, 100]), array([1.5, 0.5]))
    """
    if not records:
        raise ProblemError("records: expected at least one record, got none")
    names = dict.fromkeys(name for _, record in records for name in record)
    nothing = np.full(len(heads), np.nan)
    values = {name: np.stack([record.get(name, nothing) for _, record in records]) for name in names}
    return Records(np.array([step for step, _ in records]), list(heads), values)


def _of_rows(text: str) -> Records:
    # the last line may be incomplete while the training is running
    rows = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]))
    if next(rows, None) != COLUMNS:
        raise ValueError(f"the first line is not {','.join(COLUMNS)}")
    cells: dict[str, dict[tuple[int, str], float]] = {}
    for number, row in enumerate(rows, start=2):
        if len(row) != len(COLUMNS):
            raise ValueError(f"line {number} has {len(row)} values")
        step, head, measure, value = row
        if np.isinf(float(value)):
            raise ValueError(f"line {number} has the value {value}")
        cells.setdefault(measure, {})[int(step), head] = float(value)
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
    import zarr

    group: Any = zarr.open_group(str(path), mode="r")
    names: list[str] = sorted(group)
    values = {name: np.asarray(group[name][:], dtype=np.float64) for name in names if name != "step"}
    heads = [str(head) for head in np.atleast_1d(group.attrs["heads"])]
    steps = np.asarray(group["step"][:], dtype=np.int64)
    if any(array.shape != (len(steps), len(heads)) for array in values.values()):
        raise ValueError("its arrays do not fit its steps and heads")
    return Records(steps, heads, values)
