"""Completion in a shell: names of norms, optimisers, figures, sweeps and so on."""

import importlib
from collections.abc import Callable
from operator import attrgetter


def names_of(module: str, names: str) -> Callable[[str], list[str]]:
    """Complete the names that a function of a module returns. The module is imported when a shell asks for them."""

    def complete(incomplete: str) -> list[str]:
        known = attrgetter(names)(importlib.import_module(module))()
        return [name for name in known if name.startswith(incomplete)]

    return complete


NORMS = names_of("attsvm.norms.registry", "NORMS.names")
OPTIMIZERS = names_of("attsvm.optimizers", "OPTIMIZERS.names")
LOSSES = names_of("attsvm.losses", "LOSSES.names")
HEADS = names_of("attsvm.heads", "HEADS.names")
MAPS = names_of("attsvm.training", "MAPS.names")
SOURCES = names_of("attsvm.datasets.source", "SOURCES.names")
FIGURES = names_of("attsvm.papers", "FIGURES.names")
SWEEPS = names_of("attsvm.sweeps", "READY.keys")
FAMILIES = names_of("attsvm.inspect.families", "FAMILIES.names")
