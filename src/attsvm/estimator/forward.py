"""Outputs and attention of prompt attention with a linear head, for sequences of any length, without padding."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from attsvm.datasets.sequences import ROWS_AT_ONCE, Sequences
from attsvm.errors import ProblemError


@dataclass(frozen=True)
class Model:
    """f(X) = V X' softmax(X p) + b."""

    prompt: Float[np.ndarray, " d"]
    head: Float[np.ndarray, "C d"]  # one row for two classes
    intercept: Float[np.ndarray, " C"]


@dataclass(frozen=True)
class Output:
    """Outputs for n sequences of N tokens in total."""

    decision: Float[np.ndarray, "n C"]
    attention: Float[np.ndarray, " N"]  # sums to 1 in each sequence
    # position of the token with the largest logit in its sequence; the first one on ties
    selected: Int[np.ndarray, " n"]


def forward(model: Model, sequences: Sequences) -> Output:
    """Apply a model to n sequences of at least one token each, in float64.

    Raises ProblemError if a product of a token with prompt or head overflows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        of_tokens = token_products(np.column_stack([model.prompt, model.head.T]), sequences)
    if not np.isfinite(of_tokens).all():
        number = int(np.searchsorted(sequences.offsets, np.argmin(np.isfinite(of_tokens).all(axis=1)), "right")) - 1
        raise ProblemError(
            f"X: expected smaller numbers in sequence {number}: its outputs overflow with the fitted weights"
        )
    starts = sequences.offsets[:-1]
    sequence_of = np.repeat(np.arange(len(sequences)), sequences.lengths)
    logits = of_tokens[:, 0]
    largest = np.maximum.reduceat(logits, starts)
    attention = np.exp(logits - largest[sequence_of])
    attention /= np.add.reduceat(attention, starts)[sequence_of]
    decision = np.add.reduceat(attention[:, None] * of_tokens[:, 1:], starts) + model.intercept
    winners = np.flatnonzero(logits == largest[sequence_of])
    _, first = np.unique(sequence_of[winners], return_index=True)
    return Output(decision, attention, winners[first] - starts)


def effective_number(attention: Float[np.ndarray, " N"], sequences: Sequences) -> Float[np.ndarray, " n"]:
    """exp(−Σ a log a) of each sequence: T for uniform attention, 1 if one token gets all of it."""
    logarithm = np.log(np.where(attention > 0, attention, 1.0))
    return np.exp(-np.add.reduceat(attention * logarithm, sequences.offsets[:-1]))


def token_products(columns: np.ndarray, sequences: Sequences) -> np.ndarray:
    """⟨token, column⟩ of every token (N, k), each row of the table multiplied at most once."""
    table, ids = sequences.table, sequences.ids
    rows, ids = np.unique(ids, return_inverse=True) if len(ids) < len(table) else (np.arange(len(table)), ids)
    blocks = [table[rows[start : start + ROWS_AT_ONCE]] @ columns for start in range(0, len(rows), ROWS_AT_ONCE)]
    return np.asarray(np.concatenate(blocks)[ids])
