"""A norm times a positive number."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.checks import check_number
from attsvm.norms.base import Norm, refuse_joint_parts
from attsvm.norms.registry import NORMS, parse_norm


@dataclass(frozen=True)
class Wrapper(Norm):
    """A norm that measures as the one inside: its sample shape and its invariances are those of that norm."""

    of: Norm

    @property
    def name(self) -> str:
        return self.of.name

    def __post_init__(self) -> None:
        refuse_joint_parts(self)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return self.of.sample_shape

    @property
    def left_invariant(self) -> bool:
        return self.of.left_invariant

    @property
    def right_invariant(self) -> bool:
        return self.of.right_invariant


@dataclass(frozen=True)
class Scaled(Wrapper):
    """c N(W). Its Att-SVM has the solution of N, at c times the value.

    Parameters
    ----------
    of : Norm
        N.
    factor : float
        c > 0.

    See Also
    --------
    attsvm.norms.Norm

    Examples
    --------
    >>> from attsvm.norms import Nuclear, Scaled
    >>> norm = Scaled(Nuclear(), 2.0)
    >>> norm.name, norm.value([[3.0, 0.0], [0.0, 4.0]])
    ('2*nuclear', 14.0)
    """

    factor: float
    spelling: ClassVar[str] = '"<c>*<norm>"'

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("factor", self.factor, "a number > 0", lambda c: 0 < c < np.inf)
        object.__setattr__(self, "factor", float(self.factor))

    @property
    def name(self) -> str:
        """Return a name such as "2*nuclear"."""
        return f"{self.factor!r}".removesuffix(".0") + f"*{self.of.name}"

    @property
    def dual(self) -> "Scaled":
        return Scaled(self.of.dual, 1 / self.factor)

    def value(self, x: Any, axes: int = 2) -> Any:
        return self.factor * self.of.value(x, axes)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        return self.factor * self.of.values(x, axes)

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        return self.of.prox(x, self.factor * step)

    def proxes(self, x: np.ndarray, step: float, axes: int = 2) -> np.ndarray:
        """Compute the proximal points of several arrays in one call."""
        return self.of.proxes(x, self.factor * step, axes)

    def steepest(self, g: Any) -> Any:
        return self.of.steepest(g) / self.factor

    def size_in_trials(self, tree: Any, trials: Any) -> Any:
        """Compute the norm of all entries in each trial, in JAX."""
        return self.factor * trials.size_of(self.of, tree)

    def steepest_in_trials(self, gradient: Any, trials: Any) -> Any:
        """Compute the steepest direction in each trial, in JAX."""
        return trials.steepest(self.of, gradient) / self.factor

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return self.factor * self.of.frobenius_factor(shape)

    @property
    def of_vectors(self) -> Norm:
        return scaled(self.of.of_vectors, self.factor)

    @classmethod
    def parse(cls, text: str) -> Norm | None:
        """Read "2*nuclear"."""
        factor, star, name = text.partition("*")
        if not star:
            return None
        try:
            number, norm = float(factor), parse_norm(name)
        except ValueError:
            return None
        return scaled(norm, number)


def scaled(norm: Norm, factor: float) -> Norm:
    """Return the norm times a positive number; the norm itself for 1."""
    return norm if factor == 1 else Scaled(norm, factor)


NORMS.register("scaled", Scaled)
