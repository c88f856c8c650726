"""A batch of problems solved one after the other, in a norm whose value and dual norm need an optimisation."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attsvm.norms import Norm
from attsvm.norms.proved import Proof, Proved
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.frobenius.choice import solve_frobenius
from attsvm.svm.loop import Watch
from attsvm.svm.methods.batches import undecided
from attsvm.svm.methods.candidate import Candidate, Settings

TARGET = 1e-3
"""The part of the tolerance at which a program ends. The bounds that certify its answer are a little larger."""


class Answer(NamedTuple):
    """What was found for one problem."""

    weights: Float[np.ndarray, "d_k d_q"]
    multipliers: TokenValues
    steps: int  # 0 if there is only a starting point. The answer is then that of the Frobenius norm.
    of_value: Proof | None = None  # of_value, of_dual: bounds on the norm of the weights and on the dual norm of A*(λ)
    of_dual: Proof | None = None


def one_by_one(
    constraints: Constraints,
    norm: Norm,
    settings: Settings,
    solve: Callable[[Constraints, TokenValues, Settings], Answer],
    method: str,
    why: str,
) -> Candidate:
    """The answers of all problems.

    Whether a selection can be kept does not depend on the norm: the Farkas multipliers are those of the Frobenius norm,
    and ``solve`` is called for the other problems, with one batch axis of length 1, with their multipliers in the
    Frobenius norm, and with the settings. If the report stops it, the problems that are left keep the answer in the
    Frobenius norm.
    """
    # not as a batch, so that each answer has the digits of that of the problem alone
    alone = (constraints[index] for index in np.ndindex(constraints.batch_shape))
    frobenius = Candidate.joined([solve_frobenius(problem, Settings()) for problem in alone])
    weights, multipliers, ray, steps = frobenius[:4]
    flat = constraints.with_one_axis()
    watch, answers = Watch(settings.report), []
    settings = replace(settings, report=watch)
    for k in np.flatnonzero(undecided(flat) & ~ray):
        found = solve(flat[k : k + 1], multipliers[k : k + 1], settings)
        if found.steps > 0:
            weights[k], multipliers[k], steps[k] = found.weights, found.multipliers, found.steps
            answers.append(found)
        if watch.stopped:
            break
    if not answers:
        return frobenius.with_axes_of(constraints)
    proved = Proved(
        norm,
        tuple(found.of_value for found in answers if found.of_value is not None),
        tuple(found.of_dual for found in answers if found.of_dual is not None),
    )
    return Candidate(weights, multipliers, ray, steps, method, why, proved).with_axes_of(constraints)
