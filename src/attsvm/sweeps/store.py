"""The folder of a sweep: created, locked by one client, and filled chunk by chunk.

Its format::

    STORE/
      data.zarr/    a zarr group, which ``xarray.open_zarr`` reads
      sweep.json    the definition: version, command, seed, hash, trials, block, chunk; a random id of the store; the
                    checksums of the files that the store was created with, and of itself
      chunks/       one small file for each finished or failed chunk; that of a finished one has the checksums (CRC-32C)
                    of the files that were written for it
      lock          held by the client that runs

:func:`attsvm.sweeps.open_sweep` reads it as an ``xarray.Dataset``:

- Dimensions: one for each axis of the grid, in the order of the grid, then ``trial``, then the axes of a measure.
- Coordinates: the values of the grid (numbers, or strings), and those of the measures' own axes, with ``long_name`` and
  ``units``.
- Variables: the outputs of the measures. In float64, NaN means missing: not measured, failed or undefined. In int8 and
  int32, -1 means missing. ``flag_meanings`` names the codes 0, 1, ... of an output, divided by spaces; a yes-or-no
  output has "no yes". ``interval`` is "wilson" for shares of codes and "bootstrap" for numbers. ``partial`` is true
  where only some trials have a value by definition.
- ``done``: whether the chunk of a trial is committed. Use only these trials.
- Attributes: ``version``, ``command``, ``seed``, ``hash`` (SHA-256 of the definition), ``name``, ``trials``, ``block``,
  ``chunk``, ``device`` (empty if not known), ``definition`` (JSON) and ``errors``: a JSON list of ``{"cell", "trials",
  "attempts", "error", "traceback"}``, one for each failed chunk.
"""

import contextlib
import json
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm._utils.checks import check_flag
from attsvm._utils.files import atomic_write, kind_of
from attsvm._utils.progress import counted
from attsvm._version import __version__
from attsvm.errors import ProblemError
from attsvm.sweeps.arrays import create_array, create_group, plain
from attsvm.sweeps.checksums import changed, of_file, read, sealed, unsealed
from attsvm.sweeps.compute import Failure, Task
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.measure import undeclared

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import xarray

DATA, HEADER, CHUNKS, LOCK = "data.zarr", "sweep.json", "chunks", "lock"
DONE, FAILED = ".done", ".failed"


