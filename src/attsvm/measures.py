"""How close two directions are, and the margin by which weights separate a selection."""

from typing import Any

import numpy as np
from jaxtyping import Float

from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.problem import Problem
from attsvm.results import plain
from attsvm.selection import selection_sets
from attsvm.softmax import softmax

Axis = int | tuple[int, ...] | None


def correlation(a: Any, b: Any, axis: Axis = None) -> np.ndarray | float:
    """Cosine of the angle between two arrays, ⟨a, b⟩/(‖a‖‖b‖).

    Parameters
    ----------
    a, b : array
        Of equal shape; with ``axis``, of shapes that broadcast against each other.
    axis : int or tuple of int, optional
        The axes of one direction: ``(-2, -1)`` compares matrices along leading axes. None takes all axes.

    Returns
    -------
    float or ndarray
        In [-1, 1]; 0 where an array is zero, which has no direction.

    Raises
    ------
    ProblemError
        If the shapes do not fit or an entry is not finite.
    """
    unit_a, unit_b, axis = _unit_pair(a, b, axis)
    return plain(np.clip(np.sum(unit_a * unit_b, axis=axis), -1.0, 1.0))


def direction_error(a: Any, b: Any, axis: Axis = None) -> np.ndarray | float:
    """1 − correlation, as half the squared distance of the unit vectors.

    That form keeps its digits where 1 − correlation has none left: its rounding error is of the order of
    eps·sqrt(error), below 1e-16 for every error below 1e-2.

    Parameters, errors and the treatment of zero arrays (error 1) as :func:`correlation`.

    Returns
    -------
    float or ndarray
        In [0, 2].
    """
    unit_a, unit_b, axis = _unit_pair(a, b, axis)
    difference = unit_a - unit_b
    no_direction = ~(unit_a.any(axis=axis) & unit_b.any(axis=axis))
    return plain(np.where(no_direction, 1.0, np.minimum(0.5 * np.sum(difference * difference, axis=axis), 2.0)))


def in_cone(weights: Any, direction: Any, epsilon: float, radius: float = 0.0, axis: Axis = None) -> np.ndarray | bool:
    """Whether weights lie in the cone around a direction, at least a radius away from zero.

    {W : ⟨W, D⟩ ≥ (1 − ε) ‖W‖ ‖D‖, ‖W‖ ≥ R}: where gradient descent is known to stay once it is there, if D is locally
    optimal, ε small and R large enough.

    Parameters
    ----------
    weights, direction : array
        As ``a`` and ``b`` of :func:`direction_error`.
    epsilon : float
        0 ≤ ε ≤ 2; 0 is the ray itself.
    radius : float
        R ≥ 0, in the Frobenius (ℓ2) norm.
    axis : int or tuple of int, optional
        The axes of one direction; None takes all.

    Returns
    -------
    bool or bool ndarray
        False for zero weights, which have no direction.

    Raises
    ------
    ProblemError
        If shapes do not fit, an entry is not finite, or a number is out of range.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Tarzanagh, Li,
    Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: the cones of the local theorems.
    """
    if not 0 <= epsilon <= 2:
        raise ProblemError(f"epsilon: {epsilon!r} found, a number from 0 to 2 wanted")
    if not radius >= 0:
        raise ProblemError(f"radius: {radius!r} found, a number of at least 0 wanted")
    error = np.asarray(direction_error(weights, direction, axis))
    array = np.asarray(weights, dtype=np.float64)
    over = tuple(range(-array.ndim, 0)) if axis is None else axis
    largest = np.max(np.abs(array), axis=over, keepdims=True)
    relative = np.sqrt(np.sum((array / np.where(largest > 0, largest, 1.0)) ** 2, axis=over))
    length = largest.reshape(relative.shape) * relative
    inside = (error <= epsilon) & (length >= radius) & (length > 0)
    return plain(inside)


