"""Several attention heads: where their axis goes between the parameters, the trials of the loop and the optimiser.

The logits, the pooling and the prediction head of H attention heads in B trials are computed as those of H·B trials, so
every parametrization and every prediction head is written for one head. Only the outputs of the heads are added up. The
gradient of each head keeps a scale of its own, however saturated the other heads are.

The axes of an array are (H, ..., B) for the callers of training, (..., H, B) in the state of a training, and
(..., H·B), with the trials running fastest, inside the objective. The two are one reshape apart. An optimiser sees
(..., H, B), with one scale for all heads, or each head as a parameter (..., B) with its own scale.

Keys that the heads of a group share have an axis of groups in place of that of heads, (..., g, B), and inside the
objective they are repeated for each head. Their gradient is the sum over the heads of the group.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import over_all, settle
from attsvm.optimizers import Rule, ScaledGradient
from attsvm.problem import Problem
from attsvm.training.attention.base import AnyArray, Parameters

Array = jax.Array


@dataclass(frozen=True)
class AttentionHeads:
    """The axis of heads. Equal ones share their compiled training."""

    number: int | None = None  # H; None for a problem without this axis, whose arrays all methods leave as they are
    apart: bool = False  # whether the optimiser sees each head as a parameter of its own
    key_groups: int | None = None  # g, where the heads of a group share K

    @property
    def count(self) -> int:
        return self.number or 1

    def fold(self, x: AnyArray) -> AnyArray:
        """(..., H, B) as (..., H·B); what the heads of a group share, (..., g, B), is repeated."""
        if self.number is None:
            return x
        each = x if x.shape[-2] == self.number else x.repeat(self.number // x.shape[-2], axis=-2)
        return each.reshape(*x.shape[:-2], -1)

    def unfold(self, x: AnyArray) -> AnyArray:
        """(..., H·B) as (..., H, B)."""
        return x if self.number is None else x.reshape(*x.shape[:-1], self.number, -1)

    def first(self, x: AnyArray) -> AnyArray:
        """(..., H, B) as (H, ..., B)."""
        return x if self.number is None else jnp.moveaxis(x, -2, 0)

    def reduced(self, reduction: Callable[..., AnyArray], x: AnyArray) -> AnyArray:
        """Reduce the heads: (..., H·B) to (..., B), or 1 if all heads and trials share it."""
        return x if self.number is None or x.shape[-1] == 1 else reduction(self.unfold(x), axis=-2)

    def total(self, outputs: Array) -> Array:
        """The sum over the heads: (..., H·B) to (..., B)."""
        if self.number is None:
            return outputs
        apart = self.unfold(outputs)
        # term by term, so that the loop over the trials stays the innermost one
        summed: Array = reduce(jnp.add, (apart[..., h, :] for h in range(self.number)))
        return summed

    def repeated(self, x: Array, length: int) -> Array:
        """Repeat an array for all heads: (..., B or 1) to (..., H·B), which is the length."""
        if self.number is None:
            return x
        of_heads = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], self.number, length // self.number))
        return settle(self.fold(of_heads))

    def seen(self, parameters: Parameters) -> Parameters:
        """Parameters (..., H, B) as the optimiser sees them."""
        if self.number is None or not self.apart:
            return parameters
        length = next(iter(parameters.values())).shape[-1]
        # one behind the other
        rows = {name: (x.shape[-2], x.reshape(*x.shape[:-2], -1)) for name, x in parameters.items()}
        return {
            f"{name}[{h}]": x[..., h * length : (h + 1) * length]
            for name, (number, x) in rows.items()
            for h in range(number)
        }

    def joined(self, seen: Parameters) -> Parameters:
        """The inverse of :meth:`seen`."""
        if self.number is None or not self.apart:
            return seen
        counts = Counter(name.partition("[")[0] for name in seen)
        # one behind the other, and not stacked: XLA vectorises the last axis
        rows = {
            name: jnp.concatenate([seen[f"{name}[{h}]"] for h in range(number)], axis=-1)
            for name, number in counts.items()
        }
        return {name: x.reshape(*x.shape[:-1], counts[name], -1) for name, x in rows.items()}

    def scaled(self, gradient: ScaledGradient) -> ScaledGradient:
        """A gradient (..., H·B) with scales (H·B,) as the optimiser sees it."""
        if self.number is None:
            return gradient
        found: list[ScaledGradient] = []
        order: list[str] = []
        for scale, own in gradient.parts:
            shared = [name for name in own if self._is_shared(name)]
            if not self.apart:
                aligned = self._aligned(own, scale.log)
                summed = {name: self._summed(name, g) for name, g in aligned.gradient.items()}
                # a sum over the heads of a group may be larger than its terms
                found.append(ScaledGradient.shared(summed, aligned.log[0], None if shared else aligned.largest[0]))
                order += summed
                continue
            alone = [name for name in own if name not in shared]
            of_heads = self.seen({name: self.unfold(own[name]) for name in alone}) if alone else {}
            for h, log in enumerate(self.unfold(scale.log)):
                names = [f"{name}[{h}]" for name in alone]
                found.append(ScaledGradient.shared({name: settle(of_heads[name]) for name in names}, log))
            order += of_heads
            for name in shared:
                aligned = self._aligned({name: own[name]}, scale.log, self.key_groups or 1)
                of_groups = self.seen({name: self._summed(name, aligned.gradient[name])})
                for one, log in zip(of_groups, aligned.log, strict=True):
                    found.append(ScaledGradient.shared({one: settle(of_groups[one])}, log))
                order += of_groups
        whole = reduce(or_, found)
        return whole._replace(gradient={name: whole.gradient[name] for name in order})

    def _is_shared(self, name: str) -> bool:
        return self.key_groups is not None and name == "K"

    def _aligned(self, gradient: Parameters, log: Array, blocks: int = 1) -> "_Aligned":
        """Gradients (..., H·B) on the scale of the head of each block of heads whose gradient is the largest."""

        def over_blocks(x: Array) -> Array:
            return jnp.max(x.reshape(blocks, -1, x.shape[-1] // self.count), axis=1)

        def of_heads(x: Array) -> Array:
            return settle(jnp.repeat(x, self.count // blocks, axis=0).reshape(-1))

        size = over_all(jnp.maximum, gradient, jnp.abs)
        log = jnp.broadcast_to(log, size.shape)
        # a head whose gradient is zero sets no scale
        largest = over_blocks(jnp.where(size > 0, log, -jnp.inf))
        joint = jnp.where(jnp.isneginf(largest), 0.0, largest)
        factor = jnp.exp(jnp.minimum(log - of_heads(joint), 0.0))
        # rounding is monotone, so that size · factor has the largest of the products
        scaled = {name: self.unfold(g * factor) for name, g in gradient.items()}
        return _Aligned(scaled, joint, over_blocks(size * factor))

    def _summed(self, name: str, x: Array) -> Array:
        """(..., H, B), or (..., g, B) for what the heads of a group share: the sum over them."""
        if not self._is_shared(name):
            return x
        of_groups = x.reshape(*x.shape[:-2], self.key_groups, -1, x.shape[-1])
        summed: Array = reduce(jnp.add, (of_groups[..., h, :] for h in range(of_groups.shape[-2])))
        return summed


class _Aligned(NamedTuple):
    gradient: Parameters  # (..., H, B)
    log: Array  # (blocks, B): the scale of each block of heads
    largest: Array  # (blocks, B): the largest |entry| on that scale


def heads_of(problem: Problem, rule: Rule) -> AttentionHeads:
    """The axis of heads of a problem, as a rule sees it."""
    return AttentionHeads(problem.num_heads, rule.on_each_head, problem.key_groups)


def fold(x: np.ndarray, heads_shape: tuple[int, ...]) -> np.ndarray:
    """An array (H, ..., B), or (g, ..., B) of groups, of a problem with several heads as (..., H·B); others as is."""
    return np.concatenate([x[h * len(x) // heads_shape[0]] for h in range(*heads_shape)], axis=-1) if heads_shape else x
