"""Intervals for the margin ratios of several heads, solved side by side in processes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Int
from attsvm._utils.workers import processors, side_by_side
from attsvm.inspect.weights import Layer, Selected
from attsvm.svm import Grams, MarginInterval, margin_interval

MOST_WORKERS = 8
"""Default limit for the number of processes."""

PAIRS_AT_ONCE = 2**22
"""Limit for the pairs of a query and a token in the heads that are solved at the same time.

Each of these heads holds about twenty arrays of that size.
"""

Support = Int[np.ndarray, "support 3"]
"""Sequence, query and token of each support token of a head."""

LEAST_PAIRS = 2**12
"""With fewer pairs a head is solved faster than a process starts."""


@dataclass(frozen=True)
class SolveSettings:
    """How the solves for best margins are made."""

    gap: float  # required relative width of each interval
    workers: int  # processes


def margin_intervals(
    layer: Layer, heads: list[int], selected: list[Selected], settings: SolveSettings
) -> Iterator[tuple[MarginInterval, Support | None]]:
    """The intervals and the support tokens of some heads of a layer, in order.

    They are solved in processes: a solve consists of hundreds of rounds of about sixty small products, and threads
    that pass the interpreter lock to each other between those are no faster than one thread. The processes do not
    import PyTorch.
    """
    grams = None
    if layer.shares_tokens:
        shared = layer.head(0)
        grams = Grams.of(shared.keys, shared.queries, layer.allowed)
    pairs = layer.allowed.size
    workers = 1 if pairs < LEAST_PAIRS else max(1, min(settings.workers, len(heads), PAIRS_AT_ONCE // pairs))
    calls = (
        (layer.head(head), layer.allowed, of_head, settings.gap, None, grams)
        for head, of_head in zip(heads, selected, strict=True)
    )
    for interval, multipliers in side_by_side(margin_interval, calls, workers):
        yield interval, None if multipliers is None else np.argwhere(multipliers > 0).astype(np.int32)


def default_workers() -> int:
    """As many processes as this process may use processors, up to :data:`MOST_WORKERS`."""
    return min(processors(), MOST_WORKERS)
