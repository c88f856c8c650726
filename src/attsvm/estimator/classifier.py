"""Prompt attention as a scikit-learn classifier."""

from dataclasses import replace
from typing import Any

import numpy as np
import optax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from attsvm.errors import ProblemError
from attsvm.estimator.fitting import epoch, train
from attsvm.estimator.forward import Model, Output, forward
from attsvm.estimator.inputs import Given, read
from attsvm.estimator.margins import MarginReport, margin_report, sample_of
from attsvm.estimator.settings import read_settings
from attsvm.estimator.state import State, begin, start
from attsvm.estimator.task import Task, listed, read_labels, read_task
from attsvm.jax_devices import on_device
from attsvm.results import Callback
from attsvm.softmax import softmax


class AttentionClassifier(ClassifierMixin, BaseEstimator):
    """Prompt attention with a linear head, f(X) = V X' softmax(X p) + b, for sequences, bags and sets.

    A sequence is a matrix (T_i, d), one row per token; the order of its tokens does not matter. One prompt p weights
    the tokens, and the head V classifies the weighted mean: logistic loss for two classes, cross-entropy for more.

    Parameters
    ----------
    optimizer : {"adam", "mirror_descent", "gradient_descent"}, another name, or optax transformation
        Trains prompt, head and intercept. Other names are those of :mod:`attsvm.optimizers`, and import paths
        ``package.module:name``; they take ``learning_rate`` and ``p`` if they have such an option.
    p : float
        For mirror descent: its potential is (1/p)‖·‖_p^p. Values near 1 make weights sparse.
    learning_rate : float, optional
        By default 0.01 for Adam, 0.1 for mirror and gradient descent, and the optimizer's own for other names. Must be
        None for an optax transformation.
    alpha : float
        Strength of the penalty α/2n (‖p‖² + ‖V‖²) for n training sequences, as in scikit-learn's ``MLPClassifier``.
        With 0, training converges in direction to the limit of the theory.
    batch_size : int
        Sequences per step.
    max_steps : int
    early_stopping : bool
        Hold out ``validation_fraction`` of each class, stop once their loss no longer decreases, and keep the
        parameters of the smallest loss. It is on by default because longer training spoils the selection. If it is off,
        or no class can spare a sequence, the training objective is monitored instead and the last parameters are kept.
    validation_fraction : float
        In (0, 1).
    n_iter_no_change : int
        Stop once the loss has not decreased by ``tol`` for this many steps.
    tol : float
    class_weight : dict, "balanced" or None
        Weights of the classes in the loss.
    random_state : int, RandomState or None
        For the validation split and the order of the batches.
    warm_start : bool
        Continue from the parameters of the last fit.
    device : str, optional
        Where to train: "cpu", "gpu" or "cuda" for the first GPU, "cuda:1" for the second. By default that of JAX.
        Prediction is on the CPU.
    verbose : bool
        Print each line of the history.

    Attributes
    ----------
    prompt_ : ndarray, shape (d,)
    head_ : ndarray, shape (C, d), or (1, d) for two classes
    intercept_ : ndarray, shape (C,), or (1,) for two classes
    classes_ : ndarray, shape (C,)
    n_features_in_ : int
        d.
    n_iter_ : int
        Steps made.
    kept_step_ : int
        The step whose parameters were kept.
    status_ : Status
        ``converged``: the loss no longer decreased. ``finished``: ``max_steps`` were made. ``interrupted``: the
        callback returned True.
    history_ : dict of str to list
        Every 25 steps: ``steps``; ``objective``, its mean since the last line; with early stopping ``validation_loss``
        and ``validation_accuracy``; ``effective_low``, ``effective_median`` and ``effective_high``, the 10, 50 and 90 %
        quantiles of the effective number of tokens exp(−Σ a log a) over the validation sequences, or over at most 1,000
        training sequences.

    See Also
    --------
    attsvm.datasets.Sequences : Sequences of different lengths.
    attsvm.datasets.digit_bags : Data to try it on.
    attsvm.estimator.MarginReport : The Att-SVM of the tokens it selects.

    Notes
    -----
    The parameters that are kept, validated and used for prediction are averages over about the last 100 steps, because
    single steps fluctuate with their batches.

    Training uses float32 if the tokens are float32, otherwise float64. Tokens are first centred and divided by one
    number. Neither changes a direction, and the fitted attributes are those for the original tokens.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*.

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
        device: str | None = None,
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
        self.device = device
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, mask: Any = None, callback: Callback | None = None
    ) -> "AttentionClassifier":
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of n arrays (T_i, d), :class:`attsvm.datasets.Sequences`, array (n, T, d), or array (n, d)
            A Series of arrays is read as a list. Rows of an array or DataFrame (n, d) are sequences of one token.
        y : array, shape (n,)
            At least two different labels.
        sample_weight : array, shape (n,), optional
            Weights in the loss. Sequences of weight 0 are left out.
        mask : bool array, shape (n, T), optional
            For an array (n, T, d): False for padding.
        callback : callable, optional
            Called with a :class:`attsvm.Progress` every 25 steps; its ``loss`` is the mean objective since the last
            call. True stops the training.

        Returns
        -------
        AttentionClassifier
            The estimator itself.

        Raises
        ------
        ProblemError
            If an argument does not fit, a sequence has no token, there is only one class, training diverges, or there
            is no such device.
        MemoryError
            If the memory of the device does not suffice for a batch.

        See Also
        --------
        attsvm.AttentionClassifier.partial_fit

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels).classes_
        array([0, 1])
        """
        settings = read_settings(self, callback)
        continues = self.warm_start and hasattr(self, "_state")
        given, labels = self._given(X, y, mask, reset=not continues)
        classes = np.unique(labels)
        if continues and not np.array_equal(classes, self.classes_):
            raise ProblemError(f"y: expected classes {listed(self.classes_)} with warm_start, got {listed(classes)}")
        self.classes_ = classes
        task = self._task(given, labels, sample_weight)
        generator = check_random_state(self.random_state)
        training, validation = task.split(self.validation_fraction, generator) if self.early_stopping else (task, None)
        with on_device(settings.device):
            state = begin(self._state, settings.optimizer) if continues else start(training, settings.optimizer)
            fitted = train(state, training, validation, settings, generator)
        self.status_, self.kept_step_, self.history_ = fitted.status, fitted.kept_step, fitted.history
        self._sample = sample_of(task.sequences, generator)
        return self._keep(fitted.state)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, mask: Any = None
    ) -> "AttentionClassifier":
        """Make one pass over more sequences, one step per batch, without validation.

        Parameters
        ----------
        X, y, sample_weight, mask
            As for :meth:`fit`. The first call also determines the centre and scale of the tokens.
        classes : array, optional
            All labels of this and later calls; required in the first call if ``y`` does not contain them all.

        Returns
        -------
        AttentionClassifier
            The estimator itself.

        Raises
        ------
        ProblemError
            If an argument does not fit, or a label is none of the classes.

        See Also
        --------
        attsvm.AttentionClassifier.fit

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0)
        >>> classifier.partial_fit(bags.train, bags.train_labels, classes=[0, 1]).classes_
        array([0, 1])
        """
        settings = read_settings(self)
        first = not hasattr(self, "_state")
        given, labels = self._given(X, y, mask, reset=first)
        if first:
            self.classes_ = np.unique(labels if classes is None else classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ProblemError(
                f"classes: expected {listed(self.classes_)}, as before, got {listed(np.unique(classes))}"
            )
        task = self._task(given, labels, sample_weight)
        generator = check_random_state(self.random_state)
        with on_device(settings.device):
            begun = start(task, settings.optimizer) if first else self._state
            begun = replace(begun, seen=begun.seen + len(task.labels))
            *_, (state, _) = epoch(begun, task, settings, generator)
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
            For two classes, positive means the second.

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.decision_function(bags.test).shape
        (20,)
        """
        decision = self._forward(X, mask)[1].decision
        return decision[:, 0] if len(self.classes_) == 2 else decision

    def predict(self, X: Any, *, mask: Any = None) -> np.ndarray:
        """The most probable class of each sequence, shape (n,).

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.predict(bags.test).shape
        (20,)
        """
        decision = self.decision_function(X, mask=mask)
        return np.asarray(self.classes_[(decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)])

    def predict_proba(self, X: Any, *, mask: Any = None) -> np.ndarray:
        """The probability of each class, shape (n, C).

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.predict_proba(bags.test).sum(axis=1)[:3].round(6)
        array([1., 1., 1.])
        """
        decision = self.decision_function(X, mask=mask)
        if decision.ndim == 1:
            decision = np.column_stack([np.zeros_like(decision), decision])
        return softmax(decision)

    def attention(self, X: Any, *, mask: Any = None) -> np.ndarray | list[np.ndarray]:
        """The attention of each token; it sums to 1 in each sequence.

        Returns
        -------
        list of n arrays (T_i,); ndarray (n, T) for padded arrays, 0 for padding; (N,) for ``Sequences``, like its ids

        See Also
        --------
        attsvm.AttentionClassifier.selected

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.attention(bags.test)[:5].sum().round(6)  # the five tokens of the first bag
        np.float64(1.0)
        """
        given, output = self._forward(X, mask)
        return given.restore(output.attention)

    def selected(self, X: Any, *, mask: Any = None) -> np.ndarray:
        """Position of the token with the largest attention in each sequence, shape (n,); the first one on ties.

        See Also
        --------
        attsvm.AttentionClassifier.attention

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.selected(bags.test).shape
        (20,)
        """
        given, output = self._forward(X, mask)
        return given.positions(output.selected)

    def margin_report(
        self, X: Any = None, *, mask: Any = None, slack: float | None = None, max_sequences: int = 200
    ) -> MarginReport:
        """The Att-SVM of the tokens that the prompt selects, and how close the prompt is to it.

        Parameters
        ----------
        X, mask
            As for :meth:`fit`; by default the 200 training sequences (or fewer) that a fit keeps.
        slack : float, optional
            C of the soft margin. By default the hard margin is solved, and the soft one with C = 1 if that is
            infeasible.
        max_sequences : int
            If there are more sequences, this many are drawn with ``random_state``.

        Returns
        -------
        MarginReport

        See Also
        --------
        attsvm.estimator.MarginReport

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.margin_report().separable
        True
        """
        check_is_fitted(self)
        sequences = self._sample if X is None else read(self, X, mask, reset=False).sequences
        sequences = sample_of(sequences, check_random_state(self.random_state), max_sequences)
        return margin_report(self._state, sequences, read_settings(self).optimizer, slack)

    def __sklearn_tags__(self) -> Any:
        """Tags of the estimator for scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _given(self, X: Any, y: Any, mask: Any, *, reset: bool) -> tuple[Given, np.ndarray]:
        given = read(self, X, mask, reset=reset)
        is_table = getattr(X, "ndim", 0) == 2
        return given, read_labels(y, len(given.sequences), type(self).__name__, is_table)

    def _task(self, given: Given, labels: np.ndarray, sample_weight: Any) -> Task:
        return read_task(
            given.sequences, labels, self.classes_, sample_weight=sample_weight, class_weight=self.class_weight
        )

    def _keep(self, state: State) -> "AttentionClassifier":
        self._state = state
        model = state.model
        self.prompt_, self.head_, self.intercept_ = model.prompt, model.head, model.intercept
        self.n_iter_ = state.steps
        return self

    def _forward(self, X: Any, mask: Any) -> tuple[Given, Output]:
        check_is_fitted(self)
        given = read(self, X, mask, reset=False)
        return given, forward(Model(self.prompt_, self.head_, self.intercept_), given.sequences)
