"""The base class of the classifiers of sequences: labels that are classes, and predictions of them."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from attsvm._utils.callers import warn_caller
from attsvm._utils.progress import Callback, reports
from attsvm.datasets import Sequences, shown
from attsvm.errors import ProblemError
from attsvm.estimator.base import FitParts, SequenceEstimator
from attsvm.estimator.ensemble import Ensemble, fit_ensemble, wants_ensemble
from attsvm.estimator.fitting import FitState
from attsvm.estimator.inputs import GivenSequences
from attsvm.estimator.network import ClassNetwork
from attsvm.estimator.report import ClassificationReport
from attsvm.estimator.settings import Settings
from attsvm.estimator.task import ClassificationTask, Tally, find_positive, numbered, read_labels, read_task

NEARLY_CHANCE = 0.9
"""Validation losses above this part of the loss of the shares of the classes are warned of."""

LEAST_BAGS = 10
"""Fewest bags for each value of a column, on average, for which it is said to determine the label."""


class LearnedClasses(ClassifierMixin):
    """What a fit sets about classes."""

    classes_: np.ndarray
    positive_: Any
    ensemble_: Ensemble | None = None  # until a fit has one


@dataclass(eq=False, repr=False)
class SequenceClassifier(LearnedClasses, SequenceEstimator):
    """An estimator whose labels are classes.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weights of the classes in the loss.
    positive : label, or tuple of a label and the other one, optional
        {positive} Meta-estimators of scikit-learn may replace labels by numbers. A tuple of both labels, ``("yes",
        "no")``, then says which number the positive one has.
    ensemble : {{"auto"}} or bool
        Add ridge regressions on pooled features of the tokens to the output: {members}. A landmark is one of at most
        300 training tokens, and similarities are exp(−γ‖x − z‖²) for six rates γ. The strength of each penalty, and the
        weights of these members, are chosen to predict left-out training sequences best. The output is their weighted
        sum plus the output of {network}, scaled down to a root mean square of at most 0.5. By default, a fit has an
        ensemble if early stopping can hold out nothing, because a few sequences are not enough to learn what to attend
        to: with at most 600 sequences, some of them with several tokens, at least five of each class and at most 4
        million numbers in all, each class in at least two of ``groups``, and without ``warm_start``. ``partial_fit``
        removes the ensemble. Fitted weights, attention, selected tokens and Att-SVMs belong to {network} alone;
        outputs, probabilities, ``instance_scores`` and ``contributions`` belong to the ensemble. Landmarks are part of
        the fitted classifier, and of its files.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Sorted.
    positive_ : label or None
        The positive class of two; None if it is not known, or if there are more classes.
    ensemble_ : Ensemble or None
        The members besides the network, their weights, and how well they predict left-out sequences.
    """

    _: KW_ONLY
    class_weight: Any = None
    positive: Any = None
    ensemble: bool | str = "auto"

    @abstractmethod
    def _network(self) -> ClassNetwork:
        """The network, from the parameters."""

    @abstractmethod
    def _token_parts(self, sequences: Sequences) -> np.ndarray:
        """Parts of the tokens in the outputs of the network, (N, C)."""

    @reports("training")
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        bag: str | int | None = None,
        validation: Any = None,
        groups: Any = None,
        callback: Callback | None = None,
        progress: bool = False,
    ) -> Self:
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of n arrays (T_i, d), :class:`attsvm.datasets.Sequences`, array (n, T, d), or array (n, d)
            Rows of an array or DataFrame (n, d) are sequences of one token. A table with one row for each token, with
            ``bag``. :class:`attsvm.datasets.Sequences` reads other forms, such as padded arrays and arrays on disk.
        y : array, shape (n,)
            At least two different labels. For a table a Series indexed by bag, a dict, or a table of bag and label.
        sample_weight : array, shape (n,), optional
            Weights in the loss. Sequences of weight 0 are left out.
        bag : str or int, optional
            The column of a table (pandas, polars, Arrow) with the bag of each row; it is not a feature. Predictions for
            tables use the same column, and find feature columns by name.
        validation : float, array of int or bool, or tuple, optional
            What early stopping validates on: a share of each class; some of the sequences, by their positions or a
            mask, or by the names of the bags of a table; or sequences and labels of its own, ``(X_val, y_val)``. By
            default a tenth of each class, or nothing if a class then has fewer than ten.
        groups : array, shape (n,), optional
            Sequences of one group, such as the bags of a patient, are not divided between training and validation. In
            the forms of ``y``.
        callback : callable, optional
            Called with a :class:`attsvm.Progress` every 25 steps; its ``loss`` is the mean objective since the last
            call. True stops the training.
        progress : bool
            Show the progress on the way to ``max_steps``, where early stopping may end before, as :func:`attsvm.train`
            does. In a pipeline, ``pipeline.fit(X, y, attentionclassifier__progress=True)``.

        Returns
        -------
        self
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
        """
        return self._fit(X, y, sample_weight, bag, validation=validation, groups=groups, callback=callback)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        bag: str | int | None = None,
        num_sequences: int | None = None,
    ) -> Self:
        """Make one pass over more sequences, one step per batch, without validation.

        A call may hold sequences of one class. Weights are divided by the mean weight of all calls together, and with
        ``class_weight="balanced"`` the classes are counted over all calls, so that a stream of chunks has the weights
        of one fit to them. The step of a batch is proportional to its number of sequences over that of the largest
        batch so far.

        Parameters
        ----------
        X, y, sample_weight, bag
            As for :meth:`fit`. The first call also determines the centre and scale of the tokens, and ``bag``.
        classes : array, optional
            All labels of this and later calls; required in the first call if ``y`` does not contain them all.
        num_sequences : int, optional
            The n of the penalty: the number of sequences of all chunks. By default that of this call. It does not
            depend on the number of passes.

        Returns
        -------
        self
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
        return self._fit_chunk(X, y, sample_weight, bag, num_sequences=num_sequences, classes=classes)

    def decision_function(self, X: Any) -> Any:
        """Outputs f(X).

        Parameters
        ----------
        X
            As for :meth:`fit`.

        Returns
        -------
        ndarray, shape (n,) for two classes, else (n, C)
            For two classes, positive means ``classes_[1]``, as scikit-learn's scorers expect, whichever is positive.
            For a table (n, C) has the names of the classes as columns.
        """
        given, decision = self._decide(X)
        return given.labelled(decision[:, 0]) if decision.shape[1] == 1 else given.labelled(decision, self.classes_)

    def predict(self, X: Any) -> Any:
        """The most probable class of each sequence, shape (n,)."""
        given, decision = self._decide(X)
        return given.labelled(self._named(decision))

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, shape (n, C), in the order of ``classes_``, the columns of a table.

        It follows from the outputs and is not calibrated afterwards; ``class_weight`` moves it away from the shares of
        the classes. ``sklearn.calibration.CalibratedClassifierCV(classifier, method="sigmoid")`` takes lists of arrays
        and ``Sequences``.
        """
        given, decision = self._decide(X)
        return given.labelled(self._network().probability(decision), self.classes_)

    def predict_log_proba(self, X: Any) -> Any:
        """The logarithm of the probability of each class, shape (n, C); accurate for small probabilities."""
        given, decision = self._decide(X)
        return given.labelled(self._network().log_probability(decision), self.classes_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of sequences classified correctly.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.
        """
        sequences, labels, weights = self._compared(X, y, sample_weight)
        return float(accuracy_score(labels, self._named(self._decision(sequences)), sample_weight=weights))

    def report(self, X: Any, y: Any = None) -> ClassificationReport:
        """How well the classes are predicted: confusion matrix, precision and recall, beside the largest class.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.

        Returns
        -------
        ClassificationReport

        See Also
        --------
        attsvm.estimator.ClassificationReport
        """
        sequences, labels, _ = self._compared(X, y)
        numbered(self.classes_, labels)
        largest = self._order[np.argmax(self._tally.counts)]
        decision = self._decision(sequences)
        scores = decision[:, 0] if decision.shape[1] == 1 else self._network().probability(decision)
        return ClassificationReport.of(self.classes_, labels, self._named(decision), scores, largest)

    def instance_scores(self, X: Any, *, class_: Any = None) -> Any:
        """How much each token by itself speaks for a class.

        For prompt attention this is f of the token alone, which ranks instances better than attention does; for
        detectors Σ_k w_k σ(p_k'x_t + c_k). For the other one of two classes it is the negative of that.

        Parameters
        ----------
        X
            As for :meth:`fit`.
        class_ : optional
            The class whose scores are meant. By default the positive one of two classes, ``positive_``, and required
            if that is not known; for more classes by default all.

        Returns
        -------
        list of n arrays (T_i,); ndarray (n, T) for arrays; (N,) for ``Sequences``
            With a last axis C for all of more than two classes. For a table in the order of its rows: with pandas a
            Series named like the class, or a DataFrame with the classes as columns; otherwise an ndarray.

        Raises
        ------
        ProblemError
            If the class is none of the classes, or required.

        Examples
        --------
        >>> import attsvm
        >>> from sklearn.metrics import roc_auc_score
        >>> bags = attsvm.datasets.digit_bags(200, 100, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> scores = classifier.instance_scores(bags.test)
        >>> bool(roc_auc_score(bags.test_digits == 9, scores) > 0.8)
        True
        """
        given = self._read(X)
        sequences = self._mapped(given)
        scores = self._token_outputs(sequences)
        if self.ensemble_ is not None:
            alone = replace(sequences, offsets=np.arange(len(sequences.ids) + 1), names=None)
            scores = self.ensemble_.combine(scores, lambda member: member.decision(alone))
        return self._of_class(given, scores, class_)

    def contributions(self, X: Any, *, class_: Any = None) -> Any:
        """The part of each token in the output; the parts of a sequence add up to it.

        For prompt attention it is the attention of a token times f of the token alone. For detectors a token has the
        part Σ w_k σ(p_k'x_t + c_k) of the detectors that select it. An ensemble adds the parts of its members: of each
        pooled feature the difference from its mean over the training sequences, and a pooled maximum is that of its
        token. Intercepts, and the outputs of members for mean features, are divided equally among the tokens.

        Parameters
        ----------
        X
            As for :meth:`fit`.
        class_ : optional
            As for :meth:`instance_scores`.

        Returns
        -------
        list of n arrays (T_i,); ndarray (n, T) for arrays; (N,) for ``Sequences``
            In the forms of :meth:`instance_scores`. Their sum in a sequence is the output that is large for the class.

        Raises
        ------
        ProblemError
            If the class is none of the classes, or required.

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(200, 100, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> parts = classifier.contributions(bags.test).reshape(100, 5)
        >>> bool(abs(parts.sum(axis=1) - classifier.decision_function(bags.test)).max() < 1e-10)
        True
        """
        given = self._read(X)
        sequences = self._mapped(given)
        parts = self._token_parts(sequences)
        if self.ensemble_ is not None:
            parts = self.ensemble_.combine(parts, lambda member: member.contributions(sequences))
        return self._of_class(given, parts, class_)

    def _of_class(self, given: GivenSequences, scores: np.ndarray, class_: Any) -> Any:
        """Scores (N, C) of the tokens for a class, or for all, in the form of the input."""
        if class_ is None and len(self.classes_) > 2:
            return given.restore(scores, self.classes_)
        column = self._column(class_)
        return given.restore(_of_column(scores, column), self._order[column])

    def _read_labels(self, y: Any, given: GivenSequences) -> np.ndarray:
        y = y if y is None else given.align("y", y)
        return read_labels(y, len(given.sequences), type(self).__name__, given.is_rows, given.sequences.names)

    def _task(
        self, given: GivenSequences, labels: np.ndarray, weights: np.ndarray, before: Any, continues: str, classes: Any
    ) -> tuple[ClassificationTask, Tally]:
        found = np.unique(labels if classes is None else classes)
        if continues != "partial_fit":
            positive = self._find_positive(found)
            if continues and not np.array_equal(found, self.classes_):
                raise ProblemError(f"y: expected classes {shown(self.classes_)} with warm_start, got {shown(found)}")
            if continues and positive != self.positive_:
                expected = f"{self.positive_!r} with warm_start, as before"
                raise ProblemError(f"positive: expected {expected}, got {positive!r}")
            self.classes_, self.positive_ = found, positive
            _warn_of_leaks(given.sequences, labels)
        elif classes is not None and not np.array_equal(found, self.classes_):
            raise ProblemError(f"classes: expected {shown(self.classes_)}, as before, got {shown(found)}")
        sequences = self._through_net(given, fit=not continues)
        return read_task(sequences, labels, weights, self.class_weight, before or Tally.empty(self._order))

    def _train(self, parts: FitParts, settings: Settings, generator: np.random.RandomState, *, continues: bool) -> Self:
        task, owners = parts.task, parts.owners
        assert isinstance(task, ClassificationTask)
        few = parts.held_out is None and self.early_stopping and not self.warm_start
        wanted = wants_ensemble(self.ensemble, task, owners, by_default=few)
        super()._train(parts, settings, generator, continues=continues)
        if wanted:
            outputs, coordinates = self._output(task.sequences), self._state.coordinates
            self.ensemble_ = fit_ensemble(self._network(), outputs, task, owners, coordinates, generator)
        return self

    def _own_task(self, given: GivenSequences, labels: np.ndarray) -> ClassificationTask:
        numbers = numbered(self._order, labels)
        weights = self._tally.factors(self.class_weight)[numbers]
        return ClassificationTask(self._mapped(given), numbers, weights, len(self.classes_))

    def _keep(self, state: FitState, sequences: Sequences, generator: np.random.RandomState) -> Self:
        self.ensemble_ = None
        return super()._keep(state, sequences, generator)

    def _decide(self, X: Any) -> tuple[GivenSequences, np.ndarray]:
        given = self._read(X)
        return given, self._decision(self._mapped(given))

    def _decision(self, sequences: Sequences) -> np.ndarray:
        """Outputs (n, C), C = 1 for two classes; large for the second of them, as scikit-learn expects."""
        output = self._output(sequences)
        if self.ensemble_ is not None:
            output = self.ensemble_.combine(output, lambda member: member.decision(sequences))
        return output if self._order[-1] == self.classes_[-1] else -output

    @property
    def _order(self) -> np.ndarray:
        """The classes in the order of the network: the positive one of two is the second."""
        return self.classes_[::-1] if self.positive_ == self.classes_[0] else self.classes_

    def _find_positive(self, classes: np.ndarray) -> Any:
        return find_positive(classes, self.positive)

    def _column(self, class_: Any) -> int:
        """The number of a class in the network, by default of the positive one."""
        name = self.positive_ if class_ is None else class_
        if name is None or name not in self.classes_.tolist():
            none = "without positive= in the fit" if len(self.classes_) == 2 else f"for {len(self.classes_)} classes"
            got = f"got {class_!r}" if class_ is not None else f"because there is no default {none}"
            raise ProblemError(f"class_: expected one of the classes {shown(self.classes_)}, {got}")
        return int(np.argmax(self._order == name))

    def _warn_of_chance(self) -> None:
        """Warn if the last fit classifies validation sequences hardly better than the shares of two classes do."""
        losses = getattr(self, "history_", {}).get("validation_loss")
        if losses is None or len(self.classes_) > 2:
            return
        weights = self._tally.factors(self.class_weight) * self._tally.sums
        shares = weights / weights.sum()
        chance = -float(shares @ np.log(shares))
        if min(losses) > NEARLY_CHANCE * chance:
            place = "barely better than" if min(losses) < chance else "no better than"
            warn_caller(
                f"the validation loss, {min(losses):.2f}, is {place} always predicting the class frequencies, "
                f"{chance:.2f}: these sequences contain nothing to select, too few of them are held out, or the "
                "positive class of the detectors is the wrong one",
                RuntimeWarning,
            )

    def _named(self, decision: np.ndarray) -> np.ndarray:
        numbers = (decision[:, 0] > 0).astype(int) if decision.shape[1] == 1 else decision.argmax(axis=1)
        return np.asarray(self.classes_[numbers])


def _of_column(scores: np.ndarray, column: int) -> np.ndarray:
    """Scores (N,) of a class; of two classes, a token that is less positive is more negative."""
    return np.asarray(scores[:, column] if scores.shape[1] > 1 else (2 * column - 1) * scores[:, 0])


def _warn_of_leaks(sequences: Sequences, labels: np.ndarray) -> None:
    """Warn of each column of a table that is constant in each bag and whose values each have one label."""
    classes, numbers = np.unique(labels, return_inverse=True)
    for place, name in enumerate(sequences.columns or ()):
        entries = sequences.table[sequences.ids, place]
        first = entries[sequences.offsets[:-1]]
        values, places = np.unique(first, return_inverse=True)
        pairs = np.unique(places * len(classes) + numbers)
        constant = np.array_equal(entries, np.repeat(first, sequences.lengths), equal_nan=True)
        if constant and len(classes) > 1 and len(pairs) == len(values) <= len(first) / LEAST_BAGS:
            warn_caller(
                f"X: column {name!r} is constant in each bag and alone determines the label; leave it out, unless it "
                "is known when bags are predicted",
                RuntimeWarning,
            )
