"""The attention of every head on a few sequences: what a grid of small patterns shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from attsvm._utils.extensions import import_object
from attsvm._utils.shapes import Int, UInt8
from attsvm._utils.text import layer_kinds
from attsvm._utils.threads import threads_for
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.model_calls import evaluating
from attsvm.inspect.weights import Layer
from attsvm.pretrained import Input

LEVELS, COARSE = 255, 31
"""A probability p is kept as the integer next to √p times this, so that an even share of many tokens is not lost."""

MANY_PAIRS = 2**22
"""With more pairs of a query and a token over all heads there are :data:`COARSE` levels, for which a page has room."""

MOST_PAIRS = 2**25
"""Limit for the pairs of one sequence over all heads."""

Names = Sequence[Sequence[str]]
"""Names of the tokens of every sequence."""


class Picture(NamedTuple):
    """A picture, and where its patches are among the tokens."""

    pixels: UInt8[np.ndarray, "H W C"]  # as the model gets it, scaled to the range of colours
    first: int  # place of the patch in the first row and column; the others follow row by row
    rows: int
    columns: int


class Tower(NamedTuple):
    """The layers that see pictures."""

    name: str  # of the module; "" for the model itself
    tokens: list[str]  # names, the same for every picture
    pictures: list[Picture]  # none if it is not known which patch each token is


@dataclass
class SeenSequence:
    """One sequence as the layers of a grid see it, without padding."""

    number: int  # counted from 0
    tokens: list[str]
    queries: list[str]
    places: list[int] | None  # of the queries among the tokens; None if they are others, as in cross-attention
    columns: Int[np.ndarray, " T"]  # places of the tokens in the padded sequence
    rows: Int[np.ndarray, " Q"]  # columns of the queries in ``Head.selected``
    picture: Picture | None
    levels: dict[tuple[int, int], UInt8[np.ndarray, "Q T"]] = field(default_factory=dict)  # by layer and head


class LayerGrid(NamedTuple):
    """Layers of one kind that see the same sequences."""

    kind: str  # the names of the layers, with ``*`` in place of numbers
    levels: int
    total: int  # sequences that the layers see
    sequences: list[SeenSequence]  # those that are shown


@dataclass(frozen=True, eq=False, repr=False)
class HeadGrid:
    """Small patterns of the attention of every head; see :meth:`attsvm.inspect.Inspection.view`."""

    inspection: Any  # an :class:`Inspection`, whose module imports this one
    grids: list[LayerGrid]

    @classmethod
    def of(
        cls, inspection: Any, sequence: int, tokens: Names | None, more: int = 0, decoder: Names | None = None
    ) -> "HeadGrid":
        """Compute the attention of every head again.

        ``more``: the number of pairs of a query and a token, over all heads, up to which there are further sequences.
        ``decoder``: names of the tokens of the decoder, if it reads a text of its own, of another length.

        Raises ProblemError if there are too many pairs for one sequence, or ``tokens`` fit no layer.
        """
        source: ModelAndBatch = inspection.source
        heads, tower = inspection.heads, _tower(source)
        two_texts = source.tokens is None and isinstance(source.batch, Mapping) and "input_ids" in source.batch
        if tokens is not None and decoder is None and two_texts:
            raise ProblemError("tokens: expected an encoder and a decoder with the same text, got two texts")
        texts = [names for names in (tokens, decoder) if names is not None]
        kind_of = {layer: kind for kind, layers in layer_kinds(inspection.layer_names).items() for layer in layers}
        grids: dict[tuple[Any, ...], LayerGrid] = {}
        for index, layer in source.layers_at(sorted({head.layer for head in heads})):
            group = next(k for k, one in enumerate(inspection.groups) if index in one.layers)
            key = group, kind_of[index], layer.is_self, layer.allowed.shape[2]
            if key not in grids:
                n = len(layer.allowed)
                order = sorted(range(n), key=lambda k: k != min(sequence, n - 1))
                seen = [_seen(layer, k, texts, tower) for k in order]
                pairs = len(heads) * np.cumsum([len(one.rows) * len(one.columns) for one in seen])
                if pairs[0] > MOST_PAIRS:
                    raise ProblemError(
                        f"sequence: expected at most {MOST_PAIRS:,} pairs of a query and a token over all heads, got"
                        f" {pairs[0]:,}; inspect some of the heads= or queries="
                    )
                levels = LEVELS if pairs[0] <= MANY_PAIRS else COARSE
                grids[key] = LayerGrid(kind_of[index], levels, n, seen[: max(1, int((pairs <= more).sum()))])
            grid = grids[key]
            shown = layer.of_sequences([one.number for one in grid.sequences])
            for head in (one.head for one in heads if one.layer == index):
                with threads_for(0):  # many small products
                    roots = np.sqrt(shown.probabilities(head))
                for one, of_sequence in zip(grid.sequences, roots, strict=True):
                    values = of_sequence[np.ix_(one.rows, one.columns)]
                    one.levels[index, head] = np.rint(grid.levels * values).astype(np.uint8)
        if tokens is not None and not any(_fit(tokens, grid.total, T) for (*_, T), grid in grids.items()):
            sizes = sorted({f"{grid.total} sequences of {T} tokens" for (*_, T), grid in grids.items()})
            got = " or ".join(sorted({str(len(row)) for row in tokens}))
            raise ProblemError(f"tokens: expected names for {' or '.join(sizes)}, got {len(tokens)} of {got}")
        return cls(inspection, [*grids.values()])

    def __repr__(self) -> str:
        shown = sorted({one.number for grid in self.grids for one in grid.sequences})
        return f"HeadGrid({len(self.inspection.heads)} heads; sequence {', '.join(map(str, shown))})"

    def _repr_html_(self) -> str:
        html: Any = import_object("attsvm.pages.picker:notebook_html")
        return str(html(self))


def _fit(tokens: Names, n: int, T: int) -> bool:
    return len(tokens) == n and all(len(row) == T for row in tokens)


def _seen(layer: Layer, number: int, texts: list[Names], tower: Tower | None) -> SeenSequence:
    """What a layer sees of a sequence. No name is better than a wrong one: without a sure one, tokens are numbered."""
    n, Q, T = layer.allowed.shape
    rows = np.flatnonzero(layer.positions[number] >= 0)
    places = layer.positions[number, rows]
    columns = np.flatnonzero(layer.there[number] | layer.allowed[number, rows].any(axis=0))
    of_keys: Sequence[str] | None = None
    picture = None
    if tower is not None and layer.name.startswith(f"{tower.name}." * bool(tower.name)):
        if layer.is_self and (n, T) == (len(tower.pictures), len(tower.tokens)):
            of_keys, picture = tower.tokens, tower.pictures[number]
        texts = [] if tower.name else texts  # the names are those of the text
    of_keys = next((names[number] for names in texts if _fit(names, n, T)), of_keys)
    # other queries are those of the text of the decoder, or of the only one, if there are as many
    of_queries = next((names[number] for names in texts[-1:] if _fit(names, n, Q)), None)
    of_queries = of_keys if layer.is_self else of_queries

    def named(names: Sequence[str] | None, at: np.ndarray) -> list[str]:
        return [f"#{k}" if names is None else str(names[k]) for k in at.tolist()]

    among = np.searchsorted(columns, places).tolist() if layer.is_self else None
    return SeenSequence(number, named(of_keys, columns), named(of_queries, places), among, columns, rows, picture)


def _tower(source: ModelAndBatch) -> Tower | None:
    """The part of the model that sees the pictures of the batch; None if there are none."""
    modules = source.model.named_modules()
    found = next(((name, one) for name, one in modules if getattr(one, "main_input_name", "") == "pixel_values"), None)
    values = source.batch.get("pixel_values") if isinstance(source.batch, Mapping) else None
    if found is None or not isinstance(values, torch.Tensor):
        return None
    name, model = found
    try:
        with evaluating(source.model):
            tokens = Input.of_pictures(type(model).__name__, model, values).tokens[0] if values.ndim == 4 else []
    except ProblemError:
        tokens = []
    patches = [k for k, one in enumerate(tokens) if one[0].isdigit()]  # "row,column"
    if not patches:
        return Tower(name, [], [])
    rows, columns = (int(last) + 1 for last in tokens[patches[-1]].split(","))
    pixels = values.detach().cpu().double().numpy().transpose(0, 2, 3, 1)
    low, high = (limit(pixels, axis=(1, 2, 3), keepdims=True) for limit in (np.min, np.max))
    scaled = np.rint(255 * (pixels - low) / np.where(high > low, high - low, 1.0)).astype(np.uint8)
    return Tower(name, tokens, [Picture(one, patches[0], rows, columns) for one in scaled])
