"""Problem files: a user's own arrays."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from attsvm.datasets.arrays import check_labelled
from attsvm.datasets.source import SOURCES, Source, option
from attsvm.problem import Problem


@dataclass(frozen=True)
class ProblemFile(Source):
    """The source ``npz``: an ``.npz`` file whose names are the arguments of :class:`attsvm.Problem`."""

    name: ClassVar[str] = "npz"
    summary: ClassVar[str] = "your own arrays, under the names of the arguments of `attsvm.Problem`"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    path: str = option(help="the file")

    def load(self) -> Problem:
        """Read the file.

        Raises
        ------
        ProblemError
            If the file holds no problem (see :meth:`attsvm.Problem.load`), or one without labels ±1 or with batch axes.
        """
        problem = Problem.load(self.path)
        check_labelled(problem, self.path)
        return problem

    def title(self) -> str:
        """The name of the file."""
        return Path(self.path).name


SOURCES.register(ProblemFile.name, ProblemFile)
