"""Prediction heads of single pooled tokens, with their derivatives in NumPy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.jax_devices import check_process
from attsvm.heads import Head, Linear

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
