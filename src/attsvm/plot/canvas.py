"""Axes to draw on, and the small figures of notebooks."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.problem import check_is_problem

if TYPE_CHECKING:
    from attsvm.training import Run

LINES = ("-", "--", "-.", ":")
COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)


def one_axes(ax: Axes | None, height: float = style.WIDTH) -> Axes:
    """The given axes, or those of a new figure of this height in inches.

    Raises ProblemError if several axes are given.
    """
    return _new_axes(1, (1.4 * style.WIDTH, height))[0] if ax is None else several_axes(ax, 1)[0]


def several_axes(ax: Axes | Sequence[Axes] | None, number: int) -> list[Axes]:
    """The given axes, or those of a new figure side by side.

    Raises ProblemError if there are more or fewer than ``number``, or something else than axes is given.
    """
    if ax is None:
        return _new_axes(number, (1.1 * style.WIDTH * number, 2.4))
    found = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(found) != number or not all(isinstance(one, Axes) for one in found):
        given = ", ".join(type(one).__name__ for one in found)
        raise ProblemError(f"ax: expected {number} Matplotlib axes, got {given or 'none'}")
    return found


def _new_axes(number: int, size: tuple[float, float]) -> list[Axes]:
    if not plt.get_fignums():
        plt.draw_if_interactive()  # type: ignore[no-untyped-call]  # loads the backend, and what it sets stays
    with style.unless_set(**{"figure.figsize": size}):
        return list(np.atleast_1d(plt.subplots(1, number)[1]))


def named_runs(problem: Any, runs: "Mapping[str, Run] | Run") -> "dict[str, Run]":
    """Runs by name, a single one without a name.

    Raises ProblemError if the first argument is no problem, or there is no run.
    """
    check_is_problem(problem)
    named = dict(runs) if isinstance(runs, Mapping) else {"": runs}
    for run in named.values():
        check_run(run, "runs", " or a dict of runs by name")
    if not named:
        raise ProblemError("runs: expected at least one, got none")
    return named


def check_run(run: Any, name: str = "run", others: str = "") -> None:
    """Raise ProblemError unless it is a run: what has a history."""
    if not hasattr(run, "history"):
        raise ProblemError(f"{name}: expected a Run{others}, got {type(run).__name__}")


def small_figure(shown: Any) -> str:
    """Return the plot of a problem or result as a small SVG element."""
    with style.applied():
        figure = Figure(figsize=(style.WIDTH, 2.2))
        shown.plot(ax=figure.subplots())
    return style.to_svg(figure, f"attsvm-{id(shown):x}").replace("<svg", '<svg style="max-width: 24em"', 1)


def line(number: int) -> dict[str, Any]:
    """Colour and dashes of the line of this number; they differ in grey, too. A property cycle of the user wins."""
    own = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)]}
    given = list(mpl.rcParams["axes.prop_cycle"])
    if mpl.rcParams["axes.prop_cycle"] == style.RC["axes.prop_cycle"]:
        return own
    return {name: given[number % len(given)].get(name, value) for name, value in own.items()}


def ink() -> str:
    """The colour of lines that are no curves."""
    return str(mpl.rcParams["axes.edgecolor"])
