"""How well a predicted limit is known."""

import math
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import JointNorm, Lp, Norm, Nuclear, SumOfHeads, parse_norm
from attsvm.optimizers.limit import MOMENTUM, ON_FACTORS, Limit
from attsvm.optimizers.rule import Chain
from attsvm.optimizers.transformations import DecayingSum
from attsvm.theory.conditions import Hypothesis
from attsvm.theory.hypotheses import Theorem
from attsvm.theory.measured import Found, Row, contents, enough, notes, table
from attsvm.training.run import Run, optimizer_of


class Standing(StrEnum):
    """How well a statement about a limit is known, for one run.

    See Also
    --------
    attsvm.Prediction, attsvm.theory.Hypothesis
    """

    PROVED = "proved"
    """A theorem covers the run: each of its hypotheses was checked and holds."""

    MEASURED = "measured"
    """Runs of this kind reached a mean margin ratio of at least 0.95, and this run lies within the measured range."""

    CONJECTURE = "conjecture"
    """It is expected, but the run lies outside of what was proved and measured."""

    NONE = "none"
    """Nothing is predicted; an Att-SVM is returned for comparison."""


EUCLIDEAN = Lp(2.0)
EACH, TOGETHER = "unit steps of each parameter", "unit steps of all parameters"
"""The kinds of steps in the rows on stationary points."""


def longest_change(run: Run) -> float | None:
    """The largest change of a logit in a recorded step of the later half of a trial, in the median trial.

    Earlier steps do not matter for the direction of factors that have grown since. None if no change is known:
    step 0 and records after the last step of a trial have none.
    """
    steps, ends = run.history["steps"], np.ravel(run.step)
    changes = run.history["logit_change"].reshape(len(steps), -1)
    known = [(steps > 0) & (steps <= end) for end in ends]
    late = [made & (2 * steps >= steps[made].max(initial=0)) for made in known]
    largest = [changes[rows, trial].max() for trial, rows in enumerate(late) if rows.any()]
    return float(np.median(largest)) if largest else None


def known_limit(run: Run) -> Limit:
    """The limit of a run with steps of its length."""
    # the rank matters for factors, whose weights have two axes besides those of batch and attention heads
    return limit_at(run.limit, longest_change(run), math.prod(run.selected.shape[run.weights.ndim - 2 :]))


def limit_at(limit: Limit, logit_change: float | None, queries: int = 0) -> Limit:
    """The limit of steps that change a logit by this much, or, for None, by an unknown number, which counts as small.

    ``queries``: the number of queries, for a limit of bounded rank.

    Steps on factors that change logits by much more than 1 serve one support token each, whose gradient has rank one:
    they are compared with the nuclear norm, unless they were measured not to converge to its Att-SVM.
    """
    kind, on_factors, _ = limit.steps.partition(ON_FACTORS)
    if not on_factors:
        return limit
    of_kind = next(one for one in contents()["on_factors"] if kind in one["kinds"] or not one["kinds"])
    place = 0 if logit_change is None else int(np.searchsorted(of_kind["up_to"], logit_change))
    steps = of_kind["names"][place].format(kind=kind)
    if place < len(of_kind["up_to"]):
        return replace(limit, steps=steps)
    if not of_kind["nuclear"]:
        return replace(limit, steps=steps, norm=None)
    nuclear = SumOfHeads(Nuclear()) if isinstance(limit.norm, JointNorm) else Nuclear()
    return Limit(nuclear, steps).of_rank(limit.rank, queries)


def norms_at_any_length(limit: Limit) -> set[Norm | None]:
    """The norms of a limit after short and after long steps."""
    return {limit_at(limit, change).norm for change in (0.0, math.inf)}


def norm_for(run: Run, norm: str | float | Norm | None) -> Norm:
    """The norm that is given, otherwise that of the limit of the optimizer.

    Raises ProblemError if none is given and the norm of the limit is not known.
    """
    if norm is not None:
        return parse_norm(norm)
    limit = known_limit(run)
    if limit.norm is None:
        reason = "steps on factors in this norm have" if run.attention == "factored" else f"{run.optimizer} has"
        more = "".join(f"; {note}" for note in notes(limit.steps, run.attention))
        raise ProblemError(
            f"norm: expected the norm of the Att-SVM to compare with, got None; {reason} no known one{more}"
        )
    return limit.norm


def rank_for(run: Run, used: Norm) -> int | None:
    """The largest rank of the Att-SVM: that of the factors, in the norm for which it is known how to restrict it."""
    return run.limit.rank if used == Nuclear() else None


class Judgement(NamedTuple):
    """Standing, source and hypotheses of a prediction."""

    standing: Standing
    source: str
    hypotheses: tuple[Hypothesis, ...]


class Model(NamedTuple):
    """What a run trained, by the names of the table: its parametrization, model and heads; and n."""

    attention: str
    name: str
    heads: str
    sequences: int


