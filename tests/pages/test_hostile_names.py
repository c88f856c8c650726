"""Names and texts of users in terminals, pages, figures, files and tables, against oracles that use no code of ours."""

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from attsvm._utils.files import reason
from attsvm._utils.text import as_json, as_label, one_line, slugs, visible
from attsvm.pages.attention import attention_square, shaded
from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.links import csv_text, file_links
from attsvm.pages.page import Card, Cards, Details, Figures, Heading, Page, SpecialPart, Table, Tables, Text
from attsvm.pages.sweep import sweep_page, table_csv
from attsvm.pages.sweep_estimates import summarize
from attsvm.plot import DATA, style
from oracles.hostile import NAMES, escaped, faults_of_csv, faults_of_output, faults_of_page, is_control
from oracles.pages import codes_that_run, said

SOME_TEXT = st.text(st.characters(), max_size=80) | st.lists(st.sampled_from(NAMES), max_size=3).map("".join)


@settings(max_examples=200)
@given(st.lists(SOME_TEXT, max_size=6))
def test_text_is_shown_without_controls_and_slugs_are_names_of_files(names):
    for name in names:
        assert not any(map(is_control, visible(name).replace("\r\n", "\n")))
        assert escaped(name) == "".join(visible(name).replace("\r\n", "\n").split())
        assert len(one_line(name).splitlines()) <= 1
        assert json.loads(as_json({"x": [name]})) == {"x": [name]}
        assert not any(map(is_control, as_json(name)))
    found = slugs(names)
    assert len({one.casefold() for one in found}) == len(names)
    for one in found:
        assert re.fullmatch(r"\w[\w.-]*", one)
        assert len(f"{one}.png".encode()) < 230  # the name of an unfinished file is longer
        assert slugs([one]) == [one]


@settings(max_examples=50)
@given(st.lists(st.lists(SOME_TEXT, min_size=1, max_size=4), max_size=4))
def test_a_table_holds_no_formula_and_is_read_back(rows):
    sound = [[cell.replace("\0", "") for cell in row] for row in rows]
    assert faults_of_csv(csv_text(["name"], sound), [cell for row in sound for cell in row]) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_drawn_as_it_is(name):
    def draw():
        figure, axis = style.panel(as_label(name), as_label(name), 2)
        axis.plot([1, 2], [3, 4], label=as_label(name))
        axis.legend()
        return DrawnFigure(name, name, figure)

    (one,) = draw_each({name: draw})
    assert one.png is not None, one.caption
    texts = re.findall(r"<text[^>]*>(.*?)</text>", one.svg)
    drawn = ["".join(ET.fromstring(f"<t>{text}</t>").itertext()) for text in texts]
    expected = escaped(name) if len(name) < 60 else f"{name[:40]}…{name[-10:]}"
    assert ["".join(text.split()) for text in drawn].count(expected) == 3
    ET.fromstring(style.to_svg_file(draw().figure))


def page_of_names():
    """A page with every name in every part, and its terminal tables."""
    figure = Figure()
    axis = figure.subplots(subplot_kw=DATA)
    for name in NAMES:
        axis.plot([1, 2], [3, 4], label=as_label(name))
    rows = [[name, name] for name in NAMES]
    n = len(NAMES)
    square = attention_square([*NAMES], np.arange(n), np.full((n, n), 1 / n), np.ones((n, n), bool), np.zeros(n, int))
    spans = [span for name in NAMES for span in shaded(name, [(0, len(name), 0.5, True)])]

    def body():
        for name in NAMES:
            yield Heading(name, entry=name, id=slugs([name])[0] if name == "_hidden" else "")
            yield Text(name)
        yield Cards([Card(name, name, name) for name in NAMES])
        yield Table(rows, NAMES[:2], kind="heads")
        yield Tables([Table(rows, title=name) for name in NAMES])
        yield Figures(
            draw_each({name: lambda name=name: DrawnFigure(name, name, figure) for name in NAMES[4:6]}), listed=True
        )
        links = file_links("cells", square.table())
        yield SpecialPart("square", {"lead": NAMES[0], "square": square, "slider": "", "links": links})
        texts = [{"heading": name, "small": name, "readings": [(name, spans)]} for name in NAMES]
        yield SpecialPart("examples", {"slider": "", "texts": texts, "beside": True})
        yield SpecialPart("words", {"words": [{"name": name, "parts": [Text(name)]} for name in NAMES]})
        words = [(name, name) for name in NAMES]
        yield SpecialPart("graph", {"levels": [[{"id": 0, "words": words}]], "links": [[0, 0]]})
        yield Details(NAMES[0], [Text(name) for name in NAMES])

    return Page(
        {"command": " ".join(NAMES), "names": [*NAMES], **dict.fromkeys(NAMES, 1)},
        title=" ".join(NAMES),
        kicker=NAMES[-4],
        verdict=" ".join(NAMES),
        body=body,
        notes=NAMES,
        terminal=[*NAMES, Table(rows, NAMES[:2], title=NAMES[0]), *(Table(rows, title=name) for name in NAMES)],
        made_by=NAMES[4],
    )


