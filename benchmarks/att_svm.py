"""Compare `solve_svm` with CVXPY on one machine. Our times include the certificates.

CVXPY solves the problem in two forms: one expression per constraint, as in the published code, and one vectorised
expression. Both are timed from the arrays to the solution. Gap and violation of every answer are computed here, by the
same NumPy code for all of them.

    python benchmarks/att_svm.py [--repeats 5]

The JAX solvers among the peers come with ``pip install qpax mpax``.
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import platform
import timeit
import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

import attsvm
from attsvm.svm import block_pivoting
from svm_peers import Answer, Data, Rows, clarabel_on_the_dual, peers


def random_data(num_sequences: int, num_tokens: int, dim: int, seed: int) -> Data:
    problem = attsvm.datasets.random_problem(num_sequences, num_tokens, dim, seed)
    return Data(problem.tokens, problem.queries, attsvm.optimal_tokens(problem))


def per_constraint(data: Data, p: float = 2) -> Answer:
    """The published form: a loop over sequences and tokens, one 1 × 1 expression per constraint."""
    tokens, queries, selected = data
    n, T, d = tokens.shape
    weights = cp.Variable((d, d))
    constraints, places = [], []
    for i in range(n):
        for t in range(T):
            if t != selected[i]:
                difference = (tokens[i, t] - tokens[i, selected[i]]).reshape(1, -1)
                constraints.append(difference @ weights @ queries[i].reshape(-1, 1) <= -1)
                places.append((i, t))
    cp.Problem(cp.Minimize(cp.pnorm(cp.vec(weights, order="C"), p)), constraints).solve()
    multipliers = np.zeros((n, T))
    for place, constraint in zip(places, constraints, strict=True):
        multipliers[place] = constraint.dual_value.item()
    return Answer(weights.value, multipliers)


def vectorised(data: Data, p: float = 2) -> Answer:
    """All constraints as one matrix times the vector of weights."""
    rows = Rows.of(data)
    weights = cp.Variable(rows.matrix.shape[1])
    constraint = rows.matrix @ weights >= 1
    cp.Problem(cp.Minimize(cp.pnorm(weights, p)), [constraint]).solve()
    return rows.answer(weights.value, constraint.dual_value)


def nuclear(data: Data, solver: str, **options: Any) -> Answer:
    """Smallest nuclear norm, all constraints as one expression; W is a matrix variable."""
    rows = Rows.of(data)
    weights = cp.Variable((rows.left.shape[1], rows.right.shape[1]))
    constraint = cp.sum(cp.multiply(rows.left @ weights, rows.right), axis=1) >= 1
    cp.Problem(cp.Minimize(cp.normNuc(weights)), [constraint]).solve(solver=solver, **options)
    return rows.answer(weights.value, constraint.dual_value)


def ours(data: Data, norm: float | str = 2, tol: float = 1e-8) -> Answer:
    """Solve one problem, or many together if the data have a leading axis."""
    problem = attsvm.Problem(data.tokens, queries=data.queries)
    return answer(attsvm.solve_svm(problem, data.selected, norm=norm, tol=tol))


def numerics(data: Data) -> Answer:
    """What `solve_svm` computes for the Frobenius norm, without checks, scaling, certificate and result."""
    rows = Rows.of(data)
    matrix = rows.matrix
    found = block_pivoting(matrix @ matrix.T, np.ones(len(matrix)))
    assert found is not None
    return rows.answer(found @ matrix, found)


def answer(solution: attsvm.Solution) -> Answer:
    return Answer(solution.direction, solution.dual)


def sizes(norm: float | str, weights: np.ndarray, pull: np.ndarray) -> tuple[float, float]:
    """The norm of the weights, and the dual norm of A*(λ)."""
    if norm == "nuclear":
        return np.linalg.norm(weights, "nuc"), np.linalg.norm(pull, 2)
    if norm == "spectral":
        return np.linalg.norm(weights, 2), np.linalg.norm(pull, "nuc")
    p = float(norm)
    q = 1 / (1 - 1 / p) if p > 1 else np.inf
    return np.linalg.norm(weights.ravel(), p), np.linalg.norm(pull.ravel(), q)


def quality(data: Data, answer: Answer, norm: float | str = 2) -> tuple[float, float]:
    """Relative gap after scaling both sides feasible, and the largest violation of the weights as returned."""
    rows = Rows.of(data)
    margins, pull, total = rows.sides(answer.weights, answer.multipliers[rows.dropped])
    size, dual_size = sizes(norm, answer.weights, pull)
    upper, lower = size / margins.min(), total / dual_size
    return (upper - lower) / upper, max(0.0, 1 - margins.min())


def best_seconds(works: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Best mean over runs of at least 0.2 seconds each.

    The works take turns, so that other work on the machine affects all of them. As in timeit, garbage collection is off
    while the clock runs.
    """
    timers = [timeit.Timer(work) for work in works]
    calls = [timer.autorange()[0] for timer in timers]
    best = [np.inf] * len(works)
    for _ in range(repeats):
        for k, timer in enumerate(timers):
            best[k] = min(best[k], timer.timeit(calls[k]) / calls[k])
    return best


