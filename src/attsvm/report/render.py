"""Pages from Jinja2 templates: self-contained HTML files, light and dark."""

from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from attsvm.plot import style
from attsvm.report.contents import with_contents
from attsvm.report.figure_data import data_links
from attsvm.report.glossary import with_terms
from attsvm.report.over_steps import all_layers, with_layers
from attsvm.report.papers import cited


def render(template: str, *, package: str = "attsvm.report", **values: Any) -> str:
    """A page as HTML. Every value is escaped, except drawings.

    ``template``: a file in the folder ``templates`` of ``package``, or of ``attsvm.report``. It extends
    ``base.html.j2``. ``package``: a package with a folder ``templates``. ``values``: what the template shows.
    ``base.html.j2`` needs ``title``, ``kicker`` (the line above it), ``verdict`` (the sentence below it), ``notes``
    (the warnings above the results) and ``command``. Labels link to the definitions of their terms, which the page
    ends with.
    """
    return _environment(package).get_template(template).render(values)


@cache
def _environment(package: str) -> Environment:
    loaders = [PackageLoader(name) for name in dict.fromkeys((package, "attsvm.report"))]
    environment = Environment(
        loader=ChoiceLoader(loaders), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.globals["svg"] = svg_element
    environment.filters["cited"] = cited
    environment.globals["script"] = script
    environment.tests["dark_shade"] = dark_shade
    environment.filters["with_terms"] = with_terms
    environment.filters["with_contents"] = with_contents
    return environment


def script(name: str) -> Markup:
    """A built script of the folder ``templates``, as it is: the braces in it are no template."""
    return Markup((files("attsvm.report") / "templates" / name).read_text(encoding="utf-8"))


def svg_element(figure: Figure, name: str, title: str) -> Markup:
    """A drawing as SVG with its title as the name for screen readers, and below it the links to its data.

    If parts of it are shown at one step only (:func:`attsvm.report.over_steps.at_step`), a slider is before it.

    The ids inside it start with ``name``.
    """
    with all_layers(figure) as steps:
        drawn = style.to_svg(figure, name)
    svg = Markup(drawn.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1))
    return with_layers(svg, name, steps) + data_links(figure, name)  # the places are known once the figure is drawn


def dark_shade(share: float) -> bool:
    """Whether white is the legible ink on the shade of a cell: this share of blue on white.

    Examples
    --------
    >>> from attsvm.report.render import dark_shade
    >>> dark_shade(0.5), dark_shade(1.0)
    (False, True)
    """
    return style.ink_on(share * np.array(to_rgb(style.BLUE)) + 1 - share) == "white"
