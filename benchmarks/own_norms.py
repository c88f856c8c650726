"""Compare the solver for any norm with CVXPY and Clarabel, and the splitting with the interior point.

Times of ours are from a `Problem` to the certified solution; times of CVXPY are from the arrays to its answer. The gaps
of all answers are computed here by the same code, after both sides were scaled feasible. The times are those of the
processor, with one thread.

    python benchmarks/own_norms.py [--repeats 3] [--seeds 3] [--large-peers]

With ``--large-peers`` CVXPY and HiGHS solve one problem of the large size in each of their norms, too, which takes
minutes.
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from scipy.optimize import linprog

import attsvm
from attsvm.norms import Norm, Nuclear, Owl, Spectral, parse_norm
from attsvm.norms.factors import Gamma2
from svm_peers import Data, Rows

SMALL, LARGE = (6, 8, 10), (50, 20, 64)
"""Sequences, tokens and dimensions."""

LONG = 1.0
"""Seconds of a run that is not repeated."""

EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "l2,1": lambda W: cp.sum(cp.norm(W, 2, axis=1)),
    "linf,2": lambda W: cp.max(cp.norm(W, 2, axis=1)),
}
"""Norms that CVXPY knows."""


@dataclass(frozen=True)
class Directions(Norm):
    """A norm without its proximal map: only its steepest directions are left."""

    of: Norm
    name = "directions"

    def value(self, x: Any, axes: int = 2) -> Any:
        """That of the norm."""
        return self.of.value(x, axes)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        """The same of several matrices."""
        return self.of.values(x, axes)

    @property
    def dual(self) -> Norm:
        """That of the norm."""
        return self.of.dual

    def steepest(self, g: Any) -> Any:
        """That of the norm."""
        return self.of.steepest(g)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """That of the norm."""
        return self.of.frobenius_factor(shape)


@dataclass(frozen=True)
class WeightedEntries(Norm):
    """Entrywise ℓ1 with the weights 1, 2, 3, … of the rows, by its proximal map; or its dual."""

    is_dual: bool = False
    name = "weighted l1"

    def value(self, x: Any, axes: int = 2) -> float:
        """The norm of one matrix."""
        weights, sizes = np.arange(1.0, len(x) + 1)[:, None], np.abs(x.reshape(len(x), -1))
        return float((sizes / weights).max() if self.is_dual else (sizes * weights).sum())

    @property
    def dual(self) -> Norm:
        """The largest entry over its weight."""
        return WeightedEntries(not self.is_dual)

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """Of the norm, not of its dual."""
        return np.sign(x) * np.maximum(np.abs(x) - step * np.arange(1.0, len(x) + 1)[:, None], 0.0)


SHOWN = (
    *map(parse_norm, ("l2,1", "linf,2", "l2,1-columns", "schatten1.1", "schatten1.5", "schatten3")),
    WeightedEntries(),
    Gamma2(),
)


class Task(NamedTuple):
    """A problem, what its selected tokens are, and its rows."""

    problem: attsvm.Problem
    selected: np.ndarray
    rows: Rows

    @classmethod
    def drawn(cls, size: tuple[int, int, int], seed: int) -> "Task":
        """A random problem with its optimal tokens."""
        problem = attsvm.datasets.random_problem(*size, seed=seed)
        selected = attsvm.optimal_tokens(problem)
        return cls(problem, selected, Rows.of(Data(problem.tokens, problem.queries, selected)))

    def gap(self, norm: Norm, weights: np.ndarray, multipliers: np.ndarray) -> float:
        """The relative gap after scaling both sides feasible."""
        margins, pull, total = self.rows.sides(weights, multipliers)
        return 1 - total / float(norm.dual.values(pull)) / (float(norm.values(weights)) / margins.min())


def by_cvxpy(task: Task, norm: Norm) -> tuple[float, float]:
    """Seconds and gap. The norm is right-invariant, so that the queries may be replaced by their coordinates."""
    start = time.process_time()
    basis, _ = np.linalg.qr(task.problem.queries.T)
    rows = task.rows._replace(right=task.rows.right @ basis)
    weights = cp.Variable((task.problem.key_dim, basis.shape[1]))
    constraint = rows.matrix @ cp.vec(weights, order="C") >= 1
    cp.Problem(cp.Minimize(EXPRESSIONS[norm.name](weights)), [constraint]).solve(solver=cp.CLARABEL)
    seconds = time.process_time() - start
    return seconds, task.gap(norm, weights.value @ basis.T, constraint.dual_value)


def by_highs(task: Task, norm: Norm) -> tuple[float, float]:
    """Seconds and gap of the simplex method of HiGHS, in the weighted ℓ1 norm."""
    start = time.process_time()
    rows = task.rows.matrix
    d_k, d_q = task.rows.left.shape[1], task.rows.right.shape[1]
    weights = np.repeat(np.arange(1.0, d_k + 1), d_q)
    found = linprog(np.tile(weights, 2), -np.hstack([rows, -rows]), -np.ones(len(rows)), method="highs-ds")
    seconds = time.process_time() - start
    plus, minus = np.split(found.x, 2)
    return seconds, task.gap(norm, (plus - minus).reshape(d_k, d_q), -found.ineqlin.marginals)


def ours(task: Task, norm: Norm, repeats: int, **options: Any) -> tuple[float, attsvm.Solution]:
    """Seconds of the best run, and its solution. Long runs are not repeated."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        solution = attsvm.solve_svm(task.problem, task.selected, norm=norm, **options)
        best = min(best, time.process_time() - start)
        if best > LONG:
            break
    return best, solution


