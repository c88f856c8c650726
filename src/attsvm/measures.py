"""Distances of directions, the margin of weights over a selection, and logits and attention of weights."""

from typing import Any

import numpy as np

from attsvm._utils.checks import selection_of, weights_of
from attsvm._utils.linear_algebra import softmax
from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.norms import Norm, for_heads, parse_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import plain
from attsvm.selection import selection_sets

__all__ = ["bregman_divergence", "correlation", "direction_error", "in_cone", "margin"]

# for the other packages of attsvm, beside the public names
__door__ = ("attention_of", "check_of_problem", "check_weights", "token_logits")

Axis = int | tuple[int, ...] | None


def __dir__() -> list[str]:
    return sorted(__all__)


def correlation(a: Any, b: Any, axis: Axis = None) -> np.ndarray | float:
    """Cosine of the angle between two arrays, ⟨a, b⟩/(‖a‖‖b‖).

    Parameters
    ----------
    a, b : array, Run, Solution or Prediction
        A run gives its weights; a solution or a prediction its direction. Two arrays have equal shapes; with ``axis``
        or a result, shapes that broadcast against each other.
    axis : int or tuple of int, optional
        The axes of one direction. ``(-2, -1)`` compares matrices; the leading axes are batch axes. None takes all axes,
        except the batch axes of a result.

    Returns
    -------
    float or ndarray, shape of the other axes
        In [-1, 1]; 0 if an array is zero, because it has no direction.

    Raises
    ------
    ProblemError
        If the shapes do not fit or an entry is not finite.

    See Also
    --------
    attsvm.direction_error : More accurate near 1.
    attsvm.margin_ratio : Where the optimum is not unique.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, which measures convergence
    in direction by it.

    Examples
    --------
    >>> import attsvm
    >>> round(attsvm.correlation([1.0, 0.0], [2.0, 2.0]), 4)
    0.7071
    """
    unit_a, unit_b, axis = _unit_pair(a, b, axis)
    found: np.ndarray | float = plain(np.clip(np.sum(unit_a * unit_b, axis=axis), -1.0, 1.0))
    return found


def direction_error(a: Any, b: Any, axis: Axis = None) -> np.ndarray | float:
    """1 − correlation, computed as half the squared distance of the unit vectors.

    This form has no cancellation: its rounding error is of the order of eps·sqrt(error), below 1e-16 for every error
    below 1e-2.

    Parameters
    ----------
    a, b : array, Run, Solution or Prediction
    axis : int or tuple of int, optional
        As for :func:`attsvm.correlation`.

    Returns
    -------
    float or ndarray, shape of the other axes
        In [0, 2]; 1 if an array is zero.

    Raises
    ------
    ProblemError
        If the shapes do not fit or an entry is not finite.

    See Also
    --------
    attsvm.correlation
    attsvm.margin_ratio : Where the optimum is not unique.
    attsvm.measures.bregman_divergence

    Examples
    --------
    >>> import attsvm
    >>> attsvm.direction_error([1.0, 0.0], [1.0, 1e-8]) < 1e-16
    True
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=2000)
    >>> attsvm.direction_error(run, attsvm.solve_svm(problem, run)) < 0.01
    True
    """
    unit_a, unit_b, axis = _unit_pair(a, b, axis)
    difference = unit_a - unit_b
    no_direction = ~(unit_a.any(axis=axis) & unit_b.any(axis=axis))
    found: np.ndarray | float = plain(
        np.where(no_direction, 1.0, np.minimum(0.5 * np.sum(difference * difference, axis=axis), 2.0))
    )
    return found


