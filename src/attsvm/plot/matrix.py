"""A matrix of margin ratios: a row for each optimiser, a column for each norm, its own norm framed."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Rectangle

from attsvm.plot import style
from attsvm.plot.series import DATA


def drawn_matrix(
    names: Sequence[str], norms: Sequence[str], mean: np.ndarray, own: Sequence[int], claimed: Sequence[bool]
) -> Drawing:
    """Draw the mean ratios, (optimisers, norms).

    ``names``, ``norms``: the labels of rows and columns. ``mean``: shape (optimisers, norms). ``own``: the column of
    each row that is framed. ``claimed``: whether the frame is solid; otherwise it is dashed.
    """
    figure = Drawing(figsize=(style.WIDTH, height_of(len(names))))
    draw_matrix(figure.subplots(subplot_kw=DATA), names, norms, mean, own, claimed)
    return figure


def height_of(num_rows: int) -> float:
    """Height of a figure with this many rows, in inches."""
    return 0.75 + 0.26 * num_rows


def draw_matrix(
    axis: Axes,
    names: Sequence[str],
    norms: Sequence[str],
    mean: np.ndarray,
    own: Sequence[int],
    claimed: Sequence[bool],
) -> None:
    """Draw what :func:`drawn_matrix` draws on given axes."""
    cells = style.heat_map(axis, mean, cmap="Blues", vmin=0, vmax=1.25)
    for (i, j), value in np.ndenumerate(mean):
        axis.text(
            j,
            i,
            # rounded down, so that only 1 is written as 1; without the leading 0, for which there is no room
            (f"{np.floor(value * 1000) / 1000:z.3f}" if j == own[i] else f"{value:z.2f}").removeprefix("0"),
            ha="center",
            va="center",
            fontsize=5.7,
            color=style.ink_on(cells.to_rgba(value)),
        )
    for i, (j, solid) in enumerate(zip(own, claimed, strict=True)):
        axis.add_patch(
            Rectangle(
                (j - 0.48, i - 0.46),
                0.96,
                0.92,
                fill=False,
                edgecolor=style.ORANGE,
                linewidth=1.4,
                linestyle="-" if solid else "--",
            )
        )
    axis.set_xticks(range(len(norms)), norms, rotation=50, ha="right", rotation_mode="anchor")
    axis.set_yticks(range(len(names)), names)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("norm")
