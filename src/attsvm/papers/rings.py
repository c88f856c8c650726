"""Marks on paths in a plane at some steps; the slider of the page chooses the step that is shown."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from attsvm.pages.over_steps import at_step
from attsvm.plot import style

Recorded = tuple[Int[np.ndarray, " R"], Float[np.ndarray, "R 2"]]
"""The steps of the records of a path, and where it is at them."""


def ring_steps(steps: Int[np.ndarray, " R"]) -> list[int]:
    """About a dozen of the recorded steps: the first after each power of two, and the last.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.papers.rings import ring_steps
    >>> ring_steps(np.array([0, 1, 2, 3, 4, 5, 7, 9, 12]))
    [0, 1, 2, 4, 9, 12]
    """
    powers = 2 ** np.arange(int(steps[-1]).bit_length())
    return sorted({0, int(steps[-1]), *steps[np.searchsorted(steps, powers)].tolist()} & {*steps.tolist()})


def draw_rings(axis: Axes, paths: Sequence[Recorded], steps: Sequence[int]) -> None:
    """Draw a ring on each path at each of the steps. The rings of the last step are shown.

    ``paths``: a path without a record at a step has its ring at the record before. ``steps``: the same ones for all
    axes of a figure, for example of :func:`ring_steps`.
    """
    number = axis.figure.figure.axes.index(axis)  # the whole figure, not a part of it
    for step in steps:
        places = [points[max(int(np.searchsorted(of_path, step, side="right")) - 1, 0)] for of_path, points in paths]
        axis.plot(
            *np.transpose(places),
            linestyle="none",
            marker="o",
            markersize=5,
            markerfacecolor="none",
            markeredgecolor=style.INK,
            visible=step == steps[-1],
            zorder=4,
            gid=at_step(step, str(number)),
        )
