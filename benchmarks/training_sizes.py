"""Time of a training step as n, T, d and the number of trials grow, with a slope for each kind of training.

Times are processor times of calls of ``train`` in float64 on one core. The time of a short run is subtracted from that
of a long run, which removes the parts that do not depend on the number of steps (compiling, moving data). The best of
several runs counts. A slope is that of a straight line through all points of a curve in logarithmic axes.

    python benchmarks/training_sizes.py [--repeats 3] [--out docs/images/training_cost.png]
"""

import os

os.environ["ATTSVM_THREADS"] = "1"  # before attsvm is imported; it divides trials over so many threads
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import attsvm
from attsvm import heads, optimizers
from attsvm.plot import style

BASE = {"n": 8, "T": 16, "d": 16, "trials": 1}
GROWN = {
    "n": (8, 16, 32, 64, 128),
    "T": (16, 32, 64, 128, 256),
    "d": (16, 32, 64, 128, 256),
    "trials": (1, 4, 16, 64, 256),
}
NAMES = {"n": "sequences $n$", "T": "tokens $T$", "d": "dimension $d$", "trials": "trials together"}
SECONDS = 0.2
UNITS = 10


def _relu(d: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    hidden, outer = generator.standard_normal((UNITS, d)), generator.standard_normal(UNITS)
    return {"head": heads.MLP(hidden, outer, activation="relu")}


KINDS: dict[str, tuple[Callable[[int], dict[str, Any]], tuple[Any, ...]]] = {
    "W, normalised GD": (lambda d: {}, (style.BLUE, "-", "o")),
    "(K, Q), one norm": (lambda d: {"attention": "factored"}, (style.ORANGE, "--", "s")),
    "W, mirror descent p = 1.75": (
        lambda d: {"optimizer": optimizers.mirror_descent(learning_rate=0.1, p=1.75)},
        (style.VERMILLION, "-.", "^"),
    ),
    "W, ReLU head": (_relu, (style.GREEN, ":", "D")),
}

Curve = list[tuple[int, float]]


def seconds_a_step(sizes: dict[str, int], options: dict[str, Any], repeats: int) -> float:
    """Processor seconds of one step of one trial."""
    trials = sizes["trials"]
    batch = (trials,) if trials > 1 else ()
    problem = attsvm.datasets.random_problem(sizes["n"], sizes["T"], sizes["d"], seed=0, batch=batch)

    def spent(steps: int) -> float:
        best = np.inf
        for _ in range(repeats):
            start = time.process_time()
            attsvm.train(problem, steps=steps, record=1, **options)
            best = min(best, time.process_time() - start)
        return best

    few = 20
    attsvm.train(problem, steps=few, record=1, **options)
    short, steps = spent(few), 4 * few
    while (long := spent(steps)) - short < SECONDS:
        steps *= 4
    return (long - short) / (steps - few) / trials


def measure(repeats: int) -> dict[str, dict[str, Curve]]:
    """Seconds per step and trial for each kind of training, as one size grows and the others stay fixed."""
    curves: dict[str, dict[str, Curve]] = {}
    for kind, (options, _) in KINDS.items():
        curves[kind] = {}
        for grown, values in GROWN.items():
            curve = []
            for value in values:
                sizes = BASE | {grown: value}
                curve.append((value, seconds_a_step(sizes, options(sizes["d"]), repeats)))
            curves[kind][grown] = curve
            print(
                f"{kind:28}{grown:7}" + ", ".join(f"{size} {1e6 * spent:.3g} us" for size, spent in curve), flush=True
            )
    return curves


def slope(curve: Curve) -> float:
    sizes, times = np.log(np.array(curve)).T
    return float(np.polyfit(sizes, times, 1)[0])


def draw(curves: dict[str, dict[str, Curve]]) -> Figure:
    """One panel for each size, with a curve for each kind of training."""
    figure = Figure(figsize=(2 * style.WIDTH, 2.5))
    panels = figure.subplots(1, len(GROWN), sharey=True)
    for axis, grown in zip(panels, GROWN, strict=True):
        for kind, (_, (color, line, marker)) in KINDS.items():
            sizes, times = np.array(curves[kind][grown]).T
            axis.loglog(sizes, 1e6 * times, color=color, linestyle=line, marker=marker, markersize=3, label=kind)
        axis.set_xticks(GROWN[grown], [str(size) for size in GROWN[grown]])
        axis.minorticks_off()
        axis.set_xlabel(NAMES[grown])
    panels[0].set_ylabel("µs a step and trial")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(KINDS))
    return figure


def table(curves: dict[str, dict[str, Curve]]) -> str:
    """Microseconds at the base size, and the slopes."""
    base = ", ".join(f"{name}={size}" for name, size in BASE.items())
    lines = [f"| training | µs a step at {base} | in n | in T | in d | in trials |", "| --- |" + 5 * " ---: |"]
    for kind, by_size in curves.items():
        slopes = " | ".join(f"{slope(by_size[grown]):.2f}" for grown in GROWN)
        lines.append(f"| {kind} | {1e6 * by_size['n'][0][1]:.1f} | {slopes} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/images/training_cost.png"))
    arguments = parser.parse_args()
    print(f"{platform.machine()}, 1 core, float64, JAX {jax.__version__}, NumPy {np.__version__}\n")
    curves = measure(arguments.repeats)
    print("\n" + table(curves))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with style.applied():
        arguments.out.write_bytes(style.to_png(draw(curves)))


if __name__ == "__main__":
    main()
