"""The trials that are computed together: what is drawn, the run and the Att-SVMs, each computed on first use."""

from functools import cached_property
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm
from attsvm.sweeps.arguments import Arguments
from attsvm.sweeps.format import Drawn
from attsvm.sweeps.runs import Trained, train_until_decided
from attsvm.sweeps.starts import start
from attsvm.theory.feasibility import is_feasible
from attsvm.theory.standing import norm_for
from attsvm.training import Run


class Block:
    """A batch of trials of one cell. Nothing is trained or solved unless a measure uses it.

    Parameters
    ----------
    drawn : Drawn
    arguments : Arguments
        Those of the cell.
    generators : list of Generator
        One for each trial. They have drawn the problem, and draw the initial weights next.
    seed : int
        Of the mini-batches.
    budget : int
        The largest number of steps of a trial that is undecided before.
    """

    def __init__(
        self,
        drawn: Drawn,
        arguments: Arguments,
        generators: list[np.random.Generator],
        seed: int = 0,
        budget: int = 0,
    ) -> None:
        self.drawn, self.arguments = drawn, arguments
        self._generators, self._seed, self._budget = generators, seed, budget
        self._solutions: dict[tuple[str, bool], Solution] = {}

    @property
    def problem(self) -> Problem:
        """The problems, with one batch axis."""
        return self.drawn.problem

    @property
    def test(self) -> Problem | None:
        """Test data, if the source draws any."""
        return self.drawn.test

    @cached_property
    def trained(self) -> Trained:
        """The run, and the steps at which its trials were decided."""
        arguments = self.arguments.of_train()
        arguments["init"] = start(self.problem, arguments, self._generators)
        return train_until_decided(self.problem, arguments, self._seed, self._budget)

    @property
    def run(self) -> Run:
        """The training run of the block."""
        return self.trained.run

    @cached_property
    def optimal(self) -> np.ndarray:
        """The optimal tokens."""
        return optimal_tokens(self.problem)

    @property
    def norm(self) -> Norm:
        """The norm of the Att-SVM that a run is compared with: the argument ``norm``, or that of the run."""
        return norm_for(self.run, self.arguments.svm.get("norm"))

    def solution(self, norm: str | Norm | None = None) -> Solution:
        """The Att-SVMs of the tokens that the run selects, by default in the norm of :attr:`norm`."""
        return self._solved(self.norm if norm is None else parse_norm(norm), of_run=True)

    def optimal_solution(self) -> Solution:
        """The Att-SVMs of the optimal tokens. No run is needed."""
        return self._solved(parse_norm(self.arguments.svm.get("norm", "frobenius")), of_run=False)

    def _solved(self, norm: Norm, of_run: bool) -> Solution:
        key = repr(norm), of_run
        if key not in self._solutions:
            options = {name: value for name, value in self.arguments.svm.items() if name != "norm"}
            selected = self.run.selected if of_run else self.optimal
            self._solutions[key] = solve_svm(self.problem, selected, norm, **options)
        return self._solutions[key]


def where_feasible(solution: Solution, values: Any) -> np.ndarray:
    """The values of the trials whose Att-SVM has a solution, and NaN for the others."""
    return np.where(is_feasible(solution), values, np.nan)


def drawn_block(found: Any, width: int) -> Drawn:
    """What a source returned, checked.

    Raises
    ------
    ProblemError
        If it is neither a problem nor a :class:`Drawn`, or its batch axis is not that of the trials.
    """
    drawn = Drawn(found) if isinstance(found, Problem) else found
    if not isinstance(drawn, Drawn):
        raise ProblemError(f"data: expected a Problem or a Drawn, got {type(found).__name__}")
    if drawn.problem.model_shape != (width,):
        raise ProblemError(f"data: expected problems with the batch axes ({width},), got {drawn.problem.model_shape}")
    return drawn
