"""Limits on mini-batches: what normalization by each batch, by a running average, and momentum do to the Att-SVM.

    python benchmarks/mini_batch_limits.py [acceptance] [normalizers] [momentum] [--write] [--out FOLDER]

Prints the tables of the section "Limits" of docs/notes/mini_batches.md. ``acceptance``: the direction error of
``log_gradient_descent`` to ``mini_batch_direction``, 100 problems with 60 sequences and 4 batch sizes. ``normalizers``:
the distances to both limits along training. ``momentum``: margin ratios of signs and spectral steps along decaying
sums. Distances and margin ratios are those of the runs that select the optimal tokens, of which the number is stated.
``--write`` also replaces the rows of this command in the table of standings. Finished parts are stored.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import attsvm
from attsvm.datasets import random_problem
from attsvm.optimizers import (
    Decaying,
    Steps,
    gradient_descent,
    log_gradient_descent,
    momentum,
    normalized_gradient_descent,
    spectral_descent,
    steepest_descent,
)
from attsvm.papers.pieces import PieceStore
from attsvm.theory import mini_batch_direction
from cases import markdown
from standings import ENOUGH, columns_of, is_rising, write_rows

COMMAND = "python benchmarks/mini_batch_limits.py"
FEW = 1e-3
"""The Att-SVM is another direction where it is farther away than this."""


def growing(step: Any) -> Any:
    return 0.1 * (1 + step / 100)


def average(size: int, n: int, epochs: int) -> float:
    """β of a running average over so many epochs."""
    return 1 - 1 / (epochs * (n // size) + 1)


DECAYING = Decaying(0.02, 1000, 0.5)
OPTIMIZERS: dict[str, Callable[[int, int], Any]] = {
    "log GD": lambda b, n: log_gradient_descent(growing),
    "GD": lambda b, n: gradient_descent(1.0),
    "normalised by the batch": lambda b, n: normalized_gradient_descent(growing),
    "running average, 1 epoch": lambda b, n: normalized_gradient_descent(0.1, average=average(b, n, 1)),
    "running average, 5 epochs": lambda b, n: normalized_gradient_descent(0.1, average=average(b, n, 5)),
    "running average, 20 epochs": lambda b, n: normalized_gradient_descent(0.1, average=average(b, n, 20)),
    "momentum 0.9, then normalised": lambda b, n: momentum(normalized_gradient_descent(DECAYING), 0.9),
    "momentum 0.99, then normalised": lambda b, n: momentum(normalized_gradient_descent(DECAYING), 0.99),
}
STANDINGS = {
    "log GD": ("log GD",),
    "momentum 0.9, then normalised": ("momentum 0.9, then normalised",),
    "momentum 0.99, then normalised": ("momentum 0.99, then normalised",),
    "running average, 1 epoch": ("running average, 1 epoch", "running average, 5 epochs"),
}
BETA = {f"momentum {beta:g}, then normalised": {"momentum": [beta, beta]} for beta in (0.9, 0.99)}
OF_MANY = {"GD": ("GD",), "normalised by the batch": ("normalised by the batch",)}
"""Other rows for many sequences; benchmarks/mini_batches.py writes those of few."""


@dataclass(frozen=True)
class Problems:
    """Problems of one size. ``planted``: more sequences than unknowns, with tokens that some weights select."""

    n: int
    T: int
    d: int
    count: int
    planted: bool
    sizes: tuple[int, ...]

    def make(self) -> attsvm.Problem:
        return planted(self) if self.planted else random_problem(self.n, self.T, self.d, seed=0, batch=(self.count,))


SETS = {
    "acceptance": Problems(60, 4, 4, 100, planted=True, sizes=(1, 4, 12, 30)),
    "many": Problems(60, 4, 4, 12, planted=True, sizes=(1, 4, 12, 60)),
    "few": Problems(6, 8, 10, 12, planted=False, sizes=(1, 2, 3, 6)),
}


def planted(of: Problems) -> attsvm.Problem:
    """Of 8n random sequences those whose best token is farthest ahead in the logits of random weights."""
    generator, keys, queries, best = np.random.default_rng(0), [], [], []
    for _ in range(of.count):
        weights = generator.standard_normal((of.d, of.d))
        K, Z = generator.standard_normal((8 * of.n, of.T, of.d)), generator.standard_normal((8 * of.n, of.d))
        logits = np.einsum("ntd,de,ne->nt", K, weights, Z)
        ordered = np.sort(logits, axis=1)
        kept = np.argsort(ordered[:, -2] - ordered[:, -1])[: of.n]
        keys.append(K[kept])
        queries.append(Z[kept])
        best.append(logits[kept].argmax(axis=1))
    # the value of a token is 1 where it is the one to select
    tokens = (np.array(best)[..., None] == np.arange(of.T))[..., None].astype(float)
    labels, head = np.ones((of.count, of.n)), np.ones((of.count, 1))
    return attsvm.Problem(tokens, labels, queries=np.array(queries), head=head, keys=np.array(keys))


def errors(weights: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return np.asarray(attsvm.direction_error(weights, direction, axis=(-2, -1)))


def trained(which: str, name: str, size: int, steps: int) -> dict[str, np.ndarray]:
    """Distances to both directions at a quarter, a half and the end of the steps, (3, problems)."""
    of = SETS[which]
    problem = of.make()
    selected = attsvm.optimal_tokens(problem)
    late = range(steps - 29, steps)  # several epochs of small batches
    record = sorted({steps // 4, steps // 2, *late, steps})
    run = attsvm.train(
        problem,
        optimizer=OPTIMIZERS[name](size, of.n),
        batch_size=None if size == of.n else size,
        steps=steps,
        record=record,
    )
    found = mini_batch_direction(problem, selected, size)
    at = np.searchsorted(run.history["steps"], [steps // 4, steps // 2, steps])
    weights, changes = run.history["weights"][at], run.history["logit_change"]
    return {
        "to_batch": errors(weights, np.broadcast_to(found.direction, weights.shape)),
        "to_att_svm": errors(weights, np.broadcast_to(found.att_svm.direction, weights.shape)),
        "apart": errors(found.direction, found.att_svm.direction),
        "ratio": np.array([attsvm.margin_ratio(problem, one, selected) for one in weights]),
        "right": (run.selected == selected).all(axis=-1),
        "least_margin": found.margins.min(axis=-1),
        "gap": np.asarray(found.gap),
        "changed": np.asarray(found.changed),
        "change": np.array([changes.min(), changes.max()]),
        "steps": np.array(steps),
    }


def lagging(norm: str, decay: float, size: int) -> dict[str, np.ndarray]:
    """Margin ratios of steps along decaying sums, in two norms, and in the first one after half of the steps."""
    problem = random_problem(6, 8, 10, seed=0, batch=(12,))
    if norm == "linf":
        inner = steepest_descent(norm="linf", learning_rate=Decaying(0.005, 1000, 0.5))
    else:
        inner = spectral_descent(Decaying(0.05, 1000, 0.5))
    optimizer, steps = momentum(inner, decay) if decay else inner, 60_000
    record = sorted({steps // 2, *range(steps - 29, steps + 1)})  # at the end, several epochs of small batches
    run = attsvm.train(problem, optimizer=optimizer, batch_size=None if size == 6 else size, steps=steps, record=record)
    selected, half = run.selected, run.history["weights"][0]
    changes = run.history["logit_change"]
    return {
        "ratio": np.array([attsvm.margin_ratio(problem, run.weights, selected, one) for one in (norm, "frobenius")]),
        "ratio_at_half": np.asarray(attsvm.margin_ratio(problem, half, selected, norm)),
        "change": np.array([changes.min(), changes.max()]),
        "steps": np.array(steps),
    }


def acceptance_rows(store: PieceStore) -> Iterator[list[str]]:
    for size in SETS["acceptance"].sizes:
        found = store(f"acceptance-{size}", trained, "acceptance", "log GD", size, 40_000)
        error, far = found["to_batch"][-1], found["apart"] > FEW
        # the hypotheses of the prediction
        held = far & found["right"] & (found["least_margin"] > 0)
        yield [
            str(size),
            f"{int(found['changed'].sum())}",
            f"{int(far.sum())}",
            f"{int(held.sum())}",
            f"{np.median(error[held]):.1e} / {error[held].max():.1e}" if held.any() else "-",
            f"{int((error[held] <= 1e-4).sum())} of {int(held.sum())}",
            f"{error[far & ~held].max():.1e}" if (far & ~held).any() else "-",
            f"{found['gap'].max():.0e}",
        ]


def normalizer_rows(store: PieceStore) -> Iterator[list[str]]:
    for which in ("many", "few"):
        of = SETS[which]
        for size in of.sizes:
            for name in OPTIMIZERS:
                found = measured(store, which, name, size)
                right = found["right"]
                to_att_svm, to_batch = (np.median(found[key][:, right], axis=1) for key in ("to_att_svm", "to_batch"))
                ratio = found["ratio"][-1, right]
                yield [
                    f"{of.n}",
                    f"{size}",
                    name,
                    " → ".join(f"{x:.1e}" for x in to_att_svm),
                    f"{to_batch[-1]:.1e}",
                    f"{ratio.mean():.3f} / {ratio.min():.3f}",
                    f"{int(found['right'].sum())} of {of.count}",
                ]


def measured(store: PieceStore, which: str, name: str, size: int) -> dict[str, np.ndarray]:
    return store(f"{which}-{size}-{list(OPTIMIZERS).index(name)}", trained, which, name, size, 60_000)


def momentum_rows(store: PieceStore) -> Iterator[list[str]]:
    for norm in ("linf", "spectral"):
        for decay in (0.0, 0.5, 0.9, 0.99):
            cells = []
            for size in (1, 2, 3, 6):
                ratio = lagging_of(store, norm, decay, size)["ratio"].mean(axis=1)
                cells.append(f"{ratio[0]:.3f} / {ratio[1]:.3f}")
            yield [norm, f"{decay:g}", *cells]


def lagging_of(store: PieceStore, norm: str, decay: float, size: int) -> dict[str, np.ndarray]:
    return store(f"momentum-{norm}-{decay:g}-{size}", lagging, norm, decay, size)


def result_of(steps: Steps, half: float, end: float) -> str:
    return "measured" if min(half, end) >= ENOUGH else "rising" if is_rising(steps, half, end) else "none"


def momentum_standings(store: PieceStore) -> Iterator[dict[str, Any]]:
    """The rows on steps along decaying sums."""
    for norm in ("linf", "spectral"):
        steps = steepest_descent(norm=norm).limit("combined").steps
        for decay in (0.5, 0.9, 0.99):
            for size in (1, 2, 3, 6):
                found = lagging_of(store, norm, decay, size)
                half, end = found["ratio_at_half"], found["ratio"][0]
                yield {
                    "command": COMMAND,
                    "steps": columns_of(steps),
                    "attention": "combined",
                    "norm": norm,
                    "momentum": [decay, decay],
                    **({"batch": [size], "sequences": 6} if size < 6 else {}),
                    "found": result_of(steps, half.mean(), end.mean()),
                    "measure": "margin ratio",
                    "first": [float(half.mean()), float(half.min())],
                    "last": [float(end.mean()), float(end.min())],
                    "num_steps": [int(found["steps"]) // 2, int(found["steps"])],
                    "logit_change": [float(x) for x in found["change"]],
                }


def standing_rows(store: PieceStore) -> Iterator[dict[str, Any]]:
    """The rows of the table of standings: one for each number of sequences and size of the batches."""
    for which in ("many", "few"):
        of = SETS[which]
        for size in of.sizes:
            for name, names in (STANDINGS | (OF_MANY if of.planted else {})).items():
                if size == of.n and of.planted:
                    continue
                steps = OPTIMIZERS[name](size, of.n).limit("combined").steps
                parts = [measured(store, which, one, size) for one in names]
                full, by_batch = size == of.n, name == "log GD" and size < of.n
                ratios = [(1 - part["to_batch"] if by_batch else part["ratio"])[:, part["right"]] for part in parts]
                half, end = ([float(f(x[i])) for x in ratios for f in (np.mean, np.min)] for i in (1, 2))
                means = [min(one[::2]) for one in (half, end)]
                yield {
                    "command": COMMAND,
                    "steps": columns_of(steps),
                    "attention": "combined",
                    "norm": "frobenius",
                    **({} if full else {"batch": [size], "sequences": of.n}),
                    **BETA.get(name, {}),
                    "found": result_of(steps, means[0], means[1]),
                    "measure": "correlation" if by_batch else "margin ratio",
                    "first": [means[0], min(half[1::2])],
                    "last": [means[1], min(end[1::2])],
                    "num_steps": [int(parts[0]["steps"]) // 2, int(parts[0]["steps"])],
                    "logit_change": [
                        abs(float(min(part["change"][0] for part in parts))),
                        float(max(part["change"][1] for part in parts)),
                    ],
                }


TABLES = {
    "acceptance": (
        acceptance_rows,
        ["batch", "changed", "Att-SVM > 1e-3 away", "and hypotheses hold", "error, median / largest", "≤ 1e-4",
         "largest error of the others", "gap"],
    ),
    "normalizers": (
        normalizer_rows,
        ["n", "batch", "steps", "to the Att-SVM after 15,000 → 30,000 → 60,000", "to the mini-batch direction",
         "margin ratio, mean / least", "optimal tokens"],
    ),
    "momentum": (momentum_rows, ["norm", "β", "b = 1", "2", "3", "6"]),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], default=[])
    parser.add_argument("--write", action="store_true", help="write the rows of the table of standings, too")
    parser.add_argument("--out", type=Path, default=Path("out/mini_batch_limits"))
    options = parser.parse_args()
    store = PieceStore(
        options.out, lambda name, reused: print(f"{name}{' (stored)' if reused else ''}", file=sys.stderr)
    )
    for name in options.tables or TABLES:
        make, header = TABLES[name]
        print(f"\n## {name}\n\n{markdown(header, list(make(store)))}", flush=True)
    if options.write:
        write_rows([*standing_rows(store), *momentum_standings(store)], COMMAND)


if __name__ == "__main__":
    main()
