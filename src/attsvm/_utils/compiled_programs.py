"""JAX's persistent compilation cache, for the commands and the worker processes of attsvm."""

import contextlib
import os
import sys
import warnings
from pathlib import Path

from platformdirs import user_cache_path

FOLDER = "JAX_COMPILATION_CACHE_DIR"
MOST_BYTES = 256_000_000


def keep_programs() -> None:
    """Let JAX keep what this process and those that it starts compile, so that later processes need not compile it.

    The settings are JAX's own and hold for the whole process, so only commands and workers call this. A cache that the
    user has set is used as it is. Where the cache cannot be read or written, JAX compiles, and its warnings are not
    shown.
    """
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    if FOLDER in os.environ:
        return
    folder = user_cache_path("attsvm", appauthor=False) / "programs"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # loading a program runs it: nobody else may write one
        remove_oldest(folder, MOST_BYTES)
    # by default JAX keeps nothing that was compiled in less than a second
    settings = {"jax_compilation_cache_dir": str(folder), "jax_persistent_cache_min_compile_time_secs": 0.0}
    os.environ.update({name.upper(): str(value) for name, value in settings.items()})  # read when JAX is imported
    if "jax" in sys.modules:
        for name, value in settings.items():
            sys.modules["jax"].config.update(name, value)


def remove_oldest(folder: Path, most_bytes: int) -> None:
    """Remove the files that were not used for longest until the others take at most this many bytes.

    JAX's own limit (``jax_compilation_cache_max_size``) reads a file for every program whenever it writes one, which
    takes longer than compiling once there are thousands.
    """
    with os.scandir(folder) as entries:
        files = [
            (max(found.st_atime, found.st_mtime), found.st_size, entry.path)
            for entry in entries
            if entry.is_file()
            for found in [entry.stat()]
        ]
    size = sum(size for _, size, _ in files)
    for _, of_file, path in sorted(files):
        if size <= most_bytes:
            return
        with contextlib.suppress(OSError):  # another process has removed it
            os.remove(path)
        size -= of_file
