"""``attsvm.torch.inspect``: every layer and head of a trained transformer, measured on a batch."""

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import repeat
from threading import Event, Thread
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import nn

from attsvm.errors import ProblemError
from attsvm.svm.constraints.gram_products import Grams
from attsvm.svm.margin_bounds import MarginInterval, margin_interval
from attsvm.torch.inspection.capture import Found, Sampler, attention_layers, capture
from attsvm.torch.inspection.families.families import Layout, as_array
from attsvm.torch.inspection.measures import MEASURES, Measure, attention_of
from attsvm.torch.inspection.view import HeadView, view_head
from attsvm.torch.inspection.weights import HeadProblem, Layer

SPECIAL = "special_tokens_mask"
"""The name under which tokenizers say which tokens are special; models do not take it."""

MOST_WORKERS = 8
"""Heads solved side by side."""

PAIRS_AT_ONCE = 2**22
"""Pairs of a query and a token in the heads looked at side by side: each holds some twenty arrays of them."""

LEAST_PAIRS = 2**12
"""Pairs below which a head is solved sooner than a process starts."""


@dataclass(frozen=True, eq=False)
class Head:
    """What one head does.

    Attributes
    ----------
    layer, head : int
        Counted from 0.
    selected : int ndarray, shape (n, Q)
        The token with the largest probability for each query; −1 where there is no query.
    numbers : dict of str to float or None
        The measures of :data:`MEASURES`; None where one is not defined.
    margin : MarginInterval or None
        None where it was not asked for.
    rebuilt_error : float
        Largest difference between the model's own attention and the one from tokens and W.
    """

    layer: int
    head: int
    selected: Int[np.ndarray, "n Q"]
    numbers: dict[str, float | None]
    margin: MarginInterval | None
    rebuilt_error: float


@dataclass(frozen=True, eq=False)
class Inspection:
    """The heads of a model on a batch.

    Attributes
    ----------
    measures : tuple of Measure
        What :meth:`measure` knows, with titles and meanings.
    model : str
        Its class.
    family : str
    layer_names : list of str
    heads : list of Head
        Layer by layer.
    num_sequences : int
    num_tokens, num_queries : int
        Over all sequences, in the first layer; padding does not count.
    sampled : bool
        Whether ``num_queries`` are only some of the queries.
    rotary : bool
        Whether W is I/√d_h over rotated keys and queries.
    positions : int ndarray, shape (n, Q)
        Of the queries in their sequences.
    gap : float
        Relative width asked for of the margins' intervals.
    seed : int
    special_known : bool
        Whether it is known which tokens are special.
    view : HeadView or None
        The head that was looked at closely.
    """

    measures: ClassVar[tuple[Measure, ...]] = MEASURES

    model: str
    family: str
    layer_names: list[str]
    heads: list[Head]
    num_sequences: int
    num_tokens: int
    num_queries: int
    sampled: bool
    rotary: bool
    positions: Int[np.ndarray, "n Q"]
    gap: float
    seed: int
    special_known: bool
    view: HeadView | None

    def __repr__(self) -> str:
        error = max(head.rebuilt_error for head in self.heads)
        return (
            f"Inspection({self.model}: {len(self.layer_names)} layers, {len(self.heads)} heads,"
            f" {self.num_sequences} sequences, {self.num_queries} queries, attention rebuilt to {error:.1e})"
        )

    def measure(self, name: str) -> Float[np.ndarray, "layers heads"]:
        """One measure of every head; NaN where it is not defined or was not asked for.

        Raises
        ------
        ProblemError
            If there is no such measure.
        """
        if name not in {measure.name for measure in MEASURES}:
            raise ProblemError(f"name: {name!r} found, one of {', '.join(m.name for m in MEASURES)} wanted")
        width = 1 + max(head.head for head in self.heads)
        values = np.full((len(self.layer_names), width), np.nan)
        for head in self.heads:
            value = head.numbers.get(name)
            values[head.layer, head.head] = np.nan if value is None else value
        return values


