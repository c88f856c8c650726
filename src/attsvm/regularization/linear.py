"""The excess of the loss under a linear head, and the loss as a function of that head."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from attsvm._utils.linear_algebra import softmax
from attsvm.problem import Problem
from attsvm.regularization.excess import Excess, Scalar, Scaled, active_queries
from attsvm.regularization.trust_region import Curvature, Expansion


@dataclass(frozen=True, kw_only=True)
class LinearExcess(Excess):
    """The excess under h(o) = v'o."""

    values: np.ndarray  # shape (N, T, d), y_i x_it, the input of the head
    head: np.ndarray  # shape (d,)

    @classmethod
    def of(cls, problem: Problem, head: np.ndarray, loss: Scalar) -> "LinearExcess":
        """For a problem without batch axes, over the loss of the head's optimal tokens."""
        labels, tokens, keys, queries, allowed = active_queries(problem)
        values = labels[:, None, None] * tokens
        best = np.argmax(np.where(allowed, values @ head, -np.inf), axis=1)
        own = keys - keys[np.arange(len(best)), best][:, None]
        return cls(keys=own, queries=queries, allowed=allowed, values=values, head=head, loss=loss, reference=best)

    def under(self, head: np.ndarray) -> "LinearExcess":
        """The same under another head, over the loss of its optimal tokens."""
        other = replace(self, head=head)
        return other.over(other.optimal)

    @cached_property
    def optimal(self) -> np.ndarray:
        return np.asarray(np.argmax(np.where(self.allowed, self.values @ self.head, -np.inf), axis=1))

    @cached_property
    def worse(self) -> np.ndarray:
        """d_t = γ_α − γ_t, shape (N, T); 0 where masked. Negative where a token is better than the reference."""
        kept = self.values[np.arange(len(self.reference)), self.reference][:, None]
        return np.where(self.allowed, (kept - self.values) @ self.head, 0.0)

    @cached_property
    def margins(self) -> np.ndarray:
        """Return γ_α, shape (N,)."""
        return np.asarray(self.values[np.arange(len(self.reference)), self.reference] @ self.head)

    @property
    def differs(self) -> np.ndarray:
        """The tokens of another score than the reference, shape (N, T)."""
        return np.asarray(self.worse != 0)

    def same_values(self, one: np.ndarray, other: np.ndarray) -> bool:
        index = np.arange(len(one))
        return bool((self.worse[index, one] == self.worse[index, other]).all())

    def kept(self, weights: np.ndarray) -> np.ndarray:
        """The token of largest logit alone: under a linear head the best mixture is a single token."""
        selected = np.argmax(self.logits(weights), axis=1)
        return np.asarray(selected[:, None] == np.arange(self.allowed.shape[1]))

    def pooled(self, weights: np.ndarray) -> np.ndarray:
        """y_i o_i, shape (N, d)."""
        attention = softmax(self.logits(weights))
        return np.asarray((attention[:, None] @ self.values)[:, 0])

    def _scaled(self, logits: np.ndarray) -> Scaled:
        d = self.worse
        attention, shortfall = softmax(logits), logits - logits.max(axis=1, keepdims=True)
        counted = self.allowed & (d != 0)
        # the largest term of each query is factored out; queries that do not change the loss have none
        moves = counted.any(axis=1)
        c = np.where(moves, np.max(np.where(counted, shortfall, -np.inf), axis=1), 0.0)
        winner = attention.max(axis=1)  # 1/S
        terms = np.exp(np.where(counted, shortfall - c[:, None], -np.inf)) * d * winner[:, None]
        drop = terms.sum(axis=1)
        drops = np.exp(c) * drop
        log_mean, log_slope = self.loss.log_mean_slope(self.margins, drops), self.loss.log_slope(self.margins - drops)
        log_mean, log_slope = (np.where(moves, c + log, -np.inf) for log in (log_mean, log_slope))
        log_scale = max(np.max(log_mean), np.max(log_slope))
        share = 1.0 / len(drop)
        scaled = share * float(np.sum(np.exp(log_mean - log_scale) * drop))
        of_drop = terms - attention * drop[:, None]
        size = share * np.exp(log_slope - log_scale)
        gradient = size[:, None] * of_drop
        bend = self.loss.bend(self.margins - drops) * np.exp(c)
        return Scaled(
            scaled,
            float(log_scale),
            attention,
            gradient,
            bend[:, None, None] * (gradient[:, :, None] * of_drop[:, None]),
        )


@dataclass(frozen=True)
class HeadLoss:
    """log L as a function of the head v, for fixed attention: ``pooled`` are y_i o_i, shape (N, d)."""

    pooled: np.ndarray
    loss: Scalar

    def value(self, head: np.ndarray) -> float:
        assert self.loss.log_value is not None
        return float(logsumexp(self.loss.log_value(self.pooled @ head)) - np.log(len(self.pooled)))

    def rebased(self, head: np.ndarray) -> "HeadLoss":
        return self

    def expand(self, head: np.ndarray) -> Expansion:
        assert self.loss.log_value is not None
        margins = self.pooled @ head
        log_values = self.loss.log_value(margins)
        total = logsumexp(log_values)
        slope = np.exp(self.loss.log_slope(margins) - total)
        core = np.diag(slope * self.loss.bend(margins)) - np.outer(slope, slope)
        return Expansion(float(total - np.log(len(margins))), -slope @ self.pooled, Curvature(self.pooled, core))
