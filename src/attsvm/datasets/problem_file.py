"""Problem files: a user's own arrays."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from attsvm._utils.archives import read_arrays
from attsvm._utils.labels import label_names, two_classes
from attsvm.datasets.source import SOURCES, Source, option
from attsvm.problem import Problem, check_labelled, problem_of_file


@dataclass(frozen=True)
class ProblemFile(Source):
    """The source ``npz``: an ``.npz`` file whose names are the arguments of :class:`attsvm.Problem`.

    Labels may also be two other numbers, such as 0 and 1, or two words; the last one in their order counts as +1.
    """

    name: ClassVar[str] = "npz"
    summary: ClassVar[str] = "your own arrays, under the names of the arguments of `attsvm.Problem`"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    path: str = option(help="the file")

    def load(self) -> Problem:
        """Read the file.

        Raises ProblemError if the file holds no problem (see :meth:`attsvm.Problem.load`), or one without labels of two
        classes or with batch axes.
        """
        arrays = read_arrays(self.path, Problem.kind)
        classes = self._classes(arrays)
        if classes is not None:
            arrays["labels"] = np.where(arrays["labels"] == classes[1], 1.0, -1.0)
        problem = problem_of_file(self.path, arrays)
        check_labelled(problem, self.path)
        return problem

    def title(self) -> str:
        """The name of the file."""
        return Path(self.path).name

    def label_names(self) -> tuple[str, str] | None:
        """The labels that count as +1 and −1; None if they are ±1."""
        return label_names(self._classes(read_arrays(self.path, Problem.kind)))

    def _classes(self, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
        """The two different labels in increasing order; None for what :class:`attsvm.Problem` reads or refuses."""
        if "labels" not in arrays or ("head" in arrays and arrays["head"].ndim > 1):
            return None  # a head with a row for each class has class numbers
        return two_classes(arrays["labels"], f"{self.path}: labels")


SOURCES.register(ProblemFile.name, ProblemFile)
