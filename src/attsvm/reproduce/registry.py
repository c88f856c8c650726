"""Every figure and table, in the papers' order."""

from attsvm.reproduce import feasibility, prompt_one_sequence, rank
from attsvm.reproduce.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    prompt_one_sequence.EXPERIMENT,
    rank.EXPERIMENT,
    feasibility.EXPERIMENT,
)
