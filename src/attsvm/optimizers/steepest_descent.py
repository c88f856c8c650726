# ruff: noqa: D102 (methods are documented in the protocol Rule)
"""Steepest descent in a norm: sign, coordinate, spectral descent and their kin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from attsvm.contractions import contract, over_entries, settle
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Nuclear, parse_norm
from attsvm.optimizers.optimizer import Optimizer, Schedule, Step, StepState, read_learning_rate
from attsvm.optimizers.powers import power
from attsvm.optimizers.scales import Array, Tree, grouped, over_largest
from attsvm.optimizers.singular import Singular, singular_values_and_vectors


@dataclass(frozen=True)
class SteepestDescent:
    """θ − η D, D = argmax of ⟨∇L, D⟩ over N(D) ≤ 1, for each parameter by itself; or θ − η N*(∇L) D."""

    step: Step
    norm: Norm
    normalize: bool
    relative: bool

    @property
    def scale_free(self) -> bool:
        return self.normalize

    def init(self, params: Tree) -> StepState:
        return self.step.init(params)

    def update(
        self, gradient: Tree, state: StepState, params: Tree, numbers: Mapping[str, Any], log_scale: Tree, value: Array
    ) -> tuple[Tree, StepState]:
        length, state = self.step.length(state, numbers)
        updates: Tree = {}
        for group, log_common in grouped(gradient, log_scale, "each"):
            ((name, g),) = group.items()
            step = length
            if self.relative:
                scaled, scale = over_largest({name: params[name]})
                step = step * scale * norm_value(scaled[name], self.norm)
            if not self.normalize:
                step = step * norm_value(g, self.norm.dual) * jnp.exp(log_common)
            updates[name] = -step * steepest(g, self.norm)
        return updates, state


def steepest(gradient: Array, norm: Norm) -> Array:
    """The D of unit norm along which a linear function grows fastest; 0 for a zero gradient.

    Parameters
    ----------
    gradient : Array, shape (d_k, d_q, B) or (d, B)
        Its largest entry is 1 or 0 in each trial. Spectral and nuclear norms of a vector are its ℓ2 norm.
    norm : Norm
        With the ℓ1 norm, ties go to the first coordinate. With the spectral norm D has the rank of the gradient: its
        singular values below rounding give no direction.
    """
    if isinstance(norm, Lp) or gradient.ndim <= 2:
        return _entrywise(gradient, norm.p if isinstance(norm, Lp) else 2.0)
    left, values, right = _decomposed(gradient)
    largest = over_entries(jnp.maximum, values)
    if isinstance(norm, Nuclear):
        index = jnp.arange(len(values), dtype=jnp.int32)[:, None]
        counts = index == over_entries(jnp.minimum, jnp.where(values == largest, index, len(values)))
    else:
        counts = values > max(gradient.shape[:-1]) * float(jnp.finfo(gradient.dtype).eps) * largest
    return contract("rk,ck->rc", jnp.where(counts, left, 0.0), right)


def _entrywise(gradient: Array, p: float) -> Array:
    if np.isinf(p):
        return jnp.sign(gradient)
    if p == 1:
        shape = gradient.shape[:-1]
        index = jnp.arange(int(np.prod(shape)), dtype=jnp.int32).reshape(*shape, 1)
        size = jnp.abs(gradient)
        largest = over_entries(jnp.maximum, size)
        first = over_entries(jnp.minimum, jnp.where(size == largest, index, index.size))
        return jnp.sign(gradient) * (index == first)
    q = p / (p - 1.0)
    size = settle(norm_value(gradient, Lp(q)))
    scaled = gradient / jnp.where(size > 0, size, 1.0)
    return scaled if q == 2 else jnp.sign(scaled) * power(jnp.abs(scaled), q - 1.0)


def norm_value(x: Array, norm: Norm) -> Array:
    """Norm over all axes but the trials', shape (B,), of an array whose largest entry is about 1."""
    if not isinstance(norm, Lp) and x.ndim > 2:
        return over_entries(jnp.add if isinstance(norm, Nuclear) else jnp.maximum, _decomposed(x).values)
    size = jnp.abs(x)
    p = norm.p if isinstance(norm, Lp) else 2.0
    if np.isinf(p):
        return over_entries(jnp.maximum, size)
    return power(over_entries(jnp.add, power(size, p)), 1.0 / p)


def _decomposed(x: Array) -> Singular:
    if x.ndim != 3:
        raise ProblemError(f"norm: spectral and nuclear are of matrices, a parameter of {x.ndim - 1} axes found")
    return singular_values_and_vectors(x)


def steepest_descent(
    learning_rate: float | Schedule = 0.1,
    norm: str | float | Norm = "frobenius",
    *,
    normalize: bool = True,
    relative: bool = False,
) -> Optimizer:
    """Steepest descent in a norm N: θ − η D with D = argmax of ⟨∇L(θ), D⟩ over N(D) ≤ 1.

    ℓ∞ gives sign descent, ℓ1 (greedy) coordinate descent, the spectral norm U V' of the gradient's singular vectors, ℓ2
    normalised gradient descent. Each parameter steps by itself.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    norm : str, float or Norm
        "linf", "l1", "spectral", "nuclear", "frobenius", or any p ≥ 1 of an entrywise norm. For a vector, spectral and
        nuclear mean ℓ2.
    normalize : bool
        Steps of length η in N, exact however small the gradient is; otherwise of η N*(∇L), where a gradient that
        underflows is an honest zero.
    relative : bool
        Whether the step is multiplied by N(θ). It cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number, or the norm is none.

    References
    ----------
    Gunasekar, Lee, Soudry and Srebro (2018), *Characterizing Implicit Bias in Terms of Optimization Geometry*, section
    3; for attention its limit is a conjecture.
    """
    step, numbers = read_learning_rate(learning_rate)
    parsed = parse_norm(norm)
    arguments = {"learning_rate": learning_rate, "norm": parsed.name, "normalize": normalize, "relative": relative}
    rule = SteepestDescent(step, parsed, normalize, relative)
    return Optimizer(rule, "steepest_descent", parsed, numbers, arguments)
