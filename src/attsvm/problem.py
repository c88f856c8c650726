"""Tokens, queries, labels, head and masks, and every check on what a user passes."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attsvm.errors import ProblemError
from attsvm.results import check_index
from attsvm.storage import read_npz, write_npz

ARRAY_NAMES = ("tokens", "labels", "queries", "head", "keys", "mask", "query_mask")


class Canonical(NamedTuple):
    """A problem with every axis spelled out: prompts are one query of one dimension, equal to 1."""

    keys: Float[np.ndarray, "*batch n T d_k"]
    queries: Float[np.ndarray, "*batch n Q d_q"]
    allowed: Bool[np.ndarray, "*batch n Q T"]
    active: Bool[np.ndarray, "*batch n Q"]


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Problem:
    """n sequences of T tokens, with what attention over them needs.

    Arrays may come from NumPy, JAX, torch (CPU) or nested lists; they are copied to float64. The batch axes are the
    first ``tokens.ndim - 3``; every other array carries exactly those axes or none of them, in which case it is
    shared by all. Where a shape allows both readings it is read as carrying them.

    Parameters
    ----------
    tokens : array, shape (*batch, n, T, d)
        Pad ragged sequences and say so in ``mask``, or use :meth:`from_sequences`.
    labels : array, shape (*batch, n) or (*batch, n, Q), optional
        ±1; with a ``head`` of shape (C, d), class numbers 0..C-1.
    queries : array, shape (*batch, n, d_q) or (*batch, n, Q, d_q), optional
        One query a sequence, or Q that share its tokens. None makes it a problem for prompt attention.
    head : array, shape (*batch, d) or (*batch, C, d), optional
        The linear head v.
    keys : array, shape (*batch, n, T, d_k), optional
        Replace the tokens in the logits and constraints, not in what is pooled and scored.
    mask : bool array, shape (*batch, n, T) or (*batch, n, Q, T), optional
        What may be attended to. A padded token is never selected, never a constraint, never scored.
    query_mask : bool array, shape (*batch, n, Q), optional
        False for padded queries: no constraint, loss, score or selection.

    Raises
    ------
    ProblemError
        If shapes do not fit each other, an entry in use is not finite, a label is none of those above, or a query
        in use may attend to no token.

    Notes
    -----
    Stored arrays are read-only and carry the batch axes (as views without copies where they are shared); labels carry
    the Q axis where there is one. What the masks exclude is stored as zero.
    """

    tokens: Float[np.ndarray, "*batch n T d"]
    labels: Float[np.ndarray, "*queries"] | None
    queries: Float[np.ndarray, "*queries d_q"] | None
    head: Float[np.ndarray, "*heads d"] | None
    keys: Float[np.ndarray, "*batch n T d_k"] | None
    mask: Bool[np.ndarray, "*queries T"] | None
    query_mask: Bool[np.ndarray, "*batch n Q"] | None

    def __init__(
        self,
        tokens: Any,
        labels: Any = None,
        queries: Any = None,
        head: Any = None,
        keys: Any = None,
        mask: Any = None,
        query_mask: Any = None,
    ) -> None:
        tokens = _real("tokens", tokens)
        if tokens.ndim < 3 or 0 in tokens.shape:
            raise ProblemError(f"tokens: shape {tokens.shape} found, (*batch, n, T, d) without empty axes wanted")
        batch, (n, T, d) = tokens.shape[:-3], tokens.shape[-3:]
        of_tokens = f"tokens of shape {tokens.shape}"

        Q: tuple[int, ...] = ()
        if queries is not None:
            queries = _fit("queries", _real("queries", queries), batch, [(n, None), (n, None, None)], of_tokens)
            Q = queries.shape[len(batch) + 1 : -1]
        if keys is not None:
            keys = _fit("keys", _real("keys", keys), batch, [(n, T, None)], of_tokens)
        if mask is not None:
            shapes: list[_Core] = [(n, T), (n, *Q, T)] if Q else [(n, T)]
            mask = _fit("mask", _boolean("mask", mask), batch, shapes, of_tokens)
        if query_mask is not None:
            if not Q:
                raise ProblemError("query_mask: given for a problem without a query axis; wanted queries (n, Q, d_q)")
            query_mask = _fit("query_mask", _boolean("query_mask", query_mask), batch, [(n, *Q)], f"Q = {Q[0]} queries")

        active = np.ones((*batch, n, *Q), dtype=bool) if query_mask is None else query_mask
        if mask is not None or query_mask is not None:
            in_use = _tokens_in_use(mask, active, Q, T)
            tokens = _without_padding(tokens, in_use)
            keys = None if keys is None else _without_padding(keys, in_use)
            queries = None if queries is None else _without_padding(queries, active)
        for name, array in (("tokens", tokens), ("keys", keys), ("queries", queries)):
            if array is not None:
                _check_finite(name, array)

        if labels is not None:
            labels = _real("labels", labels)
            label_shapes: list[_Core] = [(n,), (n, *Q)] if Q else [(n,)]
            labels = _fit("labels", labels, batch, label_shapes, of_tokens)
            if labels.ndim < active.ndim:
                labels = labels[..., None]
            labels = np.where(active, np.broadcast_to(labels, active.shape), 0.0)
        if head is not None:
            head = _fit_head(_real("head", head), labels, active, batch, d)
            _check_finite("head", head)
        if labels is not None:
            _check_labels(labels[active], None if head is None or head.ndim == len(batch) + 1 else head.shape[-2])

        for name, array in zip(ARRAY_NAMES, (tokens, labels, queries, head, keys, mask, query_mask), strict=True):
            if array is not None:
                array = array.view()
                array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes, one problem each."""
        return self.tokens.shape[:-3]

    @property
    def num_sequences(self) -> int:
        """Number of sequences, n."""
        return self.tokens.shape[-3]

    @property
    def num_tokens(self) -> int:
        """Tokens a sequence, padding included, T."""
        return self.tokens.shape[-2]

    @property
    def dim(self) -> int:
        """Dimension of a token, d."""
        return self.tokens.shape[-1]

    @property
    def key_dim(self) -> int:
        """Rows of W: d_k where keys are given, else d."""
        return self.dim if self.keys is None else self.keys.shape[-1]

    @property
    def query_dim(self) -> int:
        """Columns of W: d_q; 1 for a prompt."""
        return 1 if self.queries is None else self.queries.shape[-1]

    @property
    def has_queries(self) -> bool:
        """Whether attention is by W (True) or by a prompt."""
        return self.queries is not None

    @property
    def has_query_axis(self) -> bool:
        """Whether several queries share each sequence."""
        return self.queries is not None and self.queries.ndim == self.tokens.ndim

    @property
    def query_shape(self) -> tuple[int, ...]:
        """Shape (*batch, n[, Q]): one entry a query, the shape of a selection."""
        return self.tokens.shape[:-2] if self.queries is None else self.queries.shape[:-1]

    @property
    def num_classes(self) -> int | None:
        """C of a head (C, d); None for labels ±1."""
        return None if self.head is None or self.head.ndim == self.tokens.ndim - 2 else self.head.shape[-2]

    @cached_property
    def canonical(self) -> Canonical:
        """Keys, queries and masks with every axis spelled out; what solvers and training work on."""
        lead = self.tokens.shape[:-2]
        if self.queries is None:
            queries = np.broadcast_to(1.0, (*lead, 1, 1))
        else:
            queries = self.queries if self.has_query_axis else self.queries[..., None, :]
        shape = (*queries.shape[:-1], self.num_tokens)
        active = np.ones(shape[:-1], dtype=bool) if self.query_mask is None else self.query_mask
        allowed = np.ones(shape, dtype=bool)
        if self.query_mask is not None:
            allowed &= active[..., None]
        if self.mask is not None:
            allowed = allowed & (self.mask if self.mask.ndim == len(shape) else self.mask[..., None, :])
        return Canonical(self.tokens if self.keys is None else self.keys, queries, allowed, active)

    @property
    def data_hash(self) -> str:
        """SHA-256 over names, shapes and contents of the arrays."""
        digest = hashlib.sha256()
        for name, array in self._arrays().items():
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @classmethod
    def from_sequences(
        cls,
        tokens: Iterable[Any],
        labels: Any = None,
        queries: Any = None,
        head: Any = None,
        keys: Iterable[Any] | None = None,
    ) -> "Problem":
        """Pad sequences of different lengths into one problem.

        Parameters
        ----------
        tokens : iterable of n arrays, shapes (T_i, d)
        labels : array (n,), or list of n arrays (Q_i,), optional
        queries : array (n, d_q), or list of n arrays, each (d_q,) or (Q_i, d_q), optional
        head : array (d,) or (C, d), optional
        keys : iterable of n arrays, shapes (T_i, d_k), optional

        Returns
        -------
        Problem
            With a ``mask`` where the lengths differ, and a ``query_mask`` where the numbers of queries do.

        Raises
        ------
        ProblemError
            If a sequence has no token, or the arrays do not fit each other.
        """
        padded, mask = _pad("tokens", tokens, 2)
        if keys is not None:
            keys, key_mask = _pad("keys", keys, 2)
            if key_mask.shape != mask.shape or (key_mask != mask).any():
                raise ProblemError("keys: their numbers differ from those of the tokens; one key a token wanted")
        query_mask = None
        if queries is not None and _rank_of_first(queries) == 2:
            queries, query_mask = _pad("queries", queries, 2)
            if labels is not None and _rank_of_first(labels) == 1:
                labels, label_mask = _pad("labels", labels, 1)
                if label_mask.shape != query_mask.shape or (label_mask != query_mask).any():
                    raise ProblemError("labels: their numbers differ from those of the queries; one a query wanted")
            query_mask = None if query_mask.all() else query_mask
        return cls(padded, labels, queries, head, keys, None if mask.all() else mask, query_mask)

    @classmethod
    def from_attention(cls, q: Any, k: Any, mask: Any = None) -> "Problem":
        """The problem of an attention layer whose logits are k_it'q_i: the question is which W beats W = I.

        Parameters
        ----------
        q : array, shape (*batch, n, d_h) or (*batch, n, Q, d_h)
            Projected queries.
        k : array, shape (*batch, n, T, d_h)
            Projected keys.
        mask : bool array, shape (*batch, n, T) or (*batch, n, Q, T), optional
            What may be attended to.

        Returns
        -------
        Problem
            Without labels and head.

        Raises
        ------
        ProblemError
            If the shapes do not fit.
        """
        k, q = _real("k", k), _real("q", q)
        if q.ndim and k.ndim and q.shape[-1] != k.shape[-1]:
            raise ProblemError(f"q: shape {q.shape} does not fit k of shape {k.shape}: the last axes must be equal")
        return cls(k, queries=q, mask=mask)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to an ``.npz`` file whose names are the arguments of Problem."""
        write_npz(path, "problem", self._arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Problem":
        """Read a problem file: any ``.npz`` whose names are arguments of Problem.

        Raises
        ------
        ProblemError
            If the file cannot be read, lacks tokens, holds other names, or its arrays do not make a problem.
        """
        arrays, _ = read_npz(path, "problem")
        unknown = sorted(set(arrays) - set(ARRAY_NAMES))
        if unknown:
            raise ProblemError(f"{path}: unknown array {unknown[0]!r}; known are {', '.join(ARRAY_NAMES)}")
        if "tokens" not in arrays:
            raise ProblemError(f"{path}: has no array 'tokens'")
        return cls(**arrays)

    def __getitem__(self, index: Any) -> "Problem":
        """The problem or problems at ``index`` of the batch axes."""
        check_index(index, self.batch_shape, "problem")
        return Problem(**{name: array[index] for name, array in self._arrays().items()})

    def __repr__(self) -> str:
        batch = f"{' × '.join(map(str, self.batch_shape))} problems of " if self.batch_shape else ""
        parts = [f"{batch}{self.num_sequences} sequences × {self.num_tokens} tokens, d = {self.dim}"]
        if self.keys is not None:
            parts.append(f"keys of dimension {self.key_dim}")
        if self.has_queries:
            number = f"{self.query_shape[-1]} queries a sequence" if self.has_query_axis else "one query a sequence"
            parts.append(f"{number}, d_q = {self.query_dim}")
        else:
            parts.append("prompt")
        if self.labels is not None:
            parts.append("labels ±1" if self.num_classes is None else f"labels 0..{self.num_classes - 1}")
        if self.head is not None:
            parts.append("head" if self.num_classes is None else f"head of {self.num_classes} classes")
        if self.mask is not None:
            parts.append(f"{self.canonical.allowed.mean():.0%} of the tokens allowed")
        if self.query_mask is not None:
            parts.append(f"{self.query_mask.mean():.0%} of the queries active")
        return f"Problem({'; '.join(parts)})"

    def _arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in ARRAY_NAMES if getattr(self, name) is not None}


_Core = tuple[int | None, ...]


def _asarray(name: str, value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach()
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ProblemError(f"{name}: not an array ({error})") from None
    if array.dtype.kind not in "biuf":
        if array.dtype.name != "bfloat16":
            raise ProblemError(f"{name}: entries of type {array.dtype} found, real numbers wanted")
        array = array.astype(np.float32)
    return array


def _real(name: str, value: Any) -> np.ndarray:
    """A float64 copy."""
    return np.array(_asarray(name, value), dtype=np.float64, order="C")


def _boolean(name: str, value: Any) -> np.ndarray:
    array = _asarray(name, value)
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise ProblemError(f"{name}: entries other than 0 and 1 found, booleans wanted")
    return array.astype(bool)


def _fit(name: str, array: np.ndarray, batch: tuple[int, ...], cores: Sequence[_Core], of: str) -> np.ndarray:
    """Broadcast ``array`` to carry the batch axes; what follows them must match one of ``cores`` (None is any size)."""

    def matches(shape: tuple[int, ...]) -> bool:
        return 0 not in shape and any(
            len(shape) == len(core) and all(want in (None, got) for got, want in zip(shape, core, strict=True))
            for core in cores
        )

    if array.shape[: len(batch)] == batch and matches(array.shape[len(batch) :]):
        return array
    if matches(array.shape):
        return np.broadcast_to(array, batch + array.shape)
    wanted = " or ".join(_shape_in_words(core) for core in cores)
    carried = f", after the batch axes {batch} or none" if batch else ""
    raise ProblemError(f"{name}: shape {array.shape} does not fit {of}: wanted {wanted}{carried}")


def _shape_in_words(core: _Core) -> str:
    sizes = ", ".join("·" if size is None else str(size) for size in core)
    return f"({sizes},)" if len(core) == 1 else f"({sizes})"


def _fit_head(
    head: np.ndarray, labels: np.ndarray | None, active: np.ndarray, batch: tuple[int, ...], d: int
) -> np.ndarray:
    # with one batch axis (B, d) could be B heads or one head of B classes: the labels tell
    binary = labels is None or bool(np.isin(labels[active], (-1, 1)).all())
    of = f"tokens of dimension d = {d}"
    if not batch or head.ndim != 2:
        return _fit("head", head, batch, [(d,), (None, d)], of)
    return _fit("head", head, batch, [(d,)] if binary and head.shape[0] == batch[0] else [(None, d)], of)


def _check_labels(labels: np.ndarray, num_classes: int | None) -> None:
    fine = np.isin(labels, (-1, 1)) if num_classes is None else np.isin(labels, np.arange(num_classes))
    if not fine.all():
        wanted = "-1 or 1" if num_classes is None else f"a class number 0..{num_classes - 1}, as the head has"
        hint = "; class numbers need a head of shape (C, d)" if num_classes is None else ""
        raise ProblemError(f"labels: {labels[~fine][0]:g} found, {wanted} wanted{hint}")


def _check_finite(name: str, array: np.ndarray) -> None:
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ProblemError(f"{name}: {array[where]} found at {where}, finite numbers wanted")


def _tokens_in_use(mask: np.ndarray | None, active: np.ndarray, Q: tuple[int, ...], T: int) -> np.ndarray:
    """Which tokens (*batch, n, T) some query attends to, if none in use is left without."""
    allowed = np.broadcast_to(True, (*active.shape, T))
    if mask is not None:
        allowed = np.asarray(allowed & (mask[..., None, :] if Q and mask.ndim < allowed.ndim else mask))
    idle = active & ~allowed.any(axis=-1)
    if idle.any():
        where = tuple(int(i) for i in np.argwhere(idle)[0])
        raise ProblemError(f"mask: query {where} may attend to no token; allow one or exclude it by query_mask")
    in_use = np.asarray(allowed & active[..., None])
    return np.asarray(in_use.any(axis=-2)) if Q else in_use


def _without_padding(array: np.ndarray, in_use: np.ndarray) -> np.ndarray:
    """The array with excluded rows set to zero, so that nothing that stands there can leak."""
    return array if in_use.all() else np.where(in_use[..., None], array, 0.0)


def _rank_of_first(values: Any) -> int:
    try:
        first = next(iter(values))
    except (StopIteration, TypeError):
        return 0
    return _asarray("entry", first).ndim


def _pad(name: str, arrays: Iterable[Any], ndim: int) -> tuple[np.ndarray, np.ndarray]:
    """Stack arrays of different lengths; also the mask of what is there."""
    rows = [_real(f"{name}[{i}]", array) for i, array in enumerate(arrays)]
    if not rows:
        raise ProblemError(f"{name}: no sequence found, at least one wanted")
    for i, row in enumerate(rows):
        if row.ndim != ndim or 0 in row.shape or row.shape[1:] != rows[0].shape[1:]:
            wanted = "(length, " + ", ".join(map(str, rows[0].shape[1:])) + ")"
            raise ProblemError(f"{name}[{i}]: shape {row.shape} found, {wanted} with length at least 1 wanted")
    longest = max(len(row) for row in rows)
    padded = np.zeros((len(rows), longest, *rows[0].shape[1:]))
    mask = np.zeros((len(rows), longest), dtype=bool)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
        mask[i, : len(row)] = True
    return padded, mask
