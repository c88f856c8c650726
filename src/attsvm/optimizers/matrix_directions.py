"""Directions of matrices: steps of length one in a norm, each a function of one matrix at a time.

Polar factors, the exact one and the polynomials that Muon uses in its place, and rows or columns of length one.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.checks import check_choice, check_integer, check_number
from attsvm._utils.contractions import lengths, over_entries
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, OnColumns, OnRows, Spectral
from attsvm.optimizers.singular import divided, exact_polar_factor, largest_singular_values, map_tall, odd_polynomial
from attsvm.optimizers.steps import ARGUMENTS

Array = jax.Array
MatrixScope = Literal["heads", "fused", "kq"]


def read_matrix_scope(scope: str) -> MatrixScope:
    """Read a scope of matrices; raise ProblemError if it is none."""
    return check_choice("scope", scope, "heads", "fused", "kq")


class MatrixDirection(ABC):
    """A map from matrices to steps of length one in a norm N. Define it as a frozen dataclass.

    Attributes
    ----------
    separate_columns : bool
        Whether the step of each column depends on this column alone, so that matrices side by side step as each does.
    """

    separate_columns: ClassVar[bool] = False

    @property
    @abstractmethod
    def norm(self) -> Norm:
        """The norm N in which steps have length one."""

    @property
    def exact(self) -> bool:
        """Whether steps are steepest in N, as they are not of an iteration that stops early; False by default."""
        return False

    @property
    def never_longer(self) -> bool:
        """Whether no step is longer than one, as it may be of an iteration; False by default."""
        return False

    @abstractmethod
    def of(self, matrices: Array) -> Array:
        """The steps along matrices (r, c, B), whose largest entries are 1 or 0."""

    @abstractmethod
    def size(self, matrices: Array) -> Array:
        """N of matrices (r, c, B), whose largest entries are 1 or 0."""

    def reach(self, matrices: Array) -> Array:
        """Compute what N(Q) is in the change of a logit by a unit step of K; N itself by default."""
        return self.size(matrices)


class PolarFactor(ABC):
    """How a spectral step computes U V'. Equal ones share their compiled training: define a frozen dataclass."""

    @property
    def converges(self) -> bool:
        """Whether the singular values of the result are 1, of a matrix that is not too badly conditioned."""
        return False

    @property
    def never_longer(self) -> bool:
        """Whether no singular value of the result is larger than 1."""
        return False

    @abstractmethod
    def of(self, matrices: Array) -> Array:
        """The factors of matrices (r, c, B), whose largest entries are 1 or 0."""


@dataclass(frozen=True)
class ExactPolarFactor(PolarFactor):
    """U V' of the singular values that are larger than rounding errors, max(r, c)·eps of the largest one."""

    converges = True
    never_longer = True

    def of(self, matrices: Array) -> Array:
        return exact_polar_factor(matrices)


@dataclass(frozen=True)
class NewtonSchulz(PolarFactor):
    """X ← aX + bXX'X + cXX'XX'X, a number of times from X = G/‖G‖_F.

    Parameters
    ----------
    coefficients : tuple of float
        a, b, c. With the default the iteration converges to the polar factor. Those that optax and PyTorch ship leave
        singular values between about 0.7 and 1.2 after five iterations.
    iterations : int
    dtype : {"float64", "float32", "bfloat16"}, optional
        The precision of the iteration; that of the gradient by default.

    Raises
    ------
    ProblemError
        If there are not three coefficients, or no iteration, or the dtype is unknown.

    See Also
    --------
    attsvm.optimizers.spectral_descent

    References
    ----------
    Jordan et al. (2024), *Muon: An optimizer for hidden layers in neural networks*.

    Examples
    --------
    >>> from attsvm.optimizers import NewtonSchulz, spectral_descent
    >>> spectral_descent(polar=NewtonSchulz((2.0, -1.5, 0.5), 20), momentum=0.95).name
    'spectral_descent'
    """

    coefficients: tuple[float, float, float] = (2.0, -1.5, 0.5)
    iterations: int = 20
    dtype: str | None = None

    def __post_init__(self) -> None:
        if len(self.coefficients) != 3:
            raise ProblemError(f"coefficients: expected three numbers, got {self.coefficients!r}")
        numbers = tuple(check_number("coefficients", x, "numbers", lambda x: abs(x) < 1e6) for x in self.coefficients)
        object.__setattr__(self, "coefficients", numbers)
        check_integer("iterations", self.iterations, 1)
        if self.dtype not in (None, "float64", "float32", "bfloat16"):
            raise ProblemError(f'dtype: expected "float64", "float32", "bfloat16" or None, got {self.dtype!r}')

    @property
    def converges(self) -> bool:
        """Whether 1 is an attracting fixed point of the polynomial, and there are at least 10 iterations."""
        a, b, c = self.coefficients
        # p(1) = a + b + c and p'(1) = a + 3b + 5c of p(σ) = aσ + bσ³ + cσ⁵
        return abs(a + b + c - 1) < 1e-6 and abs(a + 3 * b + 5 * c) < 1 and self.iterations >= 10

    def of(self, matrices: Array) -> Array:
        """Compute what the iterations leave of the singular values, with the singular vectors of the matrices."""
        return map_tall(self._of_tall, matrices)

    def _of_tall(self, matrices: Array) -> Array:
        # ‖G‖_F is at least the largest singular value, so that all of them begin in [0, 1]
        start = divided(matrices, jnp.sqrt(over_entries(jnp.add, matrices * matrices)))
        factors: Array = start if self.dtype is None else start.astype(self.dtype)
        # X ← aX + bXX'X + cXX'XX'X, which moves the singular values by p and keeps the vectors
        factors = jax.lax.fori_loop(
            0, self.iterations, lambda _, x: odd_polynomial(x, self.coefficients).astype(x.dtype), factors
        )
        return factors.astype(matrices.dtype)


