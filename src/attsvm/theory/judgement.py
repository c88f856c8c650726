"""How well the limit of a run is known: by a theorem whose hypotheses hold, or by a measurement."""

import math
from typing import NamedTuple

import numpy as np

from attsvm.norms import Norm
from attsvm.optimizers import Limit
from attsvm.theory.hypotheses import FULL_BATCH, NO_DECAY, Theorem
from attsvm.theory.hypothesis import Hypothesis
from attsvm.theory.limit_of_run import longest_change
from attsvm.theory.standing import Found, Row, Standing, notes, table
from attsvm.training import Run


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
    assumes. The rows on batches and decay may be replaced by a measurement with them.
    """
    of_theorem = theorem.hypotheses if theorem else ()
    hypotheses = (*rows, *of_theorem)
    if theorem and all(one.holds for one in hypotheses):
        return Judgement(Standing.PROVED, theorem.source, hypotheses)
    others = [one for one in rows if one.statement not in (FULL_BATCH, NO_DECAY)]
    if any(one.holds is False for one in others):
        return Judgement(Standing.NONE, "nothing is predicted; the Att-SVM is for comparison", hypotheses)
    more = "".join(f"; {note}" for note in notes(known.steps, model.attention))
    found = _measured(run, known, used, model)
    if found is None:
        if any(one.holds is False for one in rows):
            return Judgement(Standing.NONE, f"nothing is predicted: such steps were not measured{more}", hypotheses)
        return Judgement(Standing.CONJECTURE, f"no theorem; such steps were not measured{more}", hypotheses)
    if found.found is Found.NONE:
        source = f"such steps were measured to stay below 0.95: {found.text()}{more}"
        return Judgement(Standing.NONE, source, hypotheses)
    within = _within(run, found)
    replaced = {FULL_BATCH: bool(found.batch), NO_DECAY: found.decay > 0}
    hypotheses = (*(one for one in rows if not replaced.get(one.statement)), *within, *of_theorem)
    if found.found is Found.RISING:
        return Judgement(Standing.CONJECTURE, f"below 0.95 and still rising: {found.text()}{more}", hypotheses)
    if all(one.holds for one in (*others, *within)):
        return Judgement(Standing.MEASURED, found.text(), hypotheses)
    return Judgement(
        Standing.CONJECTURE, f"outside of what was measured: {found.text()}{_advice(run, found)}", hypotheses
    )


def _measured(run: Run, known: Limit, used: Norm, model: Model) -> Row | None:
    """The row of the table on such steps, with this batch and decay."""
    columns = "all" if known.rank is None else "few"
    key = (known.steps, model.attention, used.name, model.name, model.heads, columns)
    for row in sorted(table(), key=lambda row: row.decay):
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
        measured_with.append(Hypothesis("batches of this size were measured", True, float(row.batch[0]), "sequences"))
    if row.decay:
        measured_with.append(Hypothesis(f"a weight decay of at most {row.decay:g}, as measured", True))
    return [
        *measured_with,
        Hypothesis(
            f"the run made {fewest:,} to {most:,} steps, as measured",
            enough and bool((made <= most).all()),
            float(made.max() if enough else made.min()),
            "steps",
        ),
        Hypothesis(
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
        factor = (largest if change > largest else least) / change
        # the factors grow with the steps, so the change of a logit grows like the square of the rate
        both = run.attention == "factored" and "relative" not in run.schedule
        rate = run.learning_rate * (math.sqrt(factor) if both else factor)
        advice.append(f"use a learning rate of about {rate:.1g} (it was {run.learning_rate:g})")
    return f"; {' and '.join(advice)}" if advice else ""
