"""Shares of attention that follow a known pattern: the previous token, duplicate tokens, induction."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

Pattern = Bool[np.ndarray, "n Q T"]


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
