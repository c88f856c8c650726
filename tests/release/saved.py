"""Files that a minor version saved, which every later version of 1.x loads.

PYTHONPATH=tests python -m release.saved      # writes tests/release/files/VERSION, at a release
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

import attsvm

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


def values(name: str, found: Any) -> dict[str, Any]:
    """What is compared, as JSON has it."""
    return {key: np.asarray(getattr(found, key)).tolist() for key in KINDS[name][1]}


def save_sweep(folder: Path) -> dict[str, Any]:
    """Run a sweep, or continue it, and say what it holds."""
    found = attsvm.sweep({"dim": [2, 3]}, ["feasible"], store=folder / "sweep", trials=8, workers=0)
    return {key: found[key].values.tolist() for key in ("dim", "feasible", "done")}


def write(folder: Path) -> None:
    """Save one of each kind, and what must be there after loading."""
    folder.mkdir(parents=True)
    made = objects()
    for name, one in made.items():
        one.save(folder / f"{name}.npz")
    text = json.dumps({name: values(name, one) for name, one in made.items()} | {"sweep": save_sweep(folder)})
    (folder / "values.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(FILES / attsvm.__version__)
