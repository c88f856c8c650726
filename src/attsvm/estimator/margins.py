"""The Att-SVM of what a fitted prompt selects."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from attsvm.datasets.sequences import Sequences
from attsvm.estimator.fitting import State
from attsvm.measures import correlation, margin
from attsvm.norms import parse_norm
from attsvm.problem import Problem
from attsvm.svm import Solution, solve_svm

SAMPLE = 200
"""Training sequences that a fit keeps: each of their tokens is a constraint."""

SLACK = 1.0
"""C where no prompt keeps the selection."""


@dataclass(frozen=True, eq=False)
class MarginReport:
    """How well a fitted prompt separates the tokens it selects from the others.

    Everything is in the coordinates of training: tokens centred and over one scale. A token that stands several times
    in a sequence counts once, since no prompt tells its copies apart.

    Attributes
    ----------
    num_sequences, num_constraints : int
    selected : int ndarray, shape (num_sequences,)
        Place of the selected token in ``problem``.
    separable : bool
        Whether some prompt keeps the selection with a margin; the fitted one always does but for rounding, ties, and
        what is too close for the solver.
    solution : Solution
        With slack where not separable, or where it was asked for.
    correlation : float
        Of the fitted prompt and the solution's direction; NaN for a prompt of zeros.
    margin : float
        Least margin of the fitted prompt over its norm.
    margin_ratio : float
        That over the best one in the same norm, in [0, 1] where separable; NaN where not.
    problem : Problem
        The distinct tokens of each sequence.
    """

    num_sequences: int
    num_constraints: int
    selected: Int[np.ndarray, " n"]
    separable: bool
    solution: Solution
    correlation: float
    margin: float
    margin_ratio: float
    problem: Problem

    def __repr__(self) -> str:
        kind = "separable" if self.separable else "not separable"
        return (
            f"MarginReport({self.num_sequences} sequences, {self.num_constraints} constraints, {kind}, "
            f"correlation {self.correlation:.4f}, margin ratio {self.margin_ratio:.4g}, {self.solution!r})"
        )


def sample_of(sequences: Sequences, generator: np.random.RandomState, size: int = SAMPLE) -> Sequences:
    """At most ``size`` of the sequences, with a table of their own tokens only."""
    if len(sequences) > size:
        sequences = sequences[np.sort(generator.choice(len(sequences), size, replace=False))]
    rows, ids = np.unique(sequences.ids, return_inverse=True)
    return Sequences(sequences.table[rows], ids, sequences.offsets)


def margin_report(state: State, sequences: Sequences, optimizer: Any, slack: float | None) -> MarginReport:
    """Solve the Att-SVM of what the model selects, in the optimiser's norm where it is known, else in ℓ2."""
    prompt = np.asarray(state.average["p"], dtype=np.float64)
    tokens = Sequences(
        (sequences.table.astype(np.float64) - state.coordinates.centre) / state.coordinates.scale,
        sequences.ids,
        sequences.offsets,
    )
    distinct, selected = [], []
    for i in range(len(tokens)):
        # words that stand twice in a text make the same constraint twice
        array = tokens.table[np.unique(tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]])]
        place = int(np.argmax(array @ prompt))
        kept = (array != array[place]).any(axis=1)
        kept[place] = True
        distinct.append(array[kept])
        selected.append(int(kept[:place].sum()))
    problem = Problem.from_sequences(distinct)
    norm = optimizer.norm if getattr(optimizer, "norm", None) is not None else parse_norm("frobenius")
    hard = solve_svm(problem, selected, norm=norm)
    separable = hard.status == "optimal"
    if slack is None and not separable:
        slack = SLACK
    solution = hard if slack is None else solve_svm(problem, selected, slack=slack)
    learnt = bool(prompt.any())
    achieved = margin(problem, prompt, selected, norm) if learnt else np.nan
    return MarginReport(
        num_sequences=len(selected),
        num_constraints=int(tokens.lengths.sum() if problem.mask is None else problem.mask.sum()) - len(selected),
        selected=np.array(selected),
        separable=separable,
        solution=solution,
        correlation=float(correlation(prompt, solution.direction)) if learnt else np.nan,
        margin=float(achieved),
        margin_ratio=float(achieved * hard.value) if separable else np.nan,
        problem=problem,
    )
