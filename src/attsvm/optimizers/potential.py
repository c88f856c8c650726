"""Mirror descent with any potential: what a potential provides, and the rule."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import settle
from attsvm._utils.extensions import import_object
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm
from attsvm.norms.check import checked
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scaled, Tree, subtree
from attsvm.optimizers.sizes import dual_in_jax, over_trials

Array = jax.Array

INVERSE_ERROR = 1e-6
"""Largest relative difference of (∇ψ)⁻¹(∇ψ(x)) from x."""


class Potential(ABC):
    """A strictly convex function ψ, given by its gradient and the inverse of that.

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

    @abstractmethod
    def gradient(self, x: Any) -> Any:
        """Compute ∇ψ(x)."""

    @abstractmethod
    def inverse(self, z: Any) -> Any:
        """The x with ∇ψ(x) = z."""

    @property
    def norm(self) -> Norm | None:
        """The norm of which ψ is a power, whose Att-SVM the weights are compared with; None if it is of no norm."""
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
    direction = own.steepest(x)
    return jnp.sum(x * direction) * direction


@dataclass(frozen=True)
class MirrorOf(Rule):
    """Subtract the gradient from the mirror variable: ∇ψ(θ⁺) = ∇ψ(θ) − g.

    Parameters
    ----------
    potential : Potential

    Raises
    ------
    ProblemError
        If ``inverse`` does not undo ``gradient``, or the gradient does not grow.
    """

    potential: Potential

    def __post_init__(self) -> None:
        _check(self.potential)

    @property
    def norm(self) -> Norm | None:
        """That of the potential."""
        return self.potential.norm

    @property
    def gradient_norm(self) -> Norm:
        """Its dual norm; ℓ2 where the potential has no norm."""
        return Lp(2.0) if self.norm is None else dual_in_jax(self.norm)

    def init(self, params: Tree) -> Tree:
        """Compute the mirror variable ∇ψ(θ)."""
        return {name: over_trials(self.potential.gradient)(x) for name, x in params.items()}

    def update(
        self, updates: Scaled, state: Tree, params: Tree, *, numbers: Mapping[str, Any], value: Array
    ) -> tuple[Tree, Tree]:
        """θ⁺ − θ, and the next mirror variable."""
        mirror: Tree = {}
        for group in updates.scales.groups:
            own = subtree(updates.gradient, group.names)
            factor = group.factor(own)
            mirror |= {name: settle(state[name] - factor * g) for name, g in own.items()}
        moved = {name: over_trials(self.potential.inverse)(z) - params[name] for name, z in mirror.items()}
        return moved, mirror


def read_potential(potential: Any) -> Potential:
    """Read a potential, or the one at an import path ``package.module:name``; raise ProblemError for anything else."""
    found = potential
    if isinstance(potential, str):
        try:
            found = import_object(potential)
        except (ImportError, AttributeError, ValueError) as error:
            raise ProblemError(f"potential: {potential!r} cannot be imported ({error})") from None
    if not isinstance(found, Potential):
        raise ProblemError(f"potential: expected a Potential or package.module:name of one, got {potential!r}")
    return found


def _check(potential: Potential) -> None:
    """Test a potential on a random matrix and a random vector."""
    name = type(potential).__name__
    generator = np.random.default_rng(0)
    with jax.enable_x64():
        for shape in ((4, 3), (4,)):
            x, y = (jnp.asarray(generator.standard_normal(shape)) for _ in range(2))
            try:
                of_x, of_y = potential.gradient(x), potential.gradient(y)
                error = float(jnp.max(jnp.abs(potential.inverse(of_x) - x)))
            except (jax.errors.JAXTypeError, TypeError, AttributeError) as failure:
                reason = str(failure).strip().splitlines()[0]
                raise ProblemError(f"potential: {name}: JAX cannot trace it: {reason}") from failure
            if not error <= INVERSE_ERROR:
                raise ProblemError(f"potential: {name}: expected inverse(gradient(x)) = x, got an error of {error:.1e}")
            if not float(jnp.sum((of_x - of_y) * (x - y))) > 0:
                raise ProblemError(f"potential: {name}: expected the gradient of a strictly convex function")
