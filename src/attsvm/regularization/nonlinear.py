"""The excess of the loss under a fixed head of any kind, a function of pooled tokens with its derivatives in NumPy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, singledispatch
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.jax_devices import check_process
from attsvm._utils.linear_algebra import softmax
from attsvm.errors import ProblemError
from attsvm.heads import Head, Linear, parse_head
from attsvm.losses import OutputLoss
from attsvm.problem import Problem
from attsvm.regularization.excess import Excess, Scalar, Scaled, active_queries
from attsvm.regularization.linear import LinearExcess
from attsvm.training.attention import Attention
from attsvm.training.setup import make_objective

Array = jax.Array


@dataclass(frozen=True, eq=False)
class HeadFunction:
    """h(o) of single pooled tokens.

    Attributes
    ----------
    head : Head
    parameters : mapping of str to ndarray
        Of one problem, as ``head.initial`` returns them.

    See Also
    --------
    attsvm.heads.Head

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.heads import MLP
    >>> from attsvm.regularization import HeadFunction
    >>> h = HeadFunction(MLP(np.eye(2)), {"hidden": np.eye(2), "output": np.ones(2)})
    >>> h.values(np.array([[1.0, -2.0], [3.0, 4.0]]))
    array([1., 7.])
    """

    head: Head
    parameters: Mapping[str, np.ndarray]

    def values(self, pooled: np.ndarray) -> np.ndarray:
        """h(o), shape (M,), for pooled tokens (M, d)."""
        return self._evaluated(_of_head(self.head).values, pooled)

    def gradients(self, pooled: np.ndarray) -> np.ndarray:
        """∇h(o), shape (M, d)."""
        return self._evaluated(_of_head(self.head).gradients, pooled)

    def hessians(self, pooled: np.ndarray) -> np.ndarray:
        """∇²h(o), shape (M, d, d)."""
        return self._evaluated(_of_head(self.head).hessians, pooled)

    def _evaluated(self, function: Callable[..., Array], pooled: np.ndarray) -> np.ndarray:
        check_process()
        with jax.enable_x64(True):
            parameters = {name: np.asarray(x, dtype=np.float64)[..., None] for name, x in self.parameters.items()}
            return np.asarray(function(parameters, np.asarray(pooled, dtype=np.float64)), dtype=np.float64)


@dataclass(frozen=True)
class _Compiled:
    values: Callable[..., Array]
    gradients: Callable[..., Array]
    hessians: Callable[..., Array]


@cache
def _of_head(head: Head) -> _Compiled:
    def one(parameters: dict[str, Any], pooled: Array) -> Array:
        return head.outputs(parameters, pooled[None, None, :, None])[0, 0, 0]

    def over(function: Callable[..., Array]) -> Callable[..., Array]:
        return jax.jit(jax.vmap(function, (None, 0)))

    def all_at_once(parameters: dict[str, Any], pooled: Array) -> Array:
        return head.outputs(parameters, pooled[:, None, :, None])[:, 0, 0]

    def gradients(parameters: dict[str, Any], pooled: Array) -> Array:
        (pulled,) = jax.vjp(lambda o: all_at_once(parameters, o), pooled)[1](jnp.ones(len(pooled)))
        return jnp.asarray(pulled)

    return _Compiled(jax.jit(all_at_once), jax.jit(gradients), over(jax.jacrev(jax.grad(one, argnums=1), argnums=1)))


KEPT = 1e-3
"""Smallest attention of a token that counts as kept."""
LOST = 1e-12
"""Largest attention of dropped tokens beside which several kept ones leave only rounding in the gradient."""

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_HALVES = np.concatenate([(_NODES + 1) / 4, (_NODES + 3) / 4])
_WHOLE = (_NODES + 1) / 2
# where one rule and two halves differ by more, the head has a kink between the two points
_SMOOTH = 1e-12


class _Parts(NamedTuple):
    """What value and derivatives share; c is the largest shortfall of a logit that counts."""

    value: float  # excess · exp(−log_scale)
    log_scale: float
    attention: np.ndarray  # (N, T)
    small: np.ndarray  # (N,): exp(c)
    shares: np.ndarray  # (N, T): attention · exp(−c) of the tokens other than the reference
    shift: np.ndarray  # (N, d): (x_α − o) exp(−c)
    drops: np.ndarray  # (N,): y h(x_α) − y h(o)
    pooled: np.ndarray  # (N, d): o
    size: np.ndarray  # (N,): |ℓ'| exp(c − log_scale) / N


@dataclass(frozen=True, kw_only=True)
class HeadExcess(Excess):
    """The excess under any head h, with the margins m = y h(o).

    The margin that a query loses against its reference token is computed from D = x_α − o, a sum of small terms, as
    the integral of ∇h between both points. It keeps its digits where h(x_α) and h(o) are equal to rounding.
    """

    tokens: np.ndarray  # shape (N, T, d)
    labels: np.ndarray  # shape (N,)
    head: HeadFunction = field(repr=False)
    scores: np.ndarray  # shape (N, T), y h(x_t) of each token; −inf where masked

    random_starts: ClassVar[int] = 1

    @classmethod
    def of(cls, problem: Problem, head: HeadFunction, loss: Scalar) -> "HeadExcess":
        """For a problem without batch axes, over the loss of the tokens of largest y h(x).

        Raises ProblemError if the head is not a number at some token.
        """
        labels, tokens, keys, queries, allowed = active_queries(problem)
        values = head.values(tokens.reshape(-1, tokens.shape[2])).reshape(allowed.shape)
        if not np.isfinite(values[allowed]).all():
            raise ProblemError(
                f"head: expected finite outputs at the tokens, got {values[allowed & ~np.isfinite(values)][0]}"
            )
        scores = np.where(allowed, labels[:, None] * values, -np.inf)
        best = np.argmax(scores, axis=1)
        own = keys - keys[np.arange(len(best)), best][:, None]
        return cls(
            keys=own,
            queries=queries,
            allowed=allowed,
            loss=loss,
            reference=best,
            tokens=tokens,
            labels=labels,
            head=head,
            scores=scores,
        )

    @cached_property
    def optimal(self) -> np.ndarray:
        return np.asarray(np.argmax(self.scores, axis=1))

    @cached_property
    def margins(self) -> np.ndarray:
        """Return y h(x_α), shape (N,)."""
        return np.asarray(self.scores[np.arange(len(self.reference)), self.reference])

    @cached_property
    def away(self) -> np.ndarray:
        """x_α − x_t, shape (N, T, d); 0 where masked."""
        kept = self.tokens[np.arange(len(self.reference)), self.reference][:, None]
        return np.where(self.allowed[:, :, None], kept - self.tokens, 0.0)

    @property
    def differs(self) -> np.ndarray:
        """The tokens other than the reference, shape (N, T)."""
        return np.asarray(self.away.any(axis=2))

    def same_values(self, one: np.ndarray, other: np.ndarray) -> bool:
        index = np.arange(len(one))
        return bool((self.scores[index, one] == self.scores[index, other]).all())

    def kept(self, weights: np.ndarray) -> np.ndarray:
        """The tokens with an attention above 1e-3."""
        return np.asarray(softmax(self.logits(weights)) > KEPT)

    def restricted(self, allowed: np.ndarray) -> "HeadExcess":
        """The excess if each query attends to these tokens only, over the best of them."""
        scores = np.where(allowed, self.scores, -np.inf)
        return replace(self, allowed=allowed, scores=scores).over(np.argmax(scores, axis=1))

    def is_rounding(self, weights: np.ndarray) -> bool:
        """Whether several tokens balance while the attention of the others vanishes."""
        attention = softmax(self.logits(weights))
        kept = attention > KEPT
        dropped = attention[self.allowed & ~kept]
        return bool((kept.sum(axis=1) > 1).any() and dropped.size and dropped.max() < LOST)

    def _level(self, logits: np.ndarray) -> tuple[float, float]:
        parts = self._parts(logits)
        return parts.value, parts.log_scale

    def _parts(self, logits: np.ndarray) -> "_Parts":
        attention, shortfall = softmax(logits), logits - logits.max(axis=1, keepdims=True)
        counted = self.differs
        # the largest term of each query is factored out; queries that do not change the loss have none
        moves = counted.any(axis=1)
        c = np.where(moves, np.max(np.where(counted, shortfall, -np.inf), axis=1), 0.0)
        small = np.exp(c)
        shares = np.exp(np.where(counted, shortfall - c[:, None], -np.inf)) * attention.max(axis=1)[:, None]
        shift = np.sum(shares[:, :, None] * self.away, axis=1)
        drop, pooled = self._drop(shift, small)
        drops = small * drop
        log_mean, log_slope = self.loss.log_mean_slope(self.margins, drops), self.loss.log_slope(self.margins - drops)
        log_mean, log_slope = (np.where(moves, c + log, -np.inf) for log in (log_mean, log_slope))
        log_scale = float(max(np.max(log_mean), np.max(log_slope)))
        value = float(np.mean(np.exp(log_mean - log_scale) * drop))
        size = np.exp(log_slope - log_scale) / len(drop)
        return _Parts(value, log_scale, attention, small, shares, shift, drops, pooled, size)

    def _scaled(self, logits: np.ndarray) -> Scaled:
        parts = self._parts(logits)
        attention, shift, size = parts.attention, parts.shift, parts.size
        # derivatives of the drop in the logits: a_t ⟨∇, (x_α − x_t) − (x_α − o)⟩ with ∇ = y ∇h(o)
        slope = self.labels[:, None] * self.head.gradients(parts.pooled)
        moved = parts.shares[:, :, None] * self.away - attention[:, :, None] * shift[:, None]
        of_drop = (moved @ slope[:, :, None])[..., 0]
        gradient = size[:, None] * of_drop
        bend = self.loss.bend(self.margins - parts.drops) * parts.small
        curved = self.labels[:, None, None] * self.head.hessians(parts.pooled)
        of_head = (size * parts.small)[:, None, None] * (moved @ curved @ moved.mT)
        return Scaled(
            parts.value,
            parts.log_scale,
            attention,
            gradient,
            bend[:, None, None] * (gradient[:, :, None] * of_drop[:, None]) - of_head,
        )

    def _drop(self, shift: np.ndarray, small: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(y h(x_α) − y h(o)) exp(−c) for o = x_α − exp(c)·shift, shape (N,); and o, shape (N, d)."""
        start = self.tokens[np.arange(len(self.reference)), self.reference]
        step = small[:, None] * shift
        nodes = np.concatenate([_WHOLE, _HALVES])
        points = start[:, None] - nodes[:, None] * step[:, None]
        slopes = self.head.gradients(points.reshape(-1, points.shape[2])).reshape(points.shape)
        along = self.labels[:, None] * (slopes @ shift[:, :, None])[..., 0]
        whole = along[:, : len(_WHOLE)] @ _NODE_WEIGHTS / 2
        halves = along[:, len(_WHOLE) :] @ np.tile(_NODE_WEIGHTS, 2) / 4
        pooled = start - step
        kinked = ~(np.abs(whole - halves) <= _SMOOTH * np.max(np.abs(along), axis=1))
        if kinked.any():
            values = self.labels[kinked] * self.head.values(pooled)[kinked]
            halves[kinked] = (self.margins[kinked] - values) / small[kinked]
        return halves, pooled


