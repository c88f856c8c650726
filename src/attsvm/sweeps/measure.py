"""Measures of a sweep and their outputs."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from attsvm._utils.text import visible
from attsvm.errors import ProblemError
from attsvm.sweeps.block import Block
from attsvm.sweeps.description import described

MISSING = -1
"""The code of a missing value in an output of codes or counts."""

MOST_CODES = 127
"""The most codes of an output: they are stored in int8."""

YES_NO = ("no", "yes")
"""The codes of an output that is True or False."""


@dataclass(frozen=True)
class Output:
    """One output of a measure, and how it is stored.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Parameters
    ----------
    long_name : str
        For labels of axes.
    units : str
    codes : tuple of str
        The meanings of the codes 0, 1, ...; the output is then stored as int8.
    count : bool
        Whether it is a count, stored as int32.
    axes : mapping of str to sequence
        The output's own axes and their coordinates, behind the axis of trials.
    partial : bool
        Whether only some trials have a value by definition, so that a missing one is no reason for a warning.

    See Also
    --------
    attsvm.sweeps.Measure

    Examples
    --------
    >>> from attsvm.sweeps import Output
    >>> Output("kind of convergence", codes=("global", "local")).codes
    ('global', 'local')
    """

    long_name: str = ""
    units: str = ""
    codes: tuple[str, ...] = ()
    count: bool = False
    axes: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False

    def __post_init__(self) -> None:
        if len(self.codes) > MOST_CODES or any(code != "".join(code.split()) for code in self.codes):
            raise ProblemError(f"codes: expected at most {MOST_CODES} names without spaces, got {self.codes}")

    def stored(self, name: str, array: np.ndarray) -> np.ndarray:
        """An array as it is stored; NaN is missing.

        Raises
        ------
        ProblemError
            If a code or a count is no integer, or out of its range.
        """
        if not (self.codes or self.count):
            return np.asarray(array).astype(self.dtype)
        values = np.asarray(array).astype(float)
        values = np.where(np.isnan(values), MISSING, values)
        most = len(self.codes) - 1 if self.codes else np.iinfo(self.dtype).max
        bad = (values != np.round(values)) | (values < MISSING) | (values > most)
        if bad.any():
            raise ProblemError(f"{name}: expected integers from {MISSING} to {most}, got {values[bad][0]:g}")
        return values.astype(self.dtype)

    @property
    def dtype(self) -> str:
        """The type that is stored."""
        return "int8" if self.codes else "int32" if self.count else "float64"

    @property
    def missing(self) -> float:
        """The value of a trial that was not measured."""
        return MISSING if self.codes or self.count else np.nan

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of the stored variable."""
        found: dict[str, Any] = {"long_name": self.long_name or name.replace("_", " "), "units": self.units}
        found["interval"] = "wilson" if self.codes else "bootstrap"
        if self.codes or self.count:
            found["missing"] = MISSING
        if self.partial:
            found["partial"] = True
        return found | ({"flag_meanings": " ".join(self.codes)} if self.codes else {})


def check_names(names: Iterable[str]) -> None:
    """Refuse names of outputs, of their axes and of the grid that would overwrite each other or be lost in a store.

    Raises ProblemError if a name occurs twice, is one that every store has, or is no name of a folder of an array.
    """
    counted = Counter([*names, "trial", "done"])
    for name in counted:
        if "/" in name or visible(name) != name or name.startswith("__") or not name.strip("."):
            raise ProblemError(f"measures: expected names of outputs that are valid names of folders, got {name!r}")
    twice = [name for name, number in counted.items() if number > 1]
    if twice:
        raise ProblemError(f"measures: expected outputs with different names, got {', '.join(twice)}")


def undeclared(array: np.ndarray) -> Output:
    """The output of a function: yes or no for booleans, and for what is stored of them; else numbers."""
    return Output(codes=YES_NO) if array.dtype in (np.bool_, np.int8) else Output()


class Measure(ABC):
    """A measurement of the trials of a block. A subclass sets ``name`` and ``outputs``, and provides :meth:`measure`.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    A measure with arguments, as ``margin_ratio=l1,nuclear``, is a frozen dataclass and provides :meth:`from_text`.

    See Also
    --------
    attsvm.sweeps.MEASURES, attsvm.sweeps.Output

    Examples
    --------
    >>> from attsvm.sweeps import MEASURES, Measure
    >>> measure = MEASURES["feasible"]
    >>> issubclass(measure, Measure), measure.name
    (True, 'feasible')
    """

    name: str
    outputs: ClassVar[Mapping[str, Output]] = {}
    several_heads: ClassVar[bool] = False
    """Whether it has one value for a trial with several attention heads, too."""

    def declared(self) -> Mapping[str, Output]:
        """The outputs, with their axes."""
        return self.outputs

    @abstractmethod
    def measure(self, block: Block) -> dict[str, np.ndarray]:
        """Measure the trials of a block.

        What is computed from the block on first use is kept for other measures.

        Returns
        -------
        dict of str to ndarray
            An array (trials, ...) for each output.
        """

    def described(self) -> Any:
        """The measure as JSON, for the hash of a sweep."""
        return [self.name, described(type(self)), described(vars(self), self.name)]

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Make the measure from the text behind ``NAME=``.

        Raises
        ------
        ProblemError
            If it takes no arguments.
        """
        raise ProblemError(f"{cls.name}: expected no arguments, got {text!r}")


class OfFunction(Measure):
    """A function (problem, run) -> dict of arrays with one number, or True or False, for each trial."""

    several_heads = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.name = function, getattr(function, "__name__", "function")

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        found = self.function(block.problem, block.run)
        if not isinstance(found, dict):
            raise ProblemError(f"{self.name}: expected a dict of arrays, got {type(found).__name__}")
        check_names(map(str, found))
        return {str(name): np.asarray(array) for name, array in found.items()}

    def described(self) -> Any:
        """Describe its name and its source."""
        return described(self.function, self.name)
