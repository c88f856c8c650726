"""Folders of the features of whole slides, as pipelines of computational pathology write them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from attsvm._utils.extras import check_installed
from attsvm._utils.files import read_text, reading
from attsvm._utils.memory import check_fits, map_tensor
from attsvm._utils.shapes import Int
from attsvm.datasets.sequences import Sequences
from attsvm.datasets.stored import LazyTable, StoredTable
from attsvm.datasets.tables import check_columns, csv_rows, frame_of, shown
from attsvm.errors import ProblemError

FOLDERS = ("", "h5_files", "pt_files")
"""Where the files of slides are, below the folder that is given; CLAM makes the last two."""

ENDINGS = (".h5", ".pt")


@dataclass(frozen=True, eq=False)
class Slides:
    """Bags of the features of whole slides, with their labels.

    Attributes
    ----------
    bags : Sequences
        One sequence of patches for each slide; ``bags.names`` are the slides. Features are read from the files when
        they are needed; those of at most 32 MiB in all are read at once.
    labels : array, shape (n,), or None
        In the order of the table; None without a table.
    paths : tuple of Path
        The file of each slide.

    See Also
    --------
    attsvm.datasets.read_slides : Reads them.

    Examples
    --------
    >>> import tempfile, torch
    >>> from attsvm.datasets import read_slides
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save(torch.ones(30, 8), f"{folder}/a.pt")
    ...     slides = read_slides(folder)
    >>> slides.bags[0].shape, slides.paths[0].name
    ((30, 8), 'a.pt')
    """

    bags: Sequences
    labels: np.ndarray | None
    paths: tuple[Path, ...]

    def coordinates(self, which: int) -> Int[np.ndarray, "T_i 2"]:
        """Place of each patch of a slide, in pixels of its largest level, from the dataset ``coords`` of its file.

        Raises
        ------
        ProblemError
            If the file is none of HDF5, or has no coordinates of its patches.
        """
        path, size = self.paths[which], int(self.bags.lengths[which])
        if path.suffix != ".h5":
            raise ProblemError(
                f"{path}: expected an HDF5 file with the coordinates of patches, got a file {path.suffix}"
            )
        found = np.asarray(_read_hdf5(path, "coords", lambda stored: stored[()]))
        found = found[0] if found.ndim == 3 and len(found) == 1 else found
        if found.shape != (size, 2):
            raise ProblemError(f"{path}: expected coords of shape ({size}, 2), got {found.shape}")
        return found


def read_slides(folder: str | Path, table: Any = None, *, slide: str = "slide_id", target: str = "label") -> Slides:
    """Read a folder with one file of features per slide, as written by CLAM and TRIDENT.

    A file is HDF5 with the dataset ``features``, of shape (T, d) or (1, T, d), and ``coords``; or ``.pt``, a tensor of
    one of these shapes. It is named like its slide and is in the folder, or in ``h5_files`` or ``pt_files`` below it.
    HDF5 comes first if a slide has both.

    Parameters
    ----------
    folder : path
    table : path of a CSV file, or table of pandas, polars or Arrow, optional
        With a row for each slide that is used. By default all files of the folder, in the order of their names.
    slide, target : str
        Columns of the table: the name of the slide, and its label.

    Returns
    -------
    Slides

    Raises
    ------
    ProblemError
        If a slide has no file, no patch, or features of another width than the first; a file cannot be read; the table
        lacks a column or names a slide twice; or h5py (extra ``slides``) or PyTorch (extra ``torch``) is required and
        not installed.

    See Also
    --------
    attsvm.datasets.Sequences : Bags in other forms.

    References
    ----------
    Lu et al. (2021), *Data-efficient and weakly supervised computational pathology on whole-slide images* (CLAM). Zhang
    et al. (2025), *Accelerating Data Processing and Benchmarking of AI Models for Pathology* (TRIDENT).

    Examples
    --------
    >>> import tempfile, torch
    >>> from attsvm.datasets import read_slides
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("a", "b"):
    ...         torch.save(torch.ones(30, 8), f"{folder}/{name}.pt")
    ...     slides = read_slides(folder)
    >>> slides.bags.names.tolist(), slides.bags.lengths.tolist(), slides.labels
    (['a', 'b'], [30, 30], None)
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ProblemError(f"folder: expected a folder of files .h5 or .pt, got {folder}")
    places = [folder / name for name in FOLDERS]
    names, labels = (_all_names(places), None) if table is None else _read_table(table, slide, target)
    if not names:
        raise ProblemError(f"{folder}: expected a file .h5 or .pt for each slide, got none")
    found = [_find(places, name) for name in names]
    missing = [name for name, path in zip(names, found, strict=True) if path is None]
    if missing:
        raise ProblemError(f"{folder}: expected a file .h5 or .pt for each slide, got none for {shown(missing)}")
    paths = tuple(path for path in found if path is not None)
    files = [_SlideFile(path) for path in paths]
    for file in files:
        if not len(file):
            raise ProblemError(f"{file.path}: expected features of at least one patch, got none; leave out this slide")
        if file.shape[1] != files[0].shape[1]:
            raise ProblemError(
                f"{file.path}: expected {files[0].shape[1]} features as in {files[0].path.name}, got {file.shape[1]}"
            )
    bags = replace(Sequences.from_arrays(files), names=np.array(names))
    return Slides(bags, labels, paths)