# the large slope at 0 lifts small singular values quickly, and 1 is no fixed point
_SHIPPED = (3.4445, -4.7750, 2.0315)
ARGUMENTS["newton_schulz"] = NewtonSchulz
POLAR_FACTORS: dict[str, PolarFactor] = {
    "exact": ExactPolarFactor(),
    "newton_schulz": NewtonSchulz(),
    "optax": NewtonSchulz(_SHIPPED, 5),
    "torch": NewtonSchulz(_SHIPPED, 5, "bfloat16"),
}
"""The polar factors with a name: exact, converged, and those of ``optax.contrib.muon`` and ``torch.optim.Muon``."""


def parse_polar(polar: Any) -> PolarFactor:
    """Read a polar factor: an object, or a name of ``POLAR_FACTORS``.

    Raises
    ------
    ProblemError
        If it is neither.
    """
    if isinstance(polar, PolarFactor):
        return polar
    if isinstance(polar, str) and polar in POLAR_FACTORS:
        return POLAR_FACTORS[polar]
    names = ", ".join(f'"{name}"' for name in POLAR_FACTORS)
    raise ProblemError(f"polar: expected {names} or a PolarFactor, got {polar!r}")


@dataclass(frozen=True)
class PolarDirection(MatrixDirection):
    """U V' of matrices U Σ V', of length one in the spectral norm."""

    polar: PolarFactor = POLAR_FACTORS["exact"]

    @property
    def norm(self) -> Norm:
        return Spectral()

    @property
    def exact(self) -> bool:
        """Whether the polar factor converges."""
        return self.polar.converges

    @property
    def never_longer(self) -> bool:
        return self.polar.never_longer

    def of(self, matrices: Array) -> Array:
        return self.polar.of(matrices)

    def size(self, matrices: Array) -> Array:
        """The largest singular values, to about 1e-5 of themselves."""
        return largest_singular_values(matrices)


class _UnitLines(MatrixDirection):
    """Base class: each line of matrices along one axis over its length."""

    exact = True
    never_longer = True
    _axis: ClassVar[Literal[0, 1]]

    def of(self, matrices: Array) -> Array:
        """Lines of length 1 or 0."""
        return divided(matrices, lengths(matrices, self._axis))

    def size(self, matrices: Array) -> Array:
        # the largest length is the norm in which a step of unit lines has length one
        return over_entries(jnp.maximum, lengths(matrices, self._axis))


@dataclass(frozen=True)
class UnitRowDirection(_UnitLines):
    """Each row over its length."""

    _axis = 1

    @property
    def norm(self) -> Norm:
        """The length of the longest row."""
        return OnRows(Lp(np.inf))


@dataclass(frozen=True)
class UnitColumnDirection(_UnitLines):
    """Each column over its length."""

    _axis = 0

    @property
    def norm(self) -> Norm:
        """The length of the longest column."""
        return OnColumns(Lp(np.inf))

    separate_columns = True

    def reach(self, matrices: Array) -> Array:
        """The sum of the columns' lengths: all columns of the other factor move by one."""
        # |Σ_j (K_j'k)(Q_j'z)| ≤ Σ_j ‖Q_j‖ for unit columns K_j, keys and queries
        return over_entries(jnp.add, lengths(matrices, self._axis))
