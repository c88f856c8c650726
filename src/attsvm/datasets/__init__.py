"""Data: sources of problems, one file each, and sequences and bags for the estimator.

A data source is a subclass of :class:`Source`. The built-in ones are scikit-learn's handwritten digits, on canvases or
in patches, and problem files. A new source is one new file, in this package or outside it.
"""

from attsvm.datasets.bags import digit_bags
from attsvm.datasets.canvases import digit_canvases
from attsvm.datasets.random import random_problem
from attsvm.datasets.sequences import Sequences
from attsvm.datasets.signal_noise import signal_noise
from attsvm.datasets.source import SOURCES, Drawing, Pictures, Source, find_source, option
from attsvm.datasets.unit_tests import mil_unit_tests

__all__ = [
    "SOURCES",
    "Drawing",
    "Pictures",
    "Sequences",
    "Source",
    "digit_bags",
    "digit_canvases",
    "find_source",
    "mil_unit_tests",
    "option",
    "random_problem",
    "signal_noise",
]


def __dir__() -> list[str]:
    return sorted(__all__)
