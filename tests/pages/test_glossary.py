"""Pages link their terms to definitions, which are those of the documentation."""

import re
from pathlib import Path

from attsvm.pages.glossary import EVERYDAY, _as_text, definitions, with_terms

ROOT = Path(__file__).parents[2]


def test_the_first_label_with_a_term_links_to_its_definition():
    html = '<h2>Margin ratios</h2><p>margin ratio</p><th scope="row">the margin ratio, support tokens</th><td>Cone</td>'
    marked = with_terms(html)
    links = re.findall(r'<a class="term" href="#([^"]+)" title="([^"]+)">([^<]+)</a>', marked)
    assert [(place, words) for place, _, words in links] == [
        ("term-margin-ratio", "Margin ratios"),
        ("term-support-token", "support tokens"),
    ]
    for place, definition, _ in links:
        assert re.search(rf'<dt id="{place}">[^<]+</dt><dd>{re.escape(definition)}</dd>', marked)
    assert re.sub(r"<a [^>]*>|</a>", "", marked).startswith(html)
    assert with_terms("<p>margin ratio</p><h2>Numbers</h2>") == "<p>margin ratio</p><h2>Numbers</h2>"


def test_everyday_words_are_entries():
    assert {name.lower() for name in definitions()} >= EVERYDAY
    assert all(len(text) > 20 for text in definitions().values())


def test_definitions_in_the_playground_are_those_of_the_glossary_and_link_to_sections_of_guides():
    text = (ROOT / "src/attsvm/playground/page/index.html").read_text(encoding="utf-8")
    terms = re.findall(r"\[`([^`]+)`,`(\w+)\.html(?:#([\w-]+))?`\]", text)
    assert len(terms) > 20
    for entry, guide, section in terms:
        assert _as_text(definitions()[entry]) in text
        headings = re.findall(
            "^#+ (.*)", (ROOT / "docs" / "guide" / f"{guide}.md").read_text(encoding="utf-8"), flags=re.M
        )
        assert section in {"", *(re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) for heading in headings)}
