"""The decisions of a head: for which token, against which runner-up, and whether they follow a pattern."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.errors import ProblemError
from attsvm.inspect.patterns import PATTERNS, Pattern
from attsvm.inspect.source import Source
from attsvm.inspect.weights import Layer, check_head


def decisions(
    logits: Float[np.ndarray, "n Q T"], allowed: Bool[np.ndarray, "n Q T"], follows: Pattern | None
) -> tuple[Int[np.ndarray, "n Q"], Int[np.ndarray, "n Q"]]:
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


def pattern_of(name: str | None, layer: Layer, tokens: Int[np.ndarray, "n T"] | None) -> Pattern | None:
    """The tokens (n, Q, T) that follow a pattern from each query.

    Raises ProblemError if there is no such pattern, or the tokens are not known.
    """
    if name is None:
        return None
    if name not in PATTERNS:
        raise ProblemError(f"pattern: expected one of {', '.join(PATTERNS)}, got {name!r}")
    if tokens is None:
        raise ProblemError("pattern: expected a batch with input_ids, so that tokens are known, got one without")
    follows: Pattern = PATTERNS[name](layer.positions, tokens) & layer.allowed
    return follows


def decisions_of(
    source: Source, layer: int, heads: Sequence[int], pattern: str | None
) -> tuple[Layer, Bool[np.ndarray, "n heads Q T"]]:
    """A layer, and the tokens that its heads decide for: the selected one, or those of the pattern."""
    captured = source.captured(layer)
    for head in heads:
        check_head(layer, head, captured)
    follows = pattern_of(pattern, captured, source.tokens)
    decided = []
    for head in heads:
        keys, queries = captured.projected(head, captured.tokens, captured.queries)
        selected, _ = decisions(queries @ keys.mT, captured.allowed, follows)
        chosen = np.arange(captured.allowed.shape[-1]) == selected[..., None]
        decided.append(chosen if follows is None else follows & (selected >= 0)[..., None])
    if not np.any(decided):
        raise ProblemError(f"batch: no query of layer {layer}, heads {list(heads)}, makes such a decision")
    return captured, np.stack(decided, axis=1)
