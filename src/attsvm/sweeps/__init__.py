"""Sweeps: grids of trials, computed on all cores or a cluster, and stored as they finish.

A new source of problems, a new measure and a new ready sweep of another package are named by their import paths.
"""

from attsvm.sweeps.block import Block
from attsvm.sweeps.compute import measured
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.measure import Measure, Output
from attsvm.sweeps.measures import MEASURES
from attsvm.sweeps.ready import READY
from attsvm.sweeps.sources import SOURCES, Drawn
from attsvm.sweeps.store import open_sweep
from attsvm.sweeps.sweep import sweep

__all__ = [
    "MEASURES",
    "READY",
    "SOURCES",
    "Block",
    "Definition",
    "Drawn",
    "Measure",
    "Output",
    "measured",
    "open_sweep",
    "sweep",
]


def __dir__() -> list[str]:
    return sorted(__all__)
