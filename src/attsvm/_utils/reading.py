"""Reading files that others wrote: whatever is wrong with one becomes a single ``ProblemError`` that names it."""

import contextlib
import json
import math
import os
import stat
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from attsvm.errors import ProblemError

META = "__meta__"
"""The array of an archive that holds its meta data, as JSON."""

DEFLATE_RATIO = 1032
"""Deflate makes data at most this many times smaller, so that a larger claim is false."""

REASON_LENGTH = 300

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@contextlib.contextmanager
def reading(name: object, failure: str) -> Iterator[None]:
    """Raise one ``ProblemError`` for every error in the block, and show no warnings.

    For the block that parses a file, or calls a library that does: damaged files make parsers raise errors of any kind.

    Parameters
    ----------
    name : object
        What is read: a path, or the name of a model.
    failure : str
        What to say about it, such as "not a readable .npz archive".

    Raises
    ------
    ProblemError
        ``name: failure (first line of the error)``; an error of this type is passed on as it is.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(f"{name}: {failure} ({reason(error)})") from error


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Discard what the block prints, from native code too, on the standard output and error of the process."""
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for number, earlier in zip((1, 2), kept, strict=True):
            os.dup2(earlier, number)
            os.close(earlier)
        os.close(nowhere)


def reason(error: BaseException) -> str:
    """The first line of an error's message, without control characters."""
    text = (isinstance(error, OSError) and error.strerror) or str(error).strip() or type(error).__name__
    first = "".join(letter if letter.isprintable() else "�" for letter in text.splitlines()[0][:REASON_LENGTH])
    return first.rstrip(" .:")


def regular_file(path: str | os.PathLike[str]) -> Path:
    """The path of an existing regular file. Others are refused: a FIFO may block, and a device may never end.

    Raises
    ------
    ProblemError
        If there is no such file, or it is a folder, FIFO, socket or device.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise ProblemError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # a path cannot hold a null character
        raise ProblemError(f"{path}: cannot be read ({reason(error)})") from None
    if not stat.S_ISREG(mode):
        raise ProblemError(f"{path}: expected a file, got {_KINDS.get(stat.S_IFMT(mode), 'something else')}")
    return Path(path)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file.

    Raises
    ------
    ProblemError
        If it cannot be read.
    """
    with reading(path, "cannot be read"):
        return regular_file(path).read_bytes()


def read_text(path: str | os.PathLike[str]) -> str:
    """The content of a text file in UTF-8, without a byte-order mark.

    Raises
    ------
    ProblemError
        If it cannot be read, or is not UTF-8.
    """
    try:
        # spreadsheets begin their files with a byte-order mark
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(
            f"{path}: expected UTF-8, got byte {error.object[error.start]:#04x} at position {error.start:,}; "
            "save the file as UTF-8"
        ) from None


def read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of an ``.npy`` file, without pickled objects.

    Raises
    ------
    ProblemError
        If the file cannot be read.
    """
    with reading(path, "not a readable .npy file"), regular_file(path).open("rb") as stream:
        array = _array(stream, os.fstat(stream.fileno()).st_size)
        if stream.read(1):
            raise ValueError("data after the array")
        return array


def read_arrays(path: str | os.PathLike[str], kind: str) -> dict[str, np.ndarray]:
    """The arrays of an archive, or of a JSON object whose values are nested lists.

    The value of the key "playground" of a JSON object, which the page of the playground writes for itself, is left out.

    Parameters
    ----------
    path : path
        An ``.npz`` or a JSON file; the content decides.
    kind : str
        The expected content, such as "problem".

    Raises
    ------
    ProblemError
        If the file cannot be read, or holds something else.
    """
    with regular_file(path).open("rb") as stream:
        is_json = stream.read(1) == b"{"
    if not is_json:
        return read_npz(path, kind)[0]
    with reading(path, "not a readable JSON object"):
        found = json.loads(read_text(path))
        if found.pop("kind", kind) != kind:
            raise ValueError(f"expected the kind {kind!r}")
        found.pop("playground", None)
    return {name: _of_lists(values, f"{path}: {name}") for name, values in found.items()}


def _of_lists(values: Any, name: str) -> np.ndarray:
    """The array of nested lists of numbers."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise ProblemError(
            f"{name}: expected nested lists of equal lengths, got different lengths; pad them and give a mask, "
            "or use attsvm.Problem.from_sequences"
        ) from None
    if array.dtype.kind not in "bif":
        got = {"U": "text", "O": "null or an object"}.get(array.dtype.kind, str(array.dtype))
        raise ProblemError(f"{name}: expected nested lists of numbers, got {got}")
    return array


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
    with reading(path, "not a readable .npz archive"), regular_file(path).open("rb") as stream:
        arrays = _archive(stream)
    meta: dict[str, Any] = {}
    if META in arrays:
        with reading(path, "its meta data cannot be read"):
            meta = _meta(arrays.pop(META))
    if kind is not None and meta.get("kind", kind) != kind:
        raise ProblemError(f"{path}: expected a file of kind {kind!r}, got {reason(ValueError(repr(meta['kind'])))}")
    if kind is not None and kind != "problem" and "kind" not in meta:
        raise ProblemError(f"{path}: expected a file of kind {kind!r} written by attsvm, got another archive")
    return arrays, meta


def _archive(stream: IO[bytes]) -> dict[str, np.ndarray]:
    size = os.fstat(stream.fileno()).st_size
    magic = stream.read(len(np.lib.format.MAGIC_PREFIX))
    stream.seek(0)
    if magic == np.lib.format.MAGIC_PREFIX:
        raise ValueError("expected an archive of named arrays, got a single array")
    if not zipfile.is_zipfile(stream):
        raise ValueError("neither an archive nor an array; pickles are never loaded" if size else "an empty file")
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        claimed = sum(member.file_size for member in members)
        if claimed > DEFLATE_RATIO * size:
            raise ValueError(f"it claims {claimed:,} bytes of data, more than a file of {size:,} bytes can hold")
        for member in members:
            name = member.filename.removesuffix(".npy")
            try:
                if name in arrays:
                    raise ValueError("expected one array of this name, got two")
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError("expected data that are stored or deflated, got another compression")
                with archive.open(member) as data:
                    arrays[name] = _array(data, member.file_size)
            except Exception as error:
                raise ValueError(f"{name}: {reason(error)}") from error
    return arrays


def _array(stream: IO[bytes], size: int) -> np.ndarray:
    """The array of a stream of ``size`` bytes. The shape is compared with the size before memory is allocated."""
    version = np.lib.format.read_magic(stream)
    if version not in _NPY_HEADERS:
        raise ValueError("expected an array of numbers, booleans or strings")
    shape, _, dtype = _NPY_HEADERS[version](stream)
    if dtype.hasobject or dtype.kind not in "biufU":
        raise ValueError(f"expected numbers, booleans or strings, got {dtype}; pickles are never loaded")
    claimed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or claimed != size - stream.tell():
        raise ValueError(f"shape {shape} of {dtype} does not fit {size - stream.tell():,} bytes of data")
    stream.seek(0)
    array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _meta(encoded: np.ndarray) -> dict[str, Any]:
    if encoded.dtype != np.uint8:
        raise ValueError(f"expected bytes, got {encoded.dtype}")
    meta = json.loads(encoded.tobytes().decode())
    if not isinstance(meta, dict):
        raise ValueError(f"expected an object, got {type(meta).__name__}")
    return meta
