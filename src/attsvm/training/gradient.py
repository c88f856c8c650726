"""The gradient of the training loss at given parameters."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.jax_devices import check_process, default_device
from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.heads import Linear
from attsvm.losses import parse_loss
from attsvm.problem import Problem
from attsvm.training.attention.base import Parameters, ProblemData
from attsvm.training.attention.registry import parse_attention
from attsvm.training.maps.registry import parse_map
from attsvm.training.objective import Objective
from attsvm.training.setup import mini_batches
from attsvm.training.stopping import Stopping
from attsvm.training.trials import MiniBatchSampler, TrialData


class LossGradient:
    """The mean loss and its gradient in the parameters of the attention, compiled once.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Parameters
    ----------
    problem : Problem
        With labels and a linear head.
    attention : str, optional
    loss : str, Loss or callable
        As for :func:`attsvm.train`.
    trials : int
        Trial j has problem j mod their number; by default one for each problem.
    map : str
        As for :func:`attsvm.train`.
    batch_size : int, optional
        The gradient is that of the mini-batch of a step, which :func:`attsvm.train` draws with seed 0.

    Raises
    ------
    ProblemError
        If the problem has no labels or no head, or several attention heads, or the parameters of a call have other
        names or shapes.

    See Also
    --------
    attsvm.train

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.training import LossGradient
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> gradient, log_scale = LossGradient(problem)({"W": np.zeros((1, 5, 5))})
    >>> gradient["W"].shape, log_scale.shape
    ((1, 5, 5), (1,))
    """

    def __init__(
        self,
        problem: Problem,
        attention: str | None = None,
        loss: Any = "logistic",
        trials: int | None = None,
        batch_size: int | None = None,
        map: str = "softmax",
    ) -> None:
        problem.check_one_head()
        if problem.labels is None or problem.head is None:
            raise ProblemError("problem: expected labels and a head")
        layer = parse_attention(attention, problem, None)
        self._shapes = layer.shapes(problem)
        size = int(np.prod(problem.batch_shape, dtype=np.int64)) if trials is None else trials
        self._trials = size
        objective = Objective(layer, Linear(), parse_loss(loss, problem.num_classes), map=parse_map(map))
        batches = mini_batches(batch_size, Stopping(), problem)
        with jax.enable_x64(True):
            self._evaluate = _evaluation(objective, batches, default_device())
            data = TrialData(problem, np.dtype(np.float64))
            every = np.arange(size)
            fixed = {key: data.last(x, every) for key, x in Linear().initial(problem).items()}
            # on the device once, not at each call
            self._given = jax.device_put((fixed, data.take(every), 0.0, jax.random.PRNGKey(0)))

    def __call__(
        self, parameters: Mapping[str, Float[np.ndarray, "trials ..."]], step: int = 0
    ) -> tuple[dict[str, Float[np.ndarray, "trials ..."]], Float[np.ndarray, "trials"]]:
        """The gradient with its scale taken out, so that it does not underflow.

        ``parameters``: one row for each trial. ``step``: the number of steps made, which a mini-batch depends on.

        Returns ``gradient`` (times exp(−log_scale)) and ``log_scale``.
        """
        return self.with_value(parameters, step)[1:]

    def with_value(
        self, parameters: Mapping[str, Float[np.ndarray, "trials ..."]], step: int = 0
    ) -> tuple[Float[np.ndarray, "trials"], dict[str, Float[np.ndarray, "trials ..."]], Float[np.ndarray, "trials"]]:
        """The mean loss of each trial, then what a call returns."""
        expected = {name: (self._trials, *shape) for name, shape in self._shapes.items()}
        found = {name: np.shape(x) for name, x in parameters.items()}
        if found != expected:
            raise ProblemError(f"parameters: expected shapes {expected}, got {found}")
        check_process()
        with jax.enable_x64(True):
            given = {name: np.asarray(x, np.float64) for name, x in parameters.items()}
            value, gradient, log_scale = self._evaluate(given, np.int64(step), *self._given)
            return np.asarray(value), {name: np.asarray(x) for name, x in gradient.items()}, np.asarray(log_scale)


@lru_cache(maxsize=32)
def _evaluation(
    objective: Objective, batches: MiniBatchSampler | None, device: jax.Device
) -> Callable[..., tuple[jax.Array, dict[str, jax.Array], jax.Array]]:
    """From parameters with the trials first to loss, gradient and the logarithm of its scale, for each shape."""

    def evaluate(
        parameters: Parameters,
        step: jax.Array,
        fixed: Parameters,
        data: ProblemData,
        penalty: jax.Array,
        key: jax.Array,
    ) -> Any:
        if batches is not None:
            data = batches.take(data, batches.order(key, step), step)
        last = {name: jnp.moveaxis(x, 0, -1) for name, x in parameters.items()}
        value, found = objective.evaluate(last, fixed, data, penalty)
        name, values = next(iter(last.items()))
        gradient = {name: jnp.moveaxis(x, -1, 0) for name, x in found.gradient.items()}
        return value, gradient, jnp.broadcast_to(found.logs[name], values.shape[-1])

    return jax.jit(evaluate)