def judge(
    run: Run, known: Limit, used: Norm, model: Model, rows: list[Hypothesis], theorem: Theorem | None
) -> Judgement:
    """Look for a theorem, then for a measurement.

    ``known``: the limit of steps of its length. ``used``: the norm of the Att-SVM. ``rows``: what any prediction
    assumes. The rows "full_batch" and "no_decay" may be replaced by a measurement with batches or decay.
    """
    of_theorem = theorem.hypotheses if theorem else ()
    hypotheses = (*rows, *of_theorem)
    if theorem and all(one.holds for one in hypotheses):
        return Judgement(Standing.PROVED, theorem.source, hypotheses)
    others = [one for one in rows if one.name not in ("full_batch", "no_decay")]
    if any(one.holds is False for one in others):
        return Judgement(Standing.NONE, "nothing is predicted; the Att-SVM is for comparison", hypotheses)
    more = "".join(f"; {note}" for note in notes(known.steps, model.attention))
    found = _measured(run, known, used, model)
    if found is None:
        if any(one.holds is False for one in rows):
            return Judgement(Standing.NONE, f"nothing is predicted: such steps were not measured{more}", hypotheses)
        return Judgement(Standing.CONJECTURE, f"no theorem; such steps were not measured{more}", hypotheses)
    if found.found is Found.NONE:
        source = f"such steps were measured to stay below {enough():g}: {found.text()}{more}"
        return Judgement(Standing.NONE, source, hypotheses)
    within = _within(run, found)
    replaced = {"full_batch": bool(found.batch), "no_decay": found.decay > 0}
    hypotheses = (*(one for one in rows if not replaced.get(one.name)), *within, *of_theorem)
    if found.found is Found.RISING:
        return Judgement(Standing.CONJECTURE, f"below {enough():g} and still rising: {found.text()}{more}", hypotheses)
    if all(one.holds for one in (*others, *within)):
        return Judgement(Standing.MEASURED, found.text(), hypotheses)
    return Judgement(
        Standing.CONJECTURE, f"outside of what was measured: {found.text()}{_advice(run, found)}", hypotheses
    )


def momentum_of(run: Run) -> float | None:
    """β of the decaying sum of gradients that the steps follow, 0 without one; None if the chain is not known."""
    try:
        rule = optimizer_of(run).rule
    except (ProblemError, AttributeError):
        return None
    parts = rule.parts if isinstance(rule, Chain) else ()
    return max((part.decay for part in parts if isinstance(part, DecayingSum)), default=0.0)


def measured_point(attention: str, norm: Norm, heads: str, *, together: bool) -> Row | None:
    """The row on the stationary points of runs with decay, for steps of length one in each parameter or in all.

    None if there is no such row, or its runs do not end at these points.
    """
    steps = TOGETHER if together else EACH
    key = (steps, attention, norm.name, "fixed head", heads, "all")
    rows = (row for row in table() if row.radius and row.found is Found.MEASURED)
    return next((row for row in rows if row.key == key), None)


def _measured(run: Run, known: Limit, used: Norm, model: Model) -> Row | None:
    """The row of the table on such steps, with this batch, decay and momentum."""
    columns = "all" if known.rank is None else "few"
    key = (known.steps.removesuffix(MOMENTUM), model.attention, used.name, model.name, model.heads, columns)
    beta = momentum_of(run)
    for row in sorted(table(), key=lambda row: row.decay):
        low, high = row.momentum
        if beta is None:
            # β is not known; the schedule is not either, so that nothing counts as measured
            same_momentum = high > 0 if known.steps.endswith(MOMENTUM) else low == 0
        else:
            same_momentum = low <= beta <= high
        if row.radius or not same_momentum:
            continue
        same_batch = not isinstance(run.batch_size, str) and (
            not row.batch
            if run.batch_size is None
            else bool(row.batch)
            and row.sequences == model.sequences
            and row.batch[0] <= run.batch_size <= row.batch[-1]
        )
        decay = run.weight_decay
        same_decay = (
            not isinstance(decay, str) and decay is not None and (decay > 0) == (row.decay > 0) and decay <= row.decay
        )
        if row.key == key and same_batch and same_decay:
            return row
    return None


def _within(run: Run, row: Row) -> list[Hypothesis]:
    """That the run is within the range of a row."""
    change, (fewest, most), (least, largest) = longest_change(run), row.num_steps, row.logit_change
    made = np.ravel(run.step)
    enough = bool((made >= fewest).all())
    measured_with = []
    if row.batch:
        measured_with.append(
            Hypothesis("measured_batch", "batches of this size were measured", True, float(row.batch[0]), "sequences")
        )
    if row.decay:
        measured_with.append(
            Hypothesis("measured_decay", f"a weight decay of at most {row.decay:g}, as measured", True)
        )
    return [
        *measured_with,
        Hypothesis(
            "measured_steps",
            f"the run made {fewest:,} to {most:,} steps, as measured",
            enough and bool((made <= most).all()),
            float(made.max() if enough else made.min()),
            "steps",
        ),
        Hypothesis(
            "measured_change",
            f"a step changes a logit by {least:.2g} to {largest:.2g}, as measured",
            None if change is None else least <= change <= largest,
            change,
        ),
    ]


def _advice(run: Run, row: Row) -> str:
    """Which steps to take to be within the range of a row."""
    change, steps = longest_change(run), int(np.min(run.step))
    advice = [f"take at least {row.num_steps[0]:,} steps"] if steps < row.num_steps[0] else []
    least, largest = row.logit_change
    if change is not None and change > 0 and not least <= change <= largest and isinstance(run.learning_rate, float):
        too_long = change > largest
        was = f"(it was {run.learning_rate:g})"
        if "relative" in run.schedule:
            # the weights grow by a factor with each step, so that more steps also make them longer
            if too_long or not advice:
                advice.append(f"use a {'smaller' if too_long else 'larger'} learning rate {was}")
        else:
            factor = (largest if too_long else least) / change
            # the factors grow with the steps, so the change of a logit grows like the square of the rate
            rate = run.learning_rate * (math.sqrt(factor) if run.attention == "factored" else factor)
            advice.append(f"use a learning rate of about {rate:.2g} {was}")
    return f"; {' and '.join(advice)}" if advice else ""
