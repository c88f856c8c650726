"""Where W and (K, Q) end from random starts: at the best tokens, at a local optimum, or elsewhere, against d."""

import numpy as np
from matplotlib.figure import Figure

from attsvm.datasets import random_problem
from attsvm.optimizers import normalized_gradient_descent
from attsvm.problem import Problem
from attsvm.report import style
from attsvm.report.fit.words import number
from attsvm.reproduce.figure import Arrays, Experiment, Paper, Piece, Row, Sizes, Verdict, verdict
from attsvm.reproduce.figures.saturation import PENALTY
from attsvm.reproduce.grid import GRID_LINES, label
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm
from attsvm.theory.kinds import Kind, classify
from attsvm.training import train

NORMS = {"combined": "frobenius", "factored": "nuclear"}
NAMES = {"combined": "W", "factored": "(K, Q)"}
KINDS = tuple(kind.value for kind in Kind)
COLOURS = dict(zip(KINDS, (style.BLUE, style.SKY, style.VERMILLION, "#dcdcdc"), strict=True))

DIP = 0.08
"""By how much a share of 500 runs may fall from one d to the next: some three standard errors of the difference."""

MOST_SOLVED = 100
"""Problems of a bar whose optimal tokens' Att-SVM is solved: in the nuclear norm it costs more than the training."""


def _all_support(problem: Problem, norm: str) -> np.ndarray:
    """Whether every token that is not optimal is a support token of the Att-SVM of those that are."""
    solution = solve_svm(problem, optimal_tokens(problem), norm)
    return np.asarray((solution.support.sum(axis=-1) == problem.num_tokens - 1).all(axis=-1))


def _share(attention: str, n: int, T: int, d: int, runs: int, seed: int, steps: int, further: int) -> Arrays:
    problem = random_problem(n, T, d, seed, batch=(runs,))
    # starts and steps are those of the published code
    draws = np.random.default_rng(seed + 1).uniform(-(d**-0.5), d**-0.5, size=(3, runs, d, d))
    combined = attention == "combined"
    run = train(
        problem,
        attention=attention,
        optimizer=normalized_gradient_descent(0.1, scope="all" if combined else "each"),
        init={"W": draws[0]} if combined else {"K": draws[1], "Q": draws[2]},
        penalty=0.0 if combined else PENALTY,
        steps=steps,
        record=1,
    )
    kinds = classify(problem, run.weights, NORMS[attention]).kind
    # where the theory has no end, the run may only not have come to one
    astray, left = np.flatnonzero(kinds == Kind.NOT_LOCAL), 0
    if combined and astray.size:
        problem_left = problem[astray]
        longer = train(problem_left, init=run.weights[astray], steps=further, record=1)
        left = int(np.sum(classify(problem_left, longer.weights).kind == Kind.NOT_LOCAL))
    return {
        "share": np.array([np.mean(kinds == kind) for kind in KINDS]),
        "left": np.asarray(left),
        "all_support": np.asarray(_all_support(problem[:MOST_SOLVED], NORMS[attention]).mean()),
    }


def _wide(n: int, T: int, dims: list[int], rounds: int, seed: int) -> Arrays:
    """The same from further problems, ten at a time: their weights are large."""
    return {
        "all_support": np.array(
            [
                np.mean(
                    [_all_support(random_problem(n, T, d, seed + i, batch=(10,)), "frobenius") for i in range(rounds)]
                )
                for d in dims
            ]
        )
    }


