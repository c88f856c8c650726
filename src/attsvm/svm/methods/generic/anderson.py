"""Anderson acceleration of a fixed-point iteration z ← z + f(z)."""

import numpy as np
from jaxtyping import Float
from scipy.linalg.lapack import dposv

REGULAR = 1e-12
"""The ridge of the least-squares problem, relative to its trace."""

FEWEST = 2
"""The number of differences from which the iteration is extrapolated."""


class Anderson:
    """The last differences of z and f, and the point that they extrapolate to.

    ``size``: length of z. ``memory``: how many differences are kept.

    References: Walker and Ni (2011), *Anderson acceleration for fixed-point iterations*, type II.
    """

    def __init__(self, size: int, memory: int) -> None:
        self._points, self._steps = np.empty((2, memory, size))
        self._count = 0
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def forget(self) -> None:
        """Drop all differences: f has changed."""
        self._count, self._last = 0, None

    def extrapolated(
        self, point: Float[np.ndarray, " size"], step: Float[np.ndarray, " size"]
    ) -> Float[np.ndarray, " size"] | None:
        """Remember z and f(z); the extrapolated point, or None while there are too few differences."""
        if self._last is not None:
            place = self._count % len(self._points)
            np.subtract(point, self._last[0], out=self._points[place])
            np.subtract(step, self._last[1], out=self._steps[place])
            self._count += 1
        self._last = point, step
        kept = min(self._count, len(self._points))
        if kept < FEWEST:
            return None
        points, steps = self._points[:kept], self._steps[:kept]
        products = steps @ steps.T
        products[np.diag_indices(kept)] += REGULAR * np.trace(products)
        _, weights, failed = dposv(products, steps @ step)
        if failed:
            return None
        return np.asarray(point + step - weights @ points - weights @ steps)
