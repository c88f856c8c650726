"""Checks of the values of a sweep, before anything is computed."""

from attsvm.errors import ProblemError
from attsvm.heads import parse_head
from attsvm.losses import parse_loss
from attsvm.norms import parse_norm
from attsvm.sweeps.arguments import find_source
from attsvm.sweeps.block import drawn_block
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.starts import start
from attsvm.training.setup import check_numbers

_OF_START = {"attention", "rank", "init"}


def check_values(definition: Definition) -> None:
    """Draw a trial for each value of the grid, and read the arguments of training and of solves.

    A value may fit no more than some values of the other axes, as a rank does. So it is refused only if it can be used
    neither with the first nor with the last values of the others.

    Raises ProblemError if a value cannot be used.
    """
    lengths = definition.shape
    for axis, (name, values) in enumerate(definition.grid.items()):
        for i, value in enumerate(values):
            others = ([0] * len(lengths), [length - 1 for length in lengths])
            refused = [_refused(definition, [*other[:axis], i, *other[axis + 1 :]]) for other in others]
            if all(refused):
                raise ProblemError(f"{name}: expected values that the sweep can use, got {value!r} ({refused[0]})")


def _refused(definition: Definition, place: list[int]) -> str:
    """Why a cell cannot be computed; "" if nothing is known against it."""
    cell = 0
    for i, length in zip(place, definition.shape, strict=True):
        cell = cell * length + i
    arguments = definition.arguments(cell)
    try:
        generators = [definition.generator(cell, 0)]
        drawn = drawn_block(find_source(definition.data)(generators, **arguments.data), 1)
        training = arguments.of_train()
        if _OF_START & set(training):
            start(drawn, training, generators)
        if "loss" in training:
            parse_loss(training["loss"], drawn.problem.num_classes)
        check_numbers(training.get("steps", 0), training.get("dtype", "float64"), training.get("penalty", 0.0), 0)
        if training.get("head") is not None:
            parse_head(training["head"])
        if "norm" in arguments.svm:
            parse_norm(arguments.svm["norm"])
    except (TypeError, ProblemError) as error:  # what else a source raises may depend on more than the values
        return str(error)
    return ""
