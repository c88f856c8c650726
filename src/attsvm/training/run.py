"""The result of training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from attsvm._utils.displays import blocks_in_words
from attsvm._utils.extensions import named_by_file
from attsvm._utils.extras import check_installed
from attsvm.losses import Keeps
from attsvm.norms import Norm, read_norm, written_norm
from attsvm.optimizers import Limit, converted, limit_field
from attsvm.results import NOT_RECORDED, Result, per_record, per_trial, shared, unsaved
from attsvm.training.attention.registry import ATTENTIONS
from attsvm.training.maps.registry import parse_map


@dataclass(frozen=True, eq=False, repr=False)
class Run(Result):
    """A training run, or a batch of them: every array starts with the batch axes (trials first, then the problem's).

    With several attention heads, their axis follows the batch axes in weights, parameters, selection and probability:
    ``weights`` (*batch_shape, H, d_k, d_q), ``selected`` (*batch_shape, H, n[, Q]).

    Attributes
    ----------
    status : Status, or str ndarray, shape (*batch_shape,)
        ``finished``: all steps were made. ``converged``: a tolerance was met. ``stalled``: the gradient became exactly
        zero (for mini-batches: throughout an epoch). ``non_finite``: the next step would not be finite, and the trial
        keeps its last finite weights. ``interrupted``: stopped by Ctrl-C or by the callback.
    weights : ndarray, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k)
        The weights of the Att-SVM: W, KQ', p or Wp. The true weights are these times exp(log_scale).
    parameters : dict of str to ndarray
        "W" | "K", "Q" | "p" | "W", "p", and the parameters of the prediction head ("v" for a linear one), trained or
        not. The true values of k trained parameters of the attention are these times exp(log_scale/k). Biases are a
        block of "W"; beside "K" and "Q" they are "b", times exp(log_scale/2).
    log_scale : float, or ndarray, shape (*batch_shape,)
        0 as long as the largest entry of the weights is below about 1e153 (1e18 in float32). With normalised steps
        relative to the weights, larger weights are stored near that limit, where every softmax is saturated, and the
        rest of their scale is stored here. So their norm may exceed the range of floats.
    selected : int ndarray, shape (*batch_shape, n[, Q])
        The token with the largest logit: the lowest index on ties, the first of equal keys; -1 for padded queries.
        No selection for other functions under the sigmoid, where tokens do not compete, and if :attr:`keeps_sets`.
    probability : ndarray, shape (*batch_shape, n[, Q])
        The attention of the selected token, including tokens with the same key; 0 for padded queries. Under the
        sigmoid, the attention of the token alone.
    loss : float, or ndarray, shape (*batch_shape,)
        Mean over the unmasked queries, penalty included.
    history : dict of str to ndarray
        R records: ``steps`` (R,); ``loss`` and ``log_scale`` (R, *batch_shape), ``probability`` and ``selected`` (R,
        *batch_shape, n[, Q]), ``weights`` (R, *batch_shape, ...) and the trained parameters of the head after that many
        updates; those of the attention, too, if some of them are fixed. ``logit_change`` (R, *batch_shape): the largest
        change of a logit in the last of those updates, over all heads, queries and tokens, at most the largest float;
        0 at step 0.
    step : int, or int ndarray, shape (*batch_shape,)
        Number of updates; for a trial that stopped early, the step at which it stopped.
    precise_until : int, None, or int ndarray, shape (*batch_shape,)
        The first recorded step at which a logit exceeded 1e8. From then on, the rounding of the logits turns the run
        into a subgradient method on the margins. None if no logit did; -1 in a batch.
    attention, head, optimizer : str
        Names of the attention, of the prediction head ("linear", "quadratic", "mlp", ...) and of the optimiser.
    norm : Norm or None
        The norm of the limit, ``limit.norm``: for factored attention that of KQ', not that of the optimiser's steps.
        None if it is not known.
    limit : Limit
        The Att-SVM to which the optimiser is expected to converge with this attention; ``limit.steps`` has what is
        known about the steps. If parameters are fixed, its norm is the norm of the others.
    seed : int
        The seed of the initial weights and of the mini-batches.
    optimizer_state : dict of str to ndarray
        The leaves of the state of the optimiser, numbered, from which training resumes.
    optimizer_config : dict or None
        A description from which the optimiser can be rebuilt; None if it cannot be written to a file.
    live_optimizer : optax.GradientTransformation or None
        The optimiser itself. It is not saved.
    live_loss : OutputLoss or None
        The loss itself. It is not saved.
    fixed : tuple of str
        The parameters that kept their initial values, as given to :func:`attsvm.train`.
    keeps : Keeps
        Which tokens training with its loss keeps.
    batch_size : int or None
        Number of sequences in a step; None if each step used all. Predictions depend on this and the following fields.
        They are "not recorded" in files of version 0.2, and in runs that were continued with another value.
    penalty : float
        The factor of ‖θ‖² that was added to the loss.
    loss_name : str
        "custom" for a function or an object.
    map : str
        The map from logits to attention, as given to :func:`attsvm.train`.
    weight_decay : float or None
        The decoupled weight decay; None if it is not known, as for optax optimisers.
    start : str
        Where the initial parameters came from: "zeros", "random" (drawn with ``seed``) or "given".
    dtype : str
    data_hash : str
        The hash of the problem.
    num_biases : int
        m for a problem with biases: the last m rows and the last column of ``weights`` hold b
        (:meth:`attsvm.Problem.blocks`). 0 without them.

    See Also
    --------
    attsvm.train : Makes one.
    attsvm.predict_direction : The direction that theory predicts for it.
    attsvm.classify : The kind of its selection.
    attsvm.plot.compare : Several runs in one figure.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=2000)
    >>> run.status, run.step, run.weights.shape
    (<Status.FINISHED: 'finished'>, 2000, (5, 5))
    >>> run.selected
    array([3, 1, 0], dtype=int32)
    """

    kind: ClassVar[str] = "run"
    hidden: ClassVar[tuple[str, ...]] = ("optimizer_state",)
    equal_shapes: ClassVar[tuple[tuple[str, ...], ...]] = (("selected", "probability"),)

    weights: np.ndarray = per_trial()
    parameters: dict[str, np.ndarray] = per_trial()
    selected: np.ndarray = per_trial()
    probability: np.ndarray = per_trial()
    loss: float | np.ndarray = per_trial()
    history: dict[str, np.ndarray] = per_record()
    step: int | np.ndarray = per_trial()
    attention: str = shared()
    head: str = shared()
    optimizer: str = shared()
    norm: Norm | None = shared(write=written_norm, read=read_norm)
    limit: Limit = limit_field()
    seed: int = shared()
    precise_until: int | np.ndarray | None = per_trial(None)
    log_scale: float | np.ndarray = per_trial(0.0)
    optimizer_state: dict[str, np.ndarray] = per_trial(None)
    optimizer_config: dict[str, Any] | None = shared(None)
    live_optimizer: Any = unsaved()
    live_head: Any = unsaved()
    live_loss: Any = unsaved()
    fixed: tuple[str, ...] = shared((), read=tuple)
    keeps: Keeps = shared(Keeps.SELECTION, write=str, read=Keeps)
    batch_size: int | str | None = shared(NOT_RECORDED)
    penalty: float | str = shared(NOT_RECORDED)
    loss_name: str = shared(NOT_RECORDED)
    map: str = shared("softmax")
    weight_decay: float | str | None = shared(NOT_RECORDED)
    start: str = shared(NOT_RECORDED)
    dtype: str = shared(NOT_RECORDED)
    data_hash: str = shared(NOT_RECORDED)
    num_biases: int = shared(0)

    def __post_init__(self) -> None:
        if isinstance(self.precise_until, int | np.integer) and self.precise_until < 0:
            object.__setattr__(self, "precise_until", None)
        if self.optimizer_state is None:
            object.__setattr__(self, "optimizer_state", {})
        # files of earlier versions have no scale
        if np.ndim(self.log_scale) == 0 and np.ndim(self.loss):
            object.__setattr__(self, "log_scale", np.full(np.shape(self.loss), self.log_scale))
        if "log_scale" not in self.history:
            object.__setattr__(self, "history", {**self.history, "log_scale": np.zeros(np.shape(self.history["loss"]))})

    @classmethod
    def _read(cls, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Self:
        return super()._read(arrays, converted(meta))

    @property
    def by_sign(self) -> bool:
        """Whether its map keeps or drops each token by the sign of its logit, so that no token is selected."""
        with named_by_file():
            return parse_map(self.map).by_sign

    @property
    def keeps_sets(self) -> bool:
        """Whether its head or loss may keep several tokens of a query, and some ``probability`` is below 0.999."""
        classes = np.shape(self.parameters.get("v", ()))[len(self.batch_shape) : -1] > (2,)  # (C,), or () for labels ±1
        several = classes or self.head != "linear" or self.keeps is not Keeps.SELECTION
        return bool(several and (self.probability[self.selected >= 0] < 0.999).any())

    @property
    def steps(self) -> int:
        """Number of updates in the trial with the most."""
        return int(np.max(self.step, initial=0))

    def plot(
        self, target: Any = None, *, quantities: str | Sequence[str] | None = None, band: str = "range", ax: Any = None
    ) -> Any:
        """Draw the history against the steps.

        Parameters
        ----------
        target : Problem, Prediction, Solution, Run or ndarray, optional
            The direction that the direction error is measured to. With the problem of the run it is the predicted one.
        quantities : str or sequence of str, optional
            Of "loss", "dropped probability" (1 minus the largest probability of a query, the largest over all queries),
            "direction error" and "margin ratio" (:func:`attsvm.margin_ratio` in the norm of the prediction, for the
            final selection; the target is the problem). By default the first two, and the third with a target; on a
            single ``ax``, the last of them.
        band : {"range", "interval"}
            For a batch: "range" draws the median of the trials and their 10-90 % range; "interval" draws their mean and
            its 95 % confidence interval by Student's t.
        ax : Axes, or sequence of one Axes for each quantity, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes, or ndarray of Axes if there are several quantities

        Raises
        ------
        ProblemError
            If a quantity is unknown, or has no target that fits, or the history is empty.

        See Also
        --------
        attsvm.plot.compare : One quantity of several runs.

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
        >>> axes = attsvm.train(problem, steps=50).plot(problem)
        >>> [axis.get_ylabel() for axis in axes]
        ['loss', '1 − largest probability', 'direction error']
        """
        return self._drawn(target, quantities=quantities, band=band, ax=ax)

    def to_frame(self) -> Any:
        """The history as a pandas DataFrame: one row for each record and trial, in this order.

        The columns are ``loss``, ``log_scale``, ``logit_change``, and the lowest and the median over the queries of the
        largest probability. The index counts ``steps`` and the batch axes.

        Raises ProblemError if pandas is not installed.

        Examples
        --------
        >>> import attsvm
        >>> run = attsvm.train(attsvm.datasets.random_problem(3, 4, 5, seed=0), steps=50, record=[0, 50])
        >>> run.to_frame().index.to_list()
        [0, 50]
        """
        check_installed("to_frame", "frames", "pandas")
        import pandas as pd

        steps, largest = self.history["steps"], self.history["probability"]
        shape = (len(steps), *self.batch_shape)
        rows = np.where(self.history["selected"] >= 0, largest, np.nan)
        rows = rows.reshape(*shape, math.prod(largest.shape[len(shape) :]))
        columns = {
            **{name: x for name, x in self.history.items() if name != "steps" and x.shape == shape},
            "lowest_probability": np.nanmin(rows, axis=-1),
            "median_probability": np.nanmedian(rows, axis=-1),
        }
        return pd.DataFrame({name: np.ravel(x) for name, x in columns.items()}, index=self._index((("steps", steps),)))

    def _dimensions(self) -> dict[str, tuple[str, ...]]:
        entries = ("key_entry", "query_entry")[: 1 + ATTENTIONS.find(self.attention).takes_queries]
        heads = ("attention_head",) * (self.weights.ndim > len(self.batch_shape) + len(entries))
        queries = (*heads, "sequence", "query")
        return {"weights": (*heads, *entries), "selected": queries, "probability": queries}

    def _summary(self) -> str:
        kept = self.probability[self.selected >= 0]
        parts = [f"{self.attention}, {self.optimizer}", f"{self.status} after {self.step:,} steps"]
        parts += [f"loss {self.loss:z.3g}", f"median largest probability {np.median(kept):.6g}"]
        parts += blocks_in_words(self.weights, self.num_biases)
        if self.precise_until is not None:
            parts.append(f"logits exceed 1e8 from step {self.precise_until:,} on, where rounding affects the run")
        return "; ".join(parts)

    def _batch_summary(self) -> str:
        return f"{self.attention}, {self.optimizer}; {self.steps:,} steps; mean loss {np.mean(self.loss):z.3g}"
