"""The result of ``attsvm.fit``."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attsvm._fit.comparison import ClassifierComparison
from attsvm._fit.evaluation import LayerEvaluation
from attsvm._fit.other_norms import OtherNorms
from attsvm._fit.page_result import PageResult
from attsvm._utils.shapes import Bool, Int
from attsvm.datasets import Source
from attsvm.errors import ProblemError
from attsvm.estimator import AttentionClassifier, ClassificationReport
from attsvm.pages import SOFT_BELOW
from attsvm.problem import Problem, counted_labels
from attsvm.results import Status
from attsvm.svm import Solution
from attsvm.training import Run


@dataclass(frozen=True, eq=False, repr=False)
class Fit(PageResult):
    """A trained attention classifier; with a fixed prediction head, also how close its weights came to an Att-SVM.

    An evaluation has ``accuracy``, ``correct`` (of each unmasked query), ``margins`` (label times output), ``largest``
    (the largest softmax probability of each query) and ``attention`` (n, Q, T).

    Attributes
    ----------
    problem : Problem
        All data.
    train, test : Problem
        The two parts of the data, with the final head; ``test`` is None if the test fraction is 0. Without an
        AttentionClassifier their columns are scaled if ``settings["scale"]`` is "columns".
    test_rows : int ndarray, shape (n_test,)
        Which sequences are the test sequences.
    relevant : dict of str to int ndarray, or None
        The token that decides the label, of each ``train`` and ``test`` sequence; None if it is not known.
    run : Run
    on_train, on_test : LayerEvaluation
        Predictions and attention at the end of training; ``on_test`` is None if there is no test part.
    baseline : dict of str to float
        Accuracy of logistic regression on the mean token, with a cross-validated penalty: ``train``, ``test``.
    optimal_tokens : int ndarray, shape (n[, Q])
        The token of each training query with the highest score under the final head.
    optimal, chosen, relevant_svm : Solution or None
        Att-SVMs of the optimal tokens, of the trained selection, and of the tokens that decide the labels. None if the
        head was trained, and the last one if these tokens are not known.
    other_norms : OtherNorms or None
        What :func:`attsvm.recommend` ``found`` on the training sequences, the ``tokens`` to select (``optimal`` or
        ``relevant``), and the place of the norm that is ``better`` than the Frobenius norm by more than its interval.
        None if the head was trained, if these tokens are not known or have no Att-SVM, for fewer than 20 or more than
        200 sequences, and for more than 4,000 numbers, which are the logits times the entries of a token.
    history : dict of str to ndarray
        One entry for each recorded step: ``steps``, ``loss``, ``train_accuracy``, ``test_accuracy``, ``largest_low``,
        ``largest_median``, ``largest_high`` (10, 50 and 90 % quantiles), ``norm``, ``changed`` (queries whose selection
        differs from the final one), and ``direction_error`` to ``chosen`` (NaN at zero weights), unless the attention
        is not saturated or there is no solution.
    comparison : ClassifierComparison or None
        ``scores`` of several classifiers on the same sequences, by name; each has an ``accuracy`` for each of the
        ``seeds``. None for data that are not drawn at random.
    seed : int
    settings : dict
        How the layer was trained.
    seconds : dict of str to float
        Wall time of ``training``, and of ``everything`` but the comparison.
    data : str
        What the page calls the data.
    source : Source or None
        Where the data came from.
    classes : tuple or None
        Names of the labels +1 and −1; None if they have none.
    classifier : AttentionClassifier or None
        What predicts, and is saved as ``model.npz``; None with a fixed head, queries or keys.

    See Also
    --------
    attsvm.fit, attsvm.Run

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(20, 4, 5, seed=0)
    >>> attsvm.fit(problem, steps=200)
    Fit(finished, 200 steps; test accuracy 0.6, of the mean token 0.8, of one class 0.8)
    """

    problem: Problem
    train: Problem
    test: Problem | None
    test_rows: Int[np.ndarray, " n_test"]
    relevant: dict[str, Int[np.ndarray, " n"]] | None
    run: Run
    on_train: LayerEvaluation
    on_test: LayerEvaluation | None
    baseline: dict[str, float]
    optimal_tokens: Int[np.ndarray, "*queries"]
    optimal: Solution | None
    chosen: Solution | None
    relevant_svm: Solution | None
    other_norms: OtherNorms | None
    history: dict[str, np.ndarray]
    comparison: ClassifierComparison | None
    seed: int
    settings: dict[str, Any]
    seconds: dict[str, float]
    data: str
    source: Source | None
    classes: tuple[Any, Any] | None
    classifier: AttentionClassifier | None = None

    def predict(self, X: Any) -> Any:
        """The most probable class of each new sequence, (n,).

        Parameters
        ----------
        X
            As for :meth:`attsvm.AttentionClassifier.predict`.

        Raises
        ------
        ProblemError
            If the head was fixed, or there are queries or keys: then there is no classifier.

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
        >>> tokens = bags.train.table[bags.train.ids].reshape(40, 5, 64)
        >>> attsvm.fit(tokens, labels=bags.train_labels, steps=50).predict(bags.test).shape
        (20,)
        """
        if self.classifier is None:
            raise ProblemError("predict: expected a fit that trains prompt and prediction head together")
        return self.classifier.predict(X)

    def _rows(self) -> list[tuple[str, str]]:
        part, on = ("training", self.on_train) if self.on_test is None else ("test", self.on_test)
        return [
            ("run", f"{self.run.status}, {int(self.run.step):,} steps"),
            (f"{part} accuracy", f"{on.accuracy:.3g}"),
            ("of the mean token", f"{self.baseline.get('test', self.baseline['train']):.3g}"),
            ("of one class", f"{[*self.reports.values()][-1].majority:.3g}"),
        ]

    @property
    def median_largest(self) -> float:
        """Median over the training queries of the largest softmax probability."""
        return float(np.median(self.on_train.largest))

    @property
    def soft(self) -> bool:
        """Whether the attention is not saturated. Its direction is then not compared with an Att-SVM."""
        return self.median_largest < SOFT_BELOW

    @property
    def right(self) -> dict[str, Bool[np.ndarray, " n"]] | None:
        """Whether the token that decides the label has the largest attention, for each sequence of each part."""
        if self.relevant is None:
            return None
        found = {"train": self.on_train, "test": self.on_test}
        return {part: on.attention[:, 0].argmax(axis=-1) == self.relevant[part] for part, on in found.items() if on}

    @property
    def reports(self) -> dict[str, ClassificationReport]:
        """Confusion matrix, precision, recall and AUROC of each part, and the share of the largest class."""
        usual = np.where(counted_labels(self.train).mean() > 0, 1.0, -1.0)
        names = np.array([-1, 1] if self.classes is None else self.classes[::-1])
        found = {}
        for part, data, on in (("train", self.train, self.on_train), ("test", self.test, self.on_test)):
            if data is not None and on is not None:
                labels = counted_labels(data)
                signs = np.where(on.correct, labels, -labels)
                report = ClassificationReport.of(np.array([-1.0, 1.0]), labels, signs, labels * on.margins, usual)
                found[part] = replace(report, classes=names)
        return found

    @property
    def interrupted(self) -> bool:
        """Whether training was stopped by the user."""
        return bool(self.run.status == Status.INTERRUPTED)

    def plot(self, **options: Any) -> Any:
        """Draw the loss, the probability and, where it is reported, the direction error against the steps.

        Parameters
        ----------
        **options
            ``quantities`` and ``ax`` of :meth:`attsvm.Run.plot`.

        Returns
        -------
        Axes, or ndarray of Axes

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(20, 4, 5, seed=0)
        >>> [axis.get_ylabel() for axis in attsvm.fit(problem, steps=200).plot()]
        ['loss', '1 − largest probability', 'direction error']
        """
        target = self.chosen if "direction_error" in self.history else None
        return self.run.plot(target, **options)
