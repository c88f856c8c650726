"""Files: output is made under a hidden name beside its target and renamed at the end; input is a regular file.

An error, Ctrl-C and SIGTERM remove what is unfinished. A process that is killed leaves it, under a name that ends with
``.unfinished-attsvm``.
"""

import contextlib
import gzip
import os
import secrets
import shutil
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from attsvm._utils.memory import check_fits
from attsvm._utils.text import visible
from attsvm.errors import ProblemError

ENDING = ".unfinished-attsvm"
"""How the names of unfinished files and folders end."""

REASON_LENGTH = 300

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
"""Endings of tables, also before ``.gz``."""

_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_hidden: dict[Path, Path | None] = {}  # hidden names in use; with its place, what was moved aside
_of_workers: list[Path] = []
_finished: set[Path] = set()


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return what is at a path: "a file", "a folder", "a FIFO", ...; None if there is nothing. Links are followed."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "a link to nothing" if os.path.islink(path) else None
    return _KINDS.get(stat.S_IFMT(mode), "something that is neither a file nor a folder")


@contextlib.contextmanager
def unfinished(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a hidden name beside ``target``, and remove what is there when the block ends.

    Make a file or a folder of this name in the block, and call :func:`finish` to move it to ``target``.
    """
    hidden = _hidden_name(Path(target))
    _hidden[hidden] = None
    try:
        yield hidden
    finally:
        _discard(hidden)


@contextlib.contextmanager
def moved_aside(target: Path) -> Iterator[None]:
    """Move what is at ``target`` to a hidden name, to make room for something that replaces it.

    At the end of the block it is removed, or moved back if nothing else is at ``target`` then.
    """
    hidden = _hidden_name(target)
    _hidden[hidden] = target
    try:
        target.rename(hidden)
        yield
    finally:
        _discard(hidden)


def finish(hidden: Path, target: str | os.PathLike[str]) -> None:
    """Move an unfinished file or folder to its target, which it replaces.

    A file is replaced in one step. A folder is moved aside first, for the moment between two renames.
    """
    target = Path(target)
    with moved_aside(target) if hidden.is_dir() and target.is_dir() else contextlib.nullcontext():
        hidden.replace(target)
        _finished.add(target.resolve())


def is_finished(target: str | os.PathLike[str]) -> bool:
    """Return whether this process has completed ``target``."""
    return Path(target).resolve() in _finished


def remove_unfinished() -> None:
    """Remove everything that is unfinished, because the process ends now."""
    for hidden in list(_hidden):
        _discard(hidden)
    for folder in _of_workers:
        _remove_below(folder)


@contextlib.contextmanager
def written_by_workers(folder: Path) -> Iterator[None]:
    """Declare that worker processes write below a folder: what they leave when they are killed is removed."""
    _of_workers.append(folder)
    try:
        yield
    except BaseException:
        _remove_below(folder)
        raise
    finally:
        _of_workers.remove(folder)


def _remove_below(folder: Path) -> None:
    for hidden in list(folder.rglob(f".*{ENDING}")):
        _discard(hidden)


def _hidden_name(target: Path) -> Path:
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}{ENDING}")


def _discard(hidden: Path) -> None:
    place = _hidden.get(hidden)
    if place is not None and hidden.exists() and not place.exists():
        hidden.rename(place)
    elif hidden.is_dir():
        shutil.rmtree(hidden, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            hidden.unlink()
    # last: if Ctrl-C comes before this line, the end of the process removes it
    _hidden.pop(hidden, None)


def make_folder(path: Path) -> list[Path]:
    """Make a folder and its missing parents; return those that were missing, each before its parent.

    If it cannot be made, none of them is left.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        remove_empty(missing)
        raise
    return missing


def remove_empty(folders: list[Path]) -> None:
    """Remove those folders that are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def file_to_write(path: str | os.PathLike[str]) -> Path:
    """Return the regular file, or the free name, that a write to ``path`` replaces; refuse anything else.

    Links are followed.
    """
    kind = kind_of(path)
    if kind not in (None, "a file"):
        raise ProblemError(f"{path}: expected a file or a free name, got {kind}")
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def cannot_be_written(out: str | os.PathLike[str]) -> Iterator[None]:
    """Raise ProblemError, in the name of ``out``, for an error of the system in the block."""
    try:
        yield
    except OSError as error:
        raise ProblemError(f"{out}: cannot be written ({error.strerror or error})") from error


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a hidden file beside ``path``, and rename it to ``path`` if the block ends without an error.

    An OSError has the name ``path``, not the hidden one.
    """
    target = file_to_write(path)
    try:
        with unfinished(target) as hidden:
            with hidden.open("xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            finish(hidden, target)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


def is_table_file(path: str | os.PathLike[str]) -> bool:
    """Return whether the name of a file is that of a table."""
    return os.fspath(path).lower().removesuffix(".gz").endswith(TABLES)


def regular_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of an existing regular file; refuse others: a FIFO may block, and a device may never end."""
    try:
        kind = kind_of(path)
    except (OSError, ValueError) as error:  # a path cannot hold a null character
        raise ProblemError(f"{path}: cannot be read ({reason(error)})") from None
    if kind in (None, "a link to nothing"):
        raise ProblemError(f"{path}: no such file")
    if kind != "a file":
        raise ProblemError(f"{path}: expected a file, got {kind}")
    return Path(path)


@contextlib.contextmanager
def reading(name: object, failure: str) -> Iterator[None]:
    """Raise one ``ProblemError`` for every error in the block, and show no warnings.

    For the block that parses a file, or calls a library that does: damaged files make parsers raise errors of any kind.
    The message is ``name: failure (first line of the error)``. A ``ProblemError`` is passed on as it is.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except BaseException as error:
        is_of_parser = isinstance(error, Exception) or type(error).__name__ == "PanicException"  # of a library in Rust
        if isinstance(error, ProblemError) or not is_of_parser:
            raise
        raise ProblemError(f"{name}: {failure} ({reason(error)})") from error


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, or its type without one; control characters are escaped."""
    text = (isinstance(error, OSError) and error.strerror) or str(error).strip() or type(error).__name__
    return visible(text.splitlines()[0][:REASON_LENGTH]).rstrip(" .:")


def named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, for ``json.loads``; raises ValueError if several of its values have one name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has several values with the same name")
    return found


def read_text(
    path: str | os.PathLike[str], encoding: str | None = None, otherwise: str = "save the file as UTF-8"
) -> str:
    """Return the content of a regular text file, without the byte-order mark that spreadsheets write.

    ``encoding``: by default UTF-8; a file that is UTF-8 and read in another one gives a warning. ``otherwise``: what to
    do, for the error message. A file that ends with ``.gz`` is decompressed.
    """
    with reading(path, "cannot be read"):
        opened: Any = gzip.open if os.fspath(path).lower().endswith(".gz") else open
        content = bytearray()
        with opened(regular_file(path), "rb") as stream:
            while part := stream.read(1 << 24):
                content += part
                check_fits(path, len(content))
    try:
        text = content.decode(encoding or "utf-8").removeprefix("\ufeff")
    except LookupError:
        raise ProblemError(f"encoding: expected one that Python knows, such as latin-1, got {encoding!r}") from None
    except UnicodeDecodeError as error:
        name = (encoding or "utf-8").upper()
        raise ProblemError(
            f"{path}: expected {name}, got byte {content[error.start]:#04x} at position {error.start:,}; {otherwise}"
        ) from None
    if encoding and not content.isascii():
        with contextlib.suppress(UnicodeDecodeError):
            if content.decode("utf-8-sig") != text and b"\0" not in content:
                warnings.warn(f"{path}: read as {encoding}, but it is UTF-8", RuntimeWarning, stacklevel=3)
    return text
