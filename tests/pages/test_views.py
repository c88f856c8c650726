"""A page says the same on the terminal, as JSON and as HTML."""

import json
import re

import pytest

from attsvm.pages.page import Card, Cards, Details, Heading, Page, Table, Tables, Text

PAIRS = Table([("norm", "1 < 2"), ("steps", "300")], title="Training")
GRID = Table([(f"0.{k}", f"{k}.5") for k in range(70)], ["head", "entropy"], more="heads")


@pytest.fixture
def page():
    return Page(
        {"version": "1", "command": "attsvm test --out 'a b'", "seed": 3, "seconds": 1.25},
        title="Heads <1>",
        kicker="2 heads",
        verdict="The largest logit is 1.",
        body=lambda: [
            Cards([Card("Largest logit", "1.0", "of head 0.0")]),
            Heading("Theory"),
            Text("Published in 2308.16898 & elsewhere."),
            Details("All heads", [GRID]),
            Heading("Numbers"),
            Tables([PAIRS]),
        ],
        notes=["Only [2] queries."],
        terminal=[PAIRS, "A remark.", GRID],
        others={"table.csv": lambda path: path.write_text("head,entropy\n")},
    )


def test_the_terminal_has_the_tables_and_then_the_verdict_and_the_notes(page, capsys):
    page.show()
    out = capsys.readouterr().out
    parts = ["Training", "1 < 2", "A remark.", "59.5", "10 more heads", page.verdict, "Only [2] queries."]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)
    assert "60.5" not in out, "a long table is cut"


def test_the_numbers_are_those_of_the_file(page, capsys, tmp_path):
    page.show(as_json=True)
    page.write(tmp_path)
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "result.json").read_text()) == page.numbers
    assert {path.name for path in tmp_path.iterdir()} == {"index.html", "result.json", "table.csv"}


def test_the_html_has_every_part_escaped_with_its_citations(page):
    html = page.files()["index.html"].decode()
    assert "<h1>Heads &lt;1&gt;</h1>" in html
    assert 'in <a href="https://arxiv.org/abs/2308.16898">2308.16898</a> &amp; elsewhere.' in html
    cells = re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td>', html)
    assert html.count("counted from 0") == 1
    assert cells == [*GRID.rows, ("norm", "1 &lt; 2"), ("steps", "300")]
    assert "seed 3 · 1.2 s in all" in html
    assert "<code>attsvm test --out &#39;a b&#39;</code>" in html
