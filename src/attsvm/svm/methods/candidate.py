"""What a solver is asked and what it answers; nothing in it is trusted before it is certified."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from attsvm.svm.constraints.constraints import TokenValues, Weights


@dataclass(frozen=True)
class Settings:
    """What the user asks of a solver.

    Attributes
    ----------
    tol : float
        Relative gap at which an iterative method may stop.
    max_steps : int or None
        None leaves it to the method.
    warm_start : ndarray, shape (*lead, d_k, d_q), or None
        Weights to begin with, where the method can use them.
    warm_multipliers : ndarray, shape (*lead, n, Q, T), or None
        Multipliers of the original rows that belong to them, if they are known.
    callback : callable or None
        Called as ``callback(step, gap)`` by iterative methods; a true return value stops them.
    """

    tol: float = 1e-8
    max_steps: int | None = None
    warm_start: np.ndarray | None = None
    callback: Callable[[int, float], object] | None = None
    warm_multipliers: np.ndarray | None = None

    def of_problem(self, k: int, lead: tuple[int, ...]) -> "Settings":
        """The same for one problem, the k-th of those along the leading axes."""
        index = np.unravel_index(k, lead)
        start, multipliers = self.warm_start, self.warm_multipliers
        return replace(
            self,
            warm_start=None if start is None else start[index],
            warm_multipliers=None if multipliers is None else multipliers[index],
        )


class Candidate(NamedTuple):
    """Weights and multipliers that a solver believes optimal, or multipliers that it believes to prove infeasibility.

    Attributes
    ----------
    weights : ndarray, shape (*lead, d_k, d_q)
        Any scale: only the direction counts.
    multipliers : ndarray, shape (*lead, n, Q, T)
        For the original rows, any positive scale.
    ray : bool ndarray, shape (*lead,)
        True where the multipliers are meant as Farkas multipliers.
    steps : int ndarray, shape (*lead,)
    method : str
    why : str
        In a few words, why that method.
    """

    weights: Weights
    multipliers: TokenValues
    ray: Bool[np.ndarray, "*lead"]
    steps: Int[np.ndarray, "*lead"]
    method: str
    why: str
