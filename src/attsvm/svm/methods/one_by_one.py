"""A batch of problems solved one after the other, in a norm whose value and dual norm are programs of their own."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attsvm.norms import Norm
from attsvm.norms.proved import Proof, Proved
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.methods.batches import undecided
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.frobenius import solve_frobenius


class Answer(NamedTuple):
    """What was found for one problem.

    Attributes
    ----------
    weights : ndarray, shape (d_k, d_q)
    multipliers : ndarray, shape (n, Q, T)
    steps : int
    of_value, of_dual : callable
        Bounds on the norm of the weights and on the dual norm of A*(λ).
    """

    weights: Float[np.ndarray, "d_k d_q"]
    multipliers: TokenValues
    steps: int
    of_value: Proof
    of_dual: Proof | None = None


def one_by_one(
    constraints: Constraints,
    norm: Norm,
    solve: Callable[[Constraints, TokenValues], Answer],
    method: str,
    why: str,
) -> Candidate:
    """The answers of all problems.

    Whether a selection can be kept does not depend on the norm: the Farkas multipliers are those of the Frobenius norm,
    and ``solve`` is called for the other problems, with one batch axis of length 1 and with their multipliers in the
    Frobenius norm.
    """
    frobenius = solve_frobenius(constraints, Settings())
    flat = constraints.with_one_axis()
    weights = np.array(frobenius.weights, dtype=np.float64).reshape(flat.batch_shape + flat.weights_shape)
    multipliers = np.array(frobenius.multipliers, dtype=np.float64).reshape(flat.inequality.shape)
    steps = np.zeros(len(weights), dtype=int)
    answers = []
    for k in np.flatnonzero(undecided(flat) & ~frobenius.ray.reshape(-1)):
        found = solve(flat[k : k + 1], multipliers[k : k + 1])
        weights[k], multipliers[k], steps[k] = found.weights, found.multipliers, found.steps
        answers.append(found)
    proved = Proved(
        norm,
        tuple(found.of_value for found in answers),
        tuple(found.of_dual for found in answers if found.of_dual is not None),
    )
    return Candidate(weights, multipliers, frobenius.ray, steps, method, why, proved).with_axes_of(constraints)
