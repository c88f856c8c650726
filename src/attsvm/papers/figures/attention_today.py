"""Attention as in real models: sinks, position biases, other maps than the softmax, gains, and rotations."""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error, margin
from attsvm.norms import Norm, Rotary
from attsvm.optimizers import Optimizer, gradient_descent
from attsvm.papers.drawing import GREY, LINES, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import compared, undecided
from attsvm.papers.schedules import limit_optimizer
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm
from attsvm.theory import predict_direction
from attsvm.training import Run, train

FREQUENCIES = (1.0, 0.5, 0.25, 0.1)
OF_LARGEST = 0.9
"""The penalty over λ*."""
RECORDS = 40
WITHOUT_PENALTY, STAYS = 5_000, 0.01
"""Steps without a penalty, and the least distance from the Att-SVM at which they stop."""
ROUNDING = 1e-6
SHAPES = "n, T, d, steps"
"""The size with the numbers of each kind."""


def _problem(kind: str, sizes: Sizes) -> Problem:
    n, T, d, number, seed = (sizes[name] for name in ("n", "T", "d", "problems", "seed"))
    plain = random_problem(n, T, d, seed, batch=(number,))
    if kind in ("sink", "sink logit"):
        return plain.with_sink(trained=kind == "sink logit")
    if kind == "absolute":
        return plain.with_position_bias("absolute")
    if kind == "rotations":
        return plain.with_rotations(FREQUENCIES)
    if kind != "relative":
        return plain
    # a causal layer: every token is a query, with a label of its own
    labels = np.random.default_rng(seed + 1).choice([-1.0, 1.0], (number, n, T))
    mask = np.broadcast_to(np.tril(np.ones((T, T), bool)), (n, T, T))
    return Problem(plain.tokens, labels, plain.tokens, plain.head, mask=mask).with_position_bias("relative")


def _hold(problem: Problem, run: Run, *names: str) -> bool:
    """Whether the prediction of the limit of a run finds that the hypotheses with these names hold."""
    return all(one.holds is True for one in predict_direction(problem, run).hypotheses if one.name in names)


def _hold_of_each(problem: Problem, run: Run, *names: str) -> np.ndarray:
    return np.array([_hold(problem[i], run[i], *names) for i in range(len(run.weights))])


def _blocks(kind: str, sizes: Sizes, steps: int) -> Arrays:
    """Direction errors to the Att-SVM whose weights are W and the biases together."""
    problem = _problem(kind, sizes)
    run = train(problem, optimizer=limit_optimizer("combined", steps), steps=steps, record=RECORDS)
    found = compared(problem, run)
    return found | {"missing": found["error"], "counts": found["feasible"], "decided": ~found["undecided"]}


def _sigmoid(kind: str, sizes: Sizes, steps: int) -> Arrays:
    """Direction errors to the SVM of single tokens."""
    problem = _problem(kind, sizes)
    run = train(problem, map=kind, optimizer=limit_optimizer("combined", steps), steps=steps, record=RECORDS)
    direction = predict_direction(problem, run).direction
    return {
        "steps": run.history["steps"][1:],
        "missing": np.asarray(direction_error(run.history["weights"][1:], direction, axis=(-2, -1))),
        "counts": _hold_of_each(problem, run, "separable", "signs_of_scores"),
    }


@cache  # programs compiled for it are reused
def _falling(steps: int) -> Optimizer:
    """Rates that fall to almost zero: steps across a kink of the sparsemax leave an error of their own length."""
    return gradient_descent(lambda step: 3 * jnp.power(10.0, -4.5 * step / steps))


def _sparsemax(kind: str, sizes: Sizes, steps: int) -> Arrays:
    """Distances of the weights to the Att-SVM over its norm, with a penalty just below λ* and without one."""
    problem, found = _problem(kind, sizes), []
    best = solve_svm(problem, optimal_tokens(problem))
    # at the Att-SVM of the optimal tokens, with λ = 1, the prediction has λ/λ* = 1/λ*
    at_best = train(problem, map=kind, penalty=1.0, init=best.direction, steps=0)
    for i in range(sizes["problems"]):
        own = problem[i]
        [over] = (one.number for one in predict_direction(own, at_best[i]).hypotheses if one.name == "small_penalty")
        penalty = OF_LARGEST / np.asarray(over, dtype=float).item()
        run = train(own, map=kind, penalty=penalty, optimizer=_falling(steps), steps=steps, record=RECORDS)
        holds = _hold(own, run, "separable", "single_keys", "locally_optimal", "one_hot", "small_penalty")
        found.append(_distances(own, run) | {"counts": np.asarray(holds)})
    alone = train(problem, map=kind, optimizer=gradient_descent(1.0), steps=WITHOUT_PENALTY, record=RECORDS)
    others = _distances(problem, alone)
    return {
        "steps": found[0]["steps"],
        "missing": np.stack([one["missing"] for one in found], axis=-1),
        "counts": np.array([one["counts"] for one in found]),
        "other_steps": others["steps"],
        "other": others["missing"],
    }


