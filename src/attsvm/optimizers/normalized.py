# ruff: noqa: D102 (methods are documented in the protocol Rule)
"""Any optimiser on the normalised gradient."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import optax

from attsvm.norms import Norm, parse_norm
from attsvm.optimizers.foreign import rule_of
from attsvm.optimizers.optimizer import Optimizer, Rule, read_scope
from attsvm.optimizers.scales import Array, Tree, grouped, sum_of_squares


@dataclass(frozen=True)
class Normalized:
    """Another rule, given ∇L/‖∇L‖: normalising is a change of the scale that was taken out."""

    inner: Rule
    scope: str
    scale_free: bool = True

    def init(self, params: Tree) -> Any:
        return self.inner.init(params)

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], log_scale: Tree, value: Array
    ) -> tuple[Tree, Any]:
        unit: Tree = {}
        scales: Tree = {}
        for group, _ in grouped(gradient, log_scale, self.scope):
            size = sum_of_squares(group)
            # a zero gradient stays one
            log_norm = jnp.where(size > 0, 0.5 * jnp.log(jnp.where(size > 0, size, 1.0)), jnp.inf)
            unit |= group
            scales |= dict.fromkeys(group, -log_norm)
        return self.inner.update(unit, state, params, numbers, scales, value)


def normalized(
    inner: optax.GradientTransformation,
    *,
    scope: Literal["all", "each"] = "all",
    norm: str | float | Norm | None = None,
) -> Optimizer:
    """Any optimiser, given the normalised gradient ∇L/‖∇L‖ in place of the gradient.

    The gradient is normalised exactly however small it is, so that ``normalized(optax.adam(1e-2))`` steps on where the
    gradient itself has underflowed, and its epsilon stays small beside what it is added to.

    Parameters
    ----------
    inner : optax.GradientTransformation
        One of :mod:`attsvm.optimizers` or any of optax's.
    scope : {"all", "each"}
        One ℓ2 norm over all parameters, or one for each.
    norm : str, float or Norm, optional
        The norm whose Att-SVM the optimiser is compared with; by default the inner one's, unknown for optax's.

    Raises
    ------
    ProblemError
        If ``inner`` is no optimiser, or the scope or the norm is unknown.
    """
    rule, numbers = rule_of(inner)
    known = getattr(inner, "norm", None) if norm is None else parse_norm(norm)
    arguments = {"inner": inner, "scope": scope, "norm": None if norm is None else parse_norm(norm).name}
    return Optimizer(Normalized(rule, read_scope(scope)), "normalized", known, numbers, arguments)
