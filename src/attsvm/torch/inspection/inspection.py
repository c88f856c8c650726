"""``attsvm.torch.inspect``: every layer and head of a trained transformer, measured on a batch."""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from torch import nn

from attsvm.checks import check_integer, check_number, check_seed
from attsvm.errors import ProblemError
from attsvm.progress import reports
from attsvm.results import Status
from attsvm.svm.margin_interval import MarginInterval
from attsvm.svm.threads import threads_for
from attsvm.torch.inspection.capture import capture
from attsvm.torch.inspection.families.base import Family
from attsvm.torch.inspection.layers import AttentionLayer, attention_layers
from attsvm.torch.inspection.measures import attention_of
from attsvm.torch.inspection.model_calls import num_sequences, on_device_of, placed, token_ids, without_special
from attsvm.torch.inspection.result import Head, HeadProgress, Inspection
from attsvm.torch.inspection.sampling import Sampler
from attsvm.torch.inspection.solves import SolveSettings, default_workers, margin_intervals
from attsvm.torch.inspection.source import Source
from attsvm.torch.inspection.view import VIEW_GAP, HeadView, view_head
from attsvm.torch.inspection.weights import Layer


@reports("inspection")
def inspect(
    model: nn.Module,
    batch: Any,
    *,
    family: str | Family | type[Family] | None = None,
    heads: Collection[tuple[int, int]] | None = None,
    view: tuple[int, int] | None = None,
    margins: bool = True,
    queries: int | None = None,
    gap: float = 1e-2,
    max_steps: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    device: str | None = None,
    callback: Callable[[HeadProgress], object] | None = None,
    progress: bool = False,
) -> Inspection:
    """What every attention head of a transformer selects, how concentrated it is, and how small its margin is.

    Parameters
    ----------
    model : torch.nn.Module
        With attention of a known family, or of the one given as ``family``. It is left unchanged.
    batch : mapping, tuple or Tensor
        The arguments of the model: by name, in order, or a single one. The tensors of a mapping have the sequences as
        their first axis; its entry ``special_tokens_mask`` (n, T) says which tokens are special, and is not passed on.
    family : str, Family or subclass of Family, optional
        How the attention of the model is read: a family's name such as "BERT" or "Llama", an import path
        ``package.module:name``, or an object such as :class:`attsvm.torch.Layout`. By default every known family is
        tried.
    heads : collection of (layer, head), optional
        The heads to inspect, counted from 0. By default all.
    view : (layer, head), optional
        A head to examine in detail: see ``HeadView``.
    margins : bool
        Whether to solve for the best margin of every head; this takes most of the time.
    queries : int, optional
        Number of queries of a layer to inspect, spread evenly over the sequences, at least one of each. By default all,
        but at most 4,096 and at most 2^18 pairs of a query and a token (512 queries of 512 tokens each).
    gap : float
        Required relative width of each margin ratio's interval.
    max_steps : int, optional
        Limit for the steps of each solve. An interval may stay wider than ``gap`` then.
    seed : int
        Of the sample of queries.
    workers : int, optional
        Processes that solve for the margins of heads side by side. By default as many as there are processors, up to 8.
        Small problems are solved in the calling process.
    device : str, optional
        Where the model runs: "cpu", "gpu" or "cuda" for the first GPU, "cuda:1" for the second. By default where it is.
        It is moved back afterwards. The margins are computed on the CPU.
    callback : callable, optional
        Called with a :class:`HeadProgress` after each head. If it returns True, the inspection stops.
    progress : bool
        Show the progress, as :func:`attsvm.train` does.

    Returns
    -------
    Inspection

    Raises
    ------
    ProblemError
        If the model has no attention of a known family, or does not accept the batch, or there is no such device.
    MemoryError
        If the memory of the device does not suffice for the model or for a part of the batch.

    See Also
    --------
    attsvm.torch.Inspection : The result.
    attsvm.Problem.from_attention : One layer with given keys and queries.

    Notes
    -----
    W = W_K (W_Q; b_Q)'/√d_h acts on the tokens as they enter the layer, after the norm of the block, and on queries
    with a constant coordinate 1. For every token that a query drops there is one constraint: a margin of 1 over it. W
    satisfies the constraints of its own selection up to scale. The ratio of its margin to the best one at the same
    Frobenius norm measures how close W is to the direction that training to the limit, on these tokens alone, converges
    to.

    Biases that are added to the logits for each pair of positions, as in T5 and ALiBi, are written as a part of W: each
    token has its position as additional one-hot coordinates, each query has the biases of its row, and the block of W
    between them is the identity. The best matrix may use these coordinates, too.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*.

    Examples
    --------
    >>> import torch
    >>> import attsvm.torch
    >>> _ = torch.manual_seed(0)
    >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> tokens = torch.randn(3, 4, 8)
    >>> attsvm.torch.inspect(attention, (tokens, tokens, tokens)).measure("margin_ratio").shape
    (1, 2)
    """
    check_number("gap", gap, "a number between 0 and 1", lambda x: 0 < x < 1)
    if queries is not None:
        check_integer("queries", queries, 1)
    check_seed(seed)
    layers = attention_layers(model, family)
    batch, special = without_special(batch)
    sampler = Sampler(queries, num_sequences(batch), seed)
    work = _Work(
        layers,
        _heads_by_layer(len(layers), heads, view),
        view,
        special,
        token_ids(batch),
        SolveSettings(gap, max_steps, workers or default_workers()) if margins else None,
        max_steps,
        callback,
    )
    with placed(model, device):
        done = work.run(model, on_device_of(model, batch), sampler)
    first = done.first
    inspection = Inspection.of_heads(
        done.heads,
        model=type(model).__name__,
        family=layers[0].family.name,
        layer_names=[layer.name for layer in layers],
        num_sequences=len(first.tokens),
        num_tokens=int(np.count_nonzero(first.allowed.any(axis=1))),
        num_queries=int(np.count_nonzero(first.positions >= 0)),
        sampled=sampler.sampled,
        rotary=first.is_rotary,
        biased=first.bias is not None,
        positions=first.positions,
        gap=gap,
        seed=seed,
        special_known=special is not None or layers[0].family.first_is_special,
        interrupted=done.interrupted,
        view=done.view,
        source=Source(model, batch, layers, queries, seed, token_ids(batch)),
    )
    return inspection if done.view is None else replace(inspection, view=_with_explanation(done.view, inspection))


