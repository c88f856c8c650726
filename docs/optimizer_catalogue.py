"""A Sphinx extension: tables of the catalogue of optimisers, from the data file of the package, to search and sort."""

import html
from collections import Counter

from attsvm.profiles import catalogue
from attsvm.profiles.entries import BEST_KNOWN, OUT_OF_TIME

PAGE = "guide/optimizer_catalogue"
ALL, BEST = "<!-- the catalogue -->", "<!-- the best known optimisers -->"
"""What is replaced in a source by a table."""

COLUMNS = ("optimiser", "trained", "norm", "largest margin ratio", "cause", "why")


def tables(app, docname, source):
    """Replace the marks by the tables."""
    text = source[0]
    if ALL in text:
        text = text.replace(ALL, _searchable())
    if BEST in text:
        text = text.replace(BEST, _best())
    source[0] = text


def _searchable():
    """The table as HTML, with a field to search it, and the numbers that it is sorted by."""
    found = catalogue()
    head = "".join(f'<th scope="col"><button type="button">{name}</button></th>' for name in COLUMNS)
    rows = "".join(_row(entry) for entry in found.entries)
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return (
        f"{_count(found)} Versions: {versions}. Command: `{found.command}`.\n\n```{{raw}} html\n"
        '<p><label>Search <input type="search" id="catalogue-search" placeholder="adam, linf, K and Q"></label> '
        '<output id="catalogue-count"></output></p>\n'
        '<div class="pst-scrollable-table-container">'
        f'<table class="table" id="catalogue"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n```\n'
    )


def _count(found):
    of_w = [entry for entry in found.entries if entry.setting == "W"]
    run = [entry for entry in of_w if entry.ratio is not None]
    named, unfinished = sum(entry.is_named for entry in run), sum(entry.unfinished for entry in run)
    ended = sum(entry.reason.startswith(OUT_OF_TIME) for entry in run)
    unknown = Counter(entry.setting for entry in found.entries if entry.is_unknown)
    each = "; ".join(f"{unknown[name]} on {name}" for name in dict.fromkeys(entry.setting for entry in found.entries))
    return (
        f"{found.extent} On W, {len(run)} of {len(of_w)} entries could be run, and {named} have a norm; more steps "
        f"could change {unfinished} of the others. The time limit ended {ended} of them. Unknown are {each}."
    )


def _row(entry):
    cells = [entry.optimizer, entry.trained, entry.verdict, entry.interval, entry.cause, entry.reason]
    # a long name breaks before its arguments
    texts = [html.escape(cell).replace("(", "<wbr>(") for cell in cells]
    sorted_by = ["", "", "", f"{entry.ratio or 0:.4f}", "", ""]
    written = (
        f'<td data-value="{value}">{text}</td>' if value else f"<td>{text}</td>"
        for text, value in zip(texts, sorted_by, strict=True)
    )
    return f"<tr>{''.join(written)}</tr>"


def _best():
    """A table in Markdown of one line for each of the best known names, on W."""
    lines = ["| optimiser | norm on W | largest margin ratio |", "| --- | --- | --- |"]
    seen = set()
    for entry in catalogue().entries:
        name = entry.optimizer.rsplit(".", 1)[-1] if "(" not in entry.optimizer else entry.optimizer
        is_best = name.upper() in BEST_KNOWN or "(" in name
        if entry.setting == "W" and entry.ratio is not None and is_best and name.upper() not in seen:
            seen.add(name.upper())
            lines.append(f"| `{entry.optimizer}` | {entry.verdict} | {entry.interval} |")
    return "\n".join(lines) + "\n"


def add_script(app, pagename, templatename, context, doctree):
    """Load the script on the page of the catalogue only."""
    if pagename == PAGE:
        app.add_js_file("catalogue.js", loading_method="defer")


def setup(app):
    """Connect the functions above."""
    app.connect("source-read", tables)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True}
