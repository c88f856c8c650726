"""How fast the gradient of the training loss can change: bounds that hold at all weights."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.jax_devices import default_device
from attsvm._utils.shapes import Bool, Float
from attsvm.losses import OutputLoss, parse_margin_loss
from attsvm.problem import Problem, check_is_problem
from attsvm.results import plain
from attsvm.selection import scores

LossName = str | OutputLoss | Callable[[Any], Any]

SKEWNESS = np.sqrt(3.0) / 18.0
"""The largest third cumulant κ(γ, h, h) of two variables whose ranges have length 1."""

SAMPLES = 257
"""Points of a range of margins at which the derivatives of a loss are taken."""


class Extent(NamedTuple):
    """Hold what bounds the loss of a query, with axes (*batch, n, Q). Without a second token, all ranges are zero."""

    compared: Bool[np.ndarray, "*batch n Q"]
    """Whether the query is not padded and has at least two tokens with different keys."""
    low: Float[np.ndarray, "*batch n Q"]
    """Lowest score."""
    best: Float[np.ndarray, "*batch n Q"]
    """Highest score."""
    diameter: Float[np.ndarray, "*batch n Q"]
    """Largest distance of two keys."""
    length: Float[np.ndarray, "*batch n Q"]
    """‖z‖."""
    least_slope: Float[np.ndarray, "*batch n Q"]
    """min −ℓ' over the scores between the lowest and the highest."""
    most_slope: Float[np.ndarray, "*batch n Q"]
    """max |ℓ'| over the same."""
    curvature: Float[np.ndarray, "*batch n Q"]
    """max |ℓ''| over the same."""

    @property
    def spread(self) -> Float[np.ndarray, "*batch n Q"]:
        """Range of the scores, G."""
        return np.asarray(self.best - self.low)

    @property
    def reach(self) -> Float[np.ndarray, "*batch n Q"]:
        """The most that two logits can differ for weights of length 1, H = diameter · ‖z‖."""
        return np.asarray(self.diameter * self.length)


def lipschitz_constant(problem: Problem, loss: LossName = "logistic") -> np.ndarray | float:
    r"""A Lipschitz constant of the gradient of the loss in W or p, from the data.

    It bounds the largest eigenvalue of the Hessian in absolute value at all weights. Steps η ≤ 1/L of gradient descent
    decrease the loss.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes, and a linear head.
    loss : str, Loss or callable
        As for :func:`attsvm.train`. Its derivatives are bounded over the scores of the data, so the exponential loss
        has a constant, too. The bounds are exact for the built-in losses; of other losses they are the largest values
        at 257 points of the range of the scores.

    Returns
    -------
    float or ndarray, shape (*batch_shape,)

    Raises
    ------
    ProblemError
        If the problem has no labels, more than two classes or no head, or the loss does not fit.

    See Also
    --------
    attsvm.theory.global_convergence_conditions

    Notes
    -----
    Along a direction V with logits h_t = k_t'Vz, the derivatives of f = Σ a_t γ_t are cumulants under the softmax a:
    f' = Cov(γ, h) and f'' = E[(γ − f)(h − E h)²]. For scores in a range G and logits in a range H, |f'| ≤ GH/4 and
    |f''| ≤ (√3/18) G H². The latter is attained by two tokens: for a fixed distribution of h the best γ takes two
    values, and then the extreme distributions of h have at most three atoms, which leaves a maximum over numbers. With
    H ≤ D‖Vz‖, D the largest distance of two keys, and M₁, M₀ the largest |ℓ'| and |ℓ''|, the constant is

    .. math:: \lambda_{\max}\Bigl(\frac1n \sum_i D_i^2 \bigl(\tfrac{1}{16} M_{0,i} G_i^2
              + \tfrac{\sqrt3}{18} M_{1,i} G_i\bigr) z_i z_i^\top\Bigr).

    The papers' constant, (1/n) Σ ‖v‖ ‖z‖² ‖X‖³ (M₀ ‖v‖ ‖X‖ + 3 M₁), is at least four times as large.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Tarzanagh, Li,
    Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: the lemmas on the Lipschitz constant.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> round(attsvm.theory.lipschitz_constant(problem), 3)
    0.193
    """
    check_is_problem(problem)
    problem, parsed = parse_margin_loss(problem, loss)
    found = extent(problem, parsed)
    constant: np.ndarray | float = plain(lipschitz_of(problem, found))
    return constant


