"""Measures of the attention of a head: how concentrated it is, on which tokens, and which patterns it follows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

Pattern = Bool[np.ndarray, "n Q T"]


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
        "query_robustness",
        "Smallest change of a query",
        "query change",
        "smallest change of a query that alters its selection, over its norm; mean over queries",
    ),
    Measure(
        "key_robustness",
        "Smallest change of a key's input",
        "key change",
        "smallest change of the input of a key that alters the selection of a query, over its norm; mean over queries",
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


HEAD_SETS = {
    "previous token": "previous_share",
    "first token": "first_share",
    "special tokens": "special_share",
    "own place": "own_share",
    "duplicate token": "duplicate_share",
    "induction": "induction_share",
}
"""Names of sets of heads, and the measure by which a head belongs to them."""


def previous_tokens(own: Int[np.ndarray, "n Q"], num_tokens: int) -> Pattern:
    """The token before the query's own place."""
    places = np.arange(num_tokens)
    return np.asarray(places == own[..., None] - 1)


def duplicate_tokens(own: Int[np.ndarray, "n Q"], tokens: Int[np.ndarray, "n T"]) -> Pattern:
    """Earlier places that hold the same token as the query's own place."""
    places = np.arange(tokens.shape[1])
    of_query = np.take_along_axis(tokens, np.maximum(own, 0), axis=1)
    return np.asarray((tokens[:, None, :] == of_query[..., None]) & (places < own[..., None]))


def induction_tokens(own: Int[np.ndarray, "n Q"], tokens: Int[np.ndarray, "n T"]) -> Pattern:
    """Tokens that follow an earlier occurrence of the query's token, for all earlier occurrences.

    References: Olsson et al. (2022), *In-context Learning and Induction Heads*.
    """
    earlier = duplicate_tokens(own, tokens)
    following = np.zeros_like(earlier)
    following[..., 1:] = earlier[..., :-1]
    places = np.arange(tokens.shape[1])
    return np.asarray(following & (places < own[..., None]))


PATTERNS: dict[str, Callable[[Int[np.ndarray, "n Q"], Int[np.ndarray, "n T"]], Pattern]] = {
    "previous token": lambda own, tokens: previous_tokens(own, tokens.shape[1]),
    "duplicate token": duplicate_tokens,
    "induction": induction_tokens,
}
"""Patterns by the name of the set of heads that follow them."""


class Attention(NamedTuple):
    """Attention of one head."""

    selected: Int[np.ndarray, "n Q"]  # the token with the largest probability, −1 where there is no query
    probabilities: Float[np.ndarray, "n Q T"]
    numbers: dict[str, float | None]  # the measures; None where one is not defined


def attention_of(
    probabilities: Float[np.ndarray, "n Q T"],
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
    choosing = np.count_nonzero(allowed, axis=-1) > 1
    selected = np.where(allowed.any(axis=-1), probabilities.argmax(axis=-1), -1)
    some = probabilities[choosing]
    shares = some / some.sum(axis=-1, keepdims=True)  # less than 1 in all where a sink takes a part
    logs = np.log(shares, out=np.zeros_like(some), where=some > 0)
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
        "effective_tokens": _mean(np.exp(-(shares * logs).sum(axis=-1))),
        "special_share": share(special),
        "first_share": share(first),
        "own_share": to_own,
        "previous_share": previous,
        "duplicate_share": duplicate,
        "induction_share": induction,
    }
    return Attention(selected, probabilities, numbers)


def pattern_share(
    probabilities: Float[np.ndarray, "n Q T"], allowed: Bool[np.ndarray, "n Q T"], pattern: Pattern
) -> float | None:
    """Mean attention to the tokens of a pattern, over the queries with a choice that may attend to such a token.

    None if there is no such query.
    """
    there = pattern & allowed
    counted = there.any(axis=-1) & (np.count_nonzero(allowed, axis=-1) > 1)
    shares = (probabilities * there).sum(axis=-1)[counted]
    return float(shares.mean()) if shares.size else None


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
