"""Quadratic programs under bounds with few entries inside them, by proximal steps and block pivoting.

Rows that depend on each other make K singular, and pivoting then cycles. The proximal steps

    μ⁺ = argmin ½μ'Kμ − h'μ + ½ρ‖μ − μ°‖² over 0 ≤ μ ≤ C

have a definite matrix K + ρI. Block pivoting solves each of them: one Cholesky factorisation of the block of K that
belongs to the entries between their bounds, and then all entries that violate a condition change sides. The conditions
of all other rows need one product with K, so only that block of K is stored. As ρ decreases, a few steps lead to the
optimum.
"""

from collections.abc import Callable, Generator

import numpy as np
from scipy.linalg.lapack import get_lapack_funcs

from attsvm._utils.shapes import Float, Int
from attsvm.svm.methods.frobenius.pivoting import MAX_EXCHANGES
from attsvm.svm.methods.frobenius.projected_gradient import FEW, FEWEST, BoundedProgram, Mask, Points, Stopped, Vector
from attsvm.svm.tolerances import EPS

Positions = Int[np.ndarray, " m"]
Block = Callable[[Positions, Positions], Float[np.ndarray, "m k"]]

MOST_ROWS = 3_000
"""Rows of the largest block of K: with more, products alone are faster. The block and a copy take 36 MB in float32."""

FIRST_WEIGHT, LEAST_WEIGHT = 1e-2, 1e-14
"""The first and the smallest ρ, relative to the largest diagonal entry of K."""

LOWER, HIGHER, HIGHEST = 0.03, 10.0, 1e3
"""Factors of ρ after a step, and after a step that pivoting did not find. The search ends where ρ exceeds K."""

MOST_STEPS = 60
"""Limit for the number of steps, with those that pivoting did not find."""


class ProximalPivoting:
    """Proximal pivoting on one program.

    ``block``: maps positions of rows and of columns in the flattened μ to these entries of K, in float32 or float64;
    the diagonal of K is 1. ``allowed``: conditions that are violated by at most this much count as met, one number
    or one for each entry.

    References: Júdice and Pires (1994), *A block principal pivoting algorithm for large-scale strictly monotone linear
    complementarity problems*; Rockafellar (1976), *Augmented Lagrangians and applications of the proximal point
    algorithm in convex programming*.
    """

    def __init__(self, program: BoundedProgram, block: Block, allowed: Vector | float) -> None:
        self.program, self._shape = program, program.linear.shape
        self._block = _GramBlock(block)
        self._allowed = np.broadcast_to(allowed, program.linear.shape).reshape(-1)
        self._linear, self._bounded = program.linear.reshape(-1), program.bounded.reshape(-1)
        self._there = program.there.reshape(-1)
        upper = np.inf if program.upper is None else program.upper
        self._upper = np.broadcast_to(upper, program.linear.shape).reshape(-1)

    def points(self, start: Vector, inside: Mask, weight: float = FIRST_WEIGHT) -> Points:
        """Yield the feasible points of the exchanges from ``start`` on, until steps fail or the block gets too large.

        ``inside``: the entries that are probably between their bounds at the optimum. ``weight``: the first ρ.
        """
        point = start.reshape(-1).astype(np.float64)
        at_upper = self._bounded & ~inside.reshape(-1) & (point >= self._upper)
        between = np.flatnonzero(inside.reshape(-1) | (self._there & ~self._bounded))
        for _ in range(MOST_STEPS):
            # a failed step is tried again closer to the last point, with a larger ρ
            found = yield from self._step(point, between, at_upper, weight)
            if found is None:
                weight *= HIGHER
                if weight > HIGHEST:
                    return
                continue
            before, (point, between, at_upper) = point, found
            if np.linalg.norm(point - before) <= 4 * EPS * np.linalg.norm(point):
                return
            weight = max(LOWER * weight, LEAST_WEIGHT, 100 * self._block.rounding)

    def _step(
        self, center: Vector, inside: Positions, at_upper: Mask, weight: float
    ) -> Generator[tuple[Vector, Vector], None, tuple[Vector, Positions, Mask] | None]:
        """Return the point of a proximal step, and its entries between and at the bounds; None if pivoting fails."""
        # h + ρμ°: the linear term of the proximal step
        right = self._linear + weight * center
        for _ in range(MAX_EXCHANGES):
            if len(inside) > MOST_ROWS:
                raise Stopped
            # (K + ρI)_FF μ_F = h_F + ρμ°_F − K_FU C_U on the entries F between the bounds, with U those at the upper
            point = np.where(at_upper, self._upper, 0.0)
            fixed = self._product(point) if at_upper.any() else 0.0
            if len(inside):
                inside, solved = self._block.solve(inside, right - fixed, weight)
                if solved is None:
                    return None
                point[inside] = solved
            image = self._product(point)
            # (K + ρI)μ − h − ρμ°, which must be ≥ 0 at 0, ≤ 0 at C and 0 between
            slack = image + weight * point - right
            # exchange all entries outside their bounds, and those at a bound whose slack has the wrong sign
            low = self._bounded[inside] & (point[inside] < 0)
            high = self._bounded[inside] & (point[inside] > self._upper[inside])
            outside = bool(low.any() or high.any())
            if not outside:
                yield point.reshape(self._shape), image.reshape(self._shape)
            slack[inside] = 0.0
            slack[at_upper] *= -1
            short = np.flatnonzero(slack < -(self._allowed + 4 * EPS * np.linalg.norm(point)))
            if not (outside or len(short)):
                return point, inside, at_upper
            most = max(FEWEST, int(FEW * len(inside)))
            # few rows at a time: one row often makes its neighbours hold, too
            if len(short) > most:
                short = short[np.argpartition(slack[short], most)[:most]]
            at_upper = at_upper.copy()
            at_upper[short] = False
            at_upper[inside[high]] = True
            inside = np.concatenate([inside[~(low | high)], short])
        return None

    def _product(self, point: Vector) -> Vector:
        return self.program.times(point.reshape(self._shape)).reshape(-1)