def _with_explanation(view: HeadView, inspection: Inspection) -> HeadView:
    """The split by origin, or why there is none: not every family describes its residual stream."""
    try:
        return replace(view, explanation=inspection.explain(view.layer, view.head))
    except ProblemError as error:
        return replace(view, unexplained=str(error))


@dataclass(frozen=True)
class _Done:
    heads: list[Head]
    first: Layer
    view: HeadView | None
    interrupted: bool


@dataclass(frozen=True)
class _Work:
    """The heads to inspect, and how."""

    layers: list[AttentionLayer]
    heads: dict[int, list[int]]
    view: tuple[int, int] | None
    special: Bool[np.ndarray, "n T"] | None
    tokens: Int[np.ndarray, "n T"] | None
    solves: SolveSettings | None
    max_steps: int | None
    callback: Callable[[HeadProgress], object] | None

    def run(self, model: nn.Module, batch: Any, sampler: Sampler) -> _Done:
        """Inspect the layers one after another."""
        start = time.perf_counter()
        done: list[Head] = []
        first: Layer | None = None
        view: HeadView | None = None
        order = sorted(self.heads)
        captured = capture(model, batch, [self.layers[k] for k in order], sampler)
        for place, (index, layer) in enumerate(zip(order, captured, strict=True)):
            first = first or layer
            if self.view is not None and self.view[0] == index:
                _check_head(index, self.view[1], layer)
                gap = VIEW_GAP if self.solves is None else min(VIEW_GAP, self.solves.gap)
                view = view_head(layer, index, self.view[1], self.max_steps, gap)
            chosen = self.heads[index] or list(range(layer.num_heads))
            _check_head(index, min(chosen), layer)
            _check_head(index, max(chosen), layer)
            later = sum(len(self.heads[k] or range(layer.num_heads)) for k in order[place + 1 :])
            total = len(done) + len(chosen) + later  # if later layers have as many heads as this one
            for one in self._inspected(layer, index, chosen, view):
                done.append(one)
                progress = HeadProgress(
                    len(done),
                    total,
                    time.perf_counter() - start,
                    stage=f"layer {index}",
                    layer=index,
                    head=one.head,
                )
                if self.callback is not None and self.callback(progress):
                    return _Done(done, first, view, True)
        assert first is not None
        return _Done(done, first, view, False)

    def _inspected(self, layer: Layer, index: int, chosen: list[int], view: HeadView | None) -> Iterator[Head]:
        """The chosen heads of one layer in order. The interval of the head in detail is not solved again."""
        special = self.special
        if special is not None and special.shape != layer.tokens.shape[:2]:
            special = None  # it is of texts, and this layer sees pictures
        if special is None and self.layers[index].family.first_is_special:
            special = np.zeros(layer.tokens.shape[:2], bool)
            special[:, 0] = True
        own = layer.positions if layer.is_self else None
        shape = None if self.tokens is None else self.tokens.shape
        tokens = self.tokens if shape == layer.tokens.shape[:2] else None  # other layers may see pictures
        with threads_for(0):  # many small products
            attentions = [attention_of(layer.head(head), layer.allowed, special, own, tokens) for head in chosen]
            ranks = [layer.effective_rank(head) for head in chosen]
        solved: MarginInterval | None = None
        if self.solves is not None and view is not None and view.layer == index:
            solved = view.interval.for_gap(self.solves.gap)
        left = [place for place, head in enumerate(chosen) if solved is None or (index, head) != self.view]
        intervals: Iterator[MarginInterval | None] = repeat(None, len(left))
        if self.solves is not None and left:
            selected = [attentions[place].selected for place in left]
            intervals = margin_intervals(layer, [chosen[place] for place in left], selected, self.solves)
        for place, (head, attention, rank) in enumerate(zip(chosen, attentions, ranks, strict=True)):
            interval = next(intervals) if place in left else solved
            numbers = {**attention.numbers, "effective_rank": rank}
            if interval is not None:
                numbers["margin_ratio"] = interval.upper
            status = Status.FINISHED if interval is None else interval.status
            error = float(layer.rebuilt_error[head])
            yield Head(index, head, status, attention.selected, numbers, interval, error)
        next(intervals, None)  # ends the workers


def _check_head(index: int, head: int, layer: Layer) -> None:
    if not 0 <= head < layer.num_heads:
        raise ProblemError(f"head {index}.{head}: layer {index} has {layer.num_heads} heads, counted from 0")


def _heads_by_layer(
    layers: int, heads: Collection[tuple[int, int]] | None, view: tuple[int, int] | None
) -> dict[int, list[int]]:
    """Heads by layer; an empty list means all of them."""
    for layer, head in [*(heads or ()), *([view] if view else ())]:
        if not 0 <= layer < layers:
            raise ProblemError(f"head {layer}.{head}: the model has {layers} layers, counted from 0")
    if heads is None:
        return {index: [] for index in range(layers)}
    chosen: dict[int, list[int]] = {}
    for layer, head in sorted({*heads, *([view] if view else ())}):
        chosen.setdefault(layer, []).append(head)
    if not chosen:
        raise ProblemError("heads: expected at least one (layer, head), got none")
    return chosen
