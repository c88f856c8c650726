"""How close each optimiser comes to the Att-SVM of its norm, and how long this takes.

    python benchmarks/limit.py [--seeds 20]

n = 6, T = 8, d = 10, all seeds as one batch. The direction error compares the weights with the Att-SVM, in the matching
norm, of the tokens that the run selects at the end. A run is undecided if a dropped probability exceeds 1e-6.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import attsvm
from attsvm import optimizers
from attsvm._utils.threads import num_threads
from attsvm.papers.figures.optimizer_norms import problems
from attsvm.papers.schedules import limit_optimizer

UNDECIDED = 1e-6


class Way(NamedTuple):
    """An optimiser, its steps, and an upper bound on the direction error of all of its runs."""

    name: str
    norm: str | float
    attention: str
    optimizer: Callable[[], Any]
    schedule: str
    steps: int
    below: float


WAYS = (
    Way(
        "W, normalised GD",
        "frobenius",
        "combined",
        lambda: limit_optimizer("combined", 20_000),
        "0.1 (1 + k/100)",
        20_000,
        1e-6,
    ),
    Way(
        "W, mirror descent p = 1.5",
        1.5,
        "combined",
        lambda: optimizers.mirror_descent(learning_rate=lambda k: 0.1 * (1 + k / 100), p=1.5),
        "0.1 (1 + k/100)",
        50_000,
        1e-6,
    ),
    Way(
        "W, mirror descent p = 1.75",
        1.75,
        "combined",
        lambda: optimizers.mirror_descent(learning_rate=lambda k: 0.1 * (1 + k / 100), p=1.75),
        "0.1 (1 + k/100)",
        50_000,
        1e-6,
    ),
    Way(
        "W, mirror descent p = 3",
        3.0,
        "combined",
        # |W| grows like the square root of the mirror variable, so the steps grow faster
        lambda: optimizers.mirror_descent(learning_rate=lambda k: 0.1 * (1 + k / 100) ** 1.5, p=3.0),
        "0.1 (1 + k/100)^1.5",
        100_000,
        1e-6,
    ),
    Way(
        "(K, Q), normalised together",
        "nuclear",
        "factored",
        lambda: limit_optimizer("factored", 80_000),
        "relative 1e-2, 3e-3, 1e-3, 1e-4, each 20,000",
        80_000,
        1e-4,
    ),
)


def measure(way: Way, problem: attsvm.Problem) -> tuple[attsvm.Run, np.ndarray, np.ndarray]:
    """The run, its direction errors, and the undecided trials."""
    start = None
    if way.attention == "factored":
        generator = np.random.default_rng(0)
        start = tuple(generator.standard_normal((*problem.batch_shape, 10, 10)) for _ in range(2))
    run = attsvm.train(
        problem, attention=way.attention, optimizer=way.optimizer(), steps=way.steps, record=2, init=start
    )
    solution = attsvm.solve_svm(problem, run.selected, way.norm)
    errors = attsvm.direction_error(run.weights, solution.direction, axis=(-2, -1))
    return run, np.asarray(errors), (1 - run.probability).max(axis=-1) > UNDECIDED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    problem = problems(6, 8, 10, parser.parse_args().seeds)
    print(f"{problem.batch_shape[0]} seeds, {num_threads()} threads; n = 6, T = 8, d = 10")
    print("| trained | step k | steps | largest error | median | undecided | seconds in all |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for way in WAYS:
        began = time.perf_counter()
        _, errors, undecided = measure(way, problem)
        took = time.perf_counter() - began
        decided = errors[~undecided]
        print(
            f"| {way.name} | {way.schedule} | {way.steps:,} | {decided.max():.1e} | {np.median(decided):.1e} | "
            f"{undecided.sum()} | {took:.1f} |",
            flush=True,
        )
        if not (decided < way.below).all():
            print(f"  above {way.below:g}: seeds {np.flatnonzero(~undecided & (errors >= way.below)).tolist()}")


if __name__ == "__main__":
    main()
