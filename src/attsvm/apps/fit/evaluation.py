"""What a layer with given weights does on a problem."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from attsvm.measures import attention_of
from attsvm.problem import Problem


@dataclass(frozen=True)
class Evaluation:
    """Predictions and attention of a layer on a problem, for its N unmasked queries.

    Attributes
    ----------
    margins : ndarray, shape (N,)
        Label times output.
    largest : ndarray, shape (N,)
        Largest softmax probability of the query.
    attention : ndarray, shape (n, Q, T)
        Softmax probabilities; 0 at masked tokens.
    """

    margins: Float[np.ndarray, " N"]
    largest: Float[np.ndarray, " N"]
    attention: Float[np.ndarray, "n Q T"]

    @property
    def correct(self) -> Bool[np.ndarray, " N"]:
        """Whether the output has the sign of the label."""
        found: Bool[np.ndarray, " N"] = self.margins > 0
        return found

    @property
    def accuracy(self) -> float:
        """Share of correct queries."""
        return float(self.correct.mean())


def evaluate(problem: Problem, weights: np.ndarray, head: np.ndarray, intercept: float = 0.0) -> Evaluation:
    """Evaluate a layer with these weights and this head on a problem.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and no batch axes.
    weights : ndarray, shape (d_k, d_q), or (d_k,) for a prompt
    head : ndarray, shape (d,)
    intercept : float
        Added to the output.

    Returns
    -------
    Evaluation
    """
    active = problem.canonical.active
    attention = attention_of(problem, weights)
    outputs = (attention * (problem.tokens @ head)[:, None, :]).sum(axis=-1) + intercept
    labels = problem_labels(problem)
    return Evaluation((labels * outputs)[active], attention.max(axis=-1)[active], attention)


def problem_labels(problem: Problem) -> Float[np.ndarray, "n Q"]:
    """The labels with a query axis, also if the problem has none."""
    assert problem.labels is not None
    labels: np.ndarray = problem.labels.reshape(problem.canonical.active.shape)
    return labels