def bregman_divergence(a: Any, b: Any, p: float, axis: Axis = None) -> np.ndarray | float:
    """Directional Bregman divergence D_ψ(a/‖a‖_p, b/‖b‖_p) of the potential ψ = (1/p)‖·‖_p^p.

    With x and y the two unit directions it is Σ |x|^p/p − |y|^p/p − sign(y)|y|^(p−1)(x − y), which is the direction
    error for p = 2. Each term is computed without cancellation, so that rounding, as in :func:`direction_error`, is of
    the order of eps·sqrt(divergence).

    Parameters
    ----------
    a, b : array
        Of equal shape; with ``axis``, of shapes that broadcast against each other. The divergence is not symmetric: the
        mirror descent paper has the Att-SVM solution as a and the weights as b.
    p : float
        The potential's exponent, 1 < p < ∞.
    axis : int or tuple of int, optional
        The axes of one direction, as for :func:`correlation`.

    Returns
    -------
    float or ndarray
        In [0, 2]; 1 where an array is zero, which has no direction.

    Raises
    ------
    ProblemError
        If the shapes do not fit, an entry is not finite, or p is out of range.

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, whose rates of convergence are
    in this divergence.
    """
    if not (isinstance(p, int | float | np.number) and 1 < p < np.inf):
        raise ProblemError(f"p: {p!r} found, 1 < p < inf wanted")
    unit_a, unit_b, axis = _unit_pair(a, b, axis, float(p))
    no_direction = ~(unit_a.any(axis=axis) & unit_b.any(axis=axis))
    total = np.sum(_bregman_terms(unit_a, unit_b, float(p)), axis=axis)
    return plain(np.where(no_direction, 1.0, np.minimum(total, 2.0)))


def _bregman_terms(x: np.ndarray, y: np.ndarray, p: float) -> np.ndarray:
    """|x|^p/p − |y|^p/p − sign(y)|y|^(p−1)(x − y), entry by entry, to a few eps of each entry's value."""
    x, y = np.broadcast_arrays(x, y)
    larger, e = np.maximum(np.abs(x), np.abs(y)), p - 1.0
    x_is_larger = np.abs(x) > np.abs(y)
    # in units of the larger entry's p-th power, as a function of the ratio of the smaller to it
    ratio = np.minimum(np.abs(x), np.abs(y)) / np.where(larger > 0, larger, 1.0)
    logarithm = np.log(ratio, out=np.full(ratio.shape, -np.inf), where=ratio > 0)
    power, less_one = np.exp(e * logarithm), np.expm1(e * logarithm)
    same = np.where(x_is_larger, -less_one - e * power * (1 - ratio), ratio * less_one + e * (1 - ratio))
    opposite = np.where(x_is_larger, 1 + e * ratio * power + p * power, ratio * power + e + p * ratio)
    term = np.where(np.sign(x) * np.sign(y) < 0, opposite, same)
    # where the entries are nearly equal even these cancel: the binomial series of (1 + r)^p from r² on does not
    difference = x - y
    near = np.abs(difference) < min(0.1, 0.5 / p) * np.abs(y)
    r = np.where(near, difference, 0.0) / np.where(near, y, 1.0)
    coefficient, power_of_r, series = p * e / 2, r * r, np.zeros_like(r)
    for k in range(2, _SERIES_TERMS):
        series += coefficient * power_of_r
        coefficient *= (p - k) / (k + 1)
        power_of_r = power_of_r * r
    return np.where(near, np.abs(y) ** p * series, larger**p * term) / p


# 0.1^k, and 0.5^k/k! where p is large, are below 1e-18 from here on, relative to the first term
_SERIES_TERMS = 22


def _unit_pair(a: Any, b: Any, axis: Axis, p: float = 2.0) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if axis is None:
        if a.shape != b.shape:
            raise ProblemError(
                f"b: shape {b.shape} does not fit a of shape {a.shape}: equal shapes wanted without axis"
            )
        axis = tuple(range(-a.ndim, 0))
    axis = axis if isinstance(axis, tuple) else (axis,)
    return _unit("a", a, axis, p), _unit("b", b, axis, p), axis


