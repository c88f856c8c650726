"""Attention modules of any other model, described by their names."""

import re
from dataclasses import dataclass

from torch import nn

from attsvm.inspect.families.base import Family


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

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*.

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
