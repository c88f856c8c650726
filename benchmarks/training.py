"""Normalised gradient descent on W: `attsvm.train` against a PyTorch autograd loop, as the papers' code has it.

n = 6, T = 8, d = 10, float64, 2,000 steps of 0.1 under the logistic loss; compile time apart. Both must reach the same
weights after 100 steps before anything is timed.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable

import numpy as np
import torch

import attsvm
from attsvm.datasets import random_problem
from attsvm.training.trials import num_threads

STEPS, STEP, TRIALS = 2000, 0.1, 1000


def torch_run(problem: attsvm.Problem, start: np.ndarray, steps: int) -> np.ndarray:
    """The papers' way: autograd, then SGD on the normalised gradient. Batch axes are trained side by side."""
    tokens, labels, queries, head = (
        torch.tensor(x) for x in (problem.tokens, problem.labels, problem.queries, problem.head)
    )
    W = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.SGD([W], lr=STEP)
    for _ in range(steps):
        optimizer.zero_grad()
        logits = (tokens @ (queries @ W.mT).unsqueeze(-1)).squeeze(-1)
        pooled = (torch.softmax(logits, dim=-1).unsqueeze(-2) @ tokens).squeeze(-2)
        outputs = (pooled @ head.unsqueeze(-1)).squeeze(-1)
        # the sum over trials gives each trial the gradient of its own mean loss
        loss = torch.nn.functional.softplus(-labels * outputs).mean(dim=-1).sum()
        loss.backward()
        with torch.no_grad():
            W.grad /= torch.linalg.matrix_norm(W.grad, keepdim=True)
        optimizer.step()
    return W.detach().numpy()


def seconds(action: Callable[[], object], repeats: int) -> float:
    """Shortest of several runs."""
    best = np.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=num_threads(), help="cores for either side")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    os.environ["ATTSVM_THREADS"] = str(arguments.threads)

    trials = random_problem(6, 8, 10, seed=0, batch=(TRIALS,))
    starts = np.random.default_rng(0).normal(size=(TRIALS, 10, 10))
    one, start = trials[0], starts[0]
    print(f"{platform.processor() or platform.machine()}, {num_threads()} threads; torch {torch.__version__}")
    print(f"n = 6, T = 8, d = 10, float64, {STEPS:,} steps of normalised gradient descent on W")

    # a single small problem does not gain from threads; the peer gets whichever number is faster for it
    torch.set_num_threads(1)
    difference = np.abs(attsvm.train(one, init=start, steps=100).weights - torch_run(one, start, 100)).max()
    print(f"largest difference of the weights after 100 steps: {difference:.1e}")
    assert difference < 1e-9, "the two sides do not compute the same thing"
    peer = min(seconds(lambda: torch_run(one, start, STEPS), 3) for _ in _thread_counts(arguments.threads))

    for name, problem, init in (("one trial", one, start), (f"{TRIALS:,} trials", trials, starts)):
        number = 1 if problem is one else TRIALS
        compiling = seconds(lambda problem=problem, init=init: attsvm.train(problem, init=init, steps=1), 1)
        took = seconds(
            lambda problem=problem, init=init: attsvm.train(problem, init=init, steps=STEPS), arguments.repeats
        )
        per_step, peer_step = (1e6 * x / STEPS for x in (took / number, peer))
        print(
            f"{name:>12}: attsvm {per_step:7.3f} us a step and trial, PyTorch {peer_step:6.1f} us: "
            f"{peer_step / per_step:5.0f} times faster  (first call, compile included: {compiling:.2f} s)"
        )

    torch.set_num_threads(arguments.threads)
    some = trials[:200]
    batched = seconds(lambda: torch_run(some, starts[:200], 200), 3) / 200 / 200
    print(f"for comparison, PyTorch with 200 trials in one tensor, not the papers' way: {1e6 * batched:.2f} us")


def _thread_counts(most: int):
    for count in sorted({1, most}):
        torch.set_num_threads(count)
        yield count


if __name__ == "__main__":
    main()
