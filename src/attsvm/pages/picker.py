"""The attention of every head on the first sequences, for the part of the page where a reader picks one."""

import base64
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attsvm._utils.threads import threads_for
from attsvm.pages.plain import jsonable
from attsvm.pages.words import layer_labels

if TYPE_CHECKING:
    from attsvm.inspect import Head, Inspection

MOST_BYTES = 200_000
"""Limit for the probabilities on the page: one byte for each pair of a query and a token."""

LEVELS = 255
"""A probability is kept in steps of one over this."""


class AttentionMaps(NamedTuple):
    """The part of the picker that does not depend on the margins."""

    sequences: list[int]  # those that are shown, the chosen one first
    tokens: list[np.ndarray]  # the tokens of each that are shown: padding is not
    queries: dict[int, list[list[int]]]  # by layer: the places of the queries among the tokens of each sequence
    heads: dict[tuple[int, int], dict[str, Any]]  # by layer and head: ``maps`` and ``selected`` of each sequence


def attention_maps(inspection: "Inspection", tokens: list[list[str]], sentence: int) -> AttentionMaps | None:
    """The attention on as many sequences as there is room for; None if not even one is small enough.

    Layers that see other sequences than those of the tokens are left out, as those of another tower, or windows.

    ``tokens``: the tokens of every sequence as text. ``sentence``: the sequence that comes first.
    """
    groups = {
        layer: group for group in inspection.groups for layer in group.layers if group.num_sequences == len(tokens)
    }
    heads = [head for head in inspection.heads if head.layer in groups]
    order = sorted(range(len(tokens)), key=lambda i: i != sentence)
    sizes = np.cumsum(
        [sum(int((groups[one.layer].positions[i] >= 0).sum()) * len(tokens[i]) for one in heads) for i in order]
    )
    shown = order[: int((sizes <= MOST_BYTES).sum())]
    if not shown or inspection.source is None:
        return None
    layers = sorted({head.layer for head in heads})
    maps: dict[tuple[int, int], list[np.ndarray]] = {}
    seen = [np.zeros(len(tokens[i]), dtype=bool) for i in shown]
    selected: dict[tuple[int, int], list[list[int]]] = {}
    queries: dict[int, list[list[int]]] = {}
    for index, layer in inspection.source.layers_at(layers):
        if any(layer.tokens.shape[1] != len(tokens[i]) for i in shown):
            continue  # as in cross-attention: these are not the tokens of the text
        asked = [np.flatnonzero(layer.positions[i] >= 0) for i in shown]
        queries[index] = [layer.positions[i, of].tolist() for i, of in zip(shown, asked, strict=True)]
        for i, of, places, some in zip(shown, asked, queries[index], seen, strict=True):
            some |= layer.allowed[i, of, : len(some)].any(axis=0)
            some[places] = True
        for one in (one for one in heads if one.layer == index):
            with threads_for(0):  # many small products
                probabilities = layer.probabilities(one.head)
            maps[index, one.head] = [
                _rounded(probabilities[i, of, : len(tokens[i])]) for i, of in zip(shown, asked, strict=True)
            ]
            # rounded probabilities can be equal, so they do not tell the largest one
            selected[index, one.head] = [one.selected[i, of].tolist() for i, of in zip(shown, asked, strict=True)]
    if not maps:
        return None
    # padding is not shown: no query attends to it in any layer
    kept = [np.flatnonzero(some) for some in seen]
    found = {
        at: {
            "maps": [_packed(some[:, of]) for some, of in zip(of_head, kept, strict=True)],
            "selected": _renumbered(kept, selected[at]),
        }
        for at, of_head in maps.items()
    }
    return AttentionMaps(shown, kept, {layer: _renumbered(kept, places) for layer, places in queries.items()}, found)


def picker(maps: AttentionMaps, inspection: "Inspection", tokens: list[list[str]]) -> dict[str, Any]:
    """Return what the script of the page reads, as JSON-able values.

    ``tokens``: the tokens of every sequence as text.
    """
    shown, kept = maps.sequences, maps.tokens
    measures = [one for one in inspection.measures if not np.isnan(inspection.measure(one.name)).all()]
    found: dict[str, Any] = {
        "levels": LEVELS,
        "layers": layer_labels(inspection.layer_names),
        "sequences": [
            {"number": i + 1, "tokens": [tokens[i][t] for t in of]} for i, of in zip(shown, kept, strict=True)
        ],
        "queries": maps.queries,
        "measures": [one.title for one in measures],
        "heads": [
            {
                "layer": one.layer,
                "head": one.head,
                "values": [one.numbers.get(measure.name) for measure in measures],
                **maps.heads[one.layer, one.head],
                "support": _support(inspection, one.layer, one.head, maps),
            }
            for one in inspection.heads
            if (one.layer, one.head) in maps.heads
        ],
    }
    return {**jsonable(found), "first": _first(maps, inspection)}


def _first(maps: AttentionMaps, inspection: "Inspection") -> list[int]:
    """The head that is picked at first: the one in detail, else that with the largest margin ratio or probability."""
    view = inspection.view
    if view is not None and (view.layer, view.head) in maps.heads:
        return [view.layer, view.head]

    def notable(head: "Head") -> tuple[float, ...]:
        return tuple(head.numbers.get(name) or 0.0 for name in ("margin_ratio", "largest_probability"))

    one = max((head for head in inspection.heads if (head.layer, head.head) in maps.heads), key=notable)
    return [one.layer, one.head]


def _renumbered(kept: list[np.ndarray], places: list[list[int]]) -> list[list[int]]:
    """The places of tokens among those of their sequence that are kept."""
    return [np.searchsorted(of, some).tolist() for of, some in zip(kept, places, strict=True)]


def _rounded(probabilities: np.ndarray) -> np.ndarray:
    levels: np.ndarray = np.rint(LEVELS * probabilities).astype(np.uint8)
    return levels


def _packed(levels: np.ndarray) -> str:
    return base64.b64encode(levels.tobytes()).decode()


def _support(inspection: "Inspection", layer: int, head: int, maps: AttentionMaps) -> list[str] | None:
    """For each sequence a bit for each query and token, set for support tokens; None if they are not known."""
    found = (inspection.supports or {}).get((layer, head))
    if found is None:
        return None
    packed, [group] = [], [one for one in inspection.groups if layer in one.layers]
    for i, of in zip(maps.sequences, maps.tokens, strict=True):
        queries = np.flatnonzero(group.positions[i] >= 0)
        _, places, tokens = found[found[:, 0] == i].T
        bits = np.zeros((len(queries), len(of)), bool)
        bits[np.searchsorted(queries, places), np.searchsorted(of, tokens)] = True
        packed.append(_packed(np.packbits(bits)))
    return packed
