"""Finished pieces of work, kept in files and reused only where nothing that made them has changed."""

import hashlib
import json
import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import attsvm
from attsvm.errors import ProblemError
from attsvm.reproduce.figure import Arrays
from attsvm.storage import read_npz, write_npz
from attsvm.training.engine.trials import num_threads

KIND = "piece"
LIBRARIES = ("numpy", "scipy", "jax", "jaxlib", "optax")


class Store:
    """The pieces of one experiment, one file each.

    Parameters
    ----------
    folder : Path
        Made where it is missing.
    progress : callable
        Called as ``progress(name, reused)`` after each piece.
    """

    def __init__(self, folder: Path, progress: Callable[[str, bool], object] | None = None) -> None:
        self.folder, self.progress = folder, progress

    def __call__(self, name: str, function: Callable[..., Arrays], *arguments: Any) -> Arrays:
        """What ``function(*arguments)`` returns: read back where a verified piece has the same origin, else made."""
        path = self.folder / f"{name}.npz"
        origin = _origin(function, arguments)
        found = _verified(path, origin)
        arrays = function(*arguments) if found is None else found
        if found is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_npz(path, KIND, arrays, {"origin": origin, "sha256": _digest(arrays)})
        if self.progress is not None:
            self.progress(name, found is not None)
        return arrays


def _origin(function: Callable[..., Arrays], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Everything that the result depends on: the call, our source, the libraries, the threads and the machine."""
    return {
        "function": f"{function.__module__}.{function.__qualname__}",
        "arguments": json.loads(json.dumps(arguments)),
        "source": source_hash(),
        "versions": {name: version(name) for name in LIBRARIES},
        "threads": num_threads(),
        "machine": platform.machine(),
    }


@cache
def source_hash() -> str:
    """SHA-256 over the package's source files."""
    root = Path(attsvm.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _verified(path: Path, origin: dict[str, Any]) -> Arrays | None:
    """The arrays of a piece with this origin whose file is whole, or None."""
    try:
        arrays, meta = read_npz(path, KIND)
    except ProblemError:
        return None
    if meta.get("origin") != origin or meta.get("sha256") != _digest(arrays):
        return None
    return arrays


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{array.shape}{array.dtype.str}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
