"""Minima of the loss of several attention heads, whose outputs are added up: each head in its ball, or all in one.

In a product of balls a point is stationary if that of each head is stationary beside the others, however small its
gradient is next to theirs. So the heads are minimised over in turn; they are coupled by the slopes ℓ' of the loss
alone, which are nearly constant once attention is saturated. One ball of all heads is that of the block-diagonal matrix
of their weights.
"""

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm
from attsvm.regularization.barrier_balls import minimise_in_balls, tolerance
from attsvm.regularization.barriers import Matrices, Values, barrier_of
from attsvm.regularization.excess import Excess
from attsvm.regularization.gaps import Gaps
from attsvm.regularization.interior_point import Minima, relative_gap
from attsvm.svm import PrimalIteration

ROUNDS = 100
"""Once attention is saturated, heads are coupled so weakly that a few rounds are enough."""


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
        # the weights outside of the blocks change no logit, and stay zero
        found = minimise_in_balls(excess.joined(heads), norm, radius, block_diagonal(start, heads))
        return found._replace(weights=diagonal_blocks(found.weights, heads))
    turns = _HeadRounds(excess, norm, radius, start, heads)
    last = turns.run(start.reshape(-1, heads, *start.shape[1:]), tolerance(norm), ROUNDS)
    return Minima(last.weights.reshape(start.shape), last.gap, last.steps)


class _HeadRounds(PrimalIteration):
    """Weights of all heads; in each round, those that are not stationary beside the others are minimised over."""

    def __init__(self, excess: Excess, norm: Norm, radius: Values, weights: Matrices, heads: int) -> None:
        self.excess, self.norm, self.radius, self.weights, self.heads = excess, norm, radius, weights.copy(), heads
        self.gap = np.full(len(weights), np.inf)  # the first round looks at every head

    def measure(self) -> tuple[np.ndarray, np.ndarray, bool]:
        models = (-1, self.heads, *self.weights.shape[1:])
        return self.weights.reshape(models), self.gap.reshape(-1, self.heads).max(axis=1), True

    def select(self, going: np.ndarray) -> None:
        each = np.repeat(going, self.heads)
        self.excess, self.radius = self.excess[each], self.radius[each]
        self.weights, self.gap = self.weights[each], self.gap[each]

    def advance(self) -> None:
        norm, head = self.norm, np.arange(len(self.gap)) % self.heads
        for h in range(self.heads):
            own = np.flatnonzero((head == h) & (self.gap > tolerance(norm)))
            if len(own):
                # each head is minimised over beside the new weights of those before it
                beside = self.excess.fix_other_heads(self.weights, self.heads)[own]
                self.weights[own] = minimise_in_balls(beside, norm, self.radius[own], self.weights[own]).weights
        # the gap of each head beside the others, as they are now
        beside = self.excess.fix_other_heads(self.weights, self.heads).rebased(self.weights)
        self.gap = relative_gap(norm, self.weights / self.radius[:, None, None], beside.gradient(self.weights))
