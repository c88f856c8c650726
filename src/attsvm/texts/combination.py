"""Whether attention, n-grams or both classify texts, by their losses on texts that they were not trained on."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.model_selection import StratifiedKFold

from attsvm._utils.shapes import Float, Int

FOLDS = 4

ENOUGH = 1000
"""Folds are held out until they have this many texts together."""

COMBINED = {"attention": [True, False], "ngrams": [False, True], "both": [True, True]}
"""Which of attention and n-grams have a weight."""


@dataclass(frozen=True)
class PartsChoice:
    """Whether attention, n-grams or both classify texts, with which weights, and why.

    Attributes
    ----------
    parts : {"attention", "ngrams", "both"}
    weights : tuple of two floats
        Of the outputs of attention and of n-grams.
    reason : str
        One sentence.
    losses : dict of str to float, optional
        Mean log-loss of each choice on held-out texts, weighted as the texts of the fit, plus the number of its weights
        divided by the number of texts, because the weights are fitted to these texts. None if none were held out.
    errors : dict of str to float, optional
        Standard error of the difference between each loss and that of "both".
    num_texts : int
        Number of held-out texts.

    See Also
    --------
    attsvm.TextClassifier : Its attribute ``choice_``.
    """

    parts: str
    weights: tuple[float, float]
    reason: str
    losses: dict[str, float] | None = None
    errors: dict[str, float] | None = None
    num_texts: int = 0


def folds(numbers: Int[np.ndarray, " n"], seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to train on and rows to hold out, with the shares of the classes, until enough are held out.

    ``numbers``: the classes. Texts of a class that is too small to divide are never held out. Empty if fewer than two
    classes can be divided.
    """
    large = np.bincount(numbers) >= FOLDS
    if large.sum() < 2:
        return []
    divided, rest = np.flatnonzero(large[numbers]), np.flatnonzero(~large[numbers])
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for train, held in splitter.split(divided, numbers[divided]):
        if sum(len(rows) for _, rows in found) < ENOUGH:
            found.append((np.sort(np.concatenate([divided[train], rest])), divided[held]))
    return found


@dataclass(frozen=True, eq=False)
class TextLabels:
    """The classes of n texts, and their weights in losses."""

    numbers: Int[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]  # positive; divided by their mean

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", self.weights / self.weights.mean())

    def __getitem__(self, rows: Int[np.ndarray, " m"]) -> "TextLabels":
        return TextLabels(self.numbers[rows], self.weights[rows])

    def losses(self, decision: Float[np.ndarray, "n R"]) -> Float[np.ndarray, " n"]:
        """Log-loss of each text, times its weight; R = 1 for two classes."""
        if decision.shape[1] == 1:
            return np.asarray(self.weights * np.logaddexp(0, (1 - 2 * self.numbers) * decision[:, 0]))
        return np.asarray(self.weights * -log_softmax(decision, axis=1)[np.arange(len(self.numbers)), self.numbers])


def choose(parts: str, decisions: Float[np.ndarray, "2 n R"], labels: TextLabels) -> PartsChoice:
    """Fit the weights of the parts to their outputs for n held-out texts; for "auto" choose the parts as well.

    Both are chosen if their loss is smaller than that of either alone by more than one standard error. Otherwise
    attention is, unless n-grams alone are better than it by more than one standard error.

    ``decisions``: of attention and of n-grams, for texts that they were not trained on. ``labels``: of these.

    References: Wolpert (1992), *Stacked generalization*; Breiman (1996), *Stacked regressions*, for weights >= 0.
    """
    weights = {name: _weights(decisions, labels, which) for name, which in COMBINED.items()}
    number = len(labels.numbers)
    of_texts = {
        name: labels.losses(np.tensordot(weights[name], decisions, axes=1)) + sum(which) / number
        for name, which in COMBINED.items()
    }
    errors = {name: _error(loss - of_texts["both"]) for name, loss in of_texts.items()}
    losses = {name: float(loss.mean()) for name, loss in of_texts.items()}
    best = parts
    if parts == "auto":
        alone = losses["attention"] - losses["ngrams"]
        best = "ngrams" if alone > _error(of_texts["attention"] - of_texts["ngrams"]) else "attention"
        if all(losses[name] - losses["both"] > errors[name] for name in ("attention", "ngrams")):
            best = "both"
    said = {"attention": "attention alone", "ngrams": "n-grams alone", "both": "both together"}
    reason = f"log-loss on {number:,} held-out texts: " + ", ".join(
        f"{losses[name]:.3f} of {words}" for name, words in said.items()
    )
    if best != "both" and parts == "auto" and min(losses, key=losses.__getitem__) != best:
        reason += "; differences are within one standard error"
    return PartsChoice(best, weights[best], reason, losses, errors, number)


def _error(differences: Float[np.ndarray, " n"]) -> float:
    return float(differences.std() / np.sqrt(len(differences)))


def _weights(decisions: Float[np.ndarray, "2 n R"], labels: TextLabels, which: list[bool]) -> tuple[float, float]:
    """Weights w >= 0 of least log-loss plus ‖w‖²/2, 0 for a part that is left out."""

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        decision = np.tensordot(weights, decisions, axes=1)
        if decision.shape[1] == 1:
            slope = expit(decision) - labels.numbers[:, None]
        else:
            slope = softmax(decision, axis=1) - (np.arange(decision.shape[1]) == labels.numbers[:, None])
        value = labels.losses(decision).sum() + 0.5 * weights @ weights
        return value, np.tensordot(decisions, labels.weights[:, None] * slope, axes=2) + weights

    bounds = [(0, None if has else 0) for has in which]
    found = minimize(objective, np.array(which, dtype=float), jac=True, bounds=bounds, method="L-BFGS-B").x
    return float(found[0]), float(found[1])
