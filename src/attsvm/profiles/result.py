"""The result of a margin profile."""

from dataclasses import dataclass
from textwrap import wrap
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.extras import check_installed
from attsvm.norms import Norm, read_norm, written_norm
from attsvm.profiles.verdict import written
from attsvm.results import Result, per_trial, shared


@dataclass(frozen=True, eq=False, repr=False)
class MarginProfile(Result):
    """Margin ratios of an optimiser in several norms, and what follows from them.

    C schedules of the steps that were made, S problems, N norms.

    Attributes
    ----------
    status : Status
        ``finished``, or ``interrupted`` if the callback ended it; then there is no verdict.
    ratios : ndarray, shape (C, S, N)
        Margin ratio of the trained weights; 1 is the best margin of any weights of the same norm.
    half_ratios : ndarray, shape (C, S, N)
        After half of the steps.
    raw_ratios : ndarray, shape (S, N), or None
        Of a run with the schedule of ``chosen`` on the gradient itself, which is not divided by its norm. None without
        such a run, which is made only if the profile is conclusive.
    decided : bool ndarray, shape (C, S)
        Whether the softmax of every query is saturated: each dropped probability is at most 1e-6.
    logit_change : ndarray, shape (C, S)
        The largest change of a logit in the step at half of the steps and in the last one.
    norm : Norm or None
        The norm whose margin the optimiser maximises; None if the profile is inconclusive.
    verdict : str
        The name of the norm, or "inconclusive".
    reason : str
        Sentences that say what the verdict rests on.
    cause : str
        Some words for why it is inconclusive, such as "none of these norms", where no ratio approaches 1 any more, or
        "not settled"; empty if it is not.
    chosen : str
        The schedule that the verdict rests on.
    underflows : bool
        Whether the run on the gradient itself ends elsewhere, because the gradient becomes too small for the optimiser.
    unfinished : bool
        Whether the profile is inconclusive, and more steps can change that.
    norms, schedules : tuple of str
        The names of the last and of the first axis.
    optimizer, attention : str
    learning_rate : float or None
        The given one, or what was found for the first steps; None if the optimiser sets its own.
    steps : int
        Of each schedule at most.
    batch_size : int or None
        Sequences in a step; None for all of them.
    steps_made : tuple of int
        How many steps each schedule made before it ended.

    See Also
    --------
    attsvm.margin_profile : Makes one.
    attsvm.margin_ratio : The measure.

    Examples
    --------
    >>> import attsvm
    >>> profile = attsvm.margin_profile(attsvm.optimizers.normalized_gradient_descent, seeds=1, steps=1000,
    ...                                 norms=["l1", "frobenius", "linf"])
    >>> profile.verdict, profile.chosen, profile.ratios.shape
    ('frobenius', 'paced', (1, 1, 3))
    """

    kind: ClassVar[str] = "margin profile"
    equal_shapes: ClassVar[tuple[tuple[str, ...], ...]] = (("ratios", "half_ratios"), ("decided", "logit_change"))

    ratios: np.ndarray = per_trial()
    half_ratios: np.ndarray = per_trial()
    raw_ratios: np.ndarray | None = per_trial()
    decided: np.ndarray = per_trial()
    logit_change: np.ndarray = per_trial()
    norm: Norm | None = shared(write=written_norm, read=read_norm)
    verdict: str = shared()
    reason: str = shared()
    chosen: str = shared()
    underflows: bool = shared()
    norms: tuple[str, ...] = shared(read=tuple)
    schedules: tuple[str, ...] = shared(read=tuple)
    optimizer: str = shared()
    attention: str = shared()
    learning_rate: float | None = shared()
    steps: int = shared()
    batch_size: int | None = shared(None)
    steps_made: tuple[int, ...] = shared((), read=tuple)
    unfinished: bool = shared(False)
    cause: str = shared("")

    @property
    def batches(self) -> str:
        """The sequences that a step sees, in words."""
        return "full batch" if self.batch_size is None else f"mini-batches of {self.batch_size}"

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the mean margin ratios: a row for each schedule, a column for each norm.

        The row that the verdict rests on has a solid frame around its largest ratio.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes

        See Also
        --------
        to_frame : The numbers.
        """
        return self._drawn(ax=ax)

    def to_frame(self) -> Any:
        """The ratios as a pandas DataFrame: one row for each schedule, problem and norm.

        Raises ProblemError if pandas is not installed.
        """
        check_installed("to_frame", "frames", "pandas")
        import pandas as pd

        levels = [self.schedules, range(self.ratios.shape[1]), self.norms]
        index = pd.MultiIndex.from_product(levels, names=["schedule", "problem", "norm"])
        return pd.DataFrame({"ratio": self.ratios.ravel(), "half_ratio": self.half_ratios.ravel()}, index=index)

    def _dimensions(self) -> dict[str, tuple[str, ...]]:
        table = ("schedule", "problem", "norm_name")
        names = dict.fromkeys(("ratios", "half_ratios"), table) | dict.fromkeys(("decided", "logit_change"), table[:2])
        return {**names, "raw_ratios": table[1:]}

    def _coordinates(self) -> dict[str, Any]:
        return {"schedule": self.schedules, "norm_name": self.norms}

    @property
    def mean(self) -> np.ndarray:
        """The mean of the ratios over the problems, shape (C, N)."""
        return np.asarray(self.ratios.mean(axis=1))

    def __str__(self) -> str:
        """The table of mean ratios, and the verdict, in lines of at most 80 characters for names of usual length."""
        width = max(map(len, self.norms))
        titles = "  ".join(self.schedules)
        lines = [f"Mean margin ratio of {self.optimizer}, {self.batches}", f"{'':{width}}  {titles}"]
        for norm, column in zip(self.norms, self.mean.T, strict=True):
            numbers = "  ".join(
                f"{written(value):>{len(name)}}" for value, name in zip(column, self.schedules, strict=True)
            )
            lines.append(f"{norm:{width}}  {numbers}")
        return "\n".join([*lines, *wrap(f"{self.verdict}: {self.reason}", 80, break_on_hyphens=False)])

    def _summary(self) -> str:
        return f"{self.optimizer}, {self.batches}: {self.verdict}"
