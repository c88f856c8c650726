"""Sweeps: grids of trials, computed on all cores or a cluster, and stored as they finish."""

from attsvm.sweeps.format import Drawn, Output

__all__ = ["Drawn", "Output"]


def __dir__() -> list[str]:
    return sorted(__all__)
