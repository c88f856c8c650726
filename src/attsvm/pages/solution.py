"""The page of ``attsvm solve``: a solution, or a row for each one of a batch."""

import math
from typing import Any

import numpy as np

from attsvm.pages.page import Page, Table
from attsvm.pages.schemas.problems import SolveResult
from attsvm.pages.words import Rows, number
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.svm import Solution


def solution_page(solution: Solution, *, problem: Problem, source: str, **about: Any) -> Page:
    """Make the page of a solution, whose numbers docs/guide/results.md documents; it has no HTML.

    ``about``: the command, and the limit on threads.
    """
    numbers = SolveResult.fill(
        solution, **about, data={"source": source, "sha256": problem.data_hash}, support=np.argwhere(solution.support)
    )
    return Page(numbers, terminal=[_batch_table(solution) if solution.batch_shape else Table(_rows(solution))])


def _batch_table(solution: Solution) -> Table:
    rows = []
    for index in np.ndindex(solution.batch_shape):
        one = solution[index]
        value, margin, gap = (number(float(x)) for x in (one.value, one.margin, one.gap))
        rows.append((", ".join(map(str, index)), str(one.status), value, margin, f"{int(one.support.sum()):,}", gap))
    return Table(rows, ("problem", "status", "value", "margin", "support tokens", "gap"), words=2, more="problems")


def _rows(solution: Solution) -> Rows:
    rows = [("status", str(solution.status))]
    if solution.status == Status.INFEASIBLE:
        rows.append(("Farkas bound: no smaller norm separates rows of length 1", number(float(solution.bound))))
    else:
        rows.append((f"value, least {solution.norm.name} norm", f"{solution.value:.10g}"))
        if solution.slack is not None:
            rows.append((f"objective at C = {solution.slack:g}", f"{solution.objective:.10g}"))
        rows.append(("margin", f"{solution.margin:.10g}" if math.isfinite(float(solution.margin)) else "-"))
        rows.append(("support tokens", f"{int(solution.support.sum()):,}"))
        rows.append(("relative duality gap", number(float(solution.gap))))
        rows.append(("largest violation, relative", number(float(solution.violation))))
    rows.append(("method", f"{solution.stats['method']} ({solution.stats['why']})"))
    rows.append(("steps, seconds", f"{solution.stats['steps']:,}, {solution.stats['seconds']:.3g}"))
    return rows
