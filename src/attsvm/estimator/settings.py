"""The parameters of the estimator, checked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
import optax

from attsvm._utils.checks import MOST_STEPS, as_number, check_integer, check_number
from attsvm._utils.jax_devices import find_device
from attsvm._utils.progress import Callback
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, parse_norm
from attsvm.optimizers import gradient_descent, mirror_descent, optimizer_options, parse_optimizer

NAMED: dict[str, tuple[float, Callable[[float, float], optax.GradientTransformation]]] = {
    "adam": (0.01, lambda learning_rate, p: optax.adam(learning_rate)),
    "mirror_descent": (0.1, lambda learning_rate, p: mirror_descent(p=p, learning_rate=learning_rate, normalize=False)),
    "gradient_descent": (0.1, lambda learning_rate, p: gradient_descent(learning_rate)),
}
"""Optimizers in a form that suits mini-batches: default learning rate, and how they are made from a rate and p."""

LEARNING_RATES = {name: rate for name, (rate, _) in NAMED.items()}
"""Default learning rate of each optimiser."""


@dataclass(frozen=True)
class Settings:
    """How to train; see :class:`attsvm.AttentionClassifier`."""

    optimizer: optax.GradientTransformation
    norm: Norm  # of the Att-SVM to compare with: that of the optimiser, ℓ2 if it has none
    alpha: float
    batch_size: int
    max_steps: int
    device: jax.Device
    max_instances: int | None = None  # tokens of a sequence in a step, if it has more
    callback: Callback | None = None


def read_settings(estimator: Any, callback: Callback | None = None) -> Settings:
    """The parameters of an estimator.

    Raises ProblemError if a parameter is out of range or of the wrong type.
    """
    if estimator.scale not in (None, "columns", "common"):
        raise ProblemError(f"scale: expected 'columns', 'common' or None, got {estimator.scale!r}")
    name, p = _geometry(estimator)
    most = estimator.max_instances
    optimizer, norm = _optimizer(name, _rate(name, estimator), p), getattr(estimator, "norm", None)
    return Settings(
        optimizer=optimizer,
        norm=(getattr(optimizer, "norm", None) or Lp(2.0)) if norm is None else parse_norm(norm),
        alpha=check_number("alpha", estimator.alpha, "a number >= 0", lambda x: x >= 0),
        batch_size=check_integer("batch_size", estimator.batch_size, 1),
        max_steps=check_integer("max_steps", estimator.max_steps, 1, MOST_STEPS),
        device=find_device(estimator.device),
        max_instances=None if most is None else check_integer("max_instances", most, 1),
        callback=callback,
    )


def _geometry(estimator: Any) -> tuple[Any, float]:
    """The optimiser and its p: those of ``norm``, if the estimator has one, otherwise its own."""
    norm, p = getattr(estimator, "norm", None), check_number("p", estimator.p, "a number above 1", lambda x: x > 1)
    if norm is None:
        return estimator.optimizer, p
    parsed = parse_norm(norm)
    if not isinstance(parsed, Lp) or parsed.p == 1:
        raise ProblemError(f"norm: expected None, 'frobenius', or 'l<p>' with p > 1 up to 'linf', got {norm!r}")
    if estimator.optimizer != "adam":
        raise ProblemError(f"norm: expected None with optimizer={estimator.optimizer!r}, which has its own norm")
    if parsed.p == np.inf:
        return "adam", p
    return ("gradient_descent" if parsed.p == 2 else "mirror_descent"), parsed.p


def _rate(name: Any, estimator: Any) -> float | None:
    """The learning rate, or what the estimator has as default for this optimiser, if anything."""
    rate: float | None = estimator.learning_rate
    if rate is None and isinstance(name, str):
        return getattr(estimator, "_learning_rates", {}).get(name)
    return rate


def _optimizer(optimizer: Any, rate: float | None, p: float) -> optax.GradientTransformation:
    if rate is not None and not 0 < as_number(rate) < np.inf:
        raise ProblemError(f"learning_rate: expected a positive number or None, got {rate!r}")
    if not isinstance(optimizer, str):
        return parse_optimizer(optimizer, **({} if rate is None else {"learning_rate": rate}))
    return _named(optimizer, None if rate is None else float(rate), p)


@cache
def _named(name: str, learning_rate: float | None, p: float) -> optax.GradientTransformation:
    """An optimiser by name. Equal arguments return the same object, which shares its compiled step."""
    if name in NAMED:
        default, make = NAMED[name]
        return make(default if learning_rate is None else learning_rate, p)
    given = {"learning_rate": learning_rate, "p": p}
    options = optimizer_options(name)
    return parse_optimizer(name, **{key: x for key, x in given.items() if key in options and x is not None})
