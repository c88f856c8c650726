"""ALBERT, whose layers share one module.

References: Lan et al. (2020), *ALBERT: A Lite BERT for Self-supervised Learning of Language Representations*.
"""

from typing import Any, ClassVar

from attsvm.inspect.families.base import FAMILIES
from attsvm.inspect.families.transformers import Transformers


class Albert(Transformers):
    """Self-attention of ALBERT, which runs once for every layer of its group."""

    name = "ALBERT"
    modules: ClassVar[tuple[str, ...]] = ("AlbertAttention",)

    def runs(self, module: Any) -> int:
        """The number of layers of each group."""
        config = module.config
        # of groups of different sizes the larger ones are refused, because they run more often
        return max(1, int(config.num_hidden_layers) // int(config.num_hidden_groups))


FAMILIES.register(Albert.name, Albert())
