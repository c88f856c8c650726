"""Regularisation paths under nonlinear heads, where the condition of the theorem holds and where it fails."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.heads import MLP, FunctionHead, Head, Quadratic
from attsvm.measures import direction_error
from attsvm.optimizers import normalized_gradient_descent
from attsvm.pages import number
from attsvm.papers.drawing import GREY, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, stacked, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import median_of
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.regularization import regularization_path
from attsvm.svm import solve_svm
from attsvm.theory import mixture_conditions
from attsvm.training import train

RADII = np.array([1.0, 10.0, 100.0, 1e3, 1e4])
"""As multiples of the value of the Att-SVM of the optimal tokens."""
OPTIMIZER = normalized_gradient_descent()
"""One object, so that all runs share their compiled steps."""


def _tanh(parameters: dict[str, Any], pooled: Any) -> Any:
    return 2 * jnp.tanh(pooled @ parameters["w"])


def _mlp(activation: Any) -> Callable[[int, int], Head]:
    return lambda d, seed: MLP.random(2 * d, d, activation=activation, seed=seed)


def _own(d: int, seed: int) -> Head:
    w = np.random.default_rng(seed).standard_normal(d)
    return FunctionHead(_tanh, {"w": w / np.linalg.norm(w)}, defined_everywhere=True)


HEADS: dict[str, Callable[[int, int], Head]] = {
    "quadratic": lambda d, seed: Quadratic(0.2),
    "GELU": _mlp("gelu"),
    "ReLU": _mlp("relu"),
    "tanh": _own,
}
SMOOTH = ("quadratic", "GELU", "tanh")
"""Heads without kinks."""
LINES = ((style.BLUE, "-", "o"), (style.GREEN, "-.", "^"), (style.VERMILLION, "--", "s"), (style.PURPLE, ":", "D"))


def _one(problem: Problem, head: Head, steps: int) -> Arrays:
    """Condition, path and run of one problem."""
    condition = mixture_conditions(problem, head)
    run = train(problem, head=head, steps=steps, record=2, optimizer=OPTIMIZER)
    length = float(np.linalg.norm(run.weights))
    radii = RADII * condition.solution.value
    # the path at the norm of the run, too
    both = np.union1d(radii, length)
    path = regularization_path(problem, both, head=head)
    assert path.kept is not None
    here, own = np.searchsorted(both, length), np.searchsorted(both, radii)
    single = solve_svm(problem, path.selected[-1])
    weights = path.weights[own]
    return {
        "constants": condition.constants,
        "kept": path.kept[-1].sum(axis=-1),
        "optimal": np.asarray((path.selected[-1] == condition.selected).all()),
        "solved": path.solved[own],
        "to kept": path.direction_errors[own],
        "to single": np.asarray(direction_error(weights, single.direction, axis=(-2, -1))),
        "to optimal": np.asarray(direction_error(weights, condition.solution.direction, axis=(-2, -1))),
        "run to path": np.asarray(direction_error(run.weights, path.weights[here])),
    }


def _head(name: str, sizes: Sizes) -> Arrays:
    found = []
    for seed in range(sizes["seed"], sizes["seed"] + sizes["problems"]):
        problem = random_problem(sizes["n"], sizes["T"], sizes["d"], seed)
        found.append(_one(problem, HEADS[name](sizes["d"], seed), sizes["steps"]))
    return stacked(found)


class NonlinearPath(Figure):
    name = "nonlinear-path"
    paper = Paper.TOKEN_SELECTION
    order = 5
    title = "Nonlinear prediction heads: the regularisation path"
    seconds = 45
    claim = (
        "Attention also maximises a margin with nonlinear prediction heads. If in each sequence one token has a better "
        "score than every mixture of tokens, by a margin proportional to the attention off that token, the "
        "regularisation path converges to the Att-SVM of these tokens. If a mixture has a better score, the path keeps "
        "several tokens, and converges to the Att-SVM of the kept sets. (Medians over random problems; left: the "
        "condition holds; right: it fails. Radii as multiples of the value of the Att-SVM of the optimal tokens.)"
    )
    criterion = (
        "On every problem on which the condition holds the path is solved, selects the optimal tokens and ends within "
        "the stated direction error of their Att-SVM. On every other problem with a head without kinks the path is "
        "solved, keeps several tokens in exactly those sequences in which a mixture is better, and ends within "
        "the stated direction error of the Att-SVM of the kept sets, but farther than 1e-4 from that of single tokens. "
        "Both cases occur."
    )
    full: ClassVar[Sizes] = {
        "n": 3,
        "T": 4,
        "d": 4,
        "problems": 4,
        "steps": 2_000,
        "seed": 0,
        "error_below": 1e-5,
        "heads": list(HEADS),
    }
    quick: ClassVar[Sizes] = {**full, "problems": 2, "steps": 1_000, "heads": ["GELU"]}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        return joined(each(piece, sizes["heads"], _head, dict(sizes)))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        heads = sizes["heads"]
        holds = {name: np.min(found[f"constants {name}"], axis=1) > 0 for name in heads}
        at_optimal = np.concatenate([found[f"to optimal {name}"][holds[name], -1] for name in heads])
        smooth = [name for name in heads if name in SMOOTH]
        at_kept = np.concatenate([found[f"to kept {name}"][~holds[name], -1] for name in smooth])
        at_single = np.concatenate([found[f"to single {name}"][~holds[name], -1] for name in smooth])
        passed = {
            "the condition holds on no problem, or on all": at_optimal.size > 0 and at_kept.size > 0,
            "a path is not solved where the condition holds": all(
                found[f"solved {name}"][holds[name], -1].all() for name in heads
            ),
            "a path does not select the optimal tokens where the condition holds": all(
                found[f"optimal {name}"][holds[name]].all() for name in heads
            ),
            "a path does not end at the Att-SVM of the optimal tokens": (at_optimal < sizes["error_below"]).all(),
            "a path is not solved where the condition fails": all(
                found[f"solved {name}"][~holds[name], -1].all() for name in smooth
            ),
            "several tokens are kept where no mixture is better, or one where a mixture is": all(
                ((found[f"kept {name}"] > 1) == (found[f"constants {name}"] < 0)).all() for name in smooth
            ),
            "a path does not end at the Att-SVM of the kept sets": (at_kept < sizes["error_below"]).all(),
            "a path with kept sets ends at the Att-SVM of single tokens": (at_single > 1e-4).all(),
        }
        return verdict(
            passed,
            f"The condition holds on {at_optimal.size} of {sizes['problems'] * len(heads)} problems; there "
            f"the largest direction error to the Att-SVM of the optimal tokens is {at_optimal.max(initial=0):.1e}. "
            f"Where it fails (prediction heads without kinks), the largest error to the Att-SVM of the kept sets is "
            f"{at_kept.max(initial=0):.1e}, the smallest to that of single tokens {at_single.min(initial=2):.1e}.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for name in sizes["heads"]:
            constants, solved = found[f"constants {name}"], found[f"solved {name}"][:, -1]
            holds = np.min(constants, axis=1) > 0
            where = f"{name}: problems on which the condition holds; its smallest constant there"
            smallest = number(float(constants[holds].min(initial=np.inf)))
            rows.append(Row(where, f"{holds.sum()} of {len(holds)}; {smallest}"))
            if not holds.all():
                rows.append(Row(f"{name}: paths solved where it fails", f"{solved[~holds].sum()} of {(~holds).sum()}"))
            apart = found[f"run to path {name}"]
            to_path = f"{name}: gradient descent of {sizes['steps']:,} steps to the path at equal norm"
            farther = f"{number(median_of(apart))}; {np.sum(apart > 0.1)} of {len(apart)}"
            rows.append(Row(f"{to_path}: median direction error; runs farther than 0.1", farther))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (left, right) = panels(2.5, 1, 2, sharex=True, sharey=True)
        for name, line in zip(HEADS, LINES, strict=True):
            if name not in sizes["heads"]:
                continue
            holds = np.min(found[f"constants {name}"], axis=1) > 0
            _draw(left, found[f"to optimal {name}"][holds], line, name)
            _draw(right, found[f"to kept {name}"][~holds & found[f"solved {name}"][:, -1]], line, None)
            if name in SMOOTH:
                _draw(right, found[f"to single {name}"][~holds], (GREY, line[1], line[2]), None)
        right.plot([], [], color=GREY, label="to single tokens")
        left.set_title("condition holds", pad=3)
        right.set_title("condition fails", pad=3)
        left.set_ylabel("direction error of the path")
        for axis in (left, right):
            set_axes(axis, "radius", log="xy")
            axis.set_xticks(RADII[::2])
        handles = [line for axis in (left, right) for line in axis.get_legend_handles_labels()[0]]
        figure.legend(handles=handles, loc="outside upper center", ncols=3, columnspacing=1.2)
        return figure


def _draw(axis: Axes, errors: np.ndarray, line: tuple[str, str, str], label: str | None) -> None:
    colour, dashes, mark = line
    if len(errors):
        middle = np.median(errors, axis=0)
        axis.plot(RADII, middle, linestyle=dashes, color=colour, marker=mark, markersize=3, label=label)


FIGURES.register(NonlinearPath.name, NonlinearPath())
