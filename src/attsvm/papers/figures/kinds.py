"""Whether W and (K, Q) end at the best tokens, at a local optimum or elsewhere from random starts, against d."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import SubFigure

from attsvm.pages import number
from attsvm.papers.drawing import legend_over, set_axes, shape_lines
from attsvm.papers.figure import Arrays, Paper, Piece, Row, Sizes, joined, stacked
from attsvm.papers.figures import FIGURES
from attsvm.papers.figures.saturation import PENALTY
from attsvm.papers.queries import CrossAndSelf, Judged
from attsvm.plot import DATA, style
from attsvm.statistics import share as share_interval
from attsvm.sweeps import KINDS, LANES, READY, YES_NO, Block, Definition, KindOfConvergence, Output, measured
from attsvm.theory import Kind, classify
from attsvm.training import train

NORMS = {"combined": "frobenius", "factored": "nuclear"}
NAMES = {"combined": "W", "factored": "(K, Q)"}
COLOURS = dict(zip(KINDS, (style.BLUE, style.SKY, style.VERMILLION, "#dcdcdc"), strict=True))

DIP = 0.08
"""Largest fall of a share of 500 runs from one d to the next: about three standard errors of the difference."""

MOST_SOLVED = 100
"""Problems per bar whose Att-SVM is solved. In the nuclear norm it takes longer than the training."""


SLICE = 64
"""Trials of a slice of training. All batches are multiples of it, so one program is compiled for each dimension."""


@dataclass(frozen=True)
class KindAfterMore(KindOfConvergence):
    """The kind of convergence, and whether a run that ends at no local optimum still does after further steps."""

    further: int
    outputs: ClassVar[Mapping[str, Output]] = {**KindOfConvergence.outputs, "left": Output(codes=YES_NO)}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        """Continue these runs of a block in slices."""
        kind = super().measure(block)["kind"]
        astray = np.flatnonzero(kind == KINDS.index(Kind.NOT_LOCAL))
        left = np.zeros(len(kind), dtype=bool)
        if astray.size:
            batch = np.resize(astray, -(-astray.size // SLICE) * SLICE)
            longer = train(block.problem[batch], init=block.run.weights[batch], steps=self.further, record=1)
            ends = np.asarray(classify(block.problem[batch], longer.weights).kind)
            left[astray] = (ends == Kind.NOT_LOCAL)[: astray.size]
        return {"kind": kind, "left": left}


def _fixed(n: int, T: int, self_attention: bool) -> dict[str, Any]:
    return {"num_sequences": n, "num_tokens": T, "self_attention": self_attention}


def _shares(attention: str, n: int, T: int, sizes: Sizes, self_attention: bool) -> Arrays:
    """The sweep ``phase-global`` with these sizes, on W or (K, Q). Starts and steps are those of the published code."""
    combined = attention == "combined"
    training = {
        "attention": attention,
        "optimizer": "normalized_gradient_descent",
        "learning_rate": 0.1,
        "scope": "all" if combined else "each",
        "init": "uniform",
        "penalty": 0.0 if combined else PENALTY,
        "steps": sizes["steps"],
        "record": 1,
        "svm.norm": NORMS[attention],
    }
    definition = READY["phase-global"].changed(
        grid={"dim": sizes["dims"]},
        fixed=_fixed(n, T, self_attention) | training,
        measures=[KindAfterMore(sizes["further_steps"]) if combined else "kind"],
        trials=sizes["runs"],
        seed=sizes["seed"],
        block=-(-sizes["runs"] // SLICE) * SLICE,
    )
    found = measured(definition)
    shares = np.stack([(found["kind"] == code).mean(axis=1) for code in range(len(KINDS))], axis=-1)
    return {"share": shares} | ({"left": (found["left"] == 1).sum(axis=1)} if combined else {})


def _all_support(
    norm: str, n: int, T: int, dims: list[int], problems: int, seed: int, self_attention: bool, block: int | None
) -> Arrays:
    """The share of problems in which all tokens support, for each dimension."""
    fixed = {**_fixed(n, T, self_attention), "svm.norm": norm}
    definition = Definition({"dim": dims}, ["all_support"], problems, fixed=fixed, seed=seed, block=block)
    return {"all_support": (measured(definition)["all_support"] == 1).mean(axis=1)}


def _astray(sizes: Sizes, found: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Runs of W in each dimension that end at no local optimum, and how many of them still do after further steps."""
    share = found["share combined"][..., KINDS.index(Kind.NOT_LOCAL)]
    return np.rint(share.sum(axis=0) * sizes["runs"]).astype(int), found["left combined"].sum(axis=0)


