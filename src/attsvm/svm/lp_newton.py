r"""Newton's method on a small ℓp Att-SVM, 1.2 ≤ p ≤ 3 or so: every step is one least-distance problem.

Newton's model of (1/p)‖w‖_p^p at w_k, minimised under the same constraints, is the Frobenius Att-SVM in other
coordinates,

    minimise Σ_j h_j (w_j − c_j)²  subject to  Aw ≥ b,

which Lawson and Hanson's non-negative least squares solves exactly, active set and multipliers included; so the steps
end on the exact active set, and the last of them doubles the digits. For p ≥ 2 the curve is taken in w: with
h = |w_k|^{p−2}, c = (p−2)/(p−1) w_k. For p < 2 that has a pole at 0 and Newton's method swings round it; there the
curve is taken in g = A'λ, where w = ψ(g) = sign(g)|g|^{q−1} is smooth: 1/h = (q−1)|g_k|^{q−2}, c = (2−q) ψ(g_k).
Both are safeguarded by a line search, on the primal and on the dual objective.
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls

from attsvm.svm.lp_point import LpPoint


def newton(
    matrix: Float[np.ndarray, "m D"],
    right: Float[np.ndarray, " m"],
    p: float,
    start: Float[np.ndarray, " D"],
    multipliers: Float[np.ndarray, " m"],
    target: float = 1e-13,
    max_steps: int = 20,
) -> LpPoint:
    """Least ‖w‖_p with matrix·w ≥ right.

    Parameters
    ----------
    matrix : ndarray, shape (m, D)
        Rows of about unit norm.
    right : ndarray, shape (m,)
        Not negative, and not all 0.
    p : float
        1 < p < ∞; made for 1.2 ≤ p ≤ 4.
    start, multipliers : ndarrays, shapes (D,), (m,)
        A feasible w, and λ ≥ 0, not 0: the Frobenius solution.
    target : float
        Relative gap to stop at.
    max_steps : int

    Returns
    -------
    LpPoint
        The best iterate; the start, with gap ∞, where no step could be computed.

    References
    ----------
    Lawson and Hanson (1974), *Solving Least Squares Problems*, chapter 23, for least-distance programming.
    """
    q = p / (p - 1)
    asked = right > 0
    weights = start
    best, best_gap, stalled = (start, multipliers), np.inf, 0
    for step in range(1, max_steps + 1):  # noqa: B007 the last one is returned
        # both curves are homogeneous: scaled to ‖w_k‖_p = 1 or ‖g_k‖_q = 1, no power over- or underflows; `goal` is
        # the right side that belongs to that scale
        if p >= 2:
            weights = weights / _norm(weights, p)
            goal = right * np.min((matrix @ weights)[asked] / right[asked])
            # below this an entry adds nothing to the norm, and its coordinate would swallow the others'
            spread = np.maximum(np.abs(weights) ** (p - 2), 1e-10) ** -0.5
            centre = (p - 2) / (p - 1) * weights
        else:
            gradient = multipliers @ matrix
            size = _norm(gradient, q)
            multipliers, gradient = multipliers / size, gradient / size
            goal = right / (right @ multipliers)
            point = np.sign(gradient) * np.abs(gradient) ** (q - 1)
            spread = np.sqrt(np.maximum((q - 1) * np.abs(gradient) ** (q - 2), 1e-10))
            centre = point - spread * spread * gradient
        found = _least_distance(matrix, goal, spread, centre)
        if found is None:
            break
        new_weights, new_multipliers = found
        gap = _gap(matrix, right, p, new_weights, new_multipliers)
        stalled = 0 if gap < 0.5 * best_gap else stalled + (best_gap < 1e-6)
        if gap < best_gap:
            best, best_gap = found, gap
        if gap <= target or stalled == 2:
            break
        if p >= 2:
            change = new_weights - weights
            weights = weights + change * _decrease(weights, change, p, 0.0)
        else:
            turn = new_multipliers - multipliers
            along = turn @ matrix
            # the linear part −b'λ of the dual is the same multiple of the step whatever its length
            multipliers = multipliers + turn * _decrease(gradient, along, q, float(goal @ turn))
    return LpPoint(*best, np.asarray(best_gap), np.asarray(step))


def _least_distance(
    matrix: Float[np.ndarray, "m D"],
    right: Float[np.ndarray, " m"],
    spread: Float[np.ndarray, " D"],
    centre: Float[np.ndarray, " D"],
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " m"]] | None:
    """The w of least Σ ((w − centre)/spread)² with matrix·w ≥ right, and its multipliers."""
    m, dim = matrix.shape
    system = np.empty((dim + 1, m))
    np.multiply(matrix.T, spread[:, None], out=system[:dim])
    system[dim] = right - matrix @ centre
    target = np.zeros(dim + 1)
    target[dim] = 1.0
    try:
        multipliers, _ = nnls(system, target)
    except RuntimeError:  # its own limit of steps
        return None
    residual = system @ multipliers - target
    if not residual[dim] < -1e-14:
        return None
    return centre - spread * residual[:dim] / residual[dim], multipliers / -residual[dim]


def _decrease(x: np.ndarray, change: np.ndarray, exponent: float, linear: float) -> float:
    """A step t ≤ 1 along which (1/r)‖x + t·change‖_r^r − t·linear falls as it should."""
    value = np.sum(np.abs(x) ** exponent) / exponent
    slope = np.sum(np.sign(x) * np.abs(x) ** (exponent - 1) * change) - linear
    length = 1.0
    while length > 1e-6:
        new = np.sum(np.abs(x + length * change) ** exponent) / exponent - length * linear
        if new <= value + 1e-4 * length * slope + 1e-15:
            break
        length /= 2
    return length


def _gap(matrix: np.ndarray, right: np.ndarray, p: float, weights: np.ndarray, multipliers: np.ndarray) -> float:
    """As :func:`attsvm.svm.lp_point.relative_gap`, for one problem without equalities."""
    image, asked = matrix @ weights, right > 0
    value = _norm(weights, p) / np.min(image[asked] / right[asked])
    if not value > 0:
        return np.inf
    bound = right @ multipliers / _norm(multipliers @ matrix, p / (p - 1))
    broken = max(-np.min(image[~asked], initial=0.0), 0.0) / np.linalg.norm(weights)
    gap = abs(value - bound) / value + broken
    return gap if np.isfinite(gap) else np.inf


def _norm(x: np.ndarray, p: float) -> float:
    largest = max(np.max(np.abs(x)), np.finfo(float).tiny)
    return largest * np.sum(np.abs(x / largest) ** p) ** (1 / p)
