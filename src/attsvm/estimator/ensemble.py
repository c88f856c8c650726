"""A network together with ridge regressions on pooled features, for few sequences of several tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import expit

from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.network import Network
from attsvm.estimator.pooling import ColumnExtremes, LargestSimilarity, MeanSimilarity, Pooling, Similarities
from attsvm.estimator.ridge import fit_ridge
from attsvm.estimator.task import ClassificationTask

MOST_SEQUENCES, FEWEST_OF_A_CLASS, CELLS = 600, 5, 1 << 22
"""Most sequences, fewest of each class, and most numbers of tokens for which an ensemble is the default."""

OF_NETWORK = 0.5
"""Largest root mean square of the part of the network in the outputs, which are log odds."""

EQUALITY = 1.0
"""Strength of the penalty on differences between the weights of members."""

NO_OUTPUT = 1e-6
"""Root mean square of left-out outputs, which estimate labels ±1, below which they are rounding."""


@dataclass(frozen=True)
class Member:
    """A linear function of pooled features."""

    name: str
    pooling: Pooling
    coefficients: Float[np.ndarray, "m C"]
    intercept: Float[np.ndarray, " C"]

    def decision(self, sequences: Sequences) -> Float[np.ndarray, "n C"]:
        """Outputs of the sequences."""
        return np.asarray(self.pooling.features(sequences) @ self.coefficients + self.intercept)

    def contributions(self, sequences: Sequences) -> Float[np.ndarray, "N C"]:
        """The part of each token in the output; the intercept is divided equally."""
        lengths = sequences.lengths
        of_tokens = self.pooling.contributions(sequences, self.coefficients)
        return np.asarray(of_tokens + self.intercept / np.repeat(lengths, lengths)[:, None])


@dataclass(frozen=True, repr=False)
class Ensemble:
    """The members of a fit beside its network. The output is their weighted sum plus that of the network, scaled.

    Attributes
    ----------
    scale : float
        What the output of the network is multiplied by, at most 1: the root mean square is at most 0.5 for the training
        sequences. It is
        not chosen by left-out sequences, for which the network would have to be trained several times.
    members : tuple of Member
    weights : ndarray, shape (M,)
        Of the members in their sum, at least 0.
    shares : ndarray, shape (M,)
        The root mean square of the part of each member in the outputs for left-out sequences, divided by the sum of
        all of them.
    losses : ndarray, shape (M,)
        The mean logistic loss of the outputs of each member for left-out sequences, times its best number.
    loss, accuracy : float
        The mean loss, and the share of correct classes, of the weighted sum for left-out sequences. They are a little
        optimistic, because strengths and weights were chosen by them.

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


def read_ensemble(ensemble: bool | str) -> bool | None:
    """Whether an ensemble is wanted; None if that depends on the sequences.

    Raises ProblemError if it is something else.
    """
    if isinstance(ensemble, str) and ensemble == "auto":
        return None
    if not isinstance(ensemble, bool | np.bool_):
        raise ProblemError(f"ensemble: expected True, False or 'auto', got {ensemble!r}")
    return bool(ensemble)


