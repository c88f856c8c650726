"""Figures of a page, drawn one by one, so that one that cannot be drawn does not discard a result."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from attsvm._utils.files import reason
from attsvm._utils.text import slugs
from attsvm.pages.figure_places import data_links
from attsvm.pages.over_steps import OverSteps, all_layers, with_layers, with_slider
from attsvm.pages.page import Shown
from attsvm.plot import style


class DrawnFigure(NamedTuple):
    """A figure with its title and its caption."""

    title: str
    caption: str
    figure: Figure
    over_steps: OverSteps | None = None  # what a slider over the steps of training changes
    table: str | None = None  # its numbers as CSV, if they are more than its axes keep


def draw_each(drawers: Mapping[str, Callable[..., DrawnFigure | None]], *arguments: Any) -> list[Shown]:
    """Draw figures in the style of the package, in their order.

    A figure that cannot be drawn gives a warning, and a note in its place on the page.

    ``drawers``: by its name, of which the slug is the name of its file, what draws a figure from the arguments, or
    returns None if it does not apply.
    """
    with style.applied():
        shown = [_shown(name, one, arguments) for name, one in zip(slugs(drawers), drawers.values(), strict=True)]
    return [one for one in shown if one is not None]


def _shown(name: str, drawer: Callable[..., DrawnFigure | None], arguments: Sequence[Any]) -> Shown | None:
    try:
        drawn = drawer(*arguments)
        if drawn is None:
            return None
        style.lay_out(drawn.figure)
        svg = svg_element(drawn.figure, name, drawn.title, drawn.table)
        if drawn.over_steps is not None:
            svg = with_slider(svg, name, drawn.over_steps)
        return Shown(name, drawn.title, drawn.caption, svg, style.to_png(drawn.figure))
    except Exception as error:  # a figure may fail in any way, and the result matters more
        why = f"The figure {name!r} could not be drawn ({type(error).__name__}: {reason(error)})."
        warnings.warn(why, RuntimeWarning, stacklevel=3)
        return Shown(name, name.replace("_", " ").capitalize(), why, Markup(""), None)


def svg_element(figure: Figure, name: str, title: str, table: str | None = None) -> Markup:
    """A drawing as SVG with its title as the name for screen readers, and below it the links to its data.

    If parts of it are shown at one step only (:func:`attsvm.pages.over_steps.at_step`), a slider is before it.

    The ids inside it start with ``name``, a slug.
    """
    with all_layers(figure) as steps:
        drawn = style.to_svg(figure, name)
    svg = Markup(drawn.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1))
    # the places are known once the figure is drawn
    return with_layers(svg, name, steps) + data_links(figure, name, table)
