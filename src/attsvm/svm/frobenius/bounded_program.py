"""Convex quadratic programs under bounds, min ½μ'Kμ − h'μ over 0 ≤ μ ≤ C, by products with K alone.

The dual of a Frobenius Att-SVM has the Gram matrix K of its unit rows, h the right sides, and no upper bound. With
slack variables the upper bound of a row is C times its norm. Multipliers of equalities are free.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

Vector = Float[np.ndarray, "*shape"]
Mask = Bool[np.ndarray, "*shape"]
Product = Callable[[Vector], Vector]
Check = Callable[[int, Vector, Vector], bool]

FEW, FEWEST = 0.1, 20
"""At most this share of the positive entries, but at least so many of them, are a small exchange."""


class Stopped(Exception):
    """Ends the search from inside any of its loops. It is not an error."""


class BoundedProgram:
    """min ½μ'Kμ − h'μ over 0 ≤ μ ≤ C, and the number of products with K.

    ``product``: maps μ to Kμ, where K is symmetric and positive semidefinite. ``linear``: h. ``bounded``, ``there``:
    entries that must not be negative, and entries that exist; all other entries stay 0. ``check``: called regularly
    with (steps, μ, Kμ); returns True if μ is accurate enough. It may raise :class:`Stopped`. ``limit``: largest number
    of products with K. ``upper``: C, one for each entry; None for ∞.
    """

    def __init__(
        self,
        product: Product,
        linear: Vector,
        bounded: Mask,
        there: Mask,
        check: Check,
        limit: int,
        upper: Vector | None = None,
    ) -> None:
        self._product, self.linear, self.bounded, self.there = product, linear, bounded, there
        self.check, self.limit, self.upper = check, limit, upper
        self.steps = 0
        self.all_bounded = bool((bounded == there).all())

    def times(self, vector: Vector) -> Vector:
        """Multiply by K. Raises :class:`Stopped` if the number of products is at its limit."""
        if self.steps >= self.limit:
            raise Stopped
        self.steps += 1
        return self._product(vector)

    def objective(self, point: Vector, image: Vector) -> float:
        """Compute ½μ'Kμ − h'μ."""
        return float(0.5 * np.vdot(point, image) - np.vdot(point, self.linear))

    def clip(self, point: Vector) -> Vector:
        """Project a point on the bounds, in place."""
        np.maximum(point, 0.0, out=point, where=True if self.all_bounded else self.bounded)
        if self.upper is not None:
            np.minimum(point, self.upper, out=point, where=self.bounded)
        return point
