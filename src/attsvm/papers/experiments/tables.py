"""Training and test rows: read from a folder of Parquet files or through Hugging Face's `datasets`, and as tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from attsvm._utils.extras import check_installed
from attsvm._utils.files import reading
from attsvm.datasets import check_columns, read_columns
from attsvm.errors import ProblemError

SPLITS = ("train", "test")
LABEL = "label"

LARGEST_LABEL = np.iinfo(np.int64).max


@dataclass(frozen=True)
class TaskRows(Dataset[dict[str, Tensor]]):
    """Examples and their labels."""

    inputs: Tensor  # shape (n, ...), token numbers, padded at the end, or pictures
    labels: Tensor  # shape (n,)
    padding: int | None = None  # the number that texts are padded with. Batches are cut to their longest text.

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return a batch; PyTorch's loaders of data call this."""
        inputs = self.inputs[rows]
        if self.padding is not None:
            inputs = inputs[:, : int((inputs != self.padding).sum(-1).max())]
        return {"inputs": inputs, "labels": self.labels[rows]}


class Split(NamedTuple):
    """Inputs as they are in the table, and labels (n,) as integers."""

    inputs: Sequence[Any]
    labels: np.ndarray


def load_rows(
    source: str,
    column: str,
    num_classes: int,
    encode: Callable[[list[Any]], Tensor],
    *,
    padding: int | None = None,
    train_rows: int | None = None,
    test_rows: int | None = None,
    validation_rows: int = 0,
) -> tuple[TaskRows, TaskRows]:
    """Read the rows to train on and to test on, as tensors.

    ``source``, ``column``: as for :func:`read_splits`. ``encode``: from the inputs of the chosen rows to their tensor.
    ``train_rows``, ``test_rows``: number of rows, drawn with a fixed seed. By default all. ``validation_rows``: if
    positive, that many training rows are not trained on and replace the test rows.

    Raises ProblemError if the data cannot be read, or a label is no class.
    """
    train, test = read_splits(source, column)
    for split in (train, test):
        if split.labels.max() >= num_classes:
            raise ProblemError(f"{source}: expected labels 0 to {num_classes - 1}, got {split.labels.max()}")
    chosen, validation = drawn(len(train.labels), train_rows, validation_rows)
    tested, tested_rows = (train, validation) if validation_rows else (test, drawn(len(test.labels), test_rows, 0)[0])

    def rows(split: Split, numbers: np.ndarray) -> TaskRows:
        inputs = encode([split.inputs[row] for row in numbers])
        return TaskRows(inputs, torch.from_numpy(split.labels[numbers]), padding)

    return rows(train, chosen), rows(tested, tested_rows)


def read_splits(source: str, column: str) -> tuple[Split, Split]:
    """Read the rows to train on and to test on.

    ``source``: a folder with Parquet files whose names begin with train and test, at any depth; any other folder that
    `datasets` reads; or the name of a data set on Hugging Face's hub. ``column``: name of the column of inputs; that of
    labels is ``label``.

    Raises ProblemError if there is no such source, it cannot be read, or a column is missing.
    """
    folder = Path(source).expanduser()
    if folder.is_file():
        raise ProblemError(f"{source}: expected a folder with train.parquet and test.parquet, got a file")
    if folder.is_dir():
        found = [sorted(folder.rglob(f"{split}*.parquet")) for split in SPLITS]
        if all(found):
            train, test = (read_columns(files, [column, LABEL], extra="papers") for files in found)
            return Split(train[0], _labels(found[0][0], train[1])), Split(test[0], _labels(found[1][0], test[1]))
    elif source.startswith((".", "/", "~")) or source.count("/") != 1:
        raise ProblemError(
            f"{source}: no such folder; expected a folder with train.parquet and test.parquet, or a name on the hub"
        )
    return _through_datasets(source, column)


def drawn(rows: int, train_rows: int | None, validation_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the training and of the validation rows. They are disjoint, and the same in every call."""
    if not 0 <= validation_rows < rows:
        raise ProblemError(f"validation: expected fewer rows than the {rows} to train on, got {validation_rows}")
    order = np.random.default_rng(0).permutation(rows)
    return order[: rows - validation_rows][:train_rows], order[rows - validation_rows :]


def _through_datasets(source: str, column: str) -> tuple[Split, Split]:
    what = "holds no train*.parquet and test*.parquet" if Path(source).is_dir() else "no such folder"
    check_installed(f"{source}: {what}, and another source", "papers", "datasets")
    import datasets

    with reading(source, "neither a folder nor a data set that can be loaded"):
        loaded = datasets.load_dataset(source, trust_remote_code=False)
    splits = []
    for split in SPLITS:
        if split not in loaded:
            raise ProblemError(f"{source}: no split {split!r}; found {', '.join(loaded)}")
        table = loaded[split]
        check_columns(source, table.column_names, [column, LABEL])
        # pictures stay encoded, as they are read from Parquet
        if isinstance(table.features[column], datasets.Image):
            table = table.cast_column(column, datasets.Image(decode=False))
        splits.append(Split(list(table[column]), _labels(source, list(table[LABEL]))))
    return splits[0], splits[1]


def _labels(source: Any, found: list[Any]) -> np.ndarray:
    if not found:
        raise ProblemError(f"{source}: no rows")
    for number, label in enumerate(found):
        if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label <= LARGEST_LABEL:
            raise ProblemError(
                f"{source}: row {number}, counted from 0: expected a class 0, 1, ..., got the label {label!r}"
            )
    return np.array(found, dtype=np.int64)
