"""The base class of figures and tables: claim, sizes, measurement, and the criterion that judges it."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm._utils.text import slugs
from attsvm.errors import ProblemError

Sizes = Mapping[str, Any]
"""The sizes of a measurement: numbers, strings, and lists and dicts of them, as in JSON."""

Arrays = dict[str, np.ndarray]
"""The result of a measurement: NumPy arrays by name. Their shapes are the figure's choice."""

Piece = Callable[..., Arrays]
"""``piece(name, function, *arguments)``: what ``function(*arguments)`` returns, computed now or in an earlier run."""


class Paper(StrEnum):
    """The papers whose figures are built in, in the order of the page.

    See Also
    --------
    attsvm.papers.Figure
    """

    TOKEN_SELECTION = "Max-Margin Token Selection in Attention Mechanism (2306.13596)"
    TRANSFORMERS = "Transformers as Support Vector Machines (2308.16898)"
    MIRROR_DESCENT = "Optimizing Attention with Mirror Descent (2410.14581)"
    NEXT_TOKEN = "Mechanics of Next Token Prediction with Self-Attention (2403.08081)"
    OURS = "Not from a paper: claims of attsvm"


class Standing(StrEnum):
    """Whether the measured numbers meet the criterion of a claim.

    See Also
    --------
    attsvm.papers.verdict
    """

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"


class Verdict(NamedTuple):
    """Whether a claim holds, and a sentence that says why.

    See Also
    --------
    attsvm.papers.verdict : Makes one.

    Examples
    --------
    >>> from attsvm.papers import Standing, Verdict
    >>> Verdict(Standing.HOLDS, "All 20 runs end below 1e-3.").why
    'All 20 runs end below 1e-3.'
    """

    standing: Standing
    why: str


class Row(NamedTuple):
    """A measured number, and the published one if there is one.

    See Also
    --------
    attsvm.papers.Figure
    """

    name: str
    measured: str
    published: str = ""


class Figure(ABC):
    """A figure or table: a claim, how to measure it, and how to judge it. This is an extension point.

    A subclass sets the attributes below and defines :meth:`measure`, :meth:`judge`, :meth:`rows` and :meth:`draw`.
    A built-in figure is one file in ``attsvm/papers/figures/`` that ends with ``FIGURES.register``. A figure
    outside the package is run by ``attsvm reproduce package.module:NAME``, by an entry point of the group
    ``attsvm.figures``, or by :func:`attsvm.papers.run`.

    Attributes
    ----------
    name : str
        The name on the command line and of the files: lower-case letters, digits and hyphens.
    paper : str
        The heading under which the page shows it. Members of :class:`Paper` come first.
    order : float
        The place under that heading. Figures without one follow by name.
    title, claim, criterion : str
        A few words; what the figure shows; and what :meth:`judge` tests, in words.
    seconds : float, optional
        About how long the full run takes on two cores.
    full, quick : Mapping
        Sizes of the full run and of a quick one, with the same keys. Random numbers come from seeds in them.
    ascending, descending : tuple of str
        Sizes that are values along an axis. What the user gives is sorted, and each value is taken once.

    See Also
    --------
    attsvm.papers.FIGURES, attsvm.papers.run

    Examples
    --------
    >>> from attsvm.papers import FIGURES
    >>> figure = FIGURES.find("feasibility")
    >>> figure.name, sorted(figure.quick) == sorted(figure.full)
    ('feasibility', True)
    """

    name: str
    paper: str
    order: float = math.inf
    title: str
    claim: str
    criterion: str
    seconds: float | None = None
    full: ClassVar[Sizes]
    quick: ClassVar[Sizes]
    ascending: ClassVar[tuple[str, ...]] = ()
    descending: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        """Measure.

        Parameters
        ----------
        sizes : Mapping
            ``full`` or ``quick``.
        piece : callable
            ``piece(name, function, *arguments)`` returns the dict of arrays that ``function(*arguments)`` returns. It
            is kept in a file, and read from there in a later run if the arguments, the source and the versions are
            the same. The arguments are JSON-able; the function is defined at the top level of a module.

        Returns
        -------
        dict of ndarray, of any shapes
        """

    @abstractmethod
    def judge(self, sizes: Sizes, arrays: Arrays) -> Verdict:
        """Apply the criterion to the arrays of :meth:`measure`; :func:`verdict` makes the result."""

    @abstractmethod
    def rows(self, sizes: Sizes, arrays: Arrays) -> Sequence[Row]:
        """The numbers that the page shows in a table. It may be empty."""

    @abstractmethod
    def draw(self, sizes: Sizes, arrays: Arrays) -> Drawing:
        """A matplotlib figure, ``attsvm.plot.style.WIDTH`` inches wide."""


