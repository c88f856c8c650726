"""How arrays given to heads are read."""

import numpy as np
import numpy.typing as npt

from attsvm.errors import ProblemError
from attsvm.problem import Problem


def head_of(problem: Problem) -> np.ndarray:
    """Return the head of a problem; raise ProblemError if it has none."""
    if problem.head is None:
        raise ProblemError(
            'problem: expected a prediction head, but it has none; problem.with_head("mean") in Python fits one to the '
            "labels, and its save(path) writes the file for the command line; or use `attsvm fit`, which fits one, too"
        )
    return problem.head


def finite_array(name: str, value: npt.ArrayLike) -> np.ndarray:
    """Return the value as an array of finite numbers; raise ProblemError if it is not one."""
    try:
        array = np.array(value)
        array = array.astype(np.float64, casting="unsafe" if array.dtype.hasobject else "same_kind")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(f"{name}: expected an array of numbers ({error})") from None
    if not np.isfinite(array).all():
        raise ProblemError(f"{name}: expected finite entries")
    return array


def fitted(name: str, value: npt.ArrayLike, batch: tuple[int, ...], core: tuple[int | None, ...]) -> np.ndarray:
    """The array with the batch axes in front, broadcast where it lacks them; None in ``core`` is any length."""
    array = finite_array(name, value)
    lead, last = array.shape[: array.ndim - len(core)], array.shape[array.ndim - len(core) :]
    fits = len(last) == len(core) and all(want in (None, got) for want, got in zip(core, last, strict=True))
    if not fits or lead not in ((), batch) or 0 in array.shape:
        wanted = ", ".join("width" if size is None else str(size) for size in core)
        raise ProblemError(f"{name}: expected shape ({wanted}) after the batch axes {batch} or none, got {array.shape}")
    return array if lead == batch else np.broadcast_to(array, batch + array.shape)
