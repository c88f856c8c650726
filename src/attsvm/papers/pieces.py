"""Finished pieces of work, kept in files and reused only if nothing that they depend on has changed."""

import inspect
import json
import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from attsvm._utils.archives import read_npz, write_npz
from attsvm._utils.jax_devices import default_device
from attsvm._utils.threads import num_threads, threads_for
from attsvm.errors import ProblemError
from attsvm.papers.figure import Arrays

KIND = "piece"
LIBRARIES = ("numpy", "scipy", "jax", "jaxlib", "optax")


class PieceStore:
    """The pieces of one figure, one file each.

    ``progress``: called as ``progress(name, reused)`` after each piece. ``of``: the class of the figure. Its source and
    that of its base classes count as source of every piece.
    """

    def __init__(
        self, folder: Path, progress: Callable[[str, bool], object] | None = None, *, of: type = object
    ) -> None:
        self.folder, self.progress, self.of = folder, progress, of

    def __call__(self, name: str, function: Callable[..., Arrays], *arguments: Any) -> Arrays:
        """Return ``function(*arguments)``, read from a file of the same origin if there is one."""
        path = self.folder / f"{name}.npz"
        origin = _origin(function, arguments, self.of)
        found = _verified(path, origin)
        if found is not None:
            arrays = found
        else:
            with threads_for(0):  # the products of a figure are small
                arrays = function(*arguments)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_npz(path, KIND, arrays, {"origin": origin, "hash": _digest(arrays)})
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
    """A hash of the files outside the package in which functions and classes are defined.

    It is None, which equals no earlier hash, if one of them is not defined in a file.
    """
    outside = [one for one in defined if one.__module__.partition(".")[0] not in ("attsvm", "abc")]
    try:
        return _hash([path.read_bytes() for path in sorted({Path(inspect.getfile(one)) for one in outside})])
    except (OSError, TypeError):
        return None


@cache
def source_hash() -> str:
    """A hash of the source files of attsvm."""
    root = Path(__file__).parents[1]
    return _hash({str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.py")})


def _verified(path: Path, origin: dict[str, Any]) -> Arrays | None:
    """The arrays of a piece with this origin whose file is intact, or None."""
    if origin["own_source"] is None:
        return None
    try:
        arrays, meta = read_npz(path, KIND)
    except ProblemError:
        return None
    if meta.get("origin") != origin or meta.get("hash") != _digest(arrays):
        return None
    return arrays


def _digest(arrays: Arrays) -> str:
    # what is read from a file may have another layout
    return _hash({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def _hash(value: Any) -> str:
    return str(joblib.hash(value, hash_name="sha1"))
