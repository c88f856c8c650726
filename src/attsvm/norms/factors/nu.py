"""ν, the norm whose unit ball is spanned by the sign matrices s t', and its dual, the norm from ℓ∞ to ℓ1."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm.norms.base import Norm
from attsvm.norms.factors.elliptope import EPS, at_unit_scale, nearest_multiple
from attsvm.norms.factors.gamma2 import Gamma2, occupied
from attsvm.norms.factors.sign_cuts import Atoms, largest_in_dual_ball, most_over_signs
from attsvm.norms.lp import Lp

GROTHENDIECK = math.pi / (2 * math.log(1 + math.sqrt(2))) * (1 + 4 * EPS)
"""ν is at most this times γ2."""

MOST_SIGNS = 16
"""Both norms are exact for matrices with at most this many rows or columns: the signs on that side are enumerated."""

MOST_ENTRIES = 400
"""The linear programs of ν have as many unknowns as the matrix has entries. Larger ones take minutes."""

PATIENCE = 3
"""Rounds of cuts that may leave the value as it is, before it counts as found. Of matrices that are sums of few sign
matrices, the proof that it is the least one takes many more."""


@dataclass(frozen=True)
class Nu(Norm):
    """ν(W), the least Σ |c_j| over W = Σ c_j s_j t_j' with vectors of signs s_j and t_j.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    γ2 ≤ ν ≤ K γ2 with Grothendieck's constant K < 1.783. The value is that of an explicit sum, found by cutting planes
    over vectors of signs, so it is a bound from above. Its relative error is about 1e-10. For matrices with more than
    16 rows and columns, or more than 400 entries, the value is the bound 1.783 γ2.

    See Also
    --------
    attsvm.norms.factors.Gamma2

    References
    ----------
    Linial and Shraibman (2009), *Lower bounds in communication complexity based on factorization norms*.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms.factors import Nu
    >>> round(Nu().value(np.array([[1.0, 1.0], [1.0, -1.0]])), 6)
    2.0
    """

    name = "nu"

    @property
    def dual(self) -> Norm:
        """Return the largest s'Gt over vectors of signs s and t."""
        return DualNu()

    @property
    def of_vectors(self) -> Norm:
        return Lp(np.inf)

    def value(self, x: Any, axes: int = 2) -> float:
        """Return a bound from above: the size of the coefficients of an explicit sum."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 1:
            return float(self.of_vectors.value(x, 1))
        return at_unit_scale(x, _least_sum if self.is_exact(x.shape) else lambda x: GROTHENDIECK * Gamma2().value(x))

    @staticmethod
    def is_exact(shape: tuple[int, ...]) -> bool:
        """Return whether matrices of a shape are small enough for the linear programs."""
        return min(shape) <= MOST_SIGNS and shape[0] * shape[1] <= MOST_ENTRIES

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return 1.783: γ2 is at most the spectral norm."""
        return GROTHENDIECK


@dataclass(frozen=True)
class DualNu(Norm):
    """The norm from ℓ∞ to ℓ1: the largest s'Gt over vectors of signs s and t.

    It is exact for matrices with at most 16 rows or columns. For larger ones the value is the dual norm of γ2, which is
    a bound from above and at most 1.783 times as large.

    See Also
    --------
    attsvm.norms.factors.Nu

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms.factors import Nu
    >>> round(Nu().dual.value(np.array([[1.0, 1.0], [1.0, -1.0]])), 6)
    2.0
    """

    name = "dual of nu"

    @property
    def dual(self) -> Nu:
        return Nu()

    @property
    def of_vectors(self) -> Norm:
        return Lp(1.0)

    def value(self, x: Any, axes: int = 2) -> float:
        """Enumerate the vectors of signs on the shorter side."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 1:
            return float(self.of_vectors.value(x, 1))
        if not np.isfinite(x).all():
            return float(np.max(np.abs(x)))
        if min(x.shape) > MOST_SIGNS:
            return float(Gamma2().dual.value(x))
        return float(most_over_signs(x) * (1 + EPS * sum(x.shape)))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return float(np.sqrt(shape[0] * shape[1]))


def _least_sum(x: np.ndarray) -> float:
    """Return the size of the coefficients of an explicit sum."""
    x = occupied(x)  # rows of zeros may have any signs
    units = np.eye(x.size).reshape(x.size, *x.shape)
    atoms = largest_in_dual_ball(x.ravel(), units, np.ones(x.size, bool), x.ravel(), PATIENCE).atoms
    rows = (atoms.left[:, :, None] * atoms.right[:, None, :]).reshape(-1, x.size)
    # the linear program solves these equations up to its tolerance
    lacking = np.linalg.lstsq(rows.T, (x - atoms.sum).ravel(), rcond=None)[0]
    bound = bound_by_atoms(atoms._replace(coefficients=atoms.coefficients + lacking), x)
    return float(np.abs(x).sum()) if bound is None else bound


def bound_by_atoms(atoms: Atoms, x: np.ndarray) -> float | None:
    """Bound ν(x) by the size of the multiple of the atoms nearest to x plus a bound on ν of the rest."""
    nearest = nearest_multiple(atoms.sum, x)
    if nearest is None:
        return None
    factor, rest = nearest
    lacking = min(float(np.abs(rest).sum()), GROTHENDIECK * float(np.linalg.norm(rest)))
    return float(abs(factor) * atoms.size * (1 + EPS * (4 + len(atoms.coefficients))) + lacking)