class Store:
    """A sweep's folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.given, self.path = path, Path(path).absolute()

    @property
    def exists(self) -> bool:
        """Whether the folder holds a sweep that was created completely."""
        return (self.path / HEADER).is_file()

    def header(self) -> dict[str, Any]:
        """What ``sweep.json`` holds.

        Raises ProblemError if the folder holds no sweep, or the file is damaged.
        """
        try:
            found = unsealed((self.path / HEADER).read_bytes())
        except OSError:
            raise ProblemError(f"{self.given}: expected the folder of a sweep, got none") from None
        except ValueError:
            raise ProblemError(
                f"{self.given}: expected the folder of a sweep, got one whose {HEADER} is damaged"
            ) from None
        if not {"hash", "version", "definition", "chunk"} <= set(found):
            raise ProblemError(f"{self.given}: expected the folder of a sweep, got another {HEADER}")
        return found

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the lock of the folder. The system releases it when the process ends in any way.

        Raises ProblemError if another process holds it, or the folder holds other files.
        """
        known = {DATA, HEADER, CHUNKS, LOCK}
        kind = kind_of(self.path)
        if kind not in (None, "a folder"):
            raise ProblemError(f"{self.given}: expected a free name or the folder of a sweep, got {kind}")
        others = {each.name for each in self.path.iterdir()} - known if kind else set()
        if others:
            raise ProblemError(
                f"{self.given}: expected a free name or the folder of a sweep, got one with {min(others)}"
            )
        with self._writing():
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

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ProblemError(f"{self.given}: cannot be written ({error.strerror or error})") from error

    def prepare(self, definition: Definition, chunk: int, command: str, device: str | None = None) -> int:
        """Create the store, or check that it is of the same sweep and version; return the size of its chunks.

        The chunks of damaged files are computed again, which is warned of.

        Raises ProblemError if it is of another sweep or version, was begun on a device of another kind, or cannot be
        written.
        """
        if not self.exists:
            with self._writing():
                self._create(definition, chunk, command, device)
            return chunk
        header = self.header()
        if header["version"] != __version__:
            raise ProblemError(
                f"{self.given}: expected a sweep of attsvm {__version__}, got one of attsvm {header['version']}"
            )
        if header["hash"] != definition.hash:
            ours, theirs = definition.described(), header["definition"]
            differs = next((name for name in ours if ours[name] != theirs.get(name)), "hash")
            raise ProblemError(
                f"{self.given}: expected a store of this sweep, got one of another sweep, whose {differs} is "
                f"{_short(theirs.get(differs))} and not {_short(ours.get(differs))}"
            )
        begun = header.get("device")
        # the bits of a GPU are not those of a CPU
        if begun and device and begun.partition(":")[0] != device.partition(":")[0]:
            raise ProblemError(f"device: expected {begun!r}, on which {self.given} was begun, got {device!r}")
        with self._writing():
            (self.path / CHUNKS).mkdir(exist_ok=True)
            self._repair(definition, header)
        return int(header["chunk"])

    def _create(self, definition: Definition, chunk: int, command: str, device: str | None) -> None:
        for part in (DATA, CHUNKS):
            shutil.rmtree(self.path / part, ignore_errors=True)  # of a process that was killed here
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
        create_group(self.path / DATA, definition, header)
        (self.path / CHUNKS).mkdir()
        self._write_header(
            header | {"files": {file: of_file(self.path, file) for file in sorted(_data_files(self.path))}}
        )

    def _write_header(self, header: dict[str, Any]) -> None:
        with atomic_write(self.path / HEADER) as stream:
            stream.write(sealed(header))

    def damaged(self, header: Mapping[str, Any]) -> dict[str, str]:
        """The files that changed since they were written, each with a chunk that writes it, or "" for the creation."""
        if "files" not in header:
            warnings.warn(f"{self.given}: no checksums, so damaged files are not found", RuntimeWarning, stacklevel=3)
            return {}
        found = dict.fromkeys(changed(self.path, header["files"]), "")
        for chunk in self.done():
            commit = f"{CHUNKS}/{chunk}{DONE}"
            try:
                files = unsealed(read(self.path, commit))
            except ValueError:
                files = {commit: "damaged"}
            found |= dict.fromkeys(changed(self.path, files), chunk)
        return found

    def damage(self, files: Collection[str]) -> str:
        """What is wrong with damaged files, in one line."""
        first = min(files)
        got = "others" if (self.path / first).exists() else "no file"
        more = f" (and {counted(len(files) - 1, 'more file')} like it)" if len(files) > 1 else ""
        return f"{Path(self.given) / first}: expected the bytes that the sweep wrote, got {got}{more}"

    def _repair(self, definition: Definition, header: dict[str, Any]) -> None:
        """Create damaged coordinates and metadata again, and take back the commits of damaged chunks."""
        damaged = self.damaged(header)
        if not damaged:
            return
        warnings.warn(f"{self.damage(damaged)}; it is computed again", RuntimeWarning, stacklevel=5)
        for chunk in {*damaged.values()} - {""}:
            (self.path / CHUNKS / f"{chunk}{DONE}").unlink()
        for file in damaged.keys() & _data_files(self.path):
            (self.path / file).unlink()
        with tempfile.TemporaryDirectory() as folder:
            create_group(Path(folder, DATA), definition, header)
            for file in damaged.keys() & _data_files(Path(folder)):
                (self.path / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(folder, file), self.path / file)
                header["files"][file] = of_file(self.path, file)
        self._write_header(header)

    def identity(self) -> str:
        """The random id that it was created with."""
        return str(self.header().get("id"))

    def _check_identity(self, identity: str) -> None:
        if self.identity() != identity:
            raise ProblemError(f"{self.given}: expected the store of this sweep, got one that was created later")

    def write(
        self, definition: Definition, chunk: int, identity: str, task: Task, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Write the outputs of a chunk, then commit it by one file, which has the checksums of what was written.

        Raises ProblemError if another store was created at the path: a worker may outlive its client.
        """
        self._check_identity(identity)
        at = (*definition.place(task.cell), slice(task.first, task.stop))
        created = (self.path / HEADER).stat().st_mtime_ns
        written = []
        for name, array in arrays.items():
            if name not in definition.declared:
                self._ensure(name, array, definition, chunk)
                written.append(f"{DATA}/{name}/zarr.json")
            stored = _array(self.path, created, name)
            stored[at] = array
            key = stored.metadata.encode_chunk_key((*at[:-1], task.first // chunk, *(0,) * (array.ndim - 1)))
            written.append(f"{DATA}/{name}/{key}")
        commit = sealed({file: of_file(self.path, file) for file in written})
        self._check_identity(identity)
        with atomic_write(self.path / CHUNKS / f"{task.name}{DONE}") as stream:
            stream.write(commit)
        (self.path / CHUNKS / f"{task.name}{FAILED}").unlink(missing_ok=True)

    def _ensure(self, name: str, array: np.ndarray, definition: Definition, chunk: int) -> None:
        """Create the array of an output that no measure declares, unless a worker has created it."""
        if (self.path / DATA / name / "zarr.json").is_file():
            return
        # two workers write the same file, each by a rename
        with contextlib.suppress(ValueError):
            create_array(self.path / DATA, name, undeclared(array), definition, chunk)

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
        with self._writing(), atomic_write(self.path / CHUNKS / f"{task.name}{FAILED}") as stream:
            stream.write(sealed(record))

    def done(self) -> set[str]:
        """The names of the committed chunks."""
        return {path.name.removesuffix(DONE) for path in (self.path / CHUNKS).glob(f"*{DONE}")}

    def errors(self) -> list[dict[str, Any]]:
        """The records of the failed chunks. That of a chunk that was committed later no longer counts.

        Raises ProblemError if one is damaged.
        """
        found = []
        for path in sorted((self.path / CHUNKS).glob(f"*{FAILED}")):
            if not path.with_suffix(DONE).exists():
                try:
                    found.append(unsealed(path.read_bytes()))
                except FileNotFoundError:  # of a chunk that is committed now
                    continue
                except ValueError:
                    raise ProblemError(self.damage([f"{CHUNKS}/{path.name}"])) from None
        return found


def open_sweep(store: str | os.PathLike[str], *, verify: bool = True) -> "xarray.Dataset":
    """Open the result of a sweep, which may be finished, interrupted or running.

    Every file is compared with the checksum that was stored when it was written. Where one is damaged or missing, the
    same sweep again computes its chunk again. Stores of version 0.2 may have no checksums, which is warned of.

    Parameters
    ----------
    store : path
        The folder of the sweep.
    verify : bool
        Compare the checksums, which reads all files.

    Returns
    -------
    xarray.Dataset
        Its arrays are read when they are used. docs/guide/results.md describes it.

    Raises
    ------
    ProblemError
        If there is no sweep at this path, or a file of it is damaged.

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
    check_installed("xarray", "zarr")
    import xarray as xr

    found = Store(store)
    header = found.header()
    damaged = found.damaged(header) if check_flag("verify", verify) else ()
    if damaged:
        raise ProblemError(f"{found.damage(damaged)}; to compute it again, run the sweep again")
    data = xr.open_zarr(found.path / DATA, consolidated=False, chunks=None)
    grid = header["definition"]["grid"]
    done = np.zeros((*(len(values) for values in grid.values()), header["trials"]), dtype=bool)
    by_cell = done.reshape(-1, header["trials"])
    for name in found.done():
        cell, first = map(int, name.split("-"))
        by_cell[cell, first : first + header["chunk"]] = True
    attributes = {**data.attrs, "errors": json.dumps(found.errors())}
    # zarr lists its arrays in any order
    declared = header.get("outputs", [])
    names = [*declared, *sorted(set(map(str, data.data_vars)) - set(declared))]
    variables = {name: data[name] for name in names} | {"done": ((*grid, "trial"), done)}
    return xr.Dataset(variables, data.coords, attributes)


def check_installed(*packages: str) -> None:
    """Check that packages of the extra ``sweep`` are installed.

    Raises ProblemError if one is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ProblemError(f"attsvm.sweep needs {missing[0]}: pip install 'attsvm[sweep]'")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _data_files(store: Path) -> set[str]:
    """The files of a store's zarr group."""
    return {path.relative_to(store).as_posix() for path in (store / DATA).rglob("*") if path.is_file()}


@lru_cache(maxsize=256)
def _array(path: Path, created: int, name: str) -> Any:
    """An array of a store, opened once. A store that was created later at the same path has other arrays."""
    import zarr

    return zarr.open_array(path / DATA / name, mode="r+")
