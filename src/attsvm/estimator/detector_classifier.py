"""Detectors with non-negative weights as a scikit-learn classifier."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optax
from sklearn.utils.validation import check_is_fitted

from attsvm._utils.checks import check_integer
from attsvm._utils.keywords import suggests
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator.detectors import DetectorModel, Detectors
from attsvm.estimator.margins import SAMPLE, MarginReport
from attsvm.estimator.sequence_classifier import SequenceClassifier
from attsvm.estimator.shared_documentation import document


@document(
    trained="detectors, offsets, weights and intercept",
    rate=0.03,
    penalty="(‖P‖² + ‖w‖²)",
    positive="Of two classes the one whose bags contain what the negative ones lack. By default that of {0, 1},\n"
    "{False, True} or {-1, 1} with the larger number; required for other labels, because the reverse gives other\n"
    "predictions.",
    part="a tenth of each class",
    few="a tenth of some class is fewer than ten sequences",
    kind="classifier",
    next="the detectors",
    members="the largest similarity with landmarks, and the largest and smallest entry of each column, with\n"
    "non-negative coefficients of functions that a further token never lowers",
    network="the detectors",
)
@suggests
@dataclass(eq=False, repr=False)
class DetectorClassifier(SequenceClassifier):
    """Detectors with non-negative weights, f(X) = b + Σ_k w_k σ(max_t p_k'x_t + c_k), w_k ≥ 0, for bags.

    It keeps the multiple-instance assumption: a bag is positive because of tokens that it contains, and another token
    never lowers f. The maximum is the hard limit of attention with the prompt p_k, so there is an Att-SVM of the tokens
    that each detector selects. With two classes, f is large for the positive class, which ``positive`` sets. With more
    classes, each class has its own K detectors against the rest, and the assumption holds for each output.

    Parameters
    ----------
    num_detectors : int
        K; with more than two classes, the number for each class.
    {parameters of SequenceEstimator}
    {parameters of SequenceClassifier}

    Attributes
    ----------
    detectors_ : ndarray, shape (C, K, d), or (1, K, d) for two classes
    offsets_, weights_ : ndarray, shape (C, K), or (1, K) for two classes
    intercept_ : ndarray, shape (C,), or (1,) for two classes
    {attributes of SequenceClassifier}
    {attributes of SequenceEstimator}
    history_ : dict of str to list
        Every 25 steps, or more if validation sequences take more than 400 MiB: ``steps``; ``objective``, its mean since
        the last line; with early stopping ``validation_loss`` and ``validation_accuracy``; ``active_detectors``, the
        number of detectors with a positive weight.

    See Also
    --------
    attsvm.AttentionClassifier : Prompt attention, in which tokens can also vote against a class.
    attsvm.datasets.mil_unit_tests : Data on which models without the assumption fail.

    Notes
    -----
    Detectors start at random, so the fit depends on ``random_state``. Parameters are averaged over about the last 100
    steps. The fitted attributes are for the original tokens, after ``token_net``.

    References
    ----------
    Raff and Holt (2023), *Reproducibility in Multiple Instance Learning: A Case For Algorithmic Unit Tests*
    (arXiv 2310.17867), for the assumption. Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in
    Attention Mechanism*, Definition 1, for the Att-SVM.

    Examples
    --------
    >>> import attsvm
    >>> bags = attsvm.datasets.digit_bags(seed=0)
    >>> classifier = attsvm.DetectorClassifier(random_state=0).fit(bags.train, bags.train_labels)
    >>> float(classifier.score(bags.test, bags.test_labels)) > 0.85
    True
    >>> classifier.selected(bags.test).shape  # by each of 16 detectors
    (1000, 16)
    """

    _learning_rates = {"adam": 0.03}  # noqa: RUF012

    num_detectors: int = 16
    optimizer: str | optax.GradientTransformation = field(default="adam", kw_only=True)
    alpha: float = field(default=3.0, kw_only=True)

    def selected(self, X: Any) -> Any:
        """Position of the token that each detector selects in each sequence; the first one on ties.

        Returns
        -------
        int ndarray, shape (n, K) for two classes, else (n, C, K)
            For a table of two classes a table with the bags and a column for each detector.
        """
        given = self._read(X)
        places = self._model.selected(self._mapped(given))
        return given.labelled(places[:, 0], range(places.shape[2])) if len(self.classes_) == 2 else places

    def margin_report(
        self,
        X: Any = None,
        *,
        detector: int | None = None,
        class_: Any = None,
        slack: float | None = None,
        max_sequences: int = SAMPLE,
    ) -> MarginReport:
        """The Att-SVM of the tokens that a detector selects, and how close the detector is to that Att-SVM.

        Parameters
        ----------
        X, slack, max_sequences
            As for :meth:`attsvm.AttentionClassifier.margin_report`.
        detector : int, optional
            By default the one with the largest weight.
        class_ : optional
            The class of the detector; required for more than two classes.

        Returns
        -------
        MarginReport

        Raises
        ------
        ProblemError
            If there is no such detector or class, or there are no sequences.

        See Also
        --------
        attsvm.estimator.MarginReport

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(150, 20, seed=0)
        >>> classifier = attsvm.DetectorClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.margin_report(bags.train, detector=0).num_sequences
        150
        """
        check_is_fitted(self)
        column = self._column(class_)
        if not column and len(self.classes_) == 2:
            raise ProblemError(f"class_: expected {self.positive_!r}, whose detectors these are, got {class_!r}")
        row = column if len(self.classes_) > 2 else 0
        if detector is None:
            detector = int(np.argmax(self.weights_[row]))
        detector = check_integer("detector", detector, 0, self.weights_.shape[1] - 1)
        return self._margins("P", (row, detector), X, slack, max_sequences)

    def _find_positive(self, classes: np.ndarray) -> Any:
        positive = super()._find_positive(classes)
        if positive is None and len(classes) == 2:
            one, other = classes.tolist()
            if self.positive is not None:
                raise ProblemError(
                    f"positive: expected one of the labels {one}, {other}, got {self.positive!r}; if a meta-estimator "
                    f"of scikit-learn has numbered the labels, give both labels: positive=({self.positive!r}, ...)"
                )
            raise ProblemError(
                f"positive: expected positive={one!r} or positive={other!r}, the class of the bags that contain what "
                "the others lack, got None"
            )
        return positive

    def _network(self) -> Detectors:
        return Detectors(check_integer("num_detectors", self.num_detectors, 1))

    def _publish(self, model: DetectorModel) -> None:
        self.detectors_, self.offsets_ = model.detectors, model.offsets
        self.weights_, self.intercept_ = model.weights, model.intercept

    def _output(self, sequences: Sequences) -> np.ndarray:
        return self._model.decision(sequences)

    def _token_outputs(self, sequences: Sequences) -> np.ndarray:
        return self._model.token_scores(sequences)

    def _token_parts(self, sequences: Sequences) -> np.ndarray:
        return self._model.contributions(sequences)

    @property
    def _model(self) -> DetectorModel:
        return DetectorModel(self.detectors_, self.offsets_, self.weights_, self.intercept_)
