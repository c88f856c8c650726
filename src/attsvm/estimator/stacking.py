"""Stacking: weights of at least 0 with which a sum of left-out outputs predicts labels ±1 best."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from attsvm._utils.shapes import Float


@dataclass(frozen=True)
class Stacking:
    """The logistic loss of outputs that are log odds, and the sum of outputs that minimises it.

    ``targets``: ±1. ``weights``: positive.
    """

    targets: Float[np.ndarray, "n C"]
    weights: Float[np.ndarray, " n"]

    def loss(self, outputs: Float[np.ndarray, "n C"]) -> float:
        """The weighted mean of the logistic loss, of which the C outputs are added."""
        return float((self._parts * np.logaddexp(0.0, -self.targets * outputs)).sum())

    def best(self, outputs: Float[np.ndarray, "M n C"], equality: float = 0.0) -> Float[np.ndarray, " M"]:
        """The weights of at least 0 of the smallest loss, for smoothed targets.

        Outputs may separate the classes, and then no finite weights would be best for the targets themselves.

        ``equality``: strength of the penalty on the differences of the weights from their mean.
        """
        number = len(outputs)
        found = minimize(
            lambda x: self._smoothed(x, outputs, equality)[:2],
            np.full(number, 1.0 / number),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * number,
            options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 200},
        ).x
        for _ in range(3):  # the last digits, by Newton's method on what is not at its bound
            _, gradient, curvature = self._smoothed(found, outputs, equality)
            free = found > 0
            if free.any():
                step = np.linalg.lstsq(curvature[np.ix_(free, free)], gradient[free], rcond=1e-12)[0]
                found[free] = np.maximum(found[free] - step, 0.0)
        return np.asarray(found)

    @property
    def _parts(self) -> Float[np.ndarray, "n 1"]:
        return np.asarray(self.weights[:, None] / self.weights.sum())

    @cached_property
    def _doubt(self) -> Float[np.ndarray, "n C"]:
        """Probabilities of the other label, 1/(N + 2) for N sequences of a label (Platt, 1999)."""
        positive = (self.targets > 0).sum(axis=0)
        return np.asarray(np.where(self.targets > 0, 1 / (positive + 2), 1 / (len(self.targets) - positive + 2)))

    def _smoothed(
        self, found: np.ndarray, outputs: np.ndarray, equality: float
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The loss of smoothed targets with the penalty on differences, its gradient and its second derivative."""
        margins = self.targets * np.einsum("m,mnc->nc", found, outputs)
        value = (self._parts * (np.logaddexp(0.0, -margins) + self._doubt * margins)).sum()
        slopes = self._parts * self.targets * (self._doubt - expit(-margins))
        curvatures = self._parts * expit(margins) * expit(-margins)
        apart = np.eye(len(found)) - 1 / len(found)
        return (
            float(value + equality * found @ apart @ found),
            np.einsum("mnc,nc->m", outputs, slopes) + 2 * equality * apart @ found,
            np.einsum("mnc,nc,knc->mk", outputs, curvatures, outputs) + 2 * equality * apart,
        )
