"""Prompt attention as a scikit-learn regressor, also for times of events."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from attsvm._utils.callers import warn_caller
from attsvm._utils.checks import check_number
from attsvm._utils.keywords import suggests
from attsvm._utils.progress import Callback, reports
from attsvm.errors import ProblemError
from attsvm.estimator.base import FitParts
from attsvm.estimator.cox_loss import CoxLoss
from attsvm.estimator.inputs import GivenSequences
from attsvm.estimator.prompt import PromptModel, PromptRegression, forward
from attsvm.estimator.prompt_estimator import PromptEstimator
from attsvm.estimator.quantile_loss import QuantileLoss
from attsvm.estimator.regression_loss import RegressionLoss
from attsvm.estimator.regression_report import RegressionReport
from attsvm.estimator.regression_task import RegressionTask, WeightSum
from attsvm.estimator.settings import Settings
from attsvm.estimator.shared_documentation import document
from attsvm.estimator.squared_loss import SquaredLoss
from attsvm.estimator.survival_report import SurvivalReport


class LearnedUnit(RegressorMixin):
    """What a fit sets about targets."""

    target_centre_: float
    target_scale_: float


@document(
    trained="prompt, head and intercept",
    rate=0.01,
    penalty="(‖p‖² + ‖V‖²)",
    part='a tenth of the sequences, for "cox" of those with an event and of the censored ones',
    few='a tenth is fewer than ten sequences, for "cox" than ten events',
    kind="regressor",
    next="attention",
)
@suggests
@dataclass(eq=False, repr=False)
class AttentionRegressor(LearnedUnit, PromptEstimator):
    """Prompt attention with a linear head, f(X) = V X' softmax(X p) + b, for targets of bags: numbers or event times.

    A sequence is a matrix (T_i, d), one row per token; the order of its tokens does not matter. One prompt p weights
    the tokens, and the head V predicts from the weighted mean.

    Parameters
    ----------
    loss : {"squared_error", "quantile", "cox"}
        "squared_error" predicts the mean of the target, and "quantile" its ``quantile``, by the pinball loss. Targets
        are standardised within the fit, so that ``alpha`` and ``learning_rate`` suit any unit. "cox" is for times of
        events, some of them censored: minus the logarithm of the partial likelihood, with Efron's treatment of ties;
        f(X) is then the logarithm of a hazard ratio.
    quantile : float
        Of "quantile": 0.5 is the median.
    {parameters of SequenceEstimator}
    norm : {"frobenius", "l<p>", "linf"}, optional
        Train in the geometry of this norm, as :class:`attsvm.AttentionClassifier` does.

    Attributes
    ----------
    prompt_ : ndarray, shape (d,)
    head_ : ndarray, shape (1, d)
        In the unit of the targets.
    intercept_ : ndarray, shape (1,)
        For "cox" f is 0 for the mean token of the training sequences.
    target_centre_, target_scale_ : float
        What targets are standardised with: mean and standard deviation, or the quantile and the mean absolute deviation
        from it; 0 and 1 for "cox".
    {attributes of SequenceEstimator}
    history_ : dict of str to list
        Every 25 steps: ``steps``; ``objective``, its mean since the last line; with early stopping ``validation_loss``
        and ``validation_score``, which is that of ``score``; and ``effective_low``, ``effective_median`` and
        ``effective_high``, quantiles of the effective number of tokens, as for :class:`attsvm.AttentionClassifier`.
        Losses are those of standardised targets.
    path_ : dict of int to Model
        ``prompt`` (d,), ``head`` and ``intercept`` after 0, 1, 2, 4, 8, … steps of the last :meth:`fit`, and those that
        were kept, by the number of steps.

    See Also
    --------
    attsvm.AttentionClassifier : The same network for classes.
    attsvm.estimator.RegressionReport : Errors beside those of a constant.
    attsvm.estimator.SurvivalReport : Concordance of risks.

    Notes
    -----
    The partial likelihood does not decompose into a sum over sequences. With ``batch_size`` of at least the number of
    training sequences, and few enough tokens for one batch, a step uses the risk sets of the whole training set. In
    smaller batches the risk sets are those of the batch, which is an approximation (nested case-control sampling;
    Kvamme, Borgan and Scheel, 2019, section 3.2): a batch has few comparisons if it has few events. Nothing is
    estimated but ratios of hazards: there is no baseline hazard, and no survival function.

    As for :class:`attsvm.AttentionClassifier`, parameters are averaged over about the last 100 steps, and the penalty
    is that of the centred and scaled tokens.

    References
    ----------
    Koenker and Bassett (1978), *Regression Quantiles*. Cox (1972), *Regression Models and Life-Tables*. Efron (1977),
    *The Efficiency of Cox's Likelihood Function for Censored Data*. Kvamme, Borgan and Scheel (2019), *Time-to-Event
    Prediction with Neural Networks and Cox Regression*, JMLR 20.

    Examples
    --------
    >>> import attsvm
    >>> bags = attsvm.datasets.digit_bags(500, 200, seed=0)
    >>> nines, of_test = (digits.reshape(-1, 5).max(axis=1) for digits in (bags.train_digits, bags.test_digits))
    >>> regressor = attsvm.AttentionRegressor(random_state=0).fit(bags.train, nines)  # the largest digit
    >>> regressor.predict(bags.test).shape, bool(regressor.score(bags.test, of_test) > 0.3)
    ((200,), True)
    >>> regressor.attention(bags.test)[:5].sum().round(6)  # the five tokens of the first bag
    np.float64(1.0)
    """

    loss: str = field(default="squared_error", kw_only=True)
    quantile: float = field(default=0.5, kw_only=True)

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
        """Train on sequences with targets.

        Parameters
        ----------
        X : list of n arrays (T_i, d), :class:`attsvm.datasets.Sequences`, array (n, T, d), or array (n, d)
            Rows of an array or DataFrame (n, d) are sequences of one token. A table with one row for each token, with
            ``bag``. :class:`attsvm.datasets.Sequences` reads other forms, such as padded arrays and arrays on disk.
        y : array, shape (n,)
            Numbers. For a table a Series indexed by bag, a dict, or a table of bag and number. For "cox" a structured
            array with one boolean field of events and one of times, as scikit-survival's ``Surv`` makes it; a table
            with the columns "event" and "time"; or an array (n, 2) of events (1, or 0 for censored) and times. For a
            table of rows, a DataFrame indexed by bag, or with the bags in one more column.
        sample_weight : array, shape (n,), optional
            Weights in the loss. Sequences of weight 0 are left out.
        bag : str or int, optional
            The column of a table (pandas, polars, Arrow) that names the bag of each row; it is no feature. Predictions
            for tables use the same column. Feature columns are found by their names.
        validation : float, array of int or bool, or tuple, optional
            What early stopping validates on: a share; some of the sequences, by their positions or a mask, or by the
            names of the bags of a table; or sequences and targets of its own, ``(X_val, y_val)``. By default a tenth,
            for "cox" of the events and of the censored sequences, or nothing if that is fewer than ten, or ten events.
        groups : array, shape (n,), optional
            Sequences of one group, such as the bags of a patient, are not divided between training and validation. In
            the forms of ``y``.
        callback : callable, optional
            Called with a :class:`attsvm.Progress` every 25 steps; its ``loss`` is the mean objective since the last
            call. True stops the training.
        progress : bool
            Show the progress on the way to ``max_steps``, where early stopping may end before, as :func:`attsvm.train`
            does.

        Returns
        -------
        self
            The estimator itself.

        Raises
        ------
        ProblemError
            If an argument does not fit, a sequence has no token, no event was seen, training diverges, or there is no
            such device.
        MemoryError
            If the memory of the device does not suffice for a batch.

        See Also
        --------
        attsvm.AttentionRegressor.partial_fit
        """
        return self._fit(X, y, sample_weight, bag, validation=validation, groups=groups, callback=callback)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        bag: str | int | None = None,
        num_sequences: int | None = None,
    ) -> Self:
        """Make one pass over more sequences, one step per batch, without validation.

        Targets are standardised as in the first call. Weights are divided by the mean weight of all calls together. The
        step of a batch is proportional to its number of sequences over that of the largest batch so far. For "cox" the
        risk sets are within a call.

        Parameters
        ----------
        X, y, sample_weight, bag
            As for :meth:`fit`. The first call also determines the centre and scale of tokens and targets, and ``bag``.
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
            If an argument does not fit.

        See Also
        --------
        attsvm.AttentionRegressor.fit

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> sums = bags.train_digits.reshape(-1, 5).sum(axis=1)
        >>> attsvm.AttentionRegressor(random_state=0).partial_fit(bags.train, sums).predict(bags.test).shape
        (20,)
        """
        return self._fit_chunk(X, y, sample_weight, bag, num_sequences=num_sequences)

    def predict(self, X: Any) -> Any:
        """The output of each sequence, shape (n,): mean, quantile, or for "cox" the logarithm of a hazard ratio.

        Of two sequences the one with the larger hazard ratio is expected to have its event first. It is relative to a
        sequence whose tokens are all the mean token of the training sequences.
        """
        given = self._read(X)
        return given.labelled(self._output(self._mapped(given))[:, 0])

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R² for "squared_error", D² of the pinball loss for "quantile", and Harrell's concordance for "cox".

        Each is 1 for perfect predictions; a constant has 0, and for "cox" 0.5. D² is that of
        ``sklearn.metrics.d2_pinball_score``.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`. For "cox" a pair has the product of its weights.

        Raises
        ------
        ProblemError
            If y is such that no pair of times can be compared.
        """
        sequences, targets, weights = self._compared(X, y, sample_weight)
        found = self._loss().score(targets, self._output(sequences)[:, 0], weights)
        if np.isnan(found):
            raise ProblemError("y: expected targets that can be compared: at least two, and at least one event")
        return found

    def report(self, X: Any, y: Any = None) -> RegressionReport | SurvivalReport:
        """How well targets are predicted: errors compared with those of a constant, or for "cox" the concordance.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.

        Returns
        -------
        RegressionReport, or SurvivalReport for "cox"

        See Also
        --------
        attsvm.estimator.RegressionReport, attsvm.estimator.SurvivalReport
        """
        sequences, targets, _ = self._compared(X, y)
        predicted = self._output(sequences)[:, 0]
        found: RegressionReport | SurvivalReport = self._loss().report(targets, predicted, self.target_centre_)
        return found

    def instance_scores(self, X: Any) -> Any:
        """The output for each token by itself: f of a sequence with only this token.

        Returns
        -------
        list of n arrays (T_i,); ndarray (n, T) for arrays; (N,) for ``Sequences``
            For a table in the order of its rows: with pandas a Series, otherwise an ndarray.
        """
        given = self._read(X)
        return given.restore(self._token_outputs(self._mapped(given))[:, 0])

    def contributions(self, X: Any) -> Any:
        """The part of each token in the prediction: the attention times f of the token alone minus ``target_centre_``.

        Returns
        -------
        list of n arrays (T_i,); ndarray (n, T) for arrays; (N,) for ``Sequences``
            In the forms of :meth:`instance_scores`. The sum in a sequence is the prediction minus ``target_centre_``.

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> sums = bags.train_digits.reshape(-1, 5).sum(axis=1)
        >>> regressor = attsvm.AttentionRegressor(max_steps=50, random_state=0).fit(bags.train, sums)
        >>> parts = regressor.contributions(bags.test).reshape(20, 5).sum(axis=1) + regressor.target_centre_
        >>> bool(abs(parts - regressor.predict(bags.test)).max() < 1e-8)
        True
        """
        given = self._read(X)
        sequences = self._mapped(given)
        alone = self._token_outputs(sequences)[:, 0] - self.target_centre_
        return given.restore(forward(self._model, sequences).attention * alone)

    def _loss(self) -> RegressionLoss:
        if self.loss == "quantile":
            return QuantileLoss(
                float(check_number("quantile", self.quantile, "a number in (0, 1)", lambda q: 0 < q < 1))
            )
        found: RegressionLoss | None = {"squared_error": SquaredLoss(), "cox": CoxLoss()}.get(self.loss)
        if found is None:
            raise ProblemError(f"loss: expected 'squared_error', 'quantile' or 'cox', got {self.loss!r}")
        return found

    def _network(self) -> PromptRegression:
        return PromptRegression(self._loss())

    def _read_labels(self, y: Any, given: GivenSequences) -> np.ndarray:
        return self._loss().read(y, given, type(self).__name__)

    def _task(
        self, given: GivenSequences, labels: np.ndarray, weights: np.ndarray, before: Any, continues: str, classes: Any
    ) -> tuple[RegressionTask, WeightSum]:
        network, loss, kept = self._network(), self._loss(), np.flatnonzero(weights)
        if continues and network != self._state.network:
            raise ProblemError(f"loss, quantile: expected the same values as before with {continues}, got {loss}")
        labels, weights = labels[kept], weights[kept]
        sequences = self._through_net(given, fit=not continues)
        if not continues:
            self.target_centre_, self.target_scale_ = loss.unit(labels, weights)
        tally = (before or WeightSum()).with_weights(weights)
        sequences = sequences if len(kept) == len(sequences) else sequences[kept]
        return RegressionTask(sequences, self._standardised(labels), weights * tally.factor, loss), tally

    def _train(self, parts: FitParts, settings: Settings, generator: np.random.RandomState, *, continues: bool) -> Self:
        if not (parts.task.strata == 0).any():
            raise ProblemError(f"y: expected some {parts.task.required}, got none")
        return super()._train(parts, settings, generator, continues=continues)

    def _own_task(self, given: GivenSequences, labels: np.ndarray) -> RegressionTask:
        return RegressionTask(self._mapped(given), self._standardised(labels), np.ones(len(labels)), self._loss())

    def _standardised(self, targets: np.ndarray) -> np.ndarray:
        return (targets - self.target_centre_) / self.target_scale_

    def _published(self, model: PromptModel) -> PromptModel:
        head, intercept = (self.target_scale_ * array for array in (model.head, model.intercept))
        return PromptModel(model.prompt, head, intercept + self.target_centre_)

    def _warn_of_chance(self) -> None:
        scores = getattr(self, "history_", {}).get("validation_score")
        if scores is None:
            return
        score = scores[self.history_["steps"].index(self.kept_step_)]
        if score < self._loss().chance:
            warn_caller(
                f"the score of the validation sequences, {score:.2f}, is barely better than that of a constant: these "
                "sequences contain nothing to select, or too few of them are held out",
                RuntimeWarning,
            )
