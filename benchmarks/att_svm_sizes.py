"""Time of one Att-SVM as n, T and d are doubled in turn, with a slope for each norm.

Times are processor times of ``solve_svm``, including the certificate, on one thread: the best of several runs, and the
median of three random problems. A slope is that of a straight line through all points of a curve in logarithmic axes.

    python benchmarks/att_svm_sizes.py [--repeats 3] [--out docs/images/att_svm_cost.png]
"""

import one_thread  # noqa: F401  # isort: skip

import platform

import numpy as np

import attsvm
import growth
from attsvm.plot import style
from timing import best

BASE = {"n": 8, "T": 16, "d": 32}
GROWN = {name: [size << k for k in range(4)] for name, size in BASE.items()}
SEEDS = range(3)
LOOKS: dict[str, growth.Look] = {
    "frobenius": (style.BLUE, "-", "o"),
    "l1.75": (style.ORANGE, "--", "s"),
    "l3": (style.VERMILLION, "-.", "^"),
    "nuclear": (style.GREEN, ":", "D"),
    "spectral": (style.PURPLE, (0, (5, 1, 1, 1, 1, 1)), "v"),
}


def seconds(norm: str, sizes: dict[str, int], repeats: int) -> float:
    """Median over the seeds of the best of several runs."""
    each = []
    for seed in SEEDS:
        problem = attsvm.datasets.random_problem(sizes["n"], sizes["T"], sizes["d"], seed)
        selected = attsvm.optimal_tokens(problem)
        solution = attsvm.solve_svm(problem, selected, norm=norm)
        if solution.status != "optimal":
            raise SystemExit(f"{norm}, {sizes}, seed {seed}: {solution!r}")
        work = lambda p=problem, s=selected: attsvm.solve_svm(p, s, norm=norm)  # noqa: E731
        each.append(best({norm: work}, repeats)[norm])
    return float(np.median(each))


def main() -> None:
    options = growth.arguments(__doc__, "docs/images/att_svm_cost.png")
    print(f"{platform.machine()}, 1 thread, NumPy {np.__version__}\n")
    found = growth.curves(LOOKS, BASE, GROWN, lambda norm, sizes: seconds(norm, sizes, options.repeats))
    at = ", ".join(f"{name}={size}" for name, size in BASE.items())
    print("\n" + growth.table(found, "norm", f"ms at {at}", 1e-3))
    growth.write(growth.drawn(found, LOOKS, "processor seconds", 1.0), options.out)


if __name__ == "__main__":
    main()
