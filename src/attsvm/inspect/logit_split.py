"""The logits of a head split by origin in the residual stream, and the decisions that they make."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from attsvm.errors import ProblemError
from attsvm.inspect.families.stream import CONSTANT, Parts
from attsvm.inspect.measures import PATTERNS, TokenIds
from attsvm.inspect.weights import Layer, Mask, Scores, Selected


@dataclass(frozen=True, eq=False, repr=False)
class LogitSplit:
    """The logits of one head, split by origin on the side of the queries and on the side of the keys."""

    head: int
    # "constant", embedding, positions, earlier heads such as "head 0.3", MLPs such as "MLP 0", and "biases"
    origins: list[str]
    # what each origin contributes to the queries, after rotary positions: the mean query for "constant", and for every
    # other origin its difference from its mean over all queries
    queries: Float[np.ndarray, "origins n Q d_h"]
    keys: Float[np.ndarray, "origins n T d_h"]  # in the same way, with means over all tokens
    scale: float  # factor of the logits
    # selected, runner_up: the token with the largest logit, and the one with the largest logit among the others; −1
    # where the query does not count
    selected: Selected
    runner_up: Selected
    error: float  # largest difference between the sum of all parts and the logits of the head

    def margins(self) -> Float[np.ndarray, "origins origins queries"]:
        """The logit of the selected token minus that of the runner-up, by origin of the queries and of the keys.

        The last axis counts the queries that have both.
        """
        there = self.selected >= 0
        i, q = np.nonzero(there)
        differences = self.keys[:, i, self.selected[there]] - self.keys[:, i, self.runner_up[there]]
        margins: np.ndarray = self.scale * np.einsum("amd,bmd->abm", self.queries[:, i, q], differences)
        return margins


def split_logits(parts: Parts, layer: Layer, head: int, follows: Mask | None) -> LogitSplit:
    """Split the logits of one head by origin; ``follows``: the pattern of the decisions that count."""
    # queries and keys are sums over the origins, q = Σ q_o and k = Σ k_o, so that q'k = Σ_o Σ_p q_o'k_p; with every
    # origin centred, all means together are one more origin, "constant"
    at = np.maximum(layer.positions, 0)[..., None]
    asking, seen = layer.positions >= 0, layer.allowed.any(axis=1)
    mean_key, mean_query = np.zeros(layer.tokens.shape[-1]), np.zeros(layer.queries.shape[-1])
    centred = {}
    for origin, part in parts.items():
        tokens = part.numpy()
        asked = np.take_along_axis(tokens, at, axis=1)
        of_key, of_query = tokens[seen].mean(axis=0), asked[asking].mean(axis=0)
        centred[origin] = layer.projected(head, tokens - of_key, asked - of_query, biases=False)
        mean_key, mean_query = mean_key + of_key, mean_query + of_query
    # the biases of the projections are constant, too
    constant = layer.projected(
        head, np.broadcast_to(mean_key, layer.tokens.shape), np.broadcast_to(mean_query, layer.queries.shape)
    )
    keys, queries = (np.stack(parts) for parts in zip(constant, *centred.values(), strict=True))
    logits = layer.logits(head)
    rebuilt = layer.scale * queries.sum(axis=0) @ keys.sum(axis=0).mT
    error = float(np.abs(np.where(layer.allowed, rebuilt - logits, 0.0)).max())
    decided = decisions(logits, layer.allowed, follows)
    return LogitSplit(head, [CONSTANT, *centred], queries, keys, layer.scale, *decided, error)


def decisions(logits: Scores, allowed: Mask, follows: Mask | None) -> tuple[Selected, Selected]:
    """Selected token and runner-up of each query, −1 for both where the query does not count."""
    logits = np.where(allowed, logits, -np.inf)
    selected = logits.argmax(axis=-1)
    same = np.arange(logits.shape[-1]) == selected[..., None]
    counts = np.ones(selected.shape, bool)
    if follows is not None:  # other tokens of the pattern are as right as the selected one
        counts = np.take_along_axis(follows, selected[..., None], axis=-1)[..., 0]
        same |= follows
    counts &= (allowed & ~same).any(axis=-1) & allowed.any(axis=-1)
    runner_up = np.where(same, -np.inf, logits).argmax(axis=-1)
    return np.where(counts, selected, -1), np.where(counts, runner_up, -1)


def pattern_of(name: str | None, layer: Layer, tokens: TokenIds | None) -> Mask | None:
    """The tokens (n, Q, T) that follow a pattern from each query.

    Raises ProblemError if there is no such pattern, or the tokens are not known.
    """
    if name is None:
        return None
    if name not in PATTERNS:
        raise ProblemError(f"pattern: expected one of {', '.join(PATTERNS)}, got {name!r}")
    if tokens is None:
        raise ProblemError("pattern: expected a batch with input_ids, so that tokens are known, got one without")
    follows: Mask = PATTERNS[name](layer.positions, tokens) & layer.allowed
    return follows