def _measure(sizes: Sizes, piece: Piece) -> Arrays:
    dims = sizes["dims"]
    found: Arrays = {}
    for attention in NORMS:
        shares = np.empty((len(sizes["shapes"]), len(dims), len(KINDS)))
        support, left = np.empty((2, *shares.shape[:2]))
        for i, (n, T) in enumerate(sizes["shapes"]):
            for j, d in enumerate(dims):
                arguments = (n, T, d, sizes["runs"], sizes["seed"], sizes["steps"], sizes["further_steps"])
                arrays = piece(f"{attention}-n{n}-T{T}-d{d}", _share, attention, *arguments)
                shares[i, j], support[i, j], left[i, j] = (arrays[key] for key in ("share", "all_support", "left"))
        found |= {f"share {attention}": shares, f"all_support {attention}": support}
        if attention == "combined":
            found["left combined"] = left
    further = (sizes["wide_dims"], sizes["wide_rounds"], sizes["seed"])
    wide = [piece(f"wide-n{n}-T{T}", _wide, n, T, *further)["all_support"] for n, T in sizes["shapes"]]
    return found | {"all_support wide": np.stack(wide)}


def _astray(sizes: Sizes, found: Arrays) -> tuple[int, int]:
    """Runs of W at no local optimum, and those left after further steps."""
    share = found["share combined"][..., KINDS.index(Kind.NOT_LOCAL)]
    return round(float(share.sum()) * sizes["runs"]), int(found["left combined"].sum())


def _judge(sizes: Sizes, found: Arrays) -> Verdict:
    # almost every selection is feasible from there on
    threshold = np.array([[max(T - 1, n)] for n, T in sizes["shapes"]])
    roomy = np.array(sizes["dims"]) >= threshold
    shares = {name: found[f"share {name}"] for name in NORMS}
    of = {kind: {name: shares[name][..., i] for name in NORMS} for i, kind in enumerate(KINDS)}
    passed = {}
    for name in NORMS:
        steps = np.diff(of["global"][name], axis=1)
        rises = of["global"][name][:, -1] - of["global"][name][:, 0]
        passed[f"{NAMES[name]}: the share of global convergence does not grow with d"] = bool(
            (steps > -DIP).all() and (rises > 0.3).all()
        )
        passed[f"{NAMES[name]}: with d ≥ max(T − 1, n) a twentieth of the runs is undecided"] = bool(
            (of["undecided"][name][roomy] <= 0.05).all()
        )
        passed[f"{NAMES[name]}: with d ≥ max(T − 1, n) one run in fifty ends at no local optimum"] = bool(
            (of["not_local"][name][roomy] <= 0.02).all()
        )
    astray, left = _astray(sizes, found)
    passed["more steps of W do not lead the others to a local optimum"] = bool(left <= 0.1 * astray)
    wide = found["all_support wide"]
    passed["the share with all tokens supporting does not grow to nearly one"] = bool(
        (np.diff(wide, axis=1) > -DIP).all() and (wide[:, -1] > 0.9).all()
    )
    told = "; ".join(
        f"{NAMES[name]}: {of['global'][name][:, -1].min():.0%} to {of['global'][name][:, -1].max():.0%}"
        for name in NORMS
    )
    worst = max(float(of["not_local"][name].max()) for name in NORMS)
    support = max(float(found[f"all_support {name}"].max()) for name in NORMS)
    return verdict(
        passed,
        f"Global at d = {sizes['dims'][-1]}: {told}. At no local optimum: at most {worst:.1%} of the runs of a bar; of "
        f"those {astray} of W, {left} are left after {sizes['further_steps']:,} more steps. All tokens support in at "
        f"most {support:.1%} of the problems up to d = {sizes['dims'][-1]}.",
    )


