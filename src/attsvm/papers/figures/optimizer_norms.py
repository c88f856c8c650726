"""Which optimiser converges to the Att-SVM of which norm: the margin ratio of each in each norm."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import optax
from matplotlib.figure import Figure as Drawing
from optax.contrib import muon

from attsvm.datasets import random_problem
from attsvm.measures import margin
from attsvm.optimizers import mirror_descent, normalized, normalized_gradient_descent, steepest_descent
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import own_and_largest_other, undecided
from attsvm.papers.schedules import limit_optimizer
from attsvm.plot import drawn_matrix
from attsvm.problem import Problem, stack_problems
from attsvm.results import Status
from attsvm.svm import solve_svm
from attsvm.training import train

LABELS = {
    "frobenius": "ℓ$_2$",
    "l1.5": "ℓ$_{1.5}$",
    "l1.75": "ℓ$_{1.75}$",
    "l3": "ℓ$_3$",
    "linf": "ℓ$_\\infty$",
    "l1": "ℓ$_1$",
    "spectral": "spectral",
    "schatten1.5": "Schatten 1.5",
    "l2,1": "ℓ$_{2,1}$",
    "linf,2": "ℓ$_{\\infty,2}$",
    "nuclear": "nuclear",
}
NORMS = tuple(LABELS)
STEP = 0.1

# the cubic iteration, whose fixed point is the polar factor, with enough steps to converge
CONVERGED: dict[str, Any] = {"ns_coeffs": (2.0, -1.5, 0.5), "ns_steps": 12}


@dataclass(frozen=True)
class ExpectedNorm:
    """An optimiser, and the norm of the Att-SVM that it is expected to converge to."""

    norm: str
    # from the number of steps to the optimiser, whose steps decay relative to the weights: they grow more slowly than
    # the weights, shrink, or are a decreasing fraction of them
    decaying: Callable[[int], Any]
    expected: bool = True  # whether its own norm must be the largest of its row
    attention: str = "combined"
    part: float = 1.0  # of the steps of the figure, those that this optimiser makes


def _growing(power: float) -> Callable[[Any], Any]:
    # an update linear in the gradient averages over jumps, so its steps may grow with the weights
    return lambda k: STEP * (1 + k / 100) ** power


def _shrinking(first: float) -> Callable[[Any], Any]:
    # an update that is not linear in the gradient needs a gradient that hardly changes between steps
    return lambda k: first * (1 + k / 1000) ** (-1 / 3)


def _mirror(p: float, power: float) -> ExpectedNorm:
    return ExpectedNorm(f"l{p:g}", cache(lambda _: mirror_descent(learning_rate=_growing(power), p=p)))


def _steepest(norm: str, first: float, part: float = 1.0) -> ExpectedNorm:
    return ExpectedNorm(norm, cache(lambda _: steepest_descent(learning_rate=_shrinking(first), norm=norm)), part=part)


def _muon(expected: bool, **options: Any) -> ExpectedNorm:
    return ExpectedNorm("spectral", lambda _: normalized(muon(_shrinking(0.3), **options), norm="spectral"), expected)


WAYS: dict[str, ExpectedNorm] = {
    "normalised GD": ExpectedNorm("frobenius", cache(lambda _: normalized_gradient_descent(_growing(1.0)))),
    "mirror, p = 1.5": _mirror(1.5, 1.0),
    "mirror, p = 1.75": _mirror(1.75, 1.0),
    "mirror, p = 3": _mirror(3.0, 1.5),
    "sign": _steepest("linf", 0.1),
    # epsilon only avoids 0/0 for an entry whose gradient was always zero
    "Adam": ExpectedNorm("linf", lambda _: normalized(optax.adam(_shrinking(0.4), eps=1e-30), norm="linf")),
    "coordinate": _steepest("l1", 1.0),
    "spectral": _steepest("spectral", 1.0),
    "Muon, converged": _muon(True, **CONVERGED),
    "Muon": _muon(False),
    # it converges sooner than spectral descent, and a step takes as long
    "Schatten 1.5": _steepest("schatten1.5", 1.0, part=0.25),
    "rows, ℓ2,1": _steepest("l2,1", 1.0),
    "rows, ℓ∞,2": _steepest("linf,2", 1.0),
    "(K, Q)": ExpectedNorm("nuclear", partial(limit_optimizer, "factored"), attention="factored"),
}
"""Every optimiser by its name. With default settings Muon's Newton-Schulz iteration stops far from the polar factor."""


def problems(n: int, T: int, d: int, seeds: int, seed: int = 0) -> Problem:
    """``random_problem`` of several seeds, from ``seed`` on, as one batch."""
    return stack_problems(random_problem(n, T, d, seed + i) for i in range(seeds))


def start(attention: str, problem: Problem) -> Any:
    """Entries N(0, 1/d) of W, or of K and Q."""
    d = problem.dim
    generator = np.random.default_rng(0)
    drawn = [generator.standard_normal((*problem.batch_shape, d, d)) / np.sqrt(d) for _ in range(2)]
    return tuple(drawn) if attention == "factored" else drawn[0]