@singledispatch
def excess_of(head: Head, parameters: Mapping[str, np.ndarray], problem: Problem, loss: Scalar) -> Excess:
    """The excess of a problem without batch axes under a head, found by the type of the head.

    ``parameters``: of the head.

    Raises ProblemError if the head is not a number at some token.
    """
    return HeadExcess.of(problem, HeadFunction(head, parameters), loss)


@excess_of.register
def _(head: Linear, parameters: Mapping[str, np.ndarray], problem: Problem, loss: Scalar) -> Excess:
    return LinearExcess.of(problem, parameters["v"], loss)


@dataclass(frozen=True)
class FixedHead:
    """A head and its parameters for each problem of a batch."""

    head: Head
    parameters: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, problem: Problem, layer: Attention, head: str | Head | None, loss: OutputLoss) -> "FixedHead":
        """The head, by default the linear one of the problem.

        Raises ProblemError if there is none, or it does not fit.
        """
        if head is None and problem.head is None:
            raise ProblemError(
                'problem: expected a head, or head_radii, got neither; problem.with_head("mean") fits a head'
            )
        parsed = Linear() if head is None else parse_head(head)
        _, parameters = make_objective(problem, layer, parsed, loss, train_head=False, penalized=False)
        return cls(parsed, parameters)

    def excess(self, problem: Problem, index: tuple[int, ...], loss: Scalar) -> Excess:
        """The excess of the problem at this index of the batch."""
        return excess_of(self.head, {name: x[index] for name, x in self.parameters.items()}, problem, loss)