PEERS = (("CVXPY, vectorised", vectorised), ("CVXPY, per constraint", per_constraint))


def lp_rows(p: float, repeats: int) -> None:
    """ℓp norms, W with 100 entries: one problem, then 256 problems together."""
    data = random_data(6, 8, 10, 0)
    solvers: list[tuple[str, Callable[[Data, float], Answer]]] = [("Problem + solve_svm", ours), *PEERS]
    seconds = best_seconds([lambda solve=solve: solve(data, p) for _, solve in solvers], repeats)
    for k, (name, solve) in enumerate(solvers):
        report(f"l{p:g}" if k == 0 else "", name, seconds[k], seconds[0], quality(data, solve(data, p), p))
    together_rows(f"l{p:g}", p, 256, 8, repeats)


def together_rows(label: str, p: float, number: int, sample: int, repeats: int) -> None:
    """Many problems in one call, compared with the peers, which solve some of them one by one."""
    together = [random_data(6, 8, 10, seed) for seed in range(number)]
    stacked = Data(*(np.stack(parts) for parts in zip(*together, strict=True)))
    some = together[:sample]

    def one_by_one(solve: Callable[[Data, float], Answer]) -> list[Answer]:
        return [solve(data, p) for data in some]

    works = [lambda: ours(stacked, p), *(lambda solve=solve: one_by_one(solve) for _, solve in PEERS)]
    seconds = best_seconds(works, repeats)
    each = [seconds[0] / number, *(second / sample for second in seconds[1:])]
    answers = ours(stacked, p)
    every = [
        quality(data, Answer(*parts), p)
        for data, *parts in zip(together, answers.weights, answers.multipliers, strict=True)
    ]
    report(label, f"{number:,} together, each", each[0], each[0], tuple(np.max(every, axis=0)))
    for k, (name, solve) in enumerate(PEERS, start=1):
        worst = np.max([quality(data, found, p) for data, found in zip(some, one_by_one(solve), strict=True)], axis=0)
        report("", f"{name}, mean of {sample}", each[k], each[0], tuple(worst))


def peer_rows(repeats: int) -> None:
    """Frobenius, ℓ1 and ℓ∞ against every peer. What the first call takes beyond the others is compilation."""
    data = random_data(6, 8, 10, 0)
    for label, p in (("l2", 2.0), ("l1", 1.0), ("linf", np.inf)):
        solvers = {"Problem + solve_svm": lambda data, p=p: ours(data, p)} | peers(p)
        first: list[float] = []
        for solve in solvers.values():
            start = timeit.default_timer()
            solve(data)
            first.append(timeit.default_timer() - start)
        seconds = best_seconds([lambda solve=solve: solve(data) for solve in solvers.values()], repeats)
        for k, (name, solve) in enumerate(solvers.items()):
            found = quality(data, solve(data), p)
            report(label if k == 0 else "", name, seconds[k], seconds[0], found)
            if first[k] > max(0.5, 5 * seconds[k]):
                print(f"{'':8}  first call {first[k]:.1f} s", flush=True)


def large_rows(repeats: int) -> None:
    """Frobenius, n=200 T=20 d=100. The peer takes many seconds and runs once."""
    data = random_data(200, 20, 100, 0)
    unit = best_seconds([lambda: ours(data)], repeats)[0]
    report("n=200", "Problem + solve_svm", unit, unit, quality(data, ours(data)))
    start = timeit.default_timer()
    found = clarabel_on_the_dual(data)
    report("", "Clarabel on the dual", timeit.default_timer() - start, unit, quality(data, found))


