"""A result as a page, and its three views: on the terminal, as JSON and as HTML."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import lazy_loader
from markupsafe import Markup

from attsvm.pages.folder import write_files
from attsvm.pages.plain import dumps
from attsvm.pages.words import split_interval

# a command that prints its result neither draws nor writes HTML, and one that writes JSON prints no tables
html = lazy_loader.load("attsvm.pages.html", suppress_warning=True)
terminal = lazy_loader.load("attsvm.pages.terminal", suppress_warning=True)


class Card(NamedTuple):
    """A leading number: its name, the number as text, and the small print below it."""

    name: str
    value: str
    small: str

    @classmethod
    def share(cls, name: str, share: str, what: str = "") -> "Card":
        """The card of a share of :func:`attsvm.pages.words.rate`, whose interval is in the small print."""
        value, interval = split_interval(share)
        return cls(name, value, "; ".join(filter(None, (interval, what))))


@dataclass(frozen=True)
class Cards:
    """The leading numbers."""

    shape: ClassVar[str] = "cards"
    cards: Sequence[Card]


@dataclass(frozen=True)
class Heading:
    """The title of a section, or of a part of one."""

    shape: ClassVar[str] = "heading"
    title: str
    level: int = 2
    id: str = ""
    entry: str = ""  # what the table of contents calls it, if it lists it


@dataclass(frozen=True)
class Text:
    """A paragraph, whose citations are links."""

    shape: ClassVar[str] = "text"
    text: str
    kind: str = "lead"  # its class in the style sheet


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first of which names the row. Without names of columns it is one of names and values."""

    shape: ClassVar[str] = "table"
    rows: Sequence[Sequence[str]]
    columns: Sequence[str] = ()
    title: str = ""
    kind: str = ""  # its class in the style sheet
    # the terminal aligns the columns after the first so many to the right, and calls the rows that it leaves out so
    words: int = 1
    more: str = "rows"

    @classmethod
    def named(cls, tables: "Iterable[tuple[str, Sequence[Sequence[str]]]]") -> "list[Table]":
        """Make tables of names and values, from their titles and rows."""
        return [cls(rows, title=title) for title, rows in tables]


@dataclass(frozen=True)
class Tables:
    """Tables side by side, as far as the page is wide enough."""

    shape: ClassVar[str] = "tables"
    tables: Sequence[Table]


class Shown(NamedTuple):
    """A figure as a page shows it."""

    name: str  # that of its file without the suffix, and the begin of its ids: a slug
    title: str
    caption: str
    svg: Markup  # empty if the figure could not be drawn; the caption says why
    png: bytes | None


@dataclass(frozen=True)
class Figures:
    """Drawn figures in their order."""

    shape: ClassVar[str] = "figures"
    shown: Sequence[Shown]
    wide: Sequence[str] = ()  # names of those of full width
    most: str = ""  # the largest width of a drawing of full width, as in CSS
    listed: bool = False  # whether the table of contents lists them
    kind: str = ""  # its class in the style sheet


@dataclass(frozen=True)
class SpecialPart:
    """A part that only one or two kinds of pages have; ``page.html.j2`` says which values a shape has."""

    shape: str
    values: Mapping[str, Any]
    entries: Sequence[tuple[str, str]] = ()  # ids and titles of what it puts into the table of contents

    def __getattr__(self, name: str) -> Any:
        """The value of this name."""
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Details:
    """Parts that open below a summary."""

    shape: ClassVar[str] = "details"
    summary: str
    parts: "Sequence[AnyPart]"
    open: bool = False
    kind: str = "more"  # its class in the style sheet


AnyPart = Cards | Heading | Text | Table | Tables | Figures | SpecialPart | Details


@dataclass(frozen=True)
class Page:
    """A result in words and numbers: :meth:`show` prints it, :meth:`files` has it as HTML and as JSON."""

    numbers: dict[str, Any]  # ``result.json``, of :class:`attsvm.pages.schemas.model.CommandResult`
    title: str = ""
    kicker: str = ""  # the line above the title
    verdict: str = ""  # the result in a few sentences
    # what follows on the HTML page, for which figures are drawn when it is called; () of what only the terminal shows
    body: Callable[[], Iterable[AnyPart]] = tuple
    notes: Sequence[str] = ()  # what a reader must know before the numbers
    terminal: Sequence[Table | str] = ()  # tables and remarks before the verdict on the terminal
    made_by: str = ""  # the seed or the data, below every figure
    kept: tuple[str, str] | None = None  # what else the folder holds, and its file or folder
    origin: Mapping[str, Any] | None = None  # version, seed and hash of what is shown, if not those of the numbers
    others: Mapping[str, Callable[[Path], object]] = field(default_factory=dict)  # what saves other files, by name
    footer: str = ""  # a last line, with citations
    is_wide: bool = False  # whether its tables have a wide line in a file or a pipe
    reloads: bool = False  # whether the page loads again every few seconds

    def show(self, as_json: bool = False) -> None:
        """Print the result on stdout: as JSON, or as its tables, its verdict and its notes."""
        if as_json:
            print(self.json(), end="")
        else:
            terminal.show(self)

    def json(self) -> str:
        """Return the text of ``result.json``."""
        return dumps(self.numbers) + "\n"

    def html(self) -> str:
        """Return the text of ``index.html``."""
        return str(html.render(self, [*self.body()]))

    def files(self) -> dict[str, bytes]:
        """``result.json``, ``figures/*.png`` and ``index.html``, by their names.

        The result is first: it is what cannot be made again.
        """
        parts = [*self.body()]
        drawn = [one for part in parts if isinstance(part, Figures) for one in part.shown]
        files = {"result.json": self.json().encode()}
        files |= {f"figures/{one.name}.png": one.png for one in drawn if one.png is not None}
        return {**files, "index.html": html.render(self, parts).encode()}

    def write(self, folder: Path) -> None:
        """Write the files into an existing folder, each completely or not at all."""
        write_files(folder, self.files())
        for name, save in self.others.items():
            save(folder / name)
