"""The attention layers of a model."""

from dataclasses import dataclass

from torch import nn

from attsvm.errors import ProblemError
from attsvm.inspect.families.base import Family
from attsvm.inspect.families.registry import FAMILIES, find_family


@dataclass(frozen=True)
class AttentionLayer:
    """An attention layer of a model: its name there, its module, and how it is read."""

    name: str
    module: nn.Module
    family: Family


def attention_layers(model: nn.Module, family: str | Family | type[Family] | None = None) -> list[AttentionLayer]:
    """The attention layers of a model, in the order of its modules.

    ``family``: how they are read; by default every family of :data:`FAMILIES` is tried.

    Raises ProblemError if there is no such family, or the model has no layer of it.
    """
    if not isinstance(model, nn.Module):
        raise ProblemError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    families = list(FAMILIES) if family is None else [find_family(family)]
    found = [
        AttentionLayer(name or type(module).__name__, module, one)
        for name, module in model.named_modules()
        for one in families
        if one.matches(name, module)
    ]
    if not found:
        raise ProblemError(_nothing_found(model, None if family is None else families[0]))
    return found


def _nothing_found(model: nn.Module, family: Family | None) -> str:
    name = type(model).__name__
    similar = sorted(
        {type(module).__name__ for module in model.modules() if "attention" in type(module).__name__.lower()}
    )
    if family is not None:
        has = f"; it has {', '.join(similar)}" if similar else ""
        return f"family: {name} has no attention layer that {family} matches{has}"
    known = ", ".join(FAMILIES.names())
    if similar:
        return (
            f"model: expected attention of a known family ({known}), got {', '.join(similar)} in {name};"
            " other models need family="
        )
    return f"model: {name} has no attention layer of a known family ({known})"
