"""Unfinished files and folders: hidden beside their target, then moved to it in one step or removed.

A process that is killed leaves them behind. The next process that writes into the same folder removes them: each is
locked by the process that writes it, and the system releases the lock when that process ends.
"""

import contextlib
import ctypes
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, so nothing that another process left is removed
    fcntl = None  # type: ignore[assignment]

ENDING = ".unfinished-attsvm"

_settling = threading.RLock()  # held while a temporary is made, moved or removed
_unfinished: set[Path] = set()
_finished: set[Path] = set()
_tidied: set[Path] = set()
_made: list[Path] = []  # folders, each before its parent


@contextlib.contextmanager
def unfinished(target: str | os.PathLike[str], *, folder: bool = False) -> Iterator[Path]:
    """Make a temporary file or folder beside ``target``, and remove it when the block ends.

    Call :func:`finish` in the block to move it to ``target``. It has the permissions of any new file or folder.
    """
    target = Path(target)
    _remove_leftovers(target.parent)
    with _settling:
        path, lock = _make(target, folder)
        _unfinished.add(path)
    try:
        mask = os.umask(0)
        os.umask(mask)
        path.chmod((0o777 if folder else 0o666) & ~mask)
        yield path
    finally:
        with _settling:
            _remove(path)
            _unfinished.discard(path)
        if lock is not None:
            os.close(lock)


def make_folder(path: Path) -> list[Path]:
    """Make a folder and its missing parents. Those that are empty are removed if the process is interrupted.

    Returns
    -------
    list of Path
        Those that were missing, each before its parent.
    """
    with _settling:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        _made[:0] = missing
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            remove_empty(missing)
            raise
    return missing


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those folders that are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def finish(temporary: Path, target: str | os.PathLike[str]) -> None:
    """Move a temporary to its target, which it replaces. At no moment is there neither the old nor the new one."""
    target = Path(target)
    with _settling:
        if temporary.is_dir() and target.is_dir():
            _exchange(temporary, target)
        else:
            temporary.replace(target)
        _finished.add(target.resolve())


def take_back(temporary: Path, target: str | os.PathLike[str]) -> None:
    """Undo :func:`finish`: the temporary is what it was made for again, and the target what it replaced, or nothing."""
    target = Path(target)
    with _settling:
        if temporary.exists():
            finish(temporary, target)
        else:
            target.replace(temporary)
        _finished.discard(target.resolve())


def is_finished(target: str | os.PathLike[str]) -> bool:
    """Whether this process has completed ``target``."""
    return Path(target).resolve() in _finished


def remove_unfinished(but: Path | None = None) -> None:
    """Remove every temporary, because the process ends now: after this call no other thread makes or moves one.

    The folders of :func:`make_folder` are removed, too, if they are empty.

    Parameters
    ----------
    but : Path, optional
        A temporary folder that stays, without the temporaries in it.
    """
    _settling.acquire(timeout=0.5)
    for path in _unfinished - {but}:
        _remove(path)
    remove_empty(_made)


def _make(target: Path, folder: bool) -> tuple[Path, int | None]:
    prefix = f".{target.name[:100]}."
    while True:
        if folder:
            path = Path(tempfile.mkdtemp(ENDING, prefix, target.parent))
        else:
            descriptor, name = tempfile.mkstemp(ENDING, prefix, target.parent)
            os.close(descriptor)
            path = Path(name)
        lock = _locked(path, wait=True)
        if path.exists():
            return path, lock
        # another process found it before it was locked, and removed it
        if lock is not None:
            os.close(lock)


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporaries in a folder whose process has ended. A process looks into each folder once."""
    if folder in _tidied:
        return
    _tidied.add(folder)
    for path in folder.glob(f".*{ENDING}"):
        lock = _locked(path, wait=False)
        if lock is not None:
            _remove(path)
            os.close(lock)


def _locked(path: Path, wait: bool) -> int | None:
    """A descriptor that holds the lock of a file or folder; None if another process holds it or nothing is locked."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _exchange(new: Path, old: Path) -> None:
    """Exchange two folders, in one step where the system has one."""
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    with contextlib.suppress(AttributeError, OSError):
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        if rename(here, os.fsencode(new), here, os.fsencode(old), exchange) == 0:
            return
    between = new.with_name(f"{new.name}.{os.getpid()}{ENDING}")
    old.rename(between)
    try:
        new.rename(old)
    except OSError:
        between.rename(old)
        raise
    between.rename(new)
