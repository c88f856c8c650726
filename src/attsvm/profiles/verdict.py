"""The verdict of margin ratios on an optimiser."""

import math
from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.profiles.readings import PACES, Reading
from attsvm.statistics import student_half_width

_LARGE_RATIO = 0.95
_MOST_PROBLEMS = 0.9
_SHORT_STEP = 1.0
_CLEAR_LEAD = 1.5
_RISING = 0.1
_GROWING = 0.05
_SAME_RATIOS = 0.02
_FAR = 100.0

NONE_OF_THESE = "none of these norms"
"""The cause of an inconclusive verdict whose ratios stay away from 1."""

NO_LIMIT = ("rising loss", "weight decay", "the weights stay small")
"""The causes of weights without a direction to converge to: they do not minimise the loss, or have stopped to grow."""


@dataclass(frozen=True, eq=False)
class VerdictOutcome:
    """Outcome of a schedule, summed up over the problems."""

    schedule: str  # schedule, norm: the norm has the largest mean ratio
    norm: str
    mean: float  # that ratio
    second: str  # second, second_mean: the norm with the second largest mean ratio, and that ratio
    second_mean: float
    # whether the interval of the largest mean ratio, Student's at 95 %, lies above those of all other norms
    separate: bool
    leads: float  # the share of the problems in which this norm has the largest ratio
    # rising, rise: the norm whose mean ratio came closest to 1 in the later half of the steps, and by how much it grew
    rising: str
    rise: float
    # whether no mean ratio changed by more than a tenth of what it lacks to 1 in the later half of the steps, and the
    # attention is saturated or the weights no longer move away from their start
    flat: bool
    decided: float  # the share of the problems whose attention is saturated
    change: float  # the largest change of a logit in a late step, in the median problem
    last_change: float  # the same in the last step of the schedule, if it changes as the learning rate does
    finite: bool
    losses: tuple[float, float]  # the mean loss at the start and at the end
    means: np.ndarray  # shape (N,)
    norms: tuple[str, ...]
    # how many times the steps a mean ratio takes to reach 0.95 if it goes on as in the later half; inf if none rises
    distant: float

    @property
    def ascends(self) -> bool:
        """Whether the loss is larger than at the start."""
        return self.losses[1] > self.losses[0]

    @property
    def short(self) -> bool:
        """Whether its steps are short. Long steps can lead to another norm, because each serves few tokens."""
        return max(self.change, self.last_change) <= _SHORT_STEP

    @property
    def usable(self) -> bool:
        """Whether its ratios say something about the optimizer's limit."""
        return self.finite and self.short and self.decided >= _MOST_PROBLEMS and not self.ascends

    @property
    def clear(self) -> bool:
        """Whether the lead over the second norm is large compared with the distance of the ratio from 1."""
        return self.mean - self.second_mean >= _CLEAR_LEAD * (1 - self.mean)

    @property
    def conclusive(self) -> bool:
        """Whether they say which norm it is."""
        return self.usable and self.mean >= _LARGE_RATIO and self.leads >= _MOST_PROBLEMS and self.clear

    @property
    def ended(self) -> bool:
        """Whether more steps are not expected to change it: the ratios are flat, and those below 0.95 stay below."""
        stays = self.mean >= _LARGE_RATIO or self.distant >= _FAR
        return self.flat and (stays or self.decided < _MOST_PROBLEMS)

    @property
    def unfinished(self) -> bool:
        """Whether more steps can change what it says: it names no norm, and still changes with short steps."""
        return self.finite and self.short and not (self.ascends or self.ended or self.conclusive)

    @property
    def open(self) -> bool:
        """Whether more problems can change what it says: a large ratio whose lead is not certain."""
        uncertain = not self.separate or min(self.leads, self.decided) < _MOST_PROBLEMS
        return self.finite and self.short and not self.ascends and self.mean >= _LARGE_RATIO and uncertain


def outcome(
    schedule: str,
    norms: tuple[str, ...],
    loss: Float[np.ndarray, "S"],
    half: Reading,
    last: Reading,
    growth: float = 1.0,
) -> VerdictOutcome:
    """Sum up readings after half and after all of the steps.

    ``loss`` is that of the start, and ``growth`` that of the learning rate from the last reading to the last step.
    """
    mean, before = last.ratios.mean(axis=0), half.ratios.mean(axis=0)
    second, top = (int(i) for i in np.argsort(mean, kind="stable")[-2:])
    width = student_half_width(last.ratios)
    others = np.delete(mean + width, top)
    approach = (mean - before) / np.maximum(1 - before, np.finfo(float).eps)
    rising = int(approach.argmax())
    decided = float(last.decided.mean())
    grows = float(np.median(last.distance / np.maximum(half.distance, np.finfo(float).tiny))) > 1 + _GROWING
    return VerdictOutcome(
        schedule,
        norms[top],
        float(mean[top]),
        norms[second],
        float(mean[second]),
        bool(mean[top] - width[top] > others.max()),
        float((last.ratios.argmax(axis=1) == top).mean()),
        norms[rising],
        float(mean[rising] - before[rising]),
        half.step < last.step and bool(np.abs(approach).max() <= _RISING) and (decided >= _MOST_PROBLEMS or not grows),
        decided,
        float(np.median(np.maximum(half.change, last.change))),
        float(np.median(last.change)) * growth,
        last.finite,
        (float(loss.mean()), float(last.loss.mean())),
        mean,
        norms,
        _steps_to_large(mean, approach, last.step / half.step),
    )


