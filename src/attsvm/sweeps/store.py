"""The folder of a sweep: created, locked by one client, and filled chunk by chunk.

Its format::

    STORE/
      sweep.json    the definition, and the SHA-256 of each file that was created with the store
      data.zarr/    a zarr group, which ``xarray.open_zarr`` reads, too
      chunks/       a JSON record of each finished chunk, with the SHA-256 of its files, or of its failure; names.txt
                    lists the records, so that a missing one is noticed
      lock          held by the client that runs

docs/guide/results.md describes the ``xarray.Dataset`` that :func:`attsvm.sweeps.open_sweep` reads from it.

zarr writes each chunk of an array to a file of its own, by a rename. A chunk of trials is committed when its record is
written, after its files. A record has a digest of its own text, its place and the header, and the header one of its
text. Only files that the header or a record lists are read, and only if they have the digest that is listed.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm._utils.extras import check_installed
from attsvm._utils.files import atomic_write, cannot_be_written, kind_of, reading
from attsvm._version import __version__
from attsvm.errors import ProblemError
from attsvm.sweeps.arrays import DONE, create_array, create_group, plain
from attsvm.sweeps.compute import Failure, SweepChunk, tasks
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.measure import undeclared

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import xarray

HEADER, DATA, NEW, RECORDS, NAMES, LOCK = "sweep.json", "data.zarr", "new.zarr", "chunks", "chunks/names.txt", "lock"

OUR_ATTRIBUTES = ("id", "outputs")
"""Attributes of the group that a dataset does not show: the order of its outputs, and the id that 1.0 gave a store."""

MISSING = "no file; run the sweep again to write it"
DAMAGED = "a damaged one; delete it and run the sweep again to write it"
LOST = "a damaged one; restore it from a copy, or run the sweep in another folder"


class SweepStore:
    """A sweep's folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.given, self.path = Path(path), Path(path).absolute()

    @property
    def exists(self) -> bool:
        """Whether the folder holds a sweep that was created completely."""
        return (self.path / DATA).is_dir()

    @property
    def is_of_1_0(self) -> bool:
        """Whether attsvm 1.0 created the sweep."""
        return self.exists and not (self.path / HEADER).exists() and not (self.path / RECORDS).exists()

    def header(self) -> dict[str, Any]:
        """The attributes of the sweep, the digests of the files that were created with it, and the digest of all.

        Raises ProblemError if there is no sweep, or its header is damaged.
        """
        if not self.exists or not (self.path / HEADER).is_file():
            lacks = f"one without {HEADER if self.exists else DATA}"
            got = "a sweep of attsvm 1.0, which can only be opened" if self.is_of_1_0 else lacks
            raise ProblemError(f"{self.given}: expected the folder of a sweep, got {got}")
        return self._unsealed(HEADER, damaged=LOST)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the lock of the folder. The system releases it when the process ends in any way.

        Raises ProblemError if another process holds it, or the folder holds other files.
        """
        kind = kind_of(self.path)
        if kind not in (None, "a folder"):
            raise ProblemError(f"{self.given}: expected a free name or the folder of a sweep, got {kind}")
        others = {each.name for each in self.path.iterdir()} - {HEADER, NEW, RECORDS, LOCK} if kind else set()
        if not self.exists and (others := {name for name in others if not name.startswith(".")}):
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
                    raise ProblemError(f"{self.given}: another process is running this sweep") from None
                except OSError as error:
                    raise ProblemError(f"{self.given}: cannot be locked ({error.strerror or error})") from error
            yield
        finally:
            os.close(descriptor)

    def prepare(self, definition: Definition, chunk: int, command: str, device: str | None = None) -> int:
        """Create the store, or check that it is of the same sweep and version; return the size of its chunks.

        Raises ProblemError if it is of another sweep or version or of a device of another kind, or cannot be written.
        """
        if not self.exists:
            with cannot_be_written(self.given):
                self._create(definition, chunk, command, device)
            return chunk
        header = self.header()
        attributes = header["attributes"]
        if attributes["version"] != __version__:
            raise ProblemError(
                f"{self.given}: expected a sweep of attsvm {__version__}, got one of attsvm {attributes['version']}"
            )
        if attributes["hash"] != definition.hash:
            ours, theirs = definition.described(), attributes["definition"]
            differs = next((name for name in ours if ours[name] != theirs.get(name)), "hash")
            raise ProblemError(
                f"{self.given}: expected a store of this sweep, got one of another sweep: its {differs} is "
                f"{_short(theirs.get(differs))} and not {_short(ours.get(differs))}"
            )
        begun = attributes["device"]
        # the bits of a GPU are not those of a CPU
        if begun and device and begun.partition(":")[0] != device.partition(":")[0]:
            raise ProblemError(f"device: expected {begun!r}, on which {self.given} was begun, got {device!r}")
        missing = [file for file in header["files"] if not (self.path / DATA / file).exists()]
        with cannot_be_written(self.given):
            (self.path / RECORDS).mkdir(exist_ok=True)
            if missing:
                create_group(self.path / NEW, definition, attributes)
            for file in missing:
                os.renames(self.path / NEW / file, self.path / DATA / file)
            shutil.rmtree(self.path / NEW, ignore_errors=True)
        return int(attributes["chunk"])

    def _create(self, definition: Definition, chunk: int, command: str, device: str | None) -> None:
        attributes = {
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
        for part in (NEW, RECORDS):
            shutil.rmtree(self.path / part, ignore_errors=True)  # of a process that was killed here
        create_group(self.path / NEW, definition, attributes)
        (self.path / RECORDS).mkdir()
        created = (path for path in sorted((self.path / NEW).rglob("*")) if path.is_file())
        files = {path.relative_to(self.path / NEW).as_posix(): _digest(path.read_bytes()) for path in created}
        self._seal(HEADER, {"attributes": attributes, "files": files})
        os.rename(self.path / NEW, self.path / DATA)

    def read(self, *, complete: bool = True) -> tuple[dict[str, bytes], dict[SweepChunk, dict[str, Any]]]:
        """The files of the zarr group that are listed, and the records of the finished and of the failed chunks.

        Raises ProblemError if a file is damaged, or one is missing and all have to be there (``complete``).
        """
        header = self.header()
        attributes, names = header["attributes"], self.path / NAMES
        num_cells = math.prod(map(len, attributes["definition"]["grid"].values()))
        listed = set(names.read_bytes().splitlines()) if complete and names.is_file() else set()
        chunks = tasks(num_cells, attributes["trials"], attributes["chunk"])
        lines = {task: _line(task, header["digest"]) for task in chunks}
        # a full disk cuts a line short; any other line may be that of a record that is missing
        known = all(any(line.startswith(part) for line in lines.values()) for part in listed - {*lines.values()})
        files, contents = dict(header["files"]), dict[str, bytes]()
        records: dict[SweepChunk, dict[str, Any]] = {}
        for task, line in lines.items():
            if (self.path / _record(task)).is_file():
                records[task] = self._unsealed(_record(task), header["digest"])
                files |= records[task].get("files", {})
            elif line in listed:
                raise self._refusal(_record(task), MISSING)
            elif not known:
                raise self._refusal(NAMES, DAMAGED)
        for file, digest in files.items():
            path = Path(DATA, file)
            if (self.path / path).is_file():
                with reading(self.given / path, "cannot be read"):
                    contents[file] = (self.path / path).read_bytes()
                if _digest(contents[file]) != digest:
                    raise self._refusal(path, DAMAGED)
            elif complete:
                raise self._refusal(path, MISSING)
        return contents, records

    def _refusal(self, file: str | Path, got: str) -> ProblemError:
        return ProblemError(f"{self.given / file}: expected a file as the sweep wrote it, got {got}")

    def _seal(self, file: str | Path, record: Mapping[str, Any], key: str = "") -> None:
        """Write a record as JSON, with a digest of its text, its place and a key."""
        sealed = {**record, "digest": _digest(f"{key} {file} {json.dumps(record)}".encode())}
        with atomic_write(self.path / file) as stream:
            stream.write(json.dumps(sealed, indent=1).encode())

    def _unsealed(self, file: str | Path, key: str = "", damaged: str = DAMAGED) -> dict[str, Any]:
        """A record that :meth:`_seal` has written, with its digest."""
        with contextlib.suppress(Exception):  # a damaged file fails in any way
            sealed = json.loads((self.path / file).read_bytes())
            record = {name: value for name, value in sealed.items() if name != "digest"}
            if sealed["digest"] == _digest(f"{key} {file} {json.dumps(record)}".encode()):
                return dict(sealed)
        raise self._refusal(file, damaged)

    def write(
        self, definition: Definition, chunk: int, digest: str, task: SweepChunk, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Write the outputs of a chunk, then commit it.

        ``digest``: of the header. Raises ProblemError if another store was created at the path: a worker may outlive
        its client.
        """
        import zarr

        if self.header()["digest"] != digest:
            raise ProblemError(f"{self.given}: expected the store of this sweep, got one that was created later")
        files: list[str] = []
        group: Any = zarr.open_group(self.path / DATA, mode="r+")
        for name, array in {**arrays, DONE: np.ones(task.size, bool)}.items():
            if name not in (*definition.declared, DONE):  # an output that no measure declares
                with contextlib.suppress(ValueError):  # it was created before, perhaps by another worker
                    create_array(self.path / DATA, name, undeclared(array), definition, chunk)
                files.append(f"{name}/zarr.json")
            cell, own_axes = definition.place(task.cell), (0,) * (array.ndim - 1)
            files.append(f"{name}/{group[name].metadata.encode_chunk_key((*cell, task.first // chunk, *own_axes))}")
            (self.path / DATA / files[-1]).unlink(missing_ok=True)  # zarr would read it
            # also a file of missing values alone, so that none is missing
            group[name].with_config({"write_empty_chunks": True})[(*cell, slice(task.first, task.stop))] = array
        digests = {file: _digest((self.path / DATA / file).read_bytes()) for file in files}
        self._commit(task, {"files": digests}, digest)

    def fail(self, definition: Definition, task: SweepChunk, failure: Failure) -> None:
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
        with cannot_be_written(self.given):
            self._commit(task, {"failure": record}, self.header()["digest"])

    def _commit(self, task: SweepChunk, record: Mapping[str, Any], key: str) -> None:
        self._seal(_record(task), record, key)
        with (self.path / NAMES).open("ab") as names:
            names.write(b"\n" + _line(task, key))  # after a line that a full disk has cut short, too

    def done(self) -> set[SweepChunk]:
        """The committed chunks. One that lacks a file, as where a user has deleted a damaged one, is none.

        Raises ProblemError if a file is damaged.
        """
        there, records = self.read(complete=False)
        return {task for task, each in records.items() if "files" in each and each["files"].keys() <= there.keys()}