def sweep_of_names():
    """A sweep whose axis, values, codes, outputs and errors are names."""
    n = len(NAMES)
    dims = (NAMES[4], NAMES[9], "trial")
    arrays = {name: (dims, np.random.default_rng(0).random((n, 2, 3)), {"long_name": name}) for name in NAMES[7:9]}
    codes = {"flag_meanings": " ".join(name.replace(" ", "") for name in NAMES[:3]), "missing": -1}
    arrays["kind"] = ((*dims, NAMES[0]), np.zeros((n, 2, 3, 1), "int8"), codes)
    arrays["done"] = (dims, np.ones((n, 2, 3), bool))
    errors = [{"cell": {NAMES[0]: name}, "trials": [0, 1], "attempts": 1, "error": name} for name in NAMES]
    about = {
        "name": NAMES[4],
        "version": "1",
        "command": NAMES[5],
        "seed": 7,
        "hash": "abc",
        "errors": json.dumps(errors),
    }
    return xr.Dataset(arrays, {NAMES[4]: [*NAMES], NAMES[9]: [*NAMES[:2]], NAMES[0]: [NAMES[15]]}, about)


def test_pages_of_names_are_shown_in_full_and_no_name_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    summary = summarize(sweep_of_names())
    assert faults_of_csv(table_csv(summary), NAMES) == []
    pages = {}
    for name, page in (("parts", page_of_names()), ("sweep", sweep_page(summary, command=" ".join(NAMES)))):
        page.show()
        assert faults_of_output(capsys.readouterr().out, NAMES if name == "parts" else NAMES[:5]) == []
        page.show(as_json=True)
        printed = capsys.readouterr().out
        assert faults_of_output(printed) == []
        assert json.loads(printed)["command"] == " ".join(NAMES)
        (tmp_path / name).mkdir()
        page.write(tmp_path / name)
        pages[name] = (tmp_path / name / "index.html").read_text()
        assert faults_of_page(pages[name]) == []
    assert codes_that_run([*pages.values()], tmp_path) == ["expected"]


def test_a_browser_reads_names_from_the_linked_file(tmp_path):
    """Cells named by users: at the pointer they are as they were given, also those with line ends and apostrophes."""
    names = ["=1+1", "'quoted", 'a,"b"', "costs $5"]
    figure = Figure(figsize=(4, 2))
    axis = figure.subplots(subplot_kw=DATA)
    axis.imshow(np.arange(4.0)[None], aspect="auto")
    axis.set_xticks(range(4), map(as_label, names))
    (one,) = draw_each({"cells": lambda: DrawnFigure("Cells", "", figure)})
    script = """<script>
    const box = document.querySelector("svg image").getBoundingClientRect();
    for (let k = 0; k < 4; k++) {
      document.querySelector("figure svg").dispatchEvent(new PointerEvent("pointermove",
        { clientX: box.left + box.width * (2 * k + 1) / 8, clientY: box.top + box.height / 2 }));
      document.body.append(document.createElement("output"));
      document.body.lastElementChild.textContent = document.querySelector(".tip").textContent;
    }
    </script></body>"""
    html = Page({"command": ""}, body=lambda: [Figures([one])]).files()["index.html"].decode()
    assert said(html, script, tmp_path) == [f"x {name}, y 0: {k}" for k, name in enumerate(names)]


def test_the_reason_of_an_error_is_one_line_without_controls():
    assert reason(TypeError()) == "TypeError"
    assert reason(ValueError("\x1b[2J\u202e: why.\nmore")) == r"\x1b[2J\u202e: why"