class _SlideFile(LazyTable):
    """The features of a slide; the file is open only while rows are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        table = self._apply(lambda table: (table.shape, table.dtype))
        self.shape, self.dtype = table
        check_fits(path, 8 * self.shape[0])  # the numbers of its rows

    def __getitem__(self, which: Any) -> np.ndarray:
        return np.asarray(self._apply(lambda table: np.array(table[which])))

    def _apply(self, function: Any) -> Any:
        if self.path.suffix == ".h5":
            return _read_hdf5(self.path, "features", lambda stored: function(_table(self.path, stored)))
        check_installed(f"{self.path}: a file .pt", "torch", "torch")
        with reading(self.path, "cannot be read as a PyTorch tensor"):
            tensor = map_tensor(self.path)
        return function(_table(self.path, tensor))


def _table(path: Path, stored: Any) -> StoredTable:
    """The features of a file, which are (T, d) or (1, T, d); TRIDENT writes (0,) for a slide without patches."""
    shape = tuple(stored.shape)
    if shape == (0,):
        return StoredTable(np.empty((0, 0), np.float32))
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] != 1):
        raise ProblemError(f"{path}: expected features of shape (T, d) or (1, T, d), got {shape}")
    return StoredTable(stored)


def _read_hdf5(path: Path, name: str, function: Any) -> Any:
    """What a function returns for a dataset of a file."""
    check_installed(f"{path}: HDF5", "slides", "h5py")
    import h5py

    with reading(path, "cannot be read as HDF5"), h5py.File(path, "r") as file:
        if not isinstance(file.get(name), h5py.Dataset):
            raise ProblemError(f"{path}: expected a dataset {name!r}, got {shown(file) or 'none'}")
        return function(file[name])


def _all_names(places: Sequence[Path]) -> list[str]:
    """The slides that have a file."""
    files = (path for place in places if place.is_dir() for path in place.iterdir())
    return sorted({path.stem for path in files if path.suffix in ENDINGS})


def _find(places: Sequence[Path], name: str) -> Path | None:
    paths = (place / f"{name}{ending}" for ending in ENDINGS for place in places)
    return next((path for path in paths if path.is_file()), None)


def _read_table(table: Any, slide: str, target: str) -> tuple[list[str], np.ndarray]:
    """Slides and their labels."""
    if isinstance(table, str | Path):
        header, *rows = csv_rows(table, read_text(table))
        check_columns(table, header, [slide, target])
        names, words = ([row[header.index(name)].strip() for row in rows] for name in (slide, target))
        are_integers = all(word.removeprefix("-").isdecimal() for word in words)
        labels = np.array(words).astype(int) if are_integers else np.array(words)
    else:
        frame = frame_of(table)
        check_columns("table", frame.columns, [slide, target])
        names, labels = [str(name) for name in frame[slide].to_list()], frame[target].to_numpy()
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ProblemError(f"table: expected each slide once, got {twice!r} in several rows")
    if "" in names or any(label in ("", None) or label != label for label in labels.tolist()):
        raise ProblemError(f"table: expected {slide!r} and {target!r} in each row, got a row without one of them")
    return names, labels
