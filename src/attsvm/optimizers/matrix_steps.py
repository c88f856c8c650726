"""Steps of length one in a norm of matrices, for each head by itself or for several heads as one matrix.

Which entries form one matrix: each parameter (d, m, H) of H heads by itself, its heads side by side, or all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import over_entries, settle
from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers.chain import chain
from attsvm.optimizers.limit import INDUCED, Limit, Limits, limits_of, of_each_head, on_factors
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.rule import Rule, Transformation
from attsvm.optimizers.scales import Scaled, Tree, by_head, read_number, regrouped
from attsvm.optimizers.singular import divided
from attsvm.optimizers.transformations import (
    Decaying,
    DecayingSum,
    LearningRate,
    Normalize,
    Schedule,
    WeightDecay,
)

Array = jax.Array
MatrixScope = Literal["heads", "fused", "kq"]
MATRIX_SCOPES: tuple[MatrixScope, ...] = ("heads", "fused", "kq")


def read_matrix_scope(scope: str) -> MatrixScope:
    """Read a scope of matrices; raise ProblemError if it is none."""
    for known in MATRIX_SCOPES:
        if scope == known:
            return known
    raise ProblemError(f'scope: expected "heads", "fused" or "kq", got {scope!r}')


def over_matrices(function: Callable[[Array], Array], tree: Tree, scope: MatrixScope) -> Tree:
    """Apply a function of matrices (r, c, N) to parameters, with results of the same shapes.

    ``function``: it treats the matrices of the trailing axis independently. It is called once for each shape (r, c),
    because long vectors of matrices are computed faster than short ones. ``tree``: shape (r, c, *heads, B), parameters
    with at least two axes besides that of the trials. ``scope``: with "heads" each (r, c) is a matrix; with "fused" the
    heads of a parameter are side by side, [K_1, …, K_H]; with "kq" also the parameters of one shape, [K_1, …, K_H, Q_1,
    …, Q_H].

    Raises ProblemError if the scope is "kq" and no two parameters have the same shape.
    """
    if scope == "kq":
        return _over_joined(function, tree)
    apart = {name: _apart(x, scope) for name, x in tree.items()}
    mapped: Tree = {}
    for shape in dict.fromkeys(x.shape[:2] for x in apart.values()):
        names = [name for name, x in apart.items() if x.shape[:2] == shape]
        results = function(jnp.concatenate([apart[name] for name in names], axis=-1))
        ends = list(accumulate(apart[name].shape[-1] for name in names))
        parts = jnp.split(results, ends[:-1], axis=-1)
        mapped |= {name: part.reshape(tree[name].shape) for name, part in zip(names, parts, strict=True)}
    return {name: mapped[name] for name in tree}


def heads_apart(x: Array) -> Array:
    """A parameter (r, c, *heads, B) as matrices (r, c, heads·B)."""
    return _apart(x, "heads")


def shape_of_one(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape (*heads, r, c) that users know of a parameter (r, c, *heads, B)."""
    return shape[2:-1] + shape[:2]


def _over_joined(function: Callable[[Array], Array], tree: Tree) -> Tree:
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, x in tree.items():
        by_shape.setdefault(x.shape, []).append(name)
    if len(tree) > 1 and len(by_shape) == len(tree):
        shapes = ", ".join(str(shape_of_one(shape)) for shape in by_shape)
        raise ProblemError(f'scope: expected two parameters of one shape for "kq", got shapes {shapes}')
    # parameters of one shape are as heads of one parameter
    joined = {names[0]: jnp.stack([tree[name] for name in names], axis=2) for names in by_shape.values()}
    mapped = over_matrices(function, joined, "fused")
    return {name: mapped[names[0]][:, :, i] for names in by_shape.values() for i, name in enumerate(names)}


def _apart(x: Array, scope: MatrixScope) -> Array:
    """A parameter (r, c, *heads, B) as matrices (r, c, heads·B), or (r, c·heads, B) if fused."""
    rows, columns, *_, trials = x.shape
    return x.reshape((rows, columns, -1) if scope == "heads" else (rows, -1, trials))


SHORT_STEPS = Decaying(0.05, 100, 0.5)
"""The default rate of steps on factors: 0.05/√(1 + k/100)."""


class Direction(ABC):
    """A map from matrices to steps of length one in a norm N. Define it as a frozen dataclass.

    Attributes
    ----------
    separate_columns : bool
        Whether the step of each column depends on this column alone, so that matrices side by side step as each does.
    """

    separate_columns: ClassVar[bool] = False

    @property
    @abstractmethod
    def norm(self) -> Norm:
        """The norm N in which steps have length one."""

    @property
    def steps(self) -> str:
        """The kind of steps on W in the table of standings."""
        return "steepest descent"

    @property
    def of_product(self) -> Norm | None:
        """The least max(N(K), N(Q))² over W = KQ', as a norm of W; None if it is not known."""
        return INDUCED.get(self.norm)

    @property
    def of_fused_heads(self) -> Norm | None:
        """The same for the matrices [K_1, …, K_H] and [Q_1, …, Q_H], as a norm of the weights of all heads."""
        return None

    @property
    def of_fused_kq(self) -> Norm | None:
        """The least N([K, Q])² over W = KQ', as a norm of W."""
        return None

    def limits(self, scope: MatrixScope) -> Limits:
        """The limit of these steps for each attention."""
        of_each = limits_of(self.norm, self.steps)
        if scope == "heads" or self.separate_columns:
            return {**of_each, "factored": self.limit("heads")}
        # no norm of the heads side by side is among those of an Att-SVM
        together = {name: replace(limit, several=Limit(None)) for name, limit in of_each.items()}
        return {**together, "factored": self.limit(scope)}

    def limit(self, scope: MatrixScope) -> Limit:
        """That for keys and queries."""
        return {
            "heads": of_each_head(self.of_product),
            "fused": on_factors(self.of_product, self.of_fused_heads),
            "kq": on_factors(self.of_fused_kq),
        }[scope]

    @abstractmethod
    def of(self, matrices: Array) -> Array:
        """The steps along matrices (r, c, B), whose largest entries are 1 or 0."""

    @abstractmethod
    def size(self, matrices: Array) -> Array:
        """N of matrices (r, c, B), whose largest entries are 1 or 0."""

    def reach(self, matrices: Array) -> Array:
        """What N(Q) is in the change of a logit by a unit step of K; N itself by default."""
        return self.size(matrices)


