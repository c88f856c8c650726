"""Classic multiple-instance benchmarks: both classifiers beside pooled kernels and boosting, by ten-fold validation.

DIR holds musk1, musk2, elephant and fox (or others, --tasks) as NAME.parquet with the columns bag, label and features,
one row an instance, and NAME_folds.csv with the fold of each bag in five repetitions (columns bag, repetition_0, ...).
Without a file of folds they are stratified, with seeds 0 to 4. Every fit chooses within its training folds, but the
design of the ensemble was chosen by the accuracy on the test folds of these four data sets.

Peers: an RBF SVC on the mean, maximum and minimum of the columns of a bag; an SVC with the normalised set kernel, the
mean of an RBF kernel over all pairs of tokens (Gärtner et al. 2002), both with C and γ by five inner folds; and
MILBoost (Viola et al. 2005) with the noisy or and 100 regression trees of depth two. Seconds are processor time of a
fit and its predictions.

Results are kept in --cache, a file of JSON lines, so that a run that was stopped continues.

Run: python benchmarks/mil.py --data DIR [--tasks musk1,fox] [--models SVC] [--repetitions 5] [--cache FILE]
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor

from attsvm import AttentionClassifier, DetectorClassifier
from attsvm.datasets import Sequences

INNER = StratifiedKFold(5, shuffle=True, random_state=0)
TASKS = "musk1,musk2,elephant,fox"


class PooledSVC:
    """An RBF SVC on mean, maximum and minimum of the columns."""

    def fit(self, bags, labels):
        model = make_pipeline(StandardScaler(), SVC())
        d = 3 * bags.dim
        grid = {"svc__C": [0.1, 1, 10, 100], "svc__gamma": [0.1 / d, 0.3 / d, 1 / d, 3 / d]}
        self.model = GridSearchCV(model, grid, cv=INNER).fit(self.features(bags), labels)
        return self

    def features(self, bags):
        return np.array([np.concatenate([bag.mean(0), bag.max(0), bag.min(0)]) for bag in bags])

    def predict(self, bags):
        return self.model.predict(self.features(bags))


class SetKernelSVC:
    """An SVC with the normalised mean of an RBF kernel over the pairs of tokens of two bags."""

    def fit(self, bags, labels):
        tokens = bags.table[bags.ids].astype(float)
        self.scaler = StandardScaler().fit(tokens)
        self.bags = bags
        some = self.scaler.transform(tokens[np.random.default_rng(0).permutation(len(tokens))[:500]])
        unit = 1 / np.median(squared_distances(some, some)[np.triu_indices(len(some), 1)])
        best = 0, None
        for gamma in unit * 2.0 ** np.arange(-2, 4):
            kernel = self.kernel(bags, bags, gamma)
            search = GridSearchCV(SVC(kernel="precomputed"), {"C": [0.1, 1, 10, 100, 1000]}, cv=INNER)
            search.fit(self.normalized(kernel, kernel.diagonal(), kernel.diagonal()), labels)
            if search.best_score_ > best[0]:
                best = search.best_score_, (gamma, kernel.diagonal(), search.best_estimator_)
        self.gamma, self.own, self.model = best[1]
        return self

    def kernel(self, first, second, gamma):
        left, right = (self.scaler.transform(bags.table[bags.ids].astype(float)) for bags in (first, second))
        rows = []
        for start, end in zip(first.offsets[:-1], first.offsets[1:], strict=True):
            of_tokens = np.exp(-gamma * squared_distances(left[start:end], right)).mean(axis=0)
            rows.append(np.add.reduceat(of_tokens, second.offsets[:-1]) / second.lengths)
        return np.array(rows)

    def normalized(self, kernel, left, right):
        return kernel / np.sqrt(np.outer(left, right))

    def predict(self, bags):
        return (self.decision_function(bags) > 0).astype(int)

    def decision_function(self, bags):
        own = np.array([self.kernel(bags[[i]], bags[[i]], self.gamma)[0, 0] for i in range(len(bags))])
        return self.model.decision_function(self.normalized(self.kernel(bags, self.bags, self.gamma), own, self.own))


class MILBoost:
    """Gradient boosting of instance scores whose noisy or is the probability of a bag."""

    def fit(self, bags, labels):
        tokens, starts = bags.table[bags.ids].astype(float), bags.offsets[:-1]
        self.trees, scores = [], np.full(len(tokens), -2.0)
        for _ in range(100):
            chance = 1 / (1 + np.exp(-scores))
            none = np.exp(np.add.reduceat(np.log1p(-chance), starts)).clip(1e-12, 1 - 1e-12)
            slope = np.where(labels == 1, none / (1 - none), -1.0)
            tree = DecisionTreeRegressor(max_depth=2).fit(tokens, np.repeat(slope, bags.lengths) * chance)
            step = tree.predict(tokens)
            self.trees.append((tree, np.abs(step).max().clip(1e-12)))
            scores = (scores + step / self.trees[-1][1]).clip(-20, 20)
        return self

    def predict(self, bags):
        tokens = bags.table[bags.ids].astype(float)
        scores = np.full(len(tokens), -2.0)
        for tree, size in self.trees:
            scores = (scores + tree.predict(tokens) / size).clip(-20, 20)
        none = np.add.reduceat(-np.logaddexp(0, scores), bags.offsets[:-1])
        return (none < np.log(0.5)).astype(int)


def squared_distances(first, second):
    return np.maximum((first**2).sum(1)[:, None] + (second**2).sum(1) - 2 * first @ second.T, 0)


MODELS = {
    "AttentionClassifier": lambda seed: AttentionClassifier(random_state=seed),
    "DetectorClassifier": lambda seed: DetectorClassifier(random_state=seed, positive=1),
    "attention, ensemble=False": lambda seed: AttentionClassifier(random_state=seed, ensemble=False),
    "detectors, ensemble=False": lambda seed: DetectorClassifier(random_state=seed, positive=1, ensemble=False),
    "mean, maximum and minimum, RBF SVC": lambda _: PooledSVC(),
    "set kernel, SVC": lambda _: SetKernelSVC(),
    "MILBoost": lambda _: MILBoost(),
}


def load(folder, name):
    """Bags, labels and folds (n, 5)."""
    rows = pd.read_parquet(folder / f"{name}.parquet").sort_values("bag", kind="stable")
    features = rows.drop(columns=["bag", "label"]).to_numpy(np.float32)
    names, first, lengths = np.unique(rows["bag"], return_index=True, return_counts=True)
    bags = Sequences(features, np.arange(len(rows)), np.concatenate([[0], np.cumsum(lengths)]))
    labels = rows["label"].to_numpy()[first].astype(int)
    path = folder / f"{name}_folds.csv"
    if path.exists():
        return bags, labels, pd.read_csv(path).set_index("bag").loc[names].to_numpy()
    folds = np.zeros((len(labels), 5), int)
    for seed in range(5):
        for fold, (_, test) in enumerate(StratifiedKFold(10, shuffle=True, random_state=seed).split(labels, labels)):
            folds[test, seed] = fold
    return bags, labels, folds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--models", default="", help="parts of the names of models, separated by semicolons")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=Path("mil_results.jsonl"))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="X: the spreads of the columns differ")
    done = {}
    if arguments.cache.exists():
        for line in arguments.cache.read_text().splitlines():
            *key, right, number, seconds = json.loads(line)
            done[tuple(key)] = right, number, seconds
    tasks = arguments.tasks.split(",")
    names = [name for name in MODELS if any(part in name for part in arguments.models.split(";"))]
    data = {task: load(arguments.data, task) for task in tasks}
    for repetition in range(arguments.repetitions):
        for task, (bags, labels, folds) in data.items():
            for name in names:
                for fold in range(10):
                    key = task, name, repetition, fold
                    if key in done:
                        continue
                    held = folds[:, repetition] == fold
                    train, test = np.flatnonzero(~held), np.flatnonzero(held)
                    start = time.process_time()
                    found = MODELS[name](repetition).fit(bags[train], labels[train]).predict(bags[test])
                    seconds = time.process_time() - start
                    done[key] = int((found == labels[test]).sum()), len(test), seconds
                    with arguments.cache.open("a") as file:
                        file.write(json.dumps([*key, *done[key]]) + "\n")
    print(f"| model | {' | '.join(tasks)} | mean | seconds |")
    print(f"| --- |{' --- |' * (len(tasks) + 2)}")
    for name in names:
        means, seconds = [], []
        for task in tasks:
            found = np.array([done[task, name, r, f] for r in range(arguments.repetitions) for f in range(10)])
            means.append(found[:, 0].sum() / found[:, 1].sum())
            seconds.append(found[:, 2].mean())
        numbers = " | ".join(f"{mean:.3f}" for mean in [*means, np.mean(means)])
        print(f"| {name} | {numbers} | {np.mean(seconds):.1f} |")


if __name__ == "__main__":
    main()
