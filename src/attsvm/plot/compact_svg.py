"""A drawing of matplotlib as a small SVG element: short numbers, text as text, and nothing that is not drawn."""

import re
import xml.etree.ElementTree as ET

FONTS = "'DejaVu Sans', Verdana, 'Bitstream Vera Sans', sans-serif"
"""The font that matplotlib measures with, and fonts of nearly the same widths on other systems."""

_PLACES = ("d", "x", "y", "x1", "x2", "y1", "y2", "points", "transform")
_OWN_FONT = re.compile(r"font-family: '?DejaVu Sans'?(?:; |$)")


def compact_svg(svg: str) -> str:
    r"""The same drawing in fewer characters.

    Numbers are rounded to 0.01 of a point. matplotlib simplifies lines up to 0.11 points, so this is not visible.
    The font of the text is a property of the whole drawing.

    ``svg``: an SVG element of matplotlib without namespaces, its text as text.

    Examples
    --------
    >>> from attsvm.plot.compact_svg import compact_svg
    >>> compact_svg('<svg><g id="empty"/><path d="M 0 1.23456 \nL 2 3 "/></svg>').partition(">")[2]
    '<path d="M0 1.23L2 3"/></svg>'
    """
    root = ET.fromstring(svg)
    _tidy(root)
    root.set("font-family", FONTS)
    return ET.tostring(root, encoding="unicode").replace(" />", "/>")  # text and attributes have no >


def _tidy(part: ET.Element) -> None:
    for child in list(part):
        _tidy(child)
        is_empty = child.tag in ("g", "defs") and not len(child)
        if is_empty:
            part.remove(child)
    if part.tag not in ("text", "tspan", "style"):
        part.text = None
    part.tail = None
    for name in _PLACES:
        if name in part.attrib:
            part.set(name, _short(part.attrib[name]))
    if "style" in part.attrib:
        part.set("style", _OWN_FONT.sub("", part.attrib["style"]))
    if part.tag == "text" and len(part):
        part.text = None
        _join_glyphs(part)
    elif part.tag == "g":
        _share_style(part)


def _short(places: str) -> str:
    # a factor, unlike a place, needs all of its digits
    if "matrix" not in places and "scale" not in places:
        places = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), places)
    return re.sub(r"\s*([A-Za-z])\s+(?=[-\d.])|\s+(?=[A-Za-z])", lambda found: found[1] or "", places).strip()


def _join_glyphs(text: ET.Element) -> None:
    """Letters of a formula that stand in one line become one part, which keeps the place of each."""
    last: ET.Element | None = None
    for glyph in list(text):
        glyph.set("style", glyph.get("style", "").replace("; fill: currentColor", ""))
        if last is not None and all(last.get(key) == glyph.get(key) for key in ("y", "style")):
            last.set("x", f"{last.get('x')} {glyph.get('x')}")
            last.text = f"{last.text or ''}{glyph.text or ''}"
            text.remove(glyph)
        else:
            last = glyph


def _share_style(group: ET.Element) -> None:
    """Marks of one style have it from their group."""
    styles = {mark.get("style") for mark in group}
    if len(styles) == 1 and "style" not in group.attrib and all(mark.tag == "use" for mark in group):
        group.set("style", styles.pop() or "")
        for mark in group:
            mark.attrib.pop("style", None)
