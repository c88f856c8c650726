"""The partial likelihood of Cox, for times of events of which some are censored."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.datasets import frame_of, is_table
from attsvm.errors import ProblemError
from attsvm.estimator.inputs import GivenSequences
from attsvm.estimator.regression_loss import RegressionLoss
from attsvm.estimator.survival_report import SurvivalReport, concordance
from attsvm.estimator.task import one_for_each, required

FORMS = "an array or table of events and times: fields or columns 'event' and 'time', or an array (n, 2) of them"


@dataclass(frozen=True)
class CoxLoss(RegressionLoss):
    """Minus the logarithm of the partial likelihood over the number of sequences; outputs are log hazard ratios.

    The likelihood depends on the order of the times only. A label is the number of its time among the different ones,
    from 1 on, and negative for a censored one.
    """

    required: ClassVar[str] = "events"
    chance: ClassVar[float] = 0.55

    def read(self, y: Any, given: GivenSequences, estimator: str) -> Float[np.ndarray, " n"]:
        """Labels of events and times, one for each sequence.

        Raises ProblemError if there are none, their number does not fit, or they are something else.
        """
        events, times = _events_and_times(required(y, estimator), given)
        one_for_each(times, "targets", len(given.sequences), given.is_rows)
        unknown = ~np.isin(events, (0, 1))
        if unknown.any():
            raise ProblemError(
                f"y: expected events of 0 or 1, before the times, got {events[unknown].tolist()[0]} for sequence "
                f"{int(np.argmax(unknown))}"
            )
        wrong = ~(np.isfinite(times) & (times >= 0))
        if wrong.any():
            raise ProblemError(
                f"y: expected finite times >= 0, got {times[wrong].tolist()[0]} for sequence {int(np.argmax(wrong))}"
            )
        _, numbers = np.unique(times, return_inverse=True)
        return np.where(events == 1, 1.0, -1.0) * (1 + numbers)

    def value_and_slope(self, outputs: jax.Array, labels: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The risk sets are those of the batch."""
        value, slope = jax.value_and_grad(negative_log_likelihood)(outputs[:, 0], labels, weights)
        return value, slope[:, None]

    def intercept(self, intercept: jax.Array) -> jax.Array:
        """0, because the likelihood does not depend on it."""
        return jnp.zeros_like(intercept)

    def unit(self, targets: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        """0 and 1: outputs have no unit."""
        return 0.0, 1.0

    def strata(self, targets: np.ndarray) -> Int[np.ndarray, " n"]:
        """0 for events, which the likelihood needs, and 1 for censored sequences."""
        return np.where(targets > 0, 0, 1)

    def score(self, targets: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None) -> float:
        """Harrell's concordance."""
        return concordance(np.abs(targets), targets > 0, predicted, weights)[0]

    def report(self, targets: np.ndarray, predicted: np.ndarray, constant: float) -> SurvivalReport:
        """Concordance and the number of events."""
        found, pairs = concordance(np.abs(targets), targets > 0, predicted)
        return SurvivalReport(len(targets), int((targets > 0).sum()), pairs, found)


def negative_log_likelihood(outputs: jax.Array, labels: jax.Array, weights: jax.Array) -> jax.Array:
    """−log L over the number of sequences, where tied events are treated as by Efron (1977).

    log L = Σ_i w_i o_i − Σ_t w̄_t Σ_{l<d} log(Σ_{j at risk} w_j e^{o_j} − (l/d) Σ_{j event at t} w_j e^{o_j}), for the
    d events at time t, of mean weight w̄_t, as the function ``coxph`` of R weights it.

    ``weights``: (b,), zero for padding, otherwise divided by their number.
    """
    takes_part = weights > 0
    count = jnp.sum(takes_part)
    # latest first, so that a sequence is at risk at all times from its place on
    order = jnp.argsort(-jnp.abs(labels), stable=True)
    outputs, labels, weights = outputs[order], labels[order], (weights * count)[order]
    events, times = (labels > 0) & takes_part[order], jnp.abs(labels)
    size, lowest = len(times), jnp.finfo(outputs.dtype).min / 4
    block = jnp.cumsum(jnp.concatenate([jnp.zeros(1, bool), times[1:] != times[:-1]]))  # of equal times
    last = jnp.searchsorted(-times, -times, side="right") - 1

    def of_block(operation: Any, values: jax.Array) -> jax.Array:
        return jnp.asarray(operation(values, block, size)[block])

    # the exponentials are summed as logarithms, because a risk set may be far below the largest output
    logs = jnp.where(weights > 0, outputs + jnp.log(jnp.where(weights > 0, weights, 1.0)), lowest)
    at_risk = jax.lax.cumlogsumexp(logs)[last]
    of_events = jnp.where(events, logs, lowest)
    largest = jax.lax.stop_gradient(of_block(jax.ops.segment_max, of_events))
    tied = largest + jnp.log(of_block(jax.ops.segment_sum, jnp.exp(of_events - largest)))
    ones = events.astype(outputs.dtype)
    d = jnp.maximum(of_block(jax.ops.segment_sum, ones), 1.0)
    before = jnp.cumsum(ones) - ones
    ahead = before - of_block(jax.ops.segment_min, before)  # l
    share = jnp.where(events, ahead / d, 0.0) * jnp.exp(jnp.minimum(tied - at_risk, 0.0))
    mean_weight = of_block(jax.ops.segment_sum, ones * weights) / d
    terms = weights * outputs - mean_weight * (at_risk + jnp.log1p(-share))
    return -jnp.sum(jnp.where(events, terms, 0.0)) / count


def _events_and_times(y: Any, given: GivenSequences) -> tuple[np.ndarray, np.ndarray]:
    """Events and times (n,) in the order of the sequences."""
    if is_table(y):
        frame = frame_of(y)
        if not {"event", "time"} <= set(frame.columns):
            raise ProblemError(f"y: expected {FORMS}, got a table with columns {', '.join(frame.columns)}")
        named = [str(given.bag)] if str(given.bag) in frame.columns else []
        columns = [frame.select([*named, name]).to_native() for name in ("event", "time")]
        # a column of pandas has the index of the table
        aligned = [given.align("y", column if named else _series(column)) for column in columns]
        return _numbers(aligned[0]), _numbers(aligned[1])
    aligned = given.align("y", y)
    try:
        array = np.asarray(aligned)
    except ValueError:
        array = np.empty(0)
    names = array.dtype.names
    if names is not None and len(names) == 2:
        # the field of booleans is that of the events, as scikit-survival makes it
        event, time = sorted(names, key=lambda name: (array.dtype[name].kind != "b", name != "event"))
        return _numbers(array[event]), _numbers(array[time])
    if names is None and array.ndim == 2 and array.shape[1] == 2:
        return _numbers(array[:, 0]), _numbers(array[:, 1])
    raise ProblemError(f"y: expected {FORMS}, got {type(y).__name__} of shape {np.shape(array)}")


def _series(column: Any) -> Any:
    """A table of one column as a series of its library; a NumPy array of libraries without an index."""
    return column.iloc[:, 0] if hasattr(column, "iloc") else frame_of(column).to_numpy()[:, 0]


def _numbers(entries: Any) -> np.ndarray:
    try:
        return np.asarray(entries, dtype=np.float64)
    except (TypeError, ValueError):
        raise ProblemError(f"y: expected {FORMS}, got entries that are not numbers") from None
