"""How accuracy, saturation and direction developed over the steps of a fit."""

import numpy as np

from attsvm._fit.evaluation import evaluate
from attsvm._fit.result import Fit
from attsvm.measures import direction_error
from attsvm.norms import Lp
from attsvm.training.run import records_to_the_end


def fit_history(done: Fit) -> dict[str, np.ndarray]:
    """One entry for each recorded step, as documented in :class:`Fit`."""
    records = records_to_the_end(done.run)
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
