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

import platform
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import attsvm
import growth
from attsvm import heads, optimizers
from attsvm.plot import style
from timing import seconds_of_step

BASE = {"n": 8, "T": 16, "d": 16, "trials": 1}
GROWN = {
    "n": (8, 16, 32, 64, 128),
    "T": (16, 32, 64, 128, 256),
    "d": (16, 32, 64, 128, 256),
    "trials": (1, 4, 16, 64, 256),
}
UNITS = 10


def _relu(d: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    hidden, outer = generator.standard_normal((UNITS, d)), generator.standard_normal(UNITS)
    return {"head": heads.MLP(hidden, outer, activation="relu")}


KINDS: dict[str, tuple[Callable[[int], dict[str, Any]], growth.Look]] = {
    "W, normalised GD": (lambda d: {}, (style.BLUE, "-", "o")),
    "(K, Q), one norm": (lambda d: {"attention": "factored"}, (style.ORANGE, "--", "s")),
    "W, mirror descent p = 1.75": (
        lambda d: {"optimizer": optimizers.mirror_descent(learning_rate=0.1, p=1.75)},
        (style.VERMILLION, "-.", "^"),
    ),
    "W, ReLU head": (_relu, (style.GREEN, ":", "D")),
}


def seconds(kind: str, sizes: dict[str, int], repeats: int) -> float:
    """Processor seconds of one step of one trial."""
    trials, options = sizes["trials"], KINDS[kind][0](sizes["d"])
    batch = (trials,) if trials > 1 else ()
    problem = attsvm.datasets.random_problem(sizes["n"], sizes["T"], sizes["d"], seed=0, batch=batch)
    step = seconds_of_step(
        lambda steps: attsvm.train(problem, steps=steps, record=1, **options),
        short=20,
        least=0.2,
        repeats=repeats,
        clock=time.process_time,
    )
    return step / trials


def main() -> None:
    options = growth.arguments(__doc__, "docs/images/training_cost.png")
    print(f"{platform.machine()}, 1 core, float64, JAX {jax.__version__}, NumPy {np.__version__}\n")
    found = growth.curves(KINDS, BASE, GROWN, lambda kind, sizes: seconds(kind, sizes, options.repeats))
    at = ", ".join(f"{name}={size}" for name, size in BASE.items())
    print("\n" + growth.table(found, "training", f"µs a step at {at}", 1e-6))
    looks = {kind: look for kind, (_, look) in KINDS.items()}
    growth.write(growth.drawn(found, looks, "µs a step and trial", 1e-6), options.out)


if __name__ == "__main__":
    main()
