"""The attention layers of a model, and how one call of a layer is read."""

import contextlib
import inspect as signatures
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from attsvm._utils.files import reason
from attsvm._utils.text import without_wrappers
from attsvm.errors import ProblemError
from attsvm.inspect.families.base import FAMILIES, Family, Layout, find_family
from attsvm.inspect.families.call import AttentionCall, AttentionCalls
from attsvm.inspect.families.logit_trace import LogitTrace
from attsvm.inspect.families.projection_search import ProjectionCandidate, Recipe, Sources, find_recipe
from attsvm.inspect.families.transformers import Transformers
from attsvm.inspect.padding import Padding, Places
from attsvm.inspect.weights import Projections

CLASS_TOKENS = ("cls_token", "class_embedding", "class_token")
"""Names of the parameter that models of pictures put before the patches."""


class LayerInputs(NamedTuple):
    """What one call of an attention layer computed its logits from."""

    call: AttentionCall
    found: ProjectionCandidate | None  # how queries and keys are made from tokens
    is_self: bool  # whether queries and keys are made from the same tokens
    places: Places  # those that are no padding


class Ran(NamedTuple):
    """One call of the module of an attention layer."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    output: Any
    seen: AttentionCall | None  # what it passed to an attention function


@dataclass
class AttentionLayer:
    """An attention layer of a model: its name there, its module, and how it is read."""

    name: str
    module: nn.Module
    family: Family
    class_token: bool = False  # whether the first token is a class token, which no tokenizer marks as special
    recipe: Recipe | None = None  # how queries and keys are made from tokens, once a call was read and if it is found
    unknown: str = ""  # why the weights cannot be read
    run: int | None = None  # which of the runs of its module in a pass it is, from 0, if several layers share it

    def read(self, ran: Ran, padding: Padding) -> LayerInputs:
        """What a call of the module computed its logits from; ``padding``: of this pass of the model."""
        named, call, mask, alike = self._arguments(ran)
        tokens = self.family.tokens(self.module, named)
        norms = [part for part in self.module.modules() if "norm" in type(part).__name__.lower()]
        rotation = self.family.rotation(self.module, named, call.key.shape[-2])
        found, self.unknown = None, ""
        try:
            with torch.no_grad():
                sources = Sources(self.family.linears(self.module), norms, tokens, rotation)
                found = find_recipe(call, sources, self.recipe)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # weights of other kinds, as quantised ones
            self.unknown = reason(error)
        self.recipe = None if found is None else found.recipe
        shared = alike if found is None else found.queries is found.keys
        is_self = shared and call.query.shape[-2] == call.key.shape[-2]
        return LayerInputs(call, found, is_self, padding.places(call, mask, shared))

    def watch(self, ran: Ran, padding: Padding) -> None:
        """Learn from a call that is not read which places are padding."""
        _, call, mask, alike = self._arguments(ran)
        padding.places(call, mask, alike)

    def _arguments(self, ran: Ran) -> tuple[dict[str, Any], AttentionCall, Tensor | None, bool]:
        """The arguments of a call by name, the call of attention, its mask, and whether all tokens are the same.

        The mask is that of the module if it calls an attention function of ``transformers``, which may exclude more.
        """
        signature = signatures.signature(self.module.forward)
        bound = signature.bind(*ran.arguments, **ran.keywords)
        named = {key: value for key, value in bound.arguments.items() if key not in ("args", "kwargs")}
        named |= bound.arguments.get("kwargs", {})
        call = self.family.call(self.module, named, ran.output, ran.seen)
        mask = call.mask
        if ran.seen is not None and isinstance(self.family, Transformers) and "attention_mask" in signature.parameters:
            given = named.get("attention_mask")
            if isinstance(given, Tensor) and given.ndim == 2:  # of the tokens
                mask = given[:, None, None].bool()
            elif given is None or (isinstance(given, Tensor) and given.ndim == 4):
                mask = given
        b, Q, T = len(call.key), call.query.shape[-2], call.key.shape[-2]
        tokens = {id(one) for one in self.family.tokens(self.module, named) if one.shape[:2] in ((b, Q), (b, T))}
        return named, call, mask, len(tokens) < 2

    def projections(self) -> Projections | None:
        """The present query and key weights of every head; None if no call was read, or they were not found."""
        try:
            return None if self.recipe is None else self.recipe.projections(self.family.linears(self.module))
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # as those of torchao, which are tensors without some operations
            self.recipe, self.unknown = None, reason(error)
            return None


@contextlib.contextmanager
def reading(
    layers: list[AttentionLayer],
    read: Callable[[AttentionLayer, Callable[[], LayerInputs]], None],
    *,
    others: Iterable[AttentionLayer] = (),
    with_attention: bool = False,
) -> Iterator[set[str]]:
    """Read the calls of attention layers while their model runs once; yields the names of those that have run.

    ``read``: called behind each call of a layer, with what computes its inputs. ``others``: layers that are not read,
    and that tell which places are padding. ``with_attention``: let modules return their attention that do so only on
    request.
    """
    calls, padding = AttentionCalls(), Padding()
    have_run: set[str] = set()
    runs: dict[int, int] = {}  # of the modules that several layers share: the one that happens now

    def count(module: nn.Module, _: tuple[Any, ...]) -> None:
        runs[id(module)] += 1

    def runs_now(layer: AttentionLayer) -> bool:
        # more runs than there are layers are calls of the last one, which are refused
        return layer.run is None or layer.run == min(runs[id(layer.module)], layer.family.runs(layer.module) - 1)

    def attach(layer: AttentionLayer, is_read: bool) -> list[RemovableHandle]:
        def before(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            if not runs_now(layer):
                return None
            calls.calls.clear()
            kept = calls.calls if layer.family.traced else None
            calls.trace = LogitTrace(layer.name, kept, (arguments, keywords))
            return layer.family.prepared(arguments, keywords) if with_attention and is_read else None

        def after(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            if not runs_now(layer):
                return
            have_run.add(layer.name)
            if calls.trace is not None:
                calls.trace.close()
                calls.trace = None

            def ran() -> Ran:
                return Ran(arguments, keywords, output, calls.take(layer.name))

            if is_read:
                read(layer, lambda: layer.read(ran(), padding))
                return
            with contextlib.suppress(Exception):  # a layer that cannot be read tells nothing
                layer.watch(ran(), padding)

        # a model may run the parts of attention that is not read without calling the module itself
        parts = layer.module.modules() if isinstance(layer.family, Unread) else ()
        with_weights = [one for one in parts if next(one.parameters(recurse=False), None) is not None]
        return [
            *(one.register_forward_hook(lambda *_: have_run.add(layer.name)) for one in with_weights),
            layer.module.register_forward_pre_hook(before, with_kwargs=True),
            # before the hook of FSDP, which takes the weights away
            layer.module.register_forward_hook(after, with_kwargs=True, prepend=True),
        ]

    with contextlib.ExitStack() as stack:
        stack.enter_context(calls)
        stack.enter_context(calls.with_interface())
        for layer, is_read in (*((one, True) for one in layers), *((one, False) for one in others)):
            if layer.run is not None and id(layer.module) not in runs:
                runs[id(layer.module)] = -1
                stack.callback(layer.module.register_forward_pre_hook(count, prepend=True).remove)
            for hook in attach(layer, is_read):
                stack.callback(hook.remove)
        yield have_run


def attention_layers(model: nn.Module, family: str | Family | type[Family] | None = None) -> list[AttentionLayer]:
    """The attention layers of a model, in the order of its modules.

    ``family``: how they are read; by default every family of :data:`FAMILIES` is tried, and attention of other kinds
    is :class:`Unread`, behind the others.

    Raises ProblemError if there is no such family, or the model has no layer of it.
    """
    if not isinstance(model, nn.Module):
        raise ProblemError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    in_order = sorted(FAMILIES, key=lambda one: vars(type(one)).get("general", False))
    families = in_order if family is None else [find_family(family)]
    class_token = any(name.split(".")[-1] in CLASS_TOKENS for name, _ in model.named_parameters())
    found = []
    for name, module in model.named_modules():
        *outside, own = name.split(".")
        bare = ".".join([*without_wrappers(outside), own])  # of a compiled model, and one in DDP
        one = next((one for one in families if one.matches(name, module) or one.matches(bare, module)), None)
        if one is not None:
            pictures = getattr(getattr(module, "config", None), "patch_size", None) is not None
            name, runs = name or type(module).__name__, one.runs(module)
            for run in [None] if runs == 1 else range(runs):
                of_run = name if run is None else f"{name} (run {run})"
                found.append(AttentionLayer(of_run, module, one, class_token and pictures, run=run))
    others = _unread(model, found)
    unread = sorted({type(module).__name__ for module in others.values()})
    if family is not None and not found:
        has = f"; it has {', '.join(unread)}" if unread else ""
        wanted = repr(families[0]) if isinstance(families[0], Layout) else families[0]
        raise ProblemError(f"family: {type(model).__name__} has no attention layer that {wanted} matches{has}")
    if not found and not unread:
        raise ProblemError(
            f"model: {type(model).__name__} has no attention layer of a known family ({', '.join(FAMILIES.names())});"
            " family=attsvm.inspect.Layout(...) can name your own modules"
        )
    left = [] if family is not None else [AttentionLayer(name, one, Unread()) for name, one in others.items()]
    if not found:
        refuse_unread(left)
    return found + left


class Unread(Family):
    """Attention that no family reads, of a model that has other attention as well: it must not run."""

    name = "unread"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether a module is of this family: none is."""
        return False

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        """Raise ProblemError."""
        raise _unknown_family([type(module).__name__])


