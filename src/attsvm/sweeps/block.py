"""The trials that are computed together: what is drawn, the run and the Att-SVMs, each computed on first use."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.optimizers import parse_optimizer
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm
from attsvm.sweeps.sources import Drawn
from attsvm.sweeps.training import first_decided, start, train_to_the_end
from attsvm.theory import norm_for, norms_at_any_length, trained_part
from attsvm.training import Run


@dataclass(frozen=True)
class Arguments:
    """The arguments of one cell, by what they are passed to."""

    data: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    svm: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Any] = field(default_factory=dict)

    def of_train(self) -> dict[str, Any]:
        """The arguments of ``train``, with the optimiser made from its options."""
        found = dict(self.train)
        optimizer = found.get("optimizer")
        if self.optimizer:
            found["optimizer"] = parse_optimizer(optimizer, **self.optimizer)
        return found


class Block:
    """A batch of trials of one cell. Nothing is trained or solved unless a measure uses it.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Parameters
    ----------
    drawn : Drawn
    arguments : Arguments
        Those of the cell.
    generators : list of Generator
        One for each trial. They have drawn the problem, and draw the initial weights next.
    seed : int
        Of the mini-batches.

    See Also
    --------
    attsvm.sweeps.Measure : Its ``measure`` receives one.

    Examples
    --------
    >>> import attsvm, tempfile
    >>> from attsvm.sweeps import Measure, Output
    >>> class Tokens(Measure):
    ...     name, outputs = "tokens", {"tokens": Output(count=True)}
    ...     def measure(self, block):
    ...         return {"tokens": [block.problem.num_tokens] * block.problem.batch_shape[0]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = attsvm.sweep({"num_tokens": [3, 4]}, [Tokens()], store=f"{folder}/mine", trials=8, workers=0)
    ...     found.tokens.mean("trial").values
    array([3., 4.])
    """

    def __init__(
        self, drawn: Drawn, arguments: Arguments, generators: list[np.random.Generator], seed: int = 0
    ) -> None:
        self.drawn, self.arguments = drawn, arguments
        self._generators, self._seed = generators, seed
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
    def run(self) -> Run:
        """The training run of the block."""
        arguments = self.arguments.of_train()
        arguments["init"] = start(self.problem, arguments, self._generators)
        return train_to_the_end(self.problem, arguments, self._seed)

    @cached_property
    def decided(self) -> np.ndarray:
        """The first recorded step from which on every softmax of a trial is saturated; -1 for an undecided trial."""
        return first_decided(self.problem, self.run)

    @cached_property
    def optimal(self) -> np.ndarray:
        """The optimal tokens of the block's problems."""
        return optimal_tokens(self.problem)

    @cached_property
    def trained_problem(self) -> Problem:
        """The problem of the trained parameters of the attention: that of the block, unless some are fixed."""
        return self._trained_part[0]

    @property
    def trained_weights(self) -> np.ndarray:
        """The weights of ``trained_problem`` after the last step."""
        return self._trained_part[1]

    @cached_property
    def _trained_part(self) -> tuple[Problem, np.ndarray]:
        run = self.run
        ends = {name: run.parameters[name][None] for name in run.history if name in run.parameters}
        last = {name: array[-1:] for name, array in run.history.items()}
        # the last record need not be that of the last step
        ended = replace(run, history={**last, **ends, "weights": run.weights[None]})
        part = trained_part(self.problem, ended)
        return part.problem, part.history[0]

    @property
    def norm(self) -> Norm:
        """The norm of the Att-SVM with which a run is compared: the argument ``svm.norm``, or the norm of the run.

        Raises
        ------
        ProblemError
            If it is not given, and not known or another one for longer steps: then it would depend on the trials that
            are computed together.
        """
        given, norms = self.arguments.svm.get("norm"), norms_at_any_length(self.run.limit)
        if given is None and len(norms) > 1:
            listed = ", ".join(sorted(map(str, norms)))
            raise ProblemError(
                "svm.norm: expected the norm of the Att-SVM to compare with, because the norm of "
                f"{self.run.optimizer} depends on the length of the steps ({listed})"
            )
        return norm_for(self.run, given)

    def solution(self, norm: str | Norm | None = None) -> Solution:
        """The Att-SVMs of the tokens that the run selects, in the problem of its trained parameters.

        By default in the norm of :attr:`norm`.
        """
        return self._solved(self.norm if norm is None else parse_norm(norm), of_run=True)

    def comparable(self, solution: Solution) -> np.ndarray:
        """Where a run can be compared with the Att-SVM of its tokens: the trial is decided, the Att-SVM solved."""
        optimal = np.asarray(np.asarray(solution.status) == Status.OPTIMAL)
        decided: np.ndarray = self.decided >= 0
        found: np.ndarray = decided.reshape(-1, *(1,) * (optimal.ndim - 1)) & optimal
        return found

    def optimal_solution(self) -> Solution:
        """The Att-SVMs of the optimal tokens. No run is needed."""
        return self._solved(parse_norm(self.arguments.svm.get("norm", "frobenius")), of_run=False)

    def _solved(self, norm: Norm, of_run: bool) -> Solution:
        key = repr(norm), of_run
        if key not in self._solutions:
            options = {name: value for name, value in self.arguments.svm.items() if name != "norm"}
            problem, selected = (self.trained_problem, self.run.selected) if of_run else (self.problem, self.optimal)
            self._solutions[key] = solve_svm(problem, selected, norm, **options)
        return self._solutions[key]
