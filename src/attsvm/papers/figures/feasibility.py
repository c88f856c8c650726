"""How often the optimal tokens are separable, against the dimension."""

from itertools import cycle
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import SubFigure
from matplotlib.ticker import PercentFormatter

from attsvm.papers.drawing import GRID_LINES, label, set_axes
from attsvm.papers.figure import Arrays, Paper, Piece, Row, Sizes, stacked
from attsvm.papers.figures import FIGURES
from attsvm.papers.queries import CrossAndSelf, Judged
from attsvm.plot import DATA, style
from attsvm.results import Status
from attsvm.sweeps import READY, STATUSES, measured


def _phase(n: int, T: int, dims: list[int], number: int, seed: int, self_attention: bool) -> Arrays:
    """The ready sweep ``phase-feasible`` with these sizes."""
    fixed = {"num_sequences": n, "num_tokens": T, "self_attention": self_attention}
    phase = READY["phase-feasible"].changed(grid={"dim": dims}, fixed=fixed, trials=number, seed=seed)
    found = measured(phase)
    undecided = found["feasibility_status"] == STATUSES.index(Status.INACCURATE)
    return {"feasible": (found["feasible"] == 1).mean(axis=1), "undecided": undecided.mean(axis=1)}


def threshold(n: int, T: int) -> int:
    """The smallest dimension in which every selection is almost surely feasible, max(T − 1, n)."""
    return max(T - 1, n)


class Feasibility(CrossAndSelf):
    name = "feasibility"
    paper = Paper.TRANSFORMERS
    order = 5
    title = "Separable selections against the dimension"
    seconds = 5
    claim = (
        "The optimal tokens are separable more often for larger d, and almost surely for d ≥ max(T − 1, n) (dotted)."
    )
    criterion = (
        "Every problem with d ≥ max(T − 1, n) is feasible with a certificate. The share of feasible problems never "
        "falls with d by more than its sampling error."
    )
    ascending: ClassVar = ("dims",)
    full: ClassVar[Sizes] = {
        "shapes": [[5, 5], [5, 10], [10, 5]],
        "dims": [2, 4, 6, 8, 10, 15, 20],
        "problems": 500,
        "seed": 0,
        "queries": {"cross": {}, "self": {}},
    }
    quick: ClassVar[Sizes] = {**full, "shapes": [[5, 5], [5, 10]], "dims": [2, 6, 10], "problems": 40}

    def measure_one(self, sizes: Sizes, self_attention: bool, piece: Piece) -> Arrays:
        further = sizes["dims"], sizes["problems"], sizes["seed"], self_attention
        return stacked(piece(f"n{n}-T{T}", _phase, n, T, *further) for n, T in sizes["shapes"])

    def judge_one(self, sizes: Sizes, found: Arrays) -> Judged:
        above = np.array([[d >= threshold(n, T) for d in sizes["dims"]] for n, T in sizes["shapes"]])
        rising = np.diff(found["feasible"], axis=1) >= -2 / np.sqrt(sizes["problems"])
        passed = {
            "the share of feasible problems falls with the dimension by more than its sampling error": rising.all(),
            "a problem is neither solved nor proved infeasible": not found["undecided"].any(),
        }
        if not above.any():
            return Judged(passed, "No d ≥ max(T − 1, n) was measured.")
        least = found["feasible"][above].min()
        passed["a selection at or above the threshold is infeasible"] = least == 1
        return Judged(passed, f"For d ≥ max(T − 1, n), at least {least:.1%} of the problems are feasible.")

    def rows_one(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for (n, T), shares in zip(sizes["shapes"], found["feasible"], strict=True):
            always = [d for d, share in zip(sizes["dims"], shares, strict=True) if share == 1]
            first = f"d ≥ {min(always)}" if always else "for no d measured"
            rows.append(Row(f"n = {n}, T = {T}: all problems feasible", first, f"sufficient: d ≥ {threshold(n, T)}"))
        return rows

    def height(self, sizes: Sizes) -> float:
        return 2.2

    def draw_one(self, figure: Drawing | SubFigure, sizes: Sizes, found: Arrays) -> None:
        axis = figure.subplots(subplot_kw=DATA)
        for (n, T), shares, line in zip(sizes["shapes"], found["feasible"], cycle(GRID_LINES), strict=False):
            axis.plot(sizes["dims"], shares, **line, label=label(n, T))
            axis.axvline(threshold(n, T), color=line["color"], linestyle=":", linewidth=0.8)
        set_axes(axis, "dimension d", "separable problems")
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.set_ylim(-0.03, 1.03)
        style.legend_above(axis, 2)


FIGURES.register(Feasibility.name, Feasibility())
