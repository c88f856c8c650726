"""Several attention heads: where their axis goes between the parameters, the trials of the engine and the optimizer.

The logits, the pooling and the prediction head of H attention heads in B trials are computed as those of H·B trials, so
every parametrization and every prediction head is written for one head. Only the outputs of the heads are added up. The
gradient of each head keeps a scale of its own, however saturated the other heads are.

The axes of an array are (H, ..., B) for the callers of training, and (..., H·B), with the trials running fastest,
inside the objective. The rule of an optimizer sees (..., H, B), which needs no copies, with one scale for all heads, or
each head as a parameter of its own, (..., B) with its own scale.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import settle
from attsvm.optimizers import Limit
from attsvm.optimizers.scales import Scale, Scales, of_head, shared_name, subtree
from attsvm.optimizers.sizes import over_all
from attsvm.problem import Problem
from attsvm.training.attention import AnyArray, Parameters

Array = jax.Array


@dataclass(frozen=True)
class AttentionHeads:
    """One attention head, without an axis of heads. Equal ones share their compiled training."""

    number: int = 1  # H, which is 1

    @property
    def parts(self) -> int:
        """How many parameters the optimizer sees in place of one of the attention."""
        return 1

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).items()))

    def separate(self, whole: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """From parameters (H, ..., B) to those that the optimizer sees."""
        return whole

    def whole(self, parameters: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """The inverse of :meth:`separate`."""
        return parameters

    def folded(self, parameters: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """Parameters as the optimizer sees them, as (..., H·B)."""
        return parameters

    def spread(self, limits: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """A number for each head and trial, (H·B,), as one for each parameter that the optimizer sees, (B,)."""
        return limits

    def least(self, x: AnyArray) -> AnyArray:
        """The smallest of the heads: (..., H·B) to (..., B), or 1 if all heads and trials share it."""
        return x

    def most(self, x: AnyArray) -> AnyArray:
        """The largest of the heads: (..., H·B) to (..., B), or 1 if all heads and trials share it."""
        return x

    def total(self, outputs: Array) -> Array:
        """The sum over the heads: (..., H·B) to (..., B)."""
        return outputs

    def repeated(self, x: Array, length: int) -> Array:
        """The same for all heads: (..., B or 1) to (..., H·B), which is the length."""
        return x

    def first(self, x: Array) -> Array:
        """The axis of heads first: (..., H·B) to (H, ..., B)."""
        return x

    def limit(self, of_one: Limit) -> Limit:
        """The limit of all heads, from that of one."""
        return of_one

    def arranged(self, gradient: Parameters, scales: Scales) -> tuple[Parameters, Scales]:
        """A gradient (..., H·B) and its scales (H·B,) as the optimizer sees them."""
        return gradient, scales


@dataclass(frozen=True)
class Together(AttentionHeads):
    """Several heads, for an optimizer that sees the parameters of all heads in one array, with one scale."""

    def separate(self, whole: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """The axis of heads before that of the trials: (H, ..., B) to (..., H, B)."""
        return {name: np.ascontiguousarray(np.moveaxis(x, 0, -2)) for name, x in whole.items()}

    def whole(self, parameters: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """The axis of heads first."""
        return {name: jnp.moveaxis(x, -2, 0) for name, x in parameters.items()}

    def folded(self, parameters: dict[str, AnyArray]) -> dict[str, AnyArray]:
        return {name: x.reshape(*x.shape[:-2], -1) for name, x in parameters.items()}

    def spread(self, limits: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """The least of all heads."""
        return {name: self.least(x) for name, x in limits.items()}

    def least(self, x: AnyArray) -> AnyArray:
        """Their minimum; a number that all heads and trials share stays as it is."""
        return x if x.shape[-1] == 1 else self._apart(x).min(axis=-2)

    def most(self, x: AnyArray) -> AnyArray:
        return x if x.shape[-1] == 1 else self._apart(x).max(axis=-2)

    def total(self, outputs: Array) -> Array:
        """Term by term, so that the loop over the trials stays the innermost one."""
        apart = self._apart(outputs)
        summed: Array = reduce(jnp.add, (apart[..., h, :] for h in range(self.number)))
        return summed

    def repeated(self, x: Array, length: int) -> Array:
        """One copy after the other."""
        of_heads = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], self.number, length // self.number))
        return settle(of_heads.reshape(*x.shape[:-1], length))

    def first(self, x: Array) -> Array:
        return jnp.moveaxis(self._apart(x), -2, 0)

    def limit(self, of_one: Limit) -> Limit:
        """That of all heads together; without one, each head is as a single one."""
        return of_one if of_one.several is None else of_one.several

    def arranged(self, gradient: Parameters, scales: Scales) -> tuple[Parameters, Scales]:
        """On the scale of the head whose gradient is the largest."""
        found: Parameters = {}
        groups: list[Scale] = []
        for group in scales.groups:
            size = over_all(jnp.maximum, subtree(gradient, group.names), jnp.abs)
            # a head whose gradient is zero sets no scale at which others underflow
            largest = self.most(jnp.where(size > 0, group.log, -jnp.inf))
            joint = jnp.where(jnp.isneginf(largest), 0.0, largest)
            factor = jnp.exp(jnp.minimum(group.log - self.repeated(joint, group.log.shape[-1]), 0.0))
            found |= {name: self._apart(gradient[name] * factor) for name in group.names}
            # rounding is monotone, so this is the largest of the products
            groups.append(Scale(group.names, joint, largest=self.most(size * factor)))
        return found, Scales(tuple(groups))

    def _apart(self, x: AnyArray) -> AnyArray:
        """(..., H·B) as (..., H, B)."""
        return x.reshape(*x.shape[:-1], self.number, -1)


@dataclass(frozen=True)
class Apart(Together):
    """Several heads, for an optimizer that sees each head as a parameter of its own, with its own scale."""

    def separate(self, whole: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """A parameter for each head."""
        return {own: whole[name][h] for name in whole for h, own in enumerate(self._names(name))}

    def whole(self, parameters: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """The heads along the first axis."""
        return {name: jnp.stack([parameters[own] for own in self._names(name)]) for name in _shared(parameters)}

    def folded(self, parameters: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """The heads one behind the other."""
        return {name: _joined([parameters[own] for own in self._names(name)]) for name in _shared(parameters)}

    @property
    def parts(self) -> int:
        return self.number

    def spread(self, limits: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """Those of each head; one that all trials and heads share for each of them."""
        return {
            own: part
            for name, x in limits.items()
            for own, part in zip(
                self._names(name), [x] * self.number if x.shape[-1] == 1 else self._parts(x), strict=True
            )
        }

    def arranged(self, gradient: Parameters, scales: Scales) -> tuple[Parameters, Scales]:
        """Each head with its scale, which its parameters share."""
        found: Parameters = {
            own: settle(part)
            for name, g in gradient.items()
            for own, part in zip(self._names(name), self._parts(g), strict=True)
        }
        groups = [
            Scale(tuple(of_head(name, h) for name in group.names), log)
            for group in scales.groups
            for h, log in enumerate(self._parts(group.log))
        ]
        return found, Scales(tuple(groups))

    def _parts(self, x: AnyArray) -> list[AnyArray]:
        """The part of each head of an array (..., H·B)."""
        length = x.shape[-1] // self.number
        return [x[..., h * length : (h + 1) * length] for h in range(self.number)]

    def _names(self, name: str) -> list[str]:
        return [of_head(name, h) for h in range(self.number)]


def attention_heads(problem: Problem, *, apart: bool) -> AttentionHeads:
    """The axis of heads of a problem, for an optimizer that sees each head apart or all together."""
    if problem.num_heads is None:
        return AttentionHeads()
    return Apart(problem.num_heads) if apart else Together(problem.num_heads)


def fold(x: np.ndarray, heads_shape: tuple[int, ...]) -> np.ndarray:
    """An array (H, ..., B) of a problem with several heads as (..., H·B); others as they are."""
    return _joined(list(x)) if heads_shape else x


def _joined(arrays: list[AnyArray]) -> AnyArray:
    """One behind the other along the trailing axis."""
    if isinstance(arrays[0], np.ndarray):
        return np.concatenate(arrays, axis=-1)
    return settle(jnp.concatenate(arrays, axis=-1))


def _shared(names: Iterable[str]) -> list[str]:
    """The names without the numbers of heads, each once."""
    return list(dict.fromkeys(map(shared_name, names)))
