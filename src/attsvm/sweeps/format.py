"""The format of a sweep's result, and the parts that sources and measures hand over.

A store is a folder::

    STORE/
      data.zarr/    a zarr group, which ``xarray.open_zarr`` reads
      sweep.json    the definition: version, command, seed, hash, trials, block, chunk; a random id of the store; the
                    checksums of the files that the store was created with, and of itself
      chunks/       one small file for each finished or failed chunk; that of a finished one has the checksums (CRC-32C)
                    of the files that were written for it
      lock          held by the client that runs

:func:`attsvm.sweeps.open_sweep` reads it as an ``xarray.Dataset``:

- Dimensions: one for each axis of the grid, in the order of the grid, then ``trial``, then the axes of a measure.
- Coordinates: the values of the grid (numbers, or strings), and those of the measures' own axes, with ``long_name`` and
  ``units``.
- Variables: the outputs of the measures. In float64, NaN means missing: not measured, failed or undefined. In int8 and
  int32, -1 means missing. ``flag_meanings`` names the codes 0, 1, ... of an output, divided by spaces; a yes-or-no
  output has "no yes". ``interval`` is "wilson" for shares of codes and "bootstrap" for numbers. ``partial`` is true
  where only some trials have a value by definition.
- ``done``: whether the chunk of a trial is committed. Use only these trials.
- Attributes: ``version``, ``command``, ``seed``, ``hash`` (SHA-256 of the definition), ``name``, ``trials``, ``block``,
  ``chunk``, ``device`` (empty if not known), ``definition`` (JSON) and ``errors``: a JSON list of ``{"cell", "trials",
  "attempts", "error", "traceback"}``, one for each failed chunk.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem

MISSING = -1
"""The code of a missing value in an output of codes or counts."""

MOST_CODES = 127
"""The most codes of an output: they are stored in int8."""

YES_NO = ("no", "yes")
"""The codes of an output that is True or False."""


@dataclass(frozen=True)
class Output:
    """What one output of a measure is, and how it is stored.

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
    """Refuse names of outputs, of their axes and of the grid that would overwrite each other in a store.

    Raises ProblemError if a name occurs twice, or is one that every store has.
    """
    counted = Counter([*names, "trial", "done"])
    twice = [name for name, number in counted.items() if number > 1]
    if twice:
        raise ProblemError(f"measures: expected outputs with names of their own, got {', '.join(twice)}")


def undeclared(array: np.ndarray) -> Output:
    """The output of a function: yes or no for booleans, and for what is stored of them; else numbers."""
    return Output(codes=YES_NO) if array.dtype in (np.bool_, np.int8) else Output()


@dataclass(frozen=True)
class Drawn:
    """What a data source draws for a block of trials.

    Parameters
    ----------
    problem : Problem
        With one batch axis, the trials.
    test : Problem, optional
        Test data, with the same batch axis.
    extras : mapping of str to ndarray
        Further arrays for measures, with the trials in front.
    unpadded : Problem, optional
        The problem without coordinates that are zero. Initial weights are drawn for it, and filled up with zeros.

    See Also
    --------
    attsvm.sweeps.SOURCES

    Examples
    --------
    >>> from attsvm.datasets import random_problem
    >>> from attsvm.sweeps import Drawn
    >>> Drawn(random_problem(3, 4, 5, batch=(8,))).problem.batch_shape
    (8,)
    """

    problem: Problem
    test: Problem | None = None
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    unpadded: Problem | None = None
