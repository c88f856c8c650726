"""``attsvm.inspect.inspect``: every layer and head of a trained transformer, measured on a batch."""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from attsvm._utils.checks import check_integer, check_number, check_seed
from attsvm._utils.interruption import interruptions
from attsvm._utils.progress import reports
from attsvm._utils.shapes import Bool
from attsvm._utils.threads import threads_for
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch, Sampler
from attsvm.inspect.families.base import Family
from attsvm.inspect.heads import Head, HeadProgress
from attsvm.inspect.layers import attention_layers
from attsvm.inspect.measures import attention_measures, selected_tokens
from attsvm.inspect.model_calls import num_sequences, placed, token_ids, without_special
from attsvm.inspect.result import Inspection, LayerGroup
from attsvm.inspect.robustness import robustness
from attsvm.inspect.solves import SolveSettings, Support, default_workers, margin_intervals
from attsvm.inspect.view import HeadView, view_head
from attsvm.inspect.weights import Layer, check_head, effective_rank, singular_values
from attsvm.results import Status
from attsvm.svm import MarginInterval


@reports("inspection")
def inspect(
    model: nn.Module,
    batch: Any = None,
    *,
    family: str | Family | type[Family] | None = None,
    heads: Collection[tuple[int, int]] | None = None,
    view: tuple[int, int] | None = None,
    margins: bool = True,
    queries: int | None = None,
    gap: float = 1e-2,
    seed: int = 0,
    workers: int | None = None,
    device: str | None = None,
    callback: Callable[[HeadProgress], object] | None = None,
    progress: bool = False,
) -> Inspection:
    """Compute which tokens each attention head of a transformer selects, how concentrated it is, and with what margin.

    Parameters
    ----------
    model : torch.nn.Module
        A model from the ``transformers`` package, with ``nn.MultiheadAttention``, or with attention of the given
        ``family``; or a :class:`Cache` of queries and keys. The model is not changed.
    batch : mapping, tuple or Tensor
        The arguments of the model: by name, in order, or a single one. The first axis of the tensors in a mapping
        counts the sequences; its entry ``special_tokens_mask`` (n, T) says which tokens are special, and is not passed
        to the model. Padding is given by the model's own masks, for a decoder ``decoder_attention_mask``. By default
        ``model.batch`` of a :class:`Cache`.
    family : str, Family or subclass of Family, optional
        How to read the attention of the model: the name of a family such as "BERT", an import path
        ``package.module:name``, or an object such as :class:`attsvm.inspect.Layout`. By default all known families are
        tried.
    heads : collection of (layer, head), optional
        The heads to inspect, counted from 0. By default all.
    view : (layer, head), optional
        An attention head to examine in detail, before the margins of the others: see
        :meth:`attsvm.inspect.Inspection.view`.
    margins : bool
        Whether to solve for the best margin of every attention head, which takes most of the time.
    queries : int, optional
        Number of queries to inspect in a layer, spread evenly over the sequences, at least one from each. By default
        all, but at most 4,096, and at most 2^18 pairs of a query and a token (512 queries with 512 tokens each).
    gap : float
        Required relative width of the interval of each margin ratio.
    seed : int
        Seed of the sample of queries.
    workers : int, optional
        Number of processes that solve for the margins of different attention heads at the same time. By default one per
        processor, up to 8. Small problems are solved in the calling process.
    device : str, optional
        Where the model runs: "cpu", "gpu" or "cuda" for the first GPU, "cuda:1" for the second. By default where it is
        now. It is moved back afterwards. The margins are computed on the CPU.
    callback : callable, optional
        Called after each attention head with a :class:`attsvm.Progress`, whose ``layer`` and ``head`` say which one,
        and whose ``inspection()`` returns the inspection so far. If it returns True, or after Ctrl-C, the inspection
        stops; it then has the measures of all heads, and the margins that were solved.
    progress : bool
        Show the progress, as :func:`attsvm.train` does.

    Returns
    -------
    Inspection

    Raises
    ------
    ProblemError
        If the model has no attention of a known family, or some attention that cannot be read, or does not accept the
        batch, or if the device does not exist.
    MemoryError
        If the device does not have enough memory for the model, or for a part of the batch.

    See Also
    --------
    attsvm.inspect.Inspection : The result.
    attsvm.Problem.from_attention : One layer with given keys and queries.

    Notes
    -----
    W = W_K (W_Q; b_Q)'/√d_h acts on the tokens that enter the layer, after the norm of the block, and on queries with a
    constant coordinate 1. With rotary positions, with normalised queries and keys, or if the weights are not known, the
    tokens are the keys of an attention head, the queries are its queries, and W = I/√d_h. Biases for pairs of
    positions, as in T5 and ALiBi, are part of W, which reads them from additional coordinates of tokens and queries.

    Each token that a query drops gives one constraint: a margin of 1 over it. Up to scale, W satisfies the constraints
    of its own selection. The ratio of its margin to the best margin for the same Frobenius norm measures how close W is
    to the direction to which training on these tokens alone would converge.

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
    >>> attsvm.inspect.inspect(attention, (tokens, tokens, tokens)).measure("margin_ratio").shape
    (1, 2)
    """
    check_number("gap", gap, "a number between 0 and 1", lambda x: 0 < x < 1)
    if queries is not None:
        check_integer("queries", queries, 1)
    check_seed(seed)
    layers = attention_layers(model, family)
    batch, special = without_special(getattr(model, "batch", None) if batch is None else batch)
    source = ModelAndBatch(model, batch, layers, Sampler(queries, num_sequences(batch), seed), token_ids(model, batch))
    solves = SolveSettings(gap, workers or default_workers()) if margins else None
    work = _Work(source, _heads_by_layer(len(layers), heads, view), view, special, gap, solves)
    with placed(model, device), interruptions() as requested:
        for at in work.stages():
            stop = callback is not None and callback(at)
            if (stop or requested.is_set()) and at.step != at.steps:
                break
        # the model may change from now on
        return replace(work.inspection(), source=replace(source, kept={}))


