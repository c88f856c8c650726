"""Any function of the pooled token as a head."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import jax
import numpy as np
import numpy.typing as npt

from attsvm.heads.arguments import finite_array
from attsvm.heads.base import Head, Parameters
from attsvm.problem import Problem

Array = jax.Array


@dataclass(frozen=True)
class FunctionHead(Head):
    """Any differentiable function of the pooled token.

    Parameters
    ----------
    function : callable
        (parameters, o) ↦ f of one pooled token o (d,), written in JAX: a number for labels ±1, (C,) for classes.
    parameters : mapping of str to array, optional
        The parameters, which are the initial ones if ``train_head=True``; shared by all problems of a batch.
    defined_everywhere : bool
        Whether outputs and their derivatives are finite for all finite parameters and pooled tokens. Otherwise each
        step checks that they are.

    Raises
    ------
    ProblemError
        In training, if a parameter is no finite array, or has a name that the attention or the history uses.

    See Also
    --------
    attsvm.heads.Head, attsvm.heads.MLP

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from attsvm.heads import FunctionHead
    >>> head = FunctionHead(lambda parameters, o: jnp.tanh(parameters["a"] @ o), {"a": [1.0, 0.0, 2.0]})
    >>> head.name
    'function'
    """

    function: Callable[[Parameters, Array], Array]
    parameters: Mapping[str, npt.ArrayLike] = field(default_factory=dict, compare=False, hash=False)
    defined_everywhere: bool = False

    name = "function"

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        """The parameters, with the batch axes of the problem."""
        arrays = {name: finite_array(name, value) for name, value in self.parameters.items()}
        return {name: np.broadcast_to(array, problem.batch_shape + array.shape) for name, array in arrays.items()}

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        """The function of each pooled token."""
        num_trials = pooled.shape[-1]
        in_axes = {name: None if value.shape[-1] == 1 else -1 for name, value in parameters.items()}
        parameters = {name: value[..., 0] if value.shape[-1] == 1 else value for name, value in parameters.items()}
        over_tokens = jax.vmap(jax.vmap(self.function, (None, 0)), (None, 0))
        return jax.vmap(over_tokens, (in_axes, -1), -1, axis_size=num_trials)(parameters, pooled)
