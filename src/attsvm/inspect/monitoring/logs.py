"""Where a monitor writes what it records: a CSV file, TensorBoard, or a zarr group."""

import csv
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attsvm._utils.extras import check_installed
from attsvm.errors import ProblemError

Record = dict[str, np.ndarray]
"""One value for each head, by name of the measure; NaN where it is not defined."""


class Log(ABC):
    """A place for the records of a monitor."""

    @abstractmethod
    def write(self, step: int, heads: list[str], record: Record) -> None:
        """Add the values of all heads, which are named as "layer.head", at a step.

        A later call has the same heads in the same order, and may have more behind them.
        """

    def close(self) -> None:  # noqa: B027 - most logs have nothing to close
        """Finish; nothing is written afterwards."""


class CsvLog(Log):
    """A CSV file with a row for each step, head and measure; an existing file is replaced."""

    def __init__(self, path: str | Path) -> None:
        self.file = Path(path).open("w", newline="", encoding="utf-8")  # noqa: SIM115 - close() closes it
        self.rows = csv.writer(self.file)
        self.rows.writerow(("step", "head", "measure", "value"))

    def write(self, step: int, heads: list[str], record: Record) -> None:
        """Add rows, and write them to the disk."""
        for name, values in record.items():
            self.rows.writerows(
                (step, head, name, repr(float(value)))
                for head, value in zip(heads, values, strict=True)
                if np.isfinite(value)
            )
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class TensorBoardLog(Log):
    """TensorBoard files with scalars named ``measure/layer.head``."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def write(self, step: int, heads: list[str], record: Record) -> None:
        for name, values in record.items():
            for head, value in zip(heads, values, strict=True):
                if np.isfinite(value):
                    self.writer.add_scalar(f"{name}/{head}", float(value), step)


class ZarrLog(Log):
    """A zarr group with an array (records, heads) for each measure, and the array ``step``; NaN where not defined.

    ``path``: it must not exist.
    """

    def __init__(self, path: str | Path) -> None:
        check_installed("a log in a zarr group", "sweep", "zarr")
        import zarr

        self.group = zarr.open_group(str(path), mode="w-")

    def write(self, step: int, heads: list[str], record: Record) -> None:
        """Append a row to every array."""
        self.group.attrs["heads"] = heads
        done = self.array("step", 0, np.array(step)).shape[0]
        rows = {"step": np.array(step)} | record
        missing = {name: np.full(len(heads), np.nan) for name in set(self.group) - set(rows)}
        for name, values in (rows | missing).items():
            array = self.array(name, done, values)
            array.resize((done + 1, *values.shape))
            array[done] = values

    def array(self, name: str, done: int, like: np.ndarray) -> Any:
        """The array of a measure; a new one has NaN for the records that are done."""
        if name not in self.group:
            shape, chunks = (done, *like.shape), (64, *like.shape)
            fill = 0 if like.dtype.kind == "i" else np.nan
            self.group.create_array(name, shape=shape, dtype=like.dtype, chunks=chunks, fill_value=fill)
        return self.group[name]


def open_log(given: Any) -> Log | None:
    """The log of a path, of a writer of TensorBoard, or a log as it is; None for paths in processes of other ranks."""
    if given is None or isinstance(given, Log):
        return given
    if hasattr(given, "add_scalar"):
        return TensorBoardLog(given)
    endings: dict[str, type[CsvLog | ZarrLog]] = {".csv": CsvLog, ".zarr": ZarrLog}
    if isinstance(given, str | Path) and Path(given).suffix in endings:
        return endings[Path(given).suffix](given) if _rank() == 0 else None
    raise ProblemError(
        f"log: expected a path that ends with {' or '.join(endings)}, a Log or a SummaryWriter, got {given!r}"
    )


def _rank() -> int:
    """The rank of this process, also before a launcher's processes have formed their group."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return int(os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or 0)
