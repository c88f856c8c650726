"""Pages from Jinja2 templates: self-contained HTML files, light and dark."""

import re
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from attsvm.pages.figure_data import data_links
from attsvm.pages.glossary import with_terms
from attsvm.pages.over_steps import all_layers, with_layers
from attsvm.plot import style

FEWEST = 4
"""Fewest sections of a page with a table of contents."""

_HEADING = re.compile(r"<h2(?: id=\"(?P<id>[^\"]*)\")?>(?P<text>.*?)</h2>", re.DOTALL)

CITATIONS = {
    "Tarzanagh, Li, Zhang and Oymak (2023)": "2306.13596",
    "Tarzanagh, Li, Thrampoulidis and Oymak (2023)": "2308.16898",
    "mirror-descent paper": "2410.14581",
}
"""arXiv numbers by how a page names the paper."""

_CITED = re.compile("|".join([*map(re.escape, CITATIONS), r"\b\d{4}\.\d{5}\b"]))


def render(template: str, *, package: str = "attsvm.pages", **values: Any) -> str:
    """A page as HTML. Every value is escaped, except drawings.

    ``template``: a file in the folder ``templates`` of ``package``, or of ``attsvm.pages``. It extends
    ``base.html.j2``. ``package``: a package with a folder ``templates``. ``values``: what the template shows.
    ``base.html.j2`` needs ``title``, ``kicker`` (the line above it), ``verdict`` (the sentence below it), ``notes``
    (the warnings above the results) and ``command``. Labels link to the definitions of their terms, which the page
    ends with.
    """
    return _environment(package).get_template(template).render(values)


@cache
def _environment(package: str) -> Environment:
    loaders = [PackageLoader(name) for name in dict.fromkeys((package, "attsvm.pages"))]
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
    return Markup((files("attsvm.pages") / "templates" / name).read_text(encoding="utf-8"))


def svg_element(figure: Figure, name: str, title: str) -> Markup:
    """A drawing as SVG with its title as the name for screen readers, and below it the links to its data.

    If parts of it are shown at one step only (:func:`attsvm.pages.over_steps.at_step`), a slider is before it.

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
    >>> from attsvm.pages.render import dark_shade
    >>> dark_shade(0.5), dark_shade(1.0)
    (False, True)
    """
    return style.ink_on(share * np.array(to_rgb(style.BLUE)) + 1 - share) == "white"


def with_contents(html: str) -> Markup:
    """The body of a page behind a list of links to its sections, unless it has such a list or few sections.

    Examples
    --------
    >>> from attsvm.pages.render import with_contents
    >>> page = with_contents("<h2>Words</h2><h2>Examples</h2><h2>Figures</h2><h2>Numbers</h2>")
    >>> '<a href="#section-2">Examples</a>' in page, '<h2 id="section-2">Examples</h2>' in page
    (True, True)
    """
    if 'class="contents"' in html or len(_HEADING.findall(html)) < FEWEST:
        return Markup(html)
    links: list[str] = []

    def numbered(heading: re.Match[str]) -> str:
        name = heading["id"] or f"section-{len(links) + 1}"
        title = re.sub(r"<[^>]*>", "", heading["text"])
        links.append(f'<li><a href="#{name}">{title}</a></li>')
        return f'<h2 id="{name}">{heading["text"]}</h2>'

    body = _HEADING.sub(numbered, html)
    listed = "\n".join(links)
    return Markup(f'<details class="contents"><summary>Contents</summary>\n<ol>\n{listed}\n</ol>\n</details>\n{body}')


def cited(text: str) -> Markup:
    """A text as HTML whose citations and arXiv numbers are links to arXiv.

    Examples
    --------
    >>> from attsvm.pages.render import cited
    >>> print(cited("p < 2 (2308.16898)"))
    p &lt; 2 (<a href="https://arxiv.org/abs/2308.16898">2308.16898</a>)
    """

    def link(found: re.Match[str]) -> str:
        return f'<a href="https://arxiv.org/abs/{CITATIONS.get(found[0], found[0])}">{found[0]}</a>'

    return Markup(_CITED.sub(link, str(escape(text))))
