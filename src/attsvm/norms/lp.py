"""Entrywise ℓp norms; p = 2 is the Frobenius norm."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.norms.base import SeveralAtOnce
from attsvm.norms.registry import NORMS

MOST_STEPS = np.finfo(float).bits
"""The bracket of the root may be halved for each bit of a number."""

TINY = float(np.finfo(float).tiny)

CLOSE = 1e-9
"""After a relative change below this, the next iterate of Newton's method is exact to rounding."""


@dataclass(frozen=True)
class Lp(SeveralAtOnce):
    """The entrywise norm ‖W‖_p = (Σ |w|^p)^(1/p), 1 ≤ p ≤ ∞.

    Parameters
    ----------
    p : float
        The exponent; 2 gives the Frobenius norm.

    Raises
    ------
    ProblemError
        If p < 1 or p is not a number.

    See Also
    --------
    attsvm.norms.Nuclear, attsvm.norms.Spectral
    attsvm.optimizers.mirror_descent : Its limit.

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*: the norm of the Att-SVM of ℓp
    mirror descent.

    Examples
    --------
    >>> from attsvm.norms import Lp
    >>> Lp(1).value([[1.0, -2.0], [0.0, 3.0]])
    6.0
    >>> Lp(1.5).dual
    Lp(p=3.0)
    """

    p: float = 2.0
    spelling: ClassVar[str] = '"frobenius", "l<p>" or p with 1 <= p <= inf'

    def __post_init__(self) -> None:
        if not self.p >= 1:
            raise ProblemError(f"norm: expected 1 <= p <= inf, got p = {self.p:g}")
        object.__setattr__(self, "p", float(self.p))

    @property
    def name(self) -> str:
        """Return a name such as "frobenius", "l1.75" or "linf"."""
        return {2.0: "frobenius", np.inf: "linf"}.get(self.p, f"l{self.p!r}".removesuffix(".0"))

    @property
    def dual(self) -> "Lp":
        """Return ℓq with 1/p + 1/q = 1."""
        if self.p == 1:
            return Lp(np.inf)
        return Lp(1.0 if np.isinf(self.p) else self.p / (self.p - 1))

    @property
    def left_invariant(self) -> bool:
        return self.p == 2

    @property
    def right_invariant(self) -> bool:
        return self.p == 2

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        array = np.asarray(x, dtype=np.float64)
        over = tuple(range(-axes, 0))
        largest = np.max(np.abs(array), axis=over, keepdims=True, initial=0.0)
        if np.isinf(self.p):
            return np.asarray(largest.reshape(array.shape[: array.ndim - axes]))
        # powers of the entries relative to the largest one neither overflow nor all underflow
        scale = np.where(largest > 0, largest, 1.0)
        scaled = array / scale
        powers = np.abs(scaled) ** self.p if self.p != 2 else scaled * scaled
        result = np.asarray(np.sum(powers, axis=over) ** (1 / self.p))
        return np.asarray(result * scale.reshape(result.shape))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return D^(1/p − 1/2) for matrices of D entries, and 1 for p ≥ 2."""
        return float(math.prod(shape) ** max(0.0, 1 / self.p - 0.5))

    def project_dual_ball(self, x: Any) -> Any:
        """Project on the ℓq ball, 1/p + 1/q = 1; in closed form for p = 1, 2 and ∞, else in NumPy only."""
        xp = x.__array_namespace__()
        if self.p == 1:
            return xp.clip(x, -1.0, 1.0)
        if self.p == 2:
            return x / xp.maximum(xp.sqrt(xp.sum(x * x)), 1.0)
        if np.isinf(self.p):
            return xp.sign(x) * shrunk_to_sum_one(xp.abs(x))
        sizes = project_on_lp_ball(np.abs(x).reshape(-1), self.p / (self.p - 1))
        return np.sign(x) * sizes.reshape(x.shape)

    def proxes(self, x: np.ndarray, step: float, axes: int = 2) -> np.ndarray:
        """Compute the proximal points of several arrays in one call."""
        if self.p == 1:  # the same for any number of axes
            return np.asarray(self.prox(x, step))
        if self.p in (2, np.inf):
            return super().proxes(x, step, axes)
        lead = x.shape[: x.ndim - axes]
        sizes = project_on_lp_ball(np.abs(x / step).reshape(*lead, -1), self.p / (self.p - 1))
        return np.asarray(x - step * np.sign(x) * sizes.reshape(x.shape))

    def steepest(self, g: Any) -> Any:
        """Return sign(g) for ℓ∞, the sign of the first largest entry for ℓ1, else sign(g)|g|^(q−1) at unit norm."""
        xp = g.__array_namespace__()
        size = xp.abs(g)
        largest = xp.max(size)
        if np.isinf(self.p):
            return xp.sign(g)
        if self.p == 1:
            first = xp.reshape(xp.arange(g.size) == xp.argmax(size), g.shape)
            return xp.where(first, xp.sign(g), 0.0)
        q = self.p / (self.p - 1)
        scaled = size / xp.where(largest > 0, largest, 1.0)
        length = xp.sum(scaled**q) ** (1 / q)
        return xp.sign(g) * (scaled / xp.where(length > 0, length, 1.0)) ** (q - 1)

    def size_in_trials(self, tree: Any, trials: Any) -> Any:
        """Compute the norm of all entries in each trial, in JAX."""
        xp = trials.jnp
        if np.isinf(self.p):
            return trials.over_all(xp.maximum, tree, xp.abs)
        if self.p == 2:
            return xp.sqrt(trials.sum_of_squares(tree))
        return trials.power(trials.over_all(xp.add, tree, lambda x: trials.power(xp.abs(x), self.p)), 1.0 / self.p)

    def steepest_in_trials(self, gradient: Any, trials: Any) -> Any:
        """Compute the steepest direction in each trial, in JAX."""
        xp = trials.jnp
        if np.isinf(self.p):
            return xp.sign(gradient)
        if self.p == 1:
            shape = gradient.shape[:-1]
            index = xp.arange(int(np.prod(shape)), dtype=xp.int32).reshape(*shape, 1)
            size = xp.abs(gradient)
            largest = trials.over_entries(xp.maximum, size)
            first = trials.over_entries(xp.minimum, xp.where(size == largest, index, index.size))
            return xp.sign(gradient) * (index == first)
        q = self.p / (self.p - 1.0)
        size = trials.settle(Lp(q).size_in_trials({"": gradient}, trials))
        scaled = gradient / xp.where(size > 0, size, 1.0)
        return scaled if q == 2 else xp.sign(scaled) * trials.power(xp.abs(scaled), q - 1.0)

    @classmethod
    def parse(cls, text: str) -> "Lp | None":
        """Read "frobenius", "fro", "l1.75", "linf", or a number."""
        if text in ("frobenius", "fro"):
            return cls(2.0)
        try:
            return cls(float(text.removeprefix("l")))
        except ValueError as error:
            if isinstance(error, ProblemError):
                raise
            return None


def shrunk_to_sum_one(sizes: Any) -> Any:
    """Return the nearest non-negative array with a sum of at most 1: sizes less a threshold, or 0.

    ``sizes``: not negative.

    References: Duchi, Shalev-Shwartz, Singer and Chandra (2008), *Efficient projections onto the l1-ball for learning
    in high dimensions*.
    """
    xp = sizes.__array_namespace__()
    descending = -xp.sort(-xp.reshape(sizes, (-1,)))
    excess = (xp.cumsum(descending) - 1.0) / xp.arange(1, sizes.size + 1)
    threshold = excess[xp.sum(descending > excess) - 1]
    return xp.maximum(sizes - xp.maximum(threshold, 0.0), 0.0)


def project_on_lp_ball(sizes: Float[np.ndarray, "*batch D"], q: float) -> Float[np.ndarray, "*batch D"]:
    """Return the nearest point with ‖x‖_q ≤ 1 for each vector of sizes ≥ 0.

    The nearest point satisfies x + μ x^(q−1) = s in each entry. Its largest entry m determines μ, lies between
    D^(−1/q) and 1, and ‖x‖_q grows with it: Newton's method with a bracket finds the m at which ‖x‖_q = 1. No power
    of these numbers overflows or underflows, however large s or q is.
    """
    shape = sizes.shape
    sizes = sizes.reshape(-1, shape[-1])
    projected = sizes.copy()
    outside = length_of(sizes, q) > 1
    if outside.any():
        projected[outside] = _boundary_points(sizes[outside], q)
    return projected.reshape(shape)


def length_of(sizes: Float[np.ndarray, "*batch D"], q: float) -> Float[np.ndarray, "*batch"]:
    """Return ‖s‖_q of each vector, without overflow."""
    largest = sizes.max(axis=-1, keepdims=True, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return np.asarray(((sizes / scale) ** q).sum(axis=-1) ** (1 / q) * scale[..., 0])


def _boundary_points(sizes: Float[np.ndarray, "N D"], q: float) -> Float[np.ndarray, "N D"]:
    largest = sizes.max(axis=-1, keepdims=True)
    high = np.minimum(largest, 1.0)
    low = np.minimum(sizes.shape[-1] ** (-1 / q), high)
    # x is proportional to s^(1/(q−1)) far outside
    m = np.clip(1 / length_of((sizes / largest) ** (1 / (q - 1)), q)[:, None], low, high)
    x = sizes * (m / largest)
    converged = False
    for _ in range(MOST_STEPS):
        multiplier = (largest - m) / m ** (q - 1)
        x = _entries(sizes, multiplier, m, x, q)
        if converged:
            break
        power = x ** (q - 1)
        total = (power * x).sum(axis=-1, keepdims=True)
        excess = np.log(total) / q
        low, high = np.where(excess < 0, m, low), np.where(excess > 0, m, high)
        # dx/dμ from x + μ x^(q−1) = s, and dμ/dm from m + μ m^(q−1) = max s
        change = -power * x / np.where(x > 0, x + multiplier * (q - 1) * power, 1.0)
        slope_of_multiplier = -(m ** (1 - q)) - (q - 1) * multiplier / m
        slope = (power * change).sum(axis=-1, keepdims=True) * slope_of_multiplier / total
        guess = m * np.exp(-excess / np.where(slope > 0, slope * m, np.inf))
        guess = np.where((guess >= low) & (guess <= high), guess, 0.5 * (low + high))
        converged = bool((np.minimum(np.abs(excess), np.abs(guess - m)) <= CLOSE * m).all())
        m = guess
    return np.asarray(x / np.maximum(length_of(x, q), 1.0)[:, None])


def _entries(
    s: Float[np.ndarray, "N D"],
    multiplier: Float[np.ndarray, "N 1"],
    largest: Float[np.ndarray, "N 1"],
    first: Float[np.ndarray, "N D"],
    q: float,
) -> Float[np.ndarray, "N D"]:
    """Solve x + μ x^(q−1) = s for x ≥ 0 by Newton's method on the form that is convex: in x, or in y = x^(q−1)."""
    if q == 3:
        return np.asarray(2 * s / (1 + np.sqrt(1 + 4 * multiplier * s)))
    if q == 1.5:
        return np.asarray((2 * s / np.maximum(multiplier + np.sqrt(multiplier**2 + 4 * s), TINY)) ** 2)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        above = np.minimum(np.minimum(s, largest), np.where(multiplier > 0, (s / multiplier) ** (1 / (q - 1)), np.inf))
    root = 1.0 if q >= 2 else 1 / (q - 1)
    most, y = above ** (1 / root), np.minimum(first, above) ** (1 / root)
    linear, multiplied = (1.0, multiplier) if q >= 2 else (multiplier, 1.0)
    exponent = max(q - 1, root)
    for _ in range(MOST_STEPS):
        power = multiplied * y ** (exponent - 1)
        slope = linear + exponent * power
        change = ((linear + power) * y - s) / np.where(slope > 0, slope, np.inf)
        y = np.clip(y - change, 0.0, most)  # after the first step from above, so that no step is too long
        if (np.abs(change) <= CLOSE * y).all():
            break
    return np.asarray(y if q >= 2 else y**root)


NORMS.register("lp", Lp)