def row(label: str, times: list[float], gaps: list[float], note: str) -> None:
    print(f"| {label} | {1e3 * np.median(times):.1f} | {1e3 * max(times):.1f} | {max(gaps):.1e} | {note} |", flush=True)


def heading(what: str, seeds: int) -> None:
    print(
        f"\nseeds 0-{seeds - 1}\n\n| {what} | ms | worst | largest gap | optimal |\n| --- | ---: | ---: | ---: | --- |"
    )


def measured(label: str, tasks: list[Task], norm: Norm, repeats: int, **options: Any) -> None:
    attsvm.solve_svm(tasks[0].problem, tasks[0].selected, norm=norm, max_steps=1)  # what is computed once for a norm
    found = [ours(task, norm, repeats, **options) for task in tasks]
    solutions = [solution for _, solution in found]
    optimal = sum(solution.status == "optimal" for solution in solutions)
    methods = " ".join(sorted({solution.stats["method"] for solution in solutions}))
    steps = np.median([solution.stats["steps"] for solution in solutions])
    gaps = [float(solution.gap) for solution in solutions]
    row(
        label,
        [seconds for seconds, _ in found],
        gaps,
        f"{optimal} of {len(found)}; {methods}, {steps:.0f} steps",
    )


def table(size: tuple[int, int, int], seeds: int, repeats: int, peers: bool) -> None:
    n, T, d = size
    heading(f"norm, n={n} T={T} d={d}", seeds)
    tasks = [Task.drawn(size, seed) for seed in range(seeds)]
    for norm in (*SHOWN, Owl(np.linspace(1.0, 0.1, d * d))):
        measured(norm.name, tasks, norm, repeats)
        if peers and norm.name in EXPRESSIONS:
            found = [by_cvxpy(task, norm) for task in (tasks if size == SMALL else tasks[:1])]
            row(f"{norm.name}, CVXPY with Clarabel", [each[0] for each in found], [each[1] for each in found], "")
        if peers and norm == WeightedEntries():
            found = [by_highs(task, norm) for task in (tasks if size == SMALL else tasks[:1])]
            row(f"{norm.name}, HiGHS", [each[0] for each in found], [each[1] for each in found], "")
    by_directions = ("linf,2", "l2,1", "schatten1.1", "schatten3", *(("l1",) if size == SMALL else ()))
    for name in by_directions:
        measured(f"{name} by steepest", tasks, Directions(parse_norm(name)), repeats)
    for norm in (Nuclear(), Spectral()):
        for method in ("semidefinite", "douglas-rachford", None):
            measured(f"{norm.name}, {method or 'chosen'}", tasks, norm, repeats, method=method)


def nearly_infeasible(seed: int) -> tuple[attsvm.Problem, np.ndarray]:
    """Two sequences with one query, whose margins are opposite up to a thousandth."""
    generator = np.random.default_rng(seed)
    tokens, queries = generator.standard_normal((4, 4, 5)), generator.standard_normal((4, 5))
    queries[1] = queries[0]
    tokens[1, 1] = tokens[1, 0] + tokens[0, 0] - tokens[0, 1] + 1e-3 * generator.standard_normal(5)
    return attsvm.Problem(tokens, queries=queries), np.zeros(4, int)


def spread_spectrum(seed: int) -> tuple[attsvm.Problem, np.ndarray]:
    """Coordinates of sizes from 1 to 1e-3."""
    problem, sizes = attsvm.datasets.random_problem(*SMALL, seed=seed), np.logspace(0, -3, SMALL[2])
    return attsvm.Problem(problem.tokens * sizes, queries=problem.queries * sizes), attsvm.optimal_tokens(problem)


def common_offset(seed: int) -> tuple[attsvm.Problem, np.ndarray]:
    """Tokens and queries far from 0, so that all queries are nearly equal."""
    problem = attsvm.datasets.random_problem(*SMALL, seed=seed)
    offset = 100 * np.random.default_rng(seed).standard_normal(SMALL[2])
    return attsvm.Problem(problem.tokens + offset, queries=problem.queries + offset), attsvm.optimal_tokens(problem)


def hard(seeds: int) -> None:
    """Solve problems that are hard for first-order methods."""
    heading("family of hard problems", seeds)
    names = ("l2,1", "linf,2", "l2,1-columns", "l2,3", "schatten1.5", "schatten3")
    for family in (nearly_infeasible, spread_spectrum, common_offset):
        times, gaps, optimal = [], [], 0
        for name in names:
            for seed in range(seeds):
                problem, selected = family(seed)
                start = time.process_time()
                solution = attsvm.solve_svm(problem, selected, norm=name)
                if solution.status != "infeasible":
                    times.append(time.process_time() - start)
                    gaps.append(float(solution.gap))
                    optimal += solution.status == "optimal"
        row(family.__name__, times, gaps, f"{optimal} of {len(times)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--large-peers", action="store_true", help="CVXPY and HiGHS at the large size, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table(SMALL, options.seeds, options.repeats, True)
    hard(8)
    table(LARGE, options.seeds, options.repeats, options.large_peers)


if __name__ == "__main__":
    main()
