"""Att-SVMs against CVXPY, one run on one machine: ours through the public function, certificates included.

The peers build the problem as the published code does, one expression per constraint, and as one vectorised
expression; both are timed from the arrays to the solution. Gap and violation of every answer are computed here, by the
same lines of NumPy for all of them.

    python benchmarks/att_svm.py [--repeats 5]
"""

import os

NUM_THREADS = "1"
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = NUM_THREADS  # before NumPy is imported, which reads them once

import argparse  # noqa: E402
import platform  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import cvxpy as cp  # noqa: E402
import numpy as np  # noqa: E402

import attsvm  # noqa: E402


class Data(NamedTuple):
    """Tokens (n, T, d), queries (n, d) and the selected token of each sequence."""

    tokens: np.ndarray
    queries: np.ndarray
    selected: np.ndarray


class Answer(NamedTuple):
    """Weights, and multipliers (n, T) of their constraints."""

    weights: np.ndarray
    multipliers: np.ndarray


def random_data(num_sequences: int, num_tokens: int, dim: int, seed: int) -> Data:
    problem = attsvm.datasets.random_problem(num_sequences, num_tokens, dim, seed)
    return Data(problem.tokens, problem.queries, attsvm.optimal_tokens(problem))


def per_constraint(data: Data) -> Answer:
    """The published form: a loop over sequences and tokens, one expression a constraint."""
    tokens, queries, selected = data
    n, T, d = tokens.shape
    weights = cp.Variable((d, d))
    constraints, places = [], []
    for i in range(n):
        for t in range(T):
            if t != selected[i]:
                constraints.append((tokens[i, selected[i]] - tokens[i, t]) @ weights @ queries[i] >= 1)
                places.append((i, t))
    cp.Problem(cp.Minimize(cp.norm(weights, "fro")), constraints).solve()
    multipliers = np.zeros((n, T))
    for place, constraint in zip(places, constraints, strict=True):
        multipliers[place] = constraint.dual_value
    return Answer(weights.value, multipliers)


def vectorised(data: Data) -> Answer:
    """All constraints as one matrix times the vector of weights."""
    tokens, queries, selected = data
    n, T, d = tokens.shape
    dropped = np.arange(T) != selected[:, None]
    differences = tokens[np.arange(n), selected][:, None] - tokens
    rows = (differences[..., :, None] * queries[:, None, None, :])[dropped].reshape(-1, d * d)
    weights = cp.Variable(d * d)
    constraint = rows @ weights >= 1
    cp.Problem(cp.Minimize(cp.norm(weights, 2)), [constraint]).solve()
    multipliers = np.zeros((n, T))
    multipliers[dropped] = constraint.dual_value
    return Answer(weights.value.reshape(d, d), multipliers)


def ours(data: Data) -> Answer:
    problem = attsvm.Problem(data.tokens, queries=data.queries)
    solution = attsvm.solve_svm(problem, data.selected)
    return Answer(solution.direction, solution.dual)


def quality(data: Data, answer: Answer) -> tuple[float, float]:
    """Relative gap after scaling both sides feasible, and the largest violation of the weights as returned."""
    tokens, queries, selected = data
    n, T, _ = tokens.shape
    dropped = np.arange(T) != selected[:, None]
    differences = tokens[np.arange(n), selected][:, None] - tokens
    margins = np.einsum("itk,kl,il->it", differences, answer.weights, queries)[dropped]
    multipliers = np.where(dropped, np.maximum(answer.multipliers, 0), 0)
    pull = np.einsum("it,itk,il->kl", multipliers, differences, queries)
    upper = np.linalg.norm(answer.weights) / margins.min()
    lower = multipliers.sum() / np.linalg.norm(pull)
    return (upper - lower) / upper, max(0.0, 1 - margins.min())


def best_seconds(solve: Callable[[Data], Any], data: Data, repeats: int, least: float = 0.2) -> float:
    """Best mean over batches of calls that each last at least ``least`` seconds."""
    solve(data)
    start = time.perf_counter()
    solve(data)
    calls = max(1, round(least / (time.perf_counter() - start)))
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            solve(data)
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    print(
        f"{platform.processor() or platform.machine()}, {NUM_THREADS} thread; CVXPY {cp.__version__} with its default"
    )
    print("solver. Frobenius, n=6 T=8 d=10 (42 constraints); best of several batches, building the problem included.\n")
    print(f"{'':6}{'method':32}{'ms':>9}{'ratio':>8}{'gap':>10}{'violation':>11}")
    for seed in range(3):
        data = random_data(6, 8, 10, seed)
        fastest = best_seconds(ours, data, repeats)
        peers = (
            ("attsvm.solve_svm", ours),
            ("CVXPY, vectorised", vectorised),
            ("CVXPY, per constraint", per_constraint),
        )
        for name, solve in peers:
            seconds = fastest if solve is ours else best_seconds(solve, data, repeats)
            gap, violation = quality(data, solve(data))
            line = f"{name:32}{1e3 * seconds:9.3f}{seconds / fastest:8.1f}{gap:10.1e}{violation:11.1e}"
            print(f"seed {seed}{line}" if solve is ours else f"{'':6}{line}")


if __name__ == "__main__":
    main()
