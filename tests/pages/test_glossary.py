"""Pages link their terms to definitions, which are those of the documentation."""

import re

from attsvm.pages.glossary import EVERYDAY, definitions, with_terms


def test_the_first_label_with_a_term_links_to_its_definition():
    html = '<h2>Margin ratios</h2><p>margin ratio</p><th scope="row">the margin ratio, support tokens</th><td>Cone</td>'
    page = with_terms(html)
    links = re.findall(r'<a class="term" href="#([^"]+)" title="([^"]+)">([^<]+)</a>', page)
    assert [(place, words) for place, _, words in links] == [
        ("term-margin-ratio", "Margin ratios"),
        ("term-support-token", "support tokens"),
    ]
    for place, definition, _ in links:
        assert re.search(rf'<dt id="{place}">[^<]+</dt><dd>{re.escape(definition)}</dd>', page)
    assert re.sub(r"<a [^>]*>|</a>", "", page).startswith(html)
    assert with_terms("<p>margin ratio</p><h2>Numbers</h2>") == "<p>margin ratio</p><h2>Numbers</h2>"


def test_everyday_words_are_entries():
    assert {name.lower() for name in definitions()} >= EVERYDAY
    assert all(len(text) > 20 for text in definitions().values())
