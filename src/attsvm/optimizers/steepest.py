"""The rule of steepest descent in a norm."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from attsvm.norms import Norm, parse_norm
from attsvm.norms.check import checked
from attsvm.optimizers.rule import ProportionalRule
from attsvm.optimizers.scales import Scale, Scales, Tree, separated, subtree
from attsvm.optimizers.sizes import has_fast_steps, norm_of, size_of, steepest

Array = jax.Array


@dataclass(frozen=True, init=False)
class Steepest(ProportionalRule):
    """Subtract N*(g) D from each parameter, where D maximises ⟨g, D⟩ over N(D) ≤ 1.

    Parameters
    ----------
    norm : str, float or Norm
        N; it provides ``steepest``, which JAX can trace.

    Raises
    ------
    ProblemError
        If the norm is unknown, or does not provide ``steepest``.

    See Also
    --------
    attsvm.optimizers.steepest_descent

    Examples
    --------
    >>> from attsvm.optimizers import LearningRate, Normalize, Steepest, chain
    >>> chain(Normalize(), LearningRate(0.1), Steepest("linf")).norm.name
    'linf'
    """

    of: Norm

    def __init__(self, norm: str | float | Norm) -> None:
        parsed = parse_norm(norm)
        if type(parsed).steepest is Norm.steepest:
            Norm.steepest(parsed, None)  # raises the error that names the missing piece
        checked(parsed, jax=True)
        object.__setattr__(self, "of", parsed)

    @property
    def norm(self) -> Norm:
        return self.of

    @property
    def gradient_norm(self) -> Norm:
        return dual_in_jax(self.norm)

    @property
    def concurrent(self) -> bool:
        """Whether the directions are computed without LAPACK for all trials at once."""
        return has_fast_steps(self.norm)

    @property
    def heads_apart(self) -> bool:
        """True: the parameters of each head are stepped on separately."""
        return True

    @property
    def degree(self) -> int:
        return 0

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        """−N*(g) D of each parameter."""
        updates: Tree = {}
        for group in scales.groups:
            own, singles = subtree(gradient, group.names), Scales((group,))
            if len(own) > 1 or (len(gradient) > 1 and group.unit is None):
                joint = group if group.unit is None else group.resolved(own)
                own, singles = separated(own, Scales((joint,)))
            for single in singles.groups:
                (name,) = single.names
                updates[name] = -self._length(single, {name: own[name]}) * steepest(self.norm, own[name])
        return updates, state

    def _length(self, scale: Scale, gradient: Tree) -> Array | float:
        """N* of the gradient with its scale."""
        if scale.unit == self.gradient_norm:
            return 1.0 if scale.length is None else scale.length
        size = size_of(self.gradient_norm, gradient)
        if scale.unit is not None:
            return scale.factor(gradient) * size
        return (size if scale.length is None else scale.length * size) * jnp.exp(scale.log)

    def size_of_weights(self, names: Iterable[str], params: Tree, state: Any) -> Array:
        """N(θ), of one parameter."""
        return norm_of(self.norm, subtree(params, names))


def dual_in_jax(norm: Norm) -> Norm:
    """The dual norm, with a value that JAX can trace if it can trace the steepest directions of the norm."""
    return norm.dual if has_fast_steps(norm) else DualOf(norm)


@dataclass(frozen=True)
class DualOf(Norm):
    """The dual of a norm, computed from its steepest directions."""

    of: Norm

    @property
    def name(self) -> str:
        """Dual of the other's name."""
        return f"dual of {self.of.name}"

    @property
    def dual(self) -> Norm:
        return self.of

    def value(self, x: Any, axes: int = 2) -> Any:
        """⟨x, D⟩ with the steepest D."""
        return (x * self.of.steepest(x)).sum()
