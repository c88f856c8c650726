"""Where problems come from, one file a source."""

from attsvm.datasets.random import random_problem

__all__ = ["random_problem"]
