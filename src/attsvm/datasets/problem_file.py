"""Problem files: a user's own arrays."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from attsvm._utils.archives import read_arrays
from attsvm.datasets.source import SOURCES, Source, option
from attsvm.datasets.splits import check_labelled
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.problem.problem import problem_of_file


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
        classes = self._classes(read_arrays(self.path, Problem.kind))
        if classes is None or np.array_equal(classes, [-1, 1]):
            return None
        negative, positive = (str(label) if classes.dtype.kind in "Ub" else f"{label:.12g}" for label in classes)
        return positive, negative

    def _classes(self, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
        """The two different labels in increasing order; None for what :class:`attsvm.Problem` reads or refuses."""
        classes = np.unique(arrays.get("labels", np.zeros(0)))
        if classes.dtype.kind == "U" and len(classes) != 2:
            found = ", ".join(classes[:5]) + ", ..." * (len(classes) > 5)
            raise ProblemError(f"{self.path}: labels: expected two different labels, got {len(classes)} ({found})")
        # a head with a row for each class has class numbers
        if len(classes) != 2 or ("head" in arrays and arrays["head"].ndim > 1):
            return None
        return classes if classes.dtype.kind == "U" or np.isfinite(classes).all() else None


SOURCES.register(ProblemFile.name, ProblemFile)
