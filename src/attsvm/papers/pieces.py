"""Finished pieces of work, kept in files and reused only if nothing that they depend on has changed."""

import hashlib
import inspect
import json
import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from attsvm._utils.archives import read_npz, write_npz
from attsvm._utils.jax_devices import default_device
from attsvm.errors import ProblemError
from attsvm.papers.figure import Arrays
from attsvm.svm.threads import threads_for
from attsvm.training.trials import num_threads

KIND = "piece"
LIBRARIES = ("numpy", "scipy", "jax", "jaxlib", "optax")


class Store:
    """The pieces of one figure, one file each.

    ``progress``: called as ``progress(name, reused)`` after each piece. ``of``: the class of the figure. Its source and
    that of its base classes count as source of every piece.
    """

    def __init__(
        self, folder: Path, progress: Callable[[str, bool], object] | None = None, *, of: type = object
    ) -> None:
        self.folder, self.progress, self.of = folder, progress, of

    def __call__(self, name: str, function: Callable[..., Arrays], *arguments: Any) -> Arrays:
        """What ``function(*arguments)`` returns, read from a file of the same origin if there is one."""
        path = self.folder / f"{name}.npz"
        origin = _origin(function, arguments, self.of)
        found = _verified(path, origin)
        if found is not None:
            arrays = found
        else:
            with threads_for(0):  # the products of a figure are small
                arrays = function(*arguments)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_npz(path, KIND, arrays, {"origin": origin, "sha256": _digest(arrays)})
        if self.progress is not None:
            self.progress(name, found is not None)
        return arrays


def _origin(function: Callable[..., Arrays], arguments: tuple[Any, ...], of: type) -> dict[str, Any]:
    """Everything that a piece depends on: the call, the source, the libraries, the threads, the machine, the device."""
    return {
        "function": f"{function.__module__}.{function.__qualname__}",
        "arguments": json.loads(json.dumps(arguments)),
        "source": source_hash(),
        "own_source": own_source_hash(function, *of.__mro__[:-1]),
        "versions": {name: version(name) for name in LIBRARIES},
        "threads": num_threads(),
        "machine": platform.machine(),
        "device": default_device().device_kind,
    }


def own_source_hash(*defined: Any) -> str | None:
    """SHA-256 over the files outside the package in which functions and classes are defined.

    It is None, which equals no earlier hash, if one of them is not defined in a file.
    """
    outside = [one for one in defined if one.__module__.partition(".")[0] not in ("attsvm", "abc")]
    try:
        files = sorted({Path(inspect.getfile(one)) for one in outside})
        contents = [path.read_bytes() for path in files]
    except (OSError, TypeError):
        return None
    digest = hashlib.sha256()
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


@cache
def source_hash() -> str:
    """SHA-256 over the source files of attsvm."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _verified(path: Path, origin: dict[str, Any]) -> Arrays | None:
    """The arrays of a piece with this origin whose file is intact, or None."""
    if origin["own_source"] is None:
        return None
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