def open_sweep(store: str | os.PathLike[str]) -> "xarray.Dataset":
    """Open the result of a sweep, which may be finished, interrupted or running.

    Every file of the sweep is read and compared with its digest. The same sweep again writes files that are missing, as
    where a damaged one was deleted. Sweeps of attsvm 1.0, which have no digests, are opened as they are.

    Parameters
    ----------
    store : path
        The folder of the sweep.

    Returns
    -------
    xarray.Dataset
        Its arrays are decoded when they are used. docs/guide/results.md describes it.

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
    from zarr.buffer import cpu
    from zarr.storage import MemoryStore

    found = SweepStore(store)
    if found.is_of_1_0:
        with reading(found.given, "cannot be read"):
            data = xr.open_zarr(found.path / DATA, consolidated=False, chunks=None).load()
            errors = [json.loads(path.read_text()) for path in sorted(found.path.glob("errors/*.json"))]
    else:
        contents, records = found.read()
        listed = MemoryStore({file: cpu.Buffer.from_bytes(content) for file, content in contents.items()})
        data = xr.open_zarr(listed, consolidated=False, chunks=None)
        errors = [record["failure"] for record in records.values() if "failure" in record]
    # zarr lists its arrays in any order
    declared = data.attrs["outputs"]
    names = [*declared, *sorted(set(map(str, data.data_vars)) - {*declared, DONE}), DONE]
    opened: xarray.Dataset = data[names]
    opened.attrs = {name: value for name, value in data.attrs.items() if name not in OUR_ATTRIBUTES}
    opened.attrs["errors"] = json.dumps(errors)
    return opened


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _record(task: SweepChunk) -> str:
    return f"{RECORDS}/{task.name}.json"


def _line(task: SweepChunk, key: str) -> bytes:
    """The line of a record in the list of names; its digest tells it from a damaged line."""
    return f"{task.name} {_digest(f'{key} {task.name}'.encode())}".encode()
