"""Every figure and table, in the papers' order."""

from attsvm.reproduce.figure import Experiment
from attsvm.reproduce.figures import (
    bregman,
    factored_paths,
    feasibility,
    joint_mirror,
    joint_prompt,
    kinds,
    limit,
    losses,
    mirror_path,
    nonlinear_head,
    optimizer_norms,
    path,
    prompt_one_sequence,
    prompt_several_sequences,
    rank,
    saturation,
    sequence_to_sequence,
    tokens_kept,
)

EXPERIMENTS: tuple[Experiment, ...] = (
    prompt_one_sequence.EXPERIMENT,
    prompt_several_sequences.EXPERIMENT,
    joint_prompt.EXPERIMENT,
    losses.EXPERIMENT,
    factored_paths.EXPERIMENT,
    rank.EXPERIMENT,
    saturation.EXPERIMENT,
    kinds.EXPERIMENT,
    feasibility.EXPERIMENT,
    nonlinear_head.EXPERIMENT,
    tokens_kept.EXPERIMENT,
    sequence_to_sequence.EXPERIMENT,
    mirror_path.EXPERIMENT,
    bregman.EXPERIMENT,
    joint_mirror.EXPERIMENT,
    limit.EXPERIMENT,
    path.EXPERIMENT,
    optimizer_norms.EXPERIMENT,
)
