"""W and the factors (K, Q) in the plane: W converges to the Frobenius direction, (K, Q) to the nuclear one."""

from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import SubFigure

from attsvm.measures import direction_error
from attsvm.norms import Lp
from attsvm.pages import number
from attsvm.papers.drawing import Recorded, draw_rings, longest, ring_steps
from attsvm.papers.examples import in_the_plane
from attsvm.papers.figure import Arrays, Paper, Piece, Row, Sizes, joined
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import numbers, pooled, undecided, with_names
from attsvm.papers.queries import CrossAndSelf, Judged
from attsvm.papers.schedules import limit_optimizer
from attsvm.plot import DATA, style
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm
from attsvm.training import train

NORMS = {"combined": "frobenius", "factored": "nuclear"}
NAMES = {"combined": "W", "factored": "(K, Q)"}
QUERY_COLOURS = (style.VERMILLION, style.BLUE)

MOST_RADIUS = 12.0
"""Radius at which the drawn paths end: the logarithm of ‖W‖ = 160,000."""


def _starts(attention: str, number: int, seed: int) -> dict[str, np.ndarray]:
    """The published start (W or Q zero, K small), and further small random ones."""
    draws = 0.1 * np.random.default_rng(seed).standard_normal((2, number, 2, 2))
    draws[1, 0] = 0.0
    return {"W": draws[1]} if attention == "combined" else {"K": draws[0], "Q": draws[1]}


def _paths(attention: str, num_tokens: int, starts: int, seed: int, steps: int, self_attention: bool) -> Arrays:
    problem = in_the_plane(num_tokens, self_attention)
    best = optimal_tokens(problem)
    optimizer = limit_optimizer(attention, steps)
    init = _starts(attention, starts, seed)
    run = train(problem, attention=attention, steps=steps, init=init, record=150, optimizer=optimizer)
    directions = np.stack([solve_svm(problem, best, norm).direction for norm in NORMS.values()])
    weights = run.history["weights"][1:]
    assert problem.queries is not None
    mapped = np.einsum("...de,ne->...nd", weights, problem.queries)
    # the direction settles over many decades of ‖W‖, which only their logarithm shows
    norms = Lp(2.0).values(weights, 2)[..., None, None]
    return {
        "steps": run.history["steps"][1:],
        "paths": mapped / norms * np.log1p(norms),
        "rays": np.einsum("sde,ne->snd", directions, problem.queries),
        "errors": np.stack([direction_error(weights, ray, axis=(-2, -1)) for ray in directions]),
        "at_best": (run.selected == best).all(axis=-1),
        "undecided": undecided(run.probability),
        "apart": np.asarray(direction_error(*directions)),
    }


def _shown(found: Arrays, name: str) -> np.ndarray:
    return np.array(np.linalg.norm(found[f"paths {name}"], axis=-1).max(axis=(1, 2)) <= MOST_RADIUS)


def _draw_plane(
    axis: Axes, tokens: np.ndarray, best: np.ndarray, recorded: tuple[np.ndarray, np.ndarray], rays: np.ndarray
) -> list[Recorded]:
    """Draw the paths (R, starts, queries, 2) at steps (R,), and return them as they are drawn."""
    reach = 1.1 * np.abs(tokens).max()
    steps, paths = recorded
    paths = paths * reach / np.linalg.norm(paths, axis=-1).max()
    for i, colour in enumerate(QUERY_COLOURS):
        others = np.delete(tokens[i], best[i], axis=0)
        axis.plot(*others.T, "o" if i == 0 else "s", color=colour, markersize=2.5, alpha=0.55, linestyle="none")
        axis.plot(*tokens[i, best[i]], "*", color=colour, markersize=6.5, linestyle="none")
        for ray, dashes in zip(rays, ((0, (5, 2)), (0, (1, 1.2))), strict=True):
            end = ray[i] / np.linalg.norm(ray[i]) * 1.25 * reach
            axis.plot([0, end[0]], [0, end[1]], color=style.INK, linestyle=dashes, linewidth=0.9)
        for start in range(paths.shape[1]):
            axis.plot(*paths[:, start, i].T, color=colour, linewidth=1.1)
    axis.set_xlim(-1.3 * reach, 1.3 * reach)
    axis.set_ylim(-1.3 * reach, 1.3 * reach)
    axis.set_aspect("equal")
    return [(steps, path) for of_start in np.moveaxis(paths, 0, -2) for path in of_start]


