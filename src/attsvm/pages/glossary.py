"""The glossary: the definitions of the terms that pages print, and where a text mentions them."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from markupsafe import Markup, escape

from attsvm._utils.text import slugs

EVERYDAY = frozenset(
    {
        "attention",
        "attention head",
        "cone",
        "component",
        "interval",
        "key",
        "mask",
        "norms",
        "prediction head",
        "probability",
        "query",
        "rank",
        "sequence",
        "slack",
        "standing",
        "status",
        "step",
        "token",
        "underflow",
        "verdict",
        "violation",
    }
)
"""Terms that also are words of everyday use, or are on every page. Their mentions are not linked."""

_LABEL = re.compile(r"(<(?P<tag>th|dt|caption|h2|h3)\b[^>]*>)(?P<text>[^<]+)(</(?P=tag)>)")


@cache
def definitions() -> dict[str, str]:
    """The definition of each term, in Markdown without links."""
    text = files("attsvm.pages").joinpath("glossary.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for entry in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        names, _, definition = entry.partition("\n")
        if definition.strip():
            plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", " ".join(definition.split()))
            found |= dict.fromkeys(names.split(", "), plain)
    return found


def mentions(text: str, known: set[str]) -> Iterator[tuple[int, int, str]]:
    """The first mention of each term in a text: its begin, its end, and the term.

    ``known``: the terms that were mentioned before; they are left out, and those that are found are added.
    """
    for found in _pattern().finditer(text):
        term = _terms()[found[1].lower()]
        if term not in known:
            known.add(term)
            yield *found.span(), term


def with_terms(html: str) -> Markup:
    """The body of a page whose labels link to definitions of the terms in them, which follow it.

    Labels are the headings of sections and figures, and the names of numbers and tables.
    """
    known: set[str] = set()

    def linked(label: re.Match[str]) -> str:
        text, parts, last = label["text"], [], 0
        for begin, end, term in mentions(text, known):
            title = escape(_as_text(definitions()[term]))
            parts += [text[last:begin], f'<a class="term" href="#{_id(term)}" title="{title}">{text[begin:end]}</a>']
            last = end
        return f"{label[1]}{''.join(parts)}{text[last:]}{label[4]}"

    body = _LABEL.sub(linked, html)
    if not known:
        return Markup(body)
    entries = (
        f'<dt id="{_id(term)}">{escape(term[0].upper() + term[1:])}</dt>'
        f"<dd>{escape(_as_text(definitions()[term]))}</dd>"
        for term in sorted(known, key=str.lower)
    )
    return Markup(f'{body}\n<h2>Terms</h2>\n<dl class="terms">\n{"".join(entries)}\n</dl>\n')


@cache
def _terms() -> dict[str, str]:
    return {name.lower(): name for name in definitions() if name.lower() not in EVERYDAY}


@cache
def _pattern() -> re.Pattern[str]:
    longest_first = sorted(_terms(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})s?(?![\w-])", re.IGNORECASE)


def _id(term: str) -> str:
    return f"term-{slugs([term.lower()])[0]}"


def _as_text(definition: str) -> str:
    """A definition without the marks of Markdown and the numbers of sources."""
    return re.sub(r"\s*\[\d[^]]*\](,\s*\[\d[^]]*\])*", "", re.sub(r"[*`](\S(?:[^*`]*\S)?)[*`]", r"\1", definition))
