"""How well a predicted limit is known."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.norms import JointNorm, Lp, Norm, Nuclear, SumOfHeads, parse_norm
from attsvm.optimizers import Limit, Steps, bounded
from attsvm.theory.conditions import Hypothesis
from attsvm.theory.hypotheses import Theorem
from attsvm.theory.measured import Found, Row, contents, enough, matches, notes, table
from attsvm.theory.nearness import Place
from attsvm.training import Run


class Standing(StrEnum):
    """The level of evidence for a statement about the limit of one run.

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
"""The norm of gradient descent."""


TrialLimits = Mapping[Limit, np.ndarray]
"""The limits of the trials of a run with steps of their length, each with the numbers of its trials."""


def longest_changes(run: Run) -> Float[np.ndarray, " trials"]:
    """The largest change of a logit in a recorded step of the later half of each trial.

    Earlier steps do not matter for the direction of factors that have grown since. NaN if no change is known: step 0
    and records after the last step of a trial have none.
    """
    steps, ends = run.history["steps"][:, None], np.ravel(run.step)
    known = (steps > 0) & (steps <= ends)
    late = known & (2 * steps >= np.where(known, steps, 0).max(axis=0))
    changes = np.where(late, run.history["logit_change"].reshape(late.shape), -np.inf).max(axis=0)
    return np.where(late.any(axis=0), changes, np.nan)


def known_limits(run: Run, queries: int | None = None) -> TrialLimits:
    """The limit of each trial with steps of its length. ``queries``: their number, by default that of the run."""
    # the rank matters for factors, whose weights have two axes besides those of batch and attention heads
    number = math.prod(run.selected.shape[run.weights.ndim - 2 :]) if queries is None else queries
    limits = [limit_at(run.limit, change, number) for change in longest_changes(run)]
    if queries is None:  # a run of one layer
        limits = [_with_measured_norm(limit, run) for limit in limits]
    return {limit: np.flatnonzero([one == limit for one in limits]) for limit in dict.fromkeys(limits)}


def _with_measured_norm(limit: Limit, run: Run) -> Limit:
    """The limit with the norm that was measured for one head, if it is that of an optimiser of optax."""
    own_axes = run.weights.ndim - len(run.batch_shape)
    if limit.norm is not None or "." not in limit.steps.kind or own_axes > (1 if "prompt" in run.attention else 2):
        return limit
    rows = (row for row in table() if row.steps.kind == limit.steps.kind and row.attention == run.attention)
    names = {row.norm for row in rows if row.found is Found.MEASURED}
    return replace(limit, norm=parse_norm(names.pop())) if len(names) == 1 else limit


def limit_at(limit: Limit, logit_change: float, queries: int = 0) -> Limit:
    """The limit of steps that change a logit by this much, or, for NaN, by an unknown number, which counts as small.

    ``queries``: the number of queries, for a limit of bounded rank.

    Steps on factors that change logits by much more than 1 serve one support token each, whose gradient has rank one:
    they are compared with the nuclear norm, unless they were measured not to converge to its Att-SVM.
    """
    if limit.steps.factors != "any":
        return limit
    lengths = next(one for one in contents()["lengths"] if matches(limit.steps, one["steps"]))
    # the first range whose end is not exceeded; the last one, of long steps, has no end
    place = int(np.searchsorted(lengths["up_to"], 0.0 if math.isnan(logit_change) else logit_change))
    steps = replace(limit.steps, factors=lengths["names"][place])
    if place < len(lengths["up_to"]):
        return replace(limit, steps=steps)
    if not lengths["nuclear"]:
        return replace(limit, steps=steps, norm=None)
    # of several heads with a joint norm it is the sum of the nuclear norms
    nuclear = SumOfHeads(Nuclear()) if isinstance(limit.norm, JointNorm) else Nuclear()
    norm, rank = bounded(nuclear, limit.rank, queries)
    return Limit(norm, steps, rank)


def norms_at_any_length(limit: Limit) -> set[Norm | None]:
    """The norms of a limit after short and after long steps."""
    return {limit_at(limit, change).norm for change in (0.0, math.inf)}


