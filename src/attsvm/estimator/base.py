"""The base class of the estimators of sequences: reading, training, and what is kept of a fit."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple, Self

import joblib
import numpy as np
import optax
from narwhals.dependencies import is_pandas_series
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from attsvm._utils.callers import warn_caller
from attsvm._utils.checks import check_integer
from attsvm._utils.jax_devices import on_device
from attsvm._utils.progress import Callback
from attsvm.datasets import Sequences, is_table
from attsvm.errors import ProblemError
from attsvm.estimator.coordinates import units_differ
from attsvm.estimator.fitting import FitState, begin, epoch, resumed, start, train
from attsvm.estimator.inputs import GivenSequences, check_finite, read
from attsvm.estimator.margins import MarginReport, margin_report, sample_of
from attsvm.estimator.model_file import Saveable
from attsvm.estimator.network import Network
from attsvm.estimator.ranges import check_ranges, ranges_of, warn_of_missing
from attsvm.estimator.settings import Settings, read_settings
from attsvm.estimator.task import SequenceTask, read_weights
from attsvm.estimator.token_net import fit_token_net, through
from attsvm.estimator.validation import held_out, read_groups, rows_held_out


class Learned(Saveable, BaseEstimator, ABC):
    """What a fit sets, whichever network it trains."""

    scale_: str
    ranges_: np.ndarray | None
    _tally: Any  # of the weights of a fit, or of all calls of ``partial_fit``


class FitParts(NamedTuple):
    """The task of a fit, and its parts."""

    task: SequenceTask
    training: SequenceTask
    held_out: SequenceTask | None  # what early stopping validates on; it may be other sequences
    owners: np.ndarray | None  # the group of each sequence of the task


@dataclass(eq=False, repr=False)
class SequenceEstimator(Learned):
    """A network with the conventions of scikit-learn, and the parameters that all of them have.

    A subclass says what the labels are, and adds parameters of its own, its network and its attributes. Where this
    docstring has words in braces, :func:`attsvm.estimator.shared_documentation.document` inserts those of the subclass.

    Parameters
    ----------
    optimizer : {{"adam", "mirror_descent", "gradient_descent"}}, another name, or optax transformation
        Trains {trained}. Other names are those in :mod:`attsvm.optimizers` and import paths ``package.module:name``;
        they get ``learning_rate`` and ``p`` if they have these options.
    p : float
        For mirror descent, whose potential is (1/p)‖·‖_p^p. Values near 1 make the weights sparse.
    learning_rate : float, optional
        By default {rate} for Adam, 0.1 for mirror and gradient descent, and the default of the optimiser for other
        names. Must be None for an optax transformation.
    alpha : float
        Strength of the penalty α/2n {penalty} for n training sequences, as in scikit-learn's ``MLPClassifier``.
    batch_size : int
        Number of sequences per step; fewer if their vectors take more than 32 MiB, but at least one.
    max_steps : int
    early_stopping : bool
        Hold out {part}, stop when their loss has not decreased by 1e-4 for 500 steps, and keep the parameters with the
        smallest loss. This is the default, because longer training spoils the selection. If it is off, or if {few}, the
        training objective is monitored instead, and the last parameters are kept. To hold out other sequences, use
        ``validation`` of ``fit``.
    random_state : int, RandomState or None
        Determines the validation split, the order of the batches, and the tokens drawn for ``max_instances``.
    warm_start : bool
        Continue from the parameters of the last fit.
    token_net : transformer or PyTorch module, optional
        Maps each token before {next}; it is not trained together with the {kind}. A scikit-learn transformer is fitted
        to the training tokens, without labels; for tables it gets a data frame, so that a ``ColumnTransformer`` finds
        columns by name. Without a transformer, words in tables become columns of zeros and ones. A PyTorch module is
        used in evaluation mode, so train it first; its parameters are not changed, and a copy is kept.
    scale : {{"columns", "common"}}, optional
        Tokens are centred, and divided by the spread of each column ("columns") or by one number, which keeps
        directions ("common"). The default is "columns" for tables, because each column has its own unit, and for arrays
        whose columns have spreads that differ by more than a factor of 10 (with a warning); otherwise "common".
        ``scale_`` says which was used.
    device : str, optional
        Where to train: "cpu", "gpu" or "cuda" for the first GPU, "cuda:1" for the second. By default JAX's default
        device. Predictions are computed on the CPU.
    keep_sample : bool
        Keep up to 200 training sequences, for ``margin_report``. By default, a fitted {kind} and its pickle contain no
        training data, except the landmarks of an ensemble.
    max_instances : int, optional
        Largest number of tokens of a sequence in a training step. From a longer sequence, this many tokens are drawn
        again for each step, without replacement, with ``random_state``. By default all tokens are used; validation and
        prediction always use all.

    Attributes
    ----------
    n_features_in_ : int
        d.
    scale_ : str
        "columns" or "common".
    ranges_ : ndarray, shape (d, 2), or None
        The smallest and the largest number of each column among at most 10,000 training tokens; NaN for words. A
        prediction refuses tokens that seem to be in another unit: if more than half of them, and at least 20, are far
        from the range in a column (beyond it by ten times its length or, for numbers of one sign, ten times nearer to
        zero). With None, ranges are not compared.
    n_iter_ : int
        Number of steps made.
    kept_step_ : int
        The step whose parameters were kept.
    status_ : Status
        ``converged``: the loss no longer decreased. ``finished``: all ``max_steps`` were made. ``interrupted``: the
        callback returned True.
    """

    optimizer: str | optax.GradientTransformation = "adam"
    _: KW_ONLY
    p: float = 2.0
    learning_rate: float | None = None
    alpha: float = 10.0
    batch_size: int = 256
    max_steps: int = 5000
    early_stopping: bool = True
    random_state: Any = None
    warm_start: bool = False
    token_net: Any = None
    scale: str | None = None
    device: str | None = None
    keep_sample: bool = False
    max_instances: int | None = None

    @abstractmethod
    def _network(self) -> Network:
        """The network, from the parameters."""

    @abstractmethod
    def _publish(self, model: Any) -> None:
        """Set the fitted attributes."""

    @abstractmethod
    def _output(self, sequences: Sequences) -> np.ndarray:
        """Outputs (n, C); for two classes C = 1, large for the positive one."""

    @abstractmethod
    def _token_outputs(self, sequences: Sequences) -> np.ndarray:
        """Outputs for each token, (N, C); for two classes C = 1, large for the positive one."""

    @abstractmethod
    def _read_labels(self, y: Any, given: GivenSequences) -> np.ndarray:
        """The labels (n,) in the order of the sequences.

        Raises ProblemError or ValueError if there is not one for each sequence.
        """

    @abstractmethod
    def _own_task(self, given: GivenSequences, labels: np.ndarray) -> SequenceTask:
        """Sequences to validate on, with what the fit has learned of its labels."""

    @abstractmethod
    def _warn_of_chance(self) -> None:
        """Warn if the last fit predicts validation sequences hardly better than a constant does."""

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        if isinstance(self.optimizer, str):
            return state
        # functions of optax are local, and pickle finds functions by name
        return {**state, "optimizer": joblib.wrap_non_picklable_objects(self.optimizer, keep_wrapper=False)}

    def __sklearn_tags__(self) -> Any:
        """Tags of the estimator for scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    @abstractmethod
    def _task(
        self, given: GivenSequences, labels: np.ndarray, weights: np.ndarray, before: Any, continues: str, classes: Any
    ) -> tuple[SequenceTask, Any]:
        """The task without sequences of weight 0, and the tally of weights with it.

        ``before``: the tally of the calls before; None if there are none. ``continues``: by what a fit goes on, if it
        does. ``classes``: of a call of ``partial_fit``.
        """

    def _given(
        self, X: Any, y: Any, sample_weight: Any, bag: str | int | None, *, reset: bool
    ) -> tuple[GivenSequences, np.ndarray, np.ndarray | None]:
        given = read(self, X, reset=reset, bag=bag)
        labels = self._read_labels(y, given)
        return given, labels, None if sample_weight is None else given.align("sample_weight", sample_weight)

    def _compared(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Sequences, np.ndarray, np.ndarray | None]:
        """Sequences for the network, with the labels and weights that its outputs are compared with."""
        check_is_fitted(self)
        given, labels, weights = self._given(X, y, sample_weight, self._bag(X), reset=False)
        return self._mapped(given), labels, weights

    def _fit(self, *data: Any, validation: Any, groups: Any, callback: Callback | None) -> Self:
        """Read and train; the arguments are those of ``fit``."""
        settings = read_settings(self, callback)
        continues = self.warm_start and hasattr(self, "_state")
        given, task, kept, self._tally = self._read_task(*data, continues="warm_start" * continues)
        generator = check_random_state(self.random_state)
        parts = self._parts(task, kept, given, validation, groups, generator)
        return self._train(parts, settings, generator, continues=continues)

    def _fit_chunk(self, *data: Any, num_sequences: int | None, classes: Any = None) -> Self:
        """Make one pass; the arguments are those of ``partial_fit``."""
        settings = read_settings(self)
        size = None if num_sequences is None else check_integer("num_sequences", num_sequences, 1)
        continues = hasattr(self, "_state")
        given, task, _, after = self._read_task(*data, continues="partial_fit" * continues, classes=classes)
        size = len(given.sequences) if size is None else size
        generator = check_random_state(self.random_state)
        with on_device(settings.device):
            begun = resumed(self._state, settings.optimizer) if continues else self._start(task, generator)
            *_, (state, _) = epoch(replace(begun, num_sequences=size), task, settings, generator)
        self._keep(state, task.sequences, generator)
        self._tally = after
        return self

    def _read_task(
        self, X: Any, y: Any, sample_weight: Any, bag: Any, *, continues: str, classes: Any = None
    ) -> tuple[GivenSequences, SequenceTask, np.ndarray, Any]:
        """What was given, the task, its sequences among all, and the tally with it."""
        before = None
        if continues == "partial_fit":
            bag, before = self._bag_of_chunk(bag), self._tally
        given, labels, weights = self._given(X, y, sample_weight, bag, reset=not continues)
        weights = read_weights(weights, labels)
        task, tally = self._task(given, labels, weights, before, continues, classes)
        self.bag_ = bag
        self.ranges_ = ranges_of(given.sequences, getattr(self, "ranges_", None) if continues else None)
        return given, task, np.flatnonzero(weights), tally

    def _train(self, parts: FitParts, settings: Settings, generator: np.random.RandomState, *, continues: bool) -> Self:
        with on_device(settings.device):
            state = begin(self._state, settings.optimizer) if continues else self._start(parts.training, generator)
            fitted = train(state, parts.training, parts.held_out, settings, generator)
        self.status_, self.kept_step_, self.history_ = fitted.status, fitted.kept_step, fitted.history
        self._path = fitted.path
        return self._keep(fitted.state, parts.task.sequences, generator)

    def _bag_of_chunk(self, bag: str | int | None) -> str | int | None:
        """The column of a later call of ``partial_fit``, which is that of the first one."""
        first: str | int | None = self.bag_
        if bag not in (None, first):
            raise ProblemError(f"bag: expected {first!r}, as before, got {bag!r}")
        return first

    def _parts(
        self,
        task: SequenceTask,
        kept: np.ndarray,
        given: GivenSequences,
        validation: Any,
        groups: Any,
        generator: np.random.RandomState,
    ) -> FitParts:
        """What is trained on, and what early stopping validates on; ``kept``: the sequences of the task among all."""
        owners = None if groups is None else read_groups(given.align("groups", groups), len(given.sequences))[kept]
        if not self.early_stopping:
            if validation is not None:
                raise ProblemError("validation: expected None with early_stopping=False")
            return FitParts(task, task, None, owners)
        if isinstance(validation, tuple):
            return FitParts(task, task, self._own_part(validation), owners)
        is_share = validation is None or bool(np.isscalar(validation))
        if is_share:
            chosen = held_out(task, validation, owners, generator)
            if validation is not None and not chosen.any():
                what = "sequences" if owners is None else "groups"
                raise ProblemError(
                    f"validation: expected a share for which some {what} can be held out, got {validation}"
                )
        else:
            if is_pandas_series(validation) and validation.dtype == bool:  # a mask, found by the names of bags
                validation = given.align("validation", validation)
            chosen = rows_held_out(validation, given.names, len(given.sequences))[kept]
            left = np.bincount(task.strata[~chosen], minlength=task.num_required)[: task.num_required]
            if groups is not None or not left.all():
                raise ProblemError(
                    f"validation: expected some {task.required} outside of it, and a share or None beside groups"
                )
        if not chosen.any():
            return FitParts(task, task, None, owners)
        return FitParts(task, task[np.flatnonzero(~chosen)], task[np.flatnonzero(chosen)], owners)

    def _own_part(self, own: tuple[Any, ...]) -> SequenceTask:
        if len(own) != 2:
            raise ProblemError("validation: expected a tuple of sequences and labels")
        given, labels, _ = self._given(*own, None, self._bag(own[0]), reset=False)
        return self._own_task(given, labels)

    def _read(self, X: Any) -> GivenSequences:
        check_is_fitted(self)
        return read(self, X, reset=False, bag=self._bag(X))

    def _bag(self, X: Any) -> str | int | None:
        # a table may have been meant only where the fit had one; arrays are read as they are
        return self.bag_ if is_table(X) else None

    def _mapped(self, given: GivenSequences) -> Sequences:
        """The tokens for the network, in the units of the fit."""
        ranges = getattr(self, "ranges_", None)
        if ranges is not None:
            check_ranges(given.sequences, ranges, getattr(self, "feature_names_in_", None))
            if self.token_net is not None:  # which may fill
                warn_of_missing(given.sequences, ranges, getattr(self, "feature_names_in_", None))
        return self._through_net(given, fit=False)

    def _through_net(self, given: GivenSequences, *, fit: bool) -> Sequences:
        """The tokens for the network; ``fit``: fits ``token_net_`` to them."""
        if self.token_net is None:
            check_finite("X", given, getattr(self, "feature_names_in_", None))
            if not given.sequences.words:
                return given.sequences
        if fit:
            self.token_net_ = fit_token_net(self.token_net, given.sequences, given.table)
        mapped = through(self.token_net_, given.sequences, given.table)
        if self.token_net is not None:
            check_finite("token_net", replace(given, sequences=mapped))
        return mapped

    def _start(self, task: SequenceTask, generator: np.random.RandomState) -> FitState:
        self.scale_ = self.scale or self._usual_scale(task.sequences)
        by_column = self.scale_ == "columns"
        return start(self._network(), task, read_settings(self).optimizer, generator, by_column)

    def _usual_scale(self, sequences: Sequences) -> str:
        if hasattr(self, "feature_names_in_"):
            return "columns"
        if not units_differ(sequences):
            return "common"
        warn_caller(
            "X: the spreads of the columns differ by more than a factor of 10, so each column is divided by its own "
            "spread, as with scale='columns'; scale='common' divides all columns by one number"
        )
        return "columns"

    def _keep(self, state: FitState, sequences: Sequences, generator: np.random.RandomState) -> Self:
        self._state = state
        self._sample = sample_of(sequences, generator) if self.keep_sample else None
        self._publish(state.model)
        self.n_iter_ = state.steps
        return self

    def _margins(self, name: str, at: Any, X: Any, slack: float | None, max_sequences: int) -> MarginReport:
        """The report on one prompt, the row ``at`` of these parameters."""
        check_is_fitted(self)
        sequences = self._sample if X is None else self._mapped(self._read(X))
        if sequences is None:
            raise ProblemError("X: expected sequences, because the fit kept none; it does so with keep_sample=True")
        self._warn_of_chance()
        sequences = sample_of(sequences, check_random_state(self.random_state), max_sequences)
        prompt = np.asarray(self._state.average[name][at], dtype=np.float64)
        return margin_report(prompt, self._state.coordinates, sequences, read_settings(self).norm, slack)
