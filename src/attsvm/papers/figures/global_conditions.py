"""Runs that meet every hypothesis of global convergence, and runs that break one."""

from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.optimizers import gradient_descent
from attsvm.papers.drawing import label, panels, set_axes, shape_lines
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import pooled
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm
from attsvm.theory import global_convergence_conditions, lipschitz_constant
from attsvm.training import train

SCORE_GAP = 0.05
"""The two best scores of a query differ by at least this; the time to converge grows with its inverse."""
NEAR = 0.99
"""Runs whose excess loss is between this and 1 satisfy the theorem, too, but can take millions of steps."""
BINS = np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, np.inf])
"""Of the excess loss at the start."""


def _unit(matrices: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = matrices / np.sqrt(np.sum(matrices**2, axis=(-2, -1), keepdims=True))
    return scaled


def _problems(n: int, T: int, d: int, count: int, seed: int) -> Problem:
    """Random problems, their queries scaled so that the Lipschitz constant of each is 1."""
    drawn = random_problem(n, T, d, seed, batch=(4 * count,))
    found = global_convergence_conditions(drawn)
    drawn = drawn[np.flatnonzero(found.feasible & (found.score_gap >= SCORE_GAP))[:count]]
    assert drawn.queries is not None
    scale = np.sqrt(lipschitz_constant(drawn))
    return Problem(drawn.tokens, drawn.labels, drawn.queries / scale[..., None, None], drawn.head)


def _starts(problem: Problem, count: int, seed: int) -> np.ndarray:
    """Weights of norms from 1 to 300, from the direction of the optimal tokens to any direction."""
    rng = np.random.default_rng(seed)
    direction = _unit(solve_svm(problem, optimal_tokens(problem)).direction)
    lead = (count, *problem.batch_shape, 1, 1)
    noise = _unit(rng.standard_normal((count, *direction.shape)))
    size = np.exp(rng.uniform(0.0, np.log(300.0), lead))
    return np.asarray(size * _unit(direction + rng.uniform(0.0, 2.0, lead) * noise))


def _astray(problem: Problem, start: np.ndarray, rate: float, steps: int) -> np.ndarray:
    """Whether a query does not select its optimal token after a number of steps of gradient descent."""
    run = train(problem, init=start, steps=steps, optimizer=gradient_descent(rate), record=1)
    return np.asarray((run.selected != optimal_tokens(problem)).any(axis=-1))


def _runs(n: int, T: int, d: int, sizes: Sizes) -> Arrays:
    starts, steps, seed = (sizes[name] for name in ("starts", "steps", "seed"))
    problem = _problems(n, T, d, sizes["problems"], seed)
    start = _starts(problem, starts, seed + 1)
    found = global_convergence_conditions(problem, start, optimizer=gradient_descent(1.0 - 1e-9))
    excess = np.asarray(found.excess_loss)
    run = train(problem, init=start, steps=steps, optimizer=gradient_descent(1.0), record=1)
    astray = np.asarray((run.selected != optimal_tokens(problem)).any(axis=-1))
    late = astray & found.holds & (excess <= NEAR)
    if late.any():
        astray[late] = _astray(problem[np.nonzero(late)[1]], run.weights[late], 1.0, sizes["further_steps"])
    above = np.asarray(global_convergence_conditions(problem, run.weights).excess_loss) >= 1
    few = slice(0, max(8, starts // 8))
    safe = excess[few] <= NEAR
    shares = [float(astray[few][safe].mean())]
    shares += [float(_astray(problem, start[few], float(m), steps)[safe].mean()) for m in sizes["multiples"][1:]]
    return {
        "holds": np.asarray(found.holds),
        "excess": excess,
        "astray": astray,
        "above": above,
        "shares": np.array(shares),
    }


def _exceptions(problems: list[list[int]], fractions: list[float], steps: int) -> Arrays:
    """From fractions of the starting size, at the largest rate: which hypotheses hold, and where the runs end."""
    holds, astray, radius = [], [], []
    for n, T, d, number in problems:
        problem = random_problem(n, T, d, seed=5, batch=(300,))[number]
        at_zero = global_convergence_conditions(problem)
        start = np.array(fractions)[:, None, None] * at_zero.start_radius * at_zero.descent
        optimizer = gradient_descent(float(at_zero.largest_rate))
        found = global_convergence_conditions(problem, start, optimizer=optimizer)
        holds.append(np.stack([np.broadcast_to(np.asarray(one.holds), len(fractions)) for one in found.hypotheses]))
        astray.append(_astray(problem, start, float(at_zero.largest_rate), steps))
        radius.append(at_zero.start_radius)
    return {"holds": np.stack(holds), "astray": np.stack(astray), "radius": np.array(radius)}


class GlobalConditions(Figure):
    name = "global-conditions"
    paper = Paper.TRANSFORMERS
    order = 4.5
    title = "Global convergence where every hypothesis holds"
    seconds = 30
    claim = (
        "Gradient descent on W converges to the optimal tokens if they are feasible, if the step is at most 1/L, and "
        "if the loss at the start is below a level that follows from the data. (Top: share of runs that do not end at "
        "the optimal tokens, against the excess loss at the start divided by that level; starts less than 1% below the "
        "level are left out. Bottom: the same share against the step, for starts below the level.)"
    )
    criterion = (
        "No run that meets every hypothesis ends elsewhere: none rises above the level, and all that start at 0.99 of "
        "the level or below select the optimal tokens. Of the runs that start above 10 levels, at least one in ten "
        "ends elsewhere. On some problems the first gradient favours the optimal tokens, but runs from zero end "
        "elsewhere. They also do so with steps 1/L, and they end at the optimal tokens from the computed starting "
        "size. From zero, the start is the only hypothesis that they break."
    )
    ascending: ClassVar = ("multiples", "fractions")
    full: ClassVar[Sizes] = {
        "shapes": [[3, 4, 4], [2, 5, 4]],
        "problems": 200,
        "starts": 64,
        "steps": 1000,
        "further_steps": 100_000,
        "at_least": 10_000,
        "multiples": [1, 10, 100, 1000, 10_000],
        "exceptions": [[3, 4, 4, 87], [2, 5, 4, 199]],
        "fractions": [0.0, 0.01, 0.03, 0.1, 0.3, 1.01],
        "steps_of_exceptions": 100_000,
        "seed": 11,
    }
    quick: ClassVar[Sizes] = {
        **full,
        "shapes": [[3, 4, 4]],
        "problems": 70,
        "starts": 8,
        "further_steps": 10_000,
        "at_least": 150,
        "multiples": [1, 1000],
        "exceptions": [[3, 4, 4, 87]],
        "steps_of_exceptions": 20_000,
    }

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        shapes, own = sizes["shapes"], dict(sizes)
        found = {label(n, T): piece(f"runs-n{n}-T{T}-d{d}", _runs, n, T, d, own) for n, T, d in shapes}
        found["exceptions"] = piece(
            "exceptions", _exceptions, sizes["exceptions"], sizes["fractions"], sizes["steps_of_exceptions"]
        )
        return joined(found)

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        names = [label(*shape) for shape in sizes["shapes"]]
        holds, excess, astray, above = (pooled(found, key, names) for key in ("holds", "excess", "astray", "above"))
        safe = holds & (excess <= NEAR)
        elsewhere = int((above & holds).sum() + (astray & safe & ~above).sum())
        far = excess > 10
        of_start = found["holds exceptions"][:, 3, 0]
        others = np.delete(found["holds exceptions"][:, :, 0], 3, axis=1)
        ends = found["astray exceptions"]
        passed = {
            "a run that meets every hypothesis ends elsewhere": elsewhere == 0,
            f"fewer than {sizes['at_least']:,} runs meet every hypothesis": holds.sum() >= sizes["at_least"],
            "of the starts above 10 levels, fewer than one in ten ends elsewhere": astray[far].mean() >= 0.1,
            "an exception breaks another hypothesis than the start, or none": others.all() and not of_start.any(),
            "an exception ends at the optimal tokens from zero": ends[:, 0].all(),
            "an exception ends elsewhere from the starting size": not ends[:, -1].any()
            and found["holds exceptions"][:, :, -1].all(),
        }
        unfinished = int((astray & holds & (excess > NEAR) & ~above).sum())
        return verdict(
            passed,
            f"{elsewhere} of {int(holds.sum()):,} runs that meet every hypothesis end elsewhere; {unfinished} that "
            f"start within 1% of the level have not finished. Of the {int(far.sum()):,} starts above 10 levels "
            f"{astray[far].mean():.0%} end elsewhere.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for n, T, d in sizes["shapes"]:
            holds, astray = (found[f"{key} {label(n, T)}"] for key in ("holds", "astray"))
            of = f"n = {n}, T = {T}, d = {d}"
            rows.append(Row(f"{of}: runs that meet every hypothesis", f"{int(holds.sum()):,}"))
            rows.append(Row(f"{of}: of the others, share that ends elsewhere", f"{astray[~holds].mean():.1%}"))
        for i, (n, T, d, number) in enumerate(sizes["exceptions"]):
            ends = zip(sizes["fractions"], found["astray exceptions"][i], strict=True)
            good = [f"{fraction:g}" for fraction, elsewhere in ends if not elsewhere]
            exception = f"exception n = {n}, T = {T}, d = {d}, problem {number}"
            rows.append(Row(f"{exception}: starting size R", f"{found['radius exceptions'][i]:.0f}"))
            rows.append(Row("the same: ends at the optimal tokens from these parts of R", ", ".join(good) or "none"))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (top, bottom) = panels(4.0, 2)
        places = np.arange(len(BINS) - 1)
        for name, line in shape_lines(sizes["shapes"]):
            excess = found[f"excess {name}"]
            inside = np.where((excess > NEAR) & (excess < 1), -1, np.digitize(excess, BINS) - 1)
            astray = found[f"astray {name}"]
            shares = [astray[inside == k].mean() if (inside == k).any() else np.nan for k in places]
            top.plot(places, shares, **line, label=name)
            bottom.plot(sizes["multiples"], found[f"shares {name}"], **line)
        level = float(np.flatnonzero(BINS == 1.0)[0]) - 0.5
        top.axvline(level, color=style.INK, linewidth=0.8, linestyle=":")
        top.set_xticks(np.arange(1, len(BINS) - 1) - 0.5, [f"{edge:g}" for edge in BINS[1:-1]])
        set_axes(top, "excess loss at the start / level", "not at optimal tokens")
        set_axes(bottom, "step × L", "not at optimal tokens", log="x")
        bottom.axvline(1.0, color=style.INK, linewidth=0.8, linestyle=":")
        for axis in (top, bottom):
            axis.set_ylim(bottom=-0.02)
        figure.align_ylabels([top, bottom])
        style.legend_above(top, 2)
        return figure


FIGURES.register(GlobalConditions.name, GlobalConditions())
