# ruff: noqa: D102 (methods are documented in the protocol OutputLoss)
"""Losses of a margin, and of class scores, with slopes that do not underflow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from attsvm.errors import ProblemError

Array = jax.Array


class Slope(NamedTuple):
    """∂ℓ/∂f = direction · exp(log_slope), for each query."""

    direction: Array  # shape of the outputs: (n, Q, B) or (n, Q, C, B)
    log_slope: Array  # (n, Q, B)


class OutputLoss(Protocol):
    """A loss of the head's outputs and the labels."""

    def values(self, outputs: Array, labels: Array) -> Array:
        """ℓ of each query, shape (n, Q, B)."""
        ...

    def slope(self, outputs: Array, labels: Array) -> Slope:
        """Its derivative with respect to the outputs, as direction and logarithm."""
        ...


@dataclass(frozen=True)
class Loss:
    """A loss ℓ(m) of the margin m = y f, for labels ±1, that falls as m grows.

    Parameters
    ----------
    value : callable
        m ↦ ℓ(m), elementwise, of JAX arrays.
    log_slope : callable
        m ↦ log|ℓ'(m)|, elementwise: what keeps training exact after ℓ' itself has underflowed. −inf where ℓ' = 0.
    name : str, optional
    """

    value: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]
    name: str = "loss"

    def values(self, outputs: Array, labels: Array) -> Array:
        return self.value(labels * outputs)

    def slope(self, outputs: Array, labels: Array) -> Slope:
        return Slope(-labels, self.log_slope(labels * outputs))


@dataclass(frozen=True)
class Differentiated:
    """Any loss of the margin, differentiated as written: a slope that underflows is an honest zero."""

    value: Callable[[Array], Array]

    @property
    def name(self) -> str:
        return getattr(self.value, "__name__", "loss")

    def values(self, outputs: Array, labels: Array) -> Array:
        return self.value(labels * outputs)

    def slope(self, outputs: Array, labels: Array) -> Slope:
        margins = labels * outputs
        _, derivative = jax.jvp(self.value, (margins,), (jnp.ones_like(margins),))
        return Slope(labels * jnp.sign(derivative), jnp.log(jnp.abs(derivative)))


@dataclass(frozen=True)
class CrossEntropy:
    """−log softmax(f)_y of class scores f, for labels 0..C−1."""

    name: str = "cross_entropy"

    def values(self, outputs: Array, labels: Array) -> Array:
        return self._gap(outputs, labels)[1]

    def slope(self, outputs: Array, labels: Array) -> Slope:
        # softmax(f) − onehot(y) = (1 − softmax_y) · (softmax over the others − onehot(y)), without cancellation
        others, value = self._gap(outputs, labels)
        wrong = others - jax.nn.logsumexp(others, axis=2, keepdims=True)
        direction = jnp.where(jnp.isneginf(others), -1.0, jnp.exp(wrong))
        return Slope(direction, jax.nn.logsumexp(others, axis=2) - value)

    @staticmethod
    def _gap(outputs: Array, labels: Array) -> tuple[Array, Array]:
        """f_c − f_y for the wrong classes (−inf for the right one), and the loss log(1 + Σ exp(f_c − f_y))."""
        classes = jax.lax.broadcasted_iota(jnp.int32, (1, 1, outputs.shape[2], 1), 2)
        right = classes == labels[:, :, None]
        own = jnp.sum(jnp.where(right, outputs, 0.0), axis=2, keepdims=True)
        others = jnp.where(right, -jnp.inf, outputs - own)
        return others, jax.nn.softplus(jax.nn.logsumexp(others, axis=2))


def _logistic(margins: Array) -> Array:
    return jax.nn.softplus(-margins)


def _log_logistic_slope(margins: Array) -> Array:
    return -jax.nn.softplus(margins)


def _exponential(margins: Array) -> Array:
    return jnp.exp(-margins)


_LINEAR = Loss(jnp.negative, jnp.zeros_like, "linear")

LOSSES: dict[str, OutputLoss] = {
    "logistic": Loss(_logistic, _log_logistic_slope, "logistic"),
    "exponential": Loss(_exponential, jnp.negative, "exponential"),
    "linear": _LINEAR,
    "correlation": _LINEAR,
    "cross_entropy": CrossEntropy(),
}
"""By name; of m = y f, log(1 + e^−m), e^−m and −m (which the papers also call the correlation loss); of class scores,
−log softmax(f)_y. The gradient of none of them underflows."""


def parse_loss(loss: "str | Loss | Callable[[Array], Array]", num_classes: int | None) -> OutputLoss:
    """Read a loss: a name, a :class:`Loss`, or a callable m ↦ ℓ(m).

    Raises
    ------
    ProblemError
        If the name is unknown, or the loss does not fit the labels.
    """
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise ProblemError(f"loss: {loss!r} found, one of {', '.join(LOSSES)} wanted, or a Loss or a callable")
        parsed = LOSSES[loss]
    elif isinstance(loss, Loss | CrossEntropy):
        parsed = loss
    elif callable(loss):
        parsed = Differentiated(loss)
    else:
        raise ProblemError(f"loss: {type(loss).__name__} found, a name, a Loss or a callable wanted")
    if isinstance(parsed, CrossEntropy) == (num_classes is None):
        wanted = "labels ±1 take a loss of the margin" if num_classes is None else 'class numbers take "cross_entropy"'
        raise ProblemError(f"loss: does not fit the labels: {wanted}")
    return parsed
