"""Checks of the arrays of a problem: types, shapes, labels, masks and padding. Each raises a ``ProblemError``."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attsvm._utils.checks import as_array, as_floats, check_groups
from attsvm.errors import ProblemError

Core = tuple[int | None, ...]
"""What follows the batch axes in a shape; None is any size."""


def real(name: str, value: Any, expected: str = "real numbers") -> np.ndarray:
    """Copy a value as float64."""
    return np.array(as_floats(name, value, expected), order="C")


def boolean(name: str, value: Any) -> np.ndarray:
    """A boolean array; entries 0 and 1 count as booleans."""
    array = as_array(name, value)
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise ProblemError(f"{name}: expected booleans, got entries other than 0 and 1")
    return array.astype(bool)


def fit(name: str, array: np.ndarray, batch: tuple[int, ...], cores: Sequence[Core], of: str) -> np.ndarray:
    """Broadcast ``array`` to the batch axes; the shape after them must match one of ``cores``."""

    def matches(shape: tuple[int, ...]) -> bool:
        return 0 not in shape and any(
            len(shape) == len(core) and all(want in (None, got) for got, want in zip(shape, core, strict=True))
            for core in cores
        )

    if array.shape[: len(batch)] == batch and matches(array.shape[len(batch) :]):
        return array
    if matches(array.shape):
        return np.broadcast_to(array, batch + array.shape)
    expected = " or ".join(_shape_in_words(core) for core in cores)
    carried = f", with or without the batch axes {batch} in front" if batch else ""
    raise ProblemError(f"{name}: expected shape {expected}{carried}, to fit {of}, got {array.shape}")


def _shape_in_words(core: Core) -> str:
    sizes = ", ".join("·" if size is None else str(size) for size in core)
    return f"({sizes},)" if len(core) == 1 else f"({sizes})"


def fit_head(
    head: np.ndarray,
    labels: np.ndarray | None,
    active: np.ndarray,
    batch: tuple[int, ...],
    heads: tuple[int, ...],
    d: int,
) -> np.ndarray:
    """Broadcast a head (*heads, d) or (*heads, C, d) to the batch axes."""
    # with one batch axis, (B, d) can be B heads or one head of B classes; the labels decide
    known = np.ones(0) if labels is None else labels[active]
    binary = bool(np.isin(known, (-1, 1)).all())
    of = "".join(f"num_heads = {number} and " for number in heads) + f"tokens of dimension d = {d}"
    single, classes = (*heads, d), (*heads, None, d)
    if not batch or head.ndim != len(classes):
        return fit("head", head, batch, [single, classes], of)
    if not binary and head.shape[0] == batch[0] and np.isin(known, (0, 1)).all():
        raise ProblemError(
            f"head: expected labels -1 and 1 for one head per problem, or shape {(*batch, *head.shape)} for classes, "
            f"got labels 0 and 1 with shape {head.shape}, which can be both"
        )
    return fit("head", head, batch, [single] if binary and head.shape[0] == batch[0] else [classes], of)


def over_heads(array: np.ndarray, batch: tuple[int, ...], heads: tuple[int, ...]) -> np.ndarray:
    """A view of an array (*batch, ...) that all heads share, with their axis behind the batch axes."""
    own = array.shape[len(batch) :]
    return np.broadcast_to(array.reshape(batch + (1,) * len(heads) + own), batch + heads + own)


def of_one_head(arrays: dict[str, np.ndarray], axis: int) -> dict[str, np.ndarray]:
    """Arrays with an axis of heads as the constructor of Problem takes them: only the head has it."""
    first = (slice(None),) * axis + (0,)
    number = np.array(arrays["tokens"].shape[axis])
    return {name: x if name == "head" else x[first] for name, x in arrays.items()} | {"num_heads": number}


def check_key_groups(key_groups: Any, heads: tuple[int, ...], *, has_queries: bool) -> int:
    """Check that keys can be shared by groups of heads."""
    number = check_groups("key_groups", key_groups, *heads)
    if not heads:
        raise ProblemError(f"num_heads: expected the number of attention heads, because key_groups={number} is given")
    if not has_queries:
        raise ProblemError(f"key_groups: expected None for a problem without queries, got {number}")
    return number


def takes_last(index: Any, num_axes: int) -> bool:
    """Whether an index of this many axes replaces the last one by numbers or arrays."""
    parts = index if isinstance(index, tuple) else (index,)
    used = sum(np.ndim(part) if np.asarray(part).dtype == bool else 1 for part in parts)
    return used == num_axes and not isinstance(parts[-1], slice)


def check_labels(labels: np.ndarray, num_classes: int | None) -> None:
    """Check that labels are ±1, or class numbers of a head with ``num_classes`` rows."""
    if num_classes is None and not np.isin(labels, (-1, 1)).all():
        got = ", ".join(f"{label:g}" for label in np.unique(labels)[:5])
        raise ProblemError(
            f"labels: expected -1 and 1, or 0 and 1, got {got} (class numbers need a head of shape (C, d))"
        )
    if num_classes is not None and not (fine := np.isin(labels, np.arange(num_classes))).all():
        expected = f"class numbers 0..{num_classes - 1} of the head"
        raise ProblemError(f"labels: expected {expected}, got {labels[~fine][0]:g}")


def check_finite(name: str, array: np.ndarray) -> None:
    """Check that no entry is NaN or infinite."""
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ProblemError(f"{name}: expected finite numbers, got {array[where]} at {where}")


def tokens_in_use(mask: np.ndarray | None, active: np.ndarray, Q: tuple[int, ...], T: int) -> np.ndarray:
    """Which tokens (*batch, n, T) some query attends to.

    Raises ProblemError if a query in use may attend to no token.
    """
    allowed = np.broadcast_to(True, (*active.shape, T))
    if mask is not None:
        allowed = np.asarray(allowed & (mask[..., None, :] if Q and mask.ndim < allowed.ndim else mask))
    idle = active & ~allowed.any(axis=-1)
    if idle.any():
        where = tuple(int(i) for i in np.argwhere(idle)[0])
        raise ProblemError(f"mask: query {where} may attend to no token; allow one, or exclude the query by query_mask")
    in_use = np.asarray(allowed & active[..., None])
    return np.asarray(in_use.any(axis=-2)) if Q else in_use


def without_padding(array: np.ndarray, in_use: np.ndarray) -> np.ndarray:
    """The array with excluded rows set to zero, so that their content cannot affect any result."""
    return array if in_use.all() else np.where(in_use[..., None], array, 0.0)


def check_lengths(tokens: Any) -> None:
    """Check that the sequences of a list have equally many tokens."""
    if not isinstance(tokens, list | tuple):
        return
    try:
        lengths = {len(sequence) for sequence in tokens}
    except TypeError:  # numbers, which are refused as tokens of a wrong shape
        return
    if len(lengths) > 1:
        raise ProblemError(
            f"tokens: expected sequences of one length, got lengths from {min(lengths)} to {max(lengths)}; "
            "attsvm.Problem.from_sequences pads them"
        )


def rank_of_first(values: Any) -> int:
    """Number of axes of the first entry; 0 if there is none."""
    try:
        first = next(iter(values))
    except (StopIteration, TypeError):
        return 0
    return as_array("entry", first).ndim


def pad(name: str, arrays: Iterable[Any], ndim: int) -> tuple[np.ndarray, np.ndarray]:
    """Stack arrays of different lengths; also return the mask of the entries that are not padding."""
    rows = [real(f"{name}[{i}]", array) for i, array in enumerate(arrays)]
    if not rows:
        raise ProblemError(f"{name}: expected at least one sequence, got none")
    for i, row in enumerate(rows):
        if row.ndim != ndim or 0 in row.shape or row.shape[1:] != rows[0].shape[1:]:
            others = rows[0].shape[1:] if rows[0].ndim == ndim else ["d"] * (ndim - 1)
            expected = f"({', '.join(map(str, ['length', *others]))}{',' * (ndim == 1)})"
            raise ProblemError(f"{name}[{i}]: expected shape {expected} with length >= 1, got {row.shape}")
    longest = max(len(row) for row in rows)
    padded = np.zeros((len(rows), longest, *rows[0].shape[1:]))
    mask = np.zeros((len(rows), longest), dtype=bool)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
        mask[i, : len(row)] = True
    return padded, mask
