"""The base class of families of transformers: how attention modules are recognised and read."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from attsvm.errors import ProblemError
from attsvm.inspect.families.fused import FusedCall
from attsvm.inspect.families.stream import Step
from attsvm.inspect.weights import Projections


@dataclass(frozen=True)
class LayerInputs:
    """What one call of an attention module computed its logits from, batch first.

    Attributes
    ----------
    keys : Tensor, shape (b, T, d)
        Tokens from which the keys are made.
    queries : Tensor, shape (b, Q, d_q)
        Tokens from which the queries are made; ``keys`` itself in self-attention.
    allowed : Tensor of bool, shape (b, Q, T)
        Which tokens each query may attend to.
    rotation : (Tensor, Tensor), optional
        Cosines and sines (b, T, d_h) of rotary positions.
    projected : (Tensor, Tensor), optional
        Keys and queries (b, H, T, d_h) as the module computed them. They replace the projections of the tokens.
    bias : Tensor, shape (b, H, Q, T), optional
        What the module adds to the logits of each pair of positions, as ALiBi and T5 do.
    scale : float, optional
        Factor of the logits, if it is known from the call only; by default that of the projections.
    """

    keys: Tensor
    queries: Tensor
    allowed: Tensor
    rotation: tuple[Tensor, Tensor] | None = None
    projected: tuple[Tensor, Tensor] | None = None
    bias: Tensor | None = None
    scale: float | None = None

    @property
    def is_self(self) -> bool:
        """Whether keys and queries are made from the same tokens."""
        return self.keys is self.queries


class Family(ABC):
    """How the attention modules of one family of transformers are recognised and read.

    A subclass provides ``name``, :meth:`matches`, :meth:`projections` and :meth:`inputs`. It provides
    :meth:`attention`, too, unless its modules call ``torch.nn.functional.scaled_dot_product_attention``. One call of a
    module is read at a time: :meth:`prepared` sees its arguments before it runs, :meth:`inputs` and :meth:`attention`
    after.

    See Also
    --------
    attsvm.inspect.Layout : Most families are one.
    attsvm.inspect.inspect
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What the family is called, in the registry and on pages; a class attribute ``name = "..."`` is enough."""

    @property
    def first_is_special(self) -> bool:
        """Whether the first token is a class token that no tokenizer marks as special."""
        return False

    @abstractmethod
    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether a module, given with its name in the model, is an attention layer of this family."""

    @abstractmethod
    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head, and the scale of the logits."""

    def prepared(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the module with; by default those of the model.

        Override it if the module returns its attention only on request.
        """
        return arguments, keywords

    @abstractmethod
    def inputs(
        self, module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], call: FusedCall | None
    ) -> LayerInputs:
        """Tokens, queries and mask of one call.

        Parameters
        ----------
        module : Module
        arguments, keywords
            Of the call, from :meth:`prepared`.
        call : FusedCall or None
            What the module passed to ``scaled_dot_product_attention``; None if it did not call it.

        Raises
        ------
        ProblemError
            If the call cannot be read.
        """

    def attention(self, module: Any, output: Any, call: FusedCall | None) -> Tensor | None:
        """The attention that the model itself computed.

        It is compared with the attention that is rebuilt from tokens and W.

        Parameters
        ----------
        module : Module
        output
            What the module returned.
        call : FusedCall or None
            As for :meth:`inputs`. By default the attention is computed from it.

        Returns
        -------
        Tensor, shape (b, H, Q, T), or None
            None if the module does not show its attention; such a model cannot be inspected.
        """
        return None if call is None else call.attention()

    def rebuilt_call(self, module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> FusedCall | None:
        """The call of ``scaled_dot_product_attention`` that does what a module does by itself.

        Parameters
        ----------
        module : Module
        arguments, keywords
            Of its call.

        Returns
        -------
        FusedCall or None
            By default None: a monitor needs modules that call it.
        """
        return None

    def stream(self, model: nn.Module) -> list[Step]:
        """What adds to the residual stream of a model, in order; :meth:`attsvm.inspect.Inspection.explain` needs it.

        Each attention layer is a step ``AddsHeads``; embeddings and MLPs are steps ``Adds``; norms of the
        stream itself are steps ``Norms``.

        Raises
        ------
        ProblemError
            By default: the stream of this family is not described.
        """
        raise ProblemError(
            f"family: {self.name} has no method stream, which describes the residual stream that explain needs"
        )

    def longest(self, config: Any) -> int | None:
        """The largest number of tokens that a model with this ``config`` takes; None if it is not known."""
        return getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)

    def __str__(self) -> str:
        return self.name