def in_cone(weights: Any, direction: Any, epsilon: float, radius: float = 0.0, axis: Axis = None) -> np.ndarray | bool:
    """Whether weights lie in the cone around a direction, at least a radius away from zero.

    The cone is {W : ⟨W, D⟩ ≥ (1 − ε) ‖W‖ ‖D‖, ‖W‖ ≥ R}. Gradient descent that reaches it stays in it, if D is locally
    optimal, ε is small and R is large enough.

    Parameters
    ----------
    weights, direction : array, Run, Solution or Prediction
        Like ``a`` and ``b`` of :func:`attsvm.direction_error`.
    epsilon : float
        0 ≤ ε ≤ 2; with 0 the cone is the ray of the direction.
    radius : float
        R ≥ 0, in the Frobenius (ℓ2) norm.
    axis : int or tuple of int, optional
        The axes of one direction; None takes all.

    Returns
    -------
    bool or bool ndarray
        False for zero weights, because they have no direction.

    Raises
    ------
    ProblemError
        If shapes do not fit, an entry is not finite, or a number is out of range.

    See Also
    --------
    attsvm.theory.local_convergence_conditions : A cone that gradient descent does not leave.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Tarzanagh, Li,
    Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: the cones of the local theorems.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.measures.in_cone([1.0, 0.1], [1.0, 0.0], epsilon=0.01)
    True
    >>> attsvm.measures.in_cone([1.0, 1.0], [1.0, 0.0], epsilon=0.01)
    False
    """
    if not 0 <= epsilon <= 2:
        raise ProblemError(f"epsilon: expected 0 <= epsilon <= 2, got {epsilon!r}")
    if not radius >= 0:
        raise ProblemError(f"radius: expected a number >= 0, got {radius!r}")
    array, direction, over = _pair(weights, direction, axis, ("weights", "direction"))
    error = np.asarray(direction_error(array, direction, over))
    largest = np.max(np.abs(array), axis=over, keepdims=True)
    relative = np.sqrt(np.sum((array / np.where(largest > 0, largest, 1.0)) ** 2, axis=over))
    length = largest.reshape(relative.shape) * relative
    inside = (error <= epsilon) & (length >= radius) & (length > 0)
    found: np.ndarray | bool = plain(inside)
    return found


def bregman_divergence(a: Any, b: Any, p: float, axis: Axis = None) -> np.ndarray | float:
    """Directional Bregman divergence D_ψ(a/‖a‖_p, b/‖b‖_p) of the potential ψ = (1/p)‖·‖_p^p.

    For unit directions x and y it is Σ |x|^p/p − |y|^p/p − sign(y)|y|^(p−1)(x − y). For p = 2 this is the direction
    error. Each term is computed without cancellation, so the rounding error is of the order of eps·sqrt(divergence), as
    for :func:`attsvm.direction_error`.

    Parameters
    ----------
    a, b : array, Run, Solution or Prediction
        As for :func:`attsvm.correlation`. The divergence is not symmetric: in the mirror-descent paper a is the Att-SVM
        solution and b are the weights.
    p : float
        Exponent of the potential, 1 < p < ∞.
    axis : int or tuple of int, optional
        The axes of one direction, as for :func:`attsvm.correlation`.

    Returns
    -------
    float or ndarray
        In [0, 2]; 1 if an array is zero.

    Raises
    ------
    ProblemError
        If the shapes do not fit, an entry is not finite, or p is out of range.

    See Also
    --------
    attsvm.direction_error
    attsvm.optimizers.mirror_descent : Its potential.

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*: the rates of convergence are
    stated in this divergence.

    Examples
    --------
    >>> import attsvm
    >>> round(attsvm.measures.bregman_divergence([1.0, 0.0], [1.0, 1.0], p=2), 4)
    0.2929
    """
    if not (isinstance(p, int | float | np.number) and 1 < p < np.inf):
        raise ProblemError(f"p: expected 1 < p < inf, got {p!r}")
    unit_a, unit_b, axis = _unit_pair(a, b, axis, float(p))
    no_direction = ~(unit_a.any(axis=axis) & unit_b.any(axis=axis))
    total = np.sum(_bregman_terms(unit_a, unit_b, float(p)), axis=axis)
    found: np.ndarray | float = plain(np.where(no_direction, 1.0, np.minimum(total, 2.0)))
    return found


def _bregman_terms(x: np.ndarray, y: np.ndarray, p: float) -> np.ndarray:
    """|x|^p/p − |y|^p/p − sign(y)|y|^(p−1)(x − y), entry by entry, with a relative error of a few eps."""
    x, y = np.broadcast_arrays(x, y)
    larger, e = np.maximum(np.abs(x), np.abs(y)), p - 1.0
    x_is_larger = np.abs(x) > np.abs(y)
    # in units of the p-th power of the larger entry, as a function of the ratio of the two entries
    ratio = np.minimum(np.abs(x), np.abs(y)) / np.where(larger > 0, larger, 1.0)
    logarithm = np.log(ratio, out=np.full(ratio.shape, -np.inf), where=ratio > 0)
    power, less_one = np.exp(e * logarithm), np.expm1(e * logarithm)
    same = np.where(x_is_larger, -less_one - e * power * (1 - ratio), ratio * less_one + e * (1 - ratio))
    opposite = np.where(x_is_larger, 1 + e * ratio * power + p * power, ratio * power + e + p * ratio)
    term = np.where(np.sign(x) * np.sign(y) < 0, opposite, same)
    # these terms cancel if the entries are nearly equal; the binomial series of (1 + r)^p from r² on does not
    difference = x - y
    near = np.abs(difference) < min(0.1, 0.5 / p) * np.abs(y)
    r = np.where(near, difference, 0.0) / np.where(near, y, 1.0)
    coefficient, power_of_r, series = p * e / 2, r * r, np.zeros_like(r)
    for k in range(2, _SERIES_TERMS):
        series += coefficient * power_of_r
        coefficient *= (p - k) / (k + 1)
        power_of_r = power_of_r * r
    return np.asarray(np.where(near, np.abs(y) ** p * series, larger**p * term) / p)


