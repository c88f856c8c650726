"""Certificates of Att-SVMs checked from the definition: products in whole numbers, norms in 60 digits."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

DIGITS = 60
OPTIMAL_GAP, OPTIMAL_VIOLATION, FARKAS_BOUND = 1e-8, 1e-9, 1e12

LAST_DIGITS = 1e-13
"""Rounding of the norms of W and A*(λ), which the fields ``value`` and ``gap`` may have, relative to them."""


class Whole:
    """Floats as whole numbers times one power of two, nothing lost."""

    def __init__(self, array: np.ndarray) -> None:
        ratios = [float(number).as_integer_ratio() for number in np.ravel(array)]
        self.places = max((below.bit_length() - 1 for _, below in ratios), default=0)
        numbers = np.empty(len(ratios), dtype=object)
        numbers[:] = [above << (self.places - below.bit_length() + 1) for above, below in ratios]
        self.numbers = numbers.reshape(np.shape(array))


@dataclass(frozen=True)
class Rows:
    """One row (k_r − k_t) z' for each query and each token that it may attend to, but its reference.

    Tokens with equal keys are one token, the first of them: a set that holds one of them holds all.
    """

    left: np.ndarray  # (m, d_k), whole numbers
    queries: np.ndarray  # (m, d_q), whole numbers
    places: int  # of a product of both
    right: list[Any]  # 0 and 1, or the margins that are required
    equality: list[bool]
    at: list[tuple[int, int, int]]
    shape: tuple[int, int]
    prompt: bool

    @classmethod
    def of(
        cls,
        keys: np.ndarray,
        queries: np.ndarray | None,
        allowed: np.ndarray,
        sets: np.ndarray,
        relaxed: np.ndarray | None,
        required: np.ndarray | None = None,
    ) -> "Rows":
        """The rows of one problem: keys (n, T, d_k), queries (n, Q, d_q), the rest (n, Q, T) and (n, Q)."""
        prompt = queries is None
        own = np.ones((*allowed.shape[:2], 1)) if queries is None else queries
        whole_keys, whole_queries = Whole(keys), Whole(own)
        at, left, right_factors, right, equality = [], [], [], [], []
        for i, q, t in map(tuple, np.argwhere(allowed).tolist()):
            equal = (keys[i] == keys[i, t]).all(axis=-1) & allowed[i, q]
            # tokens with equal keys are kept together
            same = (keys[i][:, None] == keys[i][sets[i, q] & allowed[i, q]]).all(axis=-1)
            kept = same.any(axis=-1) & allowed[i, q]
            reference = int(np.flatnonzero(kept)[0])
            if np.flatnonzero(equal)[0] < t or equal[reference]:
                continue
            of_equal = [] if required is None else [x for x in required[i, q, equal] if not np.isnan(x)]
            if required is not None and not of_equal:
                continue
            at.append((i, q, t))
            left.append(whole_keys.numbers[i, reference] - whole_keys.numbers[i, t])
            right_factors.append(whole_queries.numbers[i, q])
            equality.append(bool(kept[t]))
            asks_none = equality[-1] or (relaxed is not None and relaxed[i, q])
            right.append(int(not asks_none) if required is None else Fraction(float(max(of_equal))))
        shape = keys.shape[-1], own.shape[-1]
        return cls(
            np.array(left, dtype=object).reshape(-1, shape[0]),
            np.array(right_factors, dtype=object).reshape(-1, shape[1]),
            whole_keys.places + whole_queries.places,
            right,
            equality,
            at,
            shape,
            prompt,
        )

    @classmethod
    def of_problem(cls, problem: Any, selected: Any, relaxed: Any = None) -> "Rows":
        """The rows of a problem without batch axes, for selected tokens or sets of them."""
        keys, queries, allowed, _ = problem.canonical
        sets = np.asarray(selected)
        sets = sets if sets.dtype == bool else sets[..., None] == np.arange(keys.shape[1])
        relaxed = None if relaxed is None else np.reshape(relaxed, allowed.shape[:2])
        return cls.of(keys, queries if problem.has_queries else None, allowed, sets.reshape(allowed.shape), relaxed)

    def margins(self, weights: np.ndarray) -> list[Fraction]:
        """A(W)."""
        whole = Whole(weights.reshape(self.shape))
        sums = ((self.left @ whole.numbers) * self.queries).sum(axis=-1) if len(self.left) else []
        return [Fraction(int(number), 1 << (self.places + whole.places)) for number in sums]

    def adjoint(self, multipliers: list[float]) -> np.ndarray:
        """A*(λ) as Fractions."""
        whole = Whole(np.array(multipliers))
        total = (self.left * whole.numbers[:, None]).T @ self.queries if len(self.left) else np.zeros(self.shape, int)
        below = 1 << (self.places + whole.places)
        return np.array([[Fraction(int(number), below) for number in line] for line in total], dtype=object)

    def norms(self) -> list[mpmath.mpf]:
        """Frobenius norms of the rows."""
        squares = (self.left * self.left).sum(axis=-1) * (self.queries * self.queries).sum(axis=-1)
        return [mpmath.sqrt(mpmath.mpf(int(square))) / mpmath.mpf(2) ** self.places for square in squares]

    def dense(self) -> np.ndarray:
        """The rows at unit norm, as floats; rows of zeros stay zero."""
        rows = np.zeros((len(self.left), self.shape[0] * self.shape[1]))
        for k, (own, query) in enumerate(zip(self.left, self.queries, strict=True)):
            sizes = [max(map(abs, part)) or 1 for part in (own, query)]
            unit = np.outer([float(Fraction(x, sizes[0])) for x in own], [float(Fraction(x, sizes[1])) for x in query])
            rows[k] = unit.ravel() / (np.linalg.norm(unit) or 1.0)
        return rows


def norm_of(matrix: np.ndarray, norm: str, dual: bool = False) -> mpmath.mpf:
    """N, or its dual norm, of a matrix of floats or Fractions."""
    entries = [_number(entry) for entry in np.ravel(matrix) if entry != 0]
    if not entries:
        return mpmath.mpf(0)
    if norm in ("nuclear", "spectral"):
        if 1 not in matrix.shape:
            return _of_singular_values(matrix, (norm == "nuclear") != dual)
        norm = "frobenius"
    if norm in ("l2,1", "l2,1-columns"):
        lines = matrix if norm == "l2,1" else matrix.T
        lengths = [mpmath.sqrt(mpmath.fsum(_number(entry) ** 2 for entry in line)) for line in lines]
        return max(lengths) if dual else mpmath.fsum(lengths)
    p = {"frobenius": 2.0, "linf": np.inf}.get(norm) or float(norm[1:])
    if p in (1, np.inf):
        return sum(map(abs, entries), mpmath.mpf(0)) if (p == 1) != dual else max(map(abs, entries))
    if p == 2:
        return mpmath.sqrt(mpmath.fsum(entry * entry for entry in entries))
    exponent = mpmath.mpf(p)
    if dual:
        exponent = exponent / (exponent - 1)
    largest = max(map(abs, entries))
    return largest * mpmath.fsum((abs(entry) / largest) ** exponent for entry in entries) ** (1 / exponent)


def _number(entry: Any) -> mpmath.mpf:
    if isinstance(entry, Fraction):
        return mpmath.mpf(entry.numerator) / entry.denominator
    return mpmath.mpf(float(entry))


def _of_singular_values(matrix: np.ndarray, total: bool) -> mpmath.mpf:
    """By NumPy, to 15 digits of the largest: 60 digits would take longer than all the rest."""
    largest = max(abs(_number(entry)) for entry in np.ravel(matrix))
    scaled = np.array([[float(_number(entry) / largest) for entry in line] for line in matrix])
    values = np.linalg.svd(scaled, compute_uv=False)
    return largest * float(values.sum() if total else values[0])


def check_solution(rows: Rows, norm: str, solution: Any) -> str:
    """What is false in an answer without slack; empty if nothing is."""
    with mpmath.workdps(DIGITS):
        multipliers = _multipliers(rows, solution)
        if isinstance(multipliers, str):
            return multipliers
        if solution.status == "infeasible":
            return _check_infeasible(rows, norm, solution, multipliers)
        return _check_bounds(rows, norm, solution, multipliers)


def _multipliers(rows: Rows, solution: Any) -> list[float] | str:
    """Those of the rows, or what is wrong with them."""
    dual = np.array(solution.dual)
    dual = dual[:, None, :] if dual.ndim == 2 else dual
    own = [float(dual[place]) for place in rows.at]
    for place in rows.at:
        dual[place] = 0.0
    if not np.isfinite(own).all():
        return "a multiplier is not finite"
    if dual.any():
        return "a multiplier where there is no constraint"
    if any(number < 0 for number, equality in zip(own, rows.equality, strict=True) if not equality):
        return "a negative multiplier"
    return own


def _check_infeasible(rows: Rows, norm: str, solution: Any, multipliers: list[float]) -> str:
    if not (np.isnan(solution.direction).all() and np.isnan([solution.value, solution.gap, solution.margin]).all()):
        return "infeasible with weights"
    total = sum(b * Fraction(number) for number, b in zip(multipliers, rows.right, strict=True))
    mean = sum(abs(b) * Fraction(number) for number, b in zip(multipliers, rows.right, strict=True))
    if abs(total - 1) > 1e-9 + LAST_DIGITS * mean:
        return f"infeasible with b'λ = {float(total)}"
    pull = rows.adjoint(multipliers)
    size, length = norm_of(pull, norm, dual=True), norm_of(pull, "frobenius", dual=True)
    lengths = rows.norms()
    weight = sum(
        number * (length or 1) for number, length, b in zip(multipliers, lengths, rows.right, strict=True) if b
    ) * _number(total / mean)
    bound = weight / size if size else mpmath.inf
    # whether there are weights does not depend on the norm: the bound on ‖W‖_F may prove it, too
    proved = solution.bound > FARKAS_BOUND or not length or weight / length > FARKAS_BOUND
    if not (proved and bound >= solution.bound * (1 - 1e-12)):
        return f"infeasible with a bound of {mpmath.nstr(bound, 5)}, claimed {solution.bound:.3e}"
    return ""


def _check_bounds(rows: Rows, norm: str, solution: Any, multipliers: list[float]) -> str:
    weights = np.asarray(solution.direction, float).reshape(rows.shape)
    if not np.isfinite(weights).all():
        return f"{solution.status} with weights that are not finite"
    value = norm_of(weights, norm)
    if abs(value - solution.value) > LAST_DIGITS * value:
        return f"value {solution.value!r}, in truth {mpmath.nstr(value, 17)}"
    margins = [_number(margin) for margin in rows.margins(weights)]
    right = [_number(b) for b in rows.right]
    asked = [margin / b for margin, b in zip(margins, right, strict=True) if b > 0]
    size = norm_of(rows.adjoint(multipliers), norm, dual=True)
    total = mpmath.fsum(number * b for number, b in zip(multipliers, right, strict=True))
    gap = mpmath.mpf(0)
    if asked:
        smallest = min(asked)
        bound = total / size if size else mpmath.mpf(0)
        gap = 1 - bound * min(smallest, 1) / value if smallest > 0 else mpmath.inf
        whole = solution.required is None
        if whole and smallest > 0 and solution.gap < np.inf and solution.margin > smallest / value * (1 + LAST_DIGITS):
            return f"margin {solution.margin!r}, in truth {mpmath.nstr(smallest / value, 17)}"
    elif value:
        gap = mpmath.mpf(1)  # no weights at all are needed
    if gap > solution.gap + LAST_DIGITS:
        return f"gap {solution.gap:.3e}, in truth {mpmath.nstr(gap, 5)} ({solution.status})"
    length = norm_of(weights, "frobenius")
    for margin, b, equality, norm_of_row in zip(margins, right, rows.equality, rows.norms(), strict=True):
        lacking = abs(margin) if equality else b - margin
        if lacking > solution.raw_violation * (1 + 1e-9):
            return f"raw violation {solution.raw_violation:.3e}, in truth {mpmath.nstr(lacking, 5)}"
        room = norm_of_row * length
        if room and lacking > solution.violation * room * (1 + 1e-9):
            return f"violation {solution.violation:.3e}, in truth {mpmath.nstr(lacking / room, 5)}"
    optimal = solution.gap <= OPTIMAL_GAP and solution.violation <= OPTIMAL_VIOLATION
    if (solution.status == "optimal") != optimal:
        return f"{solution.status} with gap {solution.gap:.1e}, violation {solution.violation:.1e}"
    return ""


def soft_objective(rows: Rows, C: float, weights: np.ndarray) -> mpmath.mpf:
    """½‖W‖² + C Σ max(0, 1 − A(W))."""
    with mpmath.workdps(DIGITS):
        short = mpmath.fsum(max(mpmath.mpf(0), 1 - _number(margin)) for margin in rows.margins(weights))
        return norm_of(weights.reshape(rows.shape), "frobenius") ** 2 / 2 + C * short


def check_soft(rows: Rows, C: float, solution: Any) -> str:
    """What is false in an answer with slack; empty if nothing is."""
    with mpmath.workdps(DIGITS):
        multipliers = _multipliers(rows, solution)
        if isinstance(multipliers, str):
            return multipliers
        if max(multipliers, default=0.0) > C:
            return "a multiplier above C"
        weights = np.asarray(solution.direction, float).reshape(rows.shape)
        if not np.isfinite(weights).all():
            return f"{solution.status} with weights that are not finite"
        primal = soft_objective(rows, C, weights)
        dual = mpmath.fsum(multipliers) - norm_of(rows.adjoint(multipliers), "frobenius") ** 2 / 2
        gap = (primal - dual) / primal if primal else mpmath.mpf(0)
        if gap > solution.gap + LAST_DIGITS:
            return f"gap {solution.gap:.3e}, in truth {mpmath.nstr(gap, 5)} ({solution.status})"
        if solution.status == "optimal" and abs(primal - solution.objective) > OPTIMAL_GAP * primal:
            return f"objective {solution.objective!r}, in truth {mpmath.nstr(primal, 17)}"
        if (solution.status == "optimal") != (solution.gap <= OPTIMAL_GAP):
            return f"{solution.status} with gap {solution.gap:.1e}"
        if solution.status != "optimal" and gap <= OPTIMAL_GAP / 2:
            return f"inaccurate, gap {solution.gap:.1e}, in truth {mpmath.nstr(gap, 5)}"
    return ""
