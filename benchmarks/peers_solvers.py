"""`solve_svm` beside CVXPY with Clarabel and SCS, both of them on the dual, and DAQP: the part of peers.py.

Gap and violation of every answer are computed by the same NumPy code. Repetitions are random problems.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from att_svm import nuclear, ours, quality, random_data
from cases import Case
from peers import Column, Run, with_ratio
from svm_peers import Answer, Data, Rows, clarabel_on_the_dual, scs_on_the_dual, with_cvxpy

METHODS = {
    "attsvm": "",
    "CVXPY, Clarabel": "cvxpy clarabel",
    "CVXPY, SCS": "cvxpy scs",
    "Clarabel on the dual": "clarabel",
    "SCS on the dual": "scs",
    "DAQP": "qpsolvers daqp",
}
SMALL = (6, 8, 10)
NORMS: dict[str, float | str] = {"Frobenius": 2.0, "l1.1": 1.1, "l3": 3.0, "nuclear": "nuclear"}
SIZES = {"Frobenius": (SMALL, (20, 16, 32), (50, 20, 64))}
OTHER_SIZES = (SMALL, (10, 10, 16))
TOGETHER, SAMPLE = 256, 8
ROUNDS, LONG = 3, 1.0
LARGEST_WEIGHTS = 1024
"""CVXPY has W as d² variables: with more it takes minutes."""


def daqp(data: Data) -> Answer:
    """The smallest u with L u ≥ 1, where L L' is the Gram matrix: an active-set method on m variables."""
    import qpsolvers

    rows = Rows.of(data)
    m = len(rows.left)
    L = np.linalg.cholesky(rows.gram)
    problem = qpsolvers.Problem(np.eye(m), np.zeros(m), -L, -np.ones(m))
    return rows.answer_of_dual(np.maximum(qpsolvers.solve_problem(problem, solver="daqp").z, 0.0))


def solvers(norm: float | str, size: tuple[int, ...], methods: list[str]) -> dict[str, Callable[[Data], Answer]]:
    """The solvers of a norm that suit a size."""
    found: dict[str, Callable[[Data], Answer]] = {"attsvm": lambda data: ours(data, norm)}
    if norm == "nuclear":
        found["CVXPY, Clarabel"] = lambda data: nuclear(data, "CLARABEL")
        found["CVXPY, SCS"] = lambda data: nuclear(data, "SCS", eps=1e-8, max_iters=100_000)
    elif size[-1] ** 2 <= LARGEST_WEIGHTS:
        found["CVXPY, Clarabel"] = with_cvxpy(float(norm), "CLARABEL")
        found["CVXPY, SCS"] = with_cvxpy(float(norm), "SCS", eps=1e-8, max_iters=20_000)
    if norm == 2:
        found |= {"Clarabel on the dual": clarabel_on_the_dual, "SCS on the dual": scs_on_the_dual, "DAQP": daqp}
    return {name: solve for name, solve in found.items() if name in methods}


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """All sizes of a norm, and many small problems: processor time, worst gap and violation."""
    norm, rep = NORMS[case["norm"]], case["rep"]
    for size in SIZES.get(case["norm"], OTHER_SIZES)[: 1 if case["quick"] else None]:
        data = random_data(*size, seed=rep)
        works = {name: partial(solve, data) for name, solve in solvers(norm, size, case["methods"]).items()}
        n, T, d = size
        for name, (seconds, answer) in in_turn(works).items():
            yield row(f"{case['norm']}, n={n} T={T} d={d}", name, seconds, [quality(data, answer, norm)])
    count = 32 if case["quick"] else TOGETHER
    many = [random_data(*SMALL, seed=1000 * (rep + 1) + k) for k in range(count)]
    stacked, some = Data(*map(np.stack, zip(*many, strict=True))), many[:SAMPLE]
    # SCS takes seconds for a problem in l1.1
    methods = [name for name in case["methods"] if name != "CVXPY, SCS"]
    each = solvers(norm, SMALL, methods)
    works = {name: lambda solve=solve: [solve(data) for data in some] for name, solve in each.items()}
    works["attsvm"] = partial(each["attsvm"], stacked)
    for name, (seconds, found) in in_turn(works).items():
        if name == "attsvm":
            answers, problems, share = [Answer(*one) for one in zip(*found, strict=True)], many, count
        else:
            answers, problems, share = found, some, SAMPLE
        qualities = [quality(data, answer, norm) for data, answer in zip(problems, answers, strict=True)]
        yield row(f"{case['norm']}, {count} problems, each", name, seconds / share, qualities)


def in_turn(works: dict[str, Callable[[], Any]]) -> dict[str, tuple[float, Any]]:
    """Processor seconds of the fastest of up to three runs, and the answer; what takes a second is run once."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    answers = {}
    for _ in range(ROUNDS):
        for name, work in works.items():
            if sum(seconds[name]) < LONG:
                start = time.process_time()
                answers[name] = work()
                seconds[name].append(time.process_time() - start)
    return {name: (min(runs), answers[name]) for name, runs in seconds.items()}


def row(data: str, method: str, seconds: float, qualities: list[tuple[float, float]]) -> dict[str, Any]:
    gap, violation = np.max(qualities, axis=0)
    return {
        "data": data,
        "method": method,
        "ours": method == "attsvm",
        "milliseconds": 1e3 * seconds,
        "gap": float(gap),
        "violation": float(violation),
    }


def report(run: Run) -> None:
    """Measure and print."""
    methods = run.installed(METHODS)
    cases = [{"norm": norm, "rep": rep, "methods": methods} for norm in NORMS for rep in range(run.repetitions)]
    columns = [
        Column("ms", "milliseconds", better=-1),
        Column("times attsvm", "ratio"),
        Column("worst gap", "gap", worst=True),
        Column("worst violation", "violation", worst=True),
    ]
    run.table(with_ratio(run.rows(cases), "milliseconds"), columns)
