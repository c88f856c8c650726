"""How small a head's margin is: over the best that any matrix of the same Frobenius norm has for the same selection."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from attsvm.problem import Problem
from attsvm.svm import Solution, solve_svm
from attsvm.torch.inspection.weights import HeadProblem


@dataclass(frozen=True, eq=False)
class MarginInterval:
    """A head's smallest margin on its tokens, over the best one.

    Attributes
    ----------
    status : str
        "bounded"; "infeasible" where no matrix keeps the selection; "no choice" where every query may attend to one
        token only.
    margin : float or None
        min (k_α − k_t)'W z over all constraints, of W/‖W‖_F. Its own argmax is what it selects, so it is not negative;
        0 where two tokens tie.
    norm : float
        ‖W‖_F.
    lower, upper : float or None
        Of the ratio: ``margin`` times the least norm of a matrix with margins of 1, known from the dual and from the
        primal side.
    constraints, duplicates : int
        Pairs of a query and a token that it drops; of them those left out, because the token is the selected one's
        exact duplicate.
    tight : int
        Constraints that carry weight in the dual: the support tokens, as far as the solve went.
    steps : int
        Of the solve.
    """

    status: str
    margin: float | None
    norm: float
    lower: float | None
    upper: float | None
    constraints: int
    duplicates: int
    tight: int
    steps: int

    @property
    def width(self) -> float | None:
        """Of the interval, relative to its upper end; 0 where that is 0."""
        if self.lower is None or self.upper is None:
            return None
        return (self.upper - self.lower) / self.upper if self.upper else 0.0


def margin_interval(
    problem: HeadProblem,
    allowed: Bool[np.ndarray, "n Q T"],
    selected: Int[np.ndarray, "n Q"],
    gap: float = 1e-2,
    max_steps: int | None = None,
) -> tuple[MarginInterval, Solution | None]:
    """The interval of one head, and the Att-SVM solution it rests on.

    Parameters
    ----------
    problem : HeadProblem
    allowed : bool ndarray, shape (n, Q, T)
    selected : int ndarray, shape (n, Q)
        −1 where there is no query.
    gap : float
        Relative width at which the solve is stopped.
    max_steps : int, optional
        Of the solve.

    Returns
    -------
    MarginInterval
    Solution or None
        None where no query has a choice.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, (Att-SVM).
    """
    asks = selected >= 0
    dropped = allowed & asks[..., None]
    np.put_along_axis(dropped, np.maximum(selected, 0)[..., None], False, axis=-1)
    same = dropped & duplicates(problem.keys, selected)
    counted, same_count = int(np.count_nonzero(dropped)), int(np.count_nonzero(same))
    norm = float(np.linalg.norm(problem.weights))
    kept = dropped & ~same
    if not kept.any():
        return MarginInterval("no choice", None, norm, None, None, counted, same_count, 0, 0), None
    margin = _smallest_margin(problem, kept, selected) / norm if norm > 0 else 0.0
    svm = Problem(problem.keys, queries=problem.queries, mask=allowed & ~same, query_mask=asks)
    solution = solve_svm(
        svm,
        selected,
        method="projected-gradient",
        tol=gap,
        max_steps=max_steps,
        callback=lambda _, now: now <= gap,
    )
    tight = int(np.count_nonzero(np.nan_to_num(solution.dual) > 0))
    steps = int(solution.stats["steps"])
    if solution.status == "infeasible":
        return MarginInterval("infeasible", margin, norm, None, None, counted, same_count, tight, steps), solution
    upper = lower = None
    if math.isfinite(solution.value):
        upper = margin * solution.value
        lower = upper * max(0.0, 1 - solution.gap)
    return MarginInterval("bounded", margin, norm, lower, upper, counted, same_count, tight, steps), solution


def duplicates(keys: np.ndarray, selected: Int[np.ndarray, "n Q"]) -> Bool[np.ndarray, "n Q T"]:
    """Where a token's key equals, to the last bit, that of the token which the query selects."""
    same = np.zeros((*selected.shape, keys.shape[1]), bool)
    for i, sequence in enumerate(keys):
        _, kind = np.unique(sequence, axis=0, return_inverse=True)
        kind = kind.reshape(-1)
        same[i] = kind[np.maximum(selected[i], 0)][:, None] == kind[None, :]
    return same


def _smallest_margin(problem: HeadProblem, kept: np.ndarray, selected: np.ndarray) -> float:
    logits = problem.logits()
    own = np.take_along_axis(logits, np.maximum(selected, 0)[..., None], axis=-1)
    return max(0.0, float((own - logits).min(where=kept, initial=np.inf)))
