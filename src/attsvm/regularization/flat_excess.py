"""The excess of one problem as a function of the numbers of W, row by row, and what a path asks about it."""

from dataclasses import replace
from typing import Self

import numpy as np

from attsvm.problem import Problem
from attsvm.regularization.excess import Excess, HeadOutputs
from attsvm.regularization.gaps import Flat
from attsvm.regularization.margin_losses import HeadFunction, LinearFunction, Scalar

KEPT = 1e-3
"""Smallest attention of a token that counts as kept."""
LOST = 1e-12
"""Largest attention of dropped tokens beside which several kept ones leave only rounding in the gradient."""


class FlatExcess(Flat[Excess]):
    """log(L(W) − L_α) of one problem under a fixed prediction head, or −log(L_α − L(W)).

    Arrays of queries have those that are active alone.
    """

    @classmethod
    def of(cls, problem: Problem, head: HeadFunction | LinearFunction, loss: Scalar) -> Self:
        """For a problem without batch axes, over the loss of the tokens of largest y h(x).

        Raises ProblemError if the head is not a number at some token.
        """
        assert problem.labels is not None
        active = problem.canonical.active
        tokens = np.broadcast_to(problem.tokens[:, None], (*active.shape, *problem.tokens.shape[1:]))
        labels = problem.labels if problem.has_query_axis else problem.labels[..., None]
        # m equal keys have equal attention under all weights, so that o contains the mean of their tokens
        outputs = HeadOutputs(problem.copies.mean(tokens, axes=1)[active], labels[active], head)
        # zeros in place of the scores, which with_head computes for this prediction head
        stack = Excess.of(problem, loss, np.zeros(tokens.shape[:-1]))[:, active.ravel()]
        # L falls below L_α if α is not optimal, or if a mixture is better than α under a nonlinear head
        return cls(replace(stack, outputs=outputs, either_side=True)).with_head(head)

    @property
    def outputs(self) -> HeadOutputs:
        """The outputs of the prediction head."""
        assert self.stack.outputs is not None
        return self.stack.outputs

    def with_head(self, head: HeadFunction | LinearFunction) -> Self:
        """Exchange the prediction head, over the loss of its optimal tokens.

        Raises ProblemError if the head is not a number at some token.
        """
        outputs = replace(self.outputs, head=head)
        scores = outputs.scores(self.stack.allowed[0])[None]
        return self._with_best_reference(replace(self.stack, outputs=outputs, scores=scores))

    def restricted(self, allowed: np.ndarray) -> Self:
        """The excess if each query attends to these tokens only, over the best of them."""
        return self._with_best_reference(replace(self.stack, allowed=allowed[None]))

    def _with_best_reference(self, stack: Excess) -> Self:
        return type(self)(stack.with_reference(stack.optimal))

    @property
    def is_linear(self) -> bool:
        """Whether the prediction head is linear, so that the best mixture of tokens is a single one."""
        return self.stack.is_linear

    @property
    def optimal(self) -> np.ndarray:
        """The tokens of least loss, shape (n,)."""
        return np.asarray(self.stack.optimal[0])

    @property
    def random_starts(self) -> int:
        """Branches from random weights of each size, besides those that start at zero and at the optimal tokens."""
        return 0 if self.is_linear else 1

    @property
    def depends_on_attention(self) -> bool:
        """Whether the loss depends on W: some token with another score than the optimal one has another key."""
        stack = self.stack
        # ∂L/∂W is a sum of rows (k_α − k_t) z' of tokens with another score than α, or another x under a nonlinear head
        return bool((stack.moving & stack.differs & np.asarray(stack.queries.any(axis=-1))[..., None]).any())

    def logits(self, x: np.ndarray) -> np.ndarray:
        """s_t − s_α + log m, shape (n, T); −inf where masked."""
        return np.asarray(self.stack.logits(self.matrix(x))[0])

    def attention(self, x: np.ndarray) -> np.ndarray:
        """The attention, shape (n, T)."""
        return np.asarray(np.exp(self.stack.log_attention(self.matrix(x))[0]))

    def selected(self, x: np.ndarray) -> np.ndarray:
        """The token of largest logit, shape (n,)."""
        return np.asarray(self.stack.selected(self.matrix(x))[0])

    def selects_optimal(self, x: np.ndarray) -> bool:
        """Whether each query selects a token of least loss."""
        scores_of = self.stack.scores_of
        return bool((scores_of(self.selected(x)[None]) == scores_of(self.stack.optimal)).all())

    def kept(self, x: np.ndarray) -> np.ndarray:
        """The tokens that are kept in the limit if these weights are far along the path; bool, shape (n, T).

        Under a linear head the token of largest logit alone, otherwise those with an attention above 1e-3.
        """
        if self.is_linear:
            return np.asarray(self.selected(x)[:, None] == np.arange(self.stack.scores.shape[-1]))
        return np.asarray(self.attention(x) > KEPT)

    def is_rounding(self, x: np.ndarray) -> bool:
        """Whether the gradient is rounding: several tokens balance while the attention of the others vanishes."""
        if self.is_linear:
            return False
        attention = self.attention(x)
        kept = attention > KEPT
        # kept tokens balance in differences of order 1, so that the part of the dropped ones is lost in their rounding
        dropped = attention[self.stack.allowed[0] & ~kept]
        return bool((kept.sum(axis=1) > 1).any() and dropped.size and dropped.max() < LOST)

    def pooled(self, x: np.ndarray) -> np.ndarray:
        """y_i o_i, shape (n, d)."""
        pooled = (self.attention(x)[:, None] @ self.outputs.tokens)[:, 0]
        return np.asarray(self.outputs.labels[:, None] * pooled)

    def order(self, x: np.ndarray) -> tuple[int, float]:
        """(1, log(L − L_α)) or (−1, −log(L_α − L)), which sort like L."""
        stack, weights = self.stack, self.matrix(x)
        # −∞ where L ≤ L_α; there −log(L_α − L) has the digits, and it increases with L, too
        value = float(replace(stack, above=True).value(weights)[0])
        return (1, value) if value > -np.inf else (-1, float(replace(stack, above=False).value(weights)[0]))

    def loss_at(self, x: np.ndarray) -> float:
        """Compute the loss L(W)."""
        side, value = self.order(x)
        # value = ± log(± (L − L_α)), hence L = L_α ± exp(± value)
        return float(self.stack.infimum[0]) + side * float(np.exp(side * value))

    def same_as(self, other: object) -> bool:
        """Whether the values of two such functions of one problem can be compared."""
        if not isinstance(other, FlatExcess) or self.stack.above != other.stack.above:
            return False
        # logarithms of L − L_α and of L − L_β for other tokens β cannot be compared
        return bool((self.stack.reference == other.stack.reference).all())
