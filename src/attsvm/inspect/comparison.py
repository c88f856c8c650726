"""Two inspections on the same batch: which heads changed their selection, and where the margin moved."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Int
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.heads import Head
from attsvm.inspect.result import Inspection
from attsvm.inspect.weights import Projections, triangular_product


class WeightChange(NamedTuple):
    """How far the weights of a head moved: Frobenius norms of the changes, divided by those of the weights before."""

    product: float  # of W = W_K (W_Q; b_Q)'/√d_h
    # key, query: of the key and the query weights, with their biases
    key: float
    query: float


class HeadChange(NamedTuple):
    """How one head differs between two models."""

    layer: int
    head: int
    changed: float  # share of the queries whose selected token differs
    queries: Int[np.ndarray, "k 2"]  # sequence and number of these queries
    # before, after: the tokens that they select
    before: Int[np.ndarray, " k"]
    after: Int[np.ndarray, " k"]
    numbers: dict[str, tuple[float, float]]  # each measure that both have, before and after
    # the interval of the margin ratio before and after. None if one was not solved for.
    margin: tuple[tuple[float, float], tuple[float, float]] | None
    # None if they cannot be compared: one inspection was loaded from a file, both are of one object, whose weights
    # before are not known any more, or the sizes differ
    weights: WeightChange | None = None

    @property
    def own_weights(self) -> bool:
        """Whether its key or query weights differ, so that not only its input has changed."""
        return self.weights is not None and max(self.weights.key, self.weights.query) > 0

    @property
    def margin_moved(self) -> bool:
        """Whether the intervals of the margin ratio are disjoint, so that it certainly moved."""
        if self.margin is None:
            return False
        (low, high), (other_low, other_high) = self.margin
        return high < other_low or other_high < low


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The heads of two models on the same batch, those with the most changed selections first.

    Attributes
    ----------
    heads : list of HeadChange
    """

    heads: list[HeadChange]

    def __repr__(self) -> str:
        changed = sum(one.changed > 0 for one in self.heads)
        return f"Comparison({len(self.heads)} heads, {changed} with changed selections)"

    def __str__(self) -> str:
        lines = []
        for one in (one for one in self.heads if one.changed):
            line = f"head {one.layer}.{one.head}: {one.changed:.1%} of the selections changed"
            if one.margin is not None:
                (low, high), (other_low, other_high) = one.margin
                line += f"; margin ratio {low:z.3g} to {high:z.3g}, then {other_low:z.3g} to {other_high:z.3g}"
            if one.weights is not None:
                line += f"; ‖ΔW‖/‖W‖ = {one.weights.product:.3g}"
            lines.append(line)
        return "\n".join(lines)


def compare(first: Inspection, second: Inspection) -> Comparison:
    """Which attention heads select different tokens in two models or checkpoints, and where the margin moved.

    Parameters
    ----------
    first, second : Inspection
        Of two models with the same heads, on the same batch, with the same queries.

    Returns
    -------
    Comparison
        Of the heads that both inspections have.

    Raises
    ------
    ProblemError
        If they have no head in common, or were made with different queries.

    See Also
    --------
    attsvm.inspect.inspect

    Examples
    --------
    >>> import torch
    >>> import attsvm.torch
    >>> tokens = torch.randn(3, 4, 8)
    >>> models = [torch.nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2)]
    >>> one, other = (attsvm.inspect.inspect(model, (tokens,) * 3, margins=False) for model in models)
    >>> len(attsvm.inspect.compare(one, other).heads)
    2
    """
    asked, others_asked = (
        {layer: group.positions for group in one.groups for layer in group.layers} for one in (first, second)
    )
    # the first group is that of the first layer, and all that a file of an earlier version holds
    pairs_of_queries = [(asked[k], others_asked[k]) for k in asked.keys() & others_asked.keys()]
    if not (asked and others_asked):
        pairs_of_queries = [(first.positions, second.positions)]
    if not all(np.array_equal(*pair) for pair in pairs_of_queries):
        raise ProblemError(
            "second: expected an inspection with the same queries as the first; use the same batch and seed"
        )
    others = {(head.layer, head.head): head for head in second.heads}
    pairs = [(head, others[head.layer, head.head]) for head in first.heads if (head.layer, head.head) in others]
    if not pairs:
        raise ProblemError("second: expected an inspection of a model with some of the same attention heads")
    weights = _weight_changes(first.source, second.source)
    changes = [_change(*pair)._replace(weights=weights.get((pair[0].layer, pair[0].head))) for pair in pairs]
    return Comparison(sorted(changes, key=lambda one: -one.changed))


def _change(head: Head, other: Head) -> HeadChange:
    asks = (head.selected >= 0) & (other.selected >= 0)
    differs = asks & (head.selected != other.selected)
    pairs = {name: (before, other.numbers.get(name)) for name, before in head.numbers.items()}
    ends = [None if one.margin is None else (one.margin.lower, one.margin.upper) for one in (head, other)]
    known = all(pair is not None and None not in pair for pair in ends)
    return HeadChange(
        head.layer,
        head.head,
        float(differs.sum() / max(1, asks.sum())),
        np.argwhere(differs),
        head.selected[differs],
        other.selected[differs],
        {name: pair for name, pair in pairs.items() if None not in pair},  # type: ignore[misc]
        (ends[0], ends[1]) if known else None,  # type: ignore[arg-type]
    )


def _weight_changes(first: ModelAndBatch | None, second: ModelAndBatch | None) -> dict[tuple[int, int], WeightChange]:
    """How far the weights of each head moved, by layer and head, for those of equal size."""
    if first is None or second is None or first.model is second.model:
        return {}
    found = {}
    for layer, pair in enumerate(zip(first.layers, second.layers, strict=False)):
        before, after = (one.projections() for one in pair)
        if before is None or after is None:
            continue
        if before.query.shape[1:] == after.query.shape[1:] and before.key.shape[1:] == after.key.shape[1:]:
            for head in range(min(before.num_heads, after.num_heads)):
                found[layer, head] = _weight_change(before, after, head)
    return found


def _weight_change(before: Projections, after: Projections, head: int) -> WeightChange:
    keys = [np.vstack([one.key[head], one.key_bias[head]]) for one in (before, after)]
    queries = [one.scale * one.biased_query(head) for one in (before, after)]
    key, query = keys[1] - keys[0], queries[1] - queries[0]
    # ΔW = ΔK Q_after' + K ΔQ' without the bias of the keys, as one product, which is exactly 0 if nothing has changed
    product = triangular_product(np.hstack([key, keys[0]])[:-1], np.hstack([queries[1], query]))
    pairs = ((product, triangular_product(keys[0][:-1], queries[0])), (key, keys[0]), (query, queries[0]))
    norms = ((float(np.linalg.norm(change)), float(np.linalg.norm(whole))) for change, whole in pairs)
    return WeightChange(*(change / size if size else (np.inf if change else 0.0) for change, size in norms))
