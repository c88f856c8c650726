"""Measures of the attention of a head: how concentrated it is, on which tokens, and which patterns it follows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Int
from attsvm.inspect.weights import Mask, Scores, Selected

TokenIds = Int[np.ndarray, "n T"]
"""Which token of the vocabulary each is."""


class Measure(NamedTuple):
    """A number that every head has, with its title for pages, a short one for tables, and its meaning."""

    name: str
    title: str
    short: str
    what: str
    over: str | None = "queries"  # of what it is a mean

    @property
    def meaning(self) -> str:
        return self.what if self.over is None else f"{self.what}; mean over {self.over}"


MEASURES = (
    Measure("largest_probability", "Largest probability", "largest p", "the largest share of a query's attention"),
    Measure("effective_tokens", "Effective number of tokens", "tokens", "exp of the attention's entropy"),
    Measure("special_share", "Share to special tokens", "special", "attention to tokens such as [CLS] and [SEP]"),
    Measure("first_share", "Share to the first token", "first", "attention to the first token of the sequence"),
    Measure("own_share", "Share to the query's own token", "own", "attention of a query to its own token"),
    Measure(
        "previous_share",
        "Share to the previous token",
        "previous",
        "attention of a query to the token before it",
        "queries that may attend to it",
    ),
    Measure(
        "duplicate_share",
        "Share to duplicate tokens",
        "duplicate",
        "attention of a query to earlier occurrences of its own token",
        "queries that have one",
    ),
    Measure(
        "induction_share",
        "Share to induction tokens",
        "induction",
        "attention of a query to the tokens after earlier occurrences of its own",
        "queries that have one",
    ),
    Measure(
        "query_robustness",
        "Smallest change of a query",
        "query change",
        "smallest change of a query that alters its selection, over its norm",
    ),
    Measure(
        "key_robustness",
        "Smallest change of a key's input",
        "key change",
        "smallest change of the input of a key that alters the selection of a query, over its norm",
    ),
    Measure(
        "effective_rank",
        "Effective rank of W",
        "rank W",
        "exp of the entropy of its singular values; at most d_h. It leaves out rotary positions, and the scale at each"
        " token of norms of queries and keys",
        None,
    ),
    Measure(
        "margin_ratio",
        "Margin over the best margin",
        "margin",
        "smallest margin of W divided by that of the best matrix of the same Frobenius norm, for the same selection;"
        " the upper end of the interval",
        None,
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


def previous_tokens(own: Selected, tokens: TokenIds) -> Mask:
    """The token before the query's own place."""
    return np.asarray(np.arange(tokens.shape[1]) == own[..., None] - 1)


def duplicate_tokens(own: Selected, tokens: TokenIds) -> Mask:
    """Earlier places that hold the same token as the query's own place."""
    of_query = np.take_along_axis(tokens, np.maximum(own, 0), axis=1)
    return np.asarray((tokens[:, None, :] == of_query[..., None]) & (np.arange(tokens.shape[1]) < own[..., None]))


def induction_tokens(own: Selected, tokens: TokenIds) -> Mask:
    """Tokens that follow an earlier occurrence of the query's token, for all earlier occurrences.

    References: Olsson et al. (2022), *In-context Learning and Induction Heads*.
    """
    earlier = duplicate_tokens(own, tokens)
    following = np.zeros_like(earlier)
    following[..., 1:] = earlier[..., :-1]
    return np.asarray(following & (np.arange(tokens.shape[1]) < own[..., None]))


PATTERNS: dict[str, Callable[[Selected, TokenIds], Mask]] = {
    "previous token": previous_tokens,
    "duplicate token": duplicate_tokens,
    "induction": induction_tokens,
}
"""Patterns by the name of the set of heads that follow them."""


def selected_tokens(probabilities: Scores, allowed: Mask) -> Selected:
    """The token with the largest probability, −1 where there is no query."""
    return np.where(allowed.any(axis=-1), probabilities.argmax(axis=-1), -1)


def attention_measures(
    probabilities: Scores,
    allowed: Mask,
    there: Bool[np.ndarray, "n T"],
    special: Bool[np.ndarray, "n T"] | None,
    own: Selected | None,
    tokens: TokenIds | None = None,
) -> dict[str, float | None]:
    """The measures of a head's attention, means over the queries that may attend to several tokens; None for no such.

    ``there``: the tokens that are no padding. ``special``: which tokens are special; None if it is not known. ``own``:
    position of each query's own token, −1 where there is no query. None in cross-attention. ``tokens``: which token of
    the vocabulary each is; None if it is not known.
    """
    choosing = np.count_nonzero(allowed, axis=-1) > 1
    some = probabilities[choosing]
    shares = some / some.sum(axis=-1, keepdims=True)  # less than 1 in all where a sink takes a part
    logs = np.log(shares, out=np.zeros_like(some), where=some > 0)
    first = np.zeros(allowed.shape[::2], bool)
    first[np.arange(len(first)), there.argmax(axis=-1)] = True

    def share(tokens: np.ndarray) -> float | None:
        return _mean((probabilities * tokens[:, None, :]).sum(axis=-1)[choosing])

    numbers: dict[str, float | None] = dict.fromkeys(HEAD_SETS.values()) | {
        "largest_probability": _mean(some.max(axis=-1, initial=0.0)),
        "effective_tokens": _mean(np.exp(-(shares * logs).sum(axis=-1))),
        "special_share": None if special is None else share(special),
        "first_share": share(first),
    }
    if own is not None:
        at = np.maximum(own, 0)[..., None]
        numbers["own_share"] = _mean(np.take_along_axis(probabilities, at, axis=-1)[..., 0][choosing])
        numbers["previous_share"] = pattern_share(probabilities, allowed, previous_tokens(own, first))
        if tokens is not None:
            numbers["duplicate_share"] = pattern_share(probabilities, allowed, duplicate_tokens(own, tokens))
            numbers["induction_share"] = pattern_share(probabilities, allowed, induction_tokens(own, tokens))
    return {measure.name: numbers[measure.name] for measure in MEASURES if measure.name in numbers}


def pattern_share(probabilities: Scores, allowed: Mask, pattern: Mask) -> float | None:
    """Mean attention to the tokens of a pattern, over the queries with a choice that may attend to such a token.

    None if there is no such query.
    """
    there = pattern & allowed
    counted = there.any(axis=-1) & (np.count_nonzero(allowed, axis=-1) > 1)
    return _mean((probabilities * there).sum(axis=-1)[counted])


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
