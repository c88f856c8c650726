"""Files that a minor version saved, which every later version of 1.x loads.

PYTHONPATH=tests python -m release.saved      # writes tests/release/files/VERSION, at a release
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

import attsvm
from attsvm.datasets import BagFile, Sequences
from attsvm.estimator import predict_bags

FILES = Path(__file__).parent / "files"
# what is compared after loading: a class, and some of its arrays, numbers or words
KINDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "problem": (attsvm.Problem, ("tokens", "labels", "head", "queries")),
    "run": (attsvm.Run, ("weights", "selected", "steps", "status")),
    "solution": (attsvm.Solution, ("direction", "value", "dual", "gap", "status")),
    "prediction": (attsvm.Prediction, ("standing", "direction", "selected")),
    "path": (attsvm.RegularizationPath, ("radii", "weights", "loss", "selected", "status")),
    "stack": (attsvm.StackRun, ("loss", "step", "status")),
}


def objects() -> dict[str, Any]:
    """Something of each kind, in small."""
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    run = attsvm.train(problem, steps=50)
    solution = attsvm.solve_svm(problem, run)
    stack = attsvm.Stack(problem, layers=2)
    return {
        "problem": problem,
        "run": run,
        "solution": solution,
        "prediction": attsvm.predict_direction(problem, run),
        "path": attsvm.regularization_path(problem, [1.0, 10.0]),
        "stack": stack.train(steps=20),
    }


def model_data() -> tuple[list[np.ndarray], np.ndarray]:
    """Bags of different lengths, and labels 0 and 1."""
    generator, labels = np.random.default_rng(0), np.arange(24) % 2
    bags = [generator.normal(size=(2 + i % 3, 3)) for i in range(24)]
    for bag, label in zip(bags, labels, strict=True):
        bag[0, 0] += 3 * label
    return bags, labels


TEXTS = ["a good film", "a bad film", "good plot and music", "the plot is bad", "so good", "so bad"] * 6


def models() -> dict[str, Any]:
    """A fitted estimator of each kind that has a model file: with an ensemble and without, and of each loss."""
    bags, labels = model_data()
    times = np.column_stack([np.ones(24), 1.0 + labels])
    short = {"max_steps": 25, "random_state": 0}
    return {
        "attention": attsvm.AttentionClassifier(ensemble=False, **short).fit(bags, labels),
        "ensemble": attsvm.AttentionClassifier(ensemble=True, **short).fit(bags, labels),
        "detectors": attsvm.DetectorClassifier(num_detectors=2, ensemble=True, **short).fit(bags, labels),
        "mean": attsvm.AttentionRegressor(**short).fit(bags, times[:, 1]),
        "quantile": attsvm.AttentionRegressor(loss="quantile", quantile=0.9, **short).fit(bags, times[:, 1]),
        "hazard": attsvm.AttentionRegressor(loss="cox", **short).fit(bags, times),
        "texts": attsvm.TextClassifier(**short).fit(TEXTS, [text.count("good") for text in TEXTS]),
    }


def predicted(model: Any) -> dict[str, Any]:
    """What a model file must still say: the predictions and the contributions of its tokens."""
    if isinstance(model, attsvm.TextClassifier):
        return {"decision": model.decision_function(TEXTS[:6]).tolist()}
    bags, _ = model_data()
    found = predict_bags(model, BagFile(Sequences.from_arrays(bags)))
    values = found.values if isinstance(model, attsvm.AttentionRegressor) else found.probability
    return {"decision": values.tolist(), "contributions": found.contributions.tolist(), "first": found.first.tolist()}


def values(name: str, found: Any) -> dict[str, Any]:
    """What is compared, as JSON has it."""
    return {key: np.asarray(getattr(found, key)).tolist() for key in KINDS[name][1]}


def save_sweep(folder: Path) -> dict[str, Any]:
    """Run a sweep, or continue it, and say what it holds."""
    found = attsvm.sweep({"dim": [2, 3]}, ["feasible"], store=folder / "sweep", trials=8, workers=0)
    return {key: found[key].values.tolist() for key in ("dim", "feasible", "done")}


def save_models(folder: Path) -> dict[str, Any]:
    """Save the models, and return what they predict."""
    found = models()
    for name, one in found.items():
        one.save(folder / f"model-{name}.npz")
    return {name: predicted(one) for name, one in found.items()}


def write(folder: Path) -> None:
    """Save one of each kind, and what must be there after loading."""
    folder.mkdir(parents=True)
    made = objects()
    for name, one in made.items():
        one.save(folder / f"{name}.npz")
    said: dict[str, Any] = {name: values(name, one) for name, one in made.items()}
    said["models"] = save_models(folder)
    text = json.dumps(said | {"sweep": save_sweep(folder)})
    (folder / "values.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(FILES / attsvm.__version__)
