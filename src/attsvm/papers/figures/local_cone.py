"""Runs that start on the border of the computed cone around a locally optimal direction, and below its radius."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.errors import ProblemError
from attsvm.measures import direction_error
from attsvm.optimizers import normalized_gradient_descent
from attsvm.papers.drawing import label, panels, set_axes, shape_lines
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import numbers, pooled
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.selection import is_locally_optimal, optimal_tokens
from attsvm.svm import solve_svm
from attsvm.theory import Conditions, local_convergence_conditions
from attsvm.training import train

EVERY = 30
"""The first steps, of which each is checked."""
ROUNDING = 1e-12
"""Of a correlation."""


def _locally_optimal(problem: Problem, generator: np.random.Generator, tries: int = 30) -> np.ndarray:
    """A locally optimal selection other than the optimal tokens if a few tries find one, else the optimal tokens."""
    best = optimal_tokens(problem)
    for _ in range(tries):
        selected = generator.integers(problem.num_tokens, size=best.shape)
        solution = solve_svm(problem, selected)
        feasible = np.isfinite(solution.value)
        if feasible and (selected != best).any() and is_locally_optimal(problem, selected, solution.support):
            return np.asarray(selected)
    return best


def _border(cone: Conditions, count: int, generator: np.random.Generator) -> np.ndarray:
    """Weights on the border of the cone, of the length of its radius, in random directions."""
    axis = cone.solution.direction / cone.solution.value
    away = generator.standard_normal((count, *axis.shape))
    away -= np.sum(away * axis, axis=(-2, -1), keepdims=True) * axis
    away /= np.sqrt(np.sum(away**2, axis=(-2, -1), keepdims=True))
    c = 1 - float(cone.opening)
    return np.asarray(cone.radius * (c * axis + np.sqrt(1 - c * c) * away))


def _left(problem: Problem, cone: Conditions, start: np.ndarray, steps: int) -> tuple[np.ndarray, ...]:
    """Whether a recorded point is outside the cone or nearer to zero than the start, and the errors of both ends."""
    log_spaced = np.unique(np.geomspace(EVERY, steps, 60).astype(int))
    record = [*range(EVERY), *(int(k) for k in log_spaced)]
    rule = normalized_gradient_descent(float(cone.longest_step))
    run = train(problem, init=start, steps=steps, optimizer=rule, record=record)
    path = run.history["weights"]
    errors = np.asarray(direction_error(path, cone.solution.direction, axis=(-2, -1)))
    sizes = np.sqrt(np.sum(path**2, axis=(-2, -1)))
    outside = (errors > cone.opening + ROUNDING) | (sizes < sizes[0] * (1 - ROUNDING))
    return outside.any(axis=0), errors[0], errors[-1], run.selected


def _runs(n: int, T: int, d: int, sizes: Sizes) -> Arrays:
    problems, starts, steps = (sizes[name] for name in ("problems", "starts", "steps"))
    generator = np.random.default_rng(sizes["seed"])
    drawn = random_problem(n, T, d, sizes["seed"], batch=(problems,))
    arrays: dict[str, list[np.ndarray]] = {key: [] for key in ("left", "below", "opening", "radius", "step", "ratio")}
    arrays |= {"optimal": [], "elsewhere": []}
    for i in range(problems):
        problem = drawn[i]
        selected = _locally_optimal(problem, generator)
        cone = local_convergence_conditions(problem, selected)
        if not cone.holds:
            raise ProblemError(f"problem {i}: expected a cone around a locally optimal selection")
        start = _border(cone, starts, generator)
        left, first, last, ends = _left(problem, cone, start, steps)
        few = max(10, starts // 10)
        below = [
            [x.mean() for x in (outside, (kept != selected).any(axis=-1))]
            for factor in sizes["factors"]
            for outside, _, _, kept in [_left(problem, cone, factor * start[:few], steps)]
        ]
        found = {
            "left": left,
            "elsewhere": (ends != selected).any(axis=-1),
            "below": np.array(below),
            "opening": np.asarray(cone.opening),
            "radius": np.asarray(cone.radius),
            "step": np.asarray(cone.longest_step),
            "ratio": np.median(last / first),
            "optimal": np.asarray((selected == optimal_tokens(problem)).all()),
        }
        for key, value in found.items():
            arrays[key].append(value)
    return {key: np.stack(values) for key, values in arrays.items()}


class LocalCone(Figure):
    name = "local-cone"
    paper = Paper.TOKEN_SELECTION
    order = 2.5
    title = "The cone that gradient descent does not leave"
    seconds = 30
    claim = (
        "Around the Att-SVM direction of every locally optimal selection there is a cone that gradient descent does "
        "not leave, and in which it converges to that direction. The data determine its opening and its radius. (Share "
        "of the starts on the border of the cone that leave it, and share that end at other tokens, against the norm "
        "of the start divided by the computed radius.)"
    )
    criterion = (
        "No run that starts on the border of the cone, at the computed radius, leaves it or ends at other tokens. In "
        "the median of all problems the direction error has decreased by the end. Of the starts at the smallest norm, "
        "at least one in twenty leaves."
    )
    descending: ClassVar = ("factors",)
    full: ClassVar[Sizes] = {
        "shapes": [[2, 3, 4], [3, 4, 4]],
        "problems": 50,
        "starts": 100,
        "steps": 1000,
        "factors": [0.5, 0.25, 0.1, 0.05, 0.02, 0.01],
        "seed": 0,
    }
    quick: ClassVar[Sizes] = {
        **full,
        "shapes": [[2, 3, 4]],
        "problems": 10,
        "starts": 10,
        "steps": 300,
        "factors": [0.1, 0.01],
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shapes, own = sizes["shapes"], dict(sizes)
        return joined({label(n, T): piece(f"n{n}-T{T}-d{d}", _runs, n, T, d, own) for n, T, d in shapes})

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        names = [label(*shape) for shape in sizes["shapes"]]
        left, elsewhere = (pooled(found, key, names) for key in ("left", "elsewhere"))
        lost = np.concatenate([found[f"below {name}"][:, -1, 0] for name in names])
        passed = {
            "a run leaves the cone": not left.any(),
            "a run that starts in the cone ends at other tokens": not elsewhere.any(),
            "the direction error does not decrease": np.median(pooled(found, "ratio", names)) < 1,
            "from the smallest norm fewer than one start in twenty leaves": lost.mean() >= 0.05,
        }
        return verdict(
            passed,
            f"{int(left.sum())} of {left.size:,} runs leave the cone, and {int(elsewhere.sum())} end at other tokens. "
            f"From {sizes['factors'][-1]:g} of the radius {lost.mean():.0%} leave.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for n, T, d in sizes["shapes"]:
            of = f"n = {n}, T = {T}, d = {d}"
            for key, summary in (("opening", "opening"), ("radius", "radius"), ("step", "longest step")):
                values = found[f"{key} {label(n, T)}"]
                text = numbers((values.min(), np.median(values), values.max()), ", ")
                rows.append(Row(f"{of}: {summary}, smallest, median, largest", text))
            local = ~found[f"optimal {label(n, T)}"]
            rows.append(Row(f"{of}: selections other than the optimal tokens", f"{int(local.sum())} of {len(local)}"))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (top, bottom) = panels(3.8, 2)
        factors = [1.0, *sizes["factors"]]
        for name, line in shape_lines(sizes["shapes"]):
            below = found[f"below {name}"].mean(axis=0)
            top.plot(factors, [found[f"left {name}"].mean(), *below[:, 0]], **line, label=name)
            bottom.plot(factors, [found[f"elsewhere {name}"].mean(), *below[:, 1]], **line)
        for axis, what in ((top, "leaves the cone"), (bottom, "ends elsewhere")):
            set_axes(axis, y=f"share that {what}", log="x")
            axis.set_ylim(bottom=-0.02)
        bottom.set_xlabel("norm of the start / computed radius")
        figure.align_ylabels([top, bottom])
        style.legend_above(top, 2)
        return figure


FIGURES.register(LocalCone.name, LocalCone())
