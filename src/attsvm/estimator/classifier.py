"""Prompt attention as a scikit-learn classifier."""

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import optax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d

from attsvm.errors import ProblemError
from attsvm.estimator.fitting import Settings, State, Task, begin, epoch, named_optimizer, start, train
from attsvm.estimator.forward import Model, forward
from attsvm.estimator.inputs import Given, read
from attsvm.estimator.margins import MarginReport, margin_report, sample_of

LEARNING_RATES = {"adam": 0.01, "mirror_descent": 0.1, "gradient_descent": 0.1}
"""By optimiser, where none is given."""


class AttentionClassifier(ClassifierMixin, BaseEstimator):
    """Prompt attention with a linear head, f(X) = V X' softmax(X p) + b, for sequences, bags and sets.

    A sequence is a matrix (T_i, d), one row a token; the order of its tokens does not matter. One prompt p weighs the
    tokens, the weighted mean is classified by the head V: logistic loss for two classes, cross-entropy for more.

    Parameters
    ----------
    optimizer : {"adam", "mirror_descent", "gradient_descent"} or optax transformation
        What prompt, head and intercept are trained by. ``attsvm.optimizers`` has more.
    p : float
        Of mirror descent: its potential is (1/p)‖·‖_p^p; near 1 makes weights sparse.
    learning_rate : float, optional
        None takes 0.01 for Adam and 0.1 for the others. An optax transformation brings its own.
    alpha : float
        Strength of the penalty α/2n (‖p‖² + ‖V‖²) for n training sequences, as that of scikit-learn's
        ``MLPClassifier``. 0 trains towards the limit that theory speaks of.
    batch_size : int
        Sequences of a step.
    max_steps : int
    early_stopping : bool
        Set ``validation_fraction`` of each class apart, stop once their loss no longer falls, and keep the parameters
        of the least. On by default: training on spoils the selection. Off, and where no class can spare a sequence,
        the training objective is watched, and the last parameters are kept.
    validation_fraction : float
        In (0, 1).
    n_iter_no_change : int
        Stop once the loss has not fallen by ``tol`` for so many steps.
    tol : float
    class_weight : dict, "balanced" or None
        Weights of the classes in the loss.
    random_state : int, RandomState or None
        Of the validation split and the order of the batches.
    warm_start : bool
        Go on from the parameters of the last fit.
    verbose : bool
        Print a line of the history as it is written.

    Attributes
    ----------
    prompt_ : ndarray, shape (d,)
    head_ : ndarray, shape (C, d), or (1, d) for two classes
    intercept_ : ndarray, shape (C,), or (1,) for two classes
    classes_ : ndarray, shape (C,)
    n_features_in_ : int
        d.
    n_iter_ : int
        Steps taken.
    kept_step_ : int
        The step whose parameters were kept.
    status_ : {"converged", "max_steps", "interrupted"}
        Why training ended.
    history_ : dict of str to list
        Every 25 steps: ``steps``; ``objective``, its mean since the last; ``validation_loss``, ``validation_accuracy``
        (with early stopping); ``effective_low``, ``effective_median`` and ``effective_high``, quantiles at 10, 50 and
        90 % of the effective number of tokens exp(−Σ a log a) over the validation sequences, or over at most 1,000
        training sequences.

    Notes
    -----
    What is kept, validated and predicts is the average of the parameters over about the last 100 steps: single steps
    move to and fro with their batches.

    It is trained in float32 where the tokens are, else in float64. Tokens are centred, and divided by one number,
    first; neither changes a direction, and fitted attributes are those of tokens as they were given.

    Examples
    --------
    >>> import attsvm
    >>> bags = attsvm.datasets.digit_bags(seed=0)
    >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
    >>> float(classifier.score(bags.test, bags.test_labels)) > 0.85
    True
    """

    classes_: np.ndarray

    def __init__(
        self,
        optimizer: str | optax.GradientTransformation = "adam",
        *,
        p: float = 2.0,
        learning_rate: float | None = None,
        alpha: float = 10.0,
        batch_size: int = 256,
        max_steps: int = 5000,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 500,
        tol: float = 1e-4,
        class_weight: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.optimizer = optimizer
        self.p = p
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.class_weight = class_weight
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        mask: Any = None,
        callback: Callable[[dict[str, float]], Any] | None = None,
    ) -> "AttentionClassifier":
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of n arrays (T_i, d), :class:`attsvm.datasets.Sequences`, array (n, T, d), or array (n, d)
            Rows of an array (n, d) are sequences of one token.
        y : array, shape (n,)
            At least two different labels.
        sample_weight : array, shape (n,), optional
            Weights in the loss; a sequence of weight 0 takes no part.
        mask : bool array, shape (n, T), optional
            With an array (n, T, d): False for padding.
        callback : callable, optional
            Called with each new line of the history, a dict; a true return value ends training.

        Returns
        -------
        AttentionClassifier
            Itself.

        Raises
        ------
        ProblemError
            If an argument does not fit, a sequence has no token, there is only one class, or training diverges.
        """
        optimizer = self._check()
        going_on = self.warm_start and hasattr(self, "_state")
        given = self._read(X, mask, reset=not going_on)
        labels = self._labels(y, len(given.sequences))
        classes = np.unique(labels)
        if going_on and not np.array_equal(classes, self.classes_):
            raise ProblemError(f"y: classes {_listed(classes)} found, {_listed(self.classes_)} wanted with warm_start")
        self.classes_ = classes
        task = self._task(given, labels, sample_weight)
        generator = check_random_state(self.random_state)
        training, validation = self._split(task, generator)
        state = begin(self._state, optimizer) if going_on else start(training, optimizer)
        fitted = train(state, training, validation, self._settings(optimizer, callback), generator)
        self.status_, self.kept_step_, self.history_ = fitted.status, fitted.kept_step, fitted.history
        self._sample = sample_of(task.sequences, generator)
        return self._keep(fitted.state)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, mask: Any = None
    ) -> "AttentionClassifier":
        """One pass over some more sequences, a step a batch; nothing is set apart for validation.

        Parameters
        ----------
        X, y, sample_weight, mask
            As for :meth:`fit`. The first call also fixes the centre and scale of the tokens.
        classes : array, optional
            Every label that will ever come; needed in the first call if ``y`` does not hold them all.

        Returns
        -------
        AttentionClassifier
            Itself.

        Raises
        ------
        ProblemError
            If an argument does not fit, or a label is none of the classes.
        """
        optimizer = self._check()
        first = not hasattr(self, "_state")
        given = self._read(X, mask, reset=first)
        labels = self._labels(y, len(given.sequences))
        if first:
            self.classes_ = np.unique(labels if classes is None else classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ProblemError(
                f"classes: {_listed(np.unique(classes))} found, {_listed(self.classes_)} wanted as before"
            )
        task = self._task(given, labels, sample_weight)
        generator = check_random_state(self.random_state)
        begun = start(task, optimizer) if first else self._state
        begun = replace(begun, seen=begun.seen + len(task.labels))
        *_, (state, _) = epoch(begun, task, self._settings(optimizer), generator)
        self._sample = sample_of(task.sequences, generator)
        return self._keep(state)

    def decision_function(self, X: Any, *, mask: Any = None) -> np.ndarray:
        """Outputs f(X).

        Parameters
        ----------
        X, mask
            As for :meth:`fit`.

        Returns
        -------
        ndarray, shape (n,) for two classes, else (n, C)
            Of two classes, positive for the second.
        """
        decision = self._forward(X, mask)[1].decision
        return decision[:, 0] if len(self.classes_) == 2 else decision

    def predict(self, X: Any, *, mask: Any = None) -> np.ndarray:
        """The likeliest class of each sequence, shape (n,)."""
        decision = self.decision_function(X, mask=mask)
        return self.classes_[(decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)]

    def predict_proba(self, X: Any, *, mask: Any = None) -> np.ndarray:
        """Probability of each class, shape (n, C)."""
        decision = self.decision_function(X, mask=mask)
        if decision.ndim == 1:
            decision = np.column_stack([np.zeros_like(decision), decision])
        exponential = np.exp(decision - decision.max(axis=1, keepdims=True))
        return exponential / exponential.sum(axis=1, keepdims=True)

    def attention(self, X: Any, *, mask: Any = None) -> Any:
        """What each token receives; it sums to 1 in each sequence.

        Returns
        -------
        list of n arrays (T_i,); ndarray (n, T) for padded arrays, 0 for padding; (N,) for ``Sequences``, like its ids
        """
        given, output = self._forward(X, mask)
        return given.restore(output.attention)

    def selected(self, X: Any, *, mask: Any = None) -> np.ndarray:
        """Place of the most attended token of each sequence, shape (n,); the first of equals."""
        given, output = self._forward(X, mask)
        return given.positions(output.selected)

    def margin_report(
        self, X: Any = None, *, mask: Any = None, slack: float | None = None, max_sequences: int = 200
    ) -> MarginReport:
        """The Att-SVM of the tokens that the prompt selects, and how close the prompt came to it.

        Parameters
        ----------
        X, mask
            As for :meth:`fit`; None takes the 200 training sequences (or fewer) that a fit keeps for this.
        slack : float, optional
            C of the soft margin. None solves the hard one, and the soft one with C = 1 only where there is none.
        max_sequences : int
            Of more sequences, so many are drawn with ``random_state``.

        Returns
        -------
        MarginReport
        """
        check_is_fitted(self)
        sequences = self._sample if X is None else self._read(X, mask, reset=False).sequences
        sequences = sample_of(sequences, check_random_state(self.random_state), max_sequences)
        return margin_report(self._state, sequences, self._check(), slack)

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks about an estimator."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _check(self) -> optax.GradientTransformation:
        """See that the parameters are what they should be; the optimiser."""
        wanted: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
            "alpha": (Real, lambda x: 0 <= x < np.inf, "a number of at least 0"),
            "batch_size": (Integral, lambda x: x >= 1, "a whole number of at least 1"),
            "max_steps": (Integral, lambda x: x >= 1, "a whole number of at least 1"),
            "validation_fraction": (Real, lambda x: 0 < x < 1, "a number between 0 and 1"),
            "n_iter_no_change": (Integral, lambda x: x >= 1, "a whole number of at least 1"),
            "tol": (Real, lambda x: 0 <= x < np.inf, "a number of at least 0"),
            "p": (Real, lambda x: 1 < x < np.inf, "a number above 1"),
        }
        for name, (kind, fits, description) in wanted.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool) or not fits(value):
                raise ProblemError(f"{name}: {value!r} found, {description} wanted")
        rate = self.learning_rate
        if rate is not None and not (isinstance(rate, Real) and 0 < rate < np.inf):
            raise ProblemError(f"learning_rate: {rate!r} found, a positive number or None wanted")
        if isinstance(self.optimizer, optax.GradientTransformation):
            if rate is not None:
                raise ProblemError(f"learning_rate: {rate!r} found beside an optimiser that has its own; None wanted")
            return self.optimizer
        if self.optimizer not in LEARNING_RATES:
            raise ProblemError(
                f"optimizer: {self.optimizer!r} found, {', '.join(LEARNING_RATES)} or an optax transformation wanted"
            )
        return named_optimizer(self.optimizer, float(rate or LEARNING_RATES[self.optimizer]), float(self.p))

    def _settings(
        self, optimizer: optax.GradientTransformation, callback: Callable[[dict[str, float]], Any] | None = None
    ) -> Settings:
        return Settings(
            optimizer=optimizer,
            alpha=float(self.alpha),
            batch_size=int(self.batch_size),
            max_steps=int(self.max_steps),
            tol=float(self.tol),
            n_iter_no_change=int(self.n_iter_no_change),
            callback=callback,
            verbose=bool(self.verbose),
        )

    def _read(self, X: Any, mask: Any, *, reset: bool) -> Given:
        return read(self, X, mask, reset=reset)

    def _labels(self, y: Any, num_sequences: int) -> np.ndarray:
        if y is None:
            raise ProblemError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        if len(labels) != num_sequences:
            raise ProblemError(f"y: {len(labels)} labels found, {num_sequences} wanted, one a sequence")
        return labels

    def _task(self, given: Given, labels: np.ndarray, sample_weight: Any) -> Task:
        """Sequences, class numbers and weights; a :class:`ProblemError` where there is nothing to tell apart."""
        if len(self.classes_) < 2:
            raise ProblemError(f"y: one class found ({_listed(self.classes_)}), at least two classes wanted")
        numbers = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[numbers] != labels
        if unknown.any():
            raise ProblemError(
                f"y: label {labels[unknown].tolist()[0]!r} found, one of {_listed(self.classes_)} wanted"
            )
        weights = np.array(_check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True))
        if self.class_weight is not None:
            of_class = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
            weights *= of_class[numbers]
        task = Task(given.sequences, numbers, weights, len(self.classes_))
        if not weights.any():
            raise ProblemError("sample_weight: all weights are zero; at least one positive weight wanted")
        return task if weights.all() else task[np.flatnonzero(weights)]

    def _split(self, task: Task, generator: np.random.RandomState) -> tuple[Task, Task | None]:
        """Training and validation sequences, of each class its share; at least one of each class is trained on."""
        if not self.early_stopping:
            return task, None
        held_out = np.zeros(len(task.labels), dtype=bool)
        for number in range(task.num_classes):
            own = generator.permutation(np.flatnonzero(task.labels == number))
            held_out[own[: min(round(self.validation_fraction * len(own)), len(own) - 1)]] = True
        if not held_out.any():
            return task, None
        return task[np.flatnonzero(~held_out)], task[np.flatnonzero(held_out)]

    def _keep(self, state: State) -> "AttentionClassifier":
        self._state = state
        model = state.model
        self.prompt_, self.head_, self.intercept_ = model.prompt, model.head, model.intercept
        self.n_iter_ = state.steps
        return self

    def _forward(self, X: Any, mask: Any) -> tuple[Given, Any]:
        check_is_fitted(self)
        given = self._read(X, mask, reset=False)
        return given, forward(Model(self.prompt_, self.head_, self.intercept_), given.sequences)


def _listed(classes: np.ndarray) -> str:
    shown = ", ".join(map(str, classes[:5]))
    return shown if len(classes) <= 5 else f"{shown}, ... ({len(classes)} in all)"
