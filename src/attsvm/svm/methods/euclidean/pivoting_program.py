"""Large quadratic programs under bounds whose optimum has few positive entries, min ½μ'Kμ − h'μ over μ ≥ 0.

The proximal steps

    μ⁺ = argmin ½μ'Kμ − h'μ + ½ρ‖μ − μ°‖²

have a definite matrix K + ρI. Block pivoting solves each of them: one Cholesky factorisation of the block of K that
belongs to the positive entries, and then all entries that violate a condition change sides. The conditions of all other
rows need one product with K, so only that block of K is stored. As ρ decreases, a few steps lead to the optimum.
Gradient steps before them determine most of the positive entries.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg.lapack import get_lapack_funcs

from attsvm.svm.methods.euclidean.bound_program import Check, Product, Stopped, Vector

Positions = Int[np.ndarray, " m"]
Block = Callable[[Positions, Positions], Float[np.ndarray, "m k"]]

MOST_ROWS = 3_000
"""Rows of the largest block of K: with more, products alone are faster. The block and a copy take 36 MB in float32."""

FIRST_WEIGHT, LEAST_WEIGHT = 1e-3, 1e-9
"""The first and the smallest ρ, for unit rows."""

LEAST_EPS = 100
"""The smallest ρ in units of the rounding error, which is larger than ``LEAST_WEIGHT`` in float32."""

LOWER, HIGHER, HIGHEST = 0.1, 5.0, 1.0
"""Factors of ρ after a step, and after a step that pivoting did not find; the search ends above the last."""

MOST_STEPS = 40
"""Limit for the number of steps, with those that pivoting did not find."""

MOST_EXCHANGES = 12
"""Limit for the exchanges of a step."""

GROWTH, LEAST_GROWTH = 0.1, 20
"""An exchange adds at most this share of the positive entries, or this many: the most violated ones."""

SETTLED = 0.005
"""A step is found when an exchange concerns at most this share of the positive entries: the next step makes it, too."""

STALLED = 0.8
"""Pivoting ends without success if two exchanges have not reduced the violated conditions by this factor."""

FEW = 0.02
"""If at most this share of the entries is negative, the point with 0 in their place is checked, too."""


class PivotingProgram:
    """min ½μ'Kμ − h'μ over μ ≥ 0.

    ``times``: maps μ to Kμ, where K is symmetric and positive semidefinite with a diagonal of 1. ``block``: maps
    positions of rows and of columns in the flattened μ to these entries of K, in float32 or float64. ``linear``: h,
    positive on the entries that exist and 0 elsewhere. ``check``: called with (steps, μ, Kμ), also for μ with negative
    entries. It raises :class:`Stopped` to end the search. ``limit``: largest number of products with K. ``tolerance``:
    conditions that are violated by at most this much, relative to h, count as met.

    References: Júdice and Pires (1994), *A block principal pivoting algorithm for large-scale strictly monotone linear
    complementarity problems*; Rockafellar (1976), *Augmented Lagrangians and applications of the proximal point
    algorithm in convex programming*.
    """

    def __init__(
        self, times: Product, block: Block, linear: Vector, check: Check, limit: int, tolerance: float
    ) -> None:
        self._times, self.check, self.limit, self.tolerance = times, check, limit, tolerance
        self._shape, self.linear = linear.shape, linear.reshape(-1)
        self._block = _Block(block)
        self.steps = 0

    def solve(self, start: Vector) -> None:
        """Steps from ``start`` until ``check`` stops the search, progress ends, or the block gets too large.

        ``start``: multipliers whose largest entries are probably positive at the optimum.
        """
        center = start.reshape(-1).astype(np.float64)
        positive = center[center > 0]
        if not len(positive):
            return
        inside = np.flatnonzero(center >= np.median(positive))
        weight = FIRST_WEIGHT
        try:
            for _ in range(MOST_STEPS):
                found = self._step(center, inside, weight)
                if found is None:
                    weight *= HIGHER
                    if weight > HIGHEST:
                        return
                    continue
                center, inside = found
                weight = max(LOWER * weight, LEAST_WEIGHT, LEAST_EPS * self._block.rounding)
        except Stopped:
            pass

    def _step(self, center: Vector, inside: Positions, weight: float) -> tuple[Vector, Positions] | None:
        """The point and the positive entries of a proximal step; None if pivoting does not find them."""
        right = self.linear + weight * center
        history: list[int] = []
        for _ in range(MOST_EXCHANGES):
            if len(inside) > MOST_ROWS:
                raise Stopped
            if not len(inside):
                return None
            inside, solved = self._block.solve(inside, right, weight)
            if solved is None:
                return None
            point = np.zeros(self.linear.shape)
            point[inside] = solved
            negative = solved < 0
            slack = self._image(point) + weight * point - right
            if 0 < np.count_nonzero(negative) <= FEW * len(inside):
                self._image(np.maximum(point, 0.0))
            slack[inside] = 0.0
            short = np.flatnonzero(slack < -self.tolerance * self.linear)
            broken = int(np.count_nonzero(negative)) + len(short)
            settled = broken <= SETTLED * len(inside)
            history.append(broken)
            if not settled and len(history) > 3 and broken > STALLED * history[-3]:
                return None
            most = max(LEAST_GROWTH, int(GROWTH * len(inside)))
            if len(short) > most:
                short = short[np.argpartition(slack[short] / self.linear[short], most)[:most]]
            inside = np.concatenate([inside[~negative], short])
            if settled:
                return np.maximum(point, 0.0), inside
        return None

    def _image(self, point: Vector) -> Vector:
        """K times a point, which is checked."""
        if self.steps >= self.limit:
            raise Stopped
        self.steps += 1
        shaped = point.reshape(self._shape)
        image = self._times(shaped)
        self.check(self.steps, shaped, image)
        return image.reshape(-1)


class _Block:
    """The block of K among some rows, made from the last one: most rows stay from one exchange to the next."""

    def __init__(self, block: Block) -> None:
        self._of = block
        self._rows: Positions = np.zeros(0, np.intp)
        self._matrix: np.ndarray | None = None

    @property
    def rounding(self) -> float:
        """Relative rounding error of its entries."""
        return 0.0 if self._matrix is None else float(np.finfo(self._matrix.dtype).eps)

    def solve(self, rows: Positions, right: Vector, weight: float) -> tuple[Positions, Vector | None]:
        """The rows in their new order, and the solution of (K + ρI)μ = right on them; None if K + ρI is singular."""
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
