"""The base class of norms: value, dual norm, and at least one of three maps."""

import math
from abc import ABCMeta, abstractmethod
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from attsvm.errors import ProblemError

USUAL_EXPONENT = 60
"""Numbers between 2^-60 and 2^60 are measured as they are."""


SAMPLE_SHAPE = 4, 3
"""The shape of the matrices on which a norm that measures any is tried."""


class MissingPiece(ProblemError):
    """A norm does not provide what is needed."""


class _Made(ABCMeta):
    """Refuses a norm of all attention heads as a part of another norm, which sees one matrix."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        norm = super().__call__(*args, **options)
        for part in norm.parts:
            if part.head_axes:
                raise ProblemError(
                    f"norm: expected a norm of one matrix as a part of {cls.__name__}, got {part.name}, which measures "
                    "the weights of all heads together"
                )
        return norm


class Norm(metaclass=_Made):
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

    spelling: ClassVar[str] = ""
    """How a user names the norms of this class, for error messages; by default their name."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name; a class attribute ``name = "..."`` will do."""

    @property
    def left_invariant(self) -> bool:
        """Whether N(UW) = N(W) for orthogonal U."""
        return False

    @property
    def right_invariant(self) -> bool:
        """Whether N(WV) = N(W) for orthogonal V."""
        return False

    @abstractmethod
    def value(self, x: Any, axes: int = 2) -> Any:
        """The norm of one matrix (d_k, d_q) or one vector (d,).

        ``axes`` is the number of axes of ``x``. A subclass that handles leading batch axes overrides :meth:`values`.
        """

    @property
    def dual(self) -> "Norm":
        """The dual norm, N*(A) = max ⟨A, B⟩ over N(B) ≤ 1. Certificates need it."""
        raise self._missing("dual", "no solution can be certified")

    def prox(self, x: Float[np.ndarray, "d_k d_q"], step: float) -> Float[np.ndarray, "d_k d_q"]:
        """The minimiser of N(w) + ‖w − x‖²/(2 step) over w, for one matrix or vector and step > 0.

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

    def proxes(self, x: Float[np.ndarray, "*batch d_k d_q"], step: float, axes: int = 2) -> np.ndarray:
        """:meth:`prox` over the last ``axes`` axes (2 for matrices, 1 for vectors), for each entry of the leading axes.

        A subclass that can do several at once overrides it.
        """
        lead = x.shape[: x.ndim - axes]
        if not lead:
            return self.prox(x, step)
        result = np.empty(x.shape)
        for index in np.ndindex(lead):
            result[index] = self.prox(x[index], step)
        return result

    def project_dual_ball(self, x: Float[np.ndarray, "d_k d_q"]) -> Float[np.ndarray, "d_k d_q"]:
        """The point with N*(w) ≤ 1 that is nearest to x, for one matrix or vector.

        By default x − prox(x, 1) (Moreau).

        Raises
        ------
        ProblemError
            If the norm provides neither this nor :meth:`prox`.
        """
        if type(self).prox is Norm.prox:
            raise self._missing("project_dual_ball", "proximal methods cannot use it")
        result: Float[np.ndarray, "d_k d_q"] = x - self.prox(x, 1.0)
        return result

    def steepest(self, g: Any) -> Any:
        """The D with N(D) ≤ 1 that maximises ⟨g, D⟩; zero for a zero gradient."""
        raise self._missing("steepest", "steepest descent cannot use it")

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """A number c with N(X) ≤ c ‖X‖_F for all matrices of a shape. Certificates bound rounding errors by it.

        By default it follows from the norms of the matrices with a single entry of 1. A norm that is invariant on one
        side needs those of one row or column, and a norm that is invariant on both sides only one of them. A subclass
        may know a simpler or a smaller number.
        """
        unit = np.zeros(shape)
        unit[0, 0] = 1.0
        if self.left_invariant and self.right_invariant:  # N(X) ≤ Σ σ_i N(e₁e₁')
            return math.sqrt(min(shape)) * float(self.values(unit))
        if self.left_invariant or self.right_invariant:  # N(X) ≤ Σ ‖row i‖ N(e_ie₁'), or the same of the columns
            axis = 0 if self.right_invariant else 1
            units = (np.roll(unit, k, axis) for k in range(shape[axis]))
        else:
            units = (np.roll(unit, k) for k in range(unit.size))
        return math.sqrt(math.fsum(float(self.values(each)) ** 2 for each in units))

    @property
    def parts(self) -> "tuple[Norm, ...]":
        """The norms that this one is made of."""
        return ()

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The only shape of the arrays that this norm can measure; None if it can measure any."""
        return None

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of an array on which the pieces of the norm can be tried."""
        return self.shape or SAMPLE_SHAPE

    @property
    def head_axes(self) -> int:
        """1 for a norm of the weights of all attention heads together, :class:`attsvm.norms.JointNorm`; otherwise 0."""
        return 0

    def for_heads(self, num_heads: int | None) -> "Norm":
        """The norm for the weights of H attention heads below each other, if it measures them together; or itself."""
        return self

    @property
    def of_vectors(self) -> "Norm":
        """The norm that this one is on matrices with a single column; itself, unless a subclass knows a simpler one."""
        return self

    @classmethod
    def parse(cls, text: str) -> "Norm | None":
        """The norm of this class that a text names, or None. By default the text must equal a constant ``name``."""
        return cls() if isinstance(cls.__dict__.get("name"), str) and text == cls.__dict__["name"] else None

    def values(self, x: Any, axes: int = 2) -> Float[np.ndarray, "*batch"]:
        """The norm over the last ``axes`` axes (2 for matrices, 1 for vectors), for each entry of the leading axes.

        Raises
        ------
        ProblemError
            If :meth:`value` returns something else than one number.
        """
        array = np.asarray(x, dtype=np.float64)
        lead = array.shape[: array.ndim - axes]
        try:
            numbers = [self._value_at_usual_scale(array[index]) for index in np.ndindex(lead)]
        except ProblemError:
            raise
        except (TypeError, ValueError) as error:
            raise ProblemError(f"norm: {self.name}.value: expected one number per matrix ({error})") from error
        return np.array(numbers).reshape(lead)

    def _value_at_usual_scale(self, x: np.ndarray) -> float:
        """The norm of one matrix or vector whose powers may overflow or underflow; powers of two change no digit."""
        exponent = int(np.frexp(np.abs(x).max(initial=0.0))[1])
        if abs(exponent) <= USUAL_EXPONENT:
            return float(self.value(x))
        return float(np.ldexp(float(self.value(np.ldexp(x, -exponent))), exponent))

    def _missing(self, piece: str, consequence: str) -> MissingPiece:
        return MissingPiece(f"norm: {self.name} does not provide `{piece}`, so {consequence}")

    def __str__(self) -> str:
        return self.name
