"""A network together with ridge regressions on pooled features, for few sequences of several tokens."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.network import Network
from attsvm.estimator.pooling import ColumnExtremes, LargestSimilarity, MeanSimilarity, Pooling, Similarities
from attsvm.estimator.ridge import fit_ridge
from attsvm.estimator.stacking import Stacking
from attsvm.estimator.task import ClassificationTask

MOST_SEQUENCES, FEWEST_OF_A_CLASS, CELLS = 600, 5, 1 << 22
"""Most sequences, fewest of each class, and most numbers of tokens for which an ensemble is the default."""

MOST_OF_NETWORK = 0.5
"""Largest root mean square of the part of the network in the outputs, which are log odds."""

EQUALITY = 1.0
"""Strength of the penalty on differences between the weights of members."""

ROUNDING = 1e-6
"""Root mean square of left-out outputs, which estimate labels ±1, below which they are rounding."""


@dataclass(frozen=True)
class Member:
    """A linear function of pooled features."""

    name: str
    pooling: Pooling
    coefficients: Float[np.ndarray, "m C"]
    intercept: Float[np.ndarray, " C"]
    means: Float[np.ndarray, " m"]  # of the features of the training sequences

    def decision(self, sequences: Sequences) -> Float[np.ndarray, "n C"]:
        """Outputs of the sequences."""
        return np.asarray(self.pooling.features(sequences) @ self.coefficients + self.intercept)

    def contributions(self, sequences: Sequences) -> Float[np.ndarray, "N C"]:
        """The part of each token in the output; that of mean features is divided equally.

        A feature counts by its difference from the mean. Otherwise a token that each sequence has would have a large
        part, which the intercept takes back.
        """
        lengths = sequences.lengths
        level = self.intercept + self.means @ self.coefficients
        of_tokens = self.pooling.contributions(sequences, self.coefficients, self.means)
        return np.asarray(of_tokens + level / np.repeat(lengths, lengths)[:, None])


@dataclass(frozen=True, repr=False)
class Ensemble:
    """The members of a fit besides its network. The output is their weighted sum plus the scaled output of the network.

    Attributes
    ----------
    scale : float
        What the output of the network is multiplied by, at most 1, so that its root mean square is at most 0.5 for the
        training sequences. It is not chosen by left-out sequences, for which the network would have to be trained
        several times.
    members : tuple of Member
    weights : ndarray, shape (M,)
        Of the members in their sum, at least 0.
    shares : ndarray, shape (M,)
        The root mean square of the part of each member in the outputs for left-out sequences, divided by the sum of
        all of them.
    losses : ndarray, shape (M,)
        The mean logistic loss of each member alone for left-out sequences: its outputs are multiplied by the number of
        at least 0 that is best for it. For more than two classes the losses of their outputs are added.
    loss, accuracy : float
        The mean loss, and the share of correct classes, of the weighted sum for left-out sequences. They are a little
        optimistic, because strengths and weights were chosen by these sequences.

    See Also
    --------
    attsvm.AttentionClassifier : Fits one, by default to few sequences.

    Examples
    --------
    >>> import attsvm
    >>> bags = attsvm.datasets.digit_bags(60, 20, seed=0)
    >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
    >>> [member.name for member in classifier.ensemble_.members]
    ['largest similarities', 'mean similarities', 'extremes of columns']
    """

    scale: float
    members: tuple[Member, ...]
    weights: Float[np.ndarray, " M"]
    shares: Float[np.ndarray, " M"]
    losses: Float[np.ndarray, " M"]
    loss: float
    accuracy: float

    def __repr__(self) -> str:
        each = (
            f"{member.name} {share:.0%} (loss {loss:.3f})"
            for member, share, loss in zip(self.members, self.shares, self.losses, strict=True)
        )
        found = f"loss {self.loss:.3f}, accuracy {self.accuracy:.3f}"
        return f"Ensemble: the network and {', '.join(each)}; members for left-out sequences: {found}"

    def combine(self, own: np.ndarray, of_member: Callable[[Member], np.ndarray]) -> np.ndarray:
        """The scaled values of the network plus the weighted sum of those of the members."""
        pairs = zip(self.weights, self.members, strict=True)
        return np.asarray(self.scale * own + sum(weight * of_member(member) for weight, member in pairs))


def wants_ensemble(
    ensemble: bool | str, task: ClassificationTask, groups: np.ndarray | None, *, by_default: bool
) -> bool:
    """Whether a fit has an ensemble; ``by_default``: also with "auto", for few sequences.

    Raises ProblemError if ``ensemble`` is none of its values, or there is only one group to leave out.
    """
    if isinstance(ensemble, str) and ensemble == "auto":
        return by_default and _is_small(task, groups)
    if not isinstance(ensemble, bool | np.bool_):
        raise ProblemError(f"ensemble: expected True, False or 'auto', got {ensemble!r}")
    if ensemble and groups is not None and len(np.unique(groups)) < 2:
        raise ProblemError("groups: expected at least two with ensemble=True, which leaves out groups, got one")
    return bool(ensemble)


def _is_small(task: ClassificationTask, groups: np.ndarray | None) -> bool:
    """Whether there are few sequences, some of several tokens, and enough of each class."""
    sequences, counts = task.sequences, np.bincount(task.labels, minlength=task.num_classes)
    return bool(
        len(sequences) <= MOST_SEQUENCES
        and sequences.lengths.max() > 1
        and counts.min() >= FEWEST_OF_A_CLASS
        and len(sequences.ids) * sequences.dim <= CELLS
        # without any one group the others still have each class
        and (groups is None or all(len(np.unique(groups[task.labels == c])) > 1 for c in range(task.num_classes)))
    )


def fit_ensemble(
    network: Network,
    outputs: Float[np.ndarray, "n C"],
    task: ClassificationTask,
    groups: np.ndarray | None,
    coordinates: Coordinates,
    generator: np.random.RandomState,
) -> Ensemble:
    """Fit the members, and weights with which their sum predicts left-out sequences.

    ``outputs``: of the trained network for these sequences.
    ``groups``: (n,), at least two; sequences of one group are left out together.
    """
    owners = np.arange(len(task.labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
    signs = 2.0 * (task.labels[:, None] == np.arange(task.num_classes)) - 1.0
    targets = signs[:, 1:] if task.num_classes == 2 else signs
    weights = task.weights / task.weights.mean()
    members, left_out = [], []
    for name, pooling in _poolings(task.sequences, coordinates, generator, network.monotone).items():
        fitted = fit_ridge(pooling.features(task.sequences), targets, weights, owners, nonnegative=network.monotone)
        members.append(Member(name, pooling, fitted.coefficients, fitted.intercept, fitted.means))
        left_out.append(fitted.left_out)
    size = float(np.sqrt((outputs**2).mean()))
    # the noise of a network that hardly learned stays small
    scale = min(1.0, MOST_OF_NETWORK / size) if size > 0 else 0.0
    sizes = np.sqrt((np.array(left_out) ** 2).mean(axis=(1, 2)))
    sizes = np.where(sizes > ROUNDING, sizes, 1.0)
    units, stacking = np.array(left_out) / sizes[:, None, None], Stacking(targets, task.weights)
    shares = stacking.best(units, EQUALITY / len(targets))
    total = np.einsum("m,mnc->nc", shares, units)
    return Ensemble(
        scale,
        tuple(members),
        weights=shares / sizes,
        shares=shares / (shares.sum() or 1.0),
        losses=np.array([stacking.loss(stacking.best(unit[None]) * unit) for unit in units]),
        loss=stacking.loss(total),
        accuracy=task.scores(total)["validation_accuracy"],
    )


def _poolings(
    sequences: Sequences, coordinates: Coordinates, generator: np.random.RandomState, monotone: bool
) -> dict[str, Pooling]:
    similarities = Similarities.of(sequences, coordinates, generator)
    kinds = {"largest similarities": LargestSimilarity} | ({} if monotone else {"mean similarities": MeanSimilarity})
    found: dict[str, Pooling] = {}
    for name, kind in kinds.items():
        found[name] = kind(similarities.spread(kind(similarities).features(sequences)))
    return found | {"extremes of columns": ColumnExtremes.of(sequences, increasing=monotone)}
