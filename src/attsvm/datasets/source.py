"""The base class of data sources of ``attsvm fit``, and how they are found by name."""

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from attsvm._utils.checks import check_kind
from attsvm._utils.extensions import Registry, did_you_mean, kind_check
from attsvm._utils.files import is_table_file
from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError
from attsvm.problem import Problem

_READ, _HELP = "attsvm.read", "attsvm.help"


class Pictures(NamedTuple):
    """Sequences as pictures.

    Attributes
    ----------
    brightness : ndarray, shape (n, height, width)
        In [0, 1].
    regions : int ndarray, shape (T, 4)
        The part of a picture that each token covers: its top row, left column, height and width.

    See Also
    --------
    attsvm.datasets.Source

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.datasets import Pictures
    >>> halves = [[0, 0, 4, 8], [4, 0, 4, 8]]
    >>> Pictures(np.zeros((10, 8, 8)), np.array(halves)).regions.shape
    (2, 4)
    """

    brightness: Float[np.ndarray, "n height width"]
    regions: Int[np.ndarray, "T 4"]


class Drawing(NamedTuple):
    """The data of a source, for one seed.

    Attributes
    ----------
    problem : Problem
    test_rows : int ndarray or None
        The sequences to test on, where the source itself separates them from the training sequences.
    relevant : int ndarray, shape (n,), or None
        The token of each sequence that decides its label, where the source knows it.

    See Also
    --------
    attsvm.datasets.Source

    Examples
    --------
    >>> import attsvm
    >>> drawing = attsvm.datasets.find_source("digits").drawing(seed=0)
    >>> drawing.problem.num_tokens, drawing.relevant is None
    (9, False)
    """

    problem: Problem
    test_rows: Int[np.ndarray, " n_test"] | None = None
    relevant: Int[np.ndarray, " n"] | None = None


class Source(ABC):
    """A source from which ``attsvm fit`` reads a labelled problem.

    A subclass sets ``name`` and ``summary``, and provides :meth:`load`. If it has options, it is a frozen dataclass
    whose fields are declared by :func:`option`. A subclass that reads files sets ``suffixes`` and has a field ``path``.

    Attributes
    ----------
    name : str
        The name on the command line.
    summary : str
        One line for the help.
    suffixes : tuple of str
        Endings of the files that the source reads, in lower case and with the dot.

    See Also
    --------
    attsvm.datasets.option : Declares an option.
    attsvm.datasets.find_source
    attsvm.datasets.SOURCES

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import attsvm
    >>> @dataclass(frozen=True)
    ... class Gaussians(attsvm.datasets.Source):
    ...     name = "gaussians"
    ...     summary = "random tokens"
    ...     def load(self):
    ...         return attsvm.datasets.random_problem(3, 4, 5)
    >>> Gaussians().load().num_sequences
    3
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    draws: ClassVar[int] = 1

    @abstractmethod
    def load(self) -> Problem:
        """Read the problem.

        Returns
        -------
        Problem
            With labels ±1, a head of shape (d,) or none, and no batch axes.

        Raises
        ------
        ProblemError
            If the data cannot be read, or an option is not valid.
        """

    def drawing(self, seed: int = 0, test_fraction: float = 0.25) -> Drawing:
        """The data for a seed; by default the loaded problem, the same for every seed.

        Parameters
        ----------
        seed : int
        test_fraction : float
            Share that is set apart for testing, if the source itself makes the test sequences.
        """
        problem = self.load()
        check_kind(f"source: {self.name}.load", problem, Problem, "attsvm.Problem(X, labels=y)")
        return Drawing(problem)

    def title(self) -> str:
        """The beginning of the title of the page."""
        return self.name

    def label_names(self) -> tuple[Any, Any] | None:
        """Names of the labels +1 and −1; None if the labels have no names."""
        return None

    def pictures(self, tokens: Float[np.ndarray, "n T d"]) -> Pictures | None:
        """The pictures that sequences were made from; None if they are not pictures.

        Parameters
        ----------
        tokens : ndarray, shape (n, T, d)
            Some of the sequences of the loaded problem.
        """
        return None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Make the source from options in the form of the command line.

        Parameters
        ----------
        options : mapping of str to str
            Values by the name of the field.

        Raises
        ------
        ProblemError
            If the source has no such option, an option is missing, or a value cannot be read.
        """
        known = {field.name: field for field in _options(cls)}
        for name in options:
            if name not in known:
                expected = f"one of the options {', '.join(known)}" if known else "no option"
                raise ProblemError(f"{cls.name}: expected {expected}, got {name!r}{did_you_mean(name, known)}")
        for name, field in known.items():
            if name not in options and field.default is dataclasses.MISSING:
                raise ProblemError(f"{cls.name}: expected a value for the option {name!r}")
        return cls(**{name: _read(known[name], text) for name, text in options.items()})


