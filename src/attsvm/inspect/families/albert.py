"""ALBERT, whose layers share one module.

References: Lan et al. (2020), *ALBERT: A Lite BERT for Self-supervised Learning of Language Representations*.
"""

from typing import Any, ClassVar

from attsvm.errors import ProblemError
from attsvm.inspect.families.base import FAMILIES
from attsvm.inspect.families.transformers import Transformers


class Albert(Transformers):
    """Self-attention of ALBERT, which runs once for every layer of its group."""

    name = "ALBERT"
    modules: ClassVar[tuple[str, ...]] = ("AlbertAttention",)

    def runs(self, module: Any) -> int:
        """The number of layers of each group; raises ProblemError if it differs between groups."""
        layers, groups = int(module.config.num_hidden_layers), int(module.config.num_hidden_groups)
        if layers > groups and layers % groups:
            raise ProblemError(
                f"model: expected groups of ALBERT of equal size, got {layers} layers in {groups} groups"
            )
        return max(1, layers // groups)


FAMILIES.register(Albert.name, Albert())
