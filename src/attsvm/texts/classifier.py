"""The classifier of texts: what it learns, and what it says about a text."""

import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from attsvm._utils.checks import check_choice, check_seed
from attsvm._utils.keywords import suggests
from attsvm._utils.progress import Callback, reports
from attsvm._utils.shapes import Float
from attsvm.datasets import Sequences, shown
from attsvm.errors import ProblemError
from attsvm.estimator import AttentionClassifier, ClassificationReport, Predictions, Saveable, read_labels, read_weights
from attsvm.optimizers import optimizer_options
from attsvm.texts.contributions import TextContributions
from attsvm.texts.encoding import EncodedTexts, encode_new, learn_encoder, read
from attsvm.texts.parts import fit_parts
from attsvm.texts.report import TextReport
from attsvm.texts.words import MAX_LENGTH

ALPHA = 20.0
"""Strength of the penalty. It keeps the head small, so that attention has to concentrate on the telling words."""

LEARNING_RATES = {"adam": 0.003, "mirror_descent": 0.1}
"""Default learning rates, for word vectors of unit length."""


@suggests
@dataclass(eq=False, repr=False)
class TextClassifier(Saveable, ClassifierMixin, BaseEstimator):
    """Attention over the words of a text, combined with a linear model of n-grams if that is better.

    ``fit`` learns the words, their vectors and their pairs from texts. The output is w₁ (Σ_t a_t v'x_t + b₁) + w₂ (c'z
    + b₂). The x_t are the vectors of the words, a the attention of one trained prompt
    (:class:`attsvm.AttentionClassifier`), and z TF-IDF weights of words and pairs of neighbouring words, on which c is
    trained by logistic regression. So the output is a sum of one term for each word and each n-gram, which
    :meth:`contributions` returns.

    Parameters
    ----------
    parts : {"auto", "attention", "both"}
        "both" combines attention with n-grams; w is fitted to their outputs for held-out texts. "auto" does so if this
        reduces the loss on these texts by more than one standard error, compared with attention alone and with n-grams
        alone; otherwise it uses one of them. ``choice_`` says which, and why. "attention" trains no n-grams and holds
        out no texts, which takes half of the time for thousands of texts, and a fifth of it for hundreds.
    tokenizer : str or callable, optional
        How to split a text into words: "words", the default, by Unicode's rules (UAX #29) and in lower case; "spaces";
        "characters"; a function from a text to a list of words, or its import path ``package.module:name``; or a fast
        Hugging Face tokenizer, given by its folder or its name on the hub.
    embed : str or path, optional
        A folder with a pretrained transformer, whose last hidden states replace the word vectors.
    dim : int
        Length d of a word vector.
    min_documents : int
        Least number of training texts with a word or a pair for it to be known.
    max_length : int
        Number of known words that attention reads from the beginning of a text. N-grams are taken from the whole text.
    optimizer : str, optional
        Trains the attention, as for :class:`attsvm.AttentionClassifier`. By default "mirror_descent" if ``p`` is given,
        otherwise "adam".
    p : float, optional
        The option p of the optimiser, p > 1 for mirror descent.
    learning_rate : float, optional
        By default 0.003 for Adam, 0.1 for mirror descent, and the default of the optimiser for others.
    max_steps : int
        Largest number of steps for the attention; early stopping on a tenth of each class usually ends training before.
    random_state : int, RandomState or None
        Determines the word vectors, the split for early stopping, the batches and the held-out texts.
    device : str, optional
        Where attention is trained, and where a transformer runs.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Sorted.
    choice_ : PartsChoice
        Which parts classify, their weights w, and why.
    attention_ : AttentionClassifier
        The attention part, over the tokens of the encoder.
    ngrams_ : NgramModel or None
        The n-gram part; None with ``parts="attention"``, or if no word occurs in enough texts.
    encoder_ : WordVectors or States
        Turns texts into tokens.

    See Also
    --------
    attsvm.AttentionClassifier : For sequences of vectors.
    attsvm.texts.TextContributions : An output, word by word.
    attsvm.texts.TextReport : How much attention adds.

    Notes
    -----
    Word vectors are a truncated singular value decomposition of the smoothed positive pointwise mutual information of
    words at most five places apart. A text without known words, such as an empty one, is one token of zeros.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Levy and Goldberg
    (2014), *Neural Word Embedding as Implicit Matrix Factorization*; Wolpert (1992), *Stacked Generalization*.

    Examples
    --------
    >>> import attsvm
    >>> texts = ["a good film", "a bad film", "good plot and music", "the plot is bad", "so good", "so bad"] * 10
    >>> labels = ["good" if "good" in text else "bad" for text in texts]
    >>> classifier = attsvm.TextClassifier(max_steps=500, random_state=0).fit(texts, labels)
    >>> classifier.predict(["bad music", "what a good plot"]).tolist()
    ['bad', 'good']
    >>> classifier.selected(["bad music", "what a good plot"]).tolist()
    ['bad', 'good']
    >>> terms = classifier.contributions(["what a good plot"])[0]
    >>> terms.words
    ('a', 'good', 'plot')
    >>> bool(abs(terms.decision - classifier.decision_function(["what a good plot"])[0]) < 1e-10)
    True
    """

    parts: str = "auto"
    _: KW_ONLY
    tokenizer: str | Callable[[str], Sequence[str]] | None = None
    embed: str | os.PathLike[str] | None = None
    dim: int = 200
    min_documents: int = 5
    max_length: int = MAX_LENGTH
    optimizer: str | None = None
    p: float | None = None
    learning_rate: float | None = None
    max_steps: int = 5000
    random_state: Any = None
    device: str | None = None

    @reports("training")
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        callback: Callback | None = None,
        progress: bool = False,
    ) -> Self:
        """Learn words, attention and n-grams from labelled texts.

        Parameters
        ----------
        X : list, tuple, array or series of n str
            Or what :meth:`learn_encoder` returned for them.
        y : array, shape (n,)
            At least two different labels.
        sample_weight : array, shape (n,), optional
            Weights in the losses of attention and of n-grams, and in those of held-out texts. They are divided by their
            mean, so their scale does not matter, and the penalties depend on the number of texts. They do not change
            which words are known, word vectors and the frequencies of TF-IDF. A text of weight 0 is left out, as if it
            were not given, except from what :meth:`learn_encoder` has learned before.
        callback : callable, optional
            Called with a :class:`attsvm.Progress` every 25 steps of each training. True stops that training.
        progress : bool
            Show the progress on the way to ``max_steps`` of each training.

        Returns
        -------
        self
            The classifier itself.

        Raises
        ------
        ProblemError
            If an entry is no text, an argument does not fit, fewer than two words occur in enough texts, or there is
            only one class.
        """
        seed = self._seed()
        classifier = self._attention_classifier(seed)
        texts = X if isinstance(X, EncodedTexts) else read(X)
        labels = read_labels(y, len(texts), type(self).__name__)
        weights = read_weights(sample_weight, labels)
        if not weights.all():
            kept = np.flatnonzero(weights)
            texts = texts[kept] if isinstance(texts, EncodedTexts) else tuple(texts[row] for row in kept)
            labels, weights = labels[kept], weights[kept]
        encoded = texts if isinstance(texts, EncodedTexts) else self.learn_encoder(texts)
        fitted = fit_parts(self.parts, classifier, encoded, labels, weights, self.min_documents, seed, callback)
        self.encoder_, self.classes_ = encoded.encoder, fitted.attention.classes_
        self.attention_, self.ngrams_, self.choice_ = fitted.attention, fitted.ngrams, fitted.choice
        self._largest = self.classes_[np.unique(labels, return_counts=True)[1].argmax()]
        return self

    def learn_encoder(self, X: Any) -> EncodedTexts:
        """Learn the words and their vectors, or load the transformer, and encode the texts.

        :meth:`fit` does this by itself. Its result can be given to any method in place of the texts, where they are
        read several times.

        Parameters
        ----------
        X : list, tuple, array or series of n str

        Returns
        -------
        EncodedTexts
        """
        seed = self._seed()
        self._attention_classifier(seed)  # wrong parameters are named before the work
        return learn_encoder(read(X), self, seed)

    def encode(self, X: Any) -> EncodedTexts:
        """Encode texts with the words of the fit.

        The result can be given to any other method in place of the texts, where they are read several times.

        Parameters
        ----------
        X : list, tuple, array or series of n str

        Returns
        -------
        EncodedTexts
        """
        check_is_fitted(self)
        if not isinstance(X, EncodedTexts):
            return encode_new(read(X), self.encoder_)
        if X.encoder is not self.encoder_:
            raise ProblemError("X: expected texts encoded by this classifier, got texts from another encoder")
        return X

    def decision_function(self, X: Any) -> np.ndarray:
        """Outputs for n texts, shape (n,) for two classes, else (n, C); positive means ``classes_[1]``."""
        return _as_given(self._decision(self.encode(X)))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each text, shape (n,)."""
        return self._named(self._decision(self.encode(X)))

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n C"]:
        """The probability of each class, shape (n, C), in the order of ``classes_``."""
        decision = self._decision(self.encode(X))
        if decision.shape[1] == 1:
            return np.asarray(expit(np.concatenate([-decision, decision], axis=1)))
        return np.asarray(softmax(decision, axis=1))

    def attention(self, X: Any) -> list[Float[np.ndarray, " T"]]:
        """The attention of the known words of each text: n arrays (T_i,), each with sum 1.

        See Also
        --------
        attsvm.TextClassifier.words : The words, in the same order.
        """
        encoded = self.encode(X)
        return np.split(self.attention_.attention(encoded.sequences), encoded.sequences.offsets[1:-1])

    def words(self, X: Any) -> list[list[str]]:
        """The words of each text that attention reads; one word "" for a text without known words."""
        encoded = self.encode(X)
        names = (*encoded.encoder.vocabulary, "")
        return [[names[i] for i in of_text] for of_text in np.split(encoded.words, encoded.sequences.offsets[1:-1])]

    def selected(self, X: Any) -> np.ndarray:
        """The word with the largest attention in each text, shape (n,); "" for a text without known words."""
        encoded = self.encode(X)
        places = encoded.sequences.offsets[:-1] + self.attention_.selected(encoded.sequences)
        return np.asarray(np.array((*encoded.encoder.vocabulary, ""))[encoded.words[places]])

    def contributions(self, X: Any) -> list[TextContributions]:
        """The output for each text as a sum over its words and its n-grams.

        Parameters
        ----------
        X : list, tuple, array or series of n str

        Returns
        -------
        list of n TextContributions
            Their ``decision`` is that of :meth:`decision_function`.
        """
        encoded = self.encode(X)
        of_attention, of_ngrams = self.choice_.weights
        attention = self.attention_.attention(encoded.sequences)
        of_words = of_attention * attention[:, None] * self._alone(encoded.sequences)
        words, offsets = self.words(encoded), encoded.sequences.offsets
        found = []
        for row, text in enumerate(encoded.texts):
            own = slice(offsets[row], offsets[row + 1])
            places = [(begin, end) for _, begin, end in encoded.encoder.known(text)] or [(0, 0)]
            terms: tuple[str, ...] = ()
            of_terms, intercept = np.zeros((0, of_words.shape[1])), np.zeros(of_words.shape[1])
            if self.ngrams_ is not None:
                terms, of_terms = self.ngrams_.terms_of(encoded.documents[row])
                of_terms, intercept = of_ngrams * of_terms, of_ngrams * self.ngrams_.intercept
            found.append(
                TextContributions(
                    tuple(words[row]),
                    np.array(places),
                    attention[own],
                    _as_given(of_words[own]),
                    terms,
                    _as_given(of_terms),
                    float(intercept[0]) if len(intercept) == 1 else intercept,
                )
            )
        return found

    def report(self, X: Any, y: Any) -> TextReport:
        """How well the classifier predicts the classes, beside attention alone and n-grams alone.

        Parameters
        ----------
        X : list, tuple, array or series of n str
        y : array, shape (n,)

        Returns
        -------
        TextReport
        """
        encoded = self.encode(X)
        labels = read_labels(y, len(encoded), type(self).__name__)
        attention = self.attention_.report(encoded.sequences, labels)

        def of(decision: np.ndarray) -> ClassificationReport:
            scores = decision[:, 0] if decision.shape[1] == 1 else softmax(decision, axis=1)
            return ClassificationReport.of(self.classes_, labels, self._named(decision), scores, self._largest)

        ngrams = None if self.ngrams_ is None else of(self.ngrams_.decision(encoded.documents))
        return TextReport(of(self._decision(encoded)), attention, ngrams)

    def predictions(self, X: Any, y: Any = None) -> Predictions:
        """All predictions for new texts: classes, probabilities, and the attention and scores of their words.

        Parameters
        ----------
        X : list, tuple, array or series of n str
        y : array, shape (n,), optional
            What the texts are known to be.

        Returns
        -------
        attsvm.estimator.Predictions
            Its tokens are words, and the selected one is that of the largest attention, which is NaN for "". The scores
            are those of a word by itself. Both are without n-grams, whose parts :meth:`contributions` returns.
        """
        encoded = self.encode(X)
        named = {str(name): name for name in self.classes_.tolist()}  # the labels of a table are words
        y = None if y is None else [named.get(str(label), label) for label in np.asarray(y).tolist()]
        if unknown := [label for label in y or () if label not in self.classes_.tolist()]:
            raise ProblemError(f"y: expected one of the labels {shown(self.classes_)}, got {unknown[0]!r}")
        sequences, names = encoded.sequences, (*encoded.encoder.vocabulary, "")
        scores = [self.attention_.instance_scores(sequences, class_=name) for name in self.classes_.tolist()]
        return Predictions(
            classes=self.classes_,
            names=np.arange(len(encoded)),
            probability=self.predict_proba(encoded),
            offsets=sequences.offsets,
            tokens=np.array(names)[encoded.words],
            attention=np.where(encoded.words < len(names) - 1, self.attention_.attention(sequences), np.nan),
            instance_scores=np.column_stack(scores),
            first=sequences.offsets[:-1] + self.attention_.selected(sequences),
            ensemble={"attention": (), "both": ("n-grams",), "ngrams": ("n-grams alone",)}[self.choice_.parts],
            labels=None if y is None else np.asarray(y),
            report=None if y is None else self.report(encoded, y).combined,
        )

    def __sklearn_tags__(self) -> Any:
        """Tags of the estimator for scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def _decision(self, encoded: EncodedTexts) -> Float[np.ndarray, "n R"]:
        of_attention, of_ngrams = self.choice_.weights
        decision = of_attention * _as_matrix(self.attention_.decision_function(encoded.sequences))
        return decision if self.ngrams_ is None else decision + of_ngrams * self.ngrams_.decision(encoded.documents)

    def _alone(self, sequences: Sequences) -> Float[np.ndarray, "N R"]:
        """The outputs of the attention part for each token alone."""
        second = self.classes_[1] if len(self.classes_) == 2 else None
        return _as_matrix(self.attention_.instance_scores(sequences, class_=second))

    def _named(self, decision: Float[np.ndarray, "n R"]) -> np.ndarray:
        numbers = (decision[:, 0] > 0).astype(int) if decision.shape[1] == 1 else decision.argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    def _seed(self) -> int:
        """The seed; drawn where ``random_state`` is none."""
        if isinstance(self.random_state, int | np.integer):
            return check_seed(self.random_state, "random_state")
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _attention_classifier(self, seed: int) -> AttentionClassifier:
        """The attention part before its fit, with the defaults for what is not given; the parameters are checked."""
        check_choice("parts", self.parts, "auto", "attention", "both")
        optimizer = self.optimizer or ("adam" if self.p is None else "mirror_descent")
        if ("p" in optimizer_options(optimizer)) != (self.p is not None):
            expected, got = ("a number", "none") if self.p is None else ("none", f"{self.p:g}")
            raise ProblemError(f"p: expected {expected} for the optimiser {optimizer}, got {got}")
        rate = LEARNING_RATES.get(optimizer) if self.learning_rate is None else self.learning_rate
        given = {"p": self.p, "learning_rate": rate}
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return AttentionClassifier(
            optimizer,
            ensemble=False,
            alpha=ALPHA,
            max_steps=self.max_steps,
            random_state=seed,
            device=self.device,
            scale="common",
            **chosen,
        )


def _as_matrix(values: np.ndarray) -> np.ndarray:
    return np.asarray(values).reshape(len(values), -1)


def _as_given(values: Float[np.ndarray, "n R"]) -> np.ndarray:
    """Outputs in the form of scikit-learn: a vector for two classes."""
    return values[:, 0] if values.shape[1] == 1 else values
