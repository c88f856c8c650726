"""Optimiser × norm: the margin ratio of each optimiser's weights in every norm, at several step counts.

    python benchmarks/optimizer_norms.py [--seeds 20] [--steps 2000 10000 50000] [--long 200000] [--out FOLDER]

Prints the tables of docs/notes/optimizer_norms.md. Finished parts are stored in the folder of --out and reused by
the next call if neither the sources nor the libraries have changed.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import attsvm
from attsvm import optimizers
from attsvm.papers.figures.optimizer_norms import NORMS, WAYS, own, problems, ratios, start
from attsvm.papers.pieces import Store
from attsvm.training.trials import num_threads

SHAPE = (6, 8, 10)
SCHEDULES = ("constant", "decaying")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, nargs="+", default=[2000, 10_000, 50_000])
    parser.add_argument(
        "--long",
        type=int,
        default=200_000,
        help="number of decaying steps for optimisers that are below 0.999 on some seed with fewer",
    )
    parser.add_argument("--out", type=Path, default=Path("out/optimizer_norms"))
    options = parser.parse_args()
    store = Store(options.out, lambda name, reused: print(f"{name}{' (stored)' if reused else ''}", file=sys.stderr))

    def measured(name: str, schedule: str, steps: int) -> np.ndarray:
        """(seeds, norms)."""
        key = f"{list(WAYS).index(name)}-{schedule}-{steps}"
        return store(key, ratios, name, schedule, steps, *SHAPE, options.seeds)["ratio"]

    ratio = {
        (schedule, steps): np.stack([measured(name, schedule, steps) for name in WAYS])
        for schedule in SCHEDULES
        for steps in options.steps
    }
    slow = own(list(WAYS), ratio["decaying", max(options.steps)])[0].min(axis=1) < 0.999
    ratio["decaying", options.long] = np.stack(
        [
            measured(name, "decaying", options.long) if is_slow else np.full_like(so_far, np.nan)
            for name, is_slow, so_far in zip(WAYS, slow, ratio["decaying", max(options.steps)], strict=True)
        ]
    )
    counts = {"constant": options.steps, "decaying": [*options.steps, options.long]}
    print(f"{options.seeds} seeds, {num_threads()} threads; n, T, d = {', '.join(map(str, SHAPE))}\n")
    for schedule in SCHEDULES:
        print(f"\n## Margin ratio in the own norm, {schedule} steps: mean and worst of the seeds\n")
        print("\n".join(_own(ratio, schedule, counts[schedule])))
    for schedule, steps in (("constant", max(options.steps)), ("decaying", max(options.steps))):
        print(f"\n## Every norm, {steps:,} {schedule} steps: mean (worst)\n")
        print("\n".join(_matrix(ratio[schedule, steps])))
    print("\n## Steepest descent with steps of several lengths, own norm: mean and worst\n")
    print("\n".join(_long_steps(store, options.seeds)))
    print("\n## Seeds on which another norm than the own norm has the largest ratio\n")
    print("\n".join(_failures(ratio)))


def with_long_steps(norm: str, length: str, counts: list[int], seeds: int) -> dict[str, np.ndarray]:
    """Margin ratio, in its own norm, of steepest descent with constant or growing steps, (counts, seeds)."""
    problem = problems(*SHAPE, seeds)
    run = attsvm.train(
        problem,
        optimizer=LONG_STEPS[length](norm),
        steps=max(counts),
        init=start(WAYS["sign"], problem),
        record=counts,
    )
    each = zip(run.history["weights"], run.history["selected"], strict=True)
    return {"ratio": np.stack([attsvm.margin_ratio(problem, weights, kept, norm) for weights, kept in each])}


LONG_STEPS = {
    "constant, 0.05": lambda norm: optimizers.steepest_descent(learning_rate=0.05, norm=norm),
    "constant, 0.1": lambda norm: optimizers.steepest_descent(learning_rate=0.1, norm=norm),
    "constant, 0.2": lambda norm: optimizers.steepest_descent(learning_rate=0.2, norm=norm),
    "constant, 1": lambda norm: optimizers.steepest_descent(learning_rate=1.0, norm=norm),
    "growing, 0.1 (1 + k/100)": lambda norm: optimizers.steepest_descent(
        learning_rate=lambda k: 0.1 * (1 + k / 100), norm=norm
    ),
}
LONG_COUNTS = {"frobenius": [50_000], "l1": [50_000], "linf": [10_000, 50_000, 200_000]}


def _long_steps(store: Store, seeds: int) -> Iterator[str]:
    columns = [f"{norm}, {count:,}" for norm, counts in LONG_COUNTS.items() for count in counts]
    yield f"| steps | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}"
    for number, length in enumerate(LONG_STEPS):
        found = [
            row
            for norm, counts in LONG_COUNTS.items()
            for row in store(f"long-{norm}-{number}", with_long_steps, norm, length, counts, seeds)["ratio"]
        ]
        yield f"| {length} | {' | '.join(f'{_down(x.mean())}, {_down(x.min())}' for x in found)} |"


def _own(ratio: dict[tuple[str, int], np.ndarray], schedule: str, counts: list[int]) -> Iterator[str]:
    yield f"| optimiser | norm | {' | '.join(f'{steps:,}' for steps in counts)} |"
    yield "| --- | --- |" + " --- |" * len(counts)
    each = [own(list(WAYS), ratio[schedule, steps])[0] for steps in counts]
    for i, (name, way) in enumerate(WAYS.items()):
        cells = (f"{_down(x[i].mean())}, {_down(x[i].min())}" if np.isfinite(x[i]).all() else "-" for x in each)
        yield f"| {name} | {way.norm} | {' | '.join(cells)} |"


def _matrix(ratio: np.ndarray) -> Iterator[str]:
    yield f"| optimiser | {' | '.join(NORMS)} |"
    yield "| --- |" + " --- |" * len(NORMS)
    for (name, way), of_seeds in zip(WAYS.items(), ratio, strict=True):
        cells = []
        for norm, values in zip(NORMS, of_seeds.T, strict=True):
            cell = f"{_down(values.mean(), 3)} ({_down(values.min(), 3)})"
            cells.append(f"**{cell}**" if norm == way.norm else cell)
        yield f"| {name} | {' | '.join(cells)} |"


def _failures(ratio: dict[tuple[str, int], np.ndarray]) -> Iterator[str]:
    yield "| optimiser | steps | seeds | ahead there |"
    yield "| --- | --- | --- | --- |"
    for (schedule, steps), values in ratio.items():
        of_own, others = own(list(WAYS), values)
        for i, name in enumerate(WAYS):
            behind = np.flatnonzero(of_own[i] <= others[i])
            if behind.size:
                ahead = sorted({NORMS[j] for j in values[i, behind].argmax(axis=-1)})
                yield f"| {name} | {schedule}, {steps:,} | {', '.join(map(str, behind))} | {', '.join(ahead)} |"


def _down(value: float, digits: int = 4) -> str:
    """Rounded down, so that only 1 is written as 1."""
    return f"{np.floor(value * 10**digits + 1e-9) / 10**digits:.{digits}f}"


if __name__ == "__main__":
    main()
