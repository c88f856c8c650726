"""Result files: NumPy archives without pickle. A file is written completely or not at all."""

import contextlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attsvm._version import __version__
from attsvm.errors import ProblemError

_META = "__meta__"


_unfinished: set[Path] = set()


@contextlib.contextmanager
def unfinished(temporary: str | os.PathLike[str]) -> Iterator[Path]:
    """Remove a temporary file or folder when the block ends, unless it has been renamed."""
    path = Path(temporary)
    _unfinished.add(path)
    try:
        yield path
    finally:
        _remove(path)
        _unfinished.discard(path)


def remove_unfinished() -> None:
    """Remove every unfinished temporary file and folder, before the process is terminated from outside."""
    for path in tuple(_unfinished):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file in the folder of ``path``, and rename it to ``path`` if the block ends without an error."""
    target = Path(path)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    with unfinished(name) as temporary:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes the file private; give it the permissions of any new file
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)


def write_npz(
    path: str | os.PathLike[str], kind: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any] | None = None
) -> None:
    """Write ``arrays`` and JSON-able ``meta`` to ``path`` as one archive of the given ``kind``."""
    header = {"kind": kind, "version": __version__, **(meta or {})}
    encoded = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with atomic_write(path) as stream:
        np.savez_compressed(stream, **{_META: encoded}, **arrays)  # type: ignore[arg-type]


def read_npz(path: str | os.PathLike[str], kind: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays and the meta data of an archive.

    Parameters
    ----------
    path : path
        An ``.npz`` file.
    kind : str, optional
        The expected content ("problem", "run", "solution"). None accepts any archive.

    Returns
    -------
    arrays : dict of str to ndarray
    meta : dict
        Empty for an archive that attsvm did not write.

    Raises
    ------
    ProblemError
        If the file cannot be read, holds pickled objects or another kind of result.
    """
    try:
        # opened here, because NumPy does not close a file that it cannot read
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ProblemError(f"{path}: expected an .npz archive of named arrays, got a single array")
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise ProblemError(f"{path}: no such file") from error
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(f"{path}: not a readable .npz archive ({_why(error)})") from error
    meta: dict[str, Any] = {}
    if _META in arrays:
        meta = json.loads(arrays.pop(_META).tobytes().decode())
    if kind is not None and meta.get("kind", kind) != kind:
        raise ProblemError(f"{path}: expected a file of kind {kind!r}, got {meta['kind']!r}")
    if kind is not None and kind != "problem" and "kind" not in meta:
        raise ProblemError(f"{path}: expected a file of kind {kind!r} written by attsvm, got another archive")
    return arrays, meta


def _why(error: Exception) -> str:
    if "pickled" in str(error):  # NumPy assumes that a file it does not recognise is a pickle
        return "neither an archive nor an array; pickles are never loaded"
    return (isinstance(error, OSError) and error.strerror) or str(error)
