"""What an inspection knows of a layer, beside selections, concentration and margins, which it knows of every layer."""

from typing import NamedTuple

from attsvm.errors import ProblemError
from attsvm.inspect.explanation import check_split
from attsvm.inspect.source import Source


class Available(NamedTuple):
    """What is known of the heads of a layer."""

    # W: "acts on tokens"; "before the rotation" by rotary positions, or "of coordinates without rotation"; "without the
    # norms" of queries and keys, whose gains are a part of it; or "not known". With W there are directions, and changes
    # between two models.
    weights: str
    factors: bool  # whether the smallest change of the key and query weights is bounded
    keys: bool  # whether the smallest change of the input of a key is known
    reasons: bool  # whether logits are split by origin


def available(source: Source, index: int) -> Available:
    """What is known of a layer of a model."""
    layer, recipe = source.captured(index), source.layers[index].recipe
    if recipe is None:
        return Available("not known", factors=False, keys=False, reasons=False)
    parts = {
        "before the rotation": recipe.query.rotated,
        "of coordinates without rotation": not recipe.whole,
        "without the norms": recipe.normed,
    }
    weights = ", ".join(words for words, holds in parts.items() if holds) or "acts on tokens"
    try:
        check_split(source, index, layer)
        reasons = True
    except ProblemError:
        reasons = False
    return Available(weights, layer.shares_tokens, layer.given is None, reasons)
