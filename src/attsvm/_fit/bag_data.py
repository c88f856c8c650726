"""Whether the data of a fit are bags, for the classifier alone, and reading them."""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.archives import read_arrays
from attsvm._utils.files import is_table_file
from attsvm.datasets import BagFile, Bags, Drawing, Sequences, Source, is_table, read_bags, sequences_of
from attsvm.errors import ProblemError
from attsvm.estimator import FileColumns
from attsvm.problem import Problem


class GivenBags(NamedTuple):
    """Bags to train on, and perhaps others to test on."""

    bags: BagFile
    test: BagFile | None
    name: str  # what the page calls them
    columns: FileColumns | None  # of a table


def read_given(
    data: Any,
    labels: Any,
    *,
    bag: str | None,
    groups: Any,
    test: Any,
    drop: Iterable[str],
    encoding: str | None = None,
    fill: str | None = None,
) -> GivenBags | None:
    """The bags that are given; None for a problem or a source, which :func:`attsvm.fit` compares with an Att-SVM.

    Bags are tables, files of them, :class:`attsvm.datasets.Sequences`, archives with tokens of all bags in one matrix,
    and whatever has more than two classes, groups or test data of its own.

    Raises ProblemError if there are no labels, a column is missing, or an argument does not fit the data.
    """
    drop = tuple(drop)
    if isinstance(data, str | os.PathLike) and is_table_file(data):
        return _of_table_file(os.fspath(data), labels, bag, groups, test, drop, encoding, fill)
    if encoding is not None:
        raise ProblemError(f"encoding: expected None for data that are no file of a table, got {encoding!r}")
    if is_table(data):
        if test is not None and not is_table(test):
            raise ProblemError(f"test: expected a table, like the data, got {type(test).__name__}")
        parts = [None if table is None else _of_frame(table, labels, bag, groups, drop) for table in (data, test)]
        assert parts[0] is not None
        return GivenBags(parts[0], parts[1], "table", _columns(bag, labels, groups, drop))
    if bag is not None or drop:
        name, value = ("bag", bag) if bag is not None else ("drop", ", ".join(drop))
        raise ProblemError(f"{name}: expected None for data that are not a table, got {value!r}")
    if isinstance(data, str | os.PathLike):
        return _of_archive(data, labels, groups, test)
    wants = groups is not None or test is not None
    if isinstance(data, Problem | Drawing | Source):
        if wants:
            raise ProblemError(f"{'groups' if groups is not None else 'test'}: expected None for a problem, got some")
        return None
    several = labels is not None and len(np.unique(np.asarray(labels).astype(str))) > 2
    if not (isinstance(data, Sequences) or several or wants):
        return None
    if labels is None:
        raise ProblemError("labels: expected the label of each sequence")
    other = None
    if test is not None:
        if not isinstance(test, tuple) or len(test) != 2:
            got = f"{len(test)} entries" if isinstance(test, tuple) else type(test).__name__
            raise ProblemError(
                f"test: expected a tuple of sequences and labels, because the data are arrays, got {got}"
            )
        other = BagFile(_sequences(test[0]), np.asarray(test[1]))
    found = BagFile(_sequences(data), np.asarray(labels), None if groups is None else np.asarray(groups))
    return GivenBags(found, other, "arrays", None)


def _of_table_file(
    path: str,
    label: Any,
    bag: str | None,
    groups: Any,
    test: Any,
    drop: tuple[str, ...],
    encoding: str | None,
    fill: str | None,
) -> GivenBags:
    if isinstance(label, list | tuple):
        raise _several(path, [*map(str, label)])
    if not isinstance(label, str):
        got = "" if label is None else f", got {type(label).__name__}"
        raise ProblemError(
            f"labels: expected the name of the column with the labels in {path}{got}; for labelled texts use "
            "attsvm fit-text"
        )
    if not isinstance(groups, str | None):
        raise ProblemError(f"groups: expected the name of a column of {path}, got {type(groups).__name__}")
    _check_is_file(test)
    bags = read_bags(path, bag, label, groups, drop, encoding=encoding)
    other = None
    if test is not None:
        left_out = (*drop, *([groups] if groups else []))
        other = read_bags(test, bag, label, drop=left_out, optional=(groups or "", *drop), encoding=encoding)
    for name, part in ((path, bags), (str(test), other)):
        if part is not None:
            _check_numbers(name, part, fill is not None)
    return GivenBags(bags, other, path, _columns(bag, label, groups, drop))


