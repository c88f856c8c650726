"""The potentials of mirror descent."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.extensions import import_object
from attsvm._utils.files import reason
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, checked
from attsvm.optimizers.hyperparameters import check_number, is_traced
from attsvm.optimizers.sizes import signed_power

INVERSE_ERROR = 1e-6
"""Largest relative difference of (∇ψ)⁻¹(∇ψ(x)) from x."""


class Potential(ABC):
    """A strictly convex function ψ, given by its gradient and the inverse of its gradient.

    Both take one parameter, a matrix or a vector, in JAX. Equal potentials share their compiled training: define a
    potential as a frozen dataclass.

    See Also
    --------
    attsvm.optimizers.mirror_descent, attsvm.optimizers.SquaredNorm

    Examples
    --------
    The hypentropy potential, between ℓ2 for large β and ℓ1 for small β:

    >>> from dataclasses import dataclass
    >>> import jax.numpy as jnp
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> from attsvm.optimizers import Potential, mirror_descent
    >>> @dataclass(frozen=True)
    ... class Hypentropy(Potential):
    ...     beta: float
    ...
    ...     def gradient(self, x):
    ...         return jnp.arcsinh(x / self.beta)
    ...
    ...     def inverse(self, z):
    ...         return self.beta * jnp.sinh(z)
    >>> optimizer = mirror_descent(potential=Hypentropy(0.1), learning_rate=0.01)
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=optimizer, steps=100).status.value
    'finished'
    """

    entrywise: ClassVar[bool] = False
    """Whether both map each entry by itself. Then they get all trials and attention heads as one array."""

    @abstractmethod
    def gradient(self, x: Any) -> Any:
        """Compute ∇ψ(x)."""

    @abstractmethod
    def inverse(self, z: Any) -> Any:
        """The x with ∇ψ(x) = z."""

    @property
    def norm(self) -> Norm | None:
        """The norm of which ψ is a power; the weights are compared with its Att-SVM. None if there is no such norm."""
        return None


@dataclass(frozen=True)
class SquaredNorm(Potential):
    """½ N(x)², for a norm N that is smooth and strictly convex, such as a Schatten-p norm with 1 < p < ∞.

    Parameters
    ----------
    of : Norm
        N. It and its dual provide ``steepest``, which JAX can trace.

    See Also
    --------
    attsvm.optimizers.Potential, attsvm.optimizers.mirror_descent

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> from attsvm.norms import schatten
    >>> from attsvm.optimizers import SquaredNorm, mirror_descent
    >>> optimizer = mirror_descent(potential=SquaredNorm(schatten(1.5)), learning_rate=0.1)
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=optimizer, steps=20).norm.name
    'schatten1.5'
    """

    of: Norm

    def __post_init__(self) -> None:
        checked(self.of, jax=True)

    @property
    def norm(self) -> Norm:
        return self.of

    def gradient(self, x: Any) -> Any:
        """N(x) times the point of the dual ball at which ⟨·, x⟩ = N(x)."""
        return _dual_point(self.of.dual, x)

    def inverse(self, z: Any) -> Any:
        """N*(z) times the steepest direction."""
        return _dual_point(self.of, z)


def _dual_point(norm: Norm, x: Any) -> Any:
    own = norm if x.ndim > 1 else norm.of_vectors
    # N*(x) = ⟨x, D⟩ at the steepest D, so that N*(x) D is the gradient of ½ N*(x)²
    direction = own.steepest(x)
    return jnp.sum(x * direction) * direction


@dataclass(frozen=True)
class Power(Potential):
    """(1/p)‖x‖_p^p.

    Parameters
    ----------
    p : float
        1 < p < ∞, and p − 1 at least √ε of the floats of the training: 1.5e-8 in float64, 3.5e-4 in float32. For
        smaller ones x, the (p − 1)-th root, would keep less than half of the digits of the mirror variable.

    Raises
    ------
    ProblemError
        If p is out of range.
    """

    p: float

    entrywise = True

    def __post_init__(self) -> None:
        if is_traced(self.p):
            raise ProblemError(
                "p: expected a constant, got a traced number; list p in the static_args of inject_hyperparams"
            )
        object.__setattr__(self, "p", check_number("p", self.p, "1 < p < inf", lambda x: x > 1))
        self._check_digits(np.dtype(np.float64))

    @property
    def norm(self) -> Lp:
        return Lp(self.p)

    def gradient(self, x: Any) -> Any:
        """Compute sign(x)|x|^(p−1)."""
        self._check_digits(x.dtype)
        # the derivative of |x|^p / p
        return signed_power(x, self.p - 1.0)

    def inverse(self, z: Any) -> Any:
        """sign(z)|z|^(q−1) with 1/p + 1/q = 1."""
        # (p − 1)(q − 1) = 1
        return signed_power(z, self.norm.dual.p - 1.0)

    def _check_digits(self, dtype: Any) -> None:
        # a relative error ε of |x|^(p−1) is one of ε/(p − 1) in x
        least = 1.0 + float(jnp.finfo(dtype).eps) ** 0.5
        if self.p < least:
            raise ProblemError(f"p: expected at least {least:.12g} in {dtype}, got {self.p!r}")


def read_potential(potential: Any) -> Potential:
    """Read a potential, or the one at an import path ``package.module:name``.

    Raises ProblemError for anything else, or if the inverse does not undo the gradient, or the gradient does not grow.
    """
    found = potential
    if isinstance(potential, str):
        try:
            found = import_object(potential)
        except (ImportError, AttributeError, ValueError) as error:
            raise ProblemError(f"potential: {potential!r} cannot be imported ({error})") from None
    if not isinstance(found, Potential):
        raise ProblemError(
            f"potential: expected a Potential, or its import path package.module:name, got {potential!r}"
        )
    _check(found)
    return found


def _check(potential: Potential) -> None:
    """Test a potential on a random matrix and a random vector."""
    name = type(potential).__name__
    generator = np.random.default_rng(0)
    with jax.enable_x64(), jax.ensure_compile_time_eval():
        for shape in ((4, 3), (4,)):
            x, y = (jnp.asarray(generator.standard_normal(shape)) for _ in range(2))
            try:
                of_x, of_y = potential.gradient(x), potential.gradient(y)
                error = float(jnp.max(jnp.abs(potential.inverse(of_x) - x)))
            except (jax.errors.JAXTypeError, TypeError, AttributeError) as failure:
                raise ProblemError(f"potential: {name}: JAX cannot trace it: {reason(failure)}") from failure
            if not error <= INVERSE_ERROR:
                raise ProblemError(f"potential: {name}: expected inverse(gradient(x)) = x, got an error of {error:.1e}")
            # ⟨∇ψ(x) − ∇ψ(y), x − y⟩ > 0 wherever ψ is strictly convex
            if not float(jnp.sum((of_x - of_y) * (x - y))) > 0:
                raise ProblemError(f"potential: {name}: expected the gradient of a strictly convex function")
