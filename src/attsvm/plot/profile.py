"""``profile.plot()``: the margin ratios of an optimiser."""

from matplotlib.axes import Axes

from attsvm._utils.text import as_label
from attsvm.plot import style
from attsvm.plot.canvas import one_axes
from attsvm.plot.matrix import draw_matrix, height_of
from attsvm.profiles import MarginProfile


def profile(profile: MarginProfile, *, ax: Axes | None = None) -> Axes:
    """Draw it as :meth:`attsvm.MarginProfile.plot` says."""
    axis = one_axes(ax, height_of(len(profile.schedules)))
    largest = [int(row.argmax()) for row in profile.mean]
    rests = [name == profile.chosen and profile.norm is not None for name in profile.schedules]
    with style.unless_set():
        draw_matrix(axis, profile.schedules, [*map(as_label, profile.norms)], profile.mean, largest, rests)
    return axis
