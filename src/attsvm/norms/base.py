"""The base class of norms: value, dual norm, and at least one of three maps."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
import scipy

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError

USUAL_EXPONENT = 60
"""Numbers between 2^-60 and 2^60 are measured as they are."""


class MissingPiece(ProblemError):
    """A norm does not provide what is needed."""


class Norm(ABC):
    """A norm on matrices, and on vectors for prompts.

    A subclass provides ``name``, :meth:`value`, :attr:`dual`, and at least one of :meth:`prox`,
    :meth:`project_dual_ball` and :meth:`steepest`. These methods take one matrix or one vector; the library maps them
    over batches. NumPy is enough to solve and to certify. Steepest descent also needs :meth:`steepest` to accept JAX
    arrays: write it with ``xp = g.__array_namespace__()``, which returns NumPy or ``jax.numpy``.

    Norms are values: give a norm with parameters equality and a hash, for instance as a frozen dataclass.

    See Also
    --------
    attsvm.norms.check : Tests a norm of your own.
    attsvm.norms.parse_norm

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from attsvm.norms import Norm
    >>> @dataclass(frozen=True)
    ... class Weighted(Norm):
    ...     scale: float
    ...     name = "weighted"
    ...
    ...     def value(self, x, axes=2):
    ...         return self.scale * float(np.linalg.norm(x))
    ...
    ...     @property
    ...     def dual(self):
    ...         return Weighted(1 / self.scale)
    >>> Weighted(2.0).value(np.eye(4))
    4.0
    """

    # ---- required of every norm, and how a text names it

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the short name; a class attribute ``name = "..."`` will do."""

    @abstractmethod
    def value(self, x: Any, axes: int = 2) -> Any:
        """Compute the norm of one matrix (d_k, d_q) or one vector (d,).

        ``axes`` is the number of axes of ``x``. A subclass that handles leading batch axes overrides :meth:`values`.
        """

    @property
    def dual(self) -> "Norm":
        """Return the dual norm, N*(A) = max ⟨A, B⟩ over N(B) ≤ 1. Certificates need it."""
        raise self._missing("dual", "no solution can be certified")

    spelling: ClassVar[str] = ""
    """How texts name norms of this class, for help and error messages; by default the name that is registered."""

    @classmethod
    def parse(cls, text: str) -> "Norm | None":
        """Read the norm of this class that a text names, or None. By default a text must equal a constant ``name``."""
        return cls() if isinstance(cls.__dict__.get("name"), str) and text == cls.__dict__["name"] else None

    # ---- for solving: one of prox, project_dual_ball and steepest; what follows from them may be overridden

    def prox(self, x: Float[np.ndarray, "d_k d_q"], step: float) -> Float[np.ndarray, "d_k d_q"]:
        """Return the minimiser of N(w) + ‖w − x‖²/(2 step) over w, for one matrix or vector and step > 0.

        By default x − step·P(x/step), where P is :meth:`project_dual_ball` (Moreau).

        Raises
        ------
        ProblemError
            If the norm provides neither of the two.
        """
        if type(self).project_dual_ball is Norm.project_dual_ball:
            raise self._missing("prox", "proximal methods cannot use it")
        result: Float[np.ndarray, "d_k d_q"] = x - step * self.project_dual_ball(x / step)
        return result

    def project_dual_ball(self, x: Float[np.ndarray, "d_k d_q"]) -> Float[np.ndarray, "d_k d_q"]:
        """Return the point with N*(w) ≤ 1 that is nearest to x, for one matrix or vector.

        By default x − prox(x, 1) (Moreau); the errors are those of :meth:`prox`.
        """
        if type(self).prox is Norm.prox:
            raise self._missing("project_dual_ball", "proximal methods cannot use it")
        result: Float[np.ndarray, "d_k d_q"] = x - self.prox(x, 1.0)
        return result

    def proxes(self, x: Float[np.ndarray, "*batch d_k d_q"], step: float, axes: int = 2) -> np.ndarray:
        """Compute :meth:`prox` over the last ``axes`` axes (2 for matrices, 1 for vectors), for each leading index."""
        if x.ndim == axes:
            return self.prox(x, step)
        return np.array([self.prox(one, step) for one in _each(x, axes)], dtype=np.float64).reshape(x.shape)

    def values(self, x: Any, axes: int = 2) -> Float[np.ndarray, "*batch"]:
        """Compute the norm over the last ``axes`` axes (2 for matrices, 1 for vectors), for each leading index.

        Raises
        ------
        ProblemError
            If :meth:`value` returns something else than one number.
        """
        return _values_of_each(self, np.asarray(x, dtype=np.float64), axes)

    @property
    def left_invariant(self) -> bool:
        """Return whether N(UW) = N(W) for orthogonal U."""
        return False

    @property
    def right_invariant(self) -> bool:
        """Return whether N(WV) = N(W) for orthogonal V."""
        return False

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return a c with N(X) ≤ c ‖X‖_F for all matrices of a shape, by which certificates bound rounding errors."""
        return _factor_of_units(self, shape)

    @property
    def of_vectors(self) -> "Norm":
        """Return the norm that is equal to this one on matrices with one column; by default itself."""
        return self

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Return the shape of an array on which the library may try the norm."""
        return (4, 3)

    takes_biases: ClassVar[bool] = True
    """Whether it measures weights with a block of position biases, unlike those of rotations."""

    @property
    def head_axes(self) -> int:
        """Return 1 for a norm of the weights of all attention heads, a ``JointNorm``, and otherwise 0."""
        return 0

    # ---- for training: steepest descent, for one array and over all trials at once

    def steepest(self, g: Any) -> Any:
        """Return the D with N(D) ≤ 1 that maximises ⟨g, D⟩; zero for a zero gradient."""
        raise self._missing("steepest", "steepest descent cannot use it")

    def steepest_in_trials(self, gradient: Any, trials: Any) -> Any:
        """Compute the steepest direction of each trial (last axis), in JAX. By default :meth:`steepest` is mapped."""
        return trials.mapped_steepest(self, gradient)

    def size_in_trials(self, tree: Any, trials: Any) -> Any:
        """Compute the norm of all parameters of a dict in each trial, in JAX. By default :meth:`value` is mapped."""
        return trials.mapped_size(self, tree)

    def _missing(self, piece: str, consequence: str) -> MissingPiece:
        return MissingPiece(f"norm: {self.name} does not provide `{piece}`, so {consequence}")

    def __str__(self) -> str:
        return self.name


