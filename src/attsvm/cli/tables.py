"""Tables for the terminal."""

from collections.abc import Container, Iterable, Sequence
from typing import Any


def columns_table(
    titles: Iterable[str], rows: Iterable[Sequence[str]], *, right: Container[str] = (), **options: Any
) -> Any:
    """A table with a title for each column.

    ``right``: the titles of the columns that are aligned to the right. ``options``: of ``rich.table.Table``.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, **{"pad_edge": False, **options})
    for title in titles:
        # a name that is cut may look like another one
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def pairs_table(rows: Iterable[tuple[str, str]]) -> Any:
    """A table of names and values."""
    return columns_table(("", ""), rows, show_header=False)


def grouped_table(tables: Iterable[tuple[str, list[tuple[str, str]]]]) -> Any:
    """Several tables of names and values, each with a title, as one table."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, rows in tables:
        table.add_row(f"[bold]{name}[/bold]", "")
        for left, right in rows:
            table.add_row(f"  {left}", right)
        table.add_section()
    return table