def _distances(problem: Problem, run: Run) -> Arrays:
    svm = solve_svm(problem, run).direction
    away = np.linalg.norm(run.history["weights"][1:] - svm, axis=(-2, -1)) / np.linalg.norm(svm, axis=(-2, -1))
    return {"steps": run.history["steps"][1:], "missing": away}


def _gain(kind: str, sizes: Sizes, steps: int) -> Arrays:
    """What the margin ratios in ℓ2,1 and in the Frobenius norm lack to 1."""
    problem = _problem(kind, sizes)
    run = train(problem, attention="gain", steps=steps, record=RECORDS, seed=sizes["seed"])
    found, other = (_lacking(problem, run, norm) for norm in ("l2,1", "frobenius"))
    return found | {"other_steps": other["steps"], "other": other["missing"]}


def _rotations(kind: str, sizes: Sizes, steps: int) -> Arrays:
    """What the margin ratios in the sum of complex nuclear norms lack; a run counts if the Att-SVM has ranks ≤ 1."""
    problem = _problem(kind, sizes)
    run = train(problem, attention="rotary", steps=steps, record=RECORDS, seed=sizes["seed"])
    found, counts = _lacking(problem, run, Rotary(len(FREQUENCIES))), _hold_of_each(problem, run, "rank_one")
    return found | {"counts": counts, "other_steps": found["steps"], "other": found["missing"][:, ~counts]}


def _lacking(problem: Problem, run: Run, norm: str | Norm) -> Arrays:
    """One less the margin ratio at each record but the start, for the tokens selected at the end."""
    value = np.asarray(solve_svm(problem, run.selected, norm).value)
    margins = [margin(problem, weights, run.selected, norm) for weights in run.history["weights"][1:]]
    return {
        "steps": run.history["steps"][1:],
        "missing": 1 - np.array(margins) * value,
        "counts": np.isfinite(value),
        "decided": ~undecided(run.probability),
    }


class LayerPart(NamedTuple):
    """What is trained: its measurement, the panel that shows it, and the size in ``at_most`` that holds for it."""

    measured: Callable[[str, Sizes, int], Arrays]
    panel: int
    limit: str


KINDS = {
    **dict.fromkeys(("sink", "sink logit", "absolute", "relative"), LayerPart(_blocks, 0, "direction error")),
    "sparsemax": LayerPart(_sparsemax, 1, "distance"),
    "sigmoid": LayerPart(_sigmoid, 1, "direction error"),
    "gain": LayerPart(_gain, 2, "gain"),
    "rotations": LayerPart(_rotations, 3, "rotations"),
}
RATIOS = ("gain", "rotations")
PANELS = ("direction error", "distance, direction error", "1 − margin ratio", "1 − margin ratio")
LABELS = {
    "absolute": "absolute positions",
    "relative": "relative positions",
    "gain": "gain, ℓ2,1",
    "rotations": "rotations, ranks ≤ 1",
}
OTHERS = {"sparsemax": "sparsemax, no penalty", "gain": "gain, Frobenius", "rotations": "rotations, ranks > 1"}


def _measured(kind: str, sizes: Sizes) -> Arrays:
    n, T, d, steps = sizes[SHAPES][kind]
    return KINDS[kind].measured(kind, {**sizes, "n": n, "T": T, "d": d}, steps)


