"""Prompt attention as a scikit-learn classifier."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attsvm.datasets import Sequences
from attsvm.estimator.base import SequenceClassifier
from attsvm.estimator.inputs import GivenSequences
from attsvm.estimator.margins import SAMPLE, MarginReport
from attsvm.estimator.prompt import PromptAttention, PromptModel, PromptOutput, forward, token_products
from attsvm.estimator.shared_documentation import document


@document(
    trained="prompt, head and intercept",
    rate=0.01,
    penalty="(‖p‖² + ‖V‖²)",
    positive="The class that ``instance_scores`` are for. By default that of {0, 1}, {False, True} or {-1, 1} with\n"
    "the larger number; for other labels ``instance_scores`` need ``class_``. Probabilities do not depend on it.",
    next="attention",
    members="the mean and the largest similarity with landmarks, and the largest and smallest entry of each column",
    network="the attention",
)
@dataclass(eq=False, repr=False)
class AttentionClassifier(SequenceClassifier):
    """Prompt attention with a linear head, f(X) = V X' softmax(X p) + b, for sequences, bags and sets.

    A sequence is a matrix (T_i, d), one row per token; the order of its tokens does not matter. One prompt p weights
    the tokens, and the head V classifies the weighted mean: logistic loss for two classes, cross-entropy for more.

    Parameters
    ----------
    {shared parameters}
    norm : {"frobenius", "l<p>", "linf"}, optional
        Train in the geometry of this norm, in place of ``optimizer``: by gradient descent, by mirror descent with this
        p > 1, or by Adam for "linf". :func:`attsvm.recommend` compares norms.

    Attributes
    ----------
    prompt_ : ndarray, shape (d,)
    head_ : ndarray, shape (C, d), or (1, d) for two classes
        For two classes of the output that is large for ``positive_``, or for ``classes_[1]`` if that is None.
    intercept_ : ndarray, shape (C,), or (1,) for two classes
    {shared attributes}
    history_ : dict of str to list
        Every 25 steps: ``steps``; ``objective``, its mean since the last line; with early stopping ``validation_loss``
        and ``validation_accuracy``; ``effective_low``, ``effective_median`` and ``effective_high``, the 10, 50 and 90 %
        quantiles of the effective number of tokens exp(−Σ a log a) over the validation sequences, or over at most 1,000
        training sequences.
    path_ : dict of int to Model
        ``prompt`` (d,), ``head`` and ``intercept`` after 0, 1, 2, 4, 8, … steps of the last :meth:`fit`, and those that
        were kept, by the number of steps.

    See Also
    --------
    attsvm.DetectorClassifier : Keeps the multiple-instance assumption.
    attsvm.datasets.Sequences : Sequences of different lengths.
    attsvm.datasets.digit_bags : Data to try it on.
    attsvm.estimator.MarginReport : The Att-SVM of the tokens it selects.

    Notes
    -----
    The parameters that are kept, validated and used for prediction are averages over about the last 100 steps, because
    single steps fluctuate with their batches.

    With ``alpha=0``, training converges in direction to the limit of the theory.

    Training uses float32 if the tokens are float32, otherwise float64. The penalty is that of the centred and scaled
    tokens, and the fitted attributes are those for the original ones.

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
    >>> classifier.classes_, classifier.predict(bags.test).shape, classifier.predict_proba(bags.test).shape
    (array([0, 1]), (1000,), (1000, 2))
    >>> classifier.attention(bags.test)[:5].sum().round(6)  # the five tokens of the first bag
    np.float64(1.0)
    >>> place = classifier.selected(bags.test)  # of the token with the largest attention
    >>> nines = bags.test_digits.reshape(-1, 5) == 9
    >>> bool(nines[range(1000), place][bags.test_labels == 1].mean() > 0.8)
    True
    """

    norm: str | None = field(default=None, kw_only=True)

    @property
    def path_(self) -> dict[int, PromptModel]:
        """Prompt, head and intercept after 0, 1, 2, 4, 8, … steps of the last fit, up to those that were kept."""
        network, coordinates, kept = self._network(), self._state.coordinates, self.kept_step_
        earlier = {steps: network.model(found, coordinates) for steps, found in self._path.items() if steps < kept}
        return {**earlier, kept: self._model}

    def attention(self, X: Any) -> Any:
        """The attention of each token; it sums to 1 in each sequence.

        Returns
        -------
        list of n arrays (T_i,); ndarray (n, T) for arrays; (N,) for ``Sequences``, like its ids

        See Also
        --------
        attsvm.AttentionClassifier.selected
        """
        given, output = self._forward(X)
        return given.restore(output.attention)

    def selected(self, X: Any) -> Any:
        """Position of the token with the largest attention in each sequence, shape (n,); the first one on ties.

        See Also
        --------
        attsvm.AttentionClassifier.attention
        """
        given, output = self._forward(X)
        return given.labelled(output.selected)

    def margin_report(self, X: Any = None, *, slack: float | None = None, max_sequences: int = SAMPLE) -> MarginReport:
        """The Att-SVM of the tokens that the prompt selects, and how close the prompt is to it.

        Parameters
        ----------
        X
            As for :meth:`fit`; by default the training sequences, at most 200, that a fit keeps with ``keep_sample``.
        slack : float, optional
            C of the soft margin. By default the hard margin is solved, and the soft one with C = 1 if that is
            infeasible.
        max_sequences : int
            If there are more sequences, this many are drawn with ``random_state``.

        Returns
        -------
        MarginReport

        Raises
        ------
        ProblemError
            If there are no sequences.

        See Also
        --------
        attsvm.estimator.MarginReport

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(150, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.margin_report(bags.train).separable
        True
        """
        return self._margins("p", ..., X, slack, max_sequences)

    def _network(self) -> PromptAttention:
        return PromptAttention()

    def _publish(self, model: PromptModel) -> None:
        self.prompt_, self.head_, self.intercept_ = model.prompt, model.head, model.intercept

    def _output(self, sequences: Sequences) -> np.ndarray:
        return forward(self._model, sequences).decision

    def _token_outputs(self, sequences: Sequences) -> np.ndarray:
        return np.asarray(token_products(self.head_.T, sequences) + self.intercept_)

    def _token_parts(self, sequences: Sequences) -> np.ndarray:
        return forward(self._model, sequences).attention[:, None] * self._token_outputs(sequences)

    @property
    def _model(self) -> PromptModel:
        return PromptModel(self.prompt_, self.head_, self.intercept_)

    def _forward(self, X: Any) -> tuple[GivenSequences, PromptOutput]:
        given = self._read(X)
        return given, forward(self._model, self._mapped(given))