@dataclass
class _Work:
    """An inspection under way."""

    source: ModelAndBatch
    chosen: dict[int, list[int]]  # heads by layer; an empty list means all of them
    view_of: tuple[int, int] | None  # the head in detail
    special: Bool[np.ndarray, "n T"] | None
    gap: float
    solves: SolveSettings | None  # None if margins are not requested
    heads: dict[tuple[int, int], Head] = field(default_factory=dict)  # those that are measured, layer by layer
    total: int = 0  # how many there will be
    groups: list[LayerGroup] = field(default_factory=list)  # of the layers that are measured
    rotary: bool = False  # whether one of them is
    biased: bool = False
    view: HeadView | None = None  # once it is examined
    supports: dict[tuple[int, int], Support | None] = field(default_factory=dict)  # of the heads that are solved
    start: float = field(default_factory=time.perf_counter)

    def stages(self) -> Iterator[HeadProgress]:
        """Measure all heads, examine the one in detail, solve for the margins. What takes longest comes last."""
        yield from self._measures()
        if self.view_of is not None:
            self.view = view = view_head(self.inspection(), *self.view_of, self.solves)
            if view.interval is not None:
                self.supports[view.layer, view.head] = None if view.support is None else np.argwhere(view.support)
        if self.solves is not None:
            yield from self._solves(self.solves)

    def inspection(self) -> Inspection:
        """What is known so far."""
        source = self.source
        heads, (inspected, *sizes) = list(self.heads.values()), self.groups[0]
        about = dict(zip(LayerGroup._fields[1:], sizes, strict=True))  # those of the first group
        return Inspection.of_heads(
            heads,
            model=type(source.model).__name__,
            family=source.layers[inspected[0]].family.name,
            layer_names=[layer.name for layer in source.layers],
            **about,
            groups=[*self.groups],
            not_run=[layer.name for k, layer in enumerate(source.layers) if not source.runs(k)],
            sampled=source.sampler.sampled,
            rotary=self.rotary,
            biased=self.biased,
            gap=self.gap,
            seed=source.sampler.seed,
            special_known=self.special is not None
            or any(source.layers[k].class_token for group in self.groups for k in group.layers),
            interrupted=len(heads) < self.total or any(head.status == Status.INTERRUPTED for head in heads),
            detail=self.view,
            supports=dict(self.supports),
            source=source,
        )

    def _measures(self) -> Iterator[HeadProgress]:
        for index, layer in self._layers():
            idle = next((k for k, heads in self.chosen.items() if heads and not self.source.runs(k)), None)
            if idle is not None:
                raise self.source.not_run(idle)
            LayerGroup.add(self.groups, index, layer)
            self.rotary |= layer.is_rotary
            self.biased |= layer.bias is not None
            if self.view_of is not None and self.view_of[0] == index:
                check_head(*self.view_of, layer)
            chosen = self.chosen[index] or list(range(layer.num_heads))
            for head in chosen:
                check_head(index, head, layer)
            runs = self.source.runs
            later = sum(
                len(heads or range(layer.num_heads)) for k, heads in self.chosen.items() if k > index and runs(k)
            )
            self.total = len(self.heads) + len(chosen) + later  # if later layers have as many heads as this one
            self.source.keep(index, layer)
            for one in self._measured(layer, index, chosen):
                self.heads[index, one.head] = one
                if self.solves is None:
                    yield self._progress(len(self.heads), f"layer {index}", index, one.head)
            if self.solves is not None:
                yield self._progress(0, f"measures of layer {index}", index, chosen[-1])
        if not self.groups and any(self.chosen.values()):
            raise self.source.not_run(min(self.chosen))
        if not self.groups:
            first = self.source.layers[0]
            now = dict(self.source.model.named_modules()).get(first.name, first.module)
            why = "" if now is first.module else f"; the model replaced it by a {type(now).__name__}: inspect it again"
            raise ProblemError(f"batch: expected one that runs an attention layer, such as {first.name}{why}")

    def _measured(self, layer: Layer, index: int, chosen: list[int]) -> Iterator[Head]:
        """Heads of one layer without their margins."""
        shape = layer.allowed.shape[::2]
        # of texts, and other layers may see pictures
        special, tokens = (
            given if given is not None and given.shape == shape else None
            for given in (self.special, self.source.tokens)
        )
        if special is None and self.source.layers[index].class_token:
            special = np.zeros(shape, bool)
            special[:, 0] = True
        own = layer.positions if layer.is_self else None
        ahead: dict[str, float | None] = {} if self.solves is None else {"margin_ratio": None}
        status = Status.FINISHED if self.solves is None else Status.INTERRUPTED
        for head in chosen:
            with threads_for(0):  # many small products
                probabilities = layer.probabilities(head)
                selected = selected_tokens(probabilities, layer.allowed)
                numbers = attention_measures(probabilities, layer.allowed, layer.there, special, own, tokens)
                least = None if layer.bias_of_tokens else robustness(layer, head, selected)
                numbers["query_robustness"] = None if least is None else least.query_share
                numbers["key_robustness"] = None if least is None else least.key_share
                known = layer.projections
                rank = None if known is None else float(effective_rank(singular_values(known, head)))
                numbers["effective_rank"] = rank
            yield Head(index, head, status, selected, numbers | ahead, None, float(layer.rebuilt_error[head]))

    def _solves(self, settings: SolveSettings) -> Iterator[HeadProgress]:
        left = list(self.heads)
        if self.view is not None and self.view.interval is not None:  # it is not solved again
            left.remove((self.view.layer, self.view.head))
            yield self._solved(0, self.view.layer, self.view.head, self.view.interval.for_gap(settings.gap))
        done = self.total - len(left)
        for index, layer in self._layers():
            heads = [head for of_layer, head in left if of_layer == index]
            selected = [self.heads[index, head].selected for head in heads]
            intervals = margin_intervals(layer, heads, selected, settings) if heads else ()
            for (interval, support), head in zip(intervals, heads, strict=True):
                self.supports[index, head] = support
                yield self._solved(done, index, head, interval)
                done += 1

    def _solved(self, before: int, index: int, head: int, interval: MarginInterval) -> HeadProgress:
        measured = self.heads[index, head]
        numbers = measured.numbers | {"margin_ratio": interval.upper}
        self.heads[index, head] = replace(measured, status=interval.status, numbers=numbers, margin=interval)
        return self._progress(before + 1, f"margins of layer {index}", index, head)

    def _progress(self, done: int, stage: str, index: int, head: int) -> HeadProgress:
        seconds = time.perf_counter() - self.start
        return HeadProgress(done, self.total, seconds, stage=stage, layer=index, head=head, inspection=self.inspection)

    def _layers(self) -> Iterator[tuple[int, Layer]]:
        return self.source.layers_at(sorted(self.chosen))


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
