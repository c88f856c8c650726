"""The model ⟨Xv, softmax(XWp)⟩: where u = Wp goes when p, W, both, or v, W and p are trained."""

from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.measures import direction_error
from attsvm.optimizers import normalized_gradient_descent
from attsvm.pages import number
from attsvm.papers.drawing import LINES, outer_axes, panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Standing, Verdict, each, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.judging import median_of, pooled
from attsvm.papers.longer_steps import longer_steps
from attsvm.plot import style
from attsvm.problem import Problem
from attsvm.svm import solve_head, solve_svm
from attsvm.theory import classify, predict_direction
from attsvm.training import Run, train

FIXED: dict[str, tuple[str, ...]] = {"p": ("W",), "W": ("p",), "W and p": ()}
"""The trained parameters, and those that keep their initial values."""

LENGTH = 0.1
FASTER = {"head slower": ("plain", 0.0), "head faster": ("relaxed", 2.0)}
"""Ways to train v, W and p: the limit of u, and the power with which the steps of v grow.

‖Wp‖ grows like the square of the number of steps, ‖v‖ like its first or its third power.
"""

APART = 1e-2
"""The plain and the relaxed Att-SVM of a run are told apart if their directions differ by more than this."""


def _problems(sizes: list[int], seeds: int, seed: int) -> Problem:
    n, T, d = sizes
    return random_problem(n, T, d, seed=seed, batch=(seeds,), prompt=True)


def _errors(run: Run, direction: np.ndarray) -> np.ndarray:
    return np.asarray(direction_error(run.history["weights"][1:], direction, axis=-1))


def _attention(trained: str, sizes: list[int], seeds: int, seed: int, steps: int) -> Arrays:
    """Direction errors of u under a fixed head."""
    problem = _problems(sizes, seeds, seed)
    descent = normalized_gradient_descent(LENGTH)
    run = train(problem, attention="key_prompt", fixed=FIXED[trained], optimizer=descent, steps=steps, record=60)
    prediction = predict_direction(problem, run)
    assert prediction.direction is not None
    of_trained = run.parameters.get(trained, run.weights)
    own = tuple(range(1 - of_trained.ndim, 0))
    return {
        "steps": run.history["steps"][1:],
        "predicted": _errors(run, prediction.direction),
        # W = I would have this limit
        "ℓ2": _errors(run, solve_svm(problem, run.selected).direction),
        # of p, of W against u p'/‖p‖², and of u
        "parameter": np.asarray(direction_error(of_trained, prediction.solution.direction, axis=own)),
        "decided": np.asarray(classify(problem, run).kind) != "undecided",
    }


def _train_head(way: str, sizes: list[int], seeds: int, seed: int, steps: int) -> Arrays:
    """Direction errors of u and v, trained together."""
    problem = _problems(sizes, seeds, seed)
    optimizer = longer_steps(LENGTH, "v", FASTER[way][1])
    run = train(problem, attention="key_prompt", train_head=True, optimizer=optimizer, steps=steps, record=60)
    prediction = predict_direction(problem, run)
    head = solve_head(problem, run.selected)
    relaxed = solve_svm(problem, run.selected, relaxed=~head.support)
    plain = solve_svm(problem, run.selected)
    assert prediction.relaxed is not None
    return {
        "steps": run.history["steps"][1:],
        "plain": _errors(run, plain.direction),
        "relaxed": _errors(run, relaxed.direction),
        "head": np.asarray(direction_error(run.parameters["v"], head.direction, axis=-1)),
        "slack": (~head.support).any(axis=-1),
        "apart": np.asarray(direction_error(plain.direction, relaxed.direction, axis=-1)) > APART,
        "predicted_relaxed": prediction.relaxed.any(axis=-1),
        "decided": np.asarray(classify(problem, run).kind) != "undecided",
    }