def inspect(
    model: nn.Module,
    batch: Any,
    *,
    layout: Layout | None = None,
    heads: Collection[tuple[int, int]] | None = None,
    view: tuple[int, int] | None = None,
    margins: bool = True,
    queries: int | None = None,
    gap: float = 1e-2,
    max_steps: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    callback: Callable[[int, int], object] | None = None,
) -> Inspection:
    """What every attention head of a transformer selects, how concentrated it is, and how small its margin is.

    Parameters
    ----------
    model : torch.nn.Module
        Of the BERT, RoBERTa, GPT-2, Llama or ViT family of Hugging Face, or with ``nn.MultiheadAttention`` inside, or
        any whose attention modules ``layout`` declares. It is left as it was.
    batch : mapping, tuple or Tensor
        What the model is called with: by name, in order, or alone. The tensors of a mapping have the sequences as
        their first axis; ``special_tokens_mask`` (n, T) in it says which tokens are special, and is not passed on.
    layout : Layout, optional
        Where a model of no known family keeps its attention.
    heads : collection of (layer, head), optional
        Those to look at, counted from 0. All, if not given.
    view : (layer, head), optional
        A head to look at closely: see :class:`HeadView`.
    margins : bool
        Solve for the best margin of every head: most of the work.
    queries : int, optional
        Look at so many queries of a layer, spread evenly over the sequences, at least one of each. If not given, at
        all of them, but at no more than 4,096, and than 2^18 pairs of a query and a token: 512 of 512 tokens each.
    gap : float
        Relative width of each margin ratio's interval.
    max_steps : int, optional
        Of each solve; then an interval may stay wider.
    seed : int
        Of the sample of queries.
    workers : int, optional
        Processes that solve for the margins of heads side by side; as many as there are processors, up to 8, if not
        given. Small problems are solved in this one.
    callback : callable, optional
        Called as ``callback(layer, head)`` when a head is done; a true return value stops the inspection there.

    Returns
    -------
    Inspection

    Raises
    ------
    ProblemError
        If the model has no attention that is known or declared, or does not take the batch.

    Notes
    -----
    W = W_K (W_Q; b_Q)'/√d_h acts on the tokens as they enter the layer, after the norm of the block, and on queries
    with a constant coordinate 1. Of every token that a query drops, the constraint asks for a margin of 1 over it.
    W itself keeps its own selection; the ratio of its margin to the best at the same Frobenius norm says how far it
    is from the direction in which training to the limit, on these tokens alone, would take it.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*.
    """
    if not 0 < gap < 1:
        raise ProblemError(f"gap: {gap} found, a number between 0 and 1 wanted")
    if queries is not None and queries < 1:
        raise ProblemError(f"queries: {queries} found, at least 1 wanted")
    found = attention_layers(model, layout)
    special = None
    if isinstance(batch, Mapping):
        batch = dict(batch)
        special = batch.pop(SPECIAL, None)
        if special is not None:
            special = as_array(torch.as_tensor(special)).astype(bool)
    wanted = _wanted(found, heads, view)
    sampler = Sampler(queries, _num_sequences(batch), seed)
    done: list[Head] = []
    first: Layer | None = None
    viewed: HeadView | None = None
    ask = _Asked(margins, gap, max_steps, special, workers or _processors())
    order = sorted(wanted)
    for index, layer in zip(order, capture(model, batch, [found[k] for k in order], sampler), strict=True):
        first = first or layer
        if view is not None and view[0] == index:
            _check_head(index, view[1], layer)
            viewed = view_head(layer, index, view[1], max_steps)
        chosen = wanted[index] or list(range(layer.num_heads))
        _check_head(index, chosen[-1], layer)
        for one in ask.heads(layer, index, chosen, found[index].family.first_is_special):
            done.append(one)
            if callback is not None and callback(index, one.head):
                break
        else:
            continue
        break
    assert first is not None
    return Inspection(
        model=type(model).__name__,
        family=found[0].family.name,
        layer_names=[one.name for one in found],
        heads=done,
        num_sequences=len(first.tokens),
        num_tokens=int(np.count_nonzero(first.allowed.any(axis=1))),
        num_queries=int(np.count_nonzero(first.positions >= 0)),
        sampled=sampler.sampled,
        rotary=first.is_rotary,
        positions=first.positions,
        gap=gap,
        seed=seed,
        special_known=special is not None or found[0].family.first_is_special,
        view=viewed,
    )


def _check_head(index: int, head: int, layer: Layer) -> None:
    if not 0 <= head < layer.num_heads:
        raise ProblemError(f"head {index}.{head}: layer {index} has {layer.num_heads} heads, counted from 0")