def norm_for(run: Run, norm: str | float | Norm | None, queries: int | None = None) -> Norm:
    """The norm that is given, otherwise that of the limits of all trials. ``queries``: as for :func:`known_limits`.

    Raises ProblemError if none is given, and the norm of a limit is not known or not that of the others.
    """
    if norm is not None:
        return parse_norm(norm)
    limits = known_limits(run, queries)
    # which trials have which norm, for the message
    by_norm = {limit.norm: [k for one, of in limits.items() if one.norm == limit.norm for k in of] for limit in limits}
    (first, *others) = by_norm
    if first is not None and not others:
        return first
    expected = "norm: expected the norm of the Att-SVM to compare with, because "
    if not others:
        steps = next(iter(limits)).steps
        of = f"{run.optimizer} on factors" if run.attention == "factored" else run.optimizer
        if steps.factors == "long":
            of += f" with steps that change a logit by up to {np.nanmax(longest_changes(run)):.3g}"
        more = "".join(f"; {note}" for note in notes(steps, run.attention))
        raise ProblemError(f"{expected}the limit of {of} is not known{more}")
    named = [f"{'unknown' if one is None else one.name} for trials {listed(sorted(of))}" for one, of in by_norm.items()]
    raise ProblemError(
        f"{expected}it depends on the length of the steps of {run.optimizer}: {', '.join(named)}; give one, or "
        "predict these trials separately"
    )


def listed(numbers: Sequence[int], most: int = 6) -> str:
    """Numbers in a row, of many the first ones."""
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(map(str, numbers[:most])) + more


def rank_for(run: Run, used: Norm) -> int | None:
    """The largest rank of the Att-SVM: that of the factors, in the norm for which it is known how to restrict it."""
    return run.limit.rank if used == Nuclear() else None


class Judgement(NamedTuple):
    """Standing, source and hypotheses of a prediction."""

    standing: Standing
    source: str
    hypotheses: tuple[Hypothesis, ...]


class TrainedModel(NamedTuple):
    """Name what a run trained, as the table does: its parametrization, model, heads and map; and n."""

    attention: str
    name: str
    heads: str
    sequences: int
    map: str = "softmax"


def judge(
    run: Run,
    known: TrialLimits,
    used: Norm,
    model: TrainedModel,
    rows: list[Hypothesis],
    theorem: Theorem | None,
    place: Place,
) -> Judgement:
    """Look for a theorem, then for a measurement; of trials whose steps have several lengths, the least known counts.

    ``known``: the limits of the trials. ``used``: the norm of the Att-SVM. ``rows``: what any prediction assumes. The
    rows "full_batch" and "no_decay" may be replaced by a measurement with batches or decay. ``place``: where the trials
    are. Far from its limit, a run is not called proved or measured.
    """
    # a theorem, if all of its hypotheses hold
    near, of_theorem = place.nearness(), theorem.hypotheses if theorem else ()
    hypotheses = (*rows, *of_theorem, near)
    if theorem and all(one.holds for one in (*rows, *of_theorem)):
        if near.holds:
            return Judgement(Standing.PROVED, theorem.source, hypotheses)
        # a theorem says where such a run goes, not that it has arrived
        source = f"not there yet: {near}; its exact continuation is covered by {theorem.source}"
        return Judgement(Standing.CONJECTURE, source, hypotheses)
    # batches and decay are no obstacle if a row was measured with them; everything else is
    if any(one.holds is False for one in rows if one.name not in ("full_batch", "no_decay")):
        return Judgement(Standing.NONE, "nothing is predicted; the Att-SVM is for comparison", hypotheses)
    found = [_measured(run, limit, trials, used, model, rows, of_theorem, place) for limit, trials in known.items()]
    # Standing goes from proved to none, so that the largest index is the least known
    return max(found, key=lambda one: [*Standing].index(one.standing))


def _measured(
    run: Run,
    known: Limit,
    trials: np.ndarray,
    used: Norm,
    model: TrainedModel,
    rows: list[Hypothesis],
    of_theorem: tuple[Hypothesis, ...],
    place: Place,
) -> Judgement:
    """Judge the trials with this limit by what was measured."""
    hypotheses = (*rows, *of_theorem, place.nearness(trials))
    more = "".join(f"; {note}" for note in notes(known.steps, model.attention))
    found = _row(run, known, used, model)
    if found is None:
        more += _measured_otherwise(known, model)
        if any(one.holds is False for one in rows):
            return Judgement(Standing.NONE, f"nothing is predicted: such steps were not measured{more}", hypotheses)
        return Judgement(Standing.CONJECTURE, f"no theorem; such steps were not measured{more}", hypotheses)
    if found.found is Found.NONE:
        source = f"such steps were measured to stay below {enough():g}: {found.text()}{more}"
        return Judgement(Standing.NONE, source, hypotheses)
    # the row may have been measured with batches or decay, which then are no obstacle
    within, near = [*_range_hypotheses(run, trials, found), *place.compared], place.nearness(trials, found)
    replaced = {"full_batch": bool(found.batch), "no_decay": found.decay > 0}
    kept = [one for one in rows if not replaced.get(one.name)]
    hypotheses = (*kept, *within, *of_theorem, near)
    if found.found is Found.RISING:
        return Judgement(Standing.CONJECTURE, f"below {enough():g} and still rising: {found.text()}{more}", hypotheses)
    others = [one for one in rows if one.name not in replaced]
    inside = all(one.holds for one in (*others, *within))
    if inside and near.holds:
        return Judgement(Standing.MEASURED, found.text(), hypotheses)
    yet = "" if near.holds else f"not there yet: {near}; "
    if inside:
        source = f"{yet}{found.text()}{place.more_steps(run, trials, found)}"
    else:
        source = f"{yet}outside of the measured range: {found.text()}{_advice(run, trials, found)}"
    return Judgement(Standing.CONJECTURE, source, hypotheses)


