"""A linear head with a quadratic penalty."""

from dataclasses import dataclass

import jax
import numpy as np

from attsvm._utils.contractions import contract
from attsvm.errors import ProblemError
from attsvm.heads.arguments import head_of
from attsvm.heads.base import Head, Parameters
from attsvm.heads.registry import HEADS
from attsvm.problem import Problem

Array = jax.Array


@dataclass(frozen=True)
class Quadratic(Head):
    """h(o) = v'o − λ‖o‖²: linear with a penalty on long pooled tokens; v is the problem's head (d,).

    Parameters
    ----------
    curvature : float
        λ. It is not trained.

    Raises
    ------
    ProblemError
        If λ is not a finite number; in training, if the problem has classes.

    See Also
    --------
    attsvm.heads.Linear, attsvm.finite_part

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), section 6: a nonlinear head may prefer mixtures of tokens.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> head = attsvm.heads.Quadratic(1.0)
    >>> head.name, list(head.initial(problem))
    ('quadratic', ['v'])
    """

    curvature: float

    name = "quadratic"
    defined_everywhere = True

    def __post_init__(self) -> None:
        if not (np.ndim(self.curvature) == 0 and np.isfinite(self.curvature)):
            raise ProblemError(f"curvature: expected a finite number, got {self.curvature!r}")

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        """Return the problem's head."""
        if problem.num_classes is not None:
            raise ProblemError(f"head: expected labels -1 and 1 for {self!r}, got {problem.num_classes} classes")
        return {"v": head_of(problem)}

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        """Compute v'o − λ‖o‖² of each query."""
        # one product: its derivative is v − 2λo, entry by entry
        return contract("nqd,nqd->nq", pooled, parameters["v"] - self.curvature * pooled)


HEADS.register("quadratic", Quadratic)
