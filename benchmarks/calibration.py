"""Calibration of classifiers of bags: how far probabilities are from shares, by default and calibrated.

Bags of digits (500 and 2,000 for training, 2,000 for testing), and the same with shuffled labels. Expected calibration
error: the mean over ten bins of the probability of the positive class, weighted by size, of the difference between the
mean probability and the share of positive bags. "calibrated" is CalibratedClassifierCV(..., method="sigmoid", cv=5).

Run: python benchmarks/calibration.py [--seeds 5]
"""

import one_thread  # noqa: F401  # isort: skip

import argparse

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss

from attsvm import AttentionClassifier, DetectorClassifier
from attsvm.datasets import digit_bags


def calibration_error(labels, probability, bins=10):
    """Weighted mean over bins of |mean probability - share of positives|."""
    places = np.minimum((probability * bins).astype(int), bins - 1)
    differences = np.bincount(places, probability - labels, minlength=bins)
    return float(np.abs(differences).sum() / len(labels))


def data(name, seed):
    size = int(name.split()[1])
    bags = digit_bags(size, 2000, seed=seed)
    labels, of_test = bags.train_labels, bags.test_labels
    if name.startswith("noise"):
        generator = np.random.default_rng(seed)
        labels, of_test = generator.permutation(labels), generator.permutation(of_test)
    return bags.train, labels, bags.test, of_test


def main(seeds):
    print(f"{'data':12} {'classifier':20} {'probabilities':14} {'error':>7} {'log loss':>9} {'accuracy':>9}")
    for name in ("digits 500", "digits 2000", "noise 500"):
        for kind in (AttentionClassifier, DetectorClassifier):
            lines = {"default": [], "calibrated": []}
            for seed in range(seeds):
                X, y, X_test, y_test = data(name, seed)
                plain = kind(random_state=seed)
                models = {"default": plain, "calibrated": CalibratedClassifierCV(plain, method="sigmoid", cv=5)}
                for way, model in models.items():
                    probability = model.fit(X, y).predict_proba(X_test)[:, 1]
                    accuracy = ((probability > 0.5) == y_test).mean()
                    lines[way].append([calibration_error(y_test, probability), log_loss(y_test, probability), accuracy])
            for way, numbers in lines.items():
                error, loss, accuracy = np.mean(numbers, axis=0)
                print(f"{name:12} {kind.__name__:20} {way:14} {error:7.3f} {loss:9.3f} {accuracy:9.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    main(parser.parse_args().seeds)