def refuse_unread(layers: Iterable[AttentionLayer]) -> None:
    """Raise ProblemError if one of some layers, which have run, is not read."""
    unread = sorted({type(layer.module).__name__ for layer in layers if isinstance(layer.family, Unread)})
    if unread:
        raise _unknown_family(unread)


def _unknown_family(kinds: list[str]) -> ProblemError:
    return ProblemError(
        f"model: expected attention of a known family ({', '.join(FAMILIES.names())}), got {', '.join(kinds)};"
        " family= can say how to read it, or skip it"
    )


def _unread(model: nn.Module, found: list[AttentionLayer]) -> dict[str, nn.Module]:
    """The modules that are called attention, are not read, and neither contain nor belong to one that is read."""
    # linear attention has no softmax; hybrid models of transformers name the kind of such a layer
    linear = [
        one
        for one in model.modules()
        if "linear_attention" in (getattr(one, "layer_type", None), getattr(one, "block_type", None))
    ]
    known = {id(part) for one in (*linear, *(layer.module for layer in found)) for part in one.modules()}
    unread = {}
    for name, module in model.named_modules():
        kind = type(module).__name__.lower()
        named = "attention" in kind and not kind.endswith(("bias", "output"))
        if named and any(True for _ in module.parameters()) and not any(id(part) in known for part in module.modules()):
            unread[name or type(module).__name__] = module
    return unread
