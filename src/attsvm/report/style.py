"""The look of every figure: column width, 8 pt, the Okabe-Ito palette with line styles that survive grey."""

import io
import re
from contextlib import AbstractContextManager
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 3.25
"""Inches: one column."""

INK = "#1b1b1f"
BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
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
}


def applied() -> AbstractContextManager[None]:
    """Draw and save inside this."""
    return mpl.rc_context(cast(Any, RC))


def to_png(figure: Figure) -> bytes:
    """The figure at 200 dots an inch, on white."""
    stream = io.BytesIO()
    with applied():
        figure.savefig(stream, format="png", dpi=200, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def to_svg_file(figure: Figure) -> bytes:
    """The figure as an SVG file."""
    stream = io.BytesIO()
    with applied():
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


def legend_above(axis: Axes, columns: int) -> None:
    """A legend above the axes, where it covers nothing."""
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.02), ncols=columns, columnspacing=1.2)


def to_svg(figure: Figure, prefix: str) -> str:
    """The figure as an SVG element for a page: self-contained, in the ink of the text around it, light or dark.

    ``prefix`` keeps the names inside it apart from those of the page's other figures.
    """
    stream = io.StringIO()
    with applied():
        figure.savefig(stream, format="svg", dpi=200, transparent=True)
    svg = stream.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'(\bid="|\bhref="#|url\(#)', rf"\g<1>{prefix}-", svg)
    return svg.replace(INK, "currentColor")
