"""The style of every figure: column width, 8 pt, the Okabe-Ito palette with line styles that differ in grey, too.

:ref:`Provisional <provisional>`: it may change in any minor version.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure, SubFigure
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from attsvm._utils.text import visible
from attsvm.plot.compact_svg import TAG, compact_svg
from attsvm.plot.series import DATA, DataSeries, keep

WIDTH = 3.25
"""Width of a column, in inches."""

DPI = 200
"""Dots per inch of PNG files."""

INK = "#1b1b1f"
BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.formatter.useoffset": False,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.borderaxespad": 0.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#808080",
    "grid.alpha": 0.22,
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.4,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "path",
    "svg.hashsalt": "attsvm",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "axes.prop_cycle": mpl.rcParamsDefault["axes.prop_cycle"],  # in its place, plots take the palette above
}

_SIZES = ("axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")


def applied() -> AbstractContextManager[None]:
    """A context in which figures are drawn and saved in this style, whatever the user has set."""
    return _temporarily(RC)


def unless_set(**more: Any) -> AbstractContextManager[None]:
    """A context with this style and ``more``, except for what the user has set: what differs from Matplotlib's default.

    If the user has set ``font.size``, the other sizes of letters follow it.
    """
    default, current = cast(Any, mpl.rcParamsDefault), cast(Any, mpl.rcParams)
    ratio = current["font.size"] / RC["font.size"] if current["font.size"] != default["font.size"] else 1.0
    own = {**RC, **{name: RC[name] * ratio for name in _SIZES}, **more}
    return _temporarily({name: value for name, value in own.items() if current[name] == default[name]})


@contextmanager
def _temporarily(parameters: Mapping[str, Any]) -> Iterator[None]:
    """Set these parameters for a while. ``rc_context`` would also undo what a notebook sets at its first figure."""
    current: Any = mpl.rcParams  # whose type knows single names only
    before = {name: current[name] for name in parameters}
    current.update(parameters)
    try:
        with warnings.catch_warnings(record=True) as found:
            yield
    finally:
        current.update(before)
    others = [one for one in found if not str(one.message).startswith("Glyph ")]
    for one in others:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if len(others) < len(found):
        _warn_of_boxes()


@cache
def _warn_of_boxes() -> None:
    """Warn once, in place of one warning for each letter and drawing."""
    warnings.warn("letters that the fonts of Matplotlib lack are boxes in PNG files", UserWarning, stacklevel=4)


def lay_out(figure: Figure) -> None:
    """Place the axes once and for all, as for a PNG file. Each saving would do it again, which takes most of its time.

    The places are rounded, so that the files do not depend on rounding errors of the layout.
    """
    engine, dpi = figure.get_layout_engine(), figure.dpi
    if engine is None or not figure.axes:
        return
    figure.set_dpi(DPI)
    with applied():
        engine.execute(figure)
    figure.set_layout_engine("none")
    figure.set_dpi(dpi)
    _round_places(figure)
    for axis in figure.axes:
        axis.set_position(np.round(axis.get_position(original=True).bounds, 6).tolist())


def _round_places(figure: Figure | SubFigure) -> None:
    for part in figure.subfigs:
        place: Any = part.bbox_relative
        place.p0, place.p1 = np.round(place.p0, 6), np.round(place.p1, 6)
        _round_places(part)


def to_png(figure: Figure) -> bytes:
    """The figure as PNG, 200 dots per inch, on white."""
    stream = io.BytesIO()
    with applied():
        figure.savefig(stream, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def ink_on(color: Any) -> str:
    """Black or white, whichever has the larger contrast on a colour that pages show in light and dark mode alike.

    Examples
    --------
    >>> from attsvm.plot.style import ink_on
    >>> ink_on("#deebf7"), ink_on("#08306b")
    ('#101014', 'white')
    """
    channels = np.array(to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    # the contrast of WCAG 2.2 is (lighter + 0.05) / (darker + 0.05); that with white equals that with black here
    return "white" if luminance < np.sqrt(1.05 * 0.05) - 0.05 else "#101014"


def to_svg_file(figure: Figure) -> bytes:
    """The figure as an SVG file."""
    stream = io.BytesIO()
    with applied():
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return visible(stream.getvalue().decode()).encode()


def panel(x: str, y: str, height: float, *, columns: int = 1, log: bool = False) -> tuple[Figure, Axes]:
    """A figure of one pair of axes with these labels; on a logarithmic scale if ``log``."""
    figure = Figure(figsize=(columns * WIDTH, height))
    axis = figure.subplots(subplot_kw=DATA)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    if log:
        axis.set_xscale("log")
        axis.set_yscale("log")
    return figure, axis


def heat_map(axis: Axes, values: ArrayLike, **options: Any) -> Any:
    """Draw cells without a grid and without marks at the names of rows and columns. ``options``: of ``imshow``."""
    image = axis.imshow(values, aspect="auto", **options)
    axis.grid(False)
    axis.tick_params(length=0)
    return image


def log_scale(axis: Axes, *values: ArrayLike) -> None:
    """Make the y axis logarithmic if any of the values can be shown on it; otherwise it stays linear."""
    numbers = np.concatenate([np.ravel(np.asarray(one, dtype=float)) for one in values])
    # the margin below the smallest value must not underflow
    if ((numbers > 1e-200) & np.isfinite(numbers)).any():
        axis.set_yscale("log")


def spans_decades(decades: int, *values: ArrayLike) -> bool:
    """Whether the finite numbers are positive and span this many decades, so that a logarithmic scale shows them.

    Examples
    --------
    >>> from attsvm.plot.style import spans_decades
    >>> spans_decades(2, [1e-3, 1.0]), spans_decades(2, [0.0, 1.0]), spans_decades(2, [0.1, 1.0])
    (True, False, False)
    """
    numbers = np.concatenate([np.ravel(np.asarray(one, dtype=float)) for one in values])
    numbers = numbers[np.isfinite(numbers)]
    return bool(numbers.size and numbers.min() > 0 and numbers.max() >= 10**decades * numbers.min())


def band(
    axis: Axes,
    x: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    colour: str,
    label: str | None = None,
    *,
    of: str | None = None,
) -> None:
    """Shade the range between two curves. ``of``: the curve that it belongs to, which names it in the data."""
    x, low, high = (np.asarray(values) for values in (x, low, high))
    axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0, label=label)
    name = label or (f"band of {of}" if of else "band")
    for edge, values in enumerate((low, high), start=1):
        keep(axis, DataSeries(f"{name}, edge {edge}", np.column_stack([x, values]).astype(float)))


def _deciles(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.nanquantile(values, [0.1, 0.9], axis=1)
    return low, high


def spread(
    axis: Axes,
    x: np.ndarray,
    values: np.ndarray,
    colour: str,
    line: Any,
    label: str | None = None,
    *,
    middle: Callable[..., np.ndarray] = np.nanmedian,
    limits: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] = _deciles,
    **options: Any,
) -> None:
    """Draw the median of several runs and the band of their 10-90 % range. NaN is left out.

    ``x``: shape (R,). ``values``: shape (R, runs). ``colour``, ``line``, ``label``: of the curve. ``middle``:
    ``np.mean`` draws the mean in place of the median. ``limits``: of the band, such as :func:`interval_of_mean`.
    ``options``: of ``axis.plot``.
    """
    if values.shape[1] > 1:
        band(axis, x, *limits(values), colour, of=label)
    axis.plot(x, middle(values, axis=1), linestyle=line, color=colour, label=label, **options)


def interval_of_mean(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % confidence interval of the mean of each row, by Student's t. NaN is left out.

    It needs two numbers in a row; others have none (NaN).
    """
    counts = np.isfinite(values).sum(axis=1)
    known = np.where(np.isfinite(values), values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = known.sum(axis=1) / counts
        squares = (np.where(np.isfinite(values), values - mean[:, None], 0.0) ** 2).sum(axis=1)
        half = stdtrit(np.maximum(counts - 1, 1), 0.975) * np.sqrt(squares / (counts - 1) / counts)
    return mean - half, mean + half


def frame(axis: Axes, paths: Sequence[np.ndarray], room: float) -> None:
    """Show the rectangle that contains paths of shape (R, 2), and a share of its size on every side of it."""
    points = np.concatenate(paths)
    low, high = points.min(axis=0), points.max(axis=0)
    room_of_axis = room * (high - low)
    axis.set_xlim(low[0] - room_of_axis[0], high[0] + room_of_axis[0])
    axis.set_ylim(low[1] - room_of_axis[1], high[1] + room_of_axis[1])


def legend_above(axis: Axes, columns: int) -> None:
    """Place the legend above the axes."""
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.02), ncols=columns, columnspacing=1.2)


def to_svg(figure: Figure, prefix: str) -> str:
    """The figure as an SVG element for a page. Lines and letters take the colour of the text around it.

    The ids inside it start with ``prefix``, of :func:`attsvm._utils.text.slugs`, and so differ from those of others.
    """
    stream = io.StringIO()
    # text as text: the paths of letters are half of a page
    with _temporarily(RC | {"svg.fonttype": "none"}):
        figure.savefig(stream, format="svg", dpi=DPI, transparent=True)
    svg = visible(stream.getvalue())
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)

    def for_page(tag: re.Match[str]) -> str:
        text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", tag[0]).replace("xlink:href", "href")
        text = re.sub(r'(\bid="|\bhref="#|url\(#)', lambda found: f"{found[1]}{prefix}-", text)
        # the page has a lighter blue in dark mode
        return text.replace(INK, "currentColor").replace(BLUE.lower(), f"var(--blue, {BLUE})")

    return TAG.sub(for_page, compact_svg(svg))