def _steps_to_large(mean: np.ndarray, approach: np.ndarray, times: float) -> float:
    """How many times the steps a ratio needs to be large, if ``times`` the steps left it 1 - approach of its lack."""
    lack, rising = 1 - mean, (approach > 0) & (approach < 1) & (mean < _LARGE_RATIO)
    # lack (1 - approach)^k = 1 - 0.95 after times^k as many steps
    powers = np.log((1 - _LARGE_RATIO) / lack[rising]) / np.log1p(-approach[rising])
    return float(np.exp(np.minimum(powers.min(initial=np.inf) * math.log(times), 700.0))) if rising.any() else math.inf


def ends_early(said: list[VerdictOutcome]) -> bool:
    """Whether more steps of a schedule are not expected to change what it says, by the last two of its looks.

    Both name the same norm, whose interval lies above those of all others and whose ratio does not fall; or the ratios
    have ended at both; or the learning rate grows so much that the last steps will be too long.
    """
    if len(said) < 2:
        return False
    before, now = said[-2:]
    same = before.conclusive and now.conclusive and now.separate and before.norm == now.norm and now.mean >= before.mean
    return same or (before.ended and now.ended) or min(before.last_change, now.last_change) > _SHORT_STEP


def settled(outcomes: list[VerdictOutcome]) -> bool:
    """Whether the last schedule makes further ones unnecessary.

    It names a norm; or it and another schedule, both with short steps, have stopped at the same ratios, which then do
    not depend on the steps, or without saturated attention.
    """
    now = outcomes[-1]
    # here the steps that were made count, and not those that will be too long
    ended = [one for one in outcomes if one.ended and one.change <= _SHORT_STEP]
    if now not in ended:
        return now.conclusive
    unsaturated = now.decided < _MOST_PROBLEMS
    return now.conclusive or any(
        np.abs(one.means - now.means).max() <= _SAME_RATIOS or (unsaturated and one.decided < _MOST_PROBLEMS)
        for one in ended[:-1]
    )


def chosen(outcomes: list[VerdictOutcome]) -> VerdictOutcome:
    """The outcome that a verdict rests on: the largest ratio of those that say most."""
    return max(outcomes, key=lambda one: (one.conclusive, one.usable, one.finite, one.decided, one.mean))


def reason(best: VerdictOutcome, decays: bool, without: str = "") -> tuple[str, str]:
    """The cause of a verdict that names no norm, in some words; and why it is what it is, and what to change.

    ``without``: what is known of the optimiser without its weight decay.
    """
    given = best.schedule not in PACES  # a learning rate that was found is no guess to correct
    if best.conclusive:
        return "", (
            f"mean margin ratio {written(best.mean)} with {best.schedule} steps, the largest of the norms that were "
            f"compared in {best.leads:.0%} of the problems ({best.second}: {written(best.second_mean)})."
        )
    if best.ascends:
        start, end = best.losses
        return "rising loss", (
            f"the loss rises from {start:.3g} to {end:.3g}: the optimiser does not minimise it. Check the sign of its "
            f"steps{', or use a smaller learning rate' if given else ''}."
        )
    if not best.finite:
        smaller = " Use a smaller learning rate." if given else ""
        return "not finite", f"the weights are no longer finite.{smaller}"
    if best.decided < _MOST_PROBLEMS and (best.flat or best.short):
        unsaturated = f"the attention is not saturated in {1 - best.decided:.0%} of the problems"
        decay = f" Weight decay keeps the weights small; use less weight decay.{without}" if decays else ""
        if best.flat:
            cause = "weight decay" if decays else "the weights stay small"
            return cause, f"{unsaturated}, and the weights no longer grow.{decay}"
        more = f"Use more steps{' or a larger learning rate' if given else ''}."
        return "not saturated", f"{unsaturated}.{decay} {more}"
    if not best.short:
        change = max(best.change, best.last_change)
        advice = "Use a smaller learning rate." if given else "Correcting the learning rate was not enough."
        return "long steps", (
            f"the steps are too long: a late step changes a logit by {change:.2g}, and long steps can lead to a "
            f"different norm. {advice}"
        )
    leading = f"the largest ratio is {written(best.mean)}, in the {best.norm} norm with {best.schedule} steps"
    if best.mean >= _LARGE_RATIO and best.leads >= _MOST_PROBLEMS:
        return "too close", (
            f"{leading}, and {written(best.second_mean)} in the {best.second} norm: too close to tell them apart. "
            f"{'Use more steps, or compare' if best.unfinished else 'Compare'} with norms between the two."
        )
    decay = without or (" Weight decay may be the cause." if decays else "")
    if best.mean >= _LARGE_RATIO:
        more = " Use more steps." if best.unfinished else ""
        return "differs by problem", (
            f"{leading}, but in {1 - best.leads:.0%} of the problems another norm has a larger ratio.{decay}{more}"
        )
    which = "it" if best.rising == best.norm else f"that in the {best.rising} norm"
    if best.ended:
        slow = f"a rise of {best.rise:.2g}) none reaches {_LARGE_RATIO:g} within {_FAR:,.0f} times the steps"
        stays = "no ratio rises any more" if best.distant == math.inf else f"at the pace of the later half ({slow}"
        return NONE_OF_THESE, f"{NONE_OF_THESE} ({', '.join(best.norms)}): {leading}, and {stays}.{decay}"
    if best.rise <= 0:
        return "not settled", f"{leading}, and the ratios still change.{decay} Use more steps."
    ahead = f"; {_LARGE_RATIO:g} is {best.distant:.3g} times the steps away at this pace" if best.distant < _FAR else ""
    return (
        "not settled",
        f"{leading}, and {which} is still rising (by {best.rise:.2g} in the later half){ahead}.{decay} Use more steps.",
    )


def written(ratio: float) -> str:
    """A ratio with three digits, rounded down, so that only 1 is written as 1."""
    return f"{np.floor(ratio * 1000) / 1000:.3f}"
