"""Spectral steps on matrices: Muon with a choice of the polar factor."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import contract, over_entries, settle, total
from attsvm.norms import Norm, Spectral
from attsvm.norms.factors import FusedHeads, FusedKeysQueries
from attsvm.optimizers.limit import AS_SHIPPED, Limit
from attsvm.optimizers.matrix_steps import SHORT_STEPS, Direction, MatrixScope, matrix_descent
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.polar import POLAR_FACTORS, PolarFactor, parse_polar
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.singular import by_many, divided
from attsvm.optimizers.transformations import Schedule

Array = jax.Array

_SQUARINGS = 12


@dataclass(frozen=True)
class PolarDirection(Direction):
    """U V' of matrices U Σ V', of length one in the spectral norm."""

    polar: PolarFactor = POLAR_FACTORS["exact"]

    @property
    def norm(self) -> Norm:
        return Spectral()

    @property
    def steps(self) -> str:
        """Those of steepest descent, if the polar factor converges."""
        return super().steps if self.polar.converges else AS_SHIPPED.steps

    @property
    def of_fused_heads(self) -> Norm:
        """The norm of fused heads."""
        return FusedHeads()

    @property
    def of_fused_kq(self) -> Norm:
        """The norm of fused keys and queries."""
        return FusedKeysQueries()

    def limit(self, scope: MatrixScope) -> Limit:
        """That of the spectral norm, if the polar factor converges."""
        return super().limit(scope) if self.polar.converges else AS_SHIPPED

    def of(self, matrices: Array) -> Array:
        return self.polar.of(matrices)

    def size(self, matrices: Array) -> Array:
        """The largest singular values, to about 1e-5 of themselves."""
        return by_many(_largest_singular_values, matrices)[0, 0]


def _largest_singular_values(matrices: Array) -> Array:
    """Of matrices (r, c, B), shape (1, 1, B)."""
    gram = settle(contract("ir,rj->ij", settle(jnp.swapaxes(matrices, 0, 1)), matrices))

    def square(_: Array, x: Array) -> Array:
        x = settle(contract("ij,jk->ik", x, x))
        return divided(x, over_entries(jnp.maximum, jnp.abs(x)))

    # a high power of the Gram matrix has the first singular vector in each column
    power = jax.lax.fori_loop(0, _SQUARINGS, square, divided(gram, over_entries(jnp.maximum, jnp.abs(gram))))
    image = contract("rc,cj->rj", matrices, power)
    ratios = divided(total(image * image, axis=0), total(power * power, axis=0))
    return jnp.sqrt(jnp.max(ratios, axis=1, keepdims=True))


def spectral_descent(
    learning_rate: float | Schedule = SHORT_STEPS,
    *,
    polar: str | PolarFactor = "exact",
    scope: str = "heads",
    momentum: float = 0.0,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    by_logit: bool = False,
) -> Optimizer:
    """Spectral steps on matrices: θ − η U V' of the gradient U Σ V', with a choice of what is one matrix.

    With momentum this is Muon. On keys and queries K and Q of one head or several, short steps maximise the
    margin in the norm that max(‖K‖, ‖Q‖) induces on W = KQ', for one head the spectral norm.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule; 0.05/√(1 + k/100) by default. The steps have to decay: the sizes of K and Q grow like the sum
        of the steps, and the change of the logits is the product of both.
    polar : str or PolarFactor
        "exact": U V' on the numerical range of the gradient, zero elsewhere. "newton_schulz": the iteration with
        coefficients that converge. "optax", "torch": the coefficients, iterations and precision that
        ``optax.contrib.muon`` and ``torch.optim.Muon`` ship. Or a :class:`NewtonSchulz`.
    scope : {"heads", "fused", "kq"}
        What is one matrix, for parameters of shape (H, d, m), or (d, m) for one head: each K_h and Q_h; the heads side
        by side, [K_1, …, K_H] and [Q_1, …, Q_H]; or all together, [K_1, …, K_H, Q_1, …, Q_H], which takes
        parameters of one shape.
    momentum : float
        β of m⁺ = β m + g in place of the gradient, 0 ≤ β < 1, where g is the gradient over its ℓ2 norm.
    nesterov : bool
        Take β m⁺ + g instead of m⁺.
    weight_decay : float
        λ ≥ 0: θ also shrinks by the factor 1 − ηλ.
    by_logit : bool
        Divide the steps by N(K) + N(Q), N the largest spectral norm of a head.

    Raises
    ------
    ProblemError
        If an argument is out of range.

    See Also
    --------
    row_descent, column_descent : Steps that normalise each row or column.
    bilinear_descent : Steepest descent of the product W itself.
    steepest_descent : Steepest descent in any norm, for each parameter.

    References
    ----------
    Jordan et al. (2024), *Muon: An optimizer for hidden layers in neural networks*.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> from attsvm.optimizers import spectral_descent
    >>> problem = random_problem(4, 5, 6, seed=0)
    >>> run = attsvm.train(problem, attention="factored", optimizer=spectral_descent(), steps=2000)
    >>> bool(attsvm.margin_ratio(problem, run, norm="spectral") > 0.9)
    True
    """
    return matrix_descent(
        "spectral_descent",
        PolarDirection(parse_polar(polar)),
        learning_rate=learning_rate,
        scope=scope,
        momentum=momentum,
        nesterov=nesterov,
        weight_decay=weight_decay,
        by_logit=by_logit,
        arguments={"polar": polar},
    )


OPTIMIZERS.register("spectral_descent", spectral_descent)
