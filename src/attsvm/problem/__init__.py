"""The problem: tokens, queries, labels, head, keys and masks. Its public name is :class:`attsvm.Problem`."""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "ARRAY_NAMES",
    "Canonical",
    "check_is_problem",
    "check_labelled",
    "counted_labels",
    "gathered",
    "join_blocks",
    "mean_tokens",
    "of_rows",
    "problem_of_file",
    "stack_problems",
    "take_sequences",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
