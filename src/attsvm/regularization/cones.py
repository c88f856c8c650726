"""Cones that a path can be restricted to."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Cone(Protocol):
    """A smooth scale-free constraint k(x) ≤ 0."""

    def slack(self, x: np.ndarray) -> float:
        """How far x is inside; negative outside. Equal for all multiples of x."""
        ...

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The gradient of k; orthogonal to x."""
        ...

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """The Hessian of k."""
        ...

    def restore(self, x: np.ndarray) -> np.ndarray:
        """A point with k = 0 near an x outside the cone; zero where it is the vertex."""
        ...


@dataclass(frozen=True)
class CircularCone:
    """correlation(W, D) ≥ c, as c ‖W‖ − ⟨W, D⟩ ≤ 0 for ‖D‖ = 1."""

    axis: np.ndarray  # D, flat
    correlation: float

    def slack(self, x: np.ndarray) -> float:
        """The correlation with the axis minus c; 0 at the vertex."""
        if not x.any():
            return 0.0
        return float(x @ self.axis / np.linalg.norm(x)) - self.correlation

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The gradient of c ‖x‖ − ⟨x, D⟩."""
        return np.asarray(self.correlation * x / np.linalg.norm(x) - self.axis)

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """The Hessian of c ‖x‖ − ⟨x, D⟩."""
        length = np.linalg.norm(x)
        unit = x / length
        return self.correlation / length * (np.eye(len(x)) - np.outer(unit, unit))

    def restore(self, x: np.ndarray) -> np.ndarray:
        """The point of the cone that is nearest to an x outside; zero where it is the vertex."""
        along = x @ self.axis
        across = x - along * self.axis
        length, c = np.linalg.norm(across), self.correlation
        s = np.sqrt(1 - c * c)
        reach = along * c + length * s
        return np.asarray(max(reach, 0.0) * (c * self.axis + s * across / length))

    def steepest(self, gradient: np.ndarray) -> float:
        """The fastest decrease from the vertex into the cone, per unit of length, for this gradient."""
        along = -gradient @ self.axis
        across = np.sqrt(max(gradient @ gradient - along * along, 0.0))
        angle = np.arctan2(across, along) - np.arccos(self.correlation)
        return float(np.hypot(along, across) * np.cos(min(max(angle, 0.0), np.pi)))
