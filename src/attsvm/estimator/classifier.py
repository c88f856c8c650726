"""Prompt attention as a scikit-learn classifier."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax

from attsvm.datasets.sequences import Sequences
from attsvm.estimator.base import SequenceClassifier
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.forward import Model, Output, effective_number, forward, token_products
from attsvm.estimator.inputs import Given
from attsvm.estimator.margins import MarginReport
from attsvm.estimator.network import Network
from attsvm.estimator.steps import Batch, Parameters, objective_gradient


@dataclass(frozen=True)
class PromptAttention(Network):
    """f(X) = V X' softmax(X p) + b; the initial attention is uniform, and the initial head zero."""

    def initial(self, dim: int, rows: int, dtype: Any, generator: np.random.RandomState) -> Parameters:
        return {"p": np.zeros(dim, dtype), "V": np.zeros((rows, dim), dtype), "b": np.zeros(rows, dtype)}

    def value_and_gradient(self, parameters: Parameters, batch: Batch, alpha: Any) -> tuple[jax.Array, Parameters]:
        """Loss plus α/2 (‖p‖² + ‖V‖²), with the gradient that stays accurate when the softmax saturates."""
        return objective_gradient(parameters, batch, alpha)

    def model(self, parameters: Parameters, coordinates: Coordinates) -> Model:
        """Prompt, head and intercept for the original tokens; the softmax does not depend on the shift."""
        p, V, b = (np.asarray(parameters[name], dtype=np.float64) for name in ("p", "V", "b"))
        head = V / coordinates.scale
        return Model(p / coordinates.scale, head, b - head @ coordinates.centre)

    def watch(self, model: Model, sequences: Sequences) -> tuple[np.ndarray, dict[str, float]]:
        """Outputs, and quantiles of the effective number of tokens."""
        output = forward(model, sequences)
        quantiles = np.quantile(effective_number(output.attention, sequences), [0.1, 0.5, 0.9])
        names = "effective_low", "effective_median", "effective_high"
        return output.decision, dict(zip(names, map(float, quantiles), strict=True))


class AttentionClassifier(SequenceClassifier):
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
    positive : label, optional
        The class that ``instance_scores`` are for. By default that of {0, 1}, {False, True} or {-1, 1} with the larger
        number; for other labels ``instance_scores`` need ``class_``. Probabilities do not depend on it.
    random_state : int, RandomState or None
        For the validation split and the order of the batches.
    warm_start : bool
        Continue from the parameters of the last fit.
    token_net : transformer or PyTorch module, optional
        Maps each token before attention; it is not trained together with the classifier. A transformer of
        scikit-learn is fitted to the training tokens, without labels. A module is used as it is, in evaluation mode, so
        train it first; its parameters are not changed, and a copy of it is kept.
    scale : {"columns", "common"}, optional
        Tokens are centred and divided by the spread of each column, or by one common number. By default "columns" for
        tables, whose columns may have different units, and "common" for arrays, which keeps directions.
    device : str, optional
        Where to train: "cpu", "gpu" or "cuda" for the first GPU, "cuda:1" for the second. By default that of JAX.
        Prediction is on the CPU.
    verbose : bool
        Print each line of the history.

    Attributes
    ----------
    prompt_ : ndarray, shape (d,)
    head_ : ndarray, shape (C, d), or (1, d) for two classes
        For two classes of the output that is large for ``positive_``, or for ``classes_[1]`` if that is None.
    intercept_ : ndarray, shape (C,), or (1,) for two classes
    classes_ : ndarray, shape (C,)
        Sorted.
    positive_ : label or None
        The positive one of two classes; None if it is not known, and for more classes.
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
    """

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
        positive: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
        token_net: Any = None,
        scale: str | None = None,
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
        self.positive = positive
        self.random_state = random_state
        self.warm_start = warm_start
        self.token_net = token_net
        self.scale = scale
        self.device = device
        self.verbose = verbose

    @property
    def path_(self) -> dict[int, Model]:
        """Prompt, head and intercept after 0, 1, 2, 4, 8, … steps of the last fit, up to those that were kept."""
        network, coordinates, kept = self._network(), self._state.coordinates, self.kept_step_
        earlier = {steps: network.model(found, coordinates) for steps, found in self._path.items() if steps < kept}
        return {**earlier, kept: self._model}

    def attention(self, X: Any, *, mask: Any = None) -> Any:
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

    def selected(self, X: Any, *, mask: Any = None) -> Any:
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
        return given.labelled(given.positions(output.selected))

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
        >>> bags = attsvm.datasets.digit_bags(150, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.margin_report().separable
        True
        """
        return self._margins("p", ..., X, mask, slack, max_sequences)

    def _network(self) -> PromptAttention:
        return PromptAttention()

    def _publish(self, model: Model) -> None:
        self.prompt_, self.head_, self.intercept_ = model.prompt, model.head, model.intercept

    def _output(self, sequences: Sequences) -> np.ndarray:
        return forward(self._model, sequences).decision

    def _token_outputs(self, sequences: Sequences) -> np.ndarray:
        return np.asarray(token_products(self.head_.T, sequences) + self.intercept_)

    @property
    def _model(self) -> Model:
        return Model(self.prompt_, self.head_, self.intercept_)

    def _forward(self, X: Any, mask: Any) -> tuple[Given, Output]:
        given = self._read(X, mask)
        return given, forward(self._model, self._mapped(given))
