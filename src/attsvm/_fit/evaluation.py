"""Evaluate a layer with given weights on a problem."""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.measures import attention_of
from attsvm.problem import Problem


@dataclass(frozen=True)
class LayerEvaluation:
    """Predictions and attention of a layer on a problem, for its N unmasked queries."""

    margins: Float[np.ndarray, " N"]  # label times output
    largest: Float[np.ndarray, " N"]  # largest softmax probability of the query
    attention: Float[np.ndarray, "n Q T"]  # softmax probabilities; 0 at masked tokens

    @property
    def correct(self) -> Bool[np.ndarray, " N"]:
        """Whether the output has the sign of the label."""
        found: Bool[np.ndarray, " N"] = self.margins > 0
        return found

    @property
    def accuracy(self) -> float:
        """Share of correct queries."""
        return float(self.correct.mean())


def evaluate(problem: Problem, weights: np.ndarray, head: np.ndarray, intercept: float = 0.0) -> LayerEvaluation:
    """Evaluate a layer with these weights and this head on a problem.

    ``problem``: with labels ±1 and no batch axes. ``weights``: shape (d_k, d_q), or (d_k,). ``head``: shape (d,).
    ``intercept``: added to the output.
    """
    active = problem.canonical.active
    attention = attention_of(problem, weights)
    outputs = (attention * (problem.tokens @ head)[:, None, :]).sum(axis=-1) + intercept
    labels = np.asarray(problem.labels).reshape(active.shape)
    return LayerEvaluation((labels * outputs)[active], problem.copies.total(attention).max(axis=-1)[active], attention)
