"""The max-margin head on the selected tokens. It is solved as the Att-SVM of a prompt."""

from dataclasses import replace
from typing import Any

import numpy as np

from attsvm._utils.checks import selection_of
from attsvm._utils.progress import Callback
from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.problem import Problem, check_is_problem, of_rows
from attsvm.selection import selection_sets
from attsvm.svm.solution import Solution
from attsvm.svm.solve import solve_svm


def solve_head(
    problem: Problem,
    selected: Any,
    norm: str | float | Norm = 2.0,
    *,
    slack: float | None = None,
    tol: float = 1e-8,
    max_steps: int | None = None,
    callback: Callback | None = None,
    method: str | None = None,
) -> Solution:
    """Solve for the prediction head of least norm that classifies the selected tokens with a margin of 1.

    Minimise N(v) subject to y_i v'r_i ≥ 1, where r_i is the selected token, or the mean of the tokens with its key. The
    head v converges to this direction when it is trained together with the attention.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes; keys do not matter.
    selected : int array, shape (*batch, n[, Q]), or bool array, shape (*batch, n[, Q], T); or Run, Solution
        One token per query.
    norm : str, float or Norm
        As for :func:`attsvm.solve_svm`; the p of an ℓp norm, for instance.
    slack, tol, max_steps, callback, method
        As for :func:`attsvm.solve_svm`.

    Returns
    -------
    Solution
        ``direction`` is v, shape (*batch, d); ``dual`` and ``support`` have an entry for each query, shape
        (*batch, n[, Q]).
        Infeasible where no head classifies all selected tokens.

    Raises
    ------
    ProblemError
        If the problem has no labels or more than two classes, the selection does not fit or holds sets, or an option is
        out of range.

    See Also
    --------
    attsvm.solve_svm, attsvm.theory.joint_conditions

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, equation (SVM) for v;
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, (ℓp-SVM).

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.Problem([[[2.0, 0.0], [0.0, 0.0]]], labels=[1])
    >>> attsvm.solve_head(problem, [0]).direction
    array([0.5, 0. ])
    """
    check_is_problem(problem)
    problem.check_one_head()
    problem = problem.binary
    if problem.labels is None:
        raise ProblemError("problem: expected labels -1 and 1, but it has none")
    sets = selection_sets(problem, selected)
    if ((sets & problem.copies.distinct).sum(axis=-1) > 1).any():
        raise ProblemError("selected: expected one token per query, got sets of tokens")
    batch, (n, Q, _) = sets.shape[:-3], sets.shape[-3:]
    kept = np.einsum("...qt,...td->...qd", sets / problem.copies.number, problem.tokens)
    labels = problem.labels if problem.has_query_axis else problem.labels[..., None]
    # y r'v ≥ 1 is a margin of the token y r over a token of zeros
    signed = (labels[..., None] * kept).reshape(*batch, n * Q, -1)
    counted = np.broadcast_to(problem.canonical.active, sets.shape[:-1]).reshape(*batch, n * Q)
    # y r is compared with a token of zeros, except for padded queries
    pairs = Problem(
        np.stack([signed, np.zeros_like(signed)], axis=-2),
        mask=np.stack([np.ones_like(counted), counted], axis=-1),
    )
    solution = solve_svm(
        of_rows(pairs),
        np.zeros((*batch, n * Q), dtype=int),
        norm,
        slack=slack,
        tol=tol,
        max_steps=max_steps,
        callback=callback,
        method=method,
    )
    of_query = (*batch, *problem.query_shape[len(problem.batch_shape) :])
    return replace(
        solution,
        dual=solution.dual[..., 1].reshape(of_query),
        support=solution.support[..., 1].reshape(of_query),
        selected=selection_of(selected),
    )
