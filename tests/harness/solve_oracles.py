"""Other solvers: HiGHS for ℓ1, ℓ∞ and for feasibility, Clarabel for the other norms."""

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.optimize import linprog

from harness.exact import Rows
from oracles.att_svm import by_cvxpy

AGREES = 1e-5
"""Relative difference of values at which two solvers agree. Clarabel stops at 1e-8 on unit rows."""

SMALL = 1e-6
"""The largest margin in a box, on unit rows, below which no solver decides whether there are weights."""


def disagreement(rows: Rows, norm: str, solution: Any) -> str:
    """Where another solver contradicts an answer; empty if it does not."""
    matrix = rows.dense()
    equality, asked = np.array(rows.equality, bool), np.array(rows.right, bool)
    if not asked.any() or not matrix.any():
        return ""
    best = _best_margin(matrix, asked, equality)
    if solution.status == "infeasible":
        return f"infeasible, but HiGHS finds a margin of {best:.1e} on unit rows" if best > SMALL else ""
    if best < SMALL:
        return ""  # so nearly infeasible that the solvers do not decide
    lengths = np.array([float(length) for length in rows.norms()])
    expected = _least(matrix, rows.right / np.where(lengths > 0, lengths, 1.0), equality, norm, rows.shape)
    if expected is None or abs(expected - solution.value) <= AGREES * expected:
        return ""
    return f"value {solution.value!r}, by another solver {expected!r}"


def least_violation(rows: Rows) -> float:
    """The least t with A(W) ≥ b − t‖row‖ for some W, times the longest row."""
    lengths = np.array([float(length) for length in rows.norms()])
    kept = lengths > 0
    right, matrix = np.array([float(b) for b in rows.right])[kept] / lengths[kept], rows.dense()[kept]
    columns = np.hstack([matrix, np.ones((np.count_nonzero(kept), 1))])
    goal = np.append(np.zeros(columns.shape[1] - 1), 1.0)
    bounds = [(None, None)] * (columns.shape[1] - 1) + [(0, None)]
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    least, point = np.inf, np.zeros(columns.shape[1] - 1)
    # near its tolerance HiGHS reports 0 for a point that violates rows: what is left is solved again, in its own unit
    while (unit := max(0.0, float((right - matrix @ point).max()))) < 0.5 * least and unit > 1e-15:
        least = unit
        lacking = (right - matrix @ point) / unit
        point = point + unit * linprog(goal, A_ub=-columns, b_ub=-lacking, bounds=bounds, options=options).x[:-1]
    return min(least, unit) * float(lengths.max())


def _best_margin(matrix: np.ndarray, asked: np.ndarray, equality: np.ndarray) -> float:
    """The largest t with unit rows·w ≥ t on the rows that require a margin, for w in the unit box."""
    columns = np.hstack([-matrix, asked[:, None].astype(float)])
    found = linprog(
        np.append(np.zeros(matrix.shape[1]), -1.0),
        A_ub=columns[~equality],
        b_ub=np.zeros(np.count_nonzero(~equality)),
        A_eq=columns[equality] if equality.any() else None,
        b_eq=np.zeros(np.count_nonzero(equality)) if equality.any() else None,
        bounds=[(-1, 1)] * matrix.shape[1] + [(0, None)],
    )
    return -float(found.fun) if found.status == 0 else 0.0


def _least(
    matrix: np.ndarray, right: np.ndarray, equality: np.ndarray, norm: str, shape: tuple[int, int]
) -> float | None:
    """The least norm; None if the solver does not find it."""
    size, solver = right.max(), "HIGHS" if norm in ("l1", "linf") else "CLARABEL"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY writes powers of fractions as second-order cones, and says so
            status, value = by_cvxpy(matrix, right / size, equality, norm, shape, solver)
    except cp.SolverError:
        return None
    return float(value) * float(size) if status == "optimal" else None
