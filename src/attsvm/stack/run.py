"""The result of training a stack."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from attsvm._utils.callers import warn_caller
from attsvm._utils.extras import check_installed
from attsvm.norms import Norm, read_norm, written_norm
from attsvm.optimizers import Limit, converted, limit_field
from attsvm.results import Result, per_record, per_trial, shared, unsaved


@dataclass(frozen=True, eq=False, repr=False)
class StackRun(Result):
    """A training run of several attention layers, or a batch of runs: trials first, then the problem's batch axes.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    status : Status, or str ndarray, shape (*batch_shape,)
        As for :class:`attsvm.Run`.
    weights : dict of str to ndarray
        W of each layer, "W0" to "W<L−1>": shape (*batch_shape, d, d), and (*batch_shape, d, d_q) for the last one, with
        the axis of attention heads in front of the last two if there are several. The true weights are these times
        exp(log_scale).
    parameters : dict of str to ndarray
        What was trained: the same, or "K0", "Q0" to "K<L−1>", "Q<L−1>".
    loss : float, or ndarray, shape (*batch_shape,)
    log_scale : float, or ndarray, shape (*batch_shape,)
        As for :class:`attsvm.Run`.
    step : int, or int ndarray, shape (*batch_shape,)
        Updates made.
    history : dict of str to ndarray
        R records: ``steps`` (R,), ``loss`` and ``log_scale`` (R, *batch_shape), and the weights of each layer.
        ``logit_change`` (R, *batch_shape): the largest change of a logit in the last of those updates, over all layers,
        for the tokens that each layer sees at the end of the run; 0 at step 0.
    layers : int
        L.
    attention : str
        The parametrization of each layer, "combined" or "factored".
    optimizer : str
    norm : Norm or None
        The norm of the limit, ``limit.norm``; None if it is not known.
    limit : Limit
        The Att-SVM that each layer is expected to converge to, and what is known of the steps.
    seed : int
        The seed of the initial weights.
    dtype : str
    data_hash : str
        That of the stack: of its problem, and of how its layers are connected.
    optimizer_state, optimizer_config, batch_size, loss_name, weight_decay, live_optimizer
        As for :class:`attsvm.Run`.

    See Also
    --------
    attsvm.Stack.train : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
    >>> run = stack.train(steps=100)
    >>> run.status.value, run.weights["W0"].shape, sorted(run.history)
    ('finished', (6, 6), ['W0', 'W1', 'log_scale', 'logit_change', 'loss', 'steps'])
    """

    kind: ClassVar[str] = "stack run"
    schema: ClassVar[int] = 2

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
    limit: Limit = limit_field()
    seed: int = shared()
    dtype: str = shared()
    data_hash: str = shared()
    optimizer_state: dict[str, np.ndarray] = per_trial()
    optimizer_config: dict[str, Any] | None = shared()
    batch_size: int | str | None = shared()
    loss_name: str = shared()
    weight_decay: float | str | None = shared()
    live_optimizer: Any = unsaved()

    penalty: ClassVar[float] = 0.0
    hidden: ClassVar[tuple[str, ...]] = ("optimizer_state",)

    @classmethod
    def _read(cls, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Self:
        if meta.get("schema", 1) < 2:
            arrays, meta = _counted_from_zero(arrays, meta)
        return super()._read(arrays, converted(meta))

    @property
    def steps(self) -> int:
        """Number of updates in the trial with the most."""
        return int(np.max(self.step, initial=0))

    def plot(
        self,
        stack: Any = None,
        *,
        trial: int | Sequence[int] = (),
        sequences: Sequence[int] | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw what each position of each layer reads, and the selected path.

        Sequences are side by side, positions from left to right and layers upwards. An edge joins a position with what
        it reads: the tokens that any attention head selects for it and, with residuals, itself. The selected path is
        coloured.

        Parameters
        ----------
        stack : Stack
            That of the run.
        trial : int or sequence of int
            The index of the drawn trial on each batch axis of the run; none without batch axes.
        sequences : sequence of int, optional
            Which ones to draw; all by default.
        ax : Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes

        Raises
        ------
        ProblemError
            If the run is not one of this stack, or there is no such trial or sequence.

        See Also
        --------
        attsvm.Stack.path

        Examples
        --------
        >>> import attsvm
        >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
        >>> axes = stack.train(steps=100).plot(stack)
        >>> [label.get_text() for label in axes.get_yticklabels()]
        ['tokens of layer 0', 'tokens of layer 1', 'query']
        """
        return self._drawn(stack, trial=trial, sequences=sequences, ax=ax)

    def to_frame(self) -> Any:
        """The history as a pandas DataFrame: one row for each record and trial, in this order.

        The columns are ``loss``, ``log_scale`` and ``logit_change``. The index counts ``steps`` and the batch axes.

        Raises ProblemError if pandas is not installed.

        Examples
        --------
        >>> import attsvm
        >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
        >>> stack.train(steps=50, record=[0, 50]).to_frame().index.to_list()
        [0, 50]
        """
        check_installed("to_frame", "frames", "pandas")
        import pandas as pd

        columns = {name: np.ravel(self.history[name]) for name in ("loss", "log_scale", "logit_change")}
        return pd.DataFrame(columns, index=self._index((("steps", self.history["steps"]),)))

    def _summary(self) -> str:
        return f"{self.layers} layers, {self.optimizer}; {self.status} after {self.step:,} steps; loss {self.loss:z.3g}"

    def _batch_summary(self) -> str:
        return f"{self.layers} layers, {self.optimizer}; {self.steps:,} steps; mean loss {np.mean(self.loss):z.3g}"


def _counted_from_zero(
    arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Convert what a file of schema 1 holds, which counts layers from 1: its "W1" are the weights of layer 0."""

    def renamed(name: str) -> str:
        return re.sub(r"\b([WKQ])(\d+)$", lambda found: f"{found[1]}{int(found[2]) - 1}", name)

    moved = {renamed(name): array for name, array in arrays.items()}
    named = {name: {renamed(key): None for key in meta[name]} for name in ("weights", "parameters", "history")}
    state = {name: array for name, array in arrays.items() if name.startswith("optimizer_state/")}
    if len(state) >= meta["layers"] > 9:
        # what the optimiser has of each parameter is in the order of the names, where "W10" is before "W2"
        warn_caller(
            "optimizer_state: left out, because the file counts 10 or more layers from 1; resumed runs restart it"
        )
        moved = {name: array for name, array in moved.items() if name not in state}
        named["optimizer_state"] = {}
    return moved, {**meta, **named}
