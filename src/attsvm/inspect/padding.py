"""Which places of a call of attention are queries and tokens, and which are padding."""

from typing import NamedTuple

from torch import Tensor

from attsvm.inspect.families.call import AttentionCall, allowed_entries


class Places(NamedTuple):
    """The places of a call that are no padding."""

    queries: Tensor  # shape (b, Q)
    tokens: Tensor  # shape (b, T)


class Padding:
    """Finds the padding in the calls of one pass of a model.

    The mask of a call is about its keys. In self-attention these are at the places of the queries, so that a place that
    no query sees is padding. The queries of cross-attention are at the places of the last self-attention of as many.
    """

    def __init__(self) -> None:
        self._sides: dict[tuple[int, int], Tensor] = {}

    def places(self, call: AttentionCall, given: Tensor | None, shares_tokens: bool) -> Places:
        """The places of a call.

        ``given``: the mask that the module received. The call may exclude more, as sparse attention does: a token that
        no query selects is no padding. ``shares_tokens``: whether queries and keys are made from the same tokens; keys
        of a cache may be before them, and compressed keys behind.
        """
        b, Q, T = len(call.query), call.query.shape[-2], call.key.shape[-2]
        if shares_tokens and T >= Q:
            self._sides[b, Q] = _seen(call, given)[:, -Q:]
        queries = self._sides.get((b, Q))
        if queries is None:
            queries = _seen(call, None)[:, :1].expand(b, Q)
        return Places(queries, queries if shares_tokens and T == Q else _seen(call, call.mask))


def _seen(call: AttentionCall, mask: Tensor | None) -> Tensor:
    """The tokens (b, T) that a mask lets some query see."""
    b = len(call.query)
    if mask is None:
        return call.query.new_ones(b, call.key.shape[-2]).bool()
    columns = allowed_entries(mask).any(dim=-2)
    return (columns.any(dim=1) if columns.ndim == 3 else columns).expand(b, -1)
