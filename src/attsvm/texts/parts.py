"""Train attention and n-grams, and compare them on texts that they were not trained on."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import clone

from attsvm._utils.progress import Callback, in_draws
from attsvm.estimator import AttentionClassifier
from attsvm.texts.combination import PartsChoice, choose, folds, losses_of
from attsvm.texts.encoding import EncodedTexts
from attsvm.texts.ngrams import NgramModel, learn_features, outputs, regression

PENALTIES = (1.0, 10.0, 100.0)
"""Values of C among which the held-out loss of n-grams chooses."""

DEFAULT_PENALTY = 10.0
"""C if nothing can be held out."""


@dataclass(frozen=True)
class FittedParts:
    """What classifies texts."""

    attention: AttentionClassifier
    ngrams: NgramModel | None
    choice: PartsChoice


def fit_parts(
    parts: str,
    classifier: AttentionClassifier,
    encoded: EncodedTexts,
    labels: np.ndarray,
    min_documents: int,
    seed: int,
    callback: Callback | None = None,
) -> FittedParts:
    """Train the parts on all texts, and choose among them by models of a part of the texts.

    ``parts``: "auto", "attention" or "both". ``classifier``: the attention part before its fit. ``min_documents``:
    number of texts that an n-gram must occur in. ``seed``: of the texts that are held out.
    """
    _, numbers = np.unique(labels, return_inverse=True)
    features = None if parts == "attention" else learn_features(encoded.documents, min_documents)
    held_out = [] if features is None else folds(numbers, seed)
    callbacks = [in_draws(callback, i, len(held_out) + 1, "training") for i in range(len(held_out) + 1)]
    attention = clone(classifier).fit(encoded.sequences, labels, callback=callbacks[0])
    if features is None:
        reason = "n-grams were not trained" if parts == "attention" else "no n-gram occurs in enough texts"
        return FittedParts(attention, None, PartsChoice("attention", (1.0, 0.0), reason))
    matrix = features.matrix(encoded.documents)
    penalty = DEFAULT_PENALTY
    if held_out:
        of_attention = [
            _outputs_of_attention(clone(classifier), encoded, labels, train, held, own)
            for (train, held), own in zip(held_out, callbacks[1:], strict=True)
        ]
        rows = np.concatenate([held for _, held in held_out])
        of_ngrams = {C: _outputs_of_ngrams(matrix, numbers, held_out, C) for C in PENALTIES}
        penalty = min(PENALTIES, key=lambda C: losses_of(of_ngrams[C], numbers[rows]).sum())
        choice = choose(parts, np.stack([np.concatenate(of_attention), of_ngrams[penalty]]), numbers[rows])
    else:
        reason = "not compared, because fewer than two labels have enough texts to hold some out"
        alone = PartsChoice("attention", (1.0, 0.0), reason)
        choice = alone if parts == "auto" else PartsChoice("both", (0.5, 0.5), reason)
    fitted = regression(matrix, numbers, penalty)
    return FittedParts(attention, NgramModel(features, fitted.coef_, fitted.intercept_), choice)


def _outputs_of_attention(
    classifier: AttentionClassifier,
    encoded: EncodedTexts,
    labels: np.ndarray,
    train: Int[np.ndarray, " k"],
    held: Int[np.ndarray, " m"],
    callback: Callback | None,
) -> Float[np.ndarray, "m R"]:
    classifier.fit(encoded.sequences[train], labels[train], callback=callback)
    return np.asarray(classifier.decision_function(encoded.sequences[held])).reshape(len(held), -1)


def _outputs_of_ngrams(
    matrix: Any, numbers: Int[np.ndarray, " n"], held_out: list[tuple[np.ndarray, np.ndarray]], C: float
) -> Float[np.ndarray, "M R"]:
    found = [outputs(regression(matrix[train], numbers[train], C), matrix[held]) for train, held in held_out]
    return np.concatenate(found)
