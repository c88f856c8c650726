"""Figures that are measured under cross-attention, and again under self-attention with the query z = x_1."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from matplotlib.figure import Figure as Drawing
from matplotlib.figure import SubFigure

from attsvm.papers.figure import Arrays, Figure, Piece, Row, Sizes, Verdict, verdict
from attsvm.plot import style

SETTINGS = {"cross": "cross-attention", "self": "self-attention, z = x₁"}

SELF = " self"
"""The end of the names of arrays of self-attention."""

TITLE = 0.25
"""Height of the title of a part, in inches."""


class Judged(NamedTuple):
    """The conditions of a criterion, as :func:`attsvm.papers.verdict` takes them, and a sentence of numbers."""

    passed: dict[str, Any]
    why: str


class CrossAndSelf(Figure):
    """A figure of two parts: each query is a vector of its own, or the first token of its sequence.

    ``sizes["queries"]`` says which of "cross" and "self" are measured, and maps each to the sizes in which it differs
    from the others. Arrays of self-attention have :data:`SELF` after their names.
    """

    @abstractmethod
    def measure_one(self, sizes: Sizes, self_attention: bool, piece: Piece) -> Arrays:
        """The arrays of one part."""

    @abstractmethod
    def judge_one(self, sizes: Sizes, found: Arrays) -> Judged:
        """The criterion of one part."""

    @abstractmethod
    def rows_one(self, sizes: Sizes, found: Arrays) -> Sequence[Row]:
        """The numbers of one part."""

    @abstractmethod
    def height(self, sizes: Sizes) -> float:
        """Of the drawing of one part, in inches."""

    @abstractmethod
    def draw_one(self, figure: Drawing | SubFigure, sizes: Sizes, found: Arrays) -> None:
        """Draw the part of one kind of queries."""

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        found: Arrays = {}
        for query in sizes["queries"]:
            own = self.measure_one(_sizes_of(sizes, query), query == "self", partial(_folder_piece, piece, query))
            found |= {f"{name}{SELF * (query == 'self')}": array for name, array in own.items()}
        return found

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        """All conditions of both parts."""
        passed: dict[str, Any] = {}
        reasons = []
        for query, own_sizes, own in parts(sizes, found):
            judged = self.judge_one(own_sizes, own)
            before = "" if query == "cross" else f"{SETTINGS[query]}: "
            passed |= {f"{before}{name}": fine for name, fine in judged.passed.items()}
            reasons.append(before[:1].upper() + before[1:] + judged.why)
        return verdict(passed, " ".join(reasons))

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        """Rows of both parts."""
        return [
            row if query == "cross" else row._replace(name=f"z = x₁, {row.name}")
            for query, own_sizes, own in parts(sizes, found)
            for row in self.rows_one(own_sizes, own)
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        """Both parts, one below the other."""
        each = list(parts(sizes, found))
        heights = [height for _, own_sizes, _ in each for height in (TITLE, self.height(own_sizes))]
        figure = Drawing(figsize=(style.WIDTH, sum(heights)))
        places = figure.add_gridspec(len(heights), 1, height_ratios=heights)
        for i, (query, own_sizes, own) in enumerate(each):
            # a place of its own, since a legend of the part may be above its axes
            title = figure.add_subfigure(places[2 * i, 0])
            title.text(0.5, 0.4, SETTINGS[query], ha="center", va="center", fontweight="bold")
            self.draw_one(figure.add_subfigure(places[2 * i + 1, 0]), own_sizes, own)
        return figure


def parts(sizes: Sizes, found: Arrays) -> Iterator[tuple[str, Sizes, Arrays]]:
    """The parts, with sizes and arrays of their own."""
    for query in sizes["queries"]:
        of_self = query == "self"
        own = {name.removesuffix(SELF): found[name] for name in sorted(found) if name.endswith(SELF) == of_self}
        yield query, _sizes_of(sizes, query), own


def _sizes_of(sizes: Sizes, query: str) -> Sizes:
    return {**sizes, **sizes["queries"][query]}


def _folder_piece(piece: Piece, query: str, name: str, *arguments: object) -> Arrays:
    return piece(name if query == "cross" else f"{query}-{name}", *arguments)
