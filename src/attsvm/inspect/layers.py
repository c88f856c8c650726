"""The attention layers of a model, and how one call of a layer is read."""

import contextlib
import inspect as signatures
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from attsvm.errors import ProblemError
from attsvm.inspect.families.base import FAMILIES, Family, Layout, find_family
from attsvm.inspect.families.call import AttentionCall, AttentionCalls
from attsvm.inspect.families.projection_search import ProjectionCandidate, Recipe, Sources, find_recipe
from attsvm.inspect.families.transformers import Transformers
from attsvm.inspect.weights import Projections

CLASS_TOKENS = ("cls_token", "class_embedding", "class_token")
"""Names of the parameter that models of pictures put before the patches."""


class LayerInputs(NamedTuple):
    """What one call of an attention layer computed its logits from."""

    call: AttentionCall
    found: ProjectionCandidate | None  # how queries and keys are made from tokens
    is_self: bool  # whether queries and keys are made from the same tokens


@dataclass
class AttentionLayer:
    """An attention layer of a model: its name there, its module, and how it is read."""

    name: str
    module: nn.Module
    family: Family
    class_token: bool = False  # whether the first token is a class token, which no tokenizer marks as special
    recipe: Recipe | None = None  # how queries and keys are made from tokens, once a call was read and if it is found

    def read(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any, seen: AttentionCall | None
    ) -> LayerInputs:
        """What a call of the module computed its logits from; ``seen``: what it passed to an attention function."""
        bound = signatures.signature(self.module.forward).bind(*arguments, **keywords)
        named = {key: value for key, value in bound.arguments.items() if key not in ("args", "kwargs")}
        named |= bound.arguments.get("kwargs", {})
        call = self.family.call(self.module, named, output, seen)
        tokens, T = self.family.tokens(self.module, named), call.key.shape[-2]
        norms = [part for part in self.module.modules() if "norm" in type(part).__name__.lower()]
        rotation = self.family.rotation(self.module, named, T)
        with torch.no_grad():
            found = find_recipe(call, Sources(self.family.linears(self.module), norms, tokens, rotation))
        self.recipe = None if found is None else found.recipe
        if found is not None:
            return LayerInputs(call, found, found.queries is found.keys)
        alike = len({id(one) for one in tokens if one.shape[:2] == (len(call.key), T)}) < 2
        return LayerInputs(call, None, call.query.shape[-2] == T and alike)

    def projections(self) -> Projections | None:
        """The present query and key weights of every head; None if no call was read, or they were not found."""
        return None if self.recipe is None else self.recipe.projections(self.family.linears(self.module))


@contextlib.contextmanager
def reading(
    layers: list[AttentionLayer],
    read: Callable[[AttentionLayer, Callable[[], LayerInputs]], None],
    *,
    with_attention: bool = False,
) -> Iterator[None]:
    """Read the calls of attention layers while their model runs.

    ``read``: called behind each call of a layer, with what computes its inputs. ``with_attention``: let modules return
    their attention that do so only on request.
    """
    calls = AttentionCalls()

    def attach(layer: AttentionLayer) -> list[RemovableHandle]:
        def before(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            calls.calls.clear()
            return layer.family.prepared(arguments, keywords) if with_attention else None

        def after(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            read(layer, partial(layer.read, arguments, keywords, output, calls.take(layer.name)))

        return [
            layer.module.register_forward_pre_hook(before, with_kwargs=True),
            # before the hook of FSDP, which takes the weights away
            layer.module.register_forward_hook(after, with_kwargs=True, prepend=True),
        ]

    with contextlib.ExitStack() as stack:
        stack.enter_context(calls)
        stack.enter_context(calls.with_interface())
        for hook in (hook for layer in layers for hook in attach(layer)):
            stack.callback(hook.remove)
        yield


def attention_layers(model: nn.Module, family: str | Family | type[Family] | None = None) -> list[AttentionLayer]:
    """The attention layers of a model, in the order of its modules.

    ``family``: how they are read; by default every family of :data:`FAMILIES` is tried.

    Raises ProblemError if there is no such family, the model has no layer of it, or without a family the model has
    attention of another kind as well.
    """
    if not isinstance(model, nn.Module):
        raise ProblemError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    families = sorted(FAMILIES, key=lambda one: type(one) is Transformers) if family is None else [find_family(family)]
    class_token = any(name.split(".")[-1] in CLASS_TOKENS for name, _ in model.named_parameters())
    found = []
    for name, module in model.named_modules():
        one = next((one for one in families if one.matches(name, module)), None)
        if one is not None:
            pictures = getattr(getattr(module, "config", None), "patch_size", None) is not None
            found.append(AttentionLayer(name or type(module).__name__, module, one, class_token and pictures))
    unread = sorted({type(module).__name__ for module in _unread(model, found)})
    if family is not None and not found:
        has = f"; it has {', '.join(unread)}" if unread else ""
        wanted = repr(families[0]) if isinstance(families[0], Layout) else families[0]
        raise ProblemError(f"family: {type(model).__name__} has no attention layer that {wanted} matches{has}")
    known = ", ".join(FAMILIES.names())
    if unread and family is None:
        raise ProblemError(
            f"model: expected attention of a known family ({known}), got {', '.join(unread)} in {type(model).__name__};"
            " family= can read it, or leave it out"
        )
    if not found:
        raise ProblemError(
            f"model: {type(model).__name__} has no attention layer of a known family ({known});"
            " family=attsvm.inspect.Layout(...) names modules of your own"
        )
    return found


def _unread(model: nn.Module, found: list[AttentionLayer]) -> Iterator[nn.Module]:
    """The modules that are called attention, are not read, and neither contain nor belong to one that is read."""
    read = {id(part) for layer in found for part in layer.module.modules()}
    for module in model.modules():
        named = "attention" in type(module).__name__.lower() and next(module.parameters(), None) is not None
        if named and not any(id(part) in read for part in module.modules()):
            yield module