# 0.1^k, and 0.5^k/k! where p is large, are below 1e-18 from here on, relative to the first term
_SERIES_TERMS = 22


def _unit_pair(a: Any, b: Any, axis: Axis, p: float = 2.0) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    a, b, axis = _pair(a, b, axis, ("a", "b"))
    return _unit("a", a, axis, p), _unit("b", b, axis, p), axis


def _pair(a: Any, b: Any, axis: Axis, names: tuple[str, str]) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """The arrays of two directions, and their own axes: without ``axis``, those behind the batch axes of results."""
    given, arrays = (a, b), (weights_of(a, names[0]), weights_of(b, names[1]))
    shapes = [array.shape for array in arrays]
    if axis is None:
        own = [
            len(x) - len(one.batch_shape) for one, x in zip(given, shapes, strict=True) if hasattr(one, "batch_shape")
        ]
        if not own and shapes[0] != shapes[1]:
            raise ProblemError(
                f"{names[1]}: expected the shape {shapes[0]} of {names[0]}, because axis is None, got {shapes[1]}"
            )
        # heads are batch axes of the solutions of each, but belong to one direction of a run
        axis = tuple(range(-max(own, default=len(shapes[0])), 0))
    axis = axis if isinstance(axis, tuple) else (axis,)
    least = min(map(len, shapes))
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        fits = False
    else:
        fits = all(isinstance(one, int | np.integer) and -least <= one < least for one in axis)
    if not fits:
        raise ProblemError(
            f"{names[1]}: expected a shape that fits {shapes[0]} of {names[0]} along axis {axis}, got {shapes[1]}"
        )
    return *arrays, axis


def _unit(name: str, array: np.ndarray, axis: tuple[int, ...], p: float) -> np.ndarray:
    if not np.isfinite(array).all():
        raise ProblemError(
            f"{name}: expected finite numbers, got NaN or inf (an infeasible solution has a direction of NaN)"
        )
    # scaling by a power of two is exact; with the largest entry near 1, the powers cannot overflow
    mantissa, exponent = np.frexp(np.max(np.abs(array), axis=axis, keepdims=True, initial=0.0))
    scaled = np.ldexp(array, -exponent)
    if p == 2:
        length = np.sqrt(np.sum(scaled * scaled, axis=axis, keepdims=True))
    else:
        # relative to the largest entry, because its power can underflow for large p
        largest = np.where(mantissa > 0, mantissa, 1.0)
        length = largest * np.sum((np.abs(scaled) / largest) ** p, axis=axis, keepdims=True) ** (1 / p)
    return np.asarray(scaled / np.where(length > 0, length, 1.0))


