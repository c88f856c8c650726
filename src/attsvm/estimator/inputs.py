"""Read sequences in any of their forms, and return numbers per token in the same form."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from attsvm.datasets.sequences import Sequences
from attsvm.errors import ProblemError


@dataclass(frozen=True)
class Given:
    """Sequences, and how to return numbers per token in the form of the input.

    Attributes
    ----------
    sequences : Sequences
        n sequences of at least one token each.
    restore : callable
        Maps numbers (N,), one per token, to a list of (T_i,) arrays; (n, T) for padded input; (N,) for ``Sequences``.
    positions : callable
        Maps the position of a token in its sequence, (n,), to its position in a padded row.
    """

    sequences: Sequences
    restore: Callable[[np.ndarray], np.ndarray | list[np.ndarray]]
    positions: Callable[[np.ndarray], np.ndarray]


def read(estimator: Any, X: Any, mask: Any = None, *, reset: bool) -> Given:
    """Read sequences, and check that their tokens have as many entries as in the fit.

    Parameters
    ----------
    estimator : BaseEstimator
        With ``reset`` its ``n_features_in_`` is set, otherwise the sequences are compared with it.
    X : list or Series of arrays (T_i, d), Sequences, array (n, T, d), or array or DataFrame (n, d)
    mask : bool array, shape (n, T), optional
        For a padded array (n, T, d): False for padding.
    reset : bool

    Raises
    ------
    ProblemError
        If a sequence is not a finite matrix, has no token, or its tokens have another number of entries.
    """
    if isinstance(X, Sequences):
        _no_mask(mask, "Sequences")
        given = Given(X, np.array, np.array)
    elif isinstance(X, list | tuple) or (getattr(X, "ndim", 0) == 1 and getattr(X, "dtype", None) == np.dtype(object)):
        if not len(X):
            raise ProblemError("X: expected at least one sequence, got none")
        if not _holds_matrices(X):
            return _rows(estimator, X, mask, reset)
        _no_mask(mask, "a list of sequences")
        sequences = Sequences.from_arrays(X)
        given = Given(sequences, lambda flat: np.split(flat, sequences.offsets[1:-1]), np.array)
    elif getattr(X, "ndim", None) == 3:
        given = _padded(np.asarray(X), mask)
    else:
        return _rows(estimator, X, mask, reset)
    sequences = given.sequences
    if not len(sequences):
        raise ProblemError("X: expected at least one sequence, got none")
    if not sequences.dim:
        raise ProblemError("X: expected tokens with at least one entry, got tokens with none")
    if not sequences.lengths.all():
        empty = int(np.argmin(sequences.lengths))
        raise ProblemError(f"X: expected at least one token in each sequence, got none in sequence {empty}")
    if reset:
        estimator.n_features_in_ = sequences.dim
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif sequences.dim != estimator.n_features_in_:
        # the wording of scikit-learn
        raise ProblemError(
            f"X has {sequences.dim} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    return given


def _holds_matrices(X: Any) -> bool:
    try:
        return any(np.ndim(entry) == 2 for entry in X)
    except ValueError:
        raise ProblemError("X: expected a matrix (T_i, d) for each sequence, got tokens of different lengths") from None


def _rows(estimator: Any, X: Any, mask: Any, reset: bool) -> Given:
    """Rows of d numbers as sequences of one token."""
    _no_mask(mask, "sequences of one token")
    try:
        rows = validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32])
    except ValueError:
        _check_numbers(X)
        raise
    sequences = Sequences(rows, np.arange(len(rows)), np.arange(len(rows) + 1))
    return Given(sequences, lambda flat: flat[:, None], np.array)


def _check_numbers(X: Any) -> None:
    """Check that rows hold numbers. Other errors are for scikit-learn to describe."""
    try:
        entries = np.asarray(X)
        if entries.dtype.kind in "OSU":
            entries.astype(np.float64)
    except ValueError as error:
        raise ProblemError(
            f"X: expected a matrix of numbers (T_i, d) for each sequence, or a row of numbers for each sequence of one "
            f"token, got other entries ({error})"
        ) from None


def _padded(tokens: np.ndarray, mask: Any) -> Given:
    mask = np.ones(tokens.shape[:2], dtype=bool) if mask is None else np.asarray(mask)
    try:
        sequences = Sequences.from_padded(tokens, mask)
    except ProblemError as error:
        if tokens.dtype.kind == "f" and mask.shape == tokens.shape[:2] and not np.isfinite(tokens[mask]).all():
            i, t = np.argwhere(mask & ~np.isfinite(tokens).all(axis=2))[0]
            raise ProblemError(
                f"X: expected finite numbers, got NaN or inf at token {t} of sequence {i}; mark padding in mask="
            ) from None
        raise ProblemError(f"X: {error}") from None

    def restore(flat: np.ndarray) -> np.ndarray:
        whole = np.zeros(mask.shape, dtype=flat.dtype)
        whole[mask] = flat
        return whole

    # padding can be anywhere in a row
    places = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)[mask]
    return Given(sequences, restore, lambda at: places[sequences.offsets[:-1] + at])


def _no_mask(mask: Any, found: str) -> None:
    if mask is not None:
        raise ProblemError(f"mask: expected with a padded array of shape (n, T, d) only, got {found}")
