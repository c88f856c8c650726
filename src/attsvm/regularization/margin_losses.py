"""Margins y h(o) of a fixed prediction head h, and losses of the margin in logarithms, in NumPy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_expit

from attsvm._utils.jax_devices import check_process
from attsvm.heads import Head, Linear
from attsvm.losses import EXPONENTIAL, LINEAR, LOGISTIC, OutputLoss


@dataclass(frozen=True, eq=False)
class HeadFunction:
    """h(o) of single pooled tokens.

    :ref:`Provisional <provisional>`: it may change in any minor version.

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
        return self._evaluated(_compile_head(self.head).values, pooled)

    def gradients(self, pooled: np.ndarray) -> np.ndarray:
        """∇h(o), shape (M, d)."""
        return self._evaluated(_compile_head(self.head).gradients, pooled)

    def hessians(self, pooled: np.ndarray) -> np.ndarray:
        """∇²h(o), shape (M, d, d)."""
        return self._evaluated(_compile_head(self.head).hessians, pooled)

    def _evaluated(self, function: Callable[..., jax.Array], pooled: np.ndarray) -> np.ndarray:
        check_process()
        with jax.enable_x64(True):
            parameters = {name: np.asarray(x, dtype=np.float64)[..., None] for name, x in self.parameters.items()}
            return np.asarray(function(parameters, np.asarray(pooled, dtype=np.float64)), dtype=np.float64)


@dataclass(frozen=True)
class _Compiled:
    values: Callable[..., jax.Array]
    gradients: Callable[..., jax.Array]
    hessians: Callable[..., jax.Array]


@cache
def _compile_head(head: Head) -> _Compiled:
    def one(parameters: dict[str, Any], pooled: jax.Array) -> jax.Array:
        return head.outputs(parameters, pooled[None, None, :, None])[0, 0, 0]

    def vectorise(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        return jax.jit(jax.vmap(function, (None, 0)))

    def all_at_once(parameters: dict[str, Any], pooled: jax.Array) -> jax.Array:
        return head.outputs(parameters, pooled[:, None, :, None])[:, 0, 0]

    def gradients(parameters: dict[str, Any], pooled: jax.Array) -> jax.Array:
        # h acts on each pooled token alone, so that the gradient of the sum has that of each in its row
        (pulled,) = jax.vjp(lambda o: all_at_once(parameters, o), pooled)[1](jnp.ones(len(pooled)))
        return jnp.asarray(pulled)

    return _Compiled(
        jax.jit(all_at_once), jax.jit(gradients), vectorise(jax.jacrev(jax.grad(one, argnums=1), argnums=1))
    )


@dataclass(frozen=True, eq=False)
class LinearFunction:
    """h(o) = v'o, without JAX."""

    v: np.ndarray  # shape (d,)

    def values(self, pooled: np.ndarray) -> np.ndarray:
        return np.asarray(pooled @ self.v)

    def gradients(self, pooled: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.v, pooled.shape)


def function_of(head: Head, parameters: Mapping[str, np.ndarray]) -> HeadFunction | LinearFunction:
    """A prediction head with the parameters of one problem, as a function of pooled tokens."""
    return LinearFunction(parameters["v"]) if isinstance(head, Linear) else HeadFunction(head, parameters)


# a logistic slope over an interval of this half-length is a polynomial of degree 31, up to rounding
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_SHORT = 2.0
"""Over a longer interval the difference of two values has no cancellation to speak of."""


@dataclass(frozen=True)
class Scalar:
    """A decreasing loss ℓ(m) of the margin: NumPy functions, in logarithms."""

    value: Callable[[np.ndarray], np.ndarray]
    log_value: Callable[[np.ndarray], np.ndarray] | None
    log_slope: Callable[[np.ndarray], np.ndarray]
    bend: Callable[[np.ndarray], np.ndarray]  # −d log|ℓ'| / dm

    def log_mean_slope(self, margins: np.ndarray, drops: np.ndarray) -> np.ndarray:
        """Log of the mean of |ℓ'| between m − Δ and m: the excess ℓ(m − Δ) − ℓ(m) is Δ times that."""
        slopes = self.log_slope(margins[:, None] - drops[:, None] * (1 + NODES) / 2)
        largest = slopes.max(axis=1)
        near = largest + np.log(np.exp(slopes - largest[:, None]) @ (NODE_WEIGHTS / 2))
        far = np.abs(drops) > _SHORT
        if not far.any():
            return np.asarray(near)
        # (ℓ(m − Δ) − ℓ(m))/Δ itself
        near[far] = self._log_difference(margins[far] - drops[far], margins[far]) - np.log(np.abs(drops[far]))
        return np.asarray(near)

    def _log_difference(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        if self.log_value is None:
            return np.asarray(np.log(np.abs(self.value(one) - self.value(other))))
        one, other = self.log_value(one), self.log_value(other)
        # log(e^a − e^b) = a + log(1 − e^(b − a)) for a > b
        larger = np.maximum(one, other)
        return np.asarray(larger + np.log(-np.expm1(np.minimum(one, other) - larger)))


def _log_logistic(margins: np.ndarray) -> np.ndarray:
    # log(log(1 + e^−m)) is −m to rounding once m > 37
    return np.where(margins > 37, -margins, np.log(np.logaddexp(0.0, -np.minimum(margins, 37))))


DECAY = Scalar(lambda m: np.exp(-m), np.negative, np.negative, np.ones_like)
"""exp(−m)."""
# losses with functions in closed form
_EXACT: dict[OutputLoss, Scalar] = {
    # |ℓ'| = σ(−m), and −d log σ(−m)/dm = σ(m)
    LOGISTIC: Scalar(
        lambda m: np.logaddexp(0.0, -m), _log_logistic, lambda m: log_expit(-m), lambda m: np.exp(log_expit(m))
    ),
    EXPONENTIAL: DECAY,
    LINEAR: Scalar(np.negative, None, np.zeros_like, np.zeros_like),
}


def scalar_of(loss: OutputLoss) -> Scalar:
    """A loss of the margin in NumPy: in closed form for the built-in ones, otherwise through its JAX functions."""
    return _EXACT[loss] if loss in _EXACT else _scalar_from_jax(loss)


def _scalar_from_jax(loss: OutputLoss) -> Scalar:
    def on_numpy(function: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[[np.ndarray], np.ndarray]:
        def numpy_function(margins: np.ndarray) -> np.ndarray:
            with jax.enable_x64(True):
                outputs = jnp.asarray(margins.reshape(-1, 1, 1))
                return np.asarray(function(outputs, jnp.ones_like(outputs)), dtype=np.float64).reshape(margins.shape)

        return numpy_function

    log_slope = on_numpy(lambda outputs, labels: loss.slope(outputs, labels).log_slope)

    def bend(margins: np.ndarray) -> np.ndarray:
        # a central difference, whose best step is about the cube root of the rounding unit
        return np.asarray((log_slope(margins - 1e-5) - log_slope(margins + 1e-5)) / 2e-5)

    return Scalar(on_numpy(loss.values), None, log_slope, bend)
