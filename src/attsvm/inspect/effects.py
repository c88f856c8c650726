"""What heads do: what each adds to the residual stream, which logits that raises, and what removing it costs."""

import contextlib
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from attsvm._utils.extras import check_installed
from attsvm._utils.files import reason
from attsvm._utils.progress import Progress
from attsvm._utils.shapes import Float, Int, Shaped
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.families.call import allowed_tokens
from attsvm.inspect.families.logit_trace import tensors_in
from attsvm.inspect.families.stream import normed
from attsvm.inspect.layers import AttentionLayer, LayerInputs, reading
from attsvm.inspect.measures import HEAD_SETS
from attsvm.inspect.model_calls import Uncompiled, call_model, chunks, evaluating, num_sequences, on_device_of
from attsvm.pretrained import has_decoder
from attsvm.statistics import Estimate, student_mean

if TYPE_CHECKING:
    from attsvm.inspect.heads import Head

WRITTEN = 5
"""Tokens of the vocabulary that are named for each head."""

AGREES = 1e-4
"""Largest difference, relative to the largest entry, of what is rebuilt from the outputs of the model in float32."""

NAMING_A_HEAD = "a method get_output_embeddings() that returns its last linear layer would name one"
"""How a model says where its logits are made."""

NOT_COUNTED = -100
"""A target that does not count, as in the losses of PyTorch."""


