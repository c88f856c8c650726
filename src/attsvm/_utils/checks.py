"""Checks of arguments: what is no number, or has no weights or selection, is named before the work begins."""

import math
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from attsvm.errors import ProblemError

Choice = TypeVar("Choice", bound=str)

LARGEST_SEED = 2**32 - 1
"""The largest seed that every generator of random numbers takes."""

MOST_STEPS = 10**15
"""Centuries of steps; the counts of larger numbers would overflow."""


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """The value as an integer; raises ProblemError if it is not one from ``least`` to ``most``."""
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        too_large = number is not None and number >= least
        span = f"from {least} to {most}" if too_large else f">= {least}"
        raise ProblemError(f"{name}: expected an integer {span}, got {_shown(value)}")
    return number


def check_groups(name: str, value: Any, num_heads: int | None = None) -> int:
    """The value as a number of groups of attention heads, all of one size.

    Raises
    ------
    ProblemError
        If it is not a positive integer, or does not divide the number of heads, where that is known.
    """
    number = check_integer(name, value, 1)
    if num_heads is not None and num_heads % number:
        raise ProblemError(f"{name}: expected a divisor of {num_heads} attention heads, got {number}")
    return number


def check_seed(seed: Any, name: str = "seed") -> int:
    """The value as a seed, an integer from 0 to 2^32 − 1; raises ProblemError if it is not one."""
    return check_integer(name, seed, 0, LARGEST_SEED)


def check_number(name: str, value: Any, expected: str, fits: Callable[[float], bool] = lambda number: True) -> float:
    """The value as a finite real number that ``fits`` accepts; ``expected`` says in the message what it has to be.

    Raises ProblemError if it is not one.
    """
    number = as_number(value)
    if not (math.isfinite(number) and fits(number)):
        raise ProblemError(f"{name}: expected {expected}, got {_shown(value)}")
    return number


def check_positive(name: str, value: Any) -> float:
    """The value as a positive finite number; raises ProblemError if it is not one."""
    return check_number(name, value, "a positive number", lambda number: number > 0)


def as_number(value: Any) -> float:
    """A real number or an array without axes as a float; NaN for anything else, booleans and strings included."""
    if isinstance(value, float):  # most are, and the other checks take some microseconds
        return float(value)
    if isinstance(value, bool | np.bool_ | str | bytes | complex | np.complexfloating):
        return math.nan
    try:
        return float(value) if np.ndim(value) == 0 else math.nan
    except (TypeError, ValueError, OverflowError):
        return math.nan


