"""What a shell completes: names of norms, optimizers, figures, sweeps and so on."""

import importlib
from collections.abc import Callable


def names_of(module: str, registry: str) -> Callable[[str], list[str]]:
    """Complete the names of a registry, which is imported when a shell asks for them.

    ``module``, ``registry``: the registry is the attribute of this name of the module.
    """

    def complete(incomplete: str) -> list[str]:
        names = getattr(importlib.import_module(module), registry)
        return [name for name in names.names() if name.startswith(incomplete)]

    return complete


NORMS = names_of("attsvm.norms.registry", "NORMS")
OPTIMIZERS = names_of("attsvm.optimizers", "OPTIMIZERS")
LOSSES = names_of("attsvm.losses", "LOSSES")
HEADS = names_of("attsvm.heads", "HEADS")
SOURCES = names_of("attsvm.datasets.source", "SOURCES")
FIGURES = names_of("attsvm.reproduce", "FIGURES")
SWEEPS = names_of("attsvm.sweeps", "READY")
FAMILIES = names_of("attsvm.torch.inspection.families", "FAMILIES")