def _unit(name: str, array: np.ndarray, axis: tuple[int, ...], p: float) -> np.ndarray:
    if not np.isfinite(array).all():
        raise ProblemError(f"{name}: an entry is not finite (the direction of an infeasible solution is NaN)")
    # first a power of two, exact, that brings the largest entry near 1; only then powers, which cannot overflow
    mantissa, exponent = np.frexp(np.max(np.abs(array), axis=axis, keepdims=True, initial=0.0))
    scaled = np.ldexp(array, -exponent)
    if p == 2:
        length = np.sqrt(np.sum(scaled * scaled, axis=axis, keepdims=True))
    else:
        # relative to the largest entry, whose own power would underflow for a large p
        largest = np.where(mantissa > 0, mantissa, 1.0)
        length = largest * np.sum((np.abs(scaled) / largest) ** p, axis=axis, keepdims=True) ** (1 / p)
    return scaled / np.where(length > 0, length, 1.0)


def margin(problem: Problem, weights: Any, selected: Any, norm: str | float | Norm = "frobenius") -> np.ndarray | float:
    """Smallest margin of the selected tokens over the others, relative to the norm: min_it A(W)_it / N(W).

    Parameters
    ----------
    problem : Problem
    selected : array
        One token a query, or sets of tokens, as for :func:`attsvm.solve_svm`.
    weights : array, shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt
        Leading axes may be any that broadcast against those of problem and selection (many iterates, one problem).
    norm : str, float or Norm
        "frobenius", "nuclear", "spectral", or p of an entrywise ℓp norm.

    Returns
    -------
    float or ndarray, shape (*batch,)
        Positive if and only if the weights separate the selection; 0 for zero weights.

    Raises
    ------
    ProblemError
        If shapes do not fit, an entry is not finite, or no query has a token to drop.
    """
    norm = parse_norm(norm)
    weights = check_weights(problem, weights)
    sets = selection_sets(problem, selected)
    rest = problem.canonical.allowed & ~sets
    if not rest.any(axis=(-3, -2, -1)).all():
        raise ProblemError("selected: no query has a token to drop, so there is no margin")
    axes = 2 if problem.has_queries else 1
    size = norm.values(weights, axes)
    # relative to the largest entry, so that the logits of weights as large as 1e300 stay finite
    largest = np.max(np.abs(weights), axis=tuple(range(-axes, 0)), keepdims=True)
    logits = token_logits(problem, weights / np.where(largest > 0, largest, 1.0))
    lowest_kept = np.min(np.where(sets, logits, np.inf), axis=-1)
    highest_dropped = np.max(np.where(rest, logits, -np.inf), axis=-1)
    gaps = np.where(rest.any(axis=-1), lowest_kept - np.where(rest.any(axis=-1), highest_dropped, 0.0), np.inf)
    smallest = gaps.min(axis=(-2, -1))
    relative = size / np.where(largest > 0, largest, 1.0).reshape(size.shape)
    value = np.where(relative > 0, smallest / np.where(relative > 0, relative, 1.0), 0.0)
    return plain(value)


def check_weights(problem: Problem, weights: Any) -> np.ndarray:
    """The weights as float64, if they are of the shape that the problem's logits take."""
    weights = np.asarray(weights, dtype=np.float64)
    shape = (problem.key_dim, problem.query_dim) if problem.has_queries else (problem.key_dim,)
    if weights.shape[weights.ndim - len(shape) :] != shape or weights.ndim < len(shape):
        raise ProblemError(f"weights: shape {weights.shape} does not fit the problem: (..., {str(shape)[1:-1]}) wanted")
    if not np.isfinite(weights).all():
        raise ProblemError("weights: an entry is not finite")
    return weights


def token_logits(problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "*batch n Q T"]:
    """Logits s_iqt = k_it' W z_iq with the Q axis spelled out; masked tokens included."""
    canonical = problem.canonical
    weights = weights if problem.has_queries else weights[..., None]
    projected = canonical.queries @ np.swapaxes(weights, -1, -2)[..., None, :, :]
    return projected @ np.swapaxes(canonical.keys, -1, -2)


def attention_of(problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "*batch n Q T"]:
    """The attention under weights, with the Q axis written out; 0 for tokens that the masks exclude."""
    return softmax(token_logits(problem, weights), problem.canonical.allowed)
