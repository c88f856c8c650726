"""The cost of several attention heads, and where gradient descent and spectral descent of all heads end.

By default: processor time of a step with H = 8 heads over that with one, for one trial alone and for 64 trials (n = 6,
T = 8, d = 10, default optimisers, one thread), and over that of 8 times as many trials with one head, which need the
same products. With ``--limit``: descent on the factors of H heads, on 24 problems with
2 and 3 heads, and the joint margin ratio (least norm of weights with margins of 1) · (smallest margin of all heads) /
(norm of the weights). The joint norm is Σ_h ‖W_h‖_* for gradient descent with one norm over all heads, max_h ‖W_h‖ for
spectral steps of each head, and the norm of fused heads for spectral steps of [K_1, …, K_H] and [Q_1, …, Q_H].
The spectral steps are also made without decay, on the problems of ``attsvm reproduce multi-head``.

    python benchmarks/attention_heads.py [--limit --steps 80000]
"""

import argparse
import os
import time
from functools import partial

import jax.numpy as jnp
import numpy as np

import attsvm
from attsvm.datasets import random_problem
from attsvm.norms import MaxOfHeads, Nuclear, Spectral, SumOfHeads
from attsvm.norms.factors import FusedHeads
from attsvm.optimizers import Decaying, normalized_gradient_descent, spectral_descent
from attsvm.papers.figures.multi_head import MultiHead, problems
from timing import seconds_of_step

HEADS, REPEATS = 8, 15


def cost() -> None:
    print(f"medians of {REPEATS} repeats")
    print(f"{'':12}{'trials':>8}{'one head, us':>14}{f'{HEADS} heads, us':>14}{'ratio':>8}{'to as many trials':>19}")
    for attention in ("combined", "factored"):
        for trials, least in (((), 0.3), ((64,), 1.0)):
            count = int(np.prod(trials, dtype=int))
            batches = ({"batch": trials}, {"num_heads": HEADS, "batch": trials}, {"batch": (HEADS * count,)})
            runs = [partial(_trained, random_problem(seed=0, **options), attention) for options in batches]
            # in turn, so that other work on the machine slows all alike
            times = np.array(
                [[seconds_of_step(run, least=least, clock=time.process_time) for run in runs] for _ in range(REPEATS)]
            )
            one, several, _ = 1e6 * np.median(times, axis=0)
            to_one, _, to_trials = np.median(times[:, 1:2] / times, axis=0)
            print(f"{attention:12}{count:8}{one:14.1f}{several:14.1f}{to_one:8.2f}{to_trials:19.2f}", flush=True)


def _trained(problem: attsvm.Problem, attention: str, steps: int) -> attsvm.Run:
    return attsvm.train(problem, attention=attention, steps=steps, record=1)


def limit(steps: int) -> None:
    def rate(k: jnp.ndarray) -> jnp.ndarray:
        quarters = [k < steps * share for share in (0.25, 0.5, 0.75)]
        return 0.01 * jnp.select(quarters, [1.0, 0.3, 0.1], 0.01)

    # the decay was chosen on problems with one head, seed 100
    short = {"learning_rate": Decaying(0.05, 100, 0.5), "weight_decay": 0.02}
    ways = {
        "gradient descent": (normalized_gradient_descent(rate, scope="all", relative=True), SumOfHeads(Nuclear())),
        "spectral, each head": (spectral_descent(**short, scope="heads"), MaxOfHeads(Spectral())),
        "spectral, fused heads": (spectral_descent(**short, scope="fused"), FusedHeads()),
    }
    for n, T, d, number, rank in ((5, 6, 10, 2, 5), (4, 6, 12, 3, 4)):
        problem = random_problem(n, T, d, seed=number, num_heads=number, batch=(12,))
        for name, (optimizer, norm) in ways.items():
            run = attsvm.train(problem, attention="factored", rank=rank, steps=steps, optimizer=optimizer, record=2)
            ratio = attsvm.margin_ratio(problem, run.weights, run.selected, norm)
            print(
                f"{number} heads, {name:22} {steps:,} steps: mean {ratio.mean():.4f}, least {ratio.min():.4f}",
                flush=True,
            )


def spectral_limit() -> None:
    for case in MultiHead.full["cases"]:
        problem = problems({**case, "problems": 12})
        for scope, norm in (("heads", "max over heads of spectral"), ("fused", "fused_heads")):
            descent = spectral_descent(Decaying(0.05, 100, 0.5), scope=scope)
            run = attsvm.train(
                problem, attention="factored", rank=case["m"], optimizer=descent, steps=60_000, record=[60_000]
            )
            ratio = [attsvm.margin_ratio(problem[i], run.weights[i], run.selected[i], norm) for i in range(12)]
            change = run.history["logit_change"].max()
            print(
                f"{case['heads']} heads, {norm}: mean {np.mean(ratio):.4f}, least {np.min(ratio):.4f}; "
                f"change of a logit {change:.2f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", action="store_true")
    parser.add_argument("--steps", type=int, default=80_000)
    arguments = parser.parse_args()
    os.environ["ATTSVM_THREADS"] = "1"
    if arguments.limit:
        limit(arguments.steps)
        spectral_limit()
    else:
        cost()


if __name__ == "__main__":
    main()