@dataclass(frozen=True, eq=False, repr=False)
class Effects:
    """What attention heads select, what they write, and what removing them costs.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    layer, head : int ndarray, shape (heads,)
    pattern : str ndarray, shape (heads,)
        Of the sets of ``Inspection.sets`` the one with the largest share of its attention; empty if it is in none.
    selected : int ndarray, shape (heads,)
        The token of the vocabulary that most queries select; −1 if it is not known.
    selected_share : ndarray, shape (heads,)
        The attention to the tokens of the pattern, or the share of queries that select this token.
    norm : ndarray, shape (heads,)
        Mean over the queries of ‖o‖: o = Σ_t p_t W_O W_V x_t is what the head adds to the output of its layer, without
        the bias.
    share : ndarray, shape (heads,)
        Mean of ‖o‖/‖x‖ with the residual stream x that enters the block; NaN if it is not known.
    attribution : ndarray, shape (heads,)
        Mean over the queries with a target of what o adds directly to the logit of the target, minus the mean over the
        vocabulary. NaN where ``unattributed`` says why.
    written : int ndarray, shape (heads, 5)
        The tokens of the vocabulary whose logits o raises most in this way, in the mean over the queries; −1 without
        attribution.
    mean_cost : ndarray, shape (heads,)
        Increase of ``measure`` when the output of the head, before W_O, is its mean over all queries.
    costs : ndarray, shape (heads, draws)
        The same when the output at each place is that of a random place, of any sequence, in several draws.
    measure : str
        What is compared with the model as it is: "loss", the mean cross-entropy of the targets in nats, or the mean
        relative change of the last hidden state, or of the output.
    unattributed : str
        Why no logits are attributed; empty if they are.

    See Also
    --------
    attsvm.inspect.Inspection.effects : Makes one.

    Notes
    -----
    The last norm is linear at its actual scale, so that the direct effect of o on the logits is a product with the
    matrix of the output head. What later layers make of o is no part of it; ablations include it. Queries at padded
    places count nowhere, and no output is taken from them.

    References
    ----------
    Elhage et al. (2021), *A Mathematical Framework for Transformer Circuits*.

    Examples
    --------
    >>> import torch, transformers
    >>> import attsvm.torch
    >>> _ = torch.manual_seed(0)
    >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
    >>> model, tokens = transformers.GPT2LMHeadModel(config), torch.randint(64, (4, 16))
    >>> inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
    >>> effects = inspection.effects([(1, 0), (1, 3)])
    >>> effects.measure, effects.cost.value.shape, effects.written.shape
    ('loss', (2,), (2, 5))
    """

    layer: Int[np.ndarray, " heads"]
    head: Int[np.ndarray, " heads"]
    pattern: Shaped[np.ndarray, " heads"]
    selected: Int[np.ndarray, " heads"]
    selected_share: Float[np.ndarray, " heads"]
    norm: Float[np.ndarray, " heads"]
    share: Float[np.ndarray, " heads"]
    attribution: Float[np.ndarray, " heads"]
    written: Int[np.ndarray, "heads 5"]
    mean_cost: Float[np.ndarray, " heads"]
    costs: Float[np.ndarray, "heads draws"]
    measure: str
    unattributed: str

    @property
    def cost(self) -> Estimate:
        """Mean of ``costs`` over the draws, with Student's 95 % interval; it does not cover the choice of the text."""
        return student_mean(self.costs)

    def rows(self, words: Callable[[list[int]], list[str]] | None = None) -> list[tuple[str, str, str, str]]:
        """Each head in words: its name, what it selects, what it writes, and what removing it costs.

        Parameters
        ----------
        words : callable, optional
            From numbers of tokens of the vocabulary to their names, as ``tokenizer.convert_ids_to_tokens``.
        """

        def named(tokens: list[int]) -> str:
            if words is None:
                return ", ".join(f"token {one}" for one in tokens)
            # a model may have more numbers of tokens than its tokenizer has names
            return " ".join(name or f"#{one}" for one, name in zip(tokens, words(tokens), strict=True))

        cost, found = self.cost, []
        for k, pattern in enumerate(self.pattern):
            selects = str(pattern) or (named([int(self.selected[k])]) if self.selected[k] >= 0 else "")
            if selects:
                selects += f" ({self.selected_share[k]:.2f})"
            of_stream = "" if np.isnan(self.share[k]) else f" ({self.share[k]:.1%} of the stream)"
            writes = f"{self.norm[k]:.3g}{of_stream}"
            if not np.isnan(self.attribution[k]):
                writes = f"{named(self.written[k].tolist())} ({self.attribution[k]:+.3g} for the target)"
            width = cost.high[k] - cost.value[k]
            found.append(
                (f"{self.layer[k]}.{self.head[k]}", selects or "-", writes, f"{cost.value[k]:z.3g} ± {width:.1g}")
            )
        return found

    def to_frame(self) -> Any:
        """The numbers of each head as a pandas DataFrame, one row for each head.

        Raises
        ------
        ProblemError
            If pandas is not installed.
        """
        check_installed("to_frame", "frames", "pandas")
        import pandas as pd

        columns = {name: value for name, value in vars(self).items() if np.ndim(value) == 1}
        cost = self.cost._asdict()
        return pd.DataFrame(columns | {f"cost_{name}": cost[name] for name in ("value", "low", "high")})

    def __repr__(self) -> str:
        why = f"; no logits, because {self.unattributed}" if self.unattributed else ""
        why += "; tokens are not known without input_ids" if (self.selected < 0).all() else ""
        lines = [f"Effects({len(self.head)} heads; removing costs: {self.measure}{why})"]
        lines += [f"  head {at}: selects {x}, writes {y}, removing it costs {cost}" for at, x, y, cost in self.rows()]
        return "\n".join(lines)


class OutputProjection(NamedTuple):
    """The linear layer that reads the outputs of the heads of a layer, side by side."""

    module: nn.Module
    weights: Float[Tensor, "H d_v d"]  # what it makes of each head, in float64


@dataclass
class LayerPass:
    """What one attention layer did while the model ran on all sequences; a row for each query, padded ones included."""

    heads: list[Tensor] = field(default_factory=list)  # what the output projection reads (rows, H · d_v)
    stream: list[Tensor] = field(default_factory=list)  # what enters the block (b, Q, d); nothing if it is not known
    there: list[Tensor] = field(default_factory=list)  # whether it is no padding (b, Q)
    num_tokens: int = 0  # T

    def rows(self) -> Tensor:
        return torch.cat([part.flatten() for part in self.there])


