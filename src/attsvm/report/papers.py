"""The papers behind the theory, as links."""

import re

from markupsafe import Markup, escape

CITATIONS = {
    "Tarzanagh, Li, Zhang and Oymak (2023)": "2306.13596",
    "Tarzanagh, Li, Thrampoulidis and Oymak (2023)": "2308.16898",
    "mirror-descent paper": "2410.14581",
}
"""arXiv numbers by how a page names the paper."""

_CITED = re.compile("|".join([*map(re.escape, CITATIONS), r"\b\d{4}\.\d{5}\b"]))


def cited(text: str) -> Markup:
    """A text as HTML whose citations and arXiv numbers are links to arXiv.

    Examples
    --------
    >>> from attsvm.report.papers import cited
    >>> print(cited("p < 2 (2308.16898)"))
    p &lt; 2 (<a href="https://arxiv.org/abs/2308.16898">2308.16898</a>)
    """

    def link(found: re.Match[str]) -> str:
        return f'<a href="https://arxiv.org/abs/{CITATIONS.get(found[0], found[0])}">{found[0]}</a>'

    return Markup(_CITED.sub(link, str(escape(text))))
