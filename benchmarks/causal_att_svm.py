"""A causal Att-SVM that no other solver finishes: one sequence, whose last positions are causal queries.

It is solved to a gap of 1e-3 first, then from that answer to the smallest gap that rounding allows. The second line
shows the seconds and steps of both together. Gap and violation are computed here from the arrays. Memory is the peak of
the process including its libraries, and in brackets the increase; the benchmark therefore runs in a process of its own.

    python benchmarks/causal_att_svm.py [--tokens 1024 --dim 768 --queries 256 --threads 2]
"""

import argparse
import os
import resource
import time
from pathlib import Path

STATUS = Path("/proc/self/status")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--tokens", type=int, default=1024)
parser.add_argument("--dim", type=int, default=768)
parser.add_argument("--queries", type=int, default=256)
parser.add_argument("--threads", type=int, default=2)
arguments = parser.parse_args()
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(arguments.threads)  # before NumPy is imported, which reads them once

import numpy as np  # noqa: E402

import attsvm  # noqa: E402


def quality(
    tokens: np.ndarray, positions: np.ndarray, selected: np.ndarray, solution: attsvm.Solution
) -> tuple[float, float]:
    """Relative gap after scaling both sides feasible, and the largest violation of the weights as returned."""
    dropped = (np.arange(len(tokens)) <= positions[:, None]) & (np.arange(len(tokens)) != selected[:, None])
    logits = tokens[positions] @ solution.direction.T @ tokens.T
    margins = (np.take_along_axis(logits, selected[:, None], axis=1) - logits)[dropped]
    multipliers = np.where(dropped, np.maximum(solution.dual[0], 0), 0)
    pulled = multipliers.sum(axis=1)[:, None] * tokens[selected] - multipliers @ tokens
    upper = np.linalg.norm(solution.direction) / margins.min()
    lower = multipliers.sum() / np.linalg.norm(pulled.T @ tokens[positions])
    return (upper - lower) / upper, max(0.0, 1 - margins.min())


def peak() -> float:
    """Largest resident memory so far, in MiB."""
    if STATUS.exists():  # on Linux getrusage also knows the peak of the process that started this one
        return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    generator = np.random.default_rng(0)
    tokens = generator.standard_normal((arguments.tokens, arguments.dim))
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    positions = np.arange(arguments.tokens - arguments.queries, arguments.tokens)
    mask = np.arange(arguments.tokens) <= positions[:, None]
    values = np.where(mask, tokens @ generator.standard_normal(arguments.dim), -np.inf)
    selected = values.argmax(axis=1)

    before = peak()
    problem = attsvm.Problem(tokens[None], queries=tokens[None, positions], mask=mask[None])
    print(
        f"{arguments.tokens} tokens, d = {arguments.dim}, the last {arguments.queries} positions are causal queries: ",
        end="",
    )
    print(f"{mask.sum() - len(positions):,} constraints, {arguments.threads} threads, no peer finishes.\n")
    print(f"{'':40}{'s':>9}{'steps':>9}{'gap':>10}{'violation':>11}{'MiB':>12}")
    solution, total, steps = None, 0.0, 0
    for name, enough in (("Problem + solve_svm, to a gap of 1e-3", 1e-3), ("continued to the smallest gap", 0.0)):
        start = time.perf_counter()
        solution = attsvm.solve_svm(
            problem,
            selected[None],
            warm_start=solution,
            callback=lambda progress, enough=enough: progress.gap <= enough,
        )
        total += time.perf_counter() - start
        gap, violation = quality(tokens, positions, selected, solution)
        steps += solution.stats["steps"]
        memory = f"{peak():.0f} (+{peak() - before:.0f})"
        print(f"{name:40}{total:9.1f}{steps:9d}{gap:10.1e}{violation:11.1e}{memory:>12}", flush=True)


if __name__ == "__main__":
    main()