class Kinds(CrossAndSelf):
    """Kinds of convergence against the dimension.

    Most of the time is compilation, of a program for each n, T, d and parametrisation. The runs of self-attention have
    shapes of cross-attention and take no further program.

    The quick run has two dimensions, and 128 runs of each. At most one run in 50 may end at no local optimum, so with
    fewer than 50 runs a single one would decide; 128 are two slices of the full run.
    """

    name = "kinds"
    paper = Paper.TRANSFORMERS
    order = 4
    title = "Kinds of convergence against the dimension"
    seconds = 125
    claim = (
        "Gradient descent on W and on (K, Q) ends at a locally optimal selection, and more often at the global one "
        "in higher dimensions. (Top: shares of random problems, each with one random start. Bottom: share of "
        "problems in which every non-optimal token is a support token of the Frobenius Att-SVM of the optimal "
        "tokens.)"
    )
    criterion = (
        "For each n, T and parametrisation, the share of global convergence rises by more than 0.3 from the "
        f"smallest to the largest d, and never falls by more than {DIP:g} between neighbours. For d ≥ max(T − 1, n), "
        "where almost every selection is feasible, at most one run in 20 is undecided and at most one in 50 is "
        "neither global nor local. Of all such runs of W, at most one in ten stays there with more steps: the lower "
        "end of the 95 % Wilson interval is not above a tenth. The share of problems with all tokens supporting rises "
        "above 0.9 in higher dimensions."
    )
    ascending: ClassVar = ("dims", "wide_dims")
    full: ClassVar[Sizes] = {
        "shapes": [[5, 5], [5, 10], [10, 5]],
        "dims": [2, 4, 6, 8, 10, 15, 20],
        "runs": 500,
        "steps": 2000,
        "further_steps": 50_000,
        "wide_dims": [50, 100, 200, 400, 1000],
        "wide_problems": 40,
        "seed": 0,
        "queries": {
            "cross": {},
            "self": {"shapes": [[5, 5]], "dims": [2, 6, 10, 20], "runs": 256, "wide_problems": 20},
        },
    }
    quick: ClassVar[Sizes] = {
        **full,
        "shapes": [[5, 5]],
        "dims": [2, 10],
        "runs": 128,
        "further_steps": 10_000,
        "wide_dims": [50, 200],
        "wide_problems": 20,
        "queries": {"cross": {}, "self": {}},
    }

    def measure_one(self, sizes: Sizes, self_attention: bool, piece: Piece) -> Arrays:
        shapes, dims, seed = sizes["shapes"], sizes["dims"], sizes["seed"]
        found: Arrays = {}

        def support(name: str, norm: str, dims: list[int], problems: int, block: int | None = None) -> np.ndarray:
            further = dims, problems, seed, self_attention, block
            found = stacked(piece(f"{name}-n{n}-T{T}", _all_support, norm, n, T, *further) for n, T in shapes)
            return found["all_support"]

        for attention, norm in NORMS.items():
            of_shapes = stacked(
                piece(f"{attention}-n{n}-T{T}", _shares, attention, n, T, dict(sizes), self_attention)
                for n, T in shapes
            )
            found |= joined({attention: of_shapes})
            solved = min(sizes["runs"], MOST_SOLVED)
            found[f"all_support {attention}"] = support(f"support-{attention}", norm, dims, solved)
        # a few at a time: weights of high dimensions are large
        wide = support("wide", "frobenius", sizes["wide_dims"], sizes["wide_problems"], block=LANES)
        return found | {"all_support wide": wide}

    def judge_one(self, sizes: Sizes, found: Arrays) -> Judged:
        # almost every selection is feasible from this dimension on
        threshold = np.array([[max(T - 1, n)] for n, T in sizes["shapes"]])
        roomy = np.array(sizes["dims"]) >= threshold
        shares = {name: found[f"share {name}"] for name in NORMS}
        of = {kind: {name: shares[name][..., i] for name in NORMS} for i, kind in enumerate(KINDS)}
        passed: dict[str, Any] = {}
        for name in NORMS:
            steps = np.diff(of["global"][name], axis=1)
            rises = of["global"][name][:, -1] - of["global"][name][:, 0]
            if len(sizes["dims"]) > 1:
                grows = (steps > -DIP).all() and (rises > 0.3).all()
                passed[f"{NAMES[name]}: the share of global convergence does not grow with d"] = grows
            if roomy.any():
                before = f"{NAMES[name]}: for d ≥ max(T − 1, n), more than one run in"
                passed[f"{before} 20 is undecided"] = (of["undecided"][name][roomy] <= 0.05).all()
                passed[f"{before} 50 ends at no local optimum"] = (of["not_local"][name][roomy] <= 0.02).all()
        astray, left = _astray(sizes, found)
        above = np.array(sizes["dims"]) > 2
        # there are few such runs, so that one of them may be a large part
        least = share_interval(left.sum(), astray.sum()).low if astray.sum() else 0.0
        passed["with more steps, more than a tenth of these runs of W still end at no local optimum"] = least <= 0.1
        wide = found["all_support wide"]
        rises_above = (np.diff(wide, axis=1) > -DIP).all() and (wide[:, -1] > 0.9).all()
        passed["the share of problems with all tokens supporting does not rise above 0.9"] = rises_above
        summary = "; ".join(
            f"{NAMES[name]}: {of['global'][name][:, -1].min():.0%} to {of['global'][name][:, -1].max():.0%}"
            for name in NORMS
        )
        worst = max(float(of["not_local"][name].max()) for name in NORMS)
        support = max(float(found[f"all_support {name}"].max()) for name in NORMS)
        of_two = f" ({left[~above].sum()} of {astray[~above].sum()} with d = 2)" if astray[~above].sum() else ""
        sentences = [
            f"Global convergence at d = {sizes['dims'][-1]}: {summary}.",
            f"At most {worst:.1%} of the runs in a bar do not end at a local optimum.",
            f"After {sizes['further_steps']:,} more steps {left.sum()} of {astray.sum()} such runs of W remain{of_two}."
            if astray.sum()
            else "No run of W does.",
            f"Up to d = {sizes['dims'][-1]}, all tokens support in at most {support:.1%} of the problems.",
            *([] if roomy.any() else ["No d ≥ max(T − 1, n) was measured."]),
            *([] if len(sizes["dims"]) > 1 else ["Growth with d was not tested, with one d."]),
        ]
        return Judged(passed, " ".join(sentences))

    def rows_one(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        dims = sizes["dims"]
        for i, (n, T) in enumerate(sizes["shapes"]):
            for name in NORMS:
                for j in sorted({0, len(dims) // 2, len(dims) - 1}):
                    summary = " / ".join(f"{share:.1%}" for share in found[f"share {name}"][i, j])
                    of_which = f"{NAMES[name]}, n = {n}, T = {T}, d = {dims[j]}"
                    rows.append(Row(f"{of_which}: global / local / neither / undecided", summary))
            wide = ", ".join(
                f"{number(float(share))} at d = {d}"
                for d, share in zip(sizes["wide_dims"], found["all_support wide"][i], strict=True)
            )
            rows.append(Row(f"n = {n}, T = {T}: share of problems with all tokens supporting (Frobenius)", wide))
        return rows

    def height(self, sizes: Sizes) -> float:
        return 1.15 * len(sizes["shapes"]) + 2.1

    def draw_one(self, figure: Drawing | SubFigure, sizes: Sizes, found: Arrays) -> None:
        shapes, dims = sizes["shapes"], sizes["dims"]
        grid = figure.add_gridspec(len(shapes) + 1, 2, height_ratios=[1.0] * len(shapes) + [1.25])
        places = np.arange(len(dims))
        for i, (n, T) in enumerate(shapes):
            for column, name in enumerate(NORMS):
                axis = figure.add_subplot(grid[i, column], **DATA)
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
        legend_over(figure, axis, 4, columnspacing=1.0, handlelength=1.2)
        last = figure.add_subplot(grid[len(shapes), :], **DATA)
        every = [*dims, *sizes["wide_dims"]]
        for i, (name, line) in enumerate(shape_lines(shapes)):
            support = [*found["all_support combined"][i], *found["all_support wide"][i]]
            last.plot(every, support, **line, label=name)
        last.set_xscale("log")
        shown = [2, 5, 10, 20, 50, 100, 200, 500, 1000]
        last.set_xticks(shown, [str(d) for d in shown])
        last.set_ylim(-0.04, 1.04)
        set_axes(last, "dimension d", "all tokens support")
        last.legend(loc="upper left")


FIGURES.register(Kinds.name, Kinds())
