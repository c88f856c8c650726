"""ℓp norms, and the estimate of the gap that the ℓp methods use."""

import numpy as np
from jaxtyping import Bool, Float

from attsvm.svm.constraints.row_products import Vector
from attsvm.svm.constraints.unit_rows import RowVector


def lp_norm(x: Vector, p: float) -> Float[np.ndarray, "N 1"]:
    """ℓp norms along the last axis, which is kept, without overflow."""
    largest = np.maximum(np.max(np.abs(x), axis=-1, keepdims=True), np.finfo(float).tiny)
    if np.isinf(p):
        return np.asarray(largest)
    return np.asarray(largest * np.sum(np.abs(x / largest) ** p, axis=-1, keepdims=True) ** (1 / p))


def dual_exponent(p: float) -> float:
    """The exponent q of the dual norm, 1/p + 1/q = 1."""
    return np.inf if p == 1 else 1.0 if np.isinf(p) else p / (p - 1)


def relative_gap(
    right: RowVector,
    equality: Bool[np.ndarray, "N m"],
    p: float,
    weights: Vector,
    multipliers: RowVector,
    image: RowVector,
    gradient: Vector,
) -> Float[np.ndarray, " N"]:
    """Relative gap after scaling, plus the violations that scaling cannot repair; ∞ while a margin is not positive.

    ``right``, ``equality``: shape (N, m), of unit rows A. ``weights``, ``multipliers``: shapes (N, D), (N, m), the
    multipliers of inequalities are not negative. ``image``, ``gradient``: shapes (N, m), (N, D), aw and A'λ.
    """
    with np.errstate(all="ignore"):
        asked = right > 0
        margin = np.min(np.where(asked, image / right, np.inf), axis=-1, keepdims=True)
        value = lp_norm(weights, p) / margin
        bound = np.vecdot(right * asked, multipliers)[..., None] / lp_norm(gradient, dual_exponent(p))
        error = np.abs(value - bound) / value
        rigid = right == 0
        if rigid.any():
            lacking = np.where(equality, np.abs(image), np.maximum(-image, 0)) * rigid
            error += np.max(lacking, axis=-1, keepdims=True) / np.sqrt(np.vecdot(weights, weights))[..., None]
        error = np.where(margin > 0, error, np.inf)
    return np.where(np.isfinite(error), error, np.inf)[..., 0]
