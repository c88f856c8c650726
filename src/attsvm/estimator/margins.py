"""The Att-SVM of the tokens that a fitted prompt selects."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attsvm._utils.shapes import Int
from attsvm.datasets import Sequences, map_vectors
from attsvm.estimator.coordinates import Coordinates
from attsvm.measures import correlation, margin
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.results import Batched, Status, per_trial, unsaved
from attsvm.svm import Solution, solve_svm

SAMPLE = 200
"""Most sequences of a report; each of their tokens is a constraint."""

SLACK = 1.0
"""C of the soft margin if no prompt keeps the selection."""

LOW, HIGH = 0.01, 0.2
"""Rules of thumb: margin ratios below and above those of most fits that were looked at."""


@dataclass(frozen=True, eq=False, repr=False)
class MarginReport(Batched):
    """How well a fitted prompt separates the tokens it selects from the others.

    All numbers are in the coordinates of training: centred and scaled tokens. Equal tokens of a sequence
    count once, since no prompt separates them.

    Attributes
    ----------
    separable : bool
        Whether some prompt keeps the selection with a margin. The fitted one always does, except for rounding, ties,
        and margins too small for the solver.
    num_sequences, num_constraints : int
    selected : int ndarray, shape (num_sequences,)
        Position of the selected token in ``problem``.
    solution : Solution
        With slack if not separable, or if slack was given.
    correlation : float
        Between the fitted prompt and the direction of the solution; NaN for a prompt of zeros.
    margin : float
        Smallest margin of the fitted prompt divided by its norm.
    margin_ratio : float
        That margin over the best one in the same norm, in [0, 1] if separable; otherwise NaN. ``advice`` says what it
        means.
    problem : Problem
        The distinct tokens of each sequence. It is not saved.

    See Also
    --------
    attsvm.AttentionClassifier.margin_report : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> bags = attsvm.datasets.digit_bags(150, 20, seed=0)
    >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
    >>> report = classifier.margin_report(bags.train)
    >>> report.num_sequences, report.separable
    (150, True)
    """

    kind: ClassVar[str] = "margin report"

    separable: bool = per_trial()
    num_sequences: int = per_trial()
    num_constraints: int = per_trial()
    selected: Int[np.ndarray, " n"] = per_trial()
    solution: Solution = per_trial()
    correlation: float = per_trial()
    margin: float = per_trial()
    margin_ratio: float = per_trial()
    problem: Problem | None = unsaved()

    @property
    def status(self) -> Status:
        """The status of the Att-SVM."""
        return Status(str(self.solution.status))

    @property
    def advice(self) -> str:
        """What the margin ratio says, and what to do, in one sentence."""
        if np.isnan(self.margin_ratio):
            return "no margin ratio: the selected tokens are tied with others; look at the scores of the tokens"
        if self.margin_ratio < LOW:
            return f"low, below {LOW}: in some bag the selected token is nearly tied with another; look at the scores"
        if self.margin_ratio <= HIGH:
            return f"usual, {LOW} to {HIGH}: as far from a tie as in most fits; nothing to do"
        return f"high, above {HIGH}: farther from a tie than in most fits; only a test score says if the fit is good"

    def _summary(self) -> str:
        kind = "separable" if self.separable else "not separable"
        return (
            f"{self.num_sequences} sequences, {self.num_constraints} constraints, {kind}, "
            f"correlation {self.correlation:z.4f}, margin ratio {self.margin_ratio:z.4g} ({self.advice}), "
            f"{self.solution!r}"
        )


def sample_of(sequences: Sequences, generator: np.random.RandomState, size: int = SAMPLE) -> Sequences:
    """At most ``size`` of the sequences, with a table of their own tokens only."""
    if len(sequences) > size:
        sequences = sequences[np.sort(generator.choice(len(sequences), size, replace=False))]
    table, ids = map_vectors(sequences, np.array)
    return Sequences(table, ids, sequences.offsets)


def margin_report(
    prompt: np.ndarray, coordinates: Coordinates, sequences: Sequences, norm: Norm, slack: float | None
) -> MarginReport:
    """Solve the Att-SVM of the tokens that a prompt selects.

    Prompt and result are in these coordinates.
    """
    tokens = coordinates.apply(sequences)
    distinct, selected = _distinct_tokens(tokens, prompt)
    problem = Problem.from_sequences(distinct)
    hard = solve_svm(problem, selected, norm=norm)
    separable = hard.status == Status.OPTIMAL
    if slack is None and not separable:
        slack = SLACK
    solution = hard if slack is None else solve_svm(problem, selected, slack=slack)
    nonzero = bool(prompt.any())
    achieved = margin(problem, prompt, selected, norm) if nonzero else np.nan
    return MarginReport(
        separable=separable,
        num_sequences=len(selected),
        num_constraints=int(tokens.lengths.sum() if problem.mask is None else problem.mask.sum()) - len(selected),
        selected=selected,
        solution=solution,
        correlation=float(correlation(prompt, solution.direction)) if nonzero else np.nan,
        margin=float(achieved),
        margin_ratio=float(achieved * hard.value) if separable else np.nan,
        problem=problem,
    )


def _distinct_tokens(tokens: Sequences, prompt: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The distinct tokens of each sequence, and the position of the selected one among them."""
    distinct, selected = [], []
    for i in range(len(tokens)):
        # a word that occurs twice in a text gives the same constraint twice
        array = tokens.table[np.unique(tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]])]
        place = int(np.argmax(array @ prompt))
        kept = (array != array[place]).any(axis=1)
        kept[place] = True
        distinct.append(array[kept])
        selected.append(int(kept[:place].sum()))
    return distinct, np.array(selected)
