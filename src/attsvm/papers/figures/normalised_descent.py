"""Runs of normalised gradient descent that enter a cone stay in it, and their weights grow as fast as stated."""

from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.optimizers import Decaying, Growing, normalized_gradient_descent
from attsvm.papers.drawing import LINES, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.theory import Standing, local_convergence_conditions, predict_direction
from attsvm.training import Run, train

STEPS: dict[str, Any] = {"constant": 0.1, "growing": Growing(0.1, 2000), "decaying": Decaying(1.0, 100, power=0.5)}
"""The lengths of the steps."""
OPENINGS = np.geomspace(0.45, 1e-3, 18)
"""Of the cones that are tried. Each is invariant."""
ROUNDING = 1e-12
"""Of a correlation, and relative to a norm."""


def _followed(problem: Problem, run: Run, lengths: np.ndarray) -> Arrays:
    """What the cones state about one run, at each record but the start.

    ``lengths``: at each record those of the next step and of the one after it, and the sum of all earlier ones.
    """
    steps, weights = run.history["steps"][1:], run.history["weights"][1:]
    size = np.linalg.norm(weights, axis=(-2, -1))
    step, after, walked = lengths
    bound, left, growth = np.full(len(steps), np.inf), False, np.inf
    for opening in OPENINGS:
        cone = local_convergence_conditions(problem, run.selected, opening=float(opening))
        if not cone.holds:
            continue
        error = np.asarray(direction_error(weights, cone.solution.direction, axis=(-2, -1)))
        inside = (error <= opening) & (size >= cone.radius)
        longest = cone.longest_step / cone.radius
        # growing steps stay short if they grow no faster than the norm
        faster = np.maximum(after / step - 1, 0.0)
        entered = np.flatnonzero(inside & (step <= longest * size) & (faster <= longest * cone.growth))
        if not entered.size:
            continue
        first = entered[0]
        later = slice(first, None)
        left |= bool((error[later] > opening + ROUNDING).any() or (size[later] < cone.radius * (1 - ROUNDING)).any())
        least = size[first] + cone.growth * (walked[later] - walked[first])
        growth = min(growth, float((size[later] / least).min()))
        bound[later] = np.minimum(bound[later], opening)
    return {"bound": bound, "left": np.asarray(left), "growth": np.asarray(growth)}


def _runs(kind: str, sizes: Sizes) -> Arrays:
    n, T, d, number, steps = (sizes[name] for name in ("n", "T", "d", "problems", "steps"))
    rule, found = STEPS[kind], []
    length = np.broadcast_to(rule(np.arange(steps + 2.0)) if callable(rule) else rule, steps + 2)
    drawn = random_problem(n, T, d, sizes["seed"], batch=(number,))
    for i in range(number):
        # one by one: a batch is proved only as a whole
        run = train(drawn[i], optimizer=normalized_gradient_descent(rule), steps=steps, record=60)
        records, predicted = run.history["steps"][1:], predict_direction(drawn[i], run)
        lengths = np.stack([length[records], length[records + 1], np.cumsum(length)[records - 1]])
        found.append(
            _followed(drawn[i], run, lengths)
            | {
                "steps": records,
                "error": np.asarray(direction_error(run.history["weights"][1:], predicted, axis=(-2, -1))),
                "proved": np.asarray(predicted.standing == Standing.PROVED),
            }
        )
    arrays = stacked(found)
    return {name: array.T for name, array in arrays.items()} | {"steps": arrays["steps"][0]}


class NormalisedDescent(Figure):
    name = "normalised-descent"
    paper = Paper.OURS
    order = 2.5
    title = "Normalised gradient descent enters a cone and stays"
    seconds = 60
    claim = (
        "Most runs of normalised gradient descent reach a cone that they do not leave, and in which they converge to "
        "the Att-SVM. The opening of the narrowest cone that holds the weights bounds their direction error. (Top: "
        "median and 10-90 % range of the error, and thin the median of the bound, where most runs have one. Bottom: "
        "share of the runs that are in a cone.)"
    )
    criterion = (
        "From the first record in a cone on that allows the steps, no recorded weights leave it, no direction error "
        "exceeds the bound, and the norm is at least what the theorem states. For each kind of steps, more than half "
        "of the runs end in a cone, predict_direction calls more than half proved, and the median error is at most "
        "half of that after a quarter of the steps."
    )
    full: ClassVar[Sizes] = {"n": 4, "T": 5, "d": 8, "steps": 20_000, "problems": 24, "seed": 110_012}
    quick: ClassVar[Sizes] = {**full, "n": 3, "T": 4, "d": 5, "problems": 4}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        return joined(each(piece, STEPS, _runs, dict(sizes)))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        passed, words = dict[str, Any](), list[str]()
        left = total = 0
        for kind in STEPS:
            error, bound = found[f"error {kind}"], found[f"bound {kind}"]
            inside, proved = np.isfinite(bound[-1]), found[f"proved {kind}"]
            quarter = np.searchsorted(found[f"steps {kind}"], sizes["steps"] / 4)
            passed |= {
                f"{kind}: a run leaves a cone": not found[f"left {kind}"].any(),
                f"{kind}: an error exceeds its bound": (error <= bound + ROUNDING).all(),
                f"{kind}: a norm grows more slowly than stated": found[f"growth {kind}"].min() >= 1 - 1e-9,
                f"{kind}: half of the runs end outside of the cones": inside.mean() > 0.5,
                f"{kind}: half of the runs are not proved": proved.mean() > 0.5,
                f"{kind}: the error does not fall": np.median(error[-1]) <= np.median(error[quarter]) / 2,
            }
            left, total = left + int(found[f"left {kind}"].sum()), total + int(inside.sum())
            words.append(f"{int(proved.sum())} of {proved.size} ({kind})")
        return verdict(passed, f"{left} of {total} runs leave a cone. Proved are {', '.join(words)}.")

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for kind in STEPS:
            error, bound = found[f"error {kind}"][-1], found[f"bound {kind}"][-1]
            inside = np.isfinite(bound)
            known = f"{np.median(bound[inside]):.1e}" if inside.any() else "-"
            entered = np.isfinite(found[f"bound {kind}"]).mean(axis=1) > 0.5
            first = f"{found[f'steps {kind}'][entered][0]:,}" if entered.any() else "-"
            rows.append(Row(f"{kind} steps: median error / bound at the end", f"{np.median(error):.1e} / {known}"))
            rows.append(Row(f"{kind} steps: first record with most runs in a cone", first))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (top, bottom) = panels(3.6, 2, sharex=True)
        for kind, (colour, dashes) in zip(STEPS, LINES, strict=False):
            steps, bound = found[f"steps {kind}"], found[f"bound {kind}"]
            style.spread(top, steps, found[f"error {kind}"], colour, dashes, kind)
            middle = np.median(bound, axis=1)
            known = np.isfinite(middle)
            top.plot(steps[known], middle[known], linestyle=dashes, color=colour, linewidth=0.7)
            bottom.plot(steps, np.isfinite(bound).mean(axis=1), linestyle=dashes, color=colour)
        set_axes(top, y="direction error", log="xy")
        set_axes(bottom, "steps", "share in a cone", log="x")
        bottom.set_ylim(-0.03, 1.03)
        figure.align_ylabels([top, bottom])
        style.legend_above(top, 3)
        return figure


FIGURES.register(NormalisedDescent.name, NormalisedDescent())