def is_small(task: ClassificationTask, groups: np.ndarray | None) -> bool:
    """Whether an ensemble is the default: few sequences, some of several tokens, and enough of each class."""
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
    ``groups``: (n,), sequences of one group are left out together.

    Raises ProblemError if there is only one group.
    """
    if groups is not None and len(np.unique(groups)) < 2:
        raise ProblemError("groups: expected at least two with ensemble=True, which leaves groups out, got one")
    owners = np.arange(len(task.labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
    signs = 2.0 * (task.labels[:, None] == np.arange(task.num_classes)) - 1.0
    targets = signs[:, 1:] if task.num_classes == 2 else signs
    weights = task.weights / task.weights.mean()
    members, left_out = [], []
    for name, pooling in _poolings(task.sequences, coordinates, generator, network.monotone).items():
        fitted = fit_ridge(pooling.features(task.sequences), targets, weights, owners, nonnegative=network.monotone)
        members.append(Member(name, pooling, fitted.coefficients, fitted.intercept))
        left_out.append(fitted.left_out)
    size = np.sqrt((outputs**2).mean())
    scale = min(1.0, OF_NETWORK / size) if size > 0 else 0.0  # the noise of a network that hardly learned stays small
    return _weighted(task, targets, scale, tuple(members), np.array(left_out))


def _poolings(
    sequences: Sequences, coordinates: Coordinates, generator: np.random.RandomState, monotone: bool
) -> dict[str, Pooling]:
    similarities = Similarities.of(sequences, coordinates, generator)
    kinds = {"largest similarities": LargestSimilarity} | ({} if monotone else {"mean similarities": MeanSimilarity})
    found: dict[str, Pooling] = {}
    for name, kind in kinds.items():
        found[name] = kind(similarities.spread(kind(similarities).features(sequences)))
    return found | {"extremes of columns": ColumnExtremes.of(sequences, increasing=monotone)}


def _weighted(
    task: ClassificationTask,
    targets: Float[np.ndarray, "n C"],
    scale: float,
    members: tuple[Member, ...],
    outputs: Float[np.ndarray, "M n C"],
) -> Ensemble:
    """The weights of at least 0 that minimise the loss of the sum of the left-out outputs, drawn to equal shares."""
    sizes = np.sqrt((outputs**2).mean(axis=(1, 2)))
    sizes = np.where(sizes > NO_OUTPUT, sizes, 1.0)
    units = outputs / sizes[:, None, None]

    # Platt (1999): left-out outputs may separate the classes, and then no finite weight would be best for signs
    positive = (targets > 0).sum(axis=0)
    certain = np.where(targets > 0, 1 / (positive + 2), 1 / (len(targets) - positive + 2))
    parts = task.weights[:, None] / task.weights.sum()

    def smooth(shares: np.ndarray, chosen: np.ndarray, equality: float) -> tuple[float, np.ndarray, np.ndarray]:
        """Logistic loss of smoothed targets with the penalty on differences, its gradient and its second derivative."""
        margins = targets * np.einsum("m,mnc->nc", shares, chosen)
        value = (parts * (np.logaddexp(0.0, -margins) + certain * margins)).sum()
        slopes = parts * targets * (certain - expit(-margins))
        curvatures = parts * expit(margins) * expit(-margins)
        apart = np.eye(len(shares)) - 1 / len(shares)
        return (
            float(value + equality * shares @ apart @ shares),
            np.einsum("mnc,nc->m", chosen, slopes) + 2 * equality * apart @ shares,
            np.einsum("mnc,nc,knc->mk", chosen, curvatures, chosen) + 2 * equality * apart,
        )

    def best(chosen: np.ndarray, equality: float) -> np.ndarray:
        number = len(chosen)
        start, bounds = np.full(number, 1.0 / number), [(0.0, None)] * number
        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 200}
        of_shares = partial(smooth, chosen=chosen, equality=equality)
        found = minimize(lambda x: of_shares(x)[:2], start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        shares = found.x
        for _ in range(3):  # the last digits, by Newton's method on what is not at its bound
            _, gradient, curvature = of_shares(shares)
            free = shares > 0
            if free.any():
                step = np.linalg.lstsq(curvature[np.ix_(free, free)], gradient[free], rcond=1e-12)[0]
                shares[free] = np.maximum(shares[free] - step, 0.0)
        return np.asarray(shares)

    def loss(shares: np.ndarray, chosen: np.ndarray) -> float:
        margins = targets * np.einsum("m,mnc->nc", shares, chosen)
        return float((parts * np.logaddexp(0.0, -margins)).sum())

    shares = best(units, EQUALITY / len(targets))
    alone = np.array([loss(best(unit[None], 0.0), unit[None]) for unit in units])
    accuracy = task.scores(np.einsum("m,mnc->nc", shares, units))["validation_accuracy"]
    found = loss(shares, units)
    return Ensemble(float(scale), members, shares / sizes, shares / (shares.sum() or 1.0), alone, found, accuracy)
