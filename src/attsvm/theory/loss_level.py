"""The level of the loss below which every query prefers its optimal token to its second one.

:func:`descent_direction` is that of steepest descent of the loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import lambertw

from attsvm._utils.shapes import Bool, Float
from attsvm.losses import OutputLoss
from attsvm.measures import attention_of
from attsvm.problem import Problem
from attsvm.regularization import scalar_of
from attsvm.theory.smoothness import Extent
from attsvm.training import LossGradient

DOUBLINGS = 200
"""Steps of the search for a radius that is large enough."""
HALVINGS = 60
"""Steps of a bisection; the interval shrinks below the rounding of its ends."""


def descent_direction(
    problem: Problem, weights: Float[np.ndarray, "*lead"], loss: OutputLoss
) -> Float[np.ndarray, "*lead"]:
    """−∇L(W)/‖∇L(W)‖ of the mean loss with the linear head; zero where the gradient is zero.

    ``problem``: with labels ±1 and a head.
    """
    axes = 2 if problem.has_queries else 1
    rows = weights.reshape(-1, *weights.shape[weights.ndim - axes :])
    gradient, _ = LossGradient(problem, loss=loss, trials=len(rows))({"W" if problem.has_queries else "p": rows})
    (slope,) = (x.reshape(len(rows), -1) for x in gradient.values())
    # the squares of a small gradient must not underflow
    largest = np.abs(slope).max(axis=1, keepdims=True)
    unit = slope / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(unit, axis=1, keepdims=True)
    return np.asarray(-(unit / np.where(length > 0, length, 1.0)).reshape(weights.shape))


@dataclass(frozen=True)
class LossLevel:
    """The loss of the queries above its infimum, and what it implies."""

    problem: Problem
    loss: OutputLoss
    gamma: Float[np.ndarray, "*batch n Q T"]  # the scores
    rest: Bool[np.ndarray, "*batch n Q T"]  # the tokens that are not optimal
    found: Extent

    @cached_property
    def second(self) -> Float[np.ndarray, "*batch n Q"]:
        """The highest score of a token that is not optimal; that of the optimal token if there is no other."""
        highest = np.max(np.where(self.rest, self.gamma, -np.inf), axis=-1)
        return np.asarray(np.where(self.found.compared, highest, self.found.best))

    @cached_property
    def lowest_loss(self) -> Float[np.ndarray, "*batch n Q"]:
        """The loss of each query at its optimal token."""
        return scalar_of(self.loss).value(self.found.best)

    @property
    def score_gap(self) -> Float[np.ndarray, "*batch"]:
        """The smallest difference of the best and the second score; ∞ if no query has two tokens."""
        gap = self.found.best - self.second
        return np.asarray(np.min(np.where(self.found.compared, gap, np.inf), axis=(-2, -1)))

    @cached_property
    def threshold(self) -> Float[np.ndarray, "*batch"]:
        """The smallest ℓ(second) − ℓ(best) of a query."""
        # an excess below this leaves f_i above the second score
        each = scalar_of(self.loss).value(self.second) - self.lowest_loss
        return np.asarray(np.min(np.where(self.found.compared, each, np.inf), axis=(-2, -1)))

    def excess(self, weights: np.ndarray) -> Float[np.ndarray, "*lead"]:
        """Σ_i ℓ(f_i) − ℓ(γ_i,best), over the queries."""
        finite = np.where(np.isfinite(self.gamma), self.gamma, 0.0)
        outputs = np.sum(attention_of(self.problem, weights) * finite, axis=-1)
        each = scalar_of(self.loss).value(outputs) - self.lowest_loss
        # the output is a mean of the scores; its rounding can exceed the best one
        return np.asarray(np.sum(np.where(self.found.compared, np.maximum(each, 0.0), 0.0), axis=(-2, -1)))

    def relative(self, excess: Float[np.ndarray, "*lead"]) -> Float[np.ndarray, "*lead"]:
        """The excess over the threshold; ∞ if the threshold is not positive."""
        threshold = np.broadcast_to(self.threshold, excess.shape)
        return np.asarray(np.divide(excess, threshold, out=np.full(excess.shape, np.inf), where=threshold > 0))

    def radius_along(
        self, direction: Float[np.ndarray, "*lead"], favoured: Bool[np.ndarray, "*trials"]
    ) -> Float[np.ndarray, "*trials"]:
        """The smallest R with a relative excess below 1 at R' · direction for all R' ≥ R; ∞ where not favoured.

        Where the direction favours the optimal tokens and the excess is below 1, every output grows with R. So the
        set of such R is a half-line.
        """
        axes = (1,) * (direction.ndim - favoured.ndim)

        def below(radius: np.ndarray) -> np.ndarray:
            scaled = np.where(np.isfinite(radius), radius, 0.0).reshape(favoured.shape + axes) * direction
            return np.asarray(self.relative(self.excess(scaled)) < 1)

        return least_radius(below, favoured, DOUBLINGS)

    def longest_step(
        self, excess: Float[np.ndarray, "*lead"], margin: Float[np.ndarray, "*batch"]
    ) -> Float[np.ndarray, "*lead"]:
        """The longest step along the negative gradient that decreases the loss wherever the excess is at most this.

        Let e_i = γ_i,best − f_i, μ the margin of the Att-SVM direction, H_i the largest difference of two logits per
        length of the weights, and ρ_i a lower bound of the optimal token's probability. The gradient is at least
        (μ/n) Σ |ℓ'| ρ_i e_i long. Along a unit step |f_i'| ≤ H_i e_i and |f_i''| ≤ H_i² e_i, so that e_i grows at most
        by exp(H_i δ), and the second derivative of the loss is at most (1/n) Σ H_i² (M₀ G + M₁) e_i exp(H_i δ). A step
        δ gains at least half of its first-order gain if δ exp(H_i δ) H_i² (M₀ G + M₁) ≤ μ |ℓ'| ρ_i for all i.
        """
        found = self.found
        gap = found.best - self.second
        above = self._lowest_output(excess) - self.second
        # f_i ≤ ρ_i γ_best + (1 − ρ_i) γ_second, hence ρ_i ≥ (f_i − γ_second)/(γ_best − γ_second)
        probability = np.divide(above, gap, out=np.zeros(above.shape), where=np.broadcast_to(gap > 0, above.shape))
        # H²(M₀G + M₁), and μ |ℓ'| ρ below
        bend = found.reach**2 * (found.curvature * found.spread + found.most_slope)
        gain = margin[..., None, None] * found.least_slope * np.maximum(probability, 0.0)
        usable = np.broadcast_to(found.compared & (bend > 0), gain.shape)
        ratio = np.divide(gain, bend, out=np.zeros(gain.shape), where=usable)
        reach = np.where(found.reach > 0, found.reach, 1.0)
        # δ exp(Hδ) = x has the solution W(Hx)/H with Lambert's function W
        each = np.where(usable, lambertw(ratio * reach).real / reach, np.inf)
        below = (self.relative(excess) < 1) & np.isfinite(margin)
        return np.where(below, each.min(axis=(-2, -1)), 0.0)

    def _lowest_output(self, excess: Float[np.ndarray, "*lead"]) -> Float[np.ndarray, "*lead n Q"]:
        """A lower bound of each output, not below the second score, for losses up to this excess."""
        # no term of E is negative, so that ℓ(f_i) ≤ ℓ(γ_i,best) + E; ℓ decreases, and is inverted by bisection
        level = excess[..., None, None] + self.lowest_loss
        low = np.broadcast_to(self.second, level.shape)
        high = np.broadcast_to(self.found.best, level.shape)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            above = scalar_of(self.loss).value(middle) > level
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return low


def least_radius(
    holds: Callable[[np.ndarray], np.ndarray], possible: Bool[np.ndarray, "*trials"], doublings: int
) -> Float[np.ndarray, "*trials"]:
    """The smallest radius with ``holds``, which then holds at every larger one, too.

    ∞ where it is not possible, or no radius up to 2^doublings is large enough.
    """
    # doubling encloses the radius, and bisection finds it
    high = np.ones(possible.shape)
    for _ in range(doublings):
        more = possible & ~holds(high)
        if not more.any():
            break
        high = np.where(more, 2.0 * high, high)
    low = np.zeros(possible.shape)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        fine = holds(middle)
        low, high = np.where(fine, low, middle), np.where(fine, middle, high)
    return np.where(possible & holds(high), high, np.inf)