def head_effects(
    source: ModelAndBatch,
    found: "list[Head]",
    heads: Collection[tuple[int, int]] | None,
    targets: Any,
    draws: int,
    seed: int,
    callback: Callable[[Progress], object] | None,
) -> Effects:
    """The effects of heads; see :meth:`attsvm.inspect.Inspection.effects`."""
    known = {(one.layer, one.head): one for one in found}
    if not isinstance(heads, Iterable | None):
        raise ProblemError(f"heads: expected heads of the inspection, as [(layer, head), ...], got {heads!r}")
    chosen: list[Any] = list(known) if heads is None else [tuple(at) if np.ndim(at) else at for at in heads]
    unknown = [at for at in chosen if at not in known]
    if unknown or not chosen:
        got = unknown[0] if unknown else "none"
        raise ProblemError(f"heads: expected heads of the inspection, as (layer, head), got {got}")
    with torch.no_grad(), evaluating(source.model), Uncompiled():
        return Ablations.of(source, sorted({layer for layer, _ in chosen}), targets).measured(
            [known[at] for at in chosen], draws, seed, callback
        )


@dataclass(frozen=True)
class Ablations:
    """A model as it is, its layers of interest by their numbers, and what removing their heads changes."""

    source: ModelAndBatch
    batch: Any  # on the device of the model
    projections: dict[int, OutputProjection]
    recorded: dict[int, LayerPass]
    outputs: list[Tensor]  # of the model: the last hidden state, or whatever comes first; nothing of logits
    there: list[Tensor] | None  # the places of the outputs that are no padding (b, Q); None if they have no such places
    measure: str
    targets: list[Tensor] | None  # of the loss (b, Q)
    direct: "DirectPath | None"
    unattributed: str

    @classmethod
    def of(cls, source: ModelAndBatch, indices: list[int], given: Any) -> "Ablations":
        """Find the output projections on the first sequence, and run the model as it is."""
        model, batch = source.model, on_device_of(source.model, source.batch)
        wanted = {index: source.layers[index] for index in indices}
        first = _first_sequence(batch)
        projections = _projections(source, wanted, first)
        head: Any = getattr(model, "get_output_embeddings", lambda: None)()
        direct, unattributed = None, f"{type(model).__name__} has no output head; {NAMING_A_HEAD}"
        if head is not None:
            try:
                direct, unattributed = DirectPath.of(model, first, head, projections), ""
            except ProblemError as error:
                unattributed = str(error)
        recorded = {index: LayerPass() for index in wanted}
        places: dict[str, list[Tensor]] = {layer.name: [] for layer in source.layers}
        lengths = dict[str, int]()
        ahead = dict[str, bool]()  # whether queries of self-attention may attend to later tokens
        outputs: list[Tensor] = []

        def read(layer: AttentionLayer, inputs: Callable[[], LayerInputs]) -> None:
            at = inputs()
            places[layer.name].append(at.places.queries.cpu())
            b, Q, T = len(at.call.query), at.call.query.shape[-2], at.call.key.shape[-2]
            lengths[layer.name] = T
            if at.is_self:
                allowed = allowed_tokens(at.call.mask, b, Q, T).cpu() & at.places.queries.cpu()[..., None]
                ahead[layer.name] = ahead.get(layer.name, False) or bool(allowed.triu(1).any())

        for piece in chunks(batch):
            with contextlib.ExitStack() as stack:
                for index, layer in wanted.items():
                    _record(stack, model, layer, projections[index], recorded[index])
                if direct is not None:
                    direct.record(stack)
                stack.enter_context(reading(source.layers, read, with_attention=True))
                returned = call_model(model, piece)
            output = _output(returned)
            is_lm = head is not None and output.ndim == 3 and output.shape[-1] == len(head.weight)
            outputs.append(output[..., :0] if is_lm else output)
        for index, of_layer in recorded.items():
            of_layer.there, of_layer.num_tokens = places[wanted[index].name], lengths[wanted[index].name]
            if [one.shape[:2] for one in of_layer.stream] != [one.shape for one in of_layer.there]:
                of_layer.stream.clear()  # the block has other places, such as those of all windows
        if given is not None and not is_lm:
            hint = f"; {NAMING_A_HEAD}" if head is None else ""
            raise ProblemError(f"targets: expected a model whose output are logits, got {type(model).__name__}{hint}")
        shapes = [output.shape[:2] for output in outputs]
        # of the last layer with the places of the output
        of_layers = reversed(places.values()) if output.ndim == 3 else ()
        there = next((of for of in of_layers if [one.shape for one in of] == shapes), None)
        is_causal = not next(reversed(ahead.values()), False)  # of the last layer: an encoder may run before it
        targets = _targets(model, batch, given, there, is_causal, output.shape[-1]) if is_lm else None
        what = "the last hidden state" if output is getattr(returned, "last_hidden_state", None) else "the output"
        measure = f"relative change of {what}" if targets is None else "loss"
        return cls(source, batch, projections, recorded, outputs, there, measure, targets, direct, unattributed)

    def measured(
        self, heads: "list[Head]", draws: int, seed: int, callback: Callable[[Progress], object] | None
    ) -> Effects:
        """Attribute and ablate heads."""
        as_is = self._value(_output(call_model(self.source.model, piece)) for piece in chunks(self.batch))
        rows = []
        for step, one in enumerate(heads, start=1):
            at = one.layer, one.head
            there = self.recorded[one.layer].rows()
            size = self.projections[one.layer].weights.shape[1]
            own = torch.cat(self.recorded[one.layer].heads)[:, one.head * size : (one.head + 1) * size]
            pool, generator = own[there], np.random.default_rng([seed, *at])
            costs = [self._without(one, pool.mean(dim=0, dtype=torch.float64).to(pool).expand_as(own)) - as_is]
            for _ in range(draws):
                places = torch.as_tensor(generator.integers(len(pool), size=len(own)))
                costs.append(self._without(one, pool[places]) - as_is)
            rows.append((*at, *self._selects(one), *self._writes(one, own, there), costs[0], costs[1:]))
            if callback is not None:
                callback(Progress(step, len(heads)))
        columns: list[Any] = [np.array(column) for column in zip(*rows, strict=True)]
        return Effects(*[*columns, self.measure, self.unattributed])

    def _without(self, one: "Head", new: Tensor) -> float:
        """The measure when rows of a head's output are other ones."""
        module, weights = self.projections[one.layer]
        size, there, done = weights.shape[1], self.recorded[one.layer].rows(), 0
        at = slice(one.head * size, (one.head + 1) * size)

        def replaced(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            nonlocal done
            heads = arguments[0].clone()
            flat = heads.view(-1, heads.shape[-1])
            rows = slice(done, done + len(flat))
            done += len(flat)
            some = there[rows].to(flat.device)
            flat[some, at] = new[rows].to(flat.device)[some]
            return heads, *arguments[1:]

        hook = module.register_forward_pre_hook(replaced)
        try:
            return self._value(_output(call_model(self.source.model, piece)) for piece in chunks(self.batch))
        finally:
            hook.remove()

    def _value(self, outputs: Iterator[Tensor]) -> float:
        """The loss, or the relative change of the output."""
        total, count = 0.0, 0
        for k, output in enumerate(outputs):
            if self.targets is not None:
                for logits, of_sequence in zip(output, self.targets[k].to(output.device), strict=True):
                    counts = of_sequence != NOT_COUNTED
                    losses = nn.functional.cross_entropy(logits[counts].double(), of_sequence[counts], reduction="sum")
                    total, count = total + float(losses), count + int(counts.sum())
                continue
            before, after = self.outputs[k].double(), output.double()
            changes = ((after - before).norm(dim=-1) / before.norm(dim=-1)).nan_to_num()
            some = changes[self.there[k].to(changes.device)] if self.there is not None else changes
            total, count = total + float(some.sum()), count + some.numel()
        return total / count

    def _selects(self, one: "Head") -> tuple[str, int, float]:
        """The pattern of a head, or the token that most queries select, and the share."""
        shares = {name: one.numbers.get(measure) or 0.0 for name, measure in HEAD_SETS.items()}
        best, tokens = max(shares, key=lambda name: shares[name]), self.source.tokens
        if shares[best] >= 0.5:
            return best, -1, shares[best]
        asks = one.selected >= 0
        if tokens is None or tokens.shape != (len(one.selected), self.recorded[one.layer].num_tokens):
            return "", -1, math.nan
        (token, count), *_ = Counter(np.take_along_axis(tokens, one.selected, axis=1)[asks].tolist()).most_common(1)
        return "", token, count / int(asks.sum())

    def _writes(self, one: "Head", own: Tensor, there: Tensor) -> tuple[float, float, float, np.ndarray]:
        """Norm, share of the stream, attribution and tokens of what a head adds."""
        part = own.double() @ self.projections[one.layer].weights[one.head]
        norms, share = part.norm(dim=-1), math.nan
        if self.recorded[one.layer].stream:
            stream = torch.cat([_double(of_piece) for of_piece in self.recorded[one.layer].stream])
            share = float((norms / stream.norm(dim=-1))[there].mean())
        nothing = math.nan, np.full(WRITTEN, -1)
        scale = 0.0 if self.direct is None else self.direct.scales[one.layer]
        if self.direct is None or not scale:
            return float(norms[there].mean()), share, *nothing
        read, logits = scale * self.direct.read(part), self.direct.logits
        written = (read[there].mean(dim=0) @ logits.T).topk(min(WRITTEN, len(logits))).indices
        attribution = math.nan
        if self.targets is not None:
            target = torch.cat([of_piece.flatten() for of_piece in self.targets]).cpu()
            counts = target != NOT_COUNTED
            attribution = float((read[counts] * logits[target[counts]]).sum(dim=-1).mean())
        return float(norms[there].mean()), share, attribution, np.resize(written.numpy(), WRITTEN)


def _first_sequence(batch: Any) -> Any:
    n = num_sequences(batch)
    if n is None:
        return batch
    return {
        name: one[:1] if isinstance(one, Tensor) and one.ndim and len(one) == n else one for name, one in batch.items()
    }


def _output(output: Any) -> Tensor:
    """Logits, the last hidden state, or the first tensor that a model returns."""
    named = (getattr(output, name, None) for name in ("logits", "last_hidden_state"))
    return next(one for one in (*named, *tensors_in(output)) if isinstance(one, Tensor) and one.is_floating_point())


def _record(
    stack: contextlib.ExitStack, model: nn.Module, layer: AttentionLayer, projection: OutputProjection, into: LayerPass
) -> None:
    """Record what an output projection reads, and the residual stream that enters the block."""
    width = projection.weights.shape[-1]

    def keep(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        into.heads.append(arguments[0].flatten(0, -2).cpu())

    def keep_stream(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        stream = next((one for one in tensors_in((arguments, keywords)) if one.is_floating_point()), None)
        if stream is not None and stream.ndim == 3 and stream.shape[-1] == width:
            into.stream.append(stream.cpu())

    stack.callback(projection.module.register_forward_pre_hook(keep).remove)
    # blocks have numbers, as "h.0" has in "h.0.attn.attention", whose own parent reads a norm of the stream
    numbered = re.match(r"(.*\.)?\d+(?=\.)", layer.name)
    around = numbered[0] if numbered else layer.name.rpartition(".")[0]
    if around:
        stack.callback(model.get_submodule(around).register_forward_pre_hook(keep_stream, with_kwargs=True).remove)


def _projections(source: ModelAndBatch, wanted: dict[int, AttentionLayer], first: Any) -> dict[int, OutputProjection]:
    """The output projection of each layer: the linear layer whose input are the outputs of its heads, side by side.

    Raises ProblemError if a layer has none, or it is not linear.
    """
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []
    heads: dict[str, Tensor] = {}

    def read(layer: AttentionLayer, inputs: Callable[[], LayerInputs]) -> None:
        call = inputs().call
        if call.mixed is not None and layer.run is None:  # a module that several layers share runs several times
            outputs = call.mixed[1].reshape(*call.query.shape[:3], -1)  # sequences and heads may be one axis
            heads[layer.name] = outputs.transpose(1, 2).flatten(0, 1)  # (rows, H, d_v)

    def keep(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        if arguments and isinstance(arguments[0], Tensor) and isinstance(output, Tensor):
            calls.append((module, arguments[0].flatten(0, -2), output.flatten(0, -2)))

    with contextlib.ExitStack() as stack:
        for module in source.model.modules():
            if getattr(getattr(module, "weight", None), "ndim", 0) == 2 and not isinstance(module, nn.Embedding):
                stack.callback(module.register_forward_hook(keep).remove)
        stack.enter_context(reading(list(wanted.values()), read, with_attention=True))
        call_model(source.model, first)
    found = {}
    for index, layer in wanted.items():
        made = heads.get(layer.name, torch.zeros(0, 1, 1))
        # the last one: a linear layer with adapters is called behind those that it is made of
        same = [call for call in calls if torch.equal(call[1], made.flatten(1))]
        problem = "no linear layer reads the outputs of its heads, side by side, and nothing else"
        try:
            for module, _, output in same[-1:]:
                weights, bias = _of_heads(module, *made.shape[1:])
                rebuilt = torch.einsum("rhv,hvd->rd", made.double().cpu(), weights) + bias
                error = float((rebuilt - output.cpu()).abs().max() / output.abs().max())
                found[index] = OutputProjection(module, weights)
                if not error <= _rounding(output):
                    raise ProblemError(f"the sum over its heads differs from what it returns by {error:.1g}")
        except Exception as error:  # weights of other kinds, as quantised ones
            problem = f"its output projection cannot be split ({reason(error)})"
            found.pop(index, None)
        if index not in found:
            raise ProblemError(f"heads: layer {index} ({layer.name}) has no effects of single heads, because {problem}")
    return found


def _rounding(output: Tensor) -> float:
    return max(AGREES, 16 * torch.finfo(output.dtype).eps)


def _of_heads(module: nn.Module, heads: int, size: int) -> tuple[Tensor, Tensor]:
    """What an affine module makes of each head (H, d_v, d), and its bias, in float64."""
    weights = {name: weight.detach().double() for name, weight in module.named_parameters()}
    inputs = torch.eye(heads * size + 1, heads * size, dtype=torch.float64, device=next(iter(weights.values())).device)
    rows = functional_call(module, weights, (inputs,)).cpu()  # the last row is that of 0
    return (rows[:-1] - rows[-1]).view(heads, size, -1), rows[-1]


def _targets(
    model: nn.Module, batch: Any, given: Any, there: list[Tensor] | None, is_causal: bool, vocabulary: int
) -> list[Tensor]:
    """The tokens that the logits are compared with, in pieces of the batch.

    By default the next token if no query attends to later tokens, and else the token itself.
    """
    tokens = given
    if given is None and isinstance(batch, Mapping):
        tokens = batch.get("decoder_input_ids" if has_decoder(model) else "input_ids")
    elif given is None and isinstance(batch, Tensor):
        tokens = batch
    shape = () if there is None else (sum(map(len, there)), there[0].shape[1])
    if there is None or tokens is None or np.shape(tokens) != shape:
        got = "none" if tokens is None else tuple(np.shape(tokens))
        raise ProblemError(f"targets: expected tokens of the shape {shape} of the logits, got {got}")
    target, counts = torch.as_tensor(tokens).cpu(), torch.cat(there)
    if target.is_floating_point():
        raise ProblemError(f"targets: expected integers, got {target.dtype}")
    if given is None and is_causal:
        target, counts = target.roll(-1, 1), counts & counts.roll(-1, 1)
        counts[:, -1] = False
    target = target.long().masked_fill(~counts, NOT_COUNTED)
    counted = target[target != NOT_COUNTED]
    if not len(counted) or counted.min() < 0 or counted.max() >= vocabulary:
        got = f"{int(counted.min())} to {int(counted.max())}" if len(counted) else "none that counts"
        raise ProblemError(f"targets: expected tokens from 0 to {vocabulary - 1}, got {got}")
    return list(target.split([len(one) for one in there]))  # type: ignore[no-untyped-call]


@dataclass
class DirectPath:
    """From what heads add to the logits: the residual stream, the last norm at its actual scale, the output head."""

    norm: nn.Module
    logits: Float[Tensor, "vocabulary d"]  # the matrix of the output head, minus its mean over the vocabulary
    scales: dict[int, float]  # by which the stream multiplies what a layer adds, usually 1; without a path 0
    streams: list[Tensor] = field(default_factory=list)  # what the norm reads (rows, d)

    @classmethod
    def of(cls, model: nn.Module, first: Any, head: Any, projections: dict[int, OutputProjection]) -> "DirectPath":
        """Find the last norm, and which layers add to what it reads.

        With the outputs of all other norms kept as they are, a vector that is added to the output of a layer reaches
        the last norm only through the residual stream.

        Raises ProblemError if the path is not linear up to the scale of the last norm.
        """
        norms = [module for module in model.modules() if "norm" in type(module).__name__.lower()]
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []
        with contextlib.ExitStack() as stack:
            for module in (*norms, head):
                hook = module.register_forward_hook(lambda module, given, made: calls.append((module, given[0], made)))
                stack.callback(hook.remove)
            logits = _output(call_model(model, first)).double()
        *calls, (of_head, seen, raw) = calls
        last = next((call for call in reversed(calls) if of_head is head and torch.equal(call[2], seen)), None)
        if last is None or sum(call[0] is last[0] for call in calls) != 1:
            raise ProblemError(f"the output head of {type(model).__name__} does not read the output of a norm")
        norm, entered, _ = last
        raw = raw.double()  # the logits are a multiple of it in Cohere and Granite
        multiple = float((logits * raw).sum() / raw.square().sum()) if logits.shape == raw.shape else math.nan
        if not float((logits - multiple * raw).abs().max()) <= _rounding(seen) * float(logits.abs().max()):
            raise ProblemError("the logits are not a multiple of what the output head returns, as with a soft cap")
        kept = iter([output for module, _, output in calls if module is not norm])
        draws = torch.randn(len(projections), entered.shape[-1], generator=torch.Generator().manual_seed(0))
        added, moved = draws.to(entered) * entered.std(), list[Tensor]()
        with contextlib.ExitStack() as stack:
            for module in norms:
                if module is not norm:
                    stack.callback(module.register_forward_hook(lambda *_: next(kept)).remove)
            for (module, _), vector in zip(projections.values(), added, strict=True):
                stack.callback(module.register_forward_hook(lambda _, __, output, v=vector: output + v).remove)
            stack.callback(norm.register_forward_pre_hook(lambda _, given: moved.append(given[0])).remove)
            call_model(model, first)
        # every place moves by Σ c_l v_l
        change, vectors = _double(moved[0] - entered), _double(added)
        scales = torch.linalg.lstsq(vectors.T, change.mean(dim=0)[:, None]).solution[:, 0]
        scales[scales.abs() <= AGREES] = 0
        if not float((change - scales @ vectors).abs().max() / vectors.abs().max()) <= _rounding(entered):
            raise ProblemError("what attention heads add does not reach the last norm unchanged")
        if not scales.any():
            raise ProblemError(
                "what attention heads add does not reach the last norm, as in models that normalise their stream"
            )
        matrix = _double(head.weight)
        direct = cls(
            norm,
            multiple * (matrix - matrix.mean(dim=0)),
            dict(zip(projections, scales.tolist(), strict=True)),
            [entered],
        )
        direct.read(_double(entered))  # refuses norms that do more than scale
        direct.streams.clear()
        return direct

    def record(self, stack: contextlib.ExitStack) -> None:
        """Keep what the norm reads in a pass of the model."""
        hook = self.norm.register_forward_pre_hook(lambda _, given: self.streams.append(given[0].cpu()))
        stack.callback(hook.remove)

    def read(self, part: Float[Tensor, "rows d"]) -> Float[Tensor, "rows d"]:
        """What the output head receives of a part of the stream."""
        rest = torch.cat([_double(stream) for stream in self.streams]) - part
        return normed(self.norm, {"part": part[None], "rest": rest[None]})["part"][0]


def _double(tensor: Tensor) -> Float[Tensor, "rows d"]:
    return tensor.detach().flatten(0, -2).double().cpu()
