"""A Sphinx extension: the entries of the glossary are terms, and each page links its first mention of a term to them.

The source is plain Markdown with headings, which is readable without Sphinx, too.
"""

import re

from docutils import nodes
from sphinx import addnodes

from attsvm.pages.glossary import mentions

GLOSSARY = "glossary"
ELSEWHERE = (nodes.literal, nodes.literal_block, nodes.reference, nodes.title, nodes.math, nodes.raw, nodes.rubric)
ELSEWHERE += (addnodes.pending_xref, addnodes.desc_signature, nodes.field_name, nodes.comment, nodes.term)
"""Where a mention is not linked: code, formulas, links, titles."""


def as_terms(app, docname, source):
    """Make an entry of a Sphinx glossary of each heading of the third level."""
    if docname == GLOSSARY:
        entry = re.compile(r"^### (.*)\n\n((?:(?!#).*\n?)+)", re.MULTILINE)
        source[0] = entry.sub(_entry, source[0])


def _entry(match):
    names = match[1].replace(", ", "\n")
    definition = "".join(f"  {line}\n" for line in match[2].strip().splitlines())
    return f"```{{glossary}}\n{names}\n{definition}```\n\n"


def link_mentions(app, doctree):
    """Link the first mention of each term on a page to its definition."""
    docname = app.env.docname
    if docname == GLOSSARY:
        return
    known = set()
    for node in list(doctree.findall(nodes.Text)):
        if any(isinstance(parent, ELSEWHERE) for parent in _parents(node)):
            continue
        text, parts, last = node.astext(), [], 0
        for begin, end, term in mentions(text, known):
            parts += [nodes.Text(text[last:begin]), _reference(text[begin:end], term, docname)]
            last = end
        if parts:
            node.parent.replace(node, [*parts, nodes.Text(text[last:])])


def _parents(node):
    while (node := node.parent) is not None:
        yield node


def _reference(words, term, docname):
    shown = nodes.inline("", words, classes=["xref", "std", "std-term"])
    return addnodes.pending_xref(
        "", shown, refdomain="std", reftype="term", reftarget=term, refdoc=docname, refexplicit=True, refwarn=True
    )


def setup(app):
    """Connect the functions above."""
    app.connect("source-read", as_terms)
    app.connect("doctree-read", link_mentions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
