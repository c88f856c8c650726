"""Logistic regression on the mean of random Fourier features of the tokens: a kernel method without attention."""

import numpy as np
from jaxtyping import Float
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances

from attsvm.apps.tuning import tuned

KERNEL_MEANS = "mean of random Fourier features of the tokens"

FEATURES = 2000

WIDTHS = tuple(2.0 ** np.arange(-3, 4))
"""Values of γ among which cross-validation chooses, in units of the reciprocal median squared distance of tokens."""

PENALTIES = np.logspace(-1, 3, 5)
"""Values of C among which cross-validation chooses."""

SAMPLE = 500


def kernel_mean_accuracy(
    tokens: Float[np.ndarray, "n T d"],
    labels: Float[np.ndarray, " n"],
    test_tokens: Float[np.ndarray, "m T d"],
    truth: Float[np.ndarray, " m"],
    seed: int = 0,
) -> float:
    """Test accuracy of logistic regression on the mean of random Fourier features of the tokens.

    The features approximate the Gaussian kernel exp(−γ‖x − x'‖²), so this is a kernel classifier of bags of tokens. γ
    and the penalty are chosen by three-fold cross-validation on the training sequences; the features themselves do not
    depend on the data.

    ``tokens``, ``test_tokens``: sequences without masks. ``seed``: of the random features.

    References: Rahimi and Recht (2007), *Random Features for Large-Scale Kernel Machines*.
    """
    unit = 1 / _median_squared_distance(tokens, seed)
    best: tuple[float, float] | None = None
    for width in WIDTHS:
        sampler = RBFSampler(gamma=width * unit, n_components=FEATURES, random_state=seed)
        features, test_features = _means(sampler, tokens), _means(sampler, test_tokens)
        scale = np.abs(features).max()
        chosen, score = tuned(LogisticRegression(max_iter=300), {"C": PENALTIES}, features / scale, labels)
        if best is None or score > best[0]:
            best = score, float(chosen.score(test_features / scale, truth))
    assert best is not None
    return best[1]


def _means(sampler: RBFSampler, tokens: Float[np.ndarray, "n T d"]) -> Float[np.ndarray, "n F"]:
    n, T, d = tokens.shape
    rows = tokens.reshape(-1, d).astype(np.float32)  # cosines of float32 take a fraction of the time
    features: np.ndarray = sampler.fit_transform(rows).reshape(n, T, -1).mean(axis=1)
    return features


def _median_squared_distance(tokens: Float[np.ndarray, "n T d"], seed: int) -> float:
    rows = tokens.reshape(-1, tokens.shape[-1])
    chosen = np.random.default_rng(seed).choice(len(rows), size=min(SAMPLE, len(rows)), replace=False)
    distances = pairwise_distances(rows[chosen], metric="sqeuclidean")
    median = float(np.median(distances[np.triu_indices(len(chosen), 1)]))
    return median or 1.0  # most tokens are equal
