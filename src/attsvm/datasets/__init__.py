"""Where problems come from, one file a source."""

from attsvm.datasets.bags import Bags, digit_bags
from attsvm.datasets.random import random_problem
from attsvm.datasets.sequences import Sequences

__all__ = ["Bags", "Sequences", "digit_bags", "random_problem"]