def check_not_masked(name: str, value: Any, expected: str = "real numbers") -> None:
    """Raise ProblemError for an array of NumPy with masked entries, whose mask would be lost."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        number = np.ma.count_masked(value)  # type: ignore[no-untyped-call]
        raise ProblemError(f"{name}: expected {expected}, got {number} masked entries; fill them first")


def as_array(name: str, value: Any, expected: str = "real numbers", kinds: str = "biuf") -> np.ndarray:
    """The value as an array of numbers, of NumPy's ``kinds``; ``expected`` says in the message what it has to be.

    Raises ProblemError if it is not one.
    """
    check_not_masked(name, value, expected)
    try:
        array = np.asarray(without_half(value.detach() if hasattr(value, "detach") else value))
    except (ValueError, TypeError, RuntimeError) as error:
        raise ProblemError(f"{name}: expected {expected}, got {type(value).__name__} ({error})") from None
    if array.dtype.kind not in kinds:
        got = f"entries of type {array.dtype}" if array.ndim else type(value).__name__
        raise ProblemError(f"{name}: expected {expected}, got {got}")
    return array


def as_floats(name: str, value: Any, expected: str = "real numbers") -> np.ndarray:
    """The value as an array of float64; raises ProblemError if it is no array of numbers."""
    return in_float64(name, as_array(name, value, expected))


def without_half(value: Any) -> Any:
    """An array of half precision, float16 or bfloat16, of NumPy, PyTorch or JAX, in float32; anything else as it is."""
    if str(getattr(value, "dtype", None)).removeprefix("torch.") not in ("float16", "bfloat16"):
        return value
    # NumPy does not have bfloat16
    return value.detach().float().numpy() if hasattr(value, "detach") else np.asarray(value).astype(np.float32)


def in_float64(name: str, array: np.ndarray) -> np.ndarray:
    """The array in float64; warns if that rounds some of its integers, which are then beyond 2^53."""
    floats = np.asarray(array, dtype=np.float64)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and np.any(np.abs(floats) >= 2.0**53):
        with np.errstate(invalid="ignore"):  # 2^63 is no int64
            rounded = floats.astype(array.dtype) != array
        if rounded.any():
            # of the whole argument and without a number of it, as a warning of the same words is shown once
            said = "integers beyond 2^53 are rounded to float64; subtract an offset to keep their differences"
            warnings.warn(f"{name.partition('[')[0]}: {said}", RuntimeWarning, stacklevel=4)
    return floats


def weights_of(
    given: Any, name: str = "weights", expected: str = "an array of numbers, a Run or a Solution"
) -> np.ndarray:
    """The ``weights`` or the ``direction`` of a result that has one of them, or an array; in float64.

    Runs have weights; solutions and predictions have a direction. Raises ProblemError if it is neither.
    """
    found = (getattr(given, attribute, None) for attribute in ("weights", "direction"))
    array = next((own for own in found if own is not None), given)
    return _not_empty(name, as_floats(name, array, expected))


def selection_of(given: Any, weights: Any = None) -> np.ndarray:
    """The ``selected`` of a result that has it, or an array of tokens or sets; of the weights, if nothing is given.

    Raises ProblemError if it is neither.
    """
    source = weights if given is None else given
    if getattr(source, "by_sign", False):
        raise ProblemError(
            f"selected: expected a run whose tokens compete for attention, got one with the {source.map} map, which "
            "keeps or drops each token by itself; predict_direction(problem, run).solution is the SVM of its tokens"
        )
    if getattr(source, "keeps_sets", False):
        why = "its head or loss may keep several tokens of a query: predict_direction(problem, run).selected has them"
        raise ProblemError(f"selected: expected tokens, got a run; {why}")
    given = getattr(weights, "selected", None) if given is None else given
    expected = "integers or booleans, such as attsvm.optimal_tokens(problem), or a Run or Solution that has them"
    return _not_empty("selected", as_array("selected", getattr(given, "selected", given), expected, "biu"))


def check_softmax(given: Any, name: str) -> None:
    """Raise ProblemError if the argument is a run whose attention is not a softmax."""
    found = getattr(given, "map", "softmax")
    if isinstance(found, str) and found != "softmax":
        raise ProblemError(f"{name}: expected a run with softmax attention, got one with the {found} map")


def _not_empty(name: str, array: np.ndarray) -> np.ndarray:
    if not array.size:
        raise ProblemError(f"{name}: expected at least one entry, got an empty array of shape {array.shape}")
    return array


def parameters_of(given: Any, name: str = "parameters") -> Mapping[str, Any]:
    """The ``parameters`` of a run, or a dict of arrays; raises ProblemError if it is neither."""
    found = getattr(given, "parameters", given)
    if not isinstance(found, Mapping):
        raise ProblemError(f"{name}: expected a Run or a dict of arrays, got {type(given).__name__}")
    return found


def check_choice(name: str, value: Any, *choices: Choice) -> Choice:
    """The value as one of some words; raises ProblemError if it is none."""
    for choice in choices:
        if value == choice:
            return choice
    *others, last = (f'"{choice}"' for choice in choices)
    raise ProblemError(f"{name}: expected {', '.join(others)} or {last}, got {value!r}")


def check_flag(name: str, value: Any) -> bool:
    """The value as True or False; raises ProblemError if it is neither."""
    if not isinstance(value, bool | np.bool_):
        raise ProblemError(f"{name}: expected True or False, got {_shown(value)}")
    return bool(value)


def check_callback(callback: Any) -> None:
    """Raise ProblemError unless the value can be called, or is None."""
    if callback is not None and not callable(callback):
        raise ProblemError(f"callback: expected a function of an attsvm.Progress, got {_shown(callback)}")


def check_kind(name: str, value: Any, kind: type, instead: str) -> None:
    """Raise ProblemError unless the value is of a class; for an array, say which call ``instead`` makes one."""
    if not isinstance(value, kind):
        shape = np.shape(value) if hasattr(value, "shape") else None
        got = type(value).__name__ if shape is None else f"an array of shape {shape}"
        hint = f": {instead}" if shape is not None or isinstance(value, list) else ""
        raise ProblemError(f"{name}: expected a {kind.__name__}, got {got}{hint}")


def _shown(value: Any) -> str:
    """The value in a few words."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        text = "an integer of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
