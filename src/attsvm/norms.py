"""The norms of the Att-SVM family, and their duals."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from attsvm.errors import ProblemError


@dataclass(frozen=True)
class Norm:
    """A norm on matrices: entrywise ℓp, nuclear or spectral.

    Parameters
    ----------
    kind : {"lp", "nuclear", "spectral"}
    p : float
        The exponent of an entrywise norm, 1 ≤ p ≤ ∞; 2 for the Frobenius norm. Meaningless (2) for the others.
    """

    kind: Literal["lp", "nuclear", "spectral"]
    p: float = 2.0

    @property
    def name(self) -> str:
        """Canonical name: frobenius, l1.75, linf, nuclear, spectral."""
        if self.kind != "lp":
            return self.kind
        return {2.0: "frobenius", np.inf: "linf"}.get(self.p, f"l{self.p:g}")

    @property
    def dual(self) -> "Norm":
        """The norm N* with ⟨A, B⟩ ≤ N(A) N*(B), tight."""
        if self.kind == "nuclear":
            return Norm("spectral")
        if self.kind == "spectral":
            return Norm("nuclear")
        if self.p == 1:
            return Norm("lp", np.inf)
        return Norm("lp", 1.0 if np.isinf(self.p) else self.p / (self.p - 1))

    def value(self, weights: np.ndarray, axes: int = 2) -> np.ndarray:
        """Norm over the last ``axes`` axes (2 for W, 1 for a prompt), safe from overflow and underflow.

        For a prompt, nuclear and spectral are both the ℓ2 norm of the vector.
        """
        weights = np.asarray(weights, dtype=np.float64)
        over = tuple(range(-axes, 0))
        largest = np.max(np.abs(weights), axis=over, keepdims=True, initial=0.0)
        if self.kind == "lp" and np.isinf(self.p):
            return largest.reshape(weights.shape[: weights.ndim - axes])
        # powers of the entries relative to the largest one neither overflow nor all vanish
        scale = np.where(largest > 0, largest, 1.0)
        scaled = weights / scale
        if self.kind == "lp" or axes == 1:
            p = self.p if self.kind == "lp" else 2.0
            powers = np.abs(scaled) ** p if p != 2 else scaled * scaled
            result = np.sum(powers, axis=over) ** (1 / p)
        else:
            singular = np.linalg.svd(scaled, compute_uv=False)
            result = singular.sum(axis=-1) if self.kind == "nuclear" else singular.max(axis=-1, initial=0.0)
        return result * scale.reshape(result.shape)


def parse_norm(norm: "str | float | Norm") -> Norm:
    """Read a norm: "frobenius", "nuclear", "spectral", "l1.75", "linf", or the p of an entrywise ℓp norm.

    Raises
    ------
    ProblemError
        If it names no norm, or p < 1.
    """
    if isinstance(norm, Norm):
        return norm
    wanted = 'wanted "frobenius", "nuclear", "spectral", "l<p>" or p with 1 <= p <= inf'
    if isinstance(norm, str):
        name = norm.strip().lower()
        if name in ("nuclear", "spectral"):
            return Norm(name)  # type: ignore[arg-type]
        if name in ("frobenius", "fro"):
            return Norm("lp", 2.0)
        try:
            p = float(name.removeprefix("l"))
        except ValueError:
            raise ProblemError(f"norm: {norm!r} names no norm; {wanted}") from None
    else:
        try:
            p = float(norm)
        except (TypeError, ValueError):
            raise ProblemError(f"norm: {norm!r} names no norm; {wanted}") from None
    if not p >= 1:
        raise ProblemError(f"norm: p = {p:g} is not a norm; {wanted}")
    return Norm("lp", p)