def _measured_otherwise(known: Limit, model: TrainedModel) -> str:
    """Say that steps of an optimiser of optax on the gradient itself were measured on the normalised one only."""
    steps = replace(known.steps.family, normalised="step")
    rows = [row for row in table() if row.steps == steps and row.attention == model.attention and not row.batch]
    if "." not in steps.kind or known.steps.normalised == "step" or not rows:
        return ""
    return f"; with optimizers.normalized({steps.kind}(...)): {rows[0].text()}"


def measured_point(attention: str, norm: Norm, heads: str, *, together: bool) -> Row | None:
    """The row on the stationary points of runs with decay, for steps of length one in each parameter or in all.

    None if there is no such row, or its runs do not end at these points.
    """
    key = (
        Steps("unit", scope="all" if together else "each"),
        attention,
        norm.name,
        "fixed head",
        heads,
        "all",
        "softmax",
    )
    rows = (row for row in table() if row.radius and row.found is Found.MEASURED)
    return next((row for row in rows if row.key == key), None)


def _row(run: Run, known: Limit, used: Norm, model: TrainedModel) -> Row | None:
    """The row of the table on such steps, with this batch, decay and momentum."""
    columns = "all" if known.rank is None else "few"
    key = (known.steps.family, model.attention, used.name, model.name, model.heads, columns, model.map)
    beta = known.steps.momentum
    # rows with more decay cover runs with less: the nearest one above the decay of the run comes first
    for row in sorted(table(), key=lambda row: row.decay):
        low, high = row.momentum
        # steps along sums with an unknown β are not those without a sum
        if row.radius or not (high > 0 if beta is None else low <= beta <= high):
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


def _range_hypotheses(run: Run, trials: np.ndarray, row: Row) -> list[Hypothesis]:
    """State that these trials of the run are within the range of a row."""
    (fewest, most), (least, largest) = row.num_steps, row.logit_change
    made, changes = np.ravel(run.step)[trials], longest_changes(run)[trials]
    change = _outermost(changes, row)
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
            None if change is None else bool(((least <= changes) & (changes <= largest)).all()),
            change,
        ),
    ]


def _outermost(changes: np.ndarray, row: Row) -> float | None:
    """The change that decides whether all are in the range of a row; None if one is not known."""
    if np.isnan(changes).any():
        return None
    return float(changes.max() if changes.max() > row.logit_change[1] else changes.min())


def _advice(run: Run, trials: np.ndarray, row: Row) -> str:
    """Which steps to take to be within the range of a row."""
    change, steps = _outermost(longest_changes(run)[trials], row), int(np.min(np.ravel(run.step)[trials]))
    advice = [f"take at least {row.num_steps[0]:,} steps"] if steps < row.num_steps[0] else []
    (least, largest), rate = row.logit_change, run.limit.steps.learning_rate
    if change is not None and change > 0 and not least <= change <= largest and rate is not None:
        too_long = change > largest
        was = f"(it was {rate:g})"
        if run.limit.steps.relative:
            # the weights grow by a factor with each step, so that more steps also make them longer
            if too_long or not advice:
                advice.append(f"use a {'smaller' if too_long else 'larger'} learning rate {was}")
        else:
            factor = (largest if too_long else least) / change
            # the factors grow with the steps, so the change of a logit grows like the square of the rate
            better = rate * (math.sqrt(factor) if run.attention == "factored" else factor)
            advised = f"a learning rate of about {better:.2g} {was}"
            if run.attention == "factored" and factor > 1e6:  # no constant rate makes factors that long in so few steps
                advised = "steps relative to the weights, by relative=True and a learning rate of about 0.03"
            advice.append(f"use {advised}")
    return f"; {' and '.join(advice)}" if advice else ""
