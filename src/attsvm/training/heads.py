# ruff: noqa: D102 (methods are documented in the protocol Head)
"""From the pooled token to the output of a query: f = h(o)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.training.contractions import contract

Array = jax.Array
Parameters = dict[str, Array]


@runtime_checkable
class Head(Protocol):
    """A head: equal heads share their compiled training, so they are hashable and hold no parameters themselves."""

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        """Parameters, each with the batch axes of the problem in front."""
        ...

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        """Outputs (n, Q, B), or (n, Q, C, B) for C classes, of pooled tokens (n, Q, d, B)."""
        ...


@dataclass(frozen=True)
class Linear:
    """h(o) = v'o, or one row of v for each class."""

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        if problem.head is None:
            raise ProblemError("problem: has no head; give it one, or pass head= to train")
        return {"v": problem.head}

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        v = parameters["v"]
        return contract("nqd,d->nq" if v.ndim == 2 else "nqd,cd->nqc", pooled, v)


@dataclass(frozen=True)
class FunctionHead:
    """Any differentiable function of the pooled token.

    Parameters
    ----------
    function : callable
        (parameters, o) ↦ f of one pooled token o (d,), written in JAX: a number for labels ±1, (C,) for classes.
    parameters : mapping of str to array, optional
        Where the head starts (``train_head=True``), or what it is.
    """

    function: Callable[[Parameters, Array], Array]
    parameters: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        arrays = {name: np.asarray(value, dtype=np.float64) for name, value in self.parameters.items()}
        return {name: np.broadcast_to(array, problem.batch_shape + array.shape) for name, array in arrays.items()}

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        num_trials = pooled.shape[-1]
        in_axes = {name: None if value.shape[-1] == 1 else -1 for name, value in parameters.items()}
        parameters = {name: value[..., 0] if value.shape[-1] == 1 else value for name, value in parameters.items()}
        over_tokens = jax.vmap(jax.vmap(self.function, (None, 0)), (None, 0))
        return jax.vmap(over_tokens, (in_axes, -1), -1, axis_size=num_trials)(parameters, pooled)
