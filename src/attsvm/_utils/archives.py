"""NumPy archives of named arrays and meta data, without pickle; and arrays in JSON."""

import contextlib
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, read_array_header_1_0, read_array_header_2_0

from attsvm._utils.files import atomic_write, named_once, read_text, reading, reason, regular_file
from attsvm._utils.memory import check_fits
from attsvm._version import __version__
from attsvm.errors import ProblemError

META = "__meta__"
"""The array of an archive that holds its meta data, as JSON."""

_EXPECTED = "expected an array of numbers, booleans or strings"


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


def read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """Read the array of an ``.npy`` file, without pickled objects."""
    with reading(path, "not a readable .npy file"), _without_pickle(path):
        with regular_file(path).open("rb") as stream:
            check_fits(path, _bytes_of(stream, os.fstat(stream.fileno()).st_size))
        found = np.load(regular_file(path), allow_pickle=False)
        if not isinstance(found, np.ndarray):
            found.close()
            raise ValueError("expected a single array, got an archive")
        return _plain(found, path)


def read_npz(path: str | os.PathLike[str], kind: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays of an ``.npz`` file and its meta data, which are empty if attsvm did not write it.

    ``kind`` is the expected content, such as "problem" or "run"; None accepts any archive.
    """
    arrays: dict[str, np.ndarray] = {}
    with reading(path, "not a readable .npz archive"), _without_pickle(path):
        try:
            found = np.load(regular_file(path), allow_pickle=False)
        except BadZipFile:  # it begins as an archive, and the table of contents is at the end
            raise ValueError("the file is cut off; copy it again") from None
        if isinstance(found, np.ndarray):
            raise ValueError("expected an archive of named arrays, got a single array")
        with found as archive:
            check_members(path, archive.zip)
            for name in archive.files:
                with _without_pickle(f"{path}: {name}"):
                    arrays[name] = _plain(archive[name], f"{path}: {name}")
    meta: dict[str, Any] = {}
    if META in arrays:
        with reading(path, "its metadata cannot be read"):
            meta = dict(json.loads(arrays.pop(META).astype(np.uint8, casting="no").tobytes()))
    if kind is not None and meta.get("kind", kind) != kind:
        raise ProblemError(f"{path}: expected a file of kind {kind!r}, got {reason(ValueError(repr(meta['kind'])))}")
    if kind is not None and kind != "problem" and "kind" not in meta:
        raise ProblemError(f"{path}: expected a file of kind {kind!r} written by attsvm, got another archive")
    return arrays, meta


def read_array(path: str | os.PathLike[str], name: str) -> np.ndarray:
    """Read the array of an ``.npy`` file, or the one of that name in an ``.npz`` archive."""
    if not os.fspath(path).endswith(".npz"):
        return read_npy(path)
    arrays, _ = read_npz(path)
    if name not in arrays:
        raise ProblemError(f"{path}: expected an array {name!r}, got {', '.join(map(repr, arrays)) or 'none'}")
    return arrays[name]


def read_arrays(path: str | os.PathLike[str], kind: str) -> dict[str, np.ndarray]:
    """Read the arrays of an archive, or of a JSON object whose values are nested lists; the content decides.

    The value of the key "playground" of a JSON object, which the page of the playground writes for itself, is left out.
    """
    with reading(path, "cannot be read"), regular_file(path).open("rb") as stream:
        is_json = stream.read(1) == b"{"
    if not is_json:
        return read_npz(path, kind)[0]
    with reading(path, "not a readable JSON object"):
        found = json.loads(read_text(path), object_pairs_hook=named_once)
        if found.pop("kind", kind) != kind:
            raise ValueError(f"expected the kind {kind!r}")
        found.pop("playground", None)
    return {name: _of_lists(values, f"{path}: {name}") for name, values in found.items()}


def _bytes_of(stream: IO[bytes], length: int) -> int:
    """The bytes of memory that the content of a stream takes: its length, or what the header of its array states."""
    with stream:
        if stream.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            return length
        read = read_array_header_1_0 if stream.read(2)[:1] == b"\1" else read_array_header_2_0
        shape, _, dtype = read(stream)
        return max(length, math.prod(shape) * dtype.itemsize)


def check_members(path: object, archive: ZipFile) -> None:
    """Raise ProblemError if the members of a zip file do not fit into the memory, or several have one name."""
    check_fits(path, sum(_bytes_of(archive.open(part), part.file_size) for part in archive.infolist()))
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    if len({*names}) < len(names):
        raise ProblemError(f"{path}: expected one array of each name, got several")


@contextlib.contextmanager
def _without_pickle(name: object) -> Iterator[None]:
    """Replace NumPy's errors that advise to load pickles; ``name``: of what is read."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith("Object arrays"):
            raise ProblemError(f"{name}: {_EXPECTED}, got one of objects") from None
        if "allow_pickle" in str(error):
            raise ValueError("neither an archive nor an array of numbers; pickles are never loaded") from None
        raise


def _plain(array: Any, name: object) -> np.ndarray:
    """Check that an array holds numbers, booleans or strings."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU":
        raise ProblemError(f"{name}: {_EXPECTED}, got {getattr(array, 'dtype', type(array).__name__)}")
    return array


def _of_lists(values: Any, name: str) -> np.ndarray:
    """Return the array of nested lists of numbers."""
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
