"""A table of contents for pages of several sections, which stays in view."""

import re

from markupsafe import Markup

FEWEST = 4
"""Fewest sections of a page with a table of contents."""

_HEADING = re.compile(r"<h2(?: id=\"(?P<id>[^\"]*)\")?>(?P<text>.*?)</h2>", re.DOTALL)


def with_contents(html: str) -> Markup:
    """The body of a page behind a list of links to its sections, unless it has such a list or few sections.

    Examples
    --------
    >>> from attsvm.report.contents import with_contents
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
