"""The figures of a fit, each a function from a Fit to a matplotlib figure, and the attention on single sequences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from attsvm._utils.text import as_label
from attsvm.datasets import Pictures
from attsvm.pages.attention import WIDEST, attention_square
from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.fit_numbers import weights_symbol
from attsvm.pages.links import csv_text, file_links
from attsvm.pages.over_steps import OverSteps, slider, slider_words
from attsvm.pages.page import Shown
from attsvm.pages.words import SOFT_BELOW
from attsvm.plot import DATA, cells, keep, style
from attsvm.problem import Problem
from attsvm.training import recorded_attention

if TYPE_CHECKING:
    from attsvm._fit import Fit, LayerEvaluation

COLUMNS = 8

ROWS = 12
"""Most queries whose attention is shown as a square."""

PICKS = 5
"""Pictures in a row of the figure of selected tokens."""


def draw_fit(fit: "Fit") -> list[Shown]:
    """Draw every figure that applies to a fit. If its source has pictures, they are shown."""
    drawers = {
        "picks": _picks,
        "pictures": _pictures,
        "attention": _attention_map,
        "selection": _token_counts,
        "direction": _direction,
        "learning": _learning,
        "saturation": _saturation,
    }
    return draw_each(drawers, fit)


def _learning(fit: "Fit") -> DrawnFigure | None:
    if not fit.run.step:
        return None
    figure, (top, bottom) = _panels(2, 2.9)
    history = fit.history
    _line(top, history, "loss", style.BLUE, "-", None)
    top.set_ylabel("training loss")
    top.set_ylim(bottom=0)
    _line(bottom, history, "train_accuracy", style.BLUE, "-", "train")
    part = "train"
    if fit.test is not None:
        _line(bottom, history, "test_accuracy", style.VERMILLION, "--", "test")
        part = "test"
    bottom.axhline(fit.baseline[part], color=style.INK, linestyle=":", linewidth=1, label=f"mean token, {part}")
    bottom.set_ylabel("accuracy")
    bottom.set_ylim(min(0.4, bottom.get_ylim()[0]), 1.02)
    style.legend_above(bottom, 3)
    bottom.set_xlabel("steps")
    caption = (
        f"Top: logistic loss on {fit.train.num_sequences} training sequences. Bottom: share classified correctly. "
        "Dotted: logistic regression on the mean token."
    )
    return DrawnFigure("Learning", caption, figure)


def _saturation(fit: "Fit") -> DrawnFigure | None:
    if not fit.run.step:
        return None
    figure, (top, bottom) = _panels(2, 2.9)
    history, W = fit.history, weights_symbol(fit)
    style.band(top, history["steps"], history["largest_low"], history["largest_high"], style.BLUE, "10-90%")
    _line(top, history, "largest_median", style.BLUE, "-", "median")
    top.axhline(SOFT_BELOW, color=style.INK, linestyle=":", linewidth=1, label=f"{SOFT_BELOW}")
    top.set_ylim(0, 1.03)
    top.set_ylabel("largest probability")
    style.legend_above(top, 3)
    _line(bottom, history, "norm", style.GREEN, "-", None)
    style.log_scale(bottom, history["norm"])
    bottom.set_ylabel(f"‖{W}‖" if W == "p" else "‖W‖$_F$")
    bottom.set_xlabel("steps")
    caption = (
        "Top: the largest softmax probability of each training query; the attention is saturated if its median is at "
        f"least {SOFT_BELOW}. Bottom: the norm of {W}."
    )
    return DrawnFigure("Saturation", caption, figure)


def _direction(fit: "Fit") -> DrawnFigure | None:
    history, W = fit.history, weights_symbol(fit)
    if not fit.run.step or "direction_error" not in history:
        return None
    figure, (top, bottom) = _panels(2, 2.9, heights=(2, 1))
    _line(top, history, "direction_error", style.BLUE, "-", None)
    style.log_scale(top, history["direction_error"])
    top.set_ylabel("direction error")
    _line(bottom, history, "changed", style.PURPLE, "-", None)
    bottom.set_ylim(0, max(1.05 * history["changed"][history["steps"] > 0].max(), 1))
    bottom.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    bottom.set_ylabel("not yet\nfinal")
    bottom.set_xlabel("steps")
    caption = (
        f"Top: 1 − cosine between {W} and the Att-SVM of the tokens that it selects at the end. Bottom: training "
        "queries whose selection is not yet the final one."
    )
    return DrawnFigure(f"Direction error of {W}", caption, figure)


def _picks(fit: "Fit") -> DrawnFigure | None:
    """Pictures with the selected token, where it is known which token decides the label."""
    part, found, name = _shown(fit)
    pictures = _pictures_of(fit, part)
    if pictures is None or fit.relevant is None or fit.right is None:
        return None
    right, relevant = (known["test" if name == "test" else "train"] for known in (fit.right, fit.relevant))
    shown = [np.flatnonzero(right)[: 2 * PICKS], np.flatnonzero(~right)[: 2 * PICKS]]
    chosen = [numbers[i : i + PICKS] for numbers in shown for i in range(0, len(numbers), PICKS)]
    frames = _TokenFrames(fit, part, pictures.regions, np.concatenate(shown))
    figure, placed = _grid(chosen, PICKS, 0.66)
    for axis, i in placed:
        _picture(axis, pictures.brightness[i])
        if not right[i]:
            _frame(axis, pictures.regions[relevant[i]], style.BLUE, dashes="--")
        frames.draw(axis, i, [style.ORANGE if t == relevant[i] else style.VERMILLION for t in range(part.num_tokens)])
        if not found.correct[i]:
            look: dict[str, Any] = {"marker": "x", "color": style.VERMILLION, "ms": 4, "clip_on": False}
            axis.add_line(Line2D([1.02], [0.5], transform=axis.transAxes, **look))
    caption = (
        f"The first {len(shown[0])} of the {right.sum():,} {name} pictures in which the right token has the largest "
        f"attention (orange frame), and the first {len(shown[1])} of the {(~right).sum():,} in which another one has "
        "(red; the right token is dashed in blue). Fainter: every other token above 5%, by its attention relative to "
        "the largest. A red cross: misclassified."
    )
    return DrawnFigure("Which token is selected", caption + frames.caption, figure, frames.slider_data)


def _grid(rows: Sequence[np.ndarray], columns: int, height: float) -> tuple[Figure, list[tuple[Axes, int]]]:
    """A figure with rows of pictures of this height, and the axes of each picture by its number."""
    figure = Figure(figsize=(style.WIDTH, height * len(rows) + 0.02))
    axes = figure.subplots(len(rows), columns, squeeze=False, subplot_kw=DATA)
    for axis in axes.flat:
        axis.set_axis_off()
    return figure, [pair for of_row in zip(axes, rows, strict=True) for pair in zip(*of_row, strict=False)]


class _TokenFrames:
    """Frames around the tokens of pictures, each as opaque as its attention relative to the largest, over the steps."""

    def __init__(self, fit: "Fit", part: Problem, regions: np.ndarray, numbers: np.ndarray) -> None:
        rows = np.unique(numbers)
        steps, attention = recorded_attention(fit.run, part, rows)
        shares = attention[:, :, 0]
        largest = shares.max(axis=-1, keepdims=True)
        opacity = np.where((shares > 0.05) | (shares == largest), shares / largest, 0.0)
        self.shares = dict(zip(rows.tolist(), shares[-1], strict=True))
        self.regions, self.opacity = regions, dict(zip(rows.tolist(), opacity.swapaxes(0, 1), strict=True))
        self.steps, self.frames = steps, dict[str, list[float]]()

    def draw(self, axis: Axes, number: int, colours: Sequence[str]) -> None:
        """The frames of one picture, with a colour for each token."""
        _attention_cells(axis, self.regions, self.shares[number])
        of_picture = self.opacity[number]
        for t in np.flatnonzero(of_picture.any(axis=0)).tolist():
            gid = f"frame-{number}-{t}"
            self.frames[gid] = of_picture[:, t].tolist()
            # matplotlib draws no line with opacity 0, and then there would be nothing to show at other steps
            _frame(axis, self.regions[t], colours[t], opacity=max(self.frames[gid][-1], 1e-3)).set_gid(gid)

    @property
    def slider_data(self) -> OverSteps | None:
        """The opacities of the frames over the steps; None if there is only one record."""
        return OverSteps(self.steps.tolist(), self.frames) if len(self.steps) > 1 else None

    @property
    def caption(self) -> str:
        """The sentence about the slider."""
        return slider_words(self.steps.tolist())


def _frame(axis: Axes, region: np.ndarray, colour: str, dashes: str = "-", opacity: float | None = None) -> Rectangle:
    top, left, height, width = region
    corner = (left - 0.5, top - 0.5)
    frame = Rectangle(
        corner,
        width,
        height,
        fill=False,
        edgecolor=colour,
        linewidth=1.4,
        linestyle=dashes,
        alpha=opacity,
        clip_on=False,
        zorder=3,
    )
    axis.add_patch(frame)
    return frame


def _pictures(fit: "Fit") -> DrawnFigure | None:
    part, found, name = _shown(fit)
    pictures = _pictures_of(fit, part)
    if pictures is None or fit.relevant is not None:
        return None
    labels = part.labels
    assert labels is not None
    rows = [np.flatnonzero(labels == label)[: 2 * COLUMNS] for label in (1, -1)]
    wrong = np.flatnonzero(~found.correct)
    chosen = [row[i : i + COLUMNS] for row in rows for i in range(0, len(row), COLUMNS)]
    if len(wrong):
        chosen.append(wrong[:COLUMNS])
    frames = _TokenFrames(fit, part, pictures.regions, np.concatenate(chosen))
    figure, placed = _grid(chosen, COLUMNS, 0.44)
    for axis, i in placed:
        _picture(axis, pictures.brightness[i])
        frames.draw(axis, i, [style.ORANGE if found.correct[i] else style.VERMILLION] * part.num_tokens)
    per_class = ", ".join(f"{len(row)} of {label}" for row, label in zip(rows, _label_names(fit), strict=True))
    mistakes = (
        f" Last row, in red: {min(len(wrong), COLUMNS)} of the {len(wrong)} misclassified."
        if len(wrong)
        else " None is misclassified."
    )
    caption = (
        f"The first {name} pictures of each class ({per_class}). Framed: the patch of largest attention, and fainter "
        f"every other patch above 5%, by its attention relative to the largest.{mistakes}"
    )
    return DrawnFigure("Attention on single pictures", caption + frames.caption, figure, frames.slider_data)


def _attention_map(fit: "Fit") -> DrawnFigure | None:
    part, found, name = _shown(fit)
    pictures = _pictures_of(fit, part)
    # where the deciding token is at a random place, a mean over pictures shows nothing
    if pictures is None or fit.relevant is not None:
        return None
    assert part.labels is not None
    attention = found.attention[:, 0]
    figure = Figure(figsize=(style.WIDTH, 1.75))
    for axis, label, label_name in zip(figure.subplots(1, 2, subplot_kw=DATA), (1, -1), _label_names(fit), strict=True):
        of_class = part.labels == label
        axis.set_axis_off()
        _picture(axis, pictures.brightness[of_class].mean(axis=0), brightest=1.6)
        shares = attention[of_class].mean(axis=0)
        _attention_cells(axis, pictures.regions, shares)
        for (top, left, height, width), share in zip(pictures.regions, shares, strict=True):
            corner = (left - 0.5, top - 0.5)
            axis.add_patch(Rectangle(corner, width, height, facecolor=style.ORANGE, alpha=0.85 * share, linewidth=0))
            if share >= 0.005:
                centre = (corner[0] + width / 2, corner[1] + height / 2)
                axis.text(*centre, f"{share:.0%}", ha="center", va="center", fontsize=7, color="#1b1b1e")
        axis.set_title(f"class {as_label(label_name)}", pad=3)
    caption = (
        f"Mean attention on each patch, drawn over the mean {name} picture of each class; attention below 0.5% is "
        "left out."
    )
    return DrawnFigure("Mean attention by class", caption, figure)


def _token_counts(fit: "Fit") -> DrawnFigure | None:
    if _pictures_of(fit, fit.train) is not None:
        return None
    T = fit.train.num_tokens
    figure, axis = style.panel("position of the token in the sequence", "queries", 2.9)
    selected, labels = np.asarray(fit.run.selected), fit.train.labels
    sides = [np.bincount(selected[(labels == label) & (selected >= 0)], minlength=T) for label in (1, -1)]
    below = np.zeros(T, dtype=int)
    for counts, name, colour, hatch in zip(
        sides,
        (f"label {as_label(name)}" for name in _label_names(fit)),
        (style.BLUE, style.ORANGE),
        ("", "////"),
        strict=True,
    ):
        axis.bar(
            np.arange(T), counts, bottom=below, color=colour, hatch=hatch, label=name, edgecolor="white", linewidth=0
        )
        below = below + counts
    axis.grid(False, axis="x")
    axis.set_xlim(-0.7, T - 0.3)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    style.legend_above(axis, 2)
    caption = f"How many of the {below.sum():,} training queries give each token the largest attention."
    return DrawnFigure("Selected tokens", caption, figure)


def _shown(fit: "Fit") -> tuple[Problem, "LayerEvaluation", str]:
    """The test sequences if there are any, else the training sequences."""
    if fit.test is not None and fit.on_test is not None:
        return fit.test, fit.on_test, "test"
    return fit.train, fit.on_train, "training"


def _pictures_of(fit: "Fit", part: Problem) -> Pictures | None:
    rows = fit.test_rows if part is fit.test else np.setdiff1d(np.arange(fit.problem.num_sequences), fit.test_rows)
    return None if fit.source is None else fit.source.pictures(fit.problem.tokens[rows])


def _label_names(fit: "Fit") -> tuple[Any, Any]:
    return fit.classes or ("+1", "−1")


def _picture(axis: Axes, picture: np.ndarray, brightest: float = 1.0) -> None:
    # the frame shows the position of empty patches
    height, width = picture.shape
    frame = Rectangle((-0.5, -0.5), width, height, fill=False, edgecolor="#b8b8b8", linewidth=0.5, clip_on=False)
    axis.add_patch(frame)
    axis.imshow(colormaps["Greys"](picture / brightest), interpolation="none")  # as many pixels as the picture has


def _attention_cells(axis: Axes, regions: np.ndarray, shares: np.ndarray) -> None:
    """Keep the attention on each token of a picture as the data of the figure; nothing is drawn."""
    top, left, height, width = regions.T
    (_, row), (_, column) = (np.unique(corner, return_inverse=True) for corner in (top, left))
    values = np.full((row.max() + 1, column.max() + 1), np.nan)
    values[row, column] = shares
    x, y = (left.min() - 0.5, (left + width).max() - 0.5), ((top + height).max() - 0.5, top.min() - 0.5)
    keep(axis, cells(values, (*x, *y), "attention"))
    axis.set_xlabel("pixel column")
    axis.set_ylabel("pixel row")


def _panels(number: int, height: float, heights: tuple[float, ...] | None = None) -> tuple[Figure, Any]:
    figure = Figure(figsize=(style.WIDTH, height))
    axes = figure.subplots(number, 1, sharex=True, height_ratios=heights, subplot_kw=DATA)
    for axis in axes:
        axis.set_xscale("log")
    figure.align_ylabels(axes)
    return figure, axes


def _line(axis: Axes, history: dict[str, np.ndarray], name: str, colour: str, dashes: str, label: str | None) -> None:
    after = history["steps"] > 0  # a log axis cannot show step 0
    marker = "o" if after.sum() == 1 else None
    axis.plot(history["steps"][after], history[name][after], dashes, color=colour, label=label, marker=marker, ms=3)


def single_sequences(fit: "Fit") -> dict[str, Any] | None:
    """Show the first queries of the test sequences, or of the training sequences if there are none.

    Returns the values of a part of shape "square"; None if sequences are too long.
    """
    part, name = (fit.train, "training") if fit.test is None else (fit.test, "test")
    if part.num_tokens > WIDEST:
        return None
    n, Q = np.nonzero(part.canonical.active)
    n, Q = n[:ROWS], Q[:ROWS]
    numbers, of = np.unique(n, return_inverse=True)
    steps, attention = recorded_attention(fit.run, part, numbers)
    shares, allowed = attention[:, of, Q], part.canonical.allowed[n, Q]
    labels = np.asarray(part.labels).reshape(part.canonical.active.shape)[n, Q]
    positive, negative = _label_names(fit)
    names = [f"{i}{f', query {q}' if part.has_query_axis else ''}" for i, q in zip(n, Q, strict=True)]
    square = attention_square(
        [str(t) for t in range(part.num_tokens)],
        np.zeros(len(n), dtype=int),
        shares[-1],
        allowed,
        shares[-1].argmax(axis=-1),
        over=shares,
    )
    lead = (
        f"The first {name} sequences, with their labels. Each column is a token: the stronger the blue, the more "
        "attention. The frame marks the token selected at the end of training; hatched tokens are masked."
    )
    queries = [
        (f"{name} ({positive if label > 0 else negative})", cells)
        for name, label, (_, cells) in zip(names, labels, square.rows, strict=True)
    ]
    return {
        "lead": lead + slider_words(steps.tolist()),
        "square": square._replace(rows=queries, numbered=True),
        "slider": slider(steps.tolist()),
        "links": file_links("sequences", _table(steps, names, shares, allowed)),
    }


def _table(steps: np.ndarray, names: list[str], shares: np.ndarray, allowed: np.ndarray) -> str:
    """As CSV: step, sequence, token and attention."""
    rows = (
        (step, names[i], t, at_step[i, t])
        for step, at_step in zip(steps, shares, strict=True)
        for i, t in np.argwhere(allowed)
    )
    return csv_text(["step", "sequence", "token", "attention"], rows)
