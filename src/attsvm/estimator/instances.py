"""How well scores rank the instances of bags, and the instances in the order of their scores."""

from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from attsvm.errors import ProblemError


def instance_auroc(labels: Any, scores: Any, *, mask: Any = None) -> float:
    """Area under the ROC curve of the instances of all bags together.

    Parameters
    ----------
    labels : list of n arrays (T_i,), array (n, T), or array or Series (N,)
        Of each instance: 1 or True if it is positive, otherwise 0.
    scores : in the same form
        As ``instance_scores`` or ``attention`` return them.
    mask : bool or integer array, shape (n, T), optional
        For padded arrays: False or 0 for padding.

    Returns
    -------
    float

    Raises
    ------
    ProblemError
        If the forms do not fit, or all instances have one label.

    See Also
    --------
    attsvm.estimator.instance_average_precision

    Notes
    -----
    The definition is that of :func:`sklearn.metrics.roc_auc_score`.

    Examples
    --------
    >>> from attsvm.estimator import instance_auroc
    >>> instance_auroc([[0, 1], [0, 0, 1]], [[0.1, 0.9], [0.3, 0.2, 0.25]])
    0.8333333333333334
    """
    return float(roc_auc_score(*_flat(labels, scores, mask)))


def instance_average_precision(labels: Any, scores: Any, *, mask: Any = None) -> float:
    """Average precision of the instances of all bags together.

    Parameters
    ----------
    labels, scores, mask
        As for :func:`instance_auroc`.

    Returns
    -------
    float

    Raises
    ------
    ProblemError
        If the forms do not fit, or all instances have one label.

    See Also
    --------
    attsvm.estimator.instance_auroc

    Notes
    -----
    The definition is that of :func:`sklearn.metrics.average_precision_score`.

    Examples
    --------
    >>> from attsvm.estimator import instance_average_precision
    >>> instance_average_precision([[0, 1], [0, 0, 1]], [[0.1, 0.9], [0.3, 0.2, 0.25]])
    0.8333333333333333
    """
    return float(average_precision_score(*_flat(labels, scores, mask)))


def _flat(labels: Any, scores: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    pair = []
    for name, given in (("labels", labels), ("scores", scores)):
        values = _vector(given) if mask is None else np.asarray(given)
        if mask is not None:
            kept = np.asarray(mask)
            if values.shape != kept.shape:
                raise ProblemError(f"{name}: expected shape {kept.shape} as the mask, got {values.shape}")
            values = values[kept.astype(bool)]
        pair.append(values)
    lengths = [[np.size(entry) for entry in given] for given in (labels, scores)]
    if mask is None and len(lengths[0]) == len(lengths[1]) and lengths[0] != lengths[1]:
        bag = next(k for k, (one, other) in enumerate(zip(*lengths, strict=True)) if one != other)
        raise ProblemError(f"scores: expected {lengths[0][bag]} numbers for bag {bag}, got {lengths[1][bag]}")
    if len(pair[0]) != len(pair[1]):
        raise ProblemError(f"scores: expected {len(pair[0])} numbers, one for each label, got {len(pair[1])}")
    truth = pair[0].astype(bool)
    if not np.isin(pair[0], (0, 1)).all() or truth.all() or not truth.any():
        raise ProblemError("labels: expected zeros and ones, with at least one of each")
    return truth, pair[1]


def _vector(given: Any) -> np.ndarray:
    """Numbers of all instances, from a vector, a matrix, or one vector for each bag."""
    entries = list(given)
    if not entries:
        raise ProblemError("labels: expected at least one instance, got none")
    return np.concatenate([np.ravel(entry) for entry in entries])
