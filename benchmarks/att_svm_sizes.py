"""Time of one Att-SVM as n, T and d are doubled in turn, with a slope for each norm.

Times are processor times of ``solve_svm``, including the certificate, on one thread: the best of several runs, and the
median of three random problems. A slope is that of a straight line through all points of a curve in logarithmic axes.

    python benchmarks/att_svm_sizes.py [--repeats 3] [--out docs/images/att_svm_cost.png]
"""

import os

NUM_THREADS = "1"
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = NUM_THREADS  # before NumPy is imported, which reads them once

import argparse  # noqa: E402
import platform  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

import attsvm  # noqa: E402
from attsvm.plot import style  # noqa: E402

BASE = {"n": 8, "T": 16, "d": 32}
DOUBLINGS = 3
SEEDS = range(3)
LOOKS = {
    "frobenius": ("Frobenius", style.BLUE, "-", "o"),
    "l1.75": ("ℓ1.75", style.ORANGE, "--", "s"),
    "l3": ("ℓ3", style.VERMILLION, "-.", "^"),
    "nuclear": ("nuclear", style.GREEN, ":", "D"),
    "spectral": ("spectral", style.PURPLE, (0, (5, 1, 1, 1, 1, 1)), "v"),
}

Curve = list[tuple[int, float]]


def seconds(norm: str, sizes: dict[str, int], repeats: int) -> float:
    """Median over the seeds of the best of several runs."""
    each = []
    for seed in SEEDS:
        problem = attsvm.datasets.random_problem(sizes["n"], sizes["T"], sizes["d"], seed)
        selected = attsvm.optimal_tokens(problem)
        best = np.inf
        for _ in range(repeats):
            start = time.process_time()
            solution = attsvm.solve_svm(problem, selected, norm=norm)
            best = min(best, time.process_time() - start)
        if solution.status != "optimal":
            raise SystemExit(f"{norm}, {sizes}, seed {seed}: {solution!r}")
        each.append(best)
    return float(np.median(each))


def slope(curve: Curve) -> float:
    sizes, times = np.log(np.array(curve)).T
    return float(np.polyfit(sizes, times, 1)[0])


def measure(repeats: int) -> dict[str, dict[str, Curve]]:
    """Seconds for each norm, as one size doubles and the others stay fixed."""
    curves: dict[str, dict[str, Curve]] = {}
    for norm in LOOKS:
        curves[norm] = {}
        for grown, base in BASE.items():
            curve = []
            for size in (base << k for k in range(DOUBLINGS + 1)):
                curve.append((size, seconds(norm, BASE | {grown: size}, repeats)))
            curves[norm][grown] = curve
    return curves


def draw(curves: dict[str, dict[str, Curve]]) -> Figure:
    """One panel for each size, with a curve for each norm."""
    figure = Figure(figsize=(2 * style.WIDTH, 2.5))
    panels = figure.subplots(1, len(BASE), sharey=True)
    names = {"n": "sequences $n$", "T": "tokens $T$", "d": "dimension $d$"}
    for axis, grown in zip(panels, BASE, strict=True):
        for norm, (label, color, line, marker) in LOOKS.items():
            sizes, times = zip(*curves[norm][grown], strict=True)
            axis.loglog(sizes, times, color=color, linestyle=line, marker=marker, markersize=3, label=label)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel(names[grown])
    fastest = min(spent for by_size in curves.values() for curve in by_size.values() for _, spent in curve)
    slowest = max(spent for by_size in curves.values() for curve in by_size.values() for _, spent in curve)
    low, high = 10 ** np.floor(np.log10(fastest)), 10 ** np.ceil(np.log10(slowest))
    panels[0].set_ylim(0.8 * low, 1.2 * high)
    panels[0].set_yticks(10 ** np.arange(np.log10(low), np.log10(high) + 0.5))
    panels[0].set_ylabel("processor seconds")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(LOOKS))
    return figure


def table(curves: dict[str, dict[str, Curve]]) -> str:
    """Milliseconds at the base size, and the slopes."""
    base = ", ".join(f"{name}={size}" for name, size in BASE.items())
    lines = [f"| norm | ms at {base} | in n | in T | in d |", "| --- | ---: | ---: | ---: | ---: |"]
    for norm, (label, *_) in LOOKS.items():
        first = 1e3 * curves[norm]["n"][0][1]
        slopes = " | ".join(f"{slope(curves[norm][grown]):.1f}" for grown in BASE)
        lines.append(f"| {label} | {first:.2f} | {slopes} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/images/att_svm_cost.png"))
    arguments = parser.parse_args()
    curves = measure(arguments.repeats)
    print(f"{platform.machine()}, {NUM_THREADS} thread, NumPy {np.__version__}\n")
    print(table(curves))
    for norm, by_size in curves.items():
        for grown, curve in by_size.items():
            print(f"{norm:10}{grown}: " + ", ".join(f"{size} {1e3 * spent:.3g} ms" for size, spent in curve))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with style.applied():
        arguments.out.write_bytes(style.to_png(draw(curves)))


if __name__ == "__main__":
    main()
