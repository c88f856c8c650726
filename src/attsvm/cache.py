"""Compiled programs on disk, so that later processes need not compile them again.

Three environment variables hold the settings: ``ATTSVM_CACHE`` (``on`` or ``off``), ``ATTSVM_CACHE_DIR`` (the folder)
and ``ATTSVM_CACHE_MB`` (its largest size). :func:`configure` sets them, so processes that are started later follow.
"""

import contextlib
import hashlib
import multiprocessing
import os
import re
import stat
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from attsvm._utils.checks import check_flag, check_number
from attsvm._utils.temporaries import finish, make_folder, unfinished
from attsvm.errors import ProblemError

__all__ = ["Contents", "clear", "configure", "contents"]

ENABLED, FOLDER, MEGABYTES = "ATTSVM_CACHE", "ATTSVM_CACHE_DIR", "ATTSVM_CACHE_MB"
DEFAULT_MEGABYTES = 256.0

_ENDING = ".program"
_NAME = re.compile(r"[0-9a-f]{64}\.program")
_WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_DIGEST = hashlib.sha256().digest_size
_failed: set[Path] = set()  # folders that cannot be used, of which the user has been warned


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True)
class Contents:
    """What is in the cache.

    Attributes
    ----------
    folder : Path
        Where the programs are. The folder is made when the first program is kept.
    enabled : bool
        Whether programs are read from it and written to it.
    num_programs : int
    megabytes : float
        Their size.
    max_megabytes : float
        When the programs take more, those that were not used for longest are removed.

    See Also
    --------
    attsvm.cache.contents : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> found = attsvm.cache.contents()
    >>> found.num_programs >= 0, found.megabytes <= found.max_megabytes
    (True, True)
    """

    folder: Path
    enabled: bool
    num_programs: int
    megabytes: float
    max_megabytes: float


def contents() -> Contents:
    """Where the cache is and what it holds.

    See Also
    --------
    attsvm.cache.configure, attsvm.cache.clear

    Examples
    --------
    >>> import attsvm
    >>> attsvm.cache.contents().enabled
    True
    """
    found = list(_entries(_folder()))
    return Contents(_folder(), enabled(), len(found), sum(entry.size for entry in found) / 1e6, _max_megabytes())


def clear() -> int:
    """Remove all programs, and the folder if nothing else is in it.

    Returns
    -------
    int
        How many were removed.

    See Also
    --------
    attsvm.cache.contents, attsvm.cache.configure

    Examples
    --------
    >>> import attsvm, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     before = attsvm.cache.contents().folder
    ...     attsvm.cache.configure(folder=folder)
    ...     attsvm.cache.clear()
    ...     attsvm.cache.configure(folder=before)
    0
    """
    removed = [_remove(entry.path) for entry in _entries(_folder())]
    with contextlib.suppress(OSError):
        _folder().rmdir()
    return sum(removed)


def configure(
    *, enabled: bool | None = None, folder: str | os.PathLike[str] | None = None, max_megabytes: float | None = None
) -> None:
    """Change settings of the cache, for this process and for those that it starts later.

    Parameters
    ----------
    enabled : bool, optional
        Whether programs are read and written.
    folder : path, optional
        Where they are. Programs are machine code: use no folder in which people can write whom you do not trust.
    max_megabytes : float, optional
        The largest size of all programs together.

    Raises
    ------
    ProblemError
        If an argument is none of these.

    See Also
    --------
    attsvm.cache.contents, attsvm.cache.clear

    Examples
    --------
    >>> import attsvm
    >>> attsvm.cache.configure(max_megabytes=256)
    """
    if enabled is not None:
        check_flag("enabled", enabled)
        os.environ[ENABLED] = "on" if enabled else "off"
    if folder is not None:
        os.environ[FOLDER] = str(Path(folder).expanduser().absolute())
    if max_megabytes is not None:
        check_number("max_megabytes", max_megabytes, "a number >= 0", lambda x: x >= 0)
        os.environ[MEGABYTES] = repr(float(max_megabytes))


def enabled() -> bool:
    """Whether programs are read and written."""
    setting = os.environ.get(ENABLED, "on")
    if setting not in ("on", "off"):
        raise ProblemError(f"{ENABLED}: expected on or off, got {setting!r}")
    return setting == "on"


def read(name: str) -> bytes | None:
    """The program of this name; None if there is none, or if it cannot be read, is damaged, or others may write it."""
    folder = _folder()
    path = folder / f"{name}{_ENDING}"
    try:
        with path.open("rb") as file:
            if not _trusted(folder) or not _ours(os.fstat(file.fileno())):
                return None
            packed = file.read()
        body = packed[_DIGEST:]
        if hashlib.sha256(body).digest() != packed[:_DIGEST]:
            return None
        program = zlib.decompress(body)
    except (OSError, zlib.error):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the time of the last use
    return program


def write(name: str, program: bytes) -> None:
    """Keep a program, and remove others if they take too much. A failure gives one warning and has no other effect."""
    folder = _folder()
    body = zlib.compress(program, 1)
    room = _max_megabytes() * 1e6 - len(body)
    if room < 0 or folder in _failed:
        return
    path = folder / f"{name}{_ENDING}"
    try:
        if folder in make_folder(folder):
            folder.chmod(0o700)
        elif not _trusted(folder):
            return
        with unfinished(path) as temporary:
            temporary.chmod(0o600)
            temporary.write_bytes(hashlib.sha256(body).digest() + body)
            finish(temporary, path)
    except OSError as error:
        _warn(folder, f"compiled programs cannot be kept: {error}")
        return
    for entry in sorted(_entries(folder), key=lambda entry: entry.used, reverse=True):
        room -= entry.size if entry.path != path else 0
        if room < 0:
            _remove(entry.path)


def _trusted(folder: Path) -> bool:
    """Whether programs of the folder may be run; if not, the user is warned once."""
    trusted = _ours(folder.stat())
    if not trusted:
        _warn(
            folder, f"compiled programs are not kept in {folder}: it must be yours, and closed to others (chmod go-w)"
        )
    return trusted


def _warn(folder: Path, reason: str) -> None:
    """Warn once of a folder that cannot be used."""
    if folder in _failed:
        return
    _failed.add(folder)
    if multiprocessing.parent_process() is None:  # not from every worker process
        warnings.warn(
            f"{reason}. Training works, but compiles again in every process. "
            f"{ENABLED}=off turns this warning off, {FOLDER} names another folder.",
            RuntimeWarning,
            stacklevel=3,
        )


class _Entry(NamedTuple):
    path: Path
    size: int
    used: float


def _entries(folder: Path) -> Iterator[_Entry]:
    """The programs of a folder. Another process may remove them meanwhile."""
    try:
        found = [Path(entry.path) for entry in os.scandir(folder) if _NAME.fullmatch(entry.name)]
    except OSError:
        return
    for path in found:
        with contextlib.suppress(OSError):
            status = path.stat()
            yield _Entry(path, status.st_size, status.st_mtime)


def _ours(status: os.stat_result) -> bool:
    """Whether nobody but the user can have written a file or folder: loading a program runs what is in it."""
    if os.name != "posix":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & _WRITTEN_BY_OTHERS


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _folder() -> Path:
    given = os.environ.get(FOLDER)
    return Path(given).expanduser() if given else user_cache_path("attsvm", appauthor=False) / "programs"


def _max_megabytes() -> float:
    setting = os.environ.get(MEGABYTES, DEFAULT_MEGABYTES)
    try:
        number = float(setting)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise ProblemError(f"{MEGABYTES}: expected a number >= 0, got {setting!r}")
    return number
