"""Reading of forward passes: measures of all heads in each attention call, computed where the tensors are."""

import contextlib
import importlib
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from attsvm._utils.files import reason
from attsvm.inspect.families.call import AttentionCall
from attsvm.inspect.layers import AttentionLayer, LayerInputs, reading
from attsvm.inspect.model_calls import Uncompiled
from attsvm.inspect.padding import Places
from attsvm.inspect.weights import Projections, effective_rank, triangular_product

LARGEST_ERROR = 1e-2
"""Largest difference between the attention of a model and the rebuilt one; it is larger in half precision."""

MOST_SEQUENCES, MOST_QUERIES = 8, 64
"""Of a call; they are spread evenly."""

OF_CALLS = ("largest_logit", "largest_probability", "entropy", "first_share")
OF_WEIGHTS = ("spectral_norm", "frobenius_norm", "effective_rank")


Measured = tuple[Tensor, Tensor, np.ndarray]
"""The measures of a call and whether they are those of the model, on its device, and the measures of the weights."""


class PassReader:
    """Reads the attention of one forward pass of each step that is due, by hooks of a model and its layers.

    It is the first pass in training mode that raises no error. Until then the model runs without ``torch.compile``,
    which leaves out hooks. The other passes have no hooks.
    """

    def __init__(self, model: nn.Module, layers: list[AttentionLayer]) -> None:
        self.model, self.layers, self.is_open = model, layers, True
        self.seconds = 0.0  # spent in reading
        # layers of what was taken last whose attention was not that of their queries, keys and mask
        self.unlike: list[str] = []
        self.unread: dict[str, str] = {}  # why a layer cannot be read
        self.unknown: dict[str, str] = {}  # why its weights cannot be read
        self._reading: dict[str, Measured] = {}  # of the pass that runs
        self._read: dict[str, Measured] = {}  # of one that has finished
        self._stack = contextlib.ExitStack()  # of the pass
        self._step = contextlib.ExitStack()  # of a step, until its pass has finished
        weakref.finalize(self, self._step.close)  # of a monitor that nobody closes
        importlib.import_module("torch._dynamo")  # the model may be compiled later; optimisers need it, too

    def begin_step(self, is_due: bool) -> None:
        """Begin a step; ``is_due``: whether it is recorded."""
        self._step.close()
        self._read = {}
        if is_due and self.is_open:
            self._step.enter_context(Uncompiled())
            for hook in (
                self.model.register_forward_pre_hook(self._before),
                # of several monitors, the last one that began to read is the first one that ends
                self.model.register_forward_hook(self._after, always_call=True, prepend=True),
                self.model.register_forward_hook(self._finished),
            ):
                self._step.callback(hook.remove)

    def take(self) -> dict[str, np.ndarray]:
        """The measures (:data:`OF_CALLS` and :data:`OF_WEIGHTS`, H) of each layer that was read, by its name."""
        read, self._read = self._read, {}
        self.unlike = [name for name, (_, agrees, _) in read.items() if not agrees]
        return {
            name: np.concatenate([call.double().cpu().numpy(), weights])
            for name, (call, _, weights) in read.items()
            if name not in self.unlike
        }

    def close(self) -> None:
        """Remove all hooks from the model."""
        self.is_open = False
        self._step.close()
        self._stack.close()

    def _before(self, model: nn.Module, arguments: tuple[Any, ...]) -> None:
        self._reading = {}
        if not model.training:
            return
        self.unread, self.unknown = {}, {}
        self._stack.enter_context(reading(self.layers, self._measure))

    def _after(self, model: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        self._stack.close()

    def _finished(self, model: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        """Keep what was read of a pass that raised no error."""
        self._read = self._reading
        self._step.close()

    def _measure(self, layer: AttentionLayer, inputs: Callable[[], LayerInputs]) -> None:
        start = time.perf_counter()
        try:
            with torch.no_grad():
                call, _, _, places = inputs()
                self._reading[layer.name] = (*of_call(call, places), self._of_weights(layer, call.query.shape[1]))
        except Exception as error:  # the training goes on
            self.unread[layer.name] = reason(error)
        self.seconds += time.perf_counter() - start

    def _of_weights(self, layer: AttentionLayer, num_heads: int) -> np.ndarray:
        """The measures of the weights of a layer; NaN if they cannot be read, and why."""
        projections, why = layer.projections(), layer.unknown
        try:
            measures = of_weights(projections, num_heads)
        except np.linalg.LinAlgError as error:  # they are infinite
            measures, why = of_weights(None, num_heads), reason(error)
        if why:
            self.unknown[layer.name] = why
        return measures


def of_call(call: AttentionCall, places: Places) -> tuple[Tensor, Tensor]:
    """The measures :data:`OF_CALLS` of each head, shape (measures, H), and whether the model has this attention.

    The largest logit is the largest one over all sampled queries; the others are means over those that may attend to
    several tokens, as in an inspection. ``places``: the queries and tokens that are no padding.
    """
    sequences, some = (
        _spread(size, most) for size, most in ((len(call.query), MOST_SEQUENCES), (call.query.shape[-2], MOST_QUERIES))
    )
    part = call.part(sequences, some)
    logits = part.logits().float()
    logits = logits.masked_fill(~places.queries[sequences][:, None, some, None], -torch.inf)
    logs = logits.log_softmax(-1)
    choices = logs.isfinite().sum(dim=-1)
    asked, choosing = choices > 0, choices > 1
    probabilities = logs.exp().nan_to_num()
    entropy = -(probabilities * logs.masked_fill(probabilities == 0, 0.0)).sum(dim=-1)
    shares = probabilities * call.token_share(logits)
    first = (shares * one_hot(places.tokens[sequences].int().argmax(-1), shares.shape[-1])[:, None, None]).sum(-1)

    def mean(values: Tensor) -> Tensor:
        return values.masked_fill(~choosing, 0.0).sum(dim=(0, 2)) / choosing.sum(dim=(0, 2))

    measures = [logits.amax(dim=(0, 2, 3)), mean(shares.amax(dim=-1)), mean(entropy), mean(first)]
    return torch.stack(measures), _agrees(part, shares, asked, logits)


def _agrees(part: AttentionCall, shares: Tensor, asked: Tensor, logits: Tensor) -> Tensor:
    """Whether the attention at some queries is the model's own up to rounding; also if there is nothing to compare."""
    if part.dropout is None or not part.is_compared:
        return asked.new_ones(())
    if part.own is not None:
        own = part.own.float() * (1 - part.dropout)
        difference = (own - shares).abs().masked_fill((own == 0) & (part.dropout > 0), 0.0)
    elif part.mixed is not None and part.dropout == 0:
        values, outputs = (one.float() for one in part.mixed)
        shares, asked = shares[: len(values)], asked[: len(values)]
        mixed = shares @ values.repeat_interleave(shares.shape[1] // values.shape[1], 1)
        difference = (mixed - outputs).abs() / values.abs().max().clamp(min=1e-30)
    else:
        return asked.new_ones(())
    largest = logits.masked_fill(logits.isinf(), 0.0).abs().max()  # it is rounded, too
    allowed = LARGEST_ERROR + 16 * torch.finfo(part.query.dtype).eps * (1 + largest)
    return (difference.masked_fill(~asked[..., None], 0.0) <= allowed).all()


def of_weights(projections: Projections | None, num_heads: int) -> np.ndarray:
    """The measures :data:`OF_WEIGHTS` of W = W_K W_Q'/√d_h of each head without biases, shape (measures, H).

    NaN if W is not known.
    """
    if projections is None:
        return np.full((len(OF_WEIGHTS), num_heads), np.nan)
    product = triangular_product(projections.key, projections.query)
    values = projections.scale * np.linalg.svd(product, compute_uv=False)
    return np.stack([values.max(axis=-1), np.sqrt((values**2).sum(axis=-1)), effective_rank(values)])


def _spread(size: int, most: int) -> Tensor:
    """At most so many indices below ``size``, spread evenly."""
    return torch.linspace(0, size - 1, min(size, most)).round().long()
