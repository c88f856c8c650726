"""What users call sequences, read into one form, and per-token results given back in the form that came in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from attsvm.datasets.sequences import Sequences
from attsvm.errors import ProblemError


@dataclass(frozen=True)
class Given:
    """Sequences as read, and how per-token numbers look in the form they came in.

    Attributes
    ----------
    sequences : Sequences
        n sequences of at least one token each.
    restore : callable
        Numbers (N,), one a token, to a list of (T_i,) arrays; (n, T) for padded input; (N,) for ``Sequences``.
    positions : callable
        The place of a token in its sequence, (n,), to its place in a padded row.
    """

    sequences: Sequences
    restore: Callable[[np.ndarray], Any]
    positions: Callable[[np.ndarray], np.ndarray]


def read(estimator: Any, X: Any, mask: Any = None, *, reset: bool) -> Given:
    """Read sequences, and see that they are as wide as those fitted.

    Parameters
    ----------
    estimator : BaseEstimator
        Gets ``n_features_in_`` where ``reset``, is compared with it otherwise.
    X : list of arrays (T_i, d), Sequences, array (n, T, d), or array (n, d)
    mask : bool array, shape (n, T), optional
        With a padded array (n, T, d): False for padding.
    reset : bool

    Raises
    ------
    ProblemError
        If a sequence is no finite matrix, has no token, or is not as wide as the others or those fitted.
    """
    if isinstance(X, Sequences):
        _no_mask(mask, "Sequences")
        given = Given(X, np.array, np.array)
    elif isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
        if not len(X):
            raise ProblemError("X: no sequence found, at least one wanted")
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
        raise ProblemError("X: no sequence found, at least one wanted")
    if not sequences.dim:
        raise ProblemError("X: tokens without entries found, at least one wanted")
    if not sequences.lengths.all():
        empty = int(np.argmin(sequences.lengths))
        raise ProblemError(f"X: sequence {empty} has no token; attention needs one to attend to")
    if reset:
        estimator.n_features_in_ = sequences.dim
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif sequences.dim != estimator.n_features_in_:
        # the sentence that scikit-learn uses
        raise ProblemError(
            f"X has {sequences.dim} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    return given


def _holds_matrices(X: Any) -> bool:
    try:
        return any(np.ndim(entry) == 2 for entry in X)
    except ValueError:
        raise ProblemError("X: tokens of different lengths in one sequence found, a matrix (T_i, d) wanted") from None


def _rows(estimator: Any, X: Any, mask: Any, reset: bool) -> Given:
    """Samples of d numbers are sequences of one token."""
    _no_mask(mask, "sequences of one token")
    rows = validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32])
    sequences = Sequences(rows, np.arange(len(rows)), np.arange(len(rows) + 1))
    return Given(sequences, lambda flat: flat[:, None], np.array)


def _padded(tokens: np.ndarray, mask: Any) -> Given:
    mask = np.ones(tokens.shape[:2], dtype=bool) if mask is None else np.asarray(mask)
    try:
        sequences = Sequences.from_padded(tokens, mask)
    except ProblemError as error:
        if tokens.dtype.kind == "f" and mask.shape == tokens.shape[:2] and not np.isfinite(tokens[mask]).all():
            i, t = np.argwhere(mask & ~np.isfinite(tokens).all(axis=2))[0]
            raise ProblemError(f"X: NaN or inf at token {t} of sequence {i}; name padding in mask=") from None
        raise ProblemError(f"X: {error}") from None

    def restore(flat: np.ndarray) -> np.ndarray:
        whole = np.zeros(mask.shape, dtype=flat.dtype)
        whole[mask] = flat
        return whole

    # padding may stand anywhere in a row
    places = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)[mask]
    return Given(sequences, restore, lambda at: places[sequences.offsets[:-1] + at])


def _no_mask(mask: Any, found: str) -> None:
    if mask is not None:
        raise ProblemError(f"mask: given with {found}; it belongs to a padded array of shape (n, T, d)")
