"""The tokens that a trained layer attends to in a context, as the graph-SVM and the finite part predict it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.results import Batched, Status, per_trial, shared

LEVEL = 1e-6
"""Logits of the graph-SVM, whose margin is 1, that differ by less than this are equal."""


@dataclass(frozen=True, eq=False, repr=False)
class KeptTokens(Batched):
    """The tokens of n contexts that training keeps, and their shares of the attention in the limit.

    Attributes
    ----------
    probabilities : ndarray, shape (n, T)
        The limit of the attention; 0 for tokens that are dropped, and where a context is shorter than T.
    kept : bool ndarray, shape (n, T)
    ordered : bool ndarray, shape (n,)
        Whether the graph orders the tokens: those kept are in one component, above all others of the context. Where it
        does not, the direction of the graph-SVM still does, for this vocabulary.
    status : Status
        ``optimal``, or ``inaccurate`` if the graph-SVM or the finite part is not accurate.
    """

    kind: ClassVar[str] = "kept tokens"
    counted: ClassVar[str] = "contexts"

    ordered: np.ndarray = per_trial()
    kept: np.ndarray = per_trial()
    probabilities: np.ndarray = per_trial()
    status: Status = shared(Status.OPTIMAL, write=str, read=Status)


def limit_of_attention(
    logits: Float[np.ndarray, " N"], finite: Float[np.ndarray, " N"], offsets: Int[np.ndarray, " n+1"]
) -> tuple[Bool[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Which tokens are kept, and the softmax of ``finite`` over them: the limit of softmax(R · logits + finite)."""
    lengths, starts = np.diff(offsets), offsets[:-1]
    kept = logits >= np.repeat(np.maximum.reduceat(logits, starts), lengths) - LEVEL
    within = np.where(kept, finite, -np.inf)
    shares = np.exp(within - np.repeat(np.maximum.reduceat(within, starts), lengths))
    return kept, shares / np.repeat(np.add.reduceat(shares, starts), lengths)