class FactoredPaths(CrossAndSelf):
    name = "factored-paths"
    paper = Paper.TRANSFORMERS
    order = 1
    title = "W and (K, Q) in the plane: two parametrisations, two directions"
    seconds = 10
    claim = (
        "Training W converges to the Frobenius Att-SVM; training its factors K and Q converges to the nuclear one. "
        "(Vermilion, round tokens: Wz₁. Blue, square tokens: Wz₂. The radius is log(1 + ‖W‖), stars are the optimal "
        "tokens, and rings mark the ends of the paths. Rays: the Frobenius direction, dashed, and the nuclear one, "
        "dotted, applied to the same query.)"
    )
    criterion = (
        "Every start is decided and selects the optimal tokens. W ends within the stated direction error of the "
        "Frobenius solution, (K, Q) ends within it of the nuclear solution, and each ends closer to its own "
        "solution than to the other. (K, Q) take steps relative to their joint norm."
    )
    full: ClassVar[Sizes] = {
        "T": [3, 5],
        "starts": 4,
        "steps": {"combined": 20_000, "factored": 80_000},
        "seed": 0,
        "error_below": 1e-5,
        "queries": {"cross": {}, "self": {}},
    }
    quick: ClassVar[Sizes] = {
        **full,
        "T": [5],
        "starts": 2,
        "steps": {"combined": 5_000, "factored": 20_000},
        "error_below": 1e-3,
    }

    def measure_one(self, sizes: Sizes, self_attention: bool, piece: Piece) -> Arrays:
        found = {}
        for T in sizes["T"]:
            for attention, steps in sizes["steps"].items():
                arguments = (attention, T, sizes["starts"], sizes["seed"], steps, self_attention)
                found[f"{attention} {T}"] = piece(f"{attention}-T{T}", _paths, *arguments)
        return joined(found)

    def judge_one(self, sizes: Sizes, found: Arrays) -> Judged:
        cases = [(attention, T) for attention in NORMS for T in sizes["T"]]
        own = {attention: list(NORMS).index(attention) for attention in NORMS}
        last = {case: found[f"errors {case[0]} {case[1]}"][:, -1] for case in cases}
        ends = {name: max(last[name, T][own[name]].max() for T in sizes["T"]) for name in NORMS}
        passed = {
            f"{NAMES[name]} does not end at the {norm} direction": ends[name] < sizes["error_below"]
            for name, norm in NORMS.items()
        }
        passed["a path ends closer to the other norm's direction"] = all(
            (last[name, T][own[name]] < last[name, T][1 - own[name]]).all() for name, T in cases
        )
        of_cases = [f"{name} {T}" for name, T in cases]
        passed["a run does not select the optimal tokens"] = pooled(found, "at_best", of_cases).all()
        passed["a run is undecided"] = not pooled(found, "undecided", of_cases).any()
        summary = with_names({NAMES[name]: error for name, error in ends.items()})
        return Judged(passed, f"Largest direction error at the end, to the solution of its own norm: {summary}.")

    def rows_one(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for T in sizes["T"]:
            apart = float(found[f"apart combined {T}"])
            rows.append(Row(f"T = {T}: direction error between the two solutions", number(apart)))
            for name in NORMS:
                errors = numbers(found[f"errors {name} {T}"][:, -1].max(axis=1))
                rows.append(Row(f"T = {T}, {NAMES[name]}: to the Frobenius / nuclear direction", errors))
        return rows

    def height(self, sizes: Sizes) -> float:
        return 1.62 * len(sizes["T"]) + 0.25

    def draw_one(self, figure: Drawing | SubFigure, sizes: Sizes, found: Arrays) -> None:
        axes = figure.subplots(len(sizes["T"]), 2, sharex="row", sharey="row", squeeze=False, subplot_kw=DATA)
        drawn: list[tuple[Axes, list[Recorded]]] = []
        for row, T in zip(axes, sizes["T"], strict=True):
            problem = in_the_plane(T)
            best = optimal_tokens(problem)
            for axis, name in zip(row, NORMS, strict=True):
                shown = _shown(found, f"{name} {T}")
                recorded = found[f"steps {name} {T}"][shown], found[f"paths {name} {T}"][shown]
                drawn.append((axis, _draw_plane(axis, problem.tokens, best, recorded, found[f"rays {name} {T}"])))
                axis.set_title(f"{NAMES[name]}, T = {T}")
        # all records, so that both kinds of queries have the same steps
        steps = ring_steps(longest([found[f"steps {name} {sizes['T'][0]}"] for name in NORMS]))
        for axis, paths in drawn:
            draw_rings(axis, paths, steps)


FIGURES.register(FactoredPaths.name, FactoredPaths())
