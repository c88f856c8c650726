"""Several tokens kept together: the finite weights that share the attention among them."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.selection import selection_sets
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.solution import Solution
from attsvm.svm.solve import solve_svm


class FinitePart(NamedTuple):
    """The finite part of weights that keep several tokens.

    Attributes
    ----------
    weights : ndarray, shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt
        W_fin; zero where no query keeps more than one token.
    residual : ndarray, shape (*batch,)
        Largest |(k_t − k_u)' W_fin z − log(a_t / a_u)|: above rounding where no weights give these ratios.
    """

    weights: np.ndarray
    residual: Float[np.ndarray, "*batch"]


class Combined(NamedTuple):
    """What theory says of weights that keep several tokens, W ≈ W_fin + R·W_mm.

    Attributes
    ----------
    weights : ndarray, shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt
    radius : ndarray, shape (*batch,)
        R ≥ 0, the one nearest to the trained weights.
    finite : FinitePart
    solution : Solution
        Its direction is W_mm.
    """

    weights: np.ndarray
    radius: Float[np.ndarray, "*batch"]
    finite: FinitePart
    solution: Solution


def finite_part(problem: Problem, probabilities: Any, selected: Any) -> FinitePart:
    """The smallest weights whose attention has the given ratios inside each kept set.

    Minimise ‖W‖_F subject to (k_t − k_u)' W z = log(a_t / a_u) for all t, u that a query keeps together.

    Parameters
    ----------
    problem : Problem
        Only tokens (or keys), queries and masks matter.
    probabilities : array, shape (*batch, n[, Q], T)
        The attention; only ratios inside the sets matter.
    selected : int array, shape (*batch, n[, Q]), or bool array, shape (*batch, n[, Q], T)
        The tokens kept.

    Returns
    -------
    FinitePart

    Raises
    ------
    ProblemError
        If the shapes do not fit, or a kept token has a probability that is not positive.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, section 6: W_fin lies in
    the span of the differences of tokens kept together, and W ≈ W_fin + C·W_mm.
    """
    sets = selection_sets(problem, selected)
    attention = np.asarray(probabilities, dtype=np.float64)
    own = (*problem.query_shape[len(problem.batch_shape) :], problem.num_tokens)
    batch = sets.shape[:-3]
    if attention.shape not in (own, problem.batch_shape + own, batch + own):
        raise ProblemError(f"probabilities: shape {attention.shape} does not fit the problem: {batch + own} wanted")
    attention = np.broadcast_to(attention, batch + own).reshape(sets.shape)
    wrong = sets & ~((attention > 0) & np.isfinite(attention))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ProblemError(
            f"probabilities: {attention[where]:g} found for a token that is kept; positive numbers wanted"
        )
    logs = np.log(np.where(sets, attention, 1.0))
    first = sets & (np.cumsum(sets, axis=-1) == 1)
    ratios = np.where(sets, np.sum(logs, axis=-1, where=first, keepdims=True) - logs, 0.0)
    constraints = Constraints.of(problem, sets)
    weights = np.zeros((*batch, *constraints.weights_shape))
    residual = np.zeros(batch)
    if constraints.equality is not None:
        wanted = ratios.reshape(constraints.inequality.shape)
        for index in np.ndindex(batch):
            weights[index], residual[index] = _least(constraints[index] if batch else constraints, wanted[index])
    return FinitePart(weights if problem.has_queries else weights[..., 0], residual)


def combined_prediction(problem: Problem, weights: Any, probabilities: Any, selected: Any) -> Combined:
    """Finite part and direction together, W_fin + R·W_mm, at the R that comes nearest to the weights.

    R = max(0, ⟨W − W_fin, W_mm⟩ / ‖W_mm‖²).

    Parameters
    ----------
    problem : Problem
    weights : array, shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt
        The trained weights, W.
    probabilities, selected
        As for :func:`finite_part`.

    Returns
    -------
    Combined
        NaN where the selection is infeasible.

    Raises
    ------
    ProblemError
        As :func:`finite_part`, or if the weights do not fit.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, section 6.
    """
    finite = finite_part(problem, probabilities, selected)
    trained = np.asarray(weights, dtype=np.float64)
    if trained.shape != finite.weights.shape:
        raise ProblemError(f"weights: shape {trained.shape} found, {finite.weights.shape} wanted")
    solution = solve_svm(problem, selected)
    axes = (-2, -1) if problem.has_queries else (-1,)
    along = np.sum((trained - finite.weights) * solution.direction, axis=axes)
    length = np.asarray(np.sum(solution.direction**2, axis=axes))
    radius = np.maximum(along, 0.0) / np.where(length == 0, 1.0, length)
    combined = finite.weights + np.expand_dims(radius, axes) * solution.direction
    return Combined(combined, radius, finite, solution)


def _least(constraints: Constraints, ratios: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights of least norm on the equalities' rows, and what they lack."""
    rows = constraints.rows()
    matrix, places = rows.matrix[rows.equality], rows.position[rows.equality]
    goal = ratios.reshape(-1)[places] / constraints.norms.reshape(-1)[places]
    flat = np.linalg.lstsq(matrix, goal, rcond=1e-13)[0]
    weights = flat.reshape(constraints.weights_shape)
    assert constraints.equality is not None
    lacking = np.where(constraints.equality, constraints.apply(weights) - ratios, 0.0)
    return weights, float(np.abs(lacking).max())