NEEDED = ("name", "paper", "title", "claim", "criterion", "full", "quick")


def checked_figure(found: object) -> Figure:
    """A complete figure: ``found`` itself, or an instance of it if it is a class.

    Raises ProblemError if it is no figure, or lacks a method or an attribute; the message names what is missing.
    """
    kind = found if isinstance(found, type) else type(found)
    if not issubclass(kind, Figure):
        raise ProblemError(f"expected a Figure, got {kind.__name__}")
    missing = [f"{name}()" for name in sorted(getattr(kind, "__abstractmethods__", ()))]
    missing += [name for name in NEEDED if not hasattr(found, name)]
    if missing:
        raise ProblemError(f"{kind.__name__}: expected a complete Figure, but it has no {', no '.join(missing)}")
    figure = found if isinstance(found, Figure) else kind()
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", figure.name) or figure.name == "all":
        raise ProblemError(f"name: expected lower-case letters, digits and hyphens, and not 'all', got {figure.name!r}")
    return figure


def place(figure: Figure) -> tuple[int, str, float, str]:
    """Sort key of the page and of ``--list``: the paper, then the order within it, then the name."""
    papers = [paper.value for paper in Paper]
    paper = str(figure.paper)
    return papers.index(paper) if paper in papers else len(papers), paper, figure.order, figure.name


def each(piece: Piece, names: Iterable[Any], function: Callable[..., Arrays], *arguments: Any) -> dict[str, Arrays]:
    """``function(name, *arguments)`` of each name, as a piece of its own, by the names as texts."""
    texts = {f"{name:g}" if isinstance(name, int | float) else name: name for name in names}
    pieces = zip(slugs(texts), texts.items(), strict=True)
    return {text: piece(file, function, name, *arguments) for file, (text, name) in pieces}


def joined(found: Mapping[str, Arrays]) -> Arrays:
    """The arrays of several pieces in one dict: array ``key`` of ``found[name]`` is ``"key name"``."""
    return {f"{key} {name}": array for name, arrays in found.items() for key, array in arrays.items()}


def stacked(found: Iterable[Arrays]) -> Arrays:
    """The arrays of several pieces of the same kind, stacked along a new first axis."""
    pieces = list(found)
    return {key: np.stack([np.asarray(arrays[key]) for arrays in pieces]) for key in pieces[0]}


def verdict(passed: Mapping[str, Any], why: str) -> Verdict:
    """The verdict of several conditions.

    Parameters
    ----------
    passed : Mapping of str to bool
        What goes wrong if the condition is False, and the condition, of Python or NumPy:
        ``{"a run is undecided": decided.all()}``.
    why : str
        A sentence with the numbers that decide.

    Returns
    -------
    Verdict
        "holds" if all conditions are True, "does not hold" if none is, else "holds in part". The sentence names the
        conditions that are False.

    See Also
    --------
    attsvm.papers.Verdict, attsvm.papers.Standing

    Examples
    --------
    >>> from attsvm.papers import verdict
    >>> found = verdict({"a run is undecided": True, "an error is above 1e-3": False}, "The largest error is 0.002.")
    >>> found.standing.value, found.why
    ('holds in part', 'The largest error is 0.002. Not as claimed: an error is above 1e-3.')
    """
    failed = [name for name, fine in passed.items() if not fine]
    if not failed:
        return Verdict(Standing.HOLDS, why)
    standing = Standing.FAILS if len(failed) == len(passed) else Standing.IN_PART
    return Verdict(standing, f"{why} Not as claimed: {'; '.join(failed)}.")
