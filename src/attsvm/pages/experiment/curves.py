"""What the figures of an experiment share: the colour and line of each run, and curves over epochs."""

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attsvm.pages.experiment.names import name_of
from attsvm.plot import style

COLOURS = (style.VERMILLION, style.BLUE, style.GREEN, style.ORANGE, style.PURPLE, style.SKY)
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)))


def over_epochs(runs: list[dict[str, Any]], name: str, value: Callable[[dict[str, Any]], float]) -> tuple[Figure, Axes]:
    """One line for each run: the value of each row of its history."""
    figure, axis = style.panel("epochs", name, 2.6)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for number, run in enumerate(runs):
        axis.plot(
            [row["epoch"] for row in run["history"]],
            [value(row) for row in run["history"]],
            color=COLOURS[number % len(COLOURS)],
            linestyle=LINES[number % len(LINES)],
            label=name_of(run["optimizer"]),
        )
    style.legend_above(axis, 2)
    return figure, axis
