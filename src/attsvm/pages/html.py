"""The HTML view of a page: one self-contained file, light and dark."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.colors import to_rgb

from attsvm._utils.text import visible
from attsvm.pages.glossary import with_terms
from attsvm.pages.page import AnyPart, Figures, Heading, Page, SpecialPart
from attsvm.plot import style

SCRIPTS = {
    "over_steps.js": "over-steps",
    "zoom.js": "data-panels",
    "sorting.js": 'class="heads"',
    "picker.js": 'class="picker"',
    "graph.js": 'class="graph"',
}
"""Scripts that only some pages have, by what is in the body of those."""

FEWEST = 4
"""Fewest sections of a page with a table of contents."""

_HEADING = re.compile(r"<h2(?: id=\"(?P<id>[^\"]*)\")?>(?P<text>.*?)</h2>", re.DOTALL)

CITATIONS = {
    "Tarzanagh, Li, Zhang and Oymak (2023)": "2306.13596",
    "Tarzanagh, Li, Thrampoulidis and Oymak (2023)": "2308.16898",
    "mirror-descent paper": "2410.14581",
    "Mechanics of Next Token Prediction with Self-Attention": "2403.08081",
}
"""arXiv numbers by how a page names the paper."""

_CITED = re.compile("|".join([*map(re.escape, CITATIONS), r"\b\d{4}\.\d{5}\b"]))


def render(page: Page, parts: Sequence[AnyPart]) -> str:
    """The page as HTML. Every value is escaped, except drawings.

    ``parts``: of its body. Labels link to the definitions of their terms, which the page ends with.
    """
    origin = _origin(page.numbers if page.origin is None else page.origin)
    template = environment().get_template("page.html.j2")
    shown = template.render(page=page, parts=parts, entries=_entries(parts), origin=origin, scripts=SCRIPTS)
    # what is escaped for HTML can still change the direction of the letters behind it, or end a line as Windows does
    return visible(shown.replace("\r\n", "\n"))


def _entries(parts: Sequence[AnyPart]) -> list[tuple[str, str]]:
    """The ids and titles of what the parts themselves put into the table of contents."""
    entries = []
    for part in parts:
        if isinstance(part, Heading) and part.entry:
            entries.append((part.id, part.entry))
        elif isinstance(part, Figures) and part.listed:
            entries += [(f"figure-{one.name}", one.title) for one in part.shown]
        elif isinstance(part, SpecialPart):
            entries += part.entries
    return entries


def _origin(about: Mapping[str, Any]) -> Markup:
    """Version, seed, seconds and hash of a result; empty if it has no version."""
    if "version" not in about:
        return Markup("")
    said = [Markup("attsvm {}").format(about["version"])]
    if "seed" in about:
        said.append(Markup("seed {}").format(about["seed"]))
    seconds = about.get("seconds")
    if seconds is not None:
        said.append(Markup("{:.1f} s in all").format(seconds["everything"] if isinstance(seconds, dict) else seconds))
    for name, digest in (("data", about.get("data", {}).get("sha256")), ("definition", about.get("hash"))):
        if digest:
            said.append(Markup("{} SHA-256 <code>{}</code>").format(name, digest))
    return Markup(" · ").join(said)


@cache
def environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("attsvm.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals["script"] = script
    environment.tests["dark_shade"] = dark_shade
    environment.filters |= {"cited": cited, "with_terms": with_terms, "with_contents": with_contents}
    return environment


def script(name: str) -> Markup:
    """A built script of the folder ``templates``, as it is: the braces in it are no template."""
    return Markup((files("attsvm.pages") / "templates" / name).read_text(encoding="utf-8"))


def dark_shade(share: float) -> bool:
    """Whether white is the legible ink on the shade of a cell: this share of blue on white."""
    return style.ink_on(share * np.array(to_rgb(style.BLUE)) + 1 - share) == "white"


def with_contents(html: str, entries: Sequence[tuple[str, str]] = ()) -> Markup:
    """The body of a page behind a list of links to its sections, unless there are few.

    ``entries``: ids and titles to list in place of the sections.

    Examples
    --------
    >>> from attsvm.pages.html import with_contents
    >>> page = with_contents("<h2>Words</h2><h2>Examples</h2><h2>Figures</h2><h2>Numbers</h2>")
    >>> '<a href="#section-2">Examples</a>' in page, '<h2 id="section-2">Examples</h2>' in page
    (True, True)
    """
    links = [_LINK.format(id, title) for id, title in entries]
    if entries or len(_HEADING.findall(html)) < FEWEST:
        body = html
    else:

        def numbered(heading: re.Match[str]) -> str:
            name = heading["id"] or f"section-{len(links) + 1}"
            links.append(_LINK.format(name, Markup(re.sub(r"<[^>]*>", "", heading["text"]))))
            return f'<h2 id="{name}">{heading["text"]}</h2>'

        body = _HEADING.sub(numbered, html)
    if not links:
        return Markup(body)
    listed = "\n".join(links)
    return Markup(f'<details class="contents"><summary>Contents</summary>\n<ol>\n{listed}\n</ol>\n</details>\n{body}')


_LINK = Markup('<li><a href="#{}">{}</a></li>')


def cited(text: str) -> Markup:
    """A text as HTML whose citations and arXiv numbers are links to arXiv."""

    def link(found: re.Match[str]) -> str:
        return f'<a href="https://arxiv.org/abs/{CITATIONS.get(found[0], found[0])}">{found[0]}</a>'

    return Markup(_CITED.sub(link, str(escape(text))))
