"""The folder of a sweep: created, locked by one client, and filled chunk by chunk.

Its format::

    STORE/
      data.zarr/    a zarr group, which ``xarray.open_zarr`` reads; its attributes hold the definition
      errors/       a JSON file for each failed chunk
      lock          held by the client that runs

docs/guide/results.md describes the ``xarray.Dataset`` that :func:`attsvm.sweeps.open_sweep` reads from it.

zarr writes each chunk of an array to a file of its own, by a rename, with a checksum (CRC-32C). A chunk of trials is
committed when ``done`` is written for it, after its outputs.
"""

import contextlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm._utils.checks import check_flag
from attsvm._utils.extras import check_installed
from attsvm._utils.files import atomic_write, cannot_be_written, kind_of
from attsvm._version import __version__
from attsvm.errors import ProblemError
from attsvm.sweeps.arrays import DONE, create_array, create_group, plain
from attsvm.sweeps.compute import Failure, Task, tasks
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.measure import undeclared

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import xarray

DATA, NEW, ERRORS, LOCK = "data.zarr", "new.zarr", "errors", "lock"

OUR_ATTRIBUTES = ("id", "outputs")
"""Attributes of the group that a dataset does not show: the random id of the store, and the order of its outputs."""


class Store:
    """A sweep's folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.given, self.path = path, Path(path).absolute()

    @property
    def exists(self) -> bool:
        """Whether the folder holds a sweep that was created completely."""
        return (self.path / DATA).is_dir()

    def group(self, mode: Any = "r") -> Any:
        """The zarr group.

        Raises ProblemError if there is none, or its metadata are damaged.
        """
        import zarr

        if not self.exists:
            raise ProblemError(f"{self.given}: expected the folder of a sweep, got none")
        try:
            found = zarr.open_group(self.path / DATA, mode=mode)
            list(found.arrays())  # reads the metadata of each
        except Exception as error:  # a damaged file fails in any way
            raise ProblemError(f"{self.given}: expected the folder of a sweep, got a damaged one ({error})") from error
        if not {"hash", "version", "definition", "chunk", *OUR_ATTRIBUTES} <= set(found.attrs):
            raise ProblemError(f"{self.given}: expected the folder of a sweep, got one of another version")
        return found

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the lock of the folder. The system releases it when the process ends in any way.

        Raises ProblemError if another process holds it, or the folder holds other files.
        """
        kind = kind_of(self.path)
        if kind not in (None, "a folder"):
            raise ProblemError(f"{self.given}: expected a free name or the folder of a sweep, got {kind}")
        others = {each.name for each in self.path.iterdir()} - {DATA, NEW, ERRORS, LOCK} if kind else set()
        if others:
            raise ProblemError(
                f"{self.given}: expected a free name or the folder of a sweep, got one with {min(others)}"
            )
        with cannot_be_written(self.given):
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if fcntl is not None:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ProblemError(
                        f"{self.given}: expected a sweep that no other process runs, got one that is running"
                    ) from None
                except OSError as error:
                    raise ProblemError(f"{self.given}: cannot be locked ({error.strerror or error})") from error
            yield
        finally:
            os.close(descriptor)

    def prepare(self, definition: Definition, chunk: int, command: str, device: str | None = None) -> int:
        """Create the store, or check that it is of the same sweep and version; return the size of its chunks.

        Raises ProblemError if it is of another sweep or version, was begun on a device of another kind, has a damaged
        file, or cannot be written.
        """
        if not self.exists:
            with cannot_be_written(self.given):
                self._create(definition, chunk, command, device)
            return chunk
        header = self.group().attrs
        if header["version"] != __version__:
            raise ProblemError(
                f"{self.given}: expected a sweep of attsvm {__version__}, got one of attsvm {header['version']}"
            )
        if header["hash"] != definition.hash:
            ours, theirs = definition.described(), json.loads(header["definition"])
            differs = next((name for name in ours if ours[name] != theirs.get(name)), "hash")
            raise ProblemError(
                f"{self.given}: expected a store of this sweep, got one of another sweep, whose {differs} is "
                f"{_short(theirs.get(differs))} and not {_short(ours.get(differs))}"
            )
        begun = header.get("device")
        # the bits of a GPU are not those of a CPU
        if begun and device and begun.partition(":")[0] != device.partition(":")[0]:
            raise ProblemError(f"device: expected {begun!r}, on which {self.given} was begun, got {device!r}")
        with cannot_be_written(self.given):
            (self.path / ERRORS).mkdir(exist_ok=True)
        self.check_readable()
        return int(header["chunk"])

    def _create(self, definition: Definition, chunk: int, command: str, device: str | None) -> None:
        header = {
            "id": secrets.token_hex(16),
            "version": __version__,
            "command": command,
            "name": definition.name,
            "seed": definition.seed,
            "hash": definition.hash,
            "trials": definition.trials,
            "block": definition.width,
            "chunk": chunk,
            "device": device or "",
            "outputs": list(definition.declared),
            "definition": definition.described(),
        }
        for part in (NEW, ERRORS):
            shutil.rmtree(self.path / part, ignore_errors=True)  # of a process that was killed here
        create_group(self.path / NEW, definition, header)
        (self.path / ERRORS).mkdir()
        os.rename(self.path / NEW, self.path / DATA)

    def check_readable(self) -> None:
        """Read every array, for which zarr compares the checksums of its files.

        Raises ProblemError that names a damaged file.
        """
        group = self.group()
        for array in _measured(group).values():
            try:
                array[...]
            except Exception as error:  # a damaged file fails in any way
                file = next((self._file(array, task) for task in _tasks(group) if not _can_read(array, task)), DATA)
                raise ProblemError(
                    f"{Path(self.given, file)}: expected a chunk as the sweep wrote it, got a damaged file; delete it "
                    "and run the sweep again, which computes the chunk again"
                ) from error

    def check_complete(self) -> None:
        """Check that all files of the committed chunks exist: zarr reads a missing one as missing values.

        Raises ProblemError that names one that does not.
        """
        for _, file in self._missing(self.group()):
            raise ProblemError(
                f"{Path(self.given, file)}: expected a chunk as the sweep wrote it, got no file; run the sweep again, "
                "which computes the chunk again"
            )

    def _missing(self, group: Any) -> Iterator[tuple[Task, Path]]:
        """The committed chunks that lack a file, and the file."""
        arrays = _measured(group).values()
        for task in sorted(_committed(group)):
            files = [self._file(array, task) for array in arrays]
            yield from ((task, file) for file in files if not (self.path / file).is_file())

    def _file(self, array: Any, task: Task) -> Path:
        """The file of a chunk of an array, in the folder of the store."""
        *cell, trials = _place(array, task)
        own_axes = array.ndim - len(cell) - 1
        key = array.metadata.encode_chunk_key((*cell, trials.start // array.chunks[len(cell)], *(0,) * own_axes))
        return Path(DATA, array.basename, key)

    def identity(self) -> str:
        """The random id that it was created with."""
        return str(self.group().attrs["id"])

    def write(
        self, definition: Definition, chunk: int, identity: str, task: Task, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Write the outputs of a chunk, then commit it.

        Raises ProblemError if another store was created at the path: a worker may outlive its client.
        """
        group = self.group("r+")
        if group.attrs["id"] != identity:
            raise ProblemError(f"{self.given}: expected the store of this sweep, got one that was created later")
        for name, array in arrays.items():
            if name not in group:  # an output that no measure declares
                with contextlib.suppress(ValueError):  # another worker has created it since
                    create_array(self.path / DATA, name, undeclared(array), definition, chunk)
            # also a file of missing values alone, so that none is missing
            group[name].with_config({"write_empty_chunks": True})[_place(group[name], task)] = array
        group[DONE][_place(group[DONE], task)] = True
        self._error(task).unlink(missing_ok=True)

    def _error(self, task: Task) -> Path:
        return self.path / ERRORS / f"{task.name}.json"

    def fail(self, definition: Definition, task: Task, failure: Failure) -> None:
        """Record the error of a chunk.

        Raises ProblemError if the record cannot be written, either.
        """
        record = {
            "cell": {name: plain(value) for name, value in definition.values(task.cell).items()},
            "trials": [task.first, task.stop],
            "attempts": failure.attempts,
            "error": failure.error,
            "traceback": failure.traceback,
        }
        with cannot_be_written(self.given), atomic_write(self._error(task)) as stream:
            stream.write(json.dumps(record, indent=1).encode())

    def done(self) -> set[Task]:
        """The committed chunks. One that lacks a file, as where a user has deleted a damaged one, is none."""
        group = self.group()
        return _committed(group) - {task for task, _ in self._missing(group)}

    def errors(self) -> list[dict[str, Any]]:
        """The records of the failed chunks. That of a chunk that was committed later no longer counts."""
        done, found = {task.name for task in self.done()}, []
        for path in sorted((self.path / ERRORS).glob("*.json")):
            with contextlib.suppress(FileNotFoundError):  # of a chunk that is committed now
                if path.stem not in done:
                    found.append(json.loads(path.read_bytes()))
        return found


def open_sweep(store: str | os.PathLike[str], *, verify: bool = True) -> "xarray.Dataset":
    """Open the result of a sweep, which may be finished, interrupted or running.

    Every array is read, for which zarr compares the checksums of its files. The same sweep again computes chunks whose
    files are missing, as where a damaged one was deleted.

    Parameters
    ----------
    store : path
        The folder of the sweep.
    verify : bool
        Look for damaged and missing files, which reads all of them.

    Returns
    -------
    xarray.Dataset
        Its arrays are read when they are used. docs/guide/results.md describes it.

    Raises
    ------
    ProblemError
        If there is no sweep at this path, or a file of it is damaged or missing.

    See Also
    --------
    attsvm.sweep

    Examples
    --------
    >>> import attsvm, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     grid = {"dim": [2, 5]}
    ...     _ = attsvm.sweep(grid, ["feasible"], store=f"{folder}/phase", trials=8, workers=0)
    ...     attsvm.open_sweep(f"{folder}/phase").feasible.shape
    (2, 8)
    """
    check_installed("attsvm.sweep", "sweep", "xarray", "zarr")
    import xarray as xr

    found = Store(store)
    header = found.group().attrs
    if check_flag("verify", verify):
        found.check_readable()
        found.check_complete()
    data = xr.open_zarr(found.path / DATA, consolidated=False, chunks=None)
    # zarr lists its arrays in any order
    declared = header["outputs"]
    names = [*declared, *sorted(set(map(str, data.data_vars)) - {*declared, DONE}), DONE]
    opened: xarray.Dataset = data[names]
    opened.attrs = {name: value for name, value in data.attrs.items() if name not in OUR_ATTRIBUTES}
    opened.attrs["errors"] = json.dumps(found.errors())
    return opened


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _measured(group: Any) -> dict[str, Any]:
    """The arrays of trials, which are not coordinates."""
    return {name: array for name, array in group.arrays() if array.metadata.dimension_names != (name,)}


def _tasks(group: Any) -> list[Task]:
    return tasks(math.prod(group[DONE].shape[:-1]), group.attrs["trials"], group.attrs["chunk"])


def _committed(group: Any) -> set[Task]:
    """The chunks that are marked as done. One whose mark cannot be read is none."""
    done, there = group[DONE], _tasks(group)
    try:
        marks = done[...]
    except Exception:  # a damaged file fails in any way
        marks, there = done, [task for task in there if _can_read(done, task)]
    return {task for task in there if marks[_place(done, task)].all()}


def _place(array: Any, task: Task) -> tuple[Any, ...]:
    """Where the trials of a chunk are in an array, whose axes are those of the grid, the trials and its own."""
    axes = array.metadata.dimension_names.index("trial")
    return (*map(int, np.unravel_index(task.cell, array.shape[:axes])), slice(task.first, task.stop))


def _can_read(array: Any, task: Task) -> bool:
    """Whether the file of a chunk can be read."""
    try:
        array[_place(array, task)]
    except Exception:  # a damaged file fails in any way
        return False
    return True