def _ratios(name: str, steps: int, n: int, T: int, d: int, seeds: int, seed: int) -> Arrays:
    """Margin ratio of the trained weights in each norm, (seeds, norms)."""
    way, problem = WAYS[name], problems(n, T, d, seeds, seed)
    steps = round(way.part * steps)
    run = train(
        problem,
        attention=way.attention,
        optimizer=way.decaying(steps),
        steps=steps,
        init=start(way.attention, problem),
        record=1,
    )
    least = [[least_norm(norm, n, T, d, seed + i, tuple(run.selected[i])) for i in range(seeds)] for norm in NORMS]
    margins = [margin(problem, run.weights, run.selected, norm) for norm in NORMS]
    return {"ratio": np.transpose(np.asarray(margins) * np.asarray(least)), "decided": ~undecided(run.probability)}


@cache
def least_norm(norm: str, n: int, T: int, d: int, seed: int, selected: tuple[int, ...]) -> float:
    """The least norm of one problem; most optimisers select the same tokens."""
    solution = solve_svm(random_problem(n, T, d, seed), np.array(selected), norm)
    return float(solution.value) if solution.status == Status.OPTIMAL else np.nan


def _own(names: list[str], ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each optimiser's ratio in its own norm, and its largest ratio in another norm, (optimisers, seeds)."""
    return own_and_largest_other(ratio, np.array([NORMS.index(WAYS[name].norm) for name in names]))


class OptimizerNorms(Figure):
    name = "optimizer-norms"
    paper = Paper.OURS
    order = 3
    title = "Which optimiser converges to which Att-SVM"
    seconds = 120
    claim = (
        "Each optimiser converges to the Att-SVM in its own norm (framed), including cases that no theorem covers. "
        "These are ℓ∞ for sign descent and Adam, ℓ1 for coordinate descent, and the spectral norm for spectral descent "
        "and Muon. Steepest descent is also shown in the Schatten-1.5 norm and in the group norms of the rows, ℓ2,1 "
        "and ℓ∞,2. Muon with its default settings, whose Newton-Schulz iteration stops early, is shown next to the "
        "converged one without a claim (dashed). (Mean margin ratio over the seeds; steps that decay relative to the "
        "weights.)"
    )
    criterion = (
        "For every optimiser except Muon with default settings: on every seed the margin ratio is larger in its own "
        "norm than in any other, and its mean is above the stated one. All runs are decided and no ratio exceeds 1."
    )
    full: ClassVar[Sizes] = {
        "optimizers": list(WAYS),
        "n": 6,
        "T": 8,
        "d": 10,
        "seeds": 20,
        "seed": 0,
        "steps": 50_000,
        "mean_above": 0.98,
    }
    quick: ClassVar[Sizes] = {
        **full,
        "optimizers": ["sign", "coordinate"],
        "seeds": 4,
        "steps": 8000,
        "mean_above": 0.9,
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shape = [sizes[name] for name in ("n", "T", "d", "seeds", "seed")]
        return stacked(each(piece, sizes["optimizers"], _ratios, sizes["steps"], *shape).values())

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        names = sizes["optimizers"]
        expected = np.array([WAYS[name].expected for name in names])
        of_own, others = _own(names, found["ratio"])
        ahead = of_own > others
        passed = {
            "on some seed the margin ratio is larger in another norm than in the optimiser's own": ahead[
                expected
            ].all(),
            "a mean margin ratio in an optimiser's own norm is too small": (
                of_own[expected].mean(axis=1) > sizes["mean_above"]
            ).all(),
            "a run is undecided": found["decided"].all(),
            "a margin ratio exceeds 1": found["ratio"].max() <= 1 + 1e-8,
        }
        behind = [
            f"{name} on seeds {', '.join(map(str, sizes['seed'] + np.flatnonzero(~row)))}"
            for name, row in zip(names, ahead, strict=True)
            if not row.all()
        ]
        lowest = of_own[expected].mean(axis=1).min()
        where = f"It is smaller than in another norm for {'; '.join(behind)}."
        return verdict(
            passed,
            f"The smallest mean margin ratio of an optimiser in its own norm is {lowest:.4f}. "
            + (where if behind else "On every seed the own norm has the largest ratio."),
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        names = sizes["optimizers"]
        of_own, others = _own(names, found["ratio"])
        return [
            Row(
                f"{name}, {WAYS[name].norm}",
                f"{in_own.mean():.4f}, smallest {in_own.min():.4f}; best other norm {other.mean():.4f}",
            )
            for name, in_own, other in zip(names, of_own, others, strict=True)
        ]

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        names = sizes["optimizers"]
        places = [NORMS.index(WAYS[name].norm) for name in names]
        claimed = [WAYS[name].expected for name in names]
        return drawn_matrix(names, list(LABELS.values()), found["ratio"].mean(axis=1), places, claimed)


FIGURES.register(OptimizerNorms.name, OptimizerNorms())
