"""The data of a figure on a page: the CSV file against what was drawn, and the hover in a browser."""

import csv
import io
import re
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.page import Figures, Page
from attsvm.plot import DATA, style
from oracles.pages import said

X = np.array([1.0, 10.0, 100.0])
CELLS = np.array([[0.25, np.nan, 0.5], [1 / 3, 1e-9, 1.0]])


def drawing(low, middle, high):
    figure = Figure(figsize=(6, 3))
    left, right = figure.subplots(1, 2, subplot_kw=DATA)
    left.set_xscale("log")
    left.set_xlabel("steps")
    left.set_ylabel("direction error")
    style.band(left, X, low, high, style.BLUE, of='gradient, "plain"')
    left.plot(X, middle, color=style.BLUE, label='gradient, "plain"')
    left.axhline(0.5)
    left.plot([], [], label="only in the legend")
    image = right.imshow(CELLS, aspect="auto")
    figure.colorbar(image, ax=right)
    right.set_title("ratios", loc="left")
    right.set_xticks(range(3), ["ℓ1", "ℓ2", "ℓ3"])
    right.set_yticks(range(2), ["GD", "sign"])
    return figure


def shown(*curves):
    (one,) = draw_each({"errors": lambda: DrawnFigure("Errors", "A caption.", drawing(*curves))})
    return one


def linked_rows(svg):
    text = unquote(re.search(r'href="data:text/csv;charset=utf-8,([^"]*)"', svg)[1])
    return list(csv.reader(io.StringIO(text)))


@settings(max_examples=5, deadline=None)
@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=3, max_size=3))
def test_the_linked_file_has_the_numbers_that_were_drawn(values):
    low, middle, high = np.sort(np.array(values), axis=0)
    header, *rows = linked_rows(shown(low, middle, high).svg)
    assert header == ["panel", "series", "x", "y", "value"]
    found = {}
    for panel, series, x, y, value in rows:
        found.setdefault((panel, series), []).append((x, y, value))
    names = ['gradient, "plain"', 'band of gradient, "plain", edge 1', 'band of gradient, "plain", edge 2']
    assert set(found) == {("1", name) for name in names} | {("2 ratios", "cells")}  # neither colorbar nor rule
    for name, drawn in zip(names, (middle, low, high), strict=True):
        assert [(float(x), float(y)) for x, y, _ in found["1", name]] == list(zip(X, drawn, strict=True))
    cells = {(y, x): float(value) for x, y, value in found["2 ratios", "cells"]}
    expected = {
        (row, column): CELLS[i, j]
        for i, row in enumerate(["GD", "sign"])
        for j, column in enumerate(["ℓ1", "ℓ2", "ℓ3"])
    }
    assert cells == {place: value for place, value in expected.items() if not np.isnan(value)}


HOVER = """<script>
const at = (x, y) => {
  document.querySelector("figure svg").dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
  const said = document.body.appendChild(document.createElement("output"));
  said.textContent = document.querySelector(".tip").hidden ? "nothing" : document.querySelector(".tip").textContent;
};
// the places are taken from the drawing, not from the data of the link
const line = [...document.querySelectorAll('[id*="line2d"] path')].find((path) =>
  path.getAttribute("style").includes("stroke: var(--blue") && path.getTotalLength() > 20);
const end = line.getPointAtLength(line.getTotalLength()).matrixTransform(line.getScreenCTM());
at(end.x, end.y);
const box = document.querySelector("svg image").getBoundingClientRect();
at(box.left + box.width * 5 / 6, box.top + box.height / 4);
at(box.left + box.width / 6, box.top + box.height * 3 / 4);
at(2, 2);
document.addEventListener("click", (event) => event.preventDefault());  // no download
document.querySelector("a.svg").click();
const saved = decodeURIComponent(document.querySelector("a.svg").href.split(",").slice(1).join(","));
const read = new DOMParser().parseFromString(saved, "image/svg+xml");
document.body.appendChild(document.createElement("output")).textContent = read.documentElement.tagName;
</script></body>"""


def opened(one, script, folder):
    """What a script says on a page with this figure."""
    page = Page({"command": ""}, title="", kicker="", verdict="", body=lambda: [Figures([one])])
    html = page.files()["index.html"].decode()
    return said(html, script, folder)