class KeyPromptFigure(Figure):
    name = "key-prompt"
    paper = Paper.TOKEN_SELECTION
    order = 3.5
    title = "Key matrix, prompt and prediction head: ⟨Xv, softmax(XWp)⟩"
    seconds = 10
    claim = (
        "If W is fixed, training p takes u = Wp to the Att-SVM that minimises ‖W⁻¹u‖. If p is fixed, training W takes "
        "u to the ℓ2 Att-SVM, and W to u p'/‖p‖². Training W and p also takes u to the ℓ2 Att-SVM. If v is trained as "
        "well, it converges to the max-margin head. Then u converges to the ℓ2 Att-SVM if ‖u‖ grows faster than ‖v‖. "
        "If ‖v‖ grows faster, u comes close to the relaxed Att-SVM in most runs. (Medians and 10-90 % ranges. Top "
        "right: also the direction error of u to the ℓ2 Att-SVM. Bottom: runs in which a label has slack and the two "
        "Att-SVMs differ.)"
    )
    criterion = (
        "With a fixed prediction head, every run ends saturated and within the stated direction error of its "
        "prediction, for u and for the parameter that is trained alone. With W fixed, the median direction error to "
        "the ℓ2 Att-SVM is more than ten times that error. With v trained, the order of the radii is recognised. In at "
        "least a fifth of the runs, a label has slack and the two Att-SVMs differ. Of these, all (head slower) or more "
        "than half (head faster) end closer to the predicted Att-SVM than to the other one; the median is within the "
        "stated error and ten times closer. v ends within that error in the median."
    )
    full: ClassVar[Sizes] = {
        "n, T, d": [5, 4, 10],
        "fixed head": list(FIXED),
        "seeds": 20,
        "seed": 0,
        "steps": 20_000,
        "error_below": 1e-3,
        "with_head_below": 1e-2,
    }
    quick: ClassVar[Sizes] = {**full, "fixed head": ["p", "W"], "seeds": 12, "steps": 4_000, "error_below": 1e-2}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        arguments = (sizes["n, T, d"], sizes["seeds"], sizes["seed"], sizes["steps"])
        fixed_head = each(piece, sizes["fixed head"], _attention, *arguments)
        return joined(fixed_head | each(piece, FASTER, _train_head, *arguments))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        below, with_head = sizes["error_below"], sizes["with_head_below"]
        if any(found[f"apart {name}"].mean() < 0.2 for name in FASTER):
            return Verdict(Standing.FAILS, "Too few runs have a label with slack and two Att-SVMs that differ.")
        ways = sizes["fixed head"]
        ends = {name: float(found[f"predicted {name}"][-1].max()) for name in ways}
        control = median_of(found["ℓ2 p"][-1])
        sides = {name: _sides(found, name) for name in FASTER}
        medians = {name: (median_of(right), median_of(wrong)) for name, (right, wrong) in sides.items()}
        closer = {name: right < wrong for name, (right, wrong) in sides.items()}
        recognised = [
            found[f"predicted_relaxed {name}"] == (found[f"slack {name}"] & (limit == "relaxed"))
            for name, (limit, _) in FASTER.items()
        ]
        passed = {
            "a run with a fixed prediction head does not end saturated": pooled(found, "decided", ways).all(),
            "u does not end at its Att-SVM": max(ends.values()) < below,
            "the parameter that is trained alone does not end where predicted": all(
                found[f"parameter {name}"].max() < below for name in ways
            ),
            "with W fixed, the ℓ2 Att-SVM is close, too": control > 10 * below,
            "the order of the radii is not recognised": all(same.all() for same in recognised),
            "with a slower head, a run ends closer to the relaxed Att-SVM": closer["head slower"].all(),
            "with a faster head, too many runs end closer to the plain Att-SVM": closer["head faster"].mean() > 0.5,
            "with v trained, u does not end at its Att-SVM": all(
                right < min(with_head, 0.1 * wrong) for right, wrong in medians.values()
            ),
            "v does not end at its max-margin direction": all(
                np.median(found[f"head {name}"]) < with_head for name in FASTER
            ),
        }
        summary = ", ".join(f"{error:.1e} ({name} trained)" for name, error in ends.items())
        faster = closer["head faster"]
        return verdict(
            passed,
            f"Largest direction error of u: {summary}; the ℓ2 Att-SVM is {control:.2g} away where p is trained. With v "
            f"trained, where the two Att-SVMs differ, median error of u to the plain one "
            f"{medians['head slower'][0]:.1e} (head slower) and to the relaxed one {medians['head faster'][0]:.1e} "
            f"(head faster, where {faster.sum()} of {faster.size} runs are closer to it than to the plain one).",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = [
            Row(f"{name} trained: median direction error of u", number(median_of(found[f"predicted {name}"][-1])))
            for name in sizes["fixed head"]
        ]
        rows.append(Row("W trained: largest error of W to u p'/‖p‖²", number(float(found["parameter W"].max()))))
        for name, (limit, _) in FASTER.items():
            (right, wrong), apart = _sides(found, name), found[f"apart {name}"]
            medians = ", ".join(number(median_of(error)) if error.size else "none" for error in (right, wrong))
            differ = f"{name}: runs whose Att-SVMs differ; median error to {limit}, to the other"
            rows += [
                Row(differ, f"{apart.sum()}; {medians}"),
                Row(f"{name}: runs that end saturated", f"{found[f'decided {name}'].sum()} of {apart.size}"),
                Row(f"{name}: median error of v", number(median_of(found[f"head {name}"]))),
            ]
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, axes = panels(3.6, 2, 2, sharex=True, sharey=True)
        others = [name for name in sizes["fixed head"] if name != "p"]
        for name, mark in zip(others, LINES, strict=False):
            _draw(axes[0, 0], found[f"steps {name}"], found[f"predicted {name}"], mark, name)
        for (key, label), mark in zip((("predicted", "min ‖W⁻¹u‖"), ("ℓ2", "min ‖u‖")), LINES, strict=False):
            _draw(axes[0, 1], found["steps p"], found[f"{key} p"], mark, label)
        for axis, name in zip(axes[1], FASTER, strict=True):
            for key, mark in zip(("plain", "relaxed"), LINES, strict=False):
                _draw(axis, found[f"steps {name}"], found[f"{key} {name}"][:, found[f"apart {name}"]], mark, key)
        titles = ("W, or W and p", "p, with W fixed", *(f"v, W, p: {name}" for name in FASTER))
        for axis, title in zip(axes.flat, titles, strict=True):
            axis.set_title(title, pad=3)
            axis.legend(loc="lower left", handlelength=1.8)
            set_axes(axis, log="xy")
        outer_axes(axes, "steps", "direction error")
        return figure


def _sides(found: Arrays, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Errors at the end to the predicted Att-SVM and to the other one, in the runs where these differ."""
    predicted = FASTER[name][0]
    (other,) = {"plain", "relaxed"} - {predicted}
    apart = found[f"apart {name}"]
    return found[f"{predicted} {name}"][-1][apart], found[f"{other} {name}"][-1][apart]


def _draw(axis: Axes, steps: np.ndarray, errors: np.ndarray, mark: tuple[str, str], label: str) -> None:
    if errors.shape[1]:
        style.spread(axis, steps, errors, *mark, label)


FIGURES.register(KeyPromptFigure.name, KeyPromptFigure())