def _check_is_file(test: Any) -> None:
    if not isinstance(test, str | os.PathLike | None):
        raise ProblemError(f"test: expected a file, like the data, got {type(test).__name__}")


def _check_numbers(path: str, bags: BagFile, filled: bool) -> None:
    """Raise ProblemError if a number of a table is infinite, or missing and not ``filled``; words may be missing."""
    sequences, rows = bags.sequences, bags.rows
    assert rows is not None
    for place, column in enumerate(sequences.columns or ()):
        entries = sequences.table[sequences.ids, place]
        missing = np.flatnonzero(np.isinf(entries) if filled else ~np.isfinite(entries))
        if len(missing) and column not in (sequences.words or ()):
            kind = "infinite" if filled else "missing or infinite"
            way_out = (
                "" if filled else "fill the missing ones by --fill mean, in Python by attsvm.fit(fill='mean'), or "
            )
            raise ProblemError(
                f"{path}: expected numbers in column {column!r}, got {len(missing):,} that are {kind}, the first in "
                f"row {rows[missing].min()}, counted from 0; {way_out}leave out the column by --drop {column}, in "
                f"Python by drop=[{column!r}]"
            )


def _several(path: str, labels: list[str]) -> ProblemError:
    first, *others = labels
    return ProblemError(
        f"labels: expected one column, got {', '.join(labels)}; fit each by itself, as `attsvm fit {path} --label "
        f"{first}{''.join(f' --drop {name}' for name in others)}`, or all of them in Python by "
        "sklearn.multioutput.MultiOutputClassifier(attsvm.AttentionClassifier())"
    )


def _columns(bag: str | None, label: Any, groups: Any, drop: tuple[str, ...]) -> FileColumns | None:
    others = (*drop, groups) if isinstance(groups, str) else drop
    return FileColumns(str(bag), label, others) if isinstance(label, str) else None


def _of_frame(table: Any, labels: Any, bag: str | None, groups: Any, drop: tuple[str, ...]) -> BagFile:
    if bag is None:
        raise ProblemError("bag: expected the column with the bag of each row")
    bags = Bags.of(table, bag)
    found: list[np.ndarray | None] = []
    used = [*drop]
    for name, values in (("labels", labels), ("groups", groups)):
        if isinstance(values, str):
            found.append(bags.labels(values, name))
            used.append(values)
        elif values is None and name == "labels":
            raise ProblemError("labels: expected a column of the table, or a label for each bag")
        else:
            found.append(None if values is None else bags.align(name, values, bag))
    return BagFile(sequences_of(bags, bag, *used), found[0], found[1], bags.rows)


def _of_archive(path: Any, labels: Any, groups: Any, test: Any) -> GivenBags | None:
    """The bags of an archive; None for a problem of two classes, and for what is no file."""
    wants = groups is not None or test is not None
    is_file = os.fspath(path).lower().endswith((".npz", ".json")) and os.path.isfile(path)
    arrays = read_arrays(path, "problem") if is_file else {}
    given = arrays.get("labels", np.zeros(0))
    is_problem = {*arrays} & {"head", "queries", "keys"} or not arrays
    plain = arrays.get("tokens", np.zeros(0)).ndim != 2 and not {"bag", "groups"} & {*arrays}
    if is_problem or (plain and not wants and (given.ndim != 1 or len(np.unique(given)) <= 2)):
        if wants:
            raise ProblemError(f"{'groups' if groups is not None else 'test'}: expected None for {path}, got some")
        return None
    if labels is not None or groups is not None:
        raise ProblemError(f"labels, groups: expected those of {path}, as its arrays, got others")
    _check_is_file(test)
    return GivenBags(read_bags(path), None if test is None else read_bags(test), os.fspath(path), None)


def _sequences(data: Any) -> Sequences:
    if isinstance(data, Sequences):
        return data
    return Sequences.from_arrays(data) if isinstance(data, list | tuple) else Sequences.from_padded(data)
