"""Writing files: a file is written completely or not at all. Results are NumPy archives without pickle."""

import contextlib
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attsvm._utils.reading import META
from attsvm._utils.temporaries import finish, unfinished
from attsvm._version import __version__
from attsvm.errors import ProblemError


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """What is at a path: "a file", "a folder", "a FIFO", ...; None if there is nothing. Links are followed."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "a link to nothing" if os.path.islink(path) else None
    return _KINDS.get(stat.S_IFMT(mode), "something that is neither a file nor a folder")


_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def file_to_write(path: str | os.PathLike[str]) -> Path:
    """The regular file, or the free name, that a write to ``path`` replaces. Links are followed.

    Raises
    ------
    ProblemError
        If there is anything else, such as a device, or a link to it.
    """
    kind = kind_of(path)
    if kind not in (None, "a file"):
        raise ProblemError(f"{path}: expected a file or a free name, got {kind}")
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path``, and rename it to ``path`` if the block ends without an error.

    Raises
    ------
    ProblemError
        If there is something at ``path`` that is not a regular file.
    OSError
        If the file cannot be written; it has the name ``path``.
    """
    target = file_to_write(path)
    with named_in_errors(path), unfinished(target) as temporary:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        finish(temporary, target)


@contextlib.contextmanager
def named_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give every OSError of the block the name of the file that could not be written, in place of a temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


def write_npz(
    path: str | os.PathLike[str], kind: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any] | None = None
) -> None:
    """Write ``arrays`` and JSON-able ``meta`` to ``path`` as one archive of the given ``kind``."""
    header = {"kind": kind, "version": __version__, **(meta or {})}
    encoded = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    # in memory first: a ZipFile whose file fails prints a traceback of its own when it is deleted
    archive = io.BytesIO()
    np.savez_compressed(archive, **{META: encoded}, **arrays)  # type: ignore[arg-type]
    with atomic_write(path) as stream:
        stream.write(archive.getbuffer())