class _GramBlock:
    """The block of K among some rows, made from the last one: most rows stay from one exchange to the next."""

    def __init__(self, block: Block) -> None:
        self._of = block
        self._rows: Positions = np.zeros(0, np.intp)
        self._matrix: np.ndarray | None = None

    @property
    def rounding(self) -> float:
        """Relative rounding error of its entries where it limits ρ: in float32."""
        return 0.0 if self._matrix is None else float(np.finfo(self._matrix.dtype).eps)

    def solve(self, rows: Positions, right: Vector, weight: float) -> tuple[Positions, Vector | None]:
        """Solve (K + ρI)μ = right on the rows, returned in a new order with μ; None if K + ρI is singular."""
        rows, matrix = self._among(rows)
        system = matrix.copy()
        system.reshape(-1)[:: len(rows) + 1] += weight
        (posv,) = get_lapack_funcs(("posv",), (system,))
        # the matrix is symmetric: its transpose is the layout that LAPACK takes without a copy
        _, solved, failed = posv(system.T, right[rows].astype(system.dtype), overwrite_a=True, overwrite_b=True)
        return rows, None if failed or not np.isfinite(solved).all() else solved

    def _among(self, rows: Positions) -> tuple[Positions, np.ndarray]:
        if self._matrix is None:
            self._rows, self._matrix = rows, self._of(rows, rows)
            return rows, self._matrix
        # rows of the last block are copied, only new ones are computed
        known = np.isin(rows, self._rows, assume_unique=True)
        rows = np.concatenate([rows[known], rows[~known]])
        order = np.argsort(self._rows)
        kept = np.count_nonzero(known)
        at = order[np.searchsorted(self._rows, rows[:kept], sorter=order)]
        matrix = np.empty((len(rows), len(rows)), self._matrix.dtype)
        matrix[:kept, :kept] = self._matrix.take(at, axis=0).take(at, axis=1)
        if kept < len(rows):
            added = self._of(rows[kept:], rows)
            matrix[kept:] = added
            matrix[:kept, kept:] = added[:, :kept].T
        self._rows, self._matrix = rows, matrix
        return rows, matrix