class AttentionToday(Figure):
    name = "attention-today"
    paper = Paper.OURS
    order = 6.9
    title = "Attention with sinks, position biases, other maps, gains and rotations"
    seconds = 45
    claim = (
        "With a sink, a trained sink logit or position biases, W and the biases together converge in direction to one "
        "Att-SVM. Sparsemax with a penalty of at most λ* converges to the Att-SVM itself, including its norm; without "
        "a penalty it stops elsewhere. Sigmoid attention converges in direction to the SVM of single tokens. A trained "
        "gain on the keys maximises the margin in ℓ2,1. Rotated keys and queries maximise the margin in the sum of "
        "complex nuclear norms if the Att-SVM has ranks of at most 1. (Median and 10-90 % range. Dotted: the "
        "thresholds of the criterion.)"
    )
    criterion = (
        "In every run whose hypotheses hold, the direction error, the distance divided by the norm of the Att-SVM, or "
        "1 − margin ratio is at most the stated number at the end. With sparsemax and with rotations, this holds for "
        "the stated share of these runs: weights may converge slowly if a token is only just, or only just not, a "
        "support token, and K and Q may end at stationary points that are not optimal. All softmax runs are decided. "
        "No margin ratio exceeds 1, and with a gain it is larger in ℓ2,1 than in the Frobenius norm. "
        f"Without a penalty, every sparsemax run stops farther than {STAYS:g} from the Att-SVM."
    )
    full: ClassVar[Sizes] = {
        SHAPES: {
            "sink": [4, 5, 8, 20_000],
            "sink logit": [4, 5, 8, 20_000],
            "absolute": [4, 5, 8, 20_000],
            "relative": [3, 4, 6, 40_000],
            "sparsemax": [3, 4, 6, 200_000],
            "sigmoid": [4, 5, 8, 20_000],
            "gain": [4, 5, 8, 60_000],
            "rotations": [4, 5, 8, 30_000],
        },
        "problems": 24,
        "seed": 620_005,
        "at_most": {"direction error": 1e-6, "distance": 1e-4, "gain": 0.01, "rotations": 0.02},
        "share": {"sparsemax": 0.9, "rotations": 0.9},
    }
    quick: ClassVar[Sizes] = {
        **full,
        SHAPES: {
            **{kind: [3, 4, 6, 4_000] for kind in ("sink logit", "relative", "sigmoid")},
            "sparsemax": [3, 4, 6, 50_000],
            **{kind: [3, 4, 6, 10_000] for kind in ("gain", "rotations")},
        },
        "problems": 3,
        "at_most": {"direction error": 1e-4, "distance": 1e-3, "gain": 0.05, "rotations": 0.05},
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        own = {name: sizes[name] for name in (SHAPES, "problems", "seed")}
        return joined(each(piece, sizes[SHAPES], _measured, own))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        passed, words = dict[str, Any](), list[str]()
        for kind in sizes[SHAPES]:
            ends, others = _ends(found, kind)
            near = ends <= sizes["at_most"][KINDS[kind].limit]
            share = sizes["share"].get(kind, 1.0)
            words.append(f"{kind} {_shown(kind, ends)[1]} ({near.sum()} of {ends.size})")
            passed[f"{kind}: too few runs end at the limit"] = ends.size > 0 and near.mean() >= share
            if f"decided {kind}" in found:
                passed[f"{kind}: a run is undecided"] = found[f"decided {kind}"].all()
            if kind in RATIOS:
                passed[f"{kind}: a margin ratio exceeds 1"] = found[f"missing {kind}"].min() >= -ROUNDING
            if kind == "gain":
                nearer = found["missing gain"][-1] < others
                passed["gain: a margin ratio is larger in the Frobenius norm"] = nearer.all()
            if kind == "sparsemax":
                passed["sparsemax: a run without a penalty ends at the Att-SVM"] = others.min() > STAYS
        why = "The worst end of the runs whose hypotheses hold, and how many end at the limit"
        return verdict(passed, f"{why}: {', '.join(words)}.")

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for kind in sizes[SHAPES]:
            what = "margin ratio, median / least" if kind in RATIOS else f"{KINDS[kind].limit}, median / largest"
            for name, some in zip((LABELS.get(kind, kind), OTHERS.get(kind)), _ends(found, kind), strict=True):
                if name is not None and some.size:
                    shown = " / ".join(_shown(kind, some))
                    rows.append(Row(f"{name}: {what}", f"{shown} ({some.size} of {sizes['problems']} runs)"))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        shown = sorted({KINDS[kind].panel for kind in sizes[SHAPES]})
        figure, axes = panels(0.2 + 1.65 * len(shown), len(shown), sharex=True, squeeze=False)
        for number, axis in zip(shown, axes[:, 0], strict=True):
            set_axes(axis, y=PANELS[number], log="xy")
            kinds = [kind for kind in sizes[SHAPES] if KINDS[kind].panel == number]
            for kind, (colour, dashes) in zip(kinds, LINES, strict=False):
                _draw(axis, kind, found, colour, dashes)
                axis.axhline(sizes["at_most"][KINDS[kind].limit], color=colour, linewidth=0.8, linestyle=":")
            style.legend_above(axis, 2)
        axes[-1, 0].set_xlabel("steps")
        figure.align_ylabels(axes[:, 0])
        return figure


def _ends(found: Arrays, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """What is missing at the end in the runs that count; and in those that they are compared with."""
    others = found.get(f"other {kind}", np.empty((1, 0)))
    return found[f"missing {kind}"][-1][found[f"counts {kind}"]], others[-1]


def _shown(kind: str, missing: np.ndarray) -> list[str]:
    """The median and the worst; of margin ratios the ratios themselves."""
    if not missing.size:
        return ["-", "-"]
    both = np.array([np.median(missing), missing.max()])
    return [f"{one:.3f}" for one in 1 - both] if kind in RATIOS else [f"{one:.1e}" for one in both]


def _draw(axis: Axes, kind: str, found: Arrays, colour: str, dashes: Any) -> None:
    missing = found[f"missing {kind}"][:, found[f"counts {kind}"]]
    if missing.size:
        style.spread(axis, found[f"steps {kind}"], missing, colour, dashes, LABELS.get(kind, kind))
    others = found.get(f"other {kind}", np.empty((1, 0)))
    if others.size:
        style.spread(axis, found[f"other_steps {kind}"], others, GREY, "--", OTHERS[kind])


FIGURES.register(AttentionToday.name, AttentionToday())