def nuclear_rows(repeats: int) -> None:
    """Nuclear norm: small problems against Clarabel, then n=50 T=20 d=64 against SCS, which takes seconds: one run."""
    for seed in range(3):
        data = random_data(6, 8, 10, seed)
        solvers: list[tuple[str, Callable[[], Answer]]] = [
            ("Problem + solve_svm", lambda data=data: ours(data, "nuclear")),
            ("CVXPY, vectorised, Clarabel", lambda data=data: nuclear(data, "CLARABEL")),
        ]
        seconds = best_seconds([solve for _, solve in solvers], repeats)
        for k, (name, solve) in enumerate(solvers):
            found = quality(data, solve(), "nuclear")
            report(f"seed {seed}" if k == 0 else "", name, seconds[k], seconds[0], found)
    data = random_data(50, 20, 64, 0)
    unit = best_seconds([lambda: ours(data, "nuclear", 1e-7)], repeats)[0]
    report("n=50", "Problem + solve_svm", unit, unit, quality(data, ours(data, "nuclear", 1e-7), "nuclear"))
    start = timeit.default_timer()
    found = nuclear(data, "SCS")
    report("", "CVXPY, vectorised, SCS", timeit.default_timer() - start, unit, quality(data, found, "nuclear"))


def semidefinite_rows(repeats: int) -> None:
    """Nuclear and spectral norm: the mean of 20 problems one by one, and 500 together; the worst gap and violation."""
    together = [random_data(6, 8, 10, seed) for seed in range(500)]
    stacked, some = Data(*(np.stack(parts) for parts in zip(*together, strict=True))), together[:20]
    for norm in ("nuclear", "spectral"):
        works = [lambda norm=norm: [ours(data, norm) for data in some], lambda norm=norm: ours(stacked, norm)]
        alone, many = best_seconds(works, repeats)
        answers = ours(stacked, norm)
        batch = [Answer(*parts) for parts in zip(answers.weights, answers.multipliers, strict=True)]
        for name, seconds, data, found in (
            ("alone, mean of 20", alone / 20, some, [ours(data, norm) for data in some]),
            ("500 together, each", many / 500, together, batch),
        ):
            worst = np.max([quality(*pair, norm) for pair in zip(data, found, strict=True)], axis=0)
            report(norm, name, seconds, alone / 20, tuple(worst))


def report(label: str, name: str, seconds: float, unit: float, found: tuple[float, float]) -> None:
    gap, violation = found
    print(f"{label:9}{name:32}{1e3 * seconds:9.3f}{seconds / unit:9.1f}{gap:10.1e}{violation:11.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    print(f"{platform.machine()}, 1 thread; CVXPY {cp.__version__} with its default solver.")
    print("Frobenius, n=6 T=8 d=10 (42 constraints), from the arrays to the solution, best of several runs.")
    print("`solve_svm alone` starts from a Problem; the line above also builds it, as the times of the peers do.")
    print("`numerics alone` are the rows, the multipliers and the weights, without checks and certificate.\n")
    print(f"{'':9}{'method':32}{'ms':>9}{'ratio':>9}{'gap':>10}{'violation':>11}")
    for seed in range(3):
        data = random_data(6, 8, 10, seed)
        problem = attsvm.Problem(data.tokens, queries=data.queries)
        lines: list[tuple[str, Callable[[Data], Answer]]] = [
            ("Problem + solve_svm", ours),
            ("solve_svm alone", lambda data, problem=problem: answer(attsvm.solve_svm(problem, data.selected))),
            ("numerics alone", numerics),
            ("CVXPY, vectorised", vectorised),
            ("CVXPY, per constraint", per_constraint),
        ]
        seconds = best_seconds([lambda solve=solve, data=data: solve(data) for _, solve in lines], repeats)
        for k, (name, solve) in enumerate(lines):
            report(f"seed {seed}" if k == 0 else "", name, seconds[k], seconds[0], quality(data, solve(data)))
    print("\nThe first sizes again, every solver that a user may pick; qpax and mpax where they are installed.\n")
    peer_rows(repeats)
    print("\n1,000 problems together; then n=200 T=20 d=100 (3,800 constraints).\n")
    together_rows("", 2, 1000, 20, repeats)
    large_rows(repeats)
    print("\nThe first sizes again, entrywise ℓp; then many problems together, with their worst gap and violation.\n")
    for p in (1.75, 3.0):
        lp_rows(p, repeats)
    print("\nThe first sizes again, nuclear norm; then n=50 T=20 d=64 (950 constraints), ours to a gap of 1e-7.\n")
    nuclear_rows(repeats)
    print("\nThe first sizes again, nuclear and spectral norm.\n")
    semidefinite_rows(repeats)


if __name__ == "__main__":
    main()
