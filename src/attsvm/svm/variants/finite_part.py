"""Several tokens kept together: the finite weights that determine how attention is shared among them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.checks import check_softmax, weights_of
from attsvm._utils.shapes import Bool, Float
from attsvm.errors import ProblemError
from attsvm.measures import attention_of, check_weights
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Batched, per_trial, plain
from attsvm.selection import selection_sets
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.solution import Solution
from attsvm.svm.solve import solve_svm
from attsvm.svm.tolerances import DEPENDENT

SUMS_TO_ONE = 1e-6
"""How far the sum of the probabilities of a query may differ from 1."""


@dataclass(frozen=True, eq=False, repr=False)
class FinitePart(Batched):
    """The finite part of weights that keep several tokens.

    Attributes
    ----------
    residual : float, or ndarray of shape (*batch_shape,)
        Largest |(k_t − k_u)' W_fin z − log(a_t / a_u)|; above rounding if no weights give these ratios.
    weights : ndarray, shape (*batch_shape, d_k, d_q), or (*batch_shape, d_k) for a prompt
        W_fin; zero if no query keeps more than one token.
    """

    kind: ClassVar[str] = "finite part"

    residual: float | np.ndarray = per_trial()
    weights: np.ndarray = per_trial()


@dataclass(frozen=True, eq=False, repr=False)
class Combined(Batched):
    """The prediction of the theory for weights that keep several tokens, W ≈ W_fin + R·W_mm.

    Attributes
    ----------
    radius : float, or ndarray of shape (*batch_shape,)
        R ≥ 0, for which the prediction is nearest to the trained weights.
    weights : ndarray, shape (*batch_shape, d_k, d_q), or (*batch_shape, d_k) for a prompt
        W_fin + R·W_mm.
    finite : FinitePart
    solution : Solution
        Its direction is W_mm.
    probabilities : ndarray, shape (*batch_shape, n[, Q], T), or None
        The attention of the predicted weights; None in files of earlier versions.
    probability_error : float, or ndarray of shape (*batch_shape,), or None
        The largest difference of a probability to the attention of the trained weights.
    """

    kind: ClassVar[str] = "combined prediction"

    radius: float | np.ndarray = per_trial()
    weights: np.ndarray = per_trial()
    finite: FinitePart = per_trial()
    solution: Solution = per_trial()
    probabilities: np.ndarray | None = per_trial(None)
    probability_error: float | np.ndarray | None = per_trial(None)


def finite_part(problem: Problem, weights_or_probabilities: Any, selected: Any) -> FinitePart:
    """The smallest weights whose attention has the given ratios inside each kept set.

    Minimise ‖W‖_F subject to (k_t − k_u)' W z = log(a_t / a_u) for all t, u that a query keeps together, where a is
    the attention.

    Parameters
    ----------
    problem : Problem
        Only tokens (or keys), queries and masks matter.
    weights_or_probabilities : array, Run or Solution
        Either weights, those of a result or of shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt, whose attention
        is computed; or the attention itself, shape (*batch, n[, Q], T), of which only ratios inside the sets matter.
        The shape decides. An array that has both shapes is read as attention if it is not negative and the allowed
        entries of each query sum to 1, and as weights otherwise.
    selected : int array, shape (*batch, n[, Q]), or bool array, shape (*batch, n[, Q], T); or Prediction, Solution, Run
        The tokens kept.

    Returns
    -------
    FinitePart

    Raises
    ------
    ProblemError
        If the shapes do not fit, or a kept token has a probability that is not positive.

    See Also
    --------
    attsvm.svm.combined_prediction, attsvm.solve_svm

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, section 6: W_fin lies in
    the span of the differences of tokens kept together, and W ≈ W_fin + C·W_mm.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.Problem([[[1.0, 0.0], [0.0, 1.0]]])
    >>> attsvm.finite_part(problem, [[0.8, 0.2]], [[True, True]]).weights.round(3)
    array([ 0.693, -0.693])
    """
    check_is_problem(problem)
    sets = selection_sets(problem, selected)
    attention = _attention(problem, weights_or_probabilities, sets)
    wrong = sets & ~((attention > 0) & np.isfinite(attention))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ProblemError(
            f"weights_or_probabilities: expected positive probabilities of kept tokens, got {attention[where]:g}"
        )
    # the right sides log(a_r / a_t), with the first kept token of each query as r
    logs = np.log(np.where(sets, attention, 1.0))
    if problem.terms.offsets is not None:  # which no weights have to make
        logs = logs - np.where(sets, problem.terms.offsets, 0.0)
    first = sets & (np.cumsum(sets, axis=-1) == 1)
    ratios = np.where(sets, np.sum(logs, axis=-1, where=first, keepdims=True) - logs, 0.0)
    constraints = Constraints.of(problem, sets)
    batch = sets.shape[:-3]
    weights = np.zeros((*batch, *constraints.weights_shape))
    residual = np.zeros(batch)
    if constraints.equality is not None:
        goal = ratios.reshape(constraints.inequality.shape)
        for index in np.ndindex(batch):
            weights[index], residual[index] = _least(constraints[index] if batch else constraints, goal[index])
    # no weights give tokens with equal keys different probabilities
    residual = np.maximum(residual, np.abs(ratios - problem.copies.of_first(ratios)).max(axis=(-3, -2, -1)))
    return FinitePart(residual=plain(residual), weights=weights if problem.has_queries else weights[..., 0])


def combined_prediction(problem: Problem, weights: Any, selected: Any) -> Combined:
    """Finite part and direction together: W_fin + R·W_mm, with the R for which it is nearest to the weights.

    R = max(0, ⟨W − W_fin, W_mm⟩ / ‖W_mm‖²).

    Parameters
    ----------
    problem : Problem
    weights : Run, or array of shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt
        The trained weights, W. Their attention gives the ratios of the finite part.
    selected : int array, shape (*batch, n[, Q]), or bool array, shape (*batch, n[, Q], T); or Prediction, Solution, Run
        The tokens kept.

    Returns
    -------
    Combined
        NaN where the selection is infeasible.

    Raises
    ------
    ProblemError
        If the shapes do not fit, or the attention to a kept token underflows to zero.

    See Also
    --------
    attsvm.finite_part : The finite part.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, section 6.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> problem = attsvm.Problem([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    >>> attsvm.svm.combined_prediction(problem, [9.0, 8.0], [[True, True, False]]).weights.round(6)
    array([9., 8.])
    """
    check_is_problem(problem)
    check_softmax(weights, "weights")
    trained = check_weights(problem, weights)
    finite = finite_part(problem, trained, selected)
    if trained.shape != finite.weights.shape:
        raise ProblemError(f"weights: expected shape {finite.weights.shape}, got {trained.shape}")
    solution = solve_svm(problem, selected)
    axes = (-2, -1) if problem.has_queries else (-1,)
    # R = ⟨W − W_fin, W_mm⟩ / ‖W_mm‖², at least 0
    along = np.sum((trained - finite.weights) * solution.direction, axis=axes)
    length = np.asarray(np.sum(solution.direction**2, axis=axes))
    radius = np.maximum(along, 0.0) / np.where(length == 0, 1.0, length)
    combined = finite.weights + np.expand_dims(radius, axes) * solution.direction
    # what the formula predicts is compared where it matters, in the attention
    predicted = _attention_or_nan(problem, combined)
    errors = np.abs(predicted - attention_of(problem, trained)).max(axis=(-3, -2, -1))
    return Combined(
        radius=plain(radius),
        weights=combined,
        finite=finite,
        solution=solution,
        probabilities=predicted if problem.has_query_axis else predicted[..., 0, :],
        probability_error=plain(errors),
    )


def _attention_or_nan(problem: Problem, weights: np.ndarray) -> Float[np.ndarray, "*batch n Q T"]:
    """The attention of weights, NaN where these are."""
    axes = (-2, -1) if problem.has_queries else (-1,)
    finite = np.isfinite(weights).all(axis=axes)
    attention = attention_of(problem, np.where(np.expand_dims(finite, axes), weights, 0.0))
    return np.where(finite[..., None, None, None], attention, np.nan)


def _attention(
    problem: Problem, given: Any, sets: Bool[np.ndarray, "*batch n Q T"]
) -> Float[np.ndarray, "*batch n Q T"]:
    """The attention that weights or probabilities describe."""
    check_softmax(given, "weights_or_probabilities")
    array = weights_of(given, "weights_or_probabilities")
    batch, own = sets.shape[:-3], (*problem.query_shape[len(problem.batch_shape) :], problem.num_tokens)
    of_weights = problem.weights_shape

    def fits(shape: tuple[int, ...]) -> bool:
        return array.shape in (shape, problem.batch_shape + shape, batch + shape)

    if fits(own):
        attention = np.broadcast_to(array, batch + own).reshape(sets.shape)
        if not (fits(of_weights) and not _are_probabilities(attention, problem)):
            return attention
    elif not fits(of_weights):
        raise ProblemError(
            f"weights_or_probabilities: expected shape {batch + of_weights} or {batch + own}, got {array.shape}"
        )
    weights = check_weights(problem, array)
    return np.broadcast_to(attention_of(problem, weights), sets.shape)


def _are_probabilities(attention: Float[np.ndarray, "*batch n Q T"], problem: Problem) -> bool:
    total = np.sum(attention, axis=-1, where=problem.canonical.allowed)
    return bool((attention >= 0).all() and (np.abs(total - 1) <= SUMS_TO_ONE)[..., problem.canonical.active].all())


def _least(constraints: Constraints, ratios: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights of least norm that satisfy the equalities, and the largest residual."""
    # rows of unit norm, so that the cut-off of small singular values is relative to each
    rows = constraints.rows()
    matrix, places = rows.matrix[rows.equality], rows.position[rows.equality]
    goal = ratios.reshape(-1)[places] / constraints.norms.reshape(-1)[places]
    try:
        flat = np.linalg.lstsq(matrix, goal, rcond=DEPENDENT)[0]
    except np.linalg.LinAlgError:  # the residual shows that these are no solution
        flat = np.zeros(matrix.shape[1])
    weights = flat.reshape(constraints.weights_shape)
    assert constraints.equality is not None
    lacking = np.where(constraints.equality, constraints.apply(weights) - ratios, 0.0)
    return weights, float(np.abs(lacking).max())
