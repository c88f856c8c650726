"""Time of one Att-SVM, or of a training step, as its sizes are doubled in turn, with a slope for each kind.

Times are processor times on one core: the best of several runs, for an Att-SVM the median of three random problems. A
solve includes its certificate. For a step the time of a short run is subtracted from that of a long run, which removes
the parts that do not depend on the number of steps (compiling, moving data). A slope is that of a straight line through
all points of a curve in logarithmic axes.

    python benchmarks/sizes.py solve [--repeats 3] [--out docs/images/att_svm_cost.png]
    python benchmarks/sizes.py step [--repeats 3] [--out docs/images/training_cost.png]
"""

import one_thread  # noqa: F401  # isort: skip

import os

os.environ["ATTSVM_THREADS"] = "1"  # before attsvm is imported; it divides trials over so many threads
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])

import argparse
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

import attsvm
from attsvm import heads, optimizers
from attsvm.plot import style
from cases import markdown, slope
from timing import best, seconds_of_step

NAMES = {"n": "sequences $n$", "T": "tokens $T$", "d": "dimension $d$", "trials": "trials together"}
UNITS = 10
"""Of the ReLU head."""

Curves = dict[str, dict[str, list[tuple[int, float]]]]
"""For each kind and each size that grows: its values, and the seconds."""


def _random(sizes: Mapping[str, int], seed: int, **options: Any) -> attsvm.Problem:
    return attsvm.datasets.random_problem(sizes["n"], sizes["T"], sizes["d"], seed, **options)


def solve(norm: str, sizes: Mapping[str, int], repeats: int) -> float:
    """Processor seconds of an Att-SVM: the median over three seeds of the best of several runs."""
    each = []
    for seed in range(3):
        problem = _random(sizes, seed)
        selected = attsvm.optimal_tokens(problem)
        solution = attsvm.solve_svm(problem, selected, norm=norm)
        if solution.status != "optimal":
            raise SystemExit(f"{norm}, {sizes}, seed {seed}: {solution!r}")
        work = lambda p=problem, s=selected: attsvm.solve_svm(p, s, norm=norm)  # noqa: E731
        each.append(best({norm: work}, repeats)[norm])
    return float(np.median(each))


def step(kind: str, sizes: Mapping[str, int], repeats: int) -> float:
    """Processor seconds of one step of one trial."""
    trials, options = sizes["trials"], TRAINED[kind](sizes["d"])
    problem = _random(sizes, 0, batch=(trials,) if trials > 1 else ())

    def run(steps: int) -> attsvm.Run:
        return attsvm.train(problem, steps=steps, record=1, **options)

    return seconds_of_step(run, short=20, least=0.2, repeats=repeats, clock=time.process_time) / trials


def _relu(d: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    hidden, outer = generator.standard_normal((UNITS, d)), generator.standard_normal(UNITS)
    return {"head": heads.MLP(hidden, outer, activation="relu")}


TRAINED: dict[str, Callable[[int], dict[str, Any]]] = {
    "W, normalised GD": lambda d: {},
    "(K, Q), one norm": lambda d: {"attention": "factored"},
    "W, mirror descent p = 1.75": lambda d: {"optimizer": optimizers.mirror_descent(learning_rate=0.1, p=1.75)},
    "W, ReLU head": _relu,
}


class Work(NamedTuple):
    """What is measured for each kind, and the values of each size; the others have their first value."""

    kinds: list[str]
    seconds: Callable[[str, Mapping[str, int], int], float]
    grown: dict[str, list[int]]
    out: str
    unit: float
    columns: tuple[str, str]
    label: str

    @property
    def base(self) -> dict[str, int]:
        """The first sizes."""
        return {name: values[0] for name, values in self.grown.items()}


WORKS = {
    "solve": Work(
        ["frobenius", "l1.75", "l3", "nuclear", "spectral"],
        solve,
        {"n": [8, 16, 32, 64], "T": [16, 32, 64, 128], "d": [32, 64, 128, 256]},
        "docs/images/att_svm_cost.png",
        1e-3,
        ("norm", "ms"),
        "processor ms",
    ),
    "step": Work(
        list(TRAINED),
        step,
        {
            "n": [8, 16, 32, 64, 128],
            "T": [16, 32, 64, 128, 256],
            "d": [16, 32, 64, 128, 256],
            "trials": [1, 4, 16, 64, 256],
        },
        "docs/images/training_cost.png",
        1e-6,
        ("training", "µs a step"),
        "µs a step and trial",
    ),
}
LOOKS = (
    (style.BLUE, "-", "o"),
    (style.ORANGE, "--", "s"),
    (style.VERMILLION, "-.", "^"),
    (style.GREEN, ":", "D"),
    (style.PURPLE, (0, (5, 1, 1, 1, 1, 1)), "v"),
)


def measured(work: Work, repeats: int) -> Curves:
    """The seconds of each kind, for each size that grows; a line is printed for each curve."""
    found: Curves = {kind: {} for kind in work.kinds}
    for kind in work.kinds:
        for name, values in work.grown.items():
            curve = [(value, work.seconds(kind, {**work.base, name: value}, repeats)) for value in values]
            found[kind][name] = curve
            print(f"{kind:28}{name:7}" + ", ".join(f"{size} {1e6 * spent:.3g} us" for size, spent in curve), flush=True)
    return found


def drawn(work: Work, found: Curves) -> Figure:
    """One panel for each size, with a curve for each kind."""
    figure = Figure(figsize=(2 * style.WIDTH, 2.5))
    panels = figure.subplots(1, len(work.base), sharey=True)
    for axis, name in zip(panels, work.base, strict=True):
        for kind, (colour, line, marker) in zip(work.kinds, LOOKS, strict=False):
            sizes, times = np.array(found[kind][name]).T
            axis.loglog(sizes, times / work.unit, color=colour, linestyle=line, marker=marker, markersize=3, label=kind)
        axis.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel(NAMES[name])
    panels[0].set_ylabel(work.label)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=len(work.kinds))
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(WORKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    work = WORKS[options.what]
    print(f"{platform.machine()}, 1 core, float64, JAX {jax.__version__}, NumPy {np.__version__}\n")
    found = measured(work, options.repeats)
    at = ", ".join(f"{name}={size}" for name, size in work.base.items())
    rows = [
        [kind, f"{curves['n'][0][1] / work.unit:.3g}", *(f"{slope(curves[name]):.2f}" for name in work.base)]
        for kind, curves in found.items()
    ]
    first, what = work.columns
    print("\n" + markdown([first, f"{what} at {at}", *(f"in {name}" for name in work.base)], rows))
    out = options.out or Path(work.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with style.applied():
        out.write_bytes(style.to_png(drawn(work, found)))


if __name__ == "__main__":
    main()
