"""Measures of the attention of a head: how concentrated it is, and on which tokens."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm._utils.linear_algebra import softmax
from attsvm.inspect.patterns import (
    Pattern,
    duplicate_tokens,
    induction_tokens,
    pattern_share,
    previous_tokens,
)
from attsvm.svm.margin_interval import HeadProblem


class Measure(NamedTuple):
    """A number that every head has, with its title for pages, a short one for tables, and its meaning."""

    name: str
    title: str
    short: str
    meaning: str


MEASURES = (
    Measure(
        "largest_probability",
        "Largest probability",
        "largest p",
        "the largest share of a query's attention; mean over queries",
    ),
    Measure(
        "effective_tokens", "Effective number of tokens", "tokens", "exp of the attention's entropy; mean over queries"
    ),
    Measure(
        "special_share",
        "Share to special tokens",
        "special",
        "attention to tokens such as [CLS] and [SEP]; mean over queries",
    ),
    Measure(
        "first_share",
        "Share to the first token",
        "first",
        "attention to the first token of the sequence; mean over queries",
    ),
    Measure(
        "own_share", "Share to the query's own token", "own", "attention of a query to its own token; mean over queries"
    ),
    Measure(
        "previous_share",
        "Share to the previous token",
        "previous",
        "attention of a query to the token before it; mean over queries that may attend to it",
    ),
    Measure(
        "duplicate_share",
        "Share to duplicate tokens",
        "duplicate",
        "attention of a query to earlier occurrences of its own token; mean over queries that have one",
    ),
    Measure(
        "induction_share",
        "Share to induction tokens",
        "induction",
        "attention of a query to the tokens after earlier occurrences of its own; mean over queries that have one",
    ),
    Measure(
        "effective_rank",
        "Effective rank of W",
        "rank W",
        "exp of the entropy of its singular values; at most d_h. It leaves out rotary positions, and the scale at each"
        " token of norms of queries and keys",
    ),
    Measure(
        "margin_ratio",
        "Margin over the best margin",
        "margin",
        "smallest margin of W divided by that of the best matrix of the same Frobenius norm, for the same selection;"
        " the upper end of the interval",
    ),
)
"""All measures, in the order of the heat maps."""


class Attention(NamedTuple):
    """Attention of one head."""

    selected: Int[np.ndarray, "n Q"]  # the token with the largest probability, −1 where there is no query
    probabilities: Float[np.ndarray, "n Q T"]
    numbers: dict[str, float | None]  # the measures; None where one is not defined


HEAD_SETS = {
    "previous token": "previous_share",
    "first token": "first_share",
    "special tokens": "special_share",
    "own place": "own_share",
    "duplicate token": "duplicate_share",
    "induction": "induction_share",
}
"""Names of sets of heads, and the measure by which a head belongs to them."""


def attention_of(
    problem: HeadProblem,
    allowed: Bool[np.ndarray, "n Q T"],
    special: Bool[np.ndarray, "n T"] | None,
    own: Int[np.ndarray, "n Q"] | None,
    tokens: Int[np.ndarray, "n T"] | None = None,
) -> Attention:
    """The tokens that a head selects, and the measures of its attention.

    ``special``: which tokens are special; None if it is not known. ``own``: position of each query's own token, −1
    where there is no query. None in cross-attention. ``tokens``: which token of the vocabulary each is; None if it is
    not known.

    Means are taken over the queries that may attend to at least two tokens.
    """
    probabilities = softmax(problem.logits(), allowed)
    choosing = np.count_nonzero(allowed, axis=-1) > 1
    selected = np.where(allowed.any(axis=-1), probabilities.argmax(axis=-1), -1)
    some = probabilities[choosing]
    logs = np.log(some, out=np.zeros_like(some), where=some > 0)
    first = np.zeros(allowed.shape[::2], bool)
    present = allowed.any(axis=1)
    first[np.arange(len(first)), present.argmax(axis=-1)] = True

    def share(tokens: np.ndarray | None) -> float | None:
        if tokens is None:
            return None
        return _mean((probabilities * tokens[:, None, :]).sum(axis=-1)[choosing])

    def follows(pattern: Pattern) -> float | None:
        return pattern_share(probabilities, allowed, pattern)

    to_own = previous = duplicate = induction = None
    if own is not None:
        previous = follows(previous_tokens(own, allowed.shape[-1]))
        if tokens is not None:
            duplicate, induction = follows(duplicate_tokens(own, tokens)), follows(induction_tokens(own, tokens))
        at = np.maximum(own, 0)[..., None]
        to_own = _mean(np.take_along_axis(probabilities, at, axis=-1)[..., 0][choosing])
    numbers = {
        "largest_probability": _mean(some.max(axis=-1, initial=0.0)),
        "effective_tokens": _mean(np.exp(-(some * logs).sum(axis=-1))),
        "special_share": share(special),
        "first_share": share(first),
        "own_share": to_own,
        "previous_share": previous,
        "duplicate_share": duplicate,
        "induction_share": induction,
    }
    return Attention(selected, probabilities, numbers)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
