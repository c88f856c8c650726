r"""Newton's method for a norm of k copies of W: the copies are the weights, and their equality is a constraint.

The rows are ⟨row, (W_1 + … + W_k)/k⟩ ≥ b and (W_i − W_{i+1})/√2 = 0. What the multipliers pull on each copy are parts
that sum to A*(λ), so they bound its dual norm. There are as many equalities as entries of W, which only pays for small
matrices.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from attsvm.norms.wrapper import Wrapper
from attsvm.svm.loop import Report
from attsvm.svm.methods.generic.program import Bounds, Copies, Program, Vector
from attsvm.svm.methods.generic.semismooth_newton import semismooth_newton

SQRT2 = math.sqrt(2.0)


@dataclass(frozen=True)
class _OnCopies(Wrapper):
    """A norm as a function of several copies, with the axes (k, d_k, d_q)."""

    def value(self, x: Any, axes: int = 2) -> float:
        return self.of.value_of_copies(x)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        return np.asarray(self.value(x))

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        return self.of.of_copies(x, step)

    def proxes(self, x: np.ndarray, step: float, axes: int = 2) -> np.ndarray:
        return np.stack([self.of.of_copies(each, step) for each in x])


@dataclass(frozen=True, eq=False)
class _Copied(Program):
    """A program whose weights are the copies."""

    of: Program

    @classmethod
    def made_of(cls, program: Program) -> "_Copied":
        """The program with a row for each difference of entries of two copies."""
        number = (program.norm.num_copies - 1) * math.prod(program.shape)
        right, equality = np.zeros(number), np.ones(number, bool)
        return cls(
            _OnCopies(program.norm),
            program.rows,
            np.concatenate([program.right, right]),
            np.concatenate([program.equality, equality]),
            program,
        )

    def apply(self, weights: Copies) -> Vector:
        return np.concatenate([self.of.apply(weights.mean(axis=0)), (weights[:-1] - weights[1:]).ravel() / SQRT2])

    def apply_to_each(self, weights: Float[np.ndarray, "N k d_k d_q"]) -> Float[np.ndarray, "N m"]:
        apart = (weights[:, :-1] - weights[:, 1:]).reshape(len(weights), -1) / SQRT2
        return np.concatenate([self.of.apply_to_each(weights.mean(axis=1)), apart], axis=1)

    def adjoint(self, multipliers: Vector) -> Copies:
        shape, copies = self.of.shape, self.of.norm.num_copies
        number = len(self.of.right)
        pulled = np.stack([self.of.adjoint(multipliers[:number]) / copies] * copies)
        moved = multipliers[number:].reshape(copies - 1, *shape) / SQRT2
        pulled[:-1] += moved
        pulled[1:] -= moved
        return pulled

    def row_matrices(self, chosen: np.ndarray) -> Float[np.ndarray, "N k d_k d_q"]:
        units = np.zeros((len(chosen), len(self.right)))
        units[np.arange(len(chosen)), chosen] = 1.0
        return np.stack([self.adjoint(unit) for unit in units])

    def multipliers(self, multipliers: Vector, parts: Copies) -> Vector:
        """Those with which the copies are pulled by the parts."""
        moved = np.cumsum(parts - parts.mean(axis=0), axis=0)[:-1] * SQRT2
        return np.concatenate([multipliers, moved.ravel()])


class _CopiedBounds(Bounds):
    """The bounds of the program, improved by copies and their multipliers."""

    def __init__(self, program: _Copied, of: Bounds) -> None:
        copies = program.of.norm.num_copies
        pulled = program.of.adjoint(of.multipliers)
        parts = np.stack([pulled / copies] * copies) if of.parts is None else of.parts
        self.copied, self.of = program, of
        self.weights, self.multipliers = np.stack([of.weights] * copies), program.multipliers(of.multipliers, parts)

    @property
    def gap(self) -> float:
        return self.of.gap

    def see(self, weights: Copies, multipliers: Vector, parts: Copies | None = None, gain: float = 1.0) -> float:
        """Keep either side if it improves its bound, and return the gap."""
        multipliers = self.copied.feasible(multipliers)
        own = multipliers[: len(self.of.program.right)]
        return self.of.see(weights.mean(axis=0), own, self.copied.adjoint(multipliers), gain)


def newton(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """:func:`semismooth_newton` on one copy or several; the number of its steps."""
    if program.norm.num_copies > 1:
        program = _Copied.made_of(program)
        bounds = _CopiedBounds(program, bounds)
    return semismooth_newton(program, bounds, target, max_steps, report)


def num_rows(program: Program) -> int:
    """The number of rows in Newton's method."""
    return len(program.right) + (program.norm.num_copies - 1) * math.prod(program.shape)
