"""The classifiers of bags beside torchmil's ABMIL and DSMIL, mi-SVM and a set kernel: the part of peers.py.

musk1, musk2, elephant and fox: a repetition trains on seven of the ten folds of the files and tests on the other three.
torchmil's models have their defaults, columns of standard deviation 1, and 40 passes of Adam with a step for each bag;
mi-SVM (Andrews et al. 2002) has an RBF kernel with C = 1 and scikit-learn's width; the set kernel chooses C and width
by inner folds. Seconds are those of a fit and its decisions, with what is compiled in it. Slides: bags of 2,000 to
10,000 instances as in slides.py, in a process for each model.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import slides
from cases import Case
from peers import Column, Run

TASKS = ("musk1", "musk2", "elephant", "fox")
EPOCHS, ROUNDS = 40, 10


class Torchmil:
    """A model of torchmil on columns of standard deviation 1."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.seed = kind, seed

    def fit(self, bags: Any, labels: np.ndarray) -> "Torchmil":
        self.scaler = StandardScaler().fit(bags.table[bags.ids])
        self.model = slides.Torchmil(self.kind, bags.dim, EPOCHS, self.seed).fit(self._scaled(bags), labels)
        return self

    def decision_function(self, bags: Any) -> np.ndarray:
        return np.array(self.model.scores(self._scaled(bags))[0])

    def _scaled(self, bags: Any) -> list[np.ndarray]:
        return [self.scaler.transform(bag).astype(np.float32) for bag in bags]


class MISVM:
    """An SVC of instances, whose labels in positive bags are its own decisions, with one positive in each at least."""

    def fit(self, bags: Any, labels: np.ndarray) -> "MISVM":
        tokens, starts = bags.table[bags.ids], bags.offsets[:-1]
        self.scaler = StandardScaler().fit(tokens)
        x, of_bag = self.scaler.transform(tokens), np.repeat(labels, bags.lengths)
        chosen = of_bag.copy()
        for _ in range(ROUNDS):
            self.model = SVC().fit(x, chosen)
            decision = self.model.decision_function(x)
            largest = np.repeat(np.maximum.reduceat(decision, starts), bags.lengths)
            before, chosen = chosen, of_bag * ((decision > 0) | (decision == largest))
            if (chosen == before).all():
                break
        return self

    def decision_function(self, bags: Any) -> np.ndarray:
        decision = self.model.decision_function(self.scaler.transform(bags.table[bags.ids]))
        return np.maximum.reduceat(decision, bags.offsets[:-1])


NAMES = ("AttentionClassifier", "DetectorClassifier", "torchmil ABMIL", "torchmil DSMIL", "mi-SVM", "set kernel, SVC")
METHODS = {name: "torchmil einops" if "torchmil" in name else "" for name in NAMES}
SLIDES = {
    "attention-list": "AttentionClassifier",
    "detectors-list": "DetectorClassifier",
    "abmil-list": "torchmil ABMIL",
    "dsmil-list": "torchmil DSMIL",
}
PASSES, STEPS = 10, 200
"""Of torchmil's models and of attsvm's: they take about as long."""


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """All models on a split of a data set, or one model on slides."""
    if "slides" in case:
        found = slides.measure(case["slides"], Path(case["folder"]), PASSES, STEPS)
        numbers = {"auroc": found["auroc"], "instances": found["instances"], "seconds": found["processor"]}
        numbers["megabytes"] = 1e3 * found["gigabytes"]
        yield _row("slides", SLIDES[case["slides"]], numbers)
        return
    # not above: a process of slides measures the memory of what it imports
    from attsvm import AttentionClassifier, DetectorClassifier
    from mil import SetKernelSVC, load

    seed = case["rep"]
    models = {
        "AttentionClassifier": lambda: AttentionClassifier(random_state=seed),
        "DetectorClassifier": lambda: DetectorClassifier(random_state=seed, positive=1),
        "torchmil ABMIL": lambda: Torchmil("ABMIL", seed),
        "torchmil DSMIL": lambda: Torchmil("DSMIL", seed),
        "mi-SVM": MISVM,
        "set kernel, SVC": SetKernelSVC,
    }
    if any("torchmil" in name for name in models.keys() & case["methods"]):
        import torchmil.models  # noqa: F401  # it takes as long as a fit, and is no part of one
    bags, labels, folds = load(Path(case["folder"]), case["task"])
    held = folds[:, seed] < 3
    train, test = np.flatnonzero(~held), np.flatnonzero(held)
    for name in case["methods"]:
        start = time.process_time()
        decision = models[name]().fit(bags[train], labels[train]).decision_function(bags[test])
        numbers = {
            "seconds": time.process_time() - start,
            "accuracy": float(((decision > 0) == labels[test]).mean()),
            "auroc": float(roc_auc_score(labels[test], decision)),
        }
        yield _row(case["task"], name, numbers)


def _row(data: str, method: str, numbers: dict[str, float]) -> dict[str, Any]:
    return {"data": data, "method": method, "ours": method.endswith("Classifier"), **numbers}


def _means(rows: list[Case]) -> Iterator[dict[str, Any]]:
    """For each repetition, the means over the data sets."""
    for rep in dict.fromkeys(row["rep"] for row in rows):
        for method in dict.fromkeys(row["method"] for row in rows):
            some = [row for row in rows if (row["rep"], row["method"]) == (rep, method)]
            yield _row(
                "mean", method, {key: np.mean([row[key] for row in some]) for key in ("accuracy", "auroc", "seconds")}
            )


def report(run: Run) -> None:
    """Measure and print."""
    methods, folder = run.installed(METHODS), run.data / "mil"
    tasks = TASKS[: 1 if run.quick else None]
    if not folder.exists():
        print(f"musk1, musk2, elephant and fox are left out: {folder} does not exist", flush=True)
        tasks = []
    cases = [
        {"task": task, "rep": rep, "methods": methods, "folder": str(folder)}
        for rep in range(run.repetitions)
        for task in tasks
    ]
    columns = [Column("accuracy", "accuracy", ".3f", 1), Column("AUROC", "auroc", ".3f", 1)]
    seconds = Column("seconds", "seconds", better=-1)
    if rows := run.rows(cases):
        run.table([*rows, *_means(rows)], [*columns, seconds])

    bags, test, dim = (8, 4, 64) if run.quick else (24, 20, 512)
    rows = []
    for rep in range(run.repetitions):
        folder = run.out / f"slides-{rep}"
        folder.mkdir(exist_ok=True)
        for part, count, seed in (("train", bags, 2 * rep + 1), ("test", test, 2 * rep + 2)):
            slides.make(folder, part, count, dim, seed)
        kinds = [kind for kind, name in SLIDES.items() if name in methods]
        rows += run.rows([{"slides": kind, "rep": rep, "folder": str(folder)} for kind in kinds])
        rmtree(folder)
    instances = Column("AUROC of instances", "instances", ".3f", 1)
    run.table(rows, [columns[1], instances, seconds, Column("MB above the data", "megabytes", better=-1)])
