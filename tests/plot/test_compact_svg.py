"""A drawing on a page is that of matplotlib, tag by tag, with text that looks like a part of the drawing."""

import io
import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

from attsvm.plot import style
from attsvm.plot.compact_svg import compact_svg

TEXTS = [
    ' d="M 1.23456 2.34567 L 3 4" x="1.23456"  two  blanks',
    "a < b & c > d -- 'e' <g id=\"f\"/> <!-- g -->",
    'font-family: DejaVu Sans"  1e-05',
    " ",
    r"$\alpha_{it} = 10^{-5}$",
]


def numbers(text):
    return [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text)]


@pytest.fixture(scope="module")
def drawn():
    """The SVG element of matplotlib."""
    with style.applied(), mpl.rc_context({"svg.fonttype": "none"}):
        figure = mpl.figure.Figure()
        axis = figure.subplots()
        axis.plot([0, 1e-5, 2e-5], [1, 2, 1.3], label=TEXTS[0])
        axis.scatter([0, 1e-5], [1, 1.5], c=[1, 2])
        axis.set(xlabel=TEXTS[1], ylabel=TEXTS[2], title=TEXTS[3])
        axis.text(1e-5, 1.2, TEXTS[4], rotation=30)
        axis.legend()
        stream = io.StringIO()
        figure.savefig(stream, format="svg")
    svg = stream.getvalue()
    return re.sub(r'\sxmlns(:\w+)?="[^"]*"|<metadata>.*?</metadata>|xlink:', "", svg[svg.index("<svg") :], flags=re.S)


def test_every_tag_text_and_number_is_that_of_matplotlib(drawn):
    before, after = (
        [part for part in ET.fromstring(svg).iter() if part.tag != "g" or len(part)]
        for svg in (drawn, compact_svg(drawn))
    )
    assert [part.tag for part in after] == [part.tag for part in before]
    for one, other in zip(after[1:], before[1:], strict=True):
        assert (one.text or "").strip() == (other.text or "").strip()
        for name in {*one.attrib, *other.attrib} - {"style"}:
            if name == "transform" and name not in one.attrib:
                assert numbers(other.get(name))[0] == 0, "only a rotation by nothing is left out"
            else:
                np.testing.assert_allclose(numbers(one.get(name)), numbers(other.get(name)), rtol=0, atol=0.0051)
                assert re.sub(r"[\d.\s-]", "", one.get(name)) == re.sub(r"[\d.\s-]", "", other.get(name))
        own_font = re.compile(r"font-family: '?DejaVu Sans'?(; |$)")
        assert one.get("style", "") == own_font.sub("", other.get("style", ""))


def test_the_texts_are_kept_and_the_drawing_is_smaller(drawn):
    found = compact_svg(drawn)
    kept = ["".join(part.itertext()) for part in ET.fromstring(found).iter("text")]
    assert {text for text in TEXTS if text.strip() and "$" not in text} <= set(kept)
    assert len(found) < 0.9 * len(drawn)