def margin(
    problem: Problem, weights: Any, selected: Any = None, norm: str | float | Norm = "frobenius"
) -> np.ndarray | float:
    """Smallest margin of the selected tokens over the other tokens, divided by the norm: min_it A(W)_it / N(W).

    Parameters
    ----------
    problem : Problem
    weights : Run, Solution, Prediction, or array of shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt
        Leading axes broadcast against those of problem and selection, for instance many iterates of one problem.
    selected : array, Run, Solution or Prediction, optional
        One token per query, or sets of tokens, as for :func:`attsvm.solve_svm`. By default the selection of
        ``weights``, if they are a result.
    norm : str, float or Norm
        As for :func:`attsvm.solve_svm`. A norm of all attention heads together, such as
        ``attsvm.norms.SumOfHeads(Nuclear())``, measures the smallest margin of all heads.

    Returns
    -------
    float or ndarray, shape (*batch,)
        Without the axis of heads, if the norm measures the heads together. Positive if and only if the weights separate
        the selection; 0 for zero weights.

    Raises
    ------
    ProblemError
        If shapes do not fit, an entry is not finite, every token is selected, or the weights are a run of another
        problem.

    See Also
    --------
    attsvm.margin_ratio : Relative to the best margin.
    attsvm.solve_svm

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, the constraints of
    equation (Att-SVM).

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> selected = attsvm.optimal_tokens(problem)
    >>> solution = attsvm.solve_svm(problem, selected)
    >>> bool(abs(attsvm.margin(problem, solution.direction, selected) * solution.value - 1) < 1e-9)
    True
    """
    check_is_problem(problem)
    norm = parse_norm(norm)
    array = check_weights(problem, weights, norm)
    if selected is None and hasattr(weights, "data_hash"):
        check_of_problem(problem, weights, "weights")
    sets = selection_sets(problem, selection_of(selected, weights))
    rest = problem.canonical.allowed & ~sets
    if not rest.any(axis=(-3, -2, -1)).all():
        raise ProblemError("selected: expected a token that is not selected, got none, so there is no margin")
    axes = norm.head_axes + (2 if problem.has_queries else 1)
    size = norm.values(array, axes)
    # relative to the largest entry, so that the logits of weights as large as 1e300 stay finite
    largest = np.max(np.abs(array), axis=tuple(range(-axes, 0)), keepdims=True)
    unit = array / np.where(largest > 0, largest, 1.0)
    logits = problem.terms.linear(unit if problem.has_queries else unit[..., None])
    lowest_kept = np.min(np.where(sets, logits, np.inf), axis=-1)
    highest_dropped = np.max(np.where(rest, logits, -np.inf), axis=-1)
    gaps = np.where(rest.any(axis=-1), lowest_kept - np.where(rest.any(axis=-1), highest_dropped, 0.0), np.inf)
    smallest = gaps.min(axis=tuple(range(-2 - norm.head_axes, 0)))
    relative = size / np.where(largest > 0, largest, 1.0).reshape(size.shape)
    value = np.where(relative > 0, smallest / np.where(relative > 0, relative, 1.0), 0.0)
    found: np.ndarray | float = plain(value)
    return found


def check_weights(problem: Problem, weights: Any, norm: Norm | None = None, name: str = "weights") -> np.ndarray:
    """Those of a result or an array, after a check of entries and shape, with H if the norm is one of all heads."""
    array = weights_of(weights, name)
    shape = problem.weights_shape
    if norm is not None:
        if problem.num_biases and not norm.takes_biases:
            raise ProblemError(f"norm: expected one without rotations for a problem with bias_index, got {norm.name}")
        for_heads(norm, problem.num_heads)  # raises where there are no heads
        shape = (*problem.heads_shape, *shape)
    if array.shape[array.ndim - len(shape) :] != shape or array.ndim < len(shape):
        raise ProblemError(f"{name}: expected shape (..., {', '.join(map(str, shape))}), got {array.shape}")
    if not np.isfinite(array).all():
        raise ProblemError(f"{name}: expected finite numbers, got NaN or inf")
    problem.check_blocks(name, array)
    return array


def check_of_problem(problem: Problem, run: Any, name: str = "run") -> None:
    """Raise ProblemError if the weights of a run select other tokens of a problem than the run, up to rounding.

    The hashes decide only if they are equal: that of one trial of a batch is the hash of the batch.
    """
    if run.data_hash != problem.data_hash:
        logits = token_logits(problem, check_weights(problem, run.weights, name=name))
        tokens = problem.canonical.allowed, selection_sets(problem, run.selected)
        best, own = (np.where(among, logits, -np.inf).max(axis=-1) for among in tokens)
        if (own < best - 1e-3 * np.abs(logits).max(axis=-1)).any():
            raise ProblemError(f"{name}: expected a run of this problem, got one whose weights select other tokens")


def token_logits(problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "*batch n Q T"]:
    """Logits s_iqt = k_it' W z_iq, with biases and offsets, with a Q axis and including masked tokens."""
    return problem.terms.logits(weights if problem.has_queries else weights[..., None])


def attention_of(problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "*batch n Q T"]:
    """The attention under weights, with the Q axis written out; 0 for tokens that the masks exclude."""
    return softmax(token_logits(problem, weights), problem.canonical.allowed)
