"""Every figure and table, in the papers' order."""

from attsvm.reproduce import feasibility, rank
from attsvm.reproduce.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    rank.EXPERIMENT,
    feasibility.EXPERIMENT,
)
