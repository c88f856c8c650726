"""Mini-batches: the margin ratios of each optimiser with steps on 1, 2, half or all of the sequences.

    python benchmarks/mini_batches.py [--write] [--json] [--out FOLDER] [name ...]

Prints the tables of docs/notes/mini_batches.md, or their rows as JSON. ``--write`` also replaces the rows of this
command in the table of standings, src/attsvm/theory/standings.toml. Finished parts are stored in the folder of --out
and reused by the next call if neither the sources nor the libraries have changed.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optax

import attsvm
from attsvm.optimizers import (
    Decaying,
    Limit,
    gradient_descent,
    momentum,
    normalized,
    spectral_descent,
    steepest_descent,
)
from attsvm.papers.figures.factored_optimizers import WAYS as OF_FACTORS
from attsvm.papers.figures.optimizer_norms import WAYS, ExpectedNorm, least_norm, problems, start
from attsvm.papers.pieces import PieceStore
from attsvm.theory.standing import limit_at
from cases import markdown
from standings import ENOUGH, columns_of, is_rising, write_rows

SHAPE = (6, 8, 10)
STEPS = 100_000
SEEDS = 12
SIZES = {"1": 1, "2": 2, "half": SHAPE[0] // 2, "full": SHAPE[0]}
NORMS = {
    "combined": ("frobenius", "linf", "l1", "l1.5", "l3", "spectral"),
    "factored": ("frobenius", "linf", "nuclear", "spectral", "gamma2"),
}
LAGGING = Decaying(0.005, 1000, 0.5)
"""For steps along decaying sums: the logits move little in the steps over which a sum extends."""
RAW = Decaying(0.003, 1000, 0.5)
"""For Adam on the gradient itself: the logits stay so small that its square does not underflow."""


@dataclass(frozen=True)
class Case:
    """An optimiser and the norm of its limit with full batches."""

    optimizer: Any
    norm: str
    attention: str = "combined"
    steps: int = STEPS


def of_way(way: ExpectedNorm) -> Case:
    """With the decaying steps of ``attsvm reproduce optimizer-norms``."""
    steps = round(way.part * STEPS)
    return Case(way.decaying(steps), way.norm, way.attention, steps)


CASES = {
    "GD": Case(gradient_descent(10.0), "frobenius"),
    **{
        name: of_way(WAYS[name])
        for name in (
            "normalised GD",
            "mirror, p = 1.5",
            "mirror, p = 3",
            "sign",
            "coordinate",
            "Adam",
            "Muon, converged",
            "Muon",
        )
    },
    "spectral": Case(spectral_descent(Decaying(1.0, 1000, 1 / 3)), "spectral"),
    "Adam, not normalised": Case(optax.adam(RAW, eps=1e-300), "linf"),
    "Lion": Case(normalized(optax.lion(LAGGING, weight_decay=0.0), norm="linf"), "linf"),
    "sign, momentum 0.9": Case(momentum(steepest_descent(norm="linf", learning_rate=LAGGING), 0.9), "linf"),
    "spectral, momentum 0.9": Case(momentum(spectral_descent(Decaying(0.1, 1000, 1 / 3)), 0.9), "spectral"),
    "(K, Q) GD, one norm": of_way(WAYS["(K, Q)"]),
    **{
        f"(K, Q) {name}": Case(OF_FACTORS[name.partition(",")[0]].make(STEPS), norm, "factored")
        for name, norm in {
            "spectral": "spectral",
            "Muon, coefficients of optax": "spectral",
            "rows": "gamma2",
            "columns": "nuclear",
            "sign": "nu",
            "Adam": "nu",
        }.items()
    },
}


def measured(name: str, size: int) -> dict[str, np.ndarray]:
    """Margin ratios in all norms, (norms, seeds), in that of the limit also after a half of the steps, and the rest."""
    case, problem = CASES[name], problems(*SHAPE, SEEDS)
    half = case.steps // 2
    run = attsvm.train(
        problem,
        attention=case.attention,
        optimizer=case.optimizer,
        steps=case.steps,
        batch_size=size,
        init=start(case.attention, problem),
        # both blocks of steps hold several epochs, so the change of a logit is that of every batch
        record=[*range(half, half + 30), *range(case.steps - 29, case.steps + 1)],
    )
    norms = norms_of(case)
    least = np.array(
        [[least_norm(norm, *SHAPE, seed, tuple(run.selected[seed])) for seed in range(SEEDS)] for norm in norms]
    )
    return {
        "ratio": np.array([attsvm.margin(problem, run.weights, run.selected, norm) for norm in norms]) * least,
        "ratio_at_half": attsvm.margin(problem, run.history["weights"][0], run.selected, case.norm) * least[0],
        "logit_change": run.history["logit_change"].max(axis=0),
        "least_change": run.history["logit_change"].min(axis=0),
        "decided": (1 - run.probability).max(axis=-1) <= 1e-6,
        "stopped": np.asarray(run.step) < case.steps,
    }


def norms_of(case: Case) -> tuple[str, ...]:
    """The norm of the limit first."""
    return tuple(dict.fromkeys((case.norm, *NORMS[case.attention])))


def row_of(name: str, batch: str, found: dict[str, np.ndarray]) -> dict[str, Any]:
    """What the table of standings states of one optimiser and batch size."""
    case = CASES[name]
    own, half, means = found["ratio"][0], found["ratio_at_half"], found["ratio"].mean(axis=1)
    n, T, d = SHAPE
    return {
        "optimizer": name,
        "attention": case.attention,
        "batch": batch,
        "norm": case.norm,
        "ratio_mean": own.mean(),
        "ratio_least": own.min(),
        "ratio_mean_half": half.mean(),
        "ratio_least_half": half.min(),
        "norms": dict(zip(norms_of(case), means.tolist(), strict=True)),
        "steps": case.steps,
        "logit_change": [found["least_change"].min(), found["logit_change"].max()],
        # at the rates of convergence of full batches, the rest of the steps removes more of the distance to 1
        "flat": bool(own.mean() - half.mean() < 0.1 * (1 - half.mean())),
        "decided": int(found["decided"].sum()),
        "stopped": int(found["stopped"].sum()),
        "problems": SEEDS,
        "n": n,
        "T": T,
        "d": d,
        "command": f'python benchmarks/mini_batches.py "{name}"',
    }


def standing_row(row: dict[str, Any]) -> dict[str, Any] | None:
    """The row of the table of standings; None for full batches, and for steps that it does not name."""
    limit = getattr(CASES[row["optimizer"]].optimizer, "limit", lambda _: Limit(None))(row["attention"])
    steps = limit_at(limit, row["logit_change"][1]).steps
    if row["batch"] == "full" or steps.kind == "unknown" or steps.momentum:  # those are of mini_batch_limits.py
        return None
    high = min(row["ratio_mean_half"], row["ratio_mean"]) >= ENOUGH
    return {
        "command": "python benchmarks/mini_batches.py",
        **{name: row[name] for name in ("attention", "norm", "logit_change")},
        "steps": columns_of(steps),
        "batch": [SIZES[row["batch"]]],
        "sequences": row["n"],
        "found": "measured"
        if high
        else "rising"
        if is_rising(steps, row["ratio_mean_half"], row["ratio_mean"])
        else "none",
        "measure": "margin ratio",
        "first": [row["ratio_mean_half"], row["ratio_least_half"]],
        "last": [row["ratio_mean"], row["ratio_least"]],
        "num_steps": [row["steps"] // 2, row["steps"]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(CASES), help="which optimisers to train with")
    parser.add_argument("--json", action="store_true", help="print rows as JSON in place of tables")
    parser.add_argument("--write", action="store_true", help="write the rows of the table of standings, too")
    parser.add_argument("--out", type=Path, default=Path("out/mini_batches"))
    options = parser.parse_args()
    store = PieceStore(
        options.out, lambda name, reused: print(f"{name}{' (stored)' if reused else ''}", file=sys.stderr)
    )
    rows = [
        row_of(name, batch, store(f"{list(CASES).index(name)}-{batch}", measured, name, size))
        for name in options.names
        for batch, size in SIZES.items()
    ]
    if options.write:
        write_rows([known for row in rows if (known := standing_row(row))], "python benchmarks/mini_batches.py")
    if options.json:
        print(json.dumps(rows, indent=1, default=float))
        return
    for attention, norms in NORMS.items():
        of_one = [row for row in rows if row["attention"] == attention]
        print(f"\n## {attention}: norm of the limit with full batches, mean / least of {SEEDS} problems\n")
        print(markdown(["optimiser", "norm", *SIZES, "steps", "change of a logit"], list(_own(of_one))))
        print(f"\n## {attention}: every norm, mean of {SEEDS} problems\n")
        print(markdown(["optimiser", "batch", *norms], [_every(row, norms) for row in of_one]))


def _own(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    for name in dict.fromkeys(row["optimizer"] for row in rows):
        of_one = [row for row in rows if row["optimizer"] == name]
        ratios = [f"{row['ratio_mean']:.3f} / {row['ratio_least']:.3f} {'·' if row['flat'] else '↑'}" for row in of_one]
        least, largest = np.transpose([row["logit_change"] for row in of_one])
        change = f"{least.min():.1g} to {largest.max():.1g}"
        yield [name, of_one[0]["norm"], *ratios, f"{of_one[0]['steps']:,}", change]


def _every(row: dict[str, Any], norms: tuple[str, ...]) -> list[str]:
    return [row["optimizer"], row["batch"], *(f"{row['norms'][norm]:.3f}" for norm in norms)]


if __name__ == "__main__":
    main()