def _each(x: np.ndarray, axes: int) -> Iterator[np.ndarray]:
    """Yield the arrays of the last axes, for each leading index."""
    return (x[index] for index in np.ndindex(x.shape[: x.ndim - axes]))


def _values_of_each(norm: Norm, x: np.ndarray, axes: int) -> np.ndarray:
    try:
        numbers = [_value_at_usual_scale(norm, one, axes) for one in _each(x, axes)]
    except ProblemError:
        raise
    except (TypeError, ValueError) as error:
        raise ProblemError(f"norm: {norm.name}.value: expected one number per matrix ({error})") from error
    return np.array(numbers).reshape(x.shape[: x.ndim - axes])


def _value_at_usual_scale(norm: Norm, x: np.ndarray, axes: int) -> float:
    """Compute the norm where its powers may overflow or underflow; powers of two change no digit."""
    exponent = int(np.frexp(np.abs(x).max(initial=0.0))[1])
    if abs(exponent) <= USUAL_EXPONENT:
        return float(norm.value(x, axes))
    return float(np.ldexp(float(norm.value(np.ldexp(x, -exponent), axes)), exponent))


def _factor_of_units(norm: Norm, shape: tuple[int, int]) -> float:
    """Return a Frobenius factor that follows from the norms of the matrices with a single entry of 1.

    A norm that is invariant on one side needs those of one row or column, on both sides only one of them.
    """
    unit = np.zeros(shape)
    unit[0, 0] = 1.0
    if norm.left_invariant and norm.right_invariant:  # N(X) ≤ Σ σ_i N(e₁e₁')
        return math.sqrt(min(shape)) * float(norm.values(unit))
    if norm.left_invariant or norm.right_invariant:  # N(X) ≤ Σ ‖row i‖ N(e_ie₁'), or the same of the columns
        axis = 0 if norm.right_invariant else 1
        units = (np.roll(unit, k, axis) for k in range(shape[axis]))
    else:
        units = (np.roll(unit, k) for k in range(unit.size))
    return math.sqrt(math.fsum(float(norm.values(each)) ** 2 for each in units))


class SeveralAtOnce(Norm):
    """A norm whose :meth:`values` computes the norms of several arrays in one call."""

    @abstractmethod
    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        """Compute the norm over the last ``axes`` axes, for each entry of the leading axes."""

    def value(self, x: Any, axes: int = 2) -> Any:
        """Compute the norm of one matrix or vector, or of several."""
        values = self.values(x, min(axes, np.ndim(x)))
        return values if values.ndim else float(values)


def project_on_ball(norm: Norm, x: np.ndarray, radius: float = 1.0) -> np.ndarray:
    """Return the nearest point with N(w) ≤ r: the proximal point of the step at which its norm is r.

    ``norm``: with ``prox`` and ``dual``. ``x``: one matrix or one vector. ``radius``: r > 0.
    """

    def size(w: np.ndarray) -> float:
        return float(norm.values(w, x.ndim)) / radius

    if size(x) <= 1:
        return x
    # N(prox(x, τ)) falls from N(x) at 0 to 0 at N*(x)
    longest = float(norm.dual.values(x, x.ndim))

    def excess(step: float) -> float:
        return size(norm.prox(x, step) if step > 0 else x) - 1

    step = scipy.optimize.brentq(excess, 0.0, longest, xtol=1e-300, maxiter=1000)
    nearest = norm.prox(x, step)
    return np.asarray(nearest / max(size(nearest), 1.0))


def parts_of(norm: Norm) -> Sequence[Norm]:
    """Return the norms that are fields of a norm."""
    values: list[Any] = [getattr(norm, field.name) for field in fields(norm)] if is_dataclass(norm) else []
    return [value for value in values if isinstance(value, Norm)]


def refuse_joint_parts(norm: Norm) -> None:
    """Refuse a norm of all attention heads as a part of a norm, which sees one matrix."""
    for part in parts_of(norm):
        if part.head_axes:
            raise ProblemError(
                f"norm: expected a norm of one matrix as a part of {type(norm).__name__}, got {part.name}, which "
                "measures the weights of all heads together"
            )
