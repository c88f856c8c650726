"""What margin ratios say about an optimizer."""

from dataclasses import dataclass

import numpy as np

_LARGE_RATIO = 0.95
_MOST_PROBLEMS = 0.9
_SHORT_STEP = 1.0
_STILL_RISING = 0.005
_CLEAR_LEAD = 1.5


@dataclass(frozen=True)
class Outcome:
    """What a schedule gives, summed up over the problems.

    Attributes
    ----------
    schedule, norm : str
        The norm has the largest mean ratio.
    mean : float
        That ratio.
    second, second_mean : str, float
        The norm with the second largest mean ratio, and that ratio.
    leads : float
        The share of the problems in which this norm has the largest ratio.
    rise : float
        By how much the ratio grew in the later half of the steps.
    decided : float
        The share of the problems whose attention is saturated.
    change : float
        The largest change of a logit in a late step, in the median problem.
    finite : bool
    """

    schedule: str
    norm: str
    mean: float
    second: str
    second_mean: float
    leads: float
    rise: float
    decided: float
    change: float
    finite: bool

    @property
    def short(self) -> bool:
        """Whether its steps are short. Long steps can lead to another norm, because each serves few tokens."""
        return self.change <= _SHORT_STEP

    @property
    def usable(self) -> bool:
        """Whether its ratios say something about the optimizer's limit."""
        return self.finite and self.short and self.decided >= _MOST_PROBLEMS

    @property
    def clear(self) -> bool:
        """Whether the norm is told apart from the second: by more than what its own ratio lacks."""
        return self.mean - self.second_mean >= _CLEAR_LEAD * (1 - self.mean)

    @property
    def conclusive(self) -> bool:
        """Whether they say which norm it is."""
        return self.usable and self.mean >= _LARGE_RATIO and self.leads >= _MOST_PROBLEMS and self.clear


def outcome(
    schedule: str,
    norms: tuple[str, ...],
    ratios: np.ndarray,
    half: np.ndarray,
    decided: np.ndarray,
    change: np.ndarray,
    finite: bool,
) -> Outcome:
    """Sum up ratios (S, N) at the end and after half of the steps."""
    mean = ratios.mean(axis=0)
    second, top = (int(i) for i in np.argsort(mean, kind="stable")[-2:])
    return Outcome(
        schedule,
        norms[top],
        float(mean[top]),
        norms[second],
        float(mean[second]),
        float((ratios.argmax(axis=1) == top).mean()),
        float(mean[top] - half[:, top].mean()),
        float(decided.mean()),
        float(np.median(change)),
        finite,
    )


def chosen(outcomes: list[Outcome]) -> Outcome:
    """The outcome that a verdict rests on: the largest ratio of those that say most."""
    return max(outcomes, key=lambda one: (one.conclusive, one.usable, one.finite, one.decided, one.mean))


def disagreement(outcomes: list[Outcome]) -> str:
    """What to say if several schedules are conclusive and name different norms; empty otherwise."""
    said = {one.norm: one.schedule for one in outcomes if one.conclusive}
    if len(said) < 2:
        return ""
    listed = ", ".join(f"{norm} with {schedule} steps" for norm, schedule in said.items())
    return f"the norm depends on the steps: {listed}."


def reason(best: Outcome, decays: bool) -> str:
    """Why the verdict is what it is, and what to change if there is none."""
    where = f"mean margin ratio {written(best.mean)} with {best.schedule} steps"
    if best.conclusive:
        return (
            f"{where}, the largest of the norms that were compared in {best.leads:.0%} of the problems "
            f"({best.second}: {written(best.second_mean)})."
        )
    if not best.finite:
        return "the weights left the finite numbers. Use a smaller learning rate."
    if best.decided < _MOST_PROBLEMS:
        decay = "Weight decay keeps the weights small; use less of it. " if decays else ""
        return (
            f"the attention is not saturated in {1 - best.decided:.0%} of the problems. "
            f"{decay}Use more steps or a larger learning rate."
        )
    if not best.short:
        return (
            f"the steps are too long: a late step changes a logit by {best.change:.2g}, and long steps can lead to "
            "another norm. Use a smaller learning rate."
        )
    leading = f"the largest ratio is {written(best.mean)}, in the {best.norm} norm with {best.schedule} steps"
    if best.rise > _STILL_RISING:
        return f"{leading}, and it is still rising (by {best.rise:.2g} in the later half). Use more steps."
    decay = " Weight decay can be the cause." if decays else ""
    if best.mean >= _LARGE_RATIO and best.leads >= _MOST_PROBLEMS:
        return (
            f"{leading}, and {written(best.second_mean)} in the {best.second} norm: too close to tell them apart. "
            "Use more steps, or compare with norms between the two."
        )
    if best.mean >= _LARGE_RATIO:
        return f"{leading}, but in {1 - best.leads:.0%} of the problems another norm has a larger one.{decay}"
    return f"{leading}, and it has stopped rising: the optimizer maximises the margin of none of these norms.{decay}"


def written(ratio: float) -> str:
    """A ratio with three digits, rounded down, so that only 1 is written as 1."""
    return f"{np.floor(ratio * 1000) / 1000:.3f}"
