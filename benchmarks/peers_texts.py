"""`TextClassifier`, which is what `attsvm fit-text` fits, beside logistic regression on TF-IDF: the part of peers.py.

Reviews of IMDb, drawn at random from the two files: a repetition is a draw. Each model has a process of its own.
TF-IDF has scikit-learn's defaults, or words and pairs that occur in two texts, sublinear, with a penalty chosen by
three-fold cross-validation.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cases import Case
from peers import Column, Run
from slides import Peak

NAMES = (
    "TextClassifier",
    "TextClassifier, attention alone",
    "TF-IDF of words, logistic regression",
    "TF-IDF of words and pairs, logistic regression",
)


def model_of(name: str, seed: int) -> Any:
    """A classifier of texts."""
    if name.startswith("TextClassifier"):
        from attsvm import TextClassifier

        return TextClassifier(parts="attention" if "alone" in name else "auto", random_state=seed)
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    if "pairs" not in name:
        return make_pipeline(TfidfVectorizer(), LogisticRegression())
    search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": [0.3, 1, 3, 10, 30, 100]}, cv=3)
    return make_pipeline(TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True), search)


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """Accuracy and AUROC on test texts, processor time and memory of one model."""
    generator = np.random.default_rng(case["rep"])
    train, labels = _drawn(Path(case["folder"]) / "train.parquet", case["train"], generator)
    test, test_labels = _drawn(Path(case["folder"]) / "test.parquet", case["test"], generator)
    peak, start = Peak(), time.process_time()
    decision = model_of(case["method"], case["rep"]).fit(train, labels).decision_function(test)
    found = {"seconds": time.process_time() - start, "megabytes": (peak.largest - peak.base) / 1e6}
    from sklearn.metrics import roc_auc_score

    found["accuracy"] = float(((decision > 0) == test_labels).mean())
    found["auroc"] = float(roc_auc_score(test_labels, decision))
    yield {"data": f"IMDb, {case['train']} texts", "ours": case["method"].startswith("TextClassifier"), **found}


def _drawn(path: Path, count: int, generator: np.random.Generator) -> tuple[list[str], np.ndarray]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path, columns=["text", "label"])
    some = table.take(generator.choice(len(table), count, replace=False))
    return some["text"].to_pylist(), some["label"].to_numpy()


def report(run: Run) -> None:
    """Measure and print."""
    folder = run.data / "imdb"
    if not folder.exists():
        print(f"texts are left out: {folder} does not exist", flush=True)
        return
    cases: list[Case] = [
        {"train": train, "test": 500 if run.quick else 2000, "rep": rep, "method": name, "folder": str(folder)}
        for train in ((300,) if run.quick else (500,))
        for rep in range(run.repetitions)
        for name in NAMES
    ]
    columns = [
        Column("accuracy", "accuracy", ".3f", 1),
        Column("AUROC", "auroc", ".3f", 1),
        Column("seconds", "seconds", better=-1),
        Column("MB above the texts", "megabytes", better=-1),
    ]
    run.table(run.rows(cases), columns)