def _rows(sizes: Sizes, found: Arrays) -> list[Row]:
    rows = []
    dims = sizes["dims"]
    for i, (n, T) in enumerate(sizes["shapes"]):
        for name in NORMS:
            for j in sorted({0, len(dims) // 2, len(dims) - 1}):
                told = " / ".join(f"{share:.1%}" for share in found[f"share {name}"][i, j])
                of_which = f"{NAMES[name]}, n = {n}, T = {T}, d = {dims[j]}"
                rows.append(Row(f"{of_which}: global / local / neither / undecided", told))
        wide = ", ".join(
            f"{number(float(share))} at d = {d}"
            for d, share in zip(sizes["wide_dims"], found["all_support wide"][i], strict=True)
        )
        rows.append(Row(f"n = {n}, T = {T}: share of problems with all tokens supporting (Frobenius)", wide))
    return rows


def _draw(sizes: Sizes, found: Arrays) -> Figure:
    shapes, dims = sizes["shapes"], sizes["dims"]
    figure = Figure(figsize=(style.WIDTH, 1.15 * len(shapes) + 2.1))
    grid = figure.add_gridspec(len(shapes) + 1, 2, height_ratios=[1.0] * len(shapes) + [1.25])
    places = np.arange(len(dims))
    for i, (n, T) in enumerate(shapes):
        for column, name in enumerate(NORMS):
            axis = figure.add_subplot(grid[i, column])
            bottom = np.zeros(len(dims))
            for k, kind in enumerate(KINDS):
                share = found[f"share {name}"][i, :, k]
                axis.bar(places, share, 0.82, bottom, color=COLOURS[kind], label=kind.replace("_", " "))
                bottom += share
            axis.grid(False, axis="x")
            axis.set_xticks(places, [str(d) for d in dims] if i == len(shapes) - 1 else [""] * len(dims))
            axis.set_ylim(0, 1)
            axis.tick_params(labelleft=column == 0, length=0)
            if column == 0:
                axis.set_ylabel(f"n={n}, T={T}")
            if i == 0:
                axis.set_title(NAMES[name], pad=3)
            if i == len(shapes) - 1:
                axis.set_xlabel("dimension d")
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, columnspacing=1.0, handlelength=1.2)
    last = figure.add_subplot(grid[len(shapes), :])
    every = [*dims, *sizes["wide_dims"]]
    for i, ((n, T), line) in enumerate(zip(shapes, GRID_LINES, strict=False)):
        support = [*found["all_support combined"][i], *found["all_support wide"][i]]
        last.plot(every, support, **line, label=label(n, T))
    last.set_xscale("log")
    shown = [2, 5, 10, 20, 50, 100, 200, 500, 1000]
    last.set_xticks(shown, [str(d) for d in shown])
    last.set_ylim(-0.04, 1.04)
    last.set_xlabel("dimension d")
    last.set_ylabel("all tokens support")
    last.legend(loc="upper left")
    return figure


EXPERIMENT = Experiment(
    name="kinds",
    paper=Paper.TRANSFORMERS,
    title="Kinds of convergence against the dimension",
    claim="Gradient descent ends at a locally optimal selection, and the more dimensions there are, the more often at "
    "the global one, for W and for (K, Q). (Above, shares of random problems, each from a random start; below, the "
    "share of problems in which every token that is not optimal supports the Frobenius Att-SVM of the optimal ones.)",
    criterion="For each n, T and way the share of global convergence rises by more than 0.3 from the smallest to the "
    f"largest d and never falls by more than {DIP:g} between neighbours; with d ≥ max(T − 1, n), where almost every "
    "selection is feasible, at most one run in 20 is undecided and one in 50 neither global nor local; of all such "
    "runs of W, nine in ten reach a local optimum in further steps; the share with all tokens supporting rises above "
    "0.9 in wider dimensions.",
    full={
        "shapes": [[5, 5], [5, 10], [10, 5]],
        "dims": [2, 4, 6, 8, 10, 15, 20],
        "runs": 500,
        "steps": 2000,
        "further_steps": 50_000,
        "wide_dims": [50, 100, 200, 400, 1000],
        "wide_rounds": 4,
        "seed": 0,
    },
    quick={
        "shapes": [[5, 5]],
        "dims": [2, 10],
        "runs": 40,
        "steps": 2000,
        "further_steps": 10_000,
        "wide_dims": [50, 200],
        "wide_rounds": 2,
        "seed": 0,
    },
    measure=_measure,
    judge=_judge,
    rows=_rows,
    draw=_draw,
)
