"""Accuracy of the estimator on bags of digits, and how often it selects the nine, compared with the mean token.

A bag has five of scikit-learn's digits and is positive if one of them is a nine. There are 2,000 bags for training and
1,000 for testing, of disjoint pictures, in five splits. Tokens are the pixels, or a random Fourier feature map of the
pictures. The baseline is logistic regression on the mean token of a bag, with a cross-validated penalty.

Run: python benchmarks/bags_of_digits.py [--splits 5]
"""

import argparse
import time
from typing import NamedTuple

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from attsvm import AttentionClassifier
from attsvm.datasets import Sequences, digit_bags
from attsvm.datasets.bags import Bags

FEATURES = 2000
GAMMA = 0.05
ALPHA_FEATURES = 20.0


class Measured(NamedTuple):
    """Results of one split."""

    accuracy: float
    nine: float
    baseline: float
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    splits = parser.parse_args().splits
    print("| tokens | split | accuracy | nine most attended | mean token | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, features, classifier in (
        ("pixels", False, AttentionClassifier()),
        (f"{FEATURES:,} random features", True, AttentionClassifier(alpha=ALPHA_FEATURES)),
    ):
        found = []
        for seed in range(splits):
            bags = digit_bags(2000, 1000, seed=seed)
            found.append(measure(mapped(bags, seed) if features else (bags.train, bags.test), bags, classifier, seed))
            print(f"| {name} | {seed} | {row(found[-1])} |", flush=True)
        print(f"| {name} | mean | {row(Measured(*np.mean(found, axis=0)))} |", flush=True)


def mapped(bags: Bags, seed: int) -> tuple[Sequences, Sequences]:
    """The bags after a random feature map of the Gaussian kernel."""
    sampler = RBFSampler(gamma=GAMMA, n_components=FEATURES, random_state=seed).fit(bags.train.table)

    def through(sequences: Sequences) -> Sequences:
        table = sampler.transform(sequences.table).astype(np.float32)
        return Sequences(table, sequences.ids, sequences.offsets)

    return through(bags.train), through(bags.test)


def measure(tokens: tuple[Sequences, Sequences], bags: Bags, classifier: AttentionClassifier, seed: int) -> Measured:
    train, test = tokens
    start = time.perf_counter()
    classifier.set_params(random_state=seed).fit(train, bags.train_labels)
    seconds = time.perf_counter() - start
    selected = bags.test.offsets[:-1] + classifier.selected(test)
    nine = (bags.test_digits[selected] == 9)[bags.test_labels == 1].mean()
    scaler = StandardScaler().fit(means(train))
    baseline = GridSearchCV(LogisticRegression(max_iter=2000), {"C": np.logspace(-4, 2, 7)}, cv=3)
    baseline.fit(scaler.transform(means(train)), bags.train_labels)
    return Measured(
        classifier.score(test, bags.test_labels),
        nine,
        baseline.score(scaler.transform(means(test)), bags.test_labels),
        seconds,
    )


def means(sequences: Sequences) -> np.ndarray:
    return np.array([array.mean(axis=0) for array in sequences])


def row(found: Measured) -> str:
    return f"{found.accuracy:.3f} | {found.nine:.3f} | {found.baseline:.3f} | {found.seconds:.1f}"


if __name__ == "__main__":
    main()
