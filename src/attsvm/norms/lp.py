"""Entrywise ℓp norms; p = 2 is the Frobenius norm."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms.base import Norm, prox_of_each
from attsvm.norms.lp_ball import project_on_lp_ball
from attsvm.norms.registry import NORMS


@dataclass(frozen=True)
class Lp(Norm):
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
        """ℓq with 1/p + 1/q = 1."""
        if self.p == 1:
            return Lp(np.inf)
        return Lp(1.0 if np.isinf(self.p) else self.p / (self.p - 1))

    @property
    def left_invariant(self) -> bool:
        """True for p = 2."""
        return self.p == 2

    @property
    def right_invariant(self) -> bool:
        """True for p = 2."""
        return self.p == 2

    def value(self, x: Any, axes: int = 2) -> Any:
        values = self.values(x, min(axes, np.ndim(x)))
        return values if values.ndim else float(values)

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
        """D^(1/p − 1/2) for matrices of D entries, and 1 for p ≥ 2."""
        return float(math.prod(shape) ** max(0.0, 1 / self.p - 0.5))

    def project_dual_ball(self, x: Any) -> Any:
        """The nearest point of the ℓq ball, 1/p + 1/q = 1; in closed form for p = 1, 2 and ∞, else in NumPy only."""
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
            return prox_of_each(self, x, step, axes)
        lead = x.shape[: x.ndim - axes]
        sizes = project_on_lp_ball(np.abs(x / step).reshape(*lead, -1), self.p / (self.p - 1))
        return np.asarray(x - step * np.sign(x) * sizes.reshape(x.shape))

    def steepest(self, g: Any) -> Any:
        """sign(g) for ℓ∞, the sign of the first largest entry for ℓ1, else sign(g)|g|^(q−1) at unit norm."""
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
        """Compute the norm of all entries in each trial, in JAX; see :mod:`attsvm.optimizers.sizes`."""
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
    """The nearest non-negative array with a sum of at most 1: sizes less a threshold, or 0.

    ``sizes``: not negative.

    References: Duchi, Shalev-Shwartz, Singer and Chandra (2008), *Efficient projections onto the l1-ball for learning
    in high dimensions*.
    """
    xp = sizes.__array_namespace__()
    descending = -xp.sort(-xp.reshape(sizes, (-1,)))
    excess = (xp.cumsum(descending) - 1.0) / xp.arange(1, sizes.size + 1)
    threshold = excess[xp.sum(descending > excess) - 1]
    return xp.maximum(sizes - xp.maximum(threshold, 0.0), 0.0)


NORMS.register("lp", Lp)