def lipschitz_of(problem: Problem, found: Extent) -> Float[np.ndarray, "*batch"]:
    """The constant of :func:`lipschitz_constant`."""
    active = problem.canonical.active
    # D²(M₀G²/16 + (√3/18) M₁G) of each query, then λ_max of the mean of these times zz'
    of_query = found.diameter**2 * (found.curvature * found.spread**2 / 16 + SKEWNESS * found.most_slope * found.spread)
    weight = np.where(found.compared, of_query, 0.0) / active.sum(axis=(-2, -1), keepdims=True)
    queries = problem.canonical.queries
    matrix = np.einsum("...nq,...nqe,...nqf->...ef", weight, queries, queries)
    return np.asarray(np.linalg.eigvalsh(matrix)[..., -1])


def extent(problem: Problem, loss: OutputLoss) -> Extent:
    """The ranges of scores, keys and slopes of each query."""
    _, queries, allowed, active = problem.canonical
    gamma = scores_of_queries(problem)
    compared = active & (problem.copies.distinct.sum(axis=-1) > 1)
    # the output is a mean of the scores, so that bounds of ℓ' and ℓ'' over their range are enough
    best = np.where(active, gamma.max(axis=-1), 0.0)
    low = np.where(active, np.min(np.where(allowed, gamma, np.inf), axis=-1), 0.0)
    margins = low[..., None] + (best - low)[..., None] * np.linspace(0.0, 1.0, SAMPLES)
    # the derivatives of the built-in losses are largest at an end of the range or at 0
    margins = np.concatenate([margins, np.clip(0.0, low, best)[..., None]], axis=-1)
    slope, curvature = derivatives(loss, margins)
    return Extent(
        compared,
        low,
        best,
        diameters(problem),
        np.linalg.norm(queries, axis=-1),
        np.min(-slope, axis=-1),
        np.max(np.abs(slope), axis=-1),
        np.max(np.abs(curvature), axis=-1),
    )


def diameters(problem: Problem) -> Float[np.ndarray, "*batch n Q"]:
    """The largest distance of two keys of each query."""
    keys, _, allowed, _ = problem.canonical
    # ‖k_s − k_t‖² = ‖k_s‖² + ‖k_t‖² − 2⟨k_s, k_t⟩
    square = np.sum(keys**2, axis=-1)
    distance = square[..., :, None] + square[..., None, :] - 2 * keys @ np.swapaxes(keys, -1, -2)
    both = allowed[..., :, None] & allowed[..., None, :]
    largest = np.max(np.where(both, distance[..., None, :, :], 0.0), axis=(-2, -1))
    # the square of a small distance may round to a negative number
    return np.asarray(np.sqrt(np.maximum(largest, 0.0)))


def scores_of_queries(problem: Problem) -> Float[np.ndarray, "*batch n Q T"]:
    """The scores with the axis of queries written out, of a model with one attention head."""
    problem.check_one_head()
    gamma = scores(problem)
    return gamma if problem.has_query_axis else gamma[..., None, :]


def derivatives(loss: OutputLoss, margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ℓ'(m) and ℓ''(m), elementwise."""
    with jax.enable_x64(True):
        slope, curvature = _derivatives(loss, default_device())(np.asarray(margins, np.float64))
        return np.asarray(slope), np.asarray(curvature)


@lru_cache(maxsize=32)
def _derivatives(loss: OutputLoss, device: jax.Device) -> Callable[[np.ndarray], Any]:
    """Compile the derivatives of a loss on a device, for each shape."""

    def values(margins: jax.Array) -> jax.Array:
        return loss.values(margins, jnp.ones_like(margins))

    def both(margins: jax.Array) -> tuple[jax.Array, jax.Array]:
        slope = _derivative(values)
        return slope(margins), _derivative(slope)(margins)

    return jax.jit(both)


def _derivative(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    # elementwise functions: the tangent 1 gives all derivatives at once
    return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]
