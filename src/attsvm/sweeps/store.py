"""The folder of a sweep: created, locked by one client, and filled chunk by chunk. ``format.py`` describes it."""

import contextlib
import json
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attsvm._version import __version__
from attsvm.errors import ProblemError
from attsvm.storage import atomic_write, kind_of
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.format import Output, undeclared

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import xarray

DATA, HEADER, CHUNKS, LOCK = "data.zarr", "sweep.json", "chunks", "lock"
DONE, FAILED = ".done", ".failed"


class Task(NamedTuple):
    """A chunk of trials of one cell."""

    cell: int
    first: int
    stop: int
    attempt: int = 1

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.cell}-{self.first}"


class Store:
    """A sweep's folder.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.given, self.path = path, Path(path).absolute()

    @property
    def exists(self) -> bool:
        """Whether the folder holds a sweep that was created completely."""
        return (self.path / HEADER).is_file()

    def header(self) -> dict[str, Any]:
        """What ``sweep.json`` holds.

        Raises
        ------
        ProblemError
            If the folder holds no sweep.
        """
        try:
            found = json.loads((self.path / HEADER).read_bytes())
        except (OSError, ValueError):
            raise ProblemError(f"{self.given}: expected the folder of a sweep, got none") from None
        if not isinstance(found, dict) or not {"hash", "version", "definition", "chunk"} <= set(found):
            raise ProblemError(f"{self.given}: expected the folder of a sweep, got another {HEADER}")
        return found

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the lock of the folder. The system releases it when the process ends in any way.

        Raises
        ------
        ProblemError
            If another process holds it, or the folder holds other files.
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
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ProblemError(f"{self.given}: cannot be written ({error.strerror or error})") from error
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

        Raises
        ------
        ProblemError
            If it is of another sweep or version, or was begun on a device of another kind.
        """
        if not self.exists:
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
        return int(header["chunk"])

    def _create(self, definition: Definition, chunk: int, command: str, device: str | None) -> None:
        import xarray as xr

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
            "outputs": [name for measure in definition.parsed_measures for name in measure.declared()],
            "definition": definition.described(),
        }
        coordinates = {name: (name, coordinate(values), label(name)) for name, values in definition.grid.items()}
        for measure in definition.parsed_measures:
            for output in measure.declared().values():
                coordinates |= {axis: (axis, coordinate(x), label(axis)) for axis, x in output.axes.items()}
        attributes = {name: value for name, value in header.items() if name not in ("outputs", "id")}
        attributes["definition"] = json.dumps(header["definition"])
        with _quiet():
            xr.Dataset(coords=coordinates, attrs=attributes).to_zarr(
                self.path / DATA, mode="w", zarr_format=3, consolidated=False
            )
        for measure in definition.parsed_measures:
            for name, output in measure.declared().items():
                self._create_array(name, output, definition, chunk)
        (self.path / CHUNKS).mkdir()
        with atomic_write(self.path / HEADER) as stream:
            stream.write(json.dumps(header, indent=1).encode())

    def _create_array(self, name: str, output: Output, definition: Definition, chunk: int) -> None:
        import zarr

        lengths = tuple(len(values) for values in output.axes.values())
        zarr.open_group(self.path / DATA, mode="r+").create_array(
            name,
            shape=(*definition.shape, definition.trials, *lengths),
            chunks=(*(1,) * len(definition.shape), min(chunk, definition.trials), *lengths),
            dtype=output.dtype,
            fill_value=output.missing,
            dimension_names=(*definition.grid, "trial", *output.axes),
            attributes=output.attributes(name),
        )

    def identity(self) -> str:
        """The random id that it was created with."""
        return str(self.header().get("id"))

    def _check_identity(self, identity: str) -> None:
        if self.identity() != identity:
            raise ProblemError(f"{self.given}: expected the store of this sweep, got one that was created later")

    def write(
        self, definition: Definition, chunk: int, identity: str, task: Task, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Write the outputs of a chunk, then commit it by one file that is there or not.

        Raises
        ------
        ProblemError
            If another store was created at the path: a worker may outlive its client.
        """
        self._check_identity(identity)
        declared = {name: each for measure in definition.parsed_measures for name, each in measure.declared().items()}
        at = (*definition.place(task.cell), slice(task.first, task.stop))
        created = (self.path / HEADER).stat().st_mtime_ns
        for name, array in arrays.items():
            if name not in declared:
                self._ensure(name, array, definition, chunk)
            _array(self.path, created, name)[at] = array
        self._check_identity(identity)
        (self.path / CHUNKS / f"{task.name}{DONE}").touch()
        (self.path / CHUNKS / f"{task.name}{FAILED}").unlink(missing_ok=True)

    def _ensure(self, name: str, array: np.ndarray, definition: Definition, chunk: int) -> None:
        """Create the array of an output that no measure declares, unless a worker has created it."""
        if (self.path / DATA / name / "zarr.json").is_file():
            return
        # two workers write the same file, each by a rename
        with contextlib.suppress(ValueError):
            self._create_array(name, undeclared(array), definition, chunk)

    def fail(self, definition: Definition, task: Task, error: str, traceback: str) -> None:
        """Record the error of a chunk."""
        record = {
            "cell": {name: _plain(value) for name, value in definition.values(task.cell).items()},
            "trials": [task.first, task.stop],
            "attempts": task.attempt,
            "error": error,
            "traceback": traceback,
        }
        with atomic_write(self.path / CHUNKS / f"{task.name}{FAILED}") as stream:
            stream.write(json.dumps(record).encode())

    def done(self) -> set[str]:
        """The names of the committed chunks."""
        with os.scandir(self.path / CHUNKS) as entries:
            return {entry.name.removesuffix(DONE) for entry in entries if entry.name.endswith(DONE)}

    def errors(self) -> list[dict[str, Any]]:
        """The records of the failed chunks. That of a chunk that was committed later no longer counts."""
        found = []
        for path in sorted((self.path / CHUNKS).glob(f"*{FAILED}")):
            if not path.with_suffix(DONE).exists():
                with contextlib.suppress(FileNotFoundError):  # of a chunk that is committed now
                    found.append(json.loads(path.read_bytes()))
        return found


def open_sweep(store: str | os.PathLike[str]) -> "xarray.Dataset":
    """Open the result of a sweep, which may be finished, interrupted or running.

    Parameters
    ----------
    store : path
        The folder of the sweep.

    Returns
    -------
    xarray.Dataset
        Its arrays are read when they are used. docs/guide/results.md describes it.

    Raises
    ------
    ProblemError
        If there is no sweep at this path.

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
    with _quiet():
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

    Raises
    ------
    ProblemError
        If one is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ProblemError(f"attsvm.sweep needs {missing[0]}: pip install 'attsvm[sweep]'")


def label(name: str) -> dict[str, str]:
    """The attributes of a coordinate."""
    return {"long_name": name.rpartition(".")[2].replace("_", " "), "units": ""}


def coordinate(values: Any) -> np.ndarray:
    """The values of a grid as numbers, or as strings."""
    numbers = [_plain(value) for value in values]
    if all(isinstance(value, int) and not isinstance(value, bool) for value in numbers):
        return np.array(numbers, np.int64)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
        return np.array(numbers, np.float64)
    texts = [str(value) for value in numbers]
    if len(set(texts)) < len(texts):  # optimizers of one name
        texts = [str(value) for value in values]
    if len(set(texts)) < len(texts):
        raise ProblemError(f"grid: expected values of different names, got {', '.join(texts)}")
    return np.array(texts)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, bool | int | float | str) else str(getattr(value, "name", value))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings of zarr that the format of strings may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@lru_cache(maxsize=256)
def _array(path: Path, created: int, name: str) -> Any:
    """An array of a store, opened once. A store that was created later at the same path has other arrays."""
    import zarr

    return zarr.open_array(path / DATA / name, mode="r+")
