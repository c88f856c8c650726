"""How accuracy, saturation and direction developed over the steps of a fit."""

import numpy as np
from jaxtyping import Float, Int

from attsvm._fit.evaluation import evaluate
from attsvm._fit.result import Fit
from attsvm.datasets.splits import sequences
from attsvm.measures import attention_of, direction_error
from attsvm.norms import Lp
from attsvm.problem import Problem
from attsvm.training import Run


def fit_history(done: Fit) -> dict[str, np.ndarray]:
    """One entry for each recorded step, as documented in :class:`Fit`."""
    records = _records(done.run)
    steps, weights = records["steps"], records["weights"]
    heads = records.get("v", np.broadcast_to(done.run.parameters["v"], (len(steps), done.train.dim)))
    intercepts = records.get("b", np.zeros(len(steps)))
    layers = list(zip(weights, heads, intercepts, strict=True))
    on_train = [evaluate(done.train, *layer) for layer in layers]
    low, median, high = np.quantile([found.largest for found in on_train], [0.1, 0.5, 0.9], axis=1)
    axes = 2 if done.train.has_queries else 1
    history = {
        "steps": steps,
        "loss": records["loss"],
        "train_accuracy": np.array([found.accuracy for found in on_train]),
        "largest_low": low,
        "largest_median": median,
        "largest_high": high,
        "norm": Lp(2.0).values(weights, axes),
        "changed": (records["selected"] != done.run.selected).reshape(len(steps), -1).sum(axis=-1),
    }
    if done.test is not None:
        history["test_accuracy"] = np.array([evaluate(done.test, *layer).accuracy for layer in layers])
    if done.chosen is not None and not done.soft and done.chosen.value > 0:
        errors = direction_error(weights, done.chosen.direction, axis=tuple(range(-axes, 0)))
        history["direction_error"] = np.where(history["norm"] > 0, errors, np.nan)
    return history


def recorded_attention(
    run: Run, part: Problem, rows: Int[np.ndarray, " m"], most: int = 24
) -> tuple[Int[np.ndarray, " R"], Float[np.ndarray, "R m Q T"]]:
    """The attention that some sequences had at recorded steps.

    ``part``: its sequences; not necessarily those that were trained on. ``rows``: their numbers. ``most``: of the
    records, at most so many are used; the first and the last are among them.

    Returns ``steps`` and ``attention`` (softmax probabilities; 0 at masked tokens).
    """
    records, shown = _records(run), sequences(part, rows)
    chosen = np.unique(np.linspace(0, len(records["steps"]) - 1, most).round().astype(int))
    return records["steps"][chosen], np.array([attention_of(shown, records["weights"][k]) for k in chosen])


def _records(run: Run) -> dict[str, np.ndarray]:
    """The records of the run. The end of an interrupted run, which lies between two records, is added to them."""
    made = run.history["steps"] <= run.step
    records = {name: np.asarray(values)[made] for name, values in run.history.items()}
    if records["steps"][-1] < run.step:
        end = {
            "steps": run.step,
            **{name: getattr(run, name) for name in ("loss", "probability", "weights", "selected", "log_scale")},
        }
        end |= run.parameters
        records = {name: np.concatenate([records[name], [last]]) for name, last in end.items() if name in records}
    return records
