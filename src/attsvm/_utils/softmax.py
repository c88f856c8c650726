"""The softmax over allowed tokens, in NumPy."""

import numpy as np
from jaxtyping import Bool, Float


def softmax(
    logits: Float[np.ndarray, "*shape T"], allowed: Bool[np.ndarray, "*shape T"] | None = None
) -> Float[np.ndarray, "*shape T"]:
    """Probabilities over the last axis.

    Parameters
    ----------
    logits : ndarray, shape (..., T)
    allowed : bool ndarray, shape (..., T), optional
        The entries that take part; all of them by default.

    Returns
    -------
    ndarray, shape (..., T)
        0 where not allowed. A row in which nothing is allowed is zero.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm._utils.softmax import softmax
    >>> softmax(np.array([1.0, 1.0, 5.0]), np.array([True, True, False]))
    array([0.5, 0.5, 0. ])
    """
    if allowed is None:
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))
    logits = np.where(allowed, logits, -np.inf)
    largest = logits.max(axis=-1, keepdims=True)
    exponentials = np.exp(logits - np.where(np.isfinite(largest), largest, 0.0))
    total = exponentials.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(exponentials, total, out=np.zeros_like(exponentials), where=total > 0))
