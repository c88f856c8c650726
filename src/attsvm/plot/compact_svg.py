"""A drawing of matplotlib as a smaller SVG element: short numbers, and text as text."""

import re

FONTS = "'DejaVu Sans', Verdana, 'Bitstream Vera Sans', sans-serif"
"""The font that matplotlib measures with, and fonts of nearly the same widths on other systems."""

TAG = re.compile(r"<[^>]*>")  # matplotlib escapes < and > in text and in attributes
_PLACES = re.compile(r' (d|x|y|x1|x2|y1|y2|points|transform)="([^"]*)"')
# comments, blanks between tags, groups of nothing, and rotations by nothing
_NOTHING = re.compile(r'<!--.*?-->|(?<=>)\s+(?=<|\Z)|<g id="[^"]*"/>| transform="rotate\(-0 [^"]*"', re.DOTALL)
_OWN_FONT = re.compile(r"font-family: '?DejaVu Sans'?(?:; |(?=\"))")


def compact_svg(svg: str) -> str:
    r"""Write a drawing in fewer characters.

    Numbers are rounded to 0.01 of a point. matplotlib simplifies lines up to 0.11 points, so this is not visible.
    The font of the text is a property of the whole drawing.

    ``svg``: an SVG element of matplotlib without namespaces, its text as text.

    Examples
    --------
    >>> from attsvm.plot.compact_svg import compact_svg
    >>> compact_svg('<svg><path d="M 0 1.23456 \nL 2 3 "/>\n</svg>').partition(">")[2]
    '<path d="M0 1.23L2 3"/></svg>'
    """
    svg = TAG.sub(lambda tag: _short_tag(tag[0]), _NOTHING.sub("", svg))
    return svg.replace("<svg", f'<svg font-family="{FONTS}"', 1)


def _short_tag(tag: str) -> str:
    return _PLACES.sub(lambda found: f' {found[1]}="{_short(found[2])}"', _OWN_FONT.sub("", tag))


def _short(places: str) -> str:
    # a factor, unlike a place, needs all of its digits
    if "matrix" not in places and "scale" not in places:
        places = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):z.2f}".rstrip("0").rstrip("."), places)
    return re.sub(r"\s*([A-Za-z])\s+(?=[-\d.])|\s+(?=[A-Za-z])", lambda found: found[1] or "", places).strip()
