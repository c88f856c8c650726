"""Minima of the loss of several attention heads, whose outputs are added up: each head in its ball, or all in one.

In a product of balls a point is stationary if that of each head is stationary beside the others, however small its
gradient is next to theirs. So the heads are minimised over in turn; they are coupled by the slopes ℓ' of the loss
alone, which are nearly constant once attention is saturated. One ball of all heads is that of the block-diagonal matrix
of their weights.
"""

import numpy as np
from jaxtyping import Float

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm
from attsvm.regularization.barrier_balls import minimise_in_balls, tolerance
from attsvm.regularization.barriers import Matrices, Values, barrier_of
from attsvm.regularization.excess import Excess
from attsvm.regularization.gaps import Gaps
from attsvm.regularization.interior_point import Minima, relative_gap

ROUNDS = 100


def block_diagonal(weights: Matrices, heads: int) -> Float[np.ndarray, "N Hk He"]:
    """The matrices of H heads, which follow each other, as the blocks of one."""
    if heads == 1:
        return weights
    count, (k, e) = len(weights) // heads, weights.shape[1:]
    whole = np.zeros((count, heads, k, heads, e))
    for h in range(heads):
        whole[:, h, :, h] = weights[h::heads]
    return whole.reshape(count, heads * k, heads * e)


def diagonal_blocks(whole: Float[np.ndarray, "N Hk He"], heads: int) -> Matrices:
    """The inverse of :func:`block_diagonal`."""
    count, (k, e) = len(whole), (whole.shape[1] // heads, whole.shape[2] // heads)
    return np.asarray(np.einsum("nhkhe->nhke", whole.reshape(count, heads, k, heads, e)).reshape(-1, k, e))


def check_balls(norm: Norm, *, together: bool) -> None:
    """Raise ProblemError if no minima of several heads are known over balls of this norm."""
    if barrier_of(norm) is None and (together or isinstance(norm, Lp)):
        raise ProblemError(
            f"norm: expected l1, frobenius, linf, spectral or nuclear for several attention heads, got {norm.name}"
        )


def minimise_in_ball(
    excess: Gaps, norm: Norm, radius: Values, start: Matrices, *, heads: int = 1, together: bool = False
) -> Minima:
    """Local minima over N(W) ≤ radius of a stack of functions, near weights that are first moved into the ball.

    ``heads``: H; the functions and weights of one model follow each other. ``radius``: of the ball of each head, or,
    together, of each model.
    """
    if heads == 1:
        return minimise_in_balls(excess, norm, radius, start)
    assert isinstance(excess, Excess)
    if together:
        found = minimise_in_balls(excess.joined(heads), norm, radius, block_diagonal(start, heads))
        return found._replace(weights=diagonal_blocks(found.weights, heads))
    weights, steps, head = start.copy(), np.zeros(len(start), dtype=int), np.arange(len(start)) % heads
    gap = np.full(len(start), np.inf)
    for _ in range(ROUNDS):
        for h in range(heads):
            # the first round looks at every head, later ones at those that the others have moved away
            own = np.flatnonzero((head == h) & (gap > tolerance(norm)))
            if len(own):
                beside = excess.beside(weights, heads)[own]
                found = minimise_in_balls(beside, norm, radius[own], weights[own])
                weights[own], steps[own] = found.weights, steps[own] + found.steps
        beside = excess.beside(weights, heads).rebased(weights)
        gap = relative_gap(norm, weights / radius[:, None, None], beside.gradient(weights))
        if (gap <= tolerance(norm)).all():
            break
    return Minima(weights, gap.reshape(-1, heads).max(axis=1), steps)