@dataclass(frozen=True)
class MatrixSteps(Rule):
    """Subtract the direction of each matrix; of a vector, the vector over its ℓ2 norm.

    Parameters
    ----------
    direction : Direction
    scope : {"heads", "fused", "kq"}
        What is one matrix: each (d, m) of a parameter (H, d, m); [K_1, …, K_H]; or [K_1, …, K_H, Q_1, …, Q_H].
    """

    direction: Direction
    scope: MatrixScope = "heads"

    scale_free = True

    def __post_init__(self) -> None:
        read_matrix_scope(self.scope)

    @property
    def norm(self) -> Norm:
        """That of the direction."""
        return self.direction.norm

    @property
    def heads_apart(self) -> bool:
        """Whether each head is a matrix: a head whose gradient is far smaller than that of another steps as far."""
        return self.scope == "heads"

    def update(
        self, updates: Scaled, state: Any, params: Tree, *, numbers: Mapping[str, Any], value: Array
    ) -> tuple[Tree, Any]:
        """Return the steps −η D."""
        gradient, scales = updates
        # parameters of one matrix need one scale
        common = regrouped(gradient, scales.resolved(gradient), "all")[0] if self.scope == "kq" else gradient
        matrices = {name: g for name, g in common.items() if g.ndim > 2}
        along = over_matrices(self._along, matrices, self.scope)
        along |= {name: _unit(g) for name, g in gradient.items() if g.ndim <= 2}
        moves: Tree = {}
        for group in scales.groups:
            length = 1.0 if group.length is None else group.length
            moves |= {name: -length * along[name] for name in group.names}
        return moves, state

    def _along(self, matrices: Array) -> Array:
        return self.direction.of(divided(matrices, _largest(matrices)))


@dataclass(frozen=True)
class ByLogit(Transformation):
    """Divide the gradients by the sum over K and Q of what a unit step of the other changes a logit by.

    A step of length η then changes the logits k'KQ'z of unit keys and queries by about η at most, in every head.
    """

    direction: Direction

    def update(
        self, updates: Scaled, state: Any, params: Tree, *, numbers: Mapping[str, Any], value: Array
    ) -> tuple[Scaled, Any]:
        """Divide all gradients by the sum; by 1 where all weights are zero."""
        gradient, scales = updates
        reach = {name: self._reach(params[name]) for name in gradient}
        whole = reduce(jnp.maximum, [reduce(jnp.add, [reach[name] for name in names]) for names in by_head(gradient)])
        return Scaled(gradient, scales.times(1.0 / jnp.where(whole > 0, whole, 1.0))), state

    def _reach(self, x: Array) -> Array:
        """The largest of the heads of one parameter."""
        if x.ndim <= 2:
            return _length(x)
        matrices = _apart(x, "heads")
        largest = _largest(matrices)
        of_each = largest * self.direction.reach(divided(matrices, largest))
        return jnp.max(of_each.reshape(-1, x.shape[-1]), axis=0)


def matrix_descent(
    name: str,
    direction: Direction,
    *,
    learning_rate: float | Schedule,
    scope: str,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
    by_logit: bool,
    arguments: Mapping[str, Any],
) -> Optimizer:
    """An optimizer whose steps follow a direction; the public factories document its options."""
    momentum = read_number("momentum", momentum, "0 <= momentum < 1", lambda x: 0 <= x < 1)
    decay = read_number("weight_decay", weight_decay, "a number >= 0", lambda x: 0 <= x < float("inf"))
    rule: Rule = MatrixSteps(direction, read_matrix_scope(scope))
    parts: list[Transformation] = []
    if momentum:
        parts += [Normalize(), DecayingSum(momentum, nesterov)]
    if by_logit:
        parts.append(ByLogit(direction))
    own = {"learning_rate": learning_rate, "scope": scope, "momentum": momentum, "nesterov": nesterov}
    own |= {"weight_decay": decay, "by_logit": by_logit}
    return chain(
        *parts,
        LearningRate(learning_rate),
        WeightDecay(rule, decay) if decay else rule,
        name=name,
        arguments=own | dict(arguments),
        limits=direction.limits(read_matrix_scope(scope)),
    )


def _unit(vector: Array) -> Array:
    return divided(vector, _length(vector))


def _length(vector: Array) -> Array:
    largest = over_entries(jnp.maximum, jnp.abs(vector))
    scaled = divided(vector, largest)
    return largest * jnp.sqrt(over_entries(jnp.add, scaled * scaled))


def _largest(matrices: Array) -> Array:
    return settle(over_entries(jnp.maximum, jnp.abs(matrices)))
