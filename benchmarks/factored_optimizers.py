"""Descent on keys and queries: how close short steps come to the Att-SVM of the induced norm, and what a step costs.

python benchmarks/factored_optimizers.py          trains 24 problems with each optimiser (15 minutes)
python benchmarks/factored_optimizers.py --cost   prints the processor time of 1,000 steps of 12 problems
"""

import argparse
import time
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np
import optax

import attsvm
from attsvm.datasets import random_problem
from attsvm.optimizers import (
    Decaying,
    NewtonSchulz,
    Optimizer,
    adam,
    chain,
    column_descent,
    normalized_gradient_descent,
    row_descent,
    spectral_descent,
    steepest_descent,
)
from attsvm.optimizers.rule import Rule, WeightDecay
from attsvm.optimizers.singular import singular_values_and_vectors
from attsvm.optimizers.steepest import Steepest
from attsvm.optimizers.transformations import LearningRate, Normalize
from timing import best

CONVERGED = NewtonSchulz((2.0, -1.5, 0.5), 20)


@dataclass(frozen=True)
class ByJacobi(Rule):
    """Spectral steps of length 0.05 from singular value decompositions by Jacobi rotations, parameter by parameter."""

    scale_free = True

    def update(self, updates, state, params, *, numbers, value):
        """−0.05 U V'."""
        moves = {}
        for name, g in updates.gradient.items():
            left, values, right = singular_values_and_vectors(g / jnp.max(jnp.abs(g), axis=(0, 1)))
            kept = values > len(g) * np.finfo(np.float64).eps * jnp.max(values, axis=0)
            moves[name] = -0.05 * jnp.einsum("rkb,ckb->rcb", jnp.where(kept, left, 0.0), right)
        return moves, state


def pow(rate: float) -> Decaying:
    """A step whose change of the logits stays constant."""
    return Decaying(rate, 100, 0.5)


def long_steps(step: jnp.ndarray) -> jnp.ndarray:
    """Steps relative to the size of the factors: 1e-2, 1e-3 and 1e-4, for a third of 21,000 steps each."""
    return 10.0 ** (-2 - jnp.minimum(step // 7_000, 2))


# the decay was chosen on seed 100
DECAY = 0.02
RUNS: dict[str, tuple[Optimizer | None, int]] = {
    "gradient descent": (None, 60_000),
    "spectral": (spectral_descent(pow(0.05)), 60_000),
    "spectral, decay": (spectral_descent(pow(0.05), weight_decay=DECAY), 60_000),
    "Muon, converged": (spectral_descent(pow(0.05), polar=CONVERGED, momentum=0.95), 60_000),
    "Muon, converged, decay": (
        spectral_descent(pow(0.05), polar=CONVERGED, momentum=0.95, weight_decay=DECAY),
        60_000,
    ),
    "Muon, coefficients of optax": (spectral_descent(pow(0.05), polar="optax", momentum=0.95), 60_000),
    "rows": (row_descent(pow(0.02)), 300_000),
    "columns": (column_descent(Decaying(0.3, 1000, 1 / 3), by_logit=True), 300_000),
    "spectral, [K, Q]": (spectral_descent(pow(0.05), scope="kq"), 60_000),
    "sign": (steepest_descent(norm="linf", learning_rate=Decaying(0.01, 100, 0.6)), 300_000),
    "Adam": (adam(Decaying(0.02, 100, 0.6)), 300_000),
    "sign, decay": (
        chain(Normalize("each", "l1"), LearningRate(Decaying(0.002, 10_000)), WeightDecay(Steepest("linf"), 0.2)),
        200_000,
    ),
    "Adam, decay": (
        chain(Normalize(), optax.adamw(Decaying(0.002, 10_000), eps=1e-30, weight_decay=0.2)),
        200_000,
    ),
    **{
        f"{name}, long steps": (steepest_descent(norm=norm, learning_rate=long_steps, relative=True), 21_000)
        for name, norm in {
            "spectral": "spectral",
            "rows": "linf,2",
            "columns": "linf,2-columns",
            "sign": "linf",
        }.items()
    },
}
NORMS = ("spectral", "nuclear", "frobenius", "gamma2")
OWN = {
    "spectral, [K, Q]": ("fused_kq",),
    **dict.fromkeys(("sign", "Adam", "sign, decay", "Adam, decay"), ("nu", "linf")),
}
"""Norms that are measured for one optimiser alone; ν takes seconds a problem."""
STEPS_IN = {"spectral": "spectral", "rows": "linf,2", "columns": "linf,2-columns", "sign": "linf", "Adam": "linf"}
"""The norm N of the steps, for the KKT ratio of the factors, by the first word of the name."""


def measure(seed: int, count: int, names: list[str]) -> None:
    problems = random_problem(6, 8, 10, seed=seed, batch=(count,))
    print(f"{count} problems, n = 6, T = 8, d = m = 10, seed {seed}; margin ratio, mean / least", flush=True)
    of_descent = None
    for name in names:
        optimizer, steps = RUNS[name]
        begin = time.process_time()
        run = attsvm.train(problems, attention="factored", optimizer=optimizer, steps=steps, record=1)
        took = time.process_time() - begin
        singular = np.linalg.svd(run.weights, compute_uv=False)
        shares = singular / singular.sum(axis=-1, keepdims=True)
        rank = np.exp(-np.sum(shares * np.log(np.maximum(shares, 1e-300)), axis=-1))
        cells = []
        for norm in (*NORMS, *OWN.get(name, ())):
            ratios = [attsvm.margin_ratio(problems[i], run.weights[i], run.selected[i], norm) for i in range(count)]
            cells.append(f"{norm} {np.mean(ratios):.4f} / {np.min(ratios):.4f}")
        of_steps = STEPS_IN.get(name.split(",")[0])
        if of_steps is not None and "[K, Q]" not in name and "long" not in name:
            ratios = attsvm.theory.kkt_ratio(problems, run.parameters, run.selected, of_steps)
            cells.append(f"KKT {np.mean(ratios):.4f} / {np.min(ratios):.4f}")
        of_descent = rank if of_descent is None else of_descent
        more = rank - of_descent
        print(
            f"{name:28} {steps:>7,} steps  {'  '.join(cells)}  effective rank {rank.mean():.2f}, less that of the "
            f"first line {more.mean():.2f} / {more.min():.2f}  change of a logit "
            f"{run.history['logit_change'].max():.2g}  {took:.0f} s",
            flush=True,
        )


def cost(repeats: int) -> None:
    problems = random_problem(6, 8, 10, seed=0, batch=(12,))
    ways = {
        "gradient descent": normalized_gradient_descent(0.05),
        "spectral, singular values by Jacobi rotations": ByJacobi(),
        "spectral, exact": spectral_descent(0.05),
        "spectral, converged Newton-Schulz": spectral_descent(0.05, polar=CONVERGED),
        "spectral, coefficients of optax": spectral_descent(0.05, polar="optax"),
        "rows": row_descent(0.05),
    }
    print("processor seconds of 1,000 steps on K and Q (10, 10) of 12 problems")
    for name, optimizer in ways.items():
        run = partial(attsvm.train, problems, attention="factored", optimizer=optimizer, steps=1000, record=1)
        run()  # compiles
        print(f"{name:48}{best({name: run}, repeats)[name]:8.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(RUNS), help="which optimisers to train with")
    parser.add_argument("--cost", action="store_true", help="measure the cost of steps in place of margins")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--problems", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.cost:
        cost(arguments.repeats)
    else:
        measure(arguments.seed, arguments.problems, arguments.names)


if __name__ == "__main__":
    main()