def test_a_browser_shows_the_numbers_under_the_pointer(tmp_path):
    one = shown([0.1, 0.01, 0.001], [0.2, 0.1, 0.0625], [0.9, 0.8, 0.7])
    assert opened(one, HOVER, tmp_path) == [
        '1 · gradient, "plain" · steps 100, direction error 0.0625',
        "2 ratios · x ℓ3, y GD: 0.5",
        "2 ratios · x ℓ1, y sign: 0.33333",
        "nothing",
        "svg",
    ]


def test_series_have_plain_names():
    def curves():
        figure = Figure()
        left, right = figure.subplots(1, 2, subplot_kw=DATA)
        left.set_ylabel(r"$\|W\|_F$")
        left.plot([1, 2], [3, 4])
        right.plot([1, 2], [3, 4], label=r"ℓ$_{1.5}$ Att-SVM")
        right.plot([1, 2], [3, 4])
        image = right.imshow([[1.0, 2.0]], aspect="auto", label="margin\nratio")
        figure.colorbar(image, ax=right)
        return figure

    (one,) = draw_each({"names": lambda: DrawnFigure("Names", "A caption.", curves())})
    names = [row[1] for row in linked_rows(one.svg)[1:]]
    assert names[::2] == names[1::2] == ["‖W‖_F", "ℓ1.5 Att-SVM", "curve", "margin ratio"]


@pytest.mark.parametrize("upright", [True, False])
def test_stacked_bars_have_their_own_lengths(upright):
    def stacked():
        figure = Figure()
        axis = figure.subplots(subplot_kw=DATA)
        draw, base = (axis.bar, "bottom") if upright else (axis.barh, "left")
        draw(range(3), [7, 0, 1], label="below")
        draw(range(3), [6, 2, 0], **{base: [7, 0, 1]}, label="above")
        return figure

    (one,) = draw_each({"bars": lambda: DrawnFigure("Bars", "A caption.", stacked())})
    header, *rows = linked_rows(one.svg)
    length, series = header.index("y" if upright else "x"), header.index("series")
    found = [(row[series], float(row[length])) for row in rows]
    assert found == [("below", 7), ("below", 0), ("below", 1), ("above", 6), ("above", 2), ("above", 0)]


ZOOM = """<script>
const say = (text) => { document.body.appendChild(document.createElement("output")).textContent = text; };
const panel = document.querySelector('[id$="-axes_1"]'), box = panel.querySelector("rect.zoom").getBoundingClientRect();
const [more, , reset] = document.querySelectorAll(".zooms button");
const ticks = () => [...panel.querySelectorAll("text")].map((text) => text.textContent).filter((text) => text !== "");
const before = ticks().length;
more.click(); more.click();
say(ticks().length > before ? "ticks" : "no ticks");
// the middle of the axes stays where it is: the middle point of the curve is there
document.querySelector("figure svg").dispatchEvent(
  new PointerEvent("pointermove", { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 }));
say(document.querySelector(".tip").hidden ? "nothing" : document.querySelector(".tip").textContent);
// the first point has left the axes
document.querySelector("figure svg").dispatchEvent(
  new PointerEvent("pointermove", { clientX: box.x + box.width * 0.05, clientY: box.y + box.height * 0.95 }));
say(document.querySelector(".tip").hidden ? "nothing" : document.querySelector(".tip").textContent);
reset.click();
say(ticks().length === before ? "as before" : "ticks are left");
</script></body>"""


def test_zoom_keeps_the_numbers_at_their_places(tmp_path):
    figure, axis = style.panel("steps", "direction error", 2, log=True)
    axis.plot([1, 10, 100], [0.01, 0.1, 1.0], label="gradient")
    (one,) = draw_each({"errors": lambda: DrawnFigure("Errors", "A caption.", figure)})
    assert opened(one, ZOOM, tmp_path) == ["ticks", "gradient · steps 10, direction error 0.1", "nothing", "as before"]


def test_the_drawing_on_a_page_has_the_text_and_the_places_of_the_file():
    with style.applied():
        drawn = drawing([0.1, 0.01, 0.001], [0.2, 0.1, 0.0625], [0.9, 0.8, 0.7])
    style.lay_out(drawn)
    file, page = style.to_svg_file(drawn).decode(), style.to_svg(drawn, "errors")
    paths = [
        [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path)]
        for text in (file, page)
        for path in [max(re.findall(r'<path d="([^"]*)" clip-path', text), key=len)]  # the band or the curve
    ]
    np.testing.assert_allclose(*paths, atol=0.00501, rtol=0)
    assert {"steps", "ratios", "sign"} <= {*re.findall(r"<text[^>]*>([^<]+)<", page)}
    assert len(page) < len(file) / 2