def option(*default: Any, read: Callable[[str], Any] = str, help: str = "") -> Any:
    """Declare an option of a :class:`Source`: a dataclass field that the command line sets.

    Parameters
    ----------
    default
        The value if the option is not given. Without it the option is required.
    read : callable
        From the text on the command line to the value; raises ValueError or ProblemError if it cannot.
    help : str
        One line for the help.

    See Also
    --------
    attsvm.datasets.Source

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import attsvm
    >>> from attsvm.datasets import Source, option
    >>> @dataclass(frozen=True)
    ... class Gaussians(Source):
    ...     name = "gaussians"
    ...     summary = "random tokens"
    ...     number: int = option(3, read=int, help="number of sequences")
    ...     def load(self):
    ...         return attsvm.datasets.random_problem(self.number, 4, 5)
    >>> Gaussians(number=7).load().num_sequences
    7
    """
    given = {"default": default[0]} if default else {}
    return dataclasses.field(metadata={_READ: read, _HELP: help}, **given)


SOURCES: Registry[type[Source] | Source] = Registry(
    "source", group="attsvm.datasets", package="attsvm.datasets", check=kind_check(Source)
)


def find_source(source: "str | os.PathLike[str] | Source", options: Mapping[str, str] | None = None) -> Source:
    """Find a data source by name, file or import path.

    Parameters
    ----------
    source : str, path or Source
        A registered name ("digits"), a file with an ending that a registered source reads ("problem.npz"), an import
        path ``package.module:name``, or a source, which is returned as it is.
    options : mapping of str to str, optional
        Options of the source, as they are written on the command line.

    Returns
    -------
    Source

    Raises
    ------
    ProblemError
        If there is no such source, or an option is not valid.

    See Also
    --------
    attsvm.datasets.Source, attsvm.datasets.SOURCES

    Examples
    --------
    >>> from attsvm.datasets import find_source
    >>> problem = find_source("digits", {"classes": "4,9"}).load()
    >>> problem.tokens.shape
    (2000, 9, 64)
    """
    given = dict(options or {})
    if isinstance(source, Source):
        return _configured(source, given)
    found, implied = _found(os.fspath(source))
    return _configured(found, {**implied, **given})


def source_help(text: str | None = None) -> str:
    """A Markdown list of all known sources, or of one source and its options.

    Raises ProblemError if there is no such source.
    """
    if text is None:
        return "\n".join(_summary(name, source) for name, source in SOURCES.items())
    source, implied = _found(text)
    kind = source if isinstance(source, type) else type(source)
    options = [each for each in _options(kind) if each.name not in implied]
    return "\n".join(
        [_summary(text, source), *(f"    - `{each.name}`: {each.metadata.get(_HELP, '')}" for each in options)]
    )


def _summary(name: str, source: type[Source] | Source) -> str:
    spelling = " or ".join(f"a file `{suffix}`" for suffix in source.suffixes) or f"`{name}`"
    return f"- {spelling}: {source.summary}"


def _found(text: str) -> tuple[type[Source] | Source, dict[str, str]]:
    """A source by name, file or import path, and the options that this implies."""
    suffix = Path(text).suffix.lower()
    if text not in SOURCES and suffix:
        for known in SOURCES:
            if suffix in known.suffixes:
                return known, {"path": text}
    if text not in SOURCES and ":" not in text:
        raise ProblemError(f"source: expected {_expected()}, got {text!r}{_hint(text)}")
    return SOURCES.find(text), {}


def _configured(source: type[Source] | Source, options: Mapping[str, str]) -> Source:
    if isinstance(source, type):
        return source.from_options(options)
    if options:
        raise ProblemError(f"{source.name}: expected no options for a source object, got {min(options)!r}")
    return source


def _options(kind: type[Source]) -> "tuple[dataclasses.Field[Any], ...]":
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def _read(field: "dataclasses.Field[Any]", text: str) -> Any:
    try:
        return field.metadata.get(_READ, str)(text)
    except ValueError as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(f"{field.name}: expected {field.metadata.get(_HELP)}, got {text!r}") from None


def _expected() -> str:
    endings = [f"a file {suffix}" for source in SOURCES for suffix in source.suffixes]
    return ", ".join([*SOURCES.names(), *endings, "or package.module:name"])


def _hint(text: str) -> str:
    """Suggest the source that a text may mean; the end of an error message."""
    if is_table_file(text):
        return (
            "; for labelled texts use attsvm fit-text, for a table with one row per token attsvm fit --bag COLUMN "
            "--label COLUMN"
        )
    if Path(text).suffix.lower() == ".npy":
        return "; numpy.savez('problem.npz', tokens=X, labels=y) writes such a file .npz"
    files = [text + suffix for source in SOURCES for suffix in source.suffixes if Path(text + suffix).is_file()]
    return f"; did you mean {files[0]}?" if files else did_you_mean(text, SOURCES.names())
