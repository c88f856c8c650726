"""The terminal view of a page, and tables for the terminal."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import lazy_loader

from attsvm._utils.text import visible

if TYPE_CHECKING:
    from attsvm.pages import page as model

# commands import this module, and their help needs no tables
box, console, rich_text, table = (
    lazy_loader.load(f"rich.{name}", suppress_warning=True) for name in ("box", "console", "text", "table")
)

MOST_ROWS = 60
"""Most rows of a table."""

SEVERAL = 6
"""With more columns there is one space between them."""

WIDE = 160
"""Columns of a file or a pipe, in which names need not be folded."""


def plain(text: str, style: str = "") -> Any:
    """A text for rich, in which nothing is markup, an emoji or a control character."""
    return rich_text.Text(visible(text), style)


def cell(text: str, style: str = "") -> Any:
    """A text for a cell of a table: ends of lines and tabs are escapes, since they would break the row."""
    return plain(text.translate({9: r"\t", 10: r"\n"}), style)


def show(page: "model.Page") -> None:
    """Print the tables and remarks of a page, then its verdict and its notes, which stay in view."""
    terminal = console.Console()
    if page.is_wide and not terminal.is_terminal:
        terminal.width = WIDE
    for pairs, parts in groupby(page.terminal, key=lambda one: not isinstance(one, str) and not one.columns):
        if pairs:
            terminal.print(grouped_table([(one.title, one.rows) for one in parts if not isinstance(one, str)]))
            continue
        for one in parts:
            if isinstance(one, str):
                # in a file or a pipe a line stays whole, as a program that reads it expects
                terminal.print(plain(one), soft_wrap=not terminal.is_terminal)
                continue
            terminal.print(columns_table(one))
            if len(one.rows) > MOST_ROWS:
                more = f"{len(one.rows) - MOST_ROWS:,} more {one.more}"
                terminal.print(plain(f"{more}; --out writes all of them."))
    if page.verdict:
        terminal.print(plain(page.verdict))
    for note in page.notes:
        terminal.print(plain(note, "bold yellow"))


def columns_table(one: "model.Table") -> Any:
    """A table with a title for each column; its first rows."""
    options: dict[str, Any] = {"title": cell(one.title, "table.title"), "title_justify": "left"} if one.title else {}
    options |= {"padding": (0, 1, 0, 0)} if len(one.columns) > SEVERAL else {"pad_edge": False}
    made = table.Table(box=box.SIMPLE_HEAD, **options)
    for place, title in enumerate(one.columns):
        # a name that is cut may look like another one
        made.add_column(cell(title), justify="left" if place < one.words else "right", overflow="fold")
    for row in one.rows[:MOST_ROWS]:
        made.add_row(*map(cell, row))
    return made


def grouped_table(tables: Iterable[tuple[str, Sequence[Sequence[str]]]]) -> Any:
    """Several tables of names and values, each with a title, as one table."""
    made = table.Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    made.add_column(no_wrap=True)
    made.add_column()
    for name, rows in tables:
        if name:
            made.add_row(cell(name, "bold"), "")
        for left, right in rows:
            made.add_row(cell(f"  {left}" if name else left), cell(right))
        made.add_section()
    return made
