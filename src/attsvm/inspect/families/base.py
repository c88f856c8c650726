"""Families of transformers: how their attention modules are recognised and read, and the families that are known."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from attsvm._utils.extensions import Registry
from attsvm.errors import ProblemError
from attsvm.inspect.families.call import AttentionCall
from attsvm.inspect.families.projection_search import Linear, Rotation


class Family(ABC):
    """How to recognise and read the attention modules of one family of transformers.

    A subclass provides ``name`` and :meth:`matches`. It provides :meth:`call`, too, if its modules call neither
    ``torch.nn.functional.scaled_dot_product_attention`` nor an attention function of the ``transformers`` package.

    The linear layers that make queries and keys are found by comparing what they make with the call. Without them
    everything is known that follows from queries and keys: selections, concentration, and margins.

    See Also
    --------
    attsvm.inspect.Layout : Modules that are described by their names.
    attsvm.inspect.inspect
    """

    name: ClassVar[str]
    """What the family is called, in the registry and on pages."""

    unread: ClassVar[str] = "it depends on something that cannot be read"
    """What to say where the attention is not that of the queries, keys and mask of a call."""

    traced: ClassVar[bool] = False
    """Whether logits are followed to a softmax of the module itself, to be ``seen`` in :meth:`call`."""

    general: ClassVar[bool] = False
    """Whether this class, but not its subclasses, is tried after all other families."""

    @abstractmethod
    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether a module, given with its name in the model, is an attention layer of this family."""

    def prepared(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the module with; by default those of the model.

        Override it if the module returns its attention only on request.
        """
        return arguments, keywords

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        """The queries, keys and mask of one call of a module.

        ``arguments`` are those of the call, by name, and ``output`` is what the module returned. ``seen`` is what it
        passed to an attention function; None if it called none, which is an error by default.
        """
        if seen is None:
            raise ProblemError(
                f"model: {type(module).__name__} does not call scaled_dot_product_attention or an attention function of"
                f" transformers, and the family {self} has no method call"
            )
        return seen

    def runs(self, module: Any) -> int:
        """How often a module runs in a pass of its model: once, unless several layers share it."""
        return 1

    def rotation(self, module: Any, arguments: dict[str, Any], num_tokens: int) -> Rotation | None:
        """Cosines and sines of rotary positions; by default the argument ``position_embeddings``.

        Of shapes (b or 1, T, d_r) for the first d_r coordinates of each head, or (b or 1, T, d_r/2) for its pairs. The
        coordinates i and i + d_r/2 are rotated together, or 2i and 2i + 1.
        """
        found = arguments.get("position_embeddings")
        if not (isinstance(found, tuple) and len(found) == 2 and all(isinstance(part, Tensor) for part in found)):
            return None
        # tokens before the first that has a position, such as a class token, are not rotated
        before = (0, 0, num_tokens - found[0].shape[-2], 0)
        cosine, sine = (part if part.ndim == 3 else part[None] for part in found)
        return functional.pad(cosine, before, value=1.0), functional.pad(sine, before)

    def linears(self, module: Any) -> dict[str, Linear]:
        """Weight (rows, d) and bias of each linear layer that may make queries or keys, by name."""
        found = {}
        for name, layer in module.named_modules():
            weight = getattr(layer, "weight", None)
            if isinstance(layer, nn.Embedding) or not (isinstance(weight, Tensor) and weight.ndim == 2):
                continue
            if weight.is_floating_point():  # quantised weights are no matrix
                # Conv1D of transformers holds the transpose of what nn.Linear holds
                transposed = type(getattr(layer, "base_layer", layer)).__name__ == "Conv1D"
                weight = _adapted(layer, weight)
                found[name] = (weight.T if transposed else weight, getattr(layer, "bias", None))
        return found

    def tokens(self, module: Any, arguments: dict[str, Any]) -> list[Tensor]:
        """The tokens (b, T, d) from which queries or keys may be made: by default every argument of that kind."""
        tensors = (one for one in arguments.values() if isinstance(one, Tensor))
        return [one for one in tensors if one.ndim == 3 and one.is_floating_point()]

    def __str__(self) -> str:
        return self.name


def _adapted(layer: Any, weight: Tensor) -> Tensor:
    """The weight of a layer with its adapters of PEFT that are active and not merged, as W + BA of LoRA."""
    if not hasattr(layer, "get_delta_weight") or layer.merged or layer.disable_adapters:
        return weight
    there = getattr(layer, layer.adapter_layer_names[0])
    for name in (one for one in layer.active_adapters if one in there):
        weight = weight + layer.get_delta_weight(name)
    return weight


@dataclass(frozen=True)
class Layout(Family):
    """Names of the attention modules of a model.

    For modules that call ``torch.nn.functional.scaled_dot_product_attention`` on (batch, heads, T, d_h). Queries, keys,
    mask and scale are read from that call.

    Parameters
    ----------
    modules : str
        ``*`` matches any text without a dot: ``"blocks.*.attn"`` matches ``blocks.0.attn``, and ``"layers.*"`` does not
        match ``layers.0.qkv``.

    See Also
    --------
    attsvm.inspect.Family, attsvm.inspect.inspect

    Examples
    --------
    >>> from torch import nn
    >>> from attsvm.inspect import Layout
    >>> layout = Layout("blocks.*.attn")
    >>> layout.matches("blocks.0.attn", nn.Identity()), layout.matches("blocks.0.attn.qkv", nn.Identity())
    (True, False)
    """

    modules: str
    name = "Layout"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether the name of the module matches ``modules``."""
        return re.fullmatch(re.escape(self.modules).replace(r"\*", r"[^.]*"), name) is not None


def _family(found: object) -> Family:
    if isinstance(found, Family):
        return found
    if isinstance(found, type) and issubclass(found, Family):
        try:
            return found()
        except TypeError as error:  # it needs arguments, or an abstract method is not implemented
            raise ProblemError(f"{found.__name__} cannot be created ({error})") from None
    raise ProblemError(f"expected a Family or a subclass of it, got {type(found).__name__}")


FAMILIES: Registry[Family] = Registry(
    "family", group="attsvm.families", package="attsvm.inspect.families", check=_family
)


def find_family(family: str | Family | type[Family]) -> Family:
    """The family of a name in any case, of an import path, or of a class, which is created; a family as it is.

    Raises ProblemError if it names no family.
    """
    if not isinstance(family, str):
        try:
            return _family(family)
        except ProblemError as error:
            raise ProblemError(f"family: {error}") from None
    names = {name.lower(): name for name in FAMILIES.names()}
    return FAMILIES.find(names.get(family.lower(), family))
