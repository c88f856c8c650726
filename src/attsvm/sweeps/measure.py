"""The base class of the measures of a sweep."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from attsvm.errors import ProblemError
from attsvm.sweeps.block import Block
from attsvm.sweeps.description import described
from attsvm.sweeps.format import Output


class Measure(ABC):
    """A measurement of the trials of a block. A subclass sets ``name`` and ``outputs``, and provides :meth:`measure`.

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
        return {str(name): np.asarray(array) for name, array in found.items()}

    def described(self) -> Any:
        """Its name and its source."""
        return described(self.function, self.name)
