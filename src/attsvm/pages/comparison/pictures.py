"""The attention of the heads that changed most, in the first and the last model side by side."""

from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm._utils.linear_algebra import softmax
from attsvm.pages.comparison.words import model_names
from attsvm.pages.squares import WIDEST, attention_square
from attsvm.pages.words import percent

if TYPE_CHECKING:
    from attsvm.inspect.comparison import HeadChange
    from attsvm.inspect.series import Series
    from attsvm.inspect.weights import Layer

MOST_HEADS = 4
"""Heads that are drawn."""

LARGEST_CELL, LEAST_CELL = 1.35, 0.62
"""Width of a cell in rem. Cells shrink so that two squares fit side by side, as long as the names stay legible."""

HALF_PAGE = 21.5
"""Width of half a page in rem, without the names of the rows."""

MOST_LINES = 12
"""Changed queries that are listed for a head."""


def changed_heads(series: "Series", tokens: list[list[str]], sentence: int | None) -> list[dict[str, Any]]:
    """For each of the heads that changed most: its squares before and after, and its changed queries.

    ``tokens``: the tokens of every sequence as text. ``sentence``: the sequence to draw, counted from 0. By default the
    one in which most queries of the head changed.
    """
    changed = [one for one in series.total.heads if one.changed > 0][:MOST_HEADS]
    layers = sorted({one.layer for one in changed})
    before, after = (_layers(end, layers) for end in series.ends)
    return [_head(one, before.get(one.layer), after.get(one.layer), series, tokens, sentence) for one in changed]


def _layers(inspection: Any, indices: list[int]) -> dict[int, "Layer"]:
    if inspection.source is None or not indices:
        return {}
    return dict(zip(indices, inspection.source.layers_at(indices), strict=True))


def _head(
    change: "HeadChange",
    before: "Layer | None",
    after: "Layer | None",
    series: "Series",
    tokens: list[list[str]],
    sentence: int | None,
) -> dict[str, Any]:
    in_sequence = np.bincount(change.queries[:, 0], minlength=len(tokens))
    at = int(in_sequence.argmax()) if sentence is None else sentence
    names, ends = tokens[at], model_names(series)
    shown: dict[str, Any] = {
        "name": f"{change.layer}.{change.head}",
        "changed": percent(change.changed),
        "sequence": at + 1,
        "in_sequence": int(in_sequence[at]),
        "columns": ["query", ends[0], ends[-1]],
        "squares": [],
        "cell": LARGEST_CELL,
        "marked": [],
        "lines": [],
    }
    if before is None or after is None or before.tokens.shape[1] < len(names):
        return shown  # cross-attention: these are not the tokens of the text
    here = change.queries[:, 0] == at
    rows = change.queries[here, 1]
    places = before.positions[at]
    shown["lines"] = [
        tuple(f"{names[t]} ({t + 1})" for t in (places[q], one, other))
        for q, one, other in zip(rows, change.before[here], change.after[here], strict=True)
    ][:MOST_LINES]
    queries = np.flatnonzero(places >= 0)
    shown["marked"] = [int(np.searchsorted(queries, q)) for q in rows]
    for name, layer, inspection in zip((ends[0], ends[-1]), (before, after), series.ends, strict=True):
        probabilities = softmax(layer.head(change.head).logits(), layer.allowed)[at]
        selected = next(
            one.selected[at] for one in inspection.heads if (one.layer, one.head) == (change.layer, change.head)
        )
        columns, square = attention_square(names, places, probabilities, layer.allowed[at], selected)
        shown["cell"] = min(LARGEST_CELL, max(LEAST_CELL, HALF_PAGE / len(columns) - 0.07))
        if len(columns) <= WIDEST:
            shown["squares"].append((name, columns, square))
    return shown
