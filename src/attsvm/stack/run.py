"""The result of training a stack."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm.norms import Norm, read_norm, written_norm
from attsvm.optimizers import Limit
from attsvm.optimizers.limit import read_limit, written_limit
from attsvm.results import Result, per_record, per_trial, shared


@dataclass(frozen=True, eq=False, repr=False)
class StackRun(Result):
    """A training run of several attention layers, or a batch of runs: trials first, then the problem's batch axes.

    Attributes
    ----------
    status : Status, or str ndarray, shape (*batch_shape,)
        As for :class:`attsvm.Run`.
    weights : dict of str to ndarray
        W of each layer, "W1" to "W<L>": shape (*batch_shape, d, d), and (*batch_shape, d, d_q) for the last one, with
        the axis of attention heads in front of the last two if there are several. The true weights are these times
        exp(log_scale).
    parameters : dict of str to ndarray
        What was trained: the same, or "K1", "Q1" to "K<L>", "Q<L>".
    loss : float, or ndarray, shape (*batch_shape,)
    log_scale : float, or ndarray, shape (*batch_shape,)
        As for :class:`attsvm.Run`.
    step : int, or int ndarray, shape (*batch_shape,)
        Updates made.
    history : dict of str to ndarray
        R records: ``steps`` (R,), ``loss`` and ``log_scale`` (R, *batch_shape), and the weights of each layer.
    layers : int
        L.
    attention : str
        The parametrization of each layer, "combined" or "factored".
    optimizer : str
    norm : Norm or None
        The norm of the optimizer; None if it is not known.
    limit : Limit
        The Att-SVM that each layer is expected to converge to.
    seed : int
        The seed of the initial weights.
    dtype : str
    data_hash : str
        That of the stack: of its problem, and of how its layers are connected.

    See Also
    --------
    attsvm.Stack.train : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
    >>> run = stack.train(steps=100)
    >>> run.status.value, run.weights["W1"].shape, sorted(run.history)
    ('finished', (6, 6), ['W1', 'W2', 'log_scale', 'loss', 'steps'])
    """

    kind: ClassVar[str] = "stack run"

    weights: dict[str, np.ndarray] = per_trial()
    parameters: dict[str, np.ndarray] = per_trial()
    loss: float | np.ndarray = per_trial()
    log_scale: float | np.ndarray = per_trial()
    step: int | np.ndarray = per_trial()
    history: dict[str, np.ndarray] = per_record()
    layers: int = shared()
    attention: str = shared()
    optimizer: str = shared()
    norm: Norm | None = shared(write=written_norm, read=read_norm)
    limit: Limit = shared(write=written_limit, read=read_limit)
    seed: int = shared()
    dtype: str = shared()
    data_hash: str = shared()

    @property
    def steps(self) -> int:
        """Updates made by the trial that made most."""
        return int(np.max(self.step, initial=0))

    def _summary(self) -> str:
        return f"{self.layers} layers, {self.optimizer}; {self.status} after {self.step:,} steps; loss {self.loss:.3g}"

    def _batch_summary(self) -> str:
        return f"{self.layers} layers, {self.optimizer}; {self.steps:,} steps; mean loss {np.mean(self.loss):.3g}"

    def weights_of(self, layer: int) -> Any:
        """W of a layer, which count from 1."""
        return self.weights[f"W{layer}"]
