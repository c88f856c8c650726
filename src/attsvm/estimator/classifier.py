"""Prompt attention as a scikit-learn classifier."""

from dataclasses import dataclass

from attsvm._utils.keywords import suggests
from attsvm.estimator.prompt import PromptAttention
from attsvm.estimator.prompt_estimator import PromptEstimator
from attsvm.estimator.sequence_classifier import SequenceClassifier
from attsvm.estimator.shared_documentation import document


@document(
    trained="prompt, head and intercept",
    rate=0.01,
    penalty="(‖p‖² + ‖V‖²)",
    positive="The class that ``instance_scores`` are for. By default that of {0, 1}, {False, True} or {-1, 1} with\n"
    "the larger number; for other labels ``instance_scores`` need ``class_``. Probabilities do not depend on it.",
    part="a tenth of each class",
    few="a tenth of some class is fewer than ten sequences",
    kind="classifier",
    next="attention",
    members="the mean and the largest similarity with landmarks, and the largest and smallest entry of each column",
    network="the attention",
)
@suggests
@dataclass(eq=False, repr=False)
class AttentionClassifier(PromptEstimator, SequenceClassifier):
    """Prompt attention with a linear head, f(X) = V X' softmax(X p) + b, for sequences, bags and sets.

    A sequence is a matrix (T_i, d), one row per token; the order of its tokens does not matter. One prompt p weights
    the tokens, and the head V classifies the weighted mean: logistic loss for two classes, cross-entropy for more.

    Parameters
    ----------
    {parameters of SequenceEstimator}
    {parameters of SequenceClassifier}
    norm : {"frobenius", "l<p>", "linf"}, optional
        Train in the geometry of this norm, instead of choosing an ``optimizer``: by gradient descent for "frobenius",
        by mirror descent with this p > 1, or by Adam for "linf". :func:`attsvm.recommend` compares norms.

    Attributes
    ----------
    prompt_ : ndarray, shape (d,)
    head_ : ndarray, shape (C, d), or (1, d) for two classes
        For two classes of the output that is large for ``positive_``, or for ``classes_[1]`` if that is None.
    intercept_ : ndarray, shape (C,), or (1,) for two classes
    {attributes of SequenceClassifier}
    {attributes of SequenceEstimator}
    history_ : dict of str to list
        Every 25 steps, or more if validation sequences take more than 400 MiB: ``steps``; ``objective``, its mean since
        the last line; with early stopping ``validation_loss`` and ``validation_accuracy``; ``effective_low``,
        ``effective_median`` and ``effective_high``, the 10, 50 and 90 % quantiles of the effective number of tokens
        exp(−Σ a log a) over the validation sequences, or over at most 1,000 training sequences of at most 32 MiB.
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
    The parameters used for validation and prediction are averages over about the last 100 steps, because single steps
    fluctuate with their batches.

    With ``alpha=0``, training converges in direction to the limit predicted by theory.

    Training uses float32 if the tokens are float32, otherwise float64. The penalty applies to the weights for the
    centred and scaled tokens; the fitted attributes are for the original tokens.

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

    def _network(self) -> PromptAttention:
        return PromptAttention()