def _wanted(
    found: list[Found], heads: Collection[tuple[int, int]] | None, view: tuple[int, int] | None
) -> dict[int, list[int]]:
    """Heads by layer; an empty list means all of them."""
    for layer, head in [*(heads or ()), *([view] if view else ())]:
        if not 0 <= layer < len(found):
            raise ProblemError(f"head {layer}.{head}: the model has {len(found)} layers, counted from 0")
    if heads is None:
        return {index: [] for index in range(len(found))}
    wanted: dict[int, list[int]] = {}
    for layer, head in sorted({*heads, *([view] if view else ())}):
        wanted.setdefault(layer, []).append(head)
    if not wanted:
        raise ProblemError("heads: empty; at least one (layer, head) wanted")
    return wanted


def _num_sequences(batch: Any) -> int | None:
    """None where the batch is not taken apart."""
    if isinstance(batch, Mapping):
        first = next((value for value in batch.values() if isinstance(value, torch.Tensor)), None)
    else:
        first = batch[0] if isinstance(batch, tuple | list) and len(batch) else batch
    if not isinstance(first, torch.Tensor) or first.ndim == 0:
        raise ProblemError(f"batch: {type(batch).__name__} without tensors found; what the model is called with wanted")
    if 0 in first.shape:
        raise ProblemError(f"batch: empty, its first tensor has shape {tuple(first.shape)}")
    return len(first) if isinstance(batch, Mapping) else None


@dataclass(frozen=True)
class _Asked:
    """What is wanted of every head."""

    margins: bool
    gap: float
    max_steps: int | None
    special: Bool[np.ndarray, "n T"] | None
    workers: int

    def heads(self, layer: Layer, index: int, chosen: list[int], first_is_special: bool) -> Iterator[Head]:
        """The heads of one layer in order."""
        special = self.special
        if special is None and first_is_special:
            special = np.zeros(layer.tokens.shape[:2], bool)
            special[:, 0] = True
        own = layer.positions if layer.is_self else None
        attentions = [attention_of(layer.head(head), layer.allowed, special, own) for head in chosen]
        selected = [attention.selected for attention in attentions]
        intervals = self._intervals(layer, chosen, selected) if self.margins else repeat(None, len(chosen))
        for head, attention, interval in zip(chosen, attentions, intervals, strict=True):
            numbers = {**attention.numbers, "effective_rank": layer.effective_rank(head)}
            if interval is not None:
                numbers["margin_ratio"] = interval.upper
            yield Head(index, head, attention.selected, numbers, interval, float(layer.rebuilt_error[head]))

    def _intervals(
        self, layer: Layer, chosen: list[int], selected: list[Int[np.ndarray, "n Q"]]
    ) -> Iterator[MarginInterval]:
        """Of the heads in order, several at a time.

        In processes of their own: a solve is thousands of products of sixty small ones each, and threads that hand the
        interpreter to each other between those are no faster than one.
        """
        grams = None
        if not layer.is_rotary:
            shared = layer.head(0)
            grams = Grams.of(shared.keys, shared.queries, layer.allowed)
        workers = max(1, min(self.workers, len(chosen), PAIRS_AT_ONCE // layer.allowed.size))
        if layer.allowed.size < LEAST_PAIRS:
            workers = 1
        # one worker is this process
        with parallel_config("loky", inner_max_num_threads=1), threadpool_limits(1, user_api="blas"):
            solve, ended = delayed(partial(_interval, os.getpid())), Event()
            jobs = (
                solve(layer.head(head), layer.allowed, of_head, self.gap, self.max_steps, grams)
                for head, of_head in zip(chosen, selected, strict=True)
                if not ended.is_set()
            )
            intervals = Parallel(n_jobs=workers, return_as="generator", pre_dispatch="n_jobs")(jobs)
            try:
                # not `yield from`: closing that would kill the processes under their manager
                for interval in intervals:  # noqa: UP028
                    yield interval
            finally:
                # where the rest is not wanted no more heads are begun, and those under way come to their end
                ended.set()
                for _ in intervals:
                    pass


def _interval(
    asking: int,
    problem: HeadProblem,
    allowed: Bool[np.ndarray, "n Q T"],
    selected: Int[np.ndarray, "n Q"],
    gap: float,
    max_steps: int | None,
    grams: Grams | None,
) -> MarginInterval:
    if os.getpid() != asking:
        _end_with(asking)
    return margin_interval(problem, allowed, selected, gap, max_steps, grams)[0]


@cache
def _end_with(parent: int) -> None:
    """End this process soon after its parent: one that was killed cannot say that nobody waits any more."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _processors() -> int:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return min(available, MOST_WORKERS)
