"""``solve_svm``: from a problem and a selection to a certified direction, whatever the norm."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, parse_norm
from attsvm.problem import Problem
from attsvm.selection import selection_sets
from attsvm.svm.certificate import FARKAS_BOUND, Certified, certify, farkas, unattainable
from attsvm.svm.constraints.constraints import Constraints, check_relaxed
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.frobenius import METHODS as FROBENIUS_METHODS
from attsvm.svm.methods.euclidean.frobenius import solve_frobenius
from attsvm.svm.methods.lp.solve_lp import solve_lp
from attsvm.svm.methods.semidefinite.solve_semidefinite import METHODS as SEMIDEFINITE_METHODS
from attsvm.svm.methods.semidefinite.solve_semidefinite import solve_semidefinite
from attsvm.svm.solution import Solution
from attsvm.svm.variants.slack import certify_slack, check_slack, solve_slack

VIOLATION_ALLOWED = 1e-9
ALL_TOKENS = (-3, -2, -1)


def solve_svm(
    problem: Problem,
    selected: Any,
    norm: str | float | Norm = "frobenius",
    *,
    relaxed: Any = None,
    slack: float | None = None,
    tol: float = 1e-8,
    max_steps: int | None = None,
    warm_start: "Solution | np.ndarray | None" = None,
    callback: Callable[[int, float], object] | None = None,
    method: str | None = None,
) -> Solution:
    """The Att-SVM: the weights of least norm that keep the selected tokens by a margin of 1.

    Minimise N(W) subject to (k_iα − k_it)' W z_i ≥ 1 for every query i and every other token t that it may attend to.
    For a prompt, W is the vector p and there is no z.

    Parameters
    ----------
    problem : Problem
        Only tokens (or keys), queries and masks matter.
    selected : int array, shape (*lead, n[, Q]), or bool array, shape (*lead, n[, Q], T)
        The token that each query keeps; or the set of tokens that it keeps together, by equal logits inside the set
        and a margin of 1 over the rest.
    norm : str, float or Norm
        "frobenius", "nuclear", "spectral", "l<p>", or the p of an entrywise ℓp norm, 1 ≤ p ≤ ∞.
    relaxed : bool array, shape (*lead, n[, Q]), optional
        Queries that need a margin of 0 only.
    slack : float, optional
        C > 0: minimise ½‖W‖² + C Σ max(0, 1 − A(W)_it) instead. Only for the Frobenius norm (ℓ2 for a prompt), one
        token per query and without ``relaxed``.
    tol : float
        Relative gap up to which an answer is called optimal.
    max_steps : int, optional
        Of an iterative method.
    warm_start : Solution or ndarray, shape (*lead, d_k, d_q), or (*lead, d_k) for a prompt, optional
        Weights to begin with, where the method can use them.
    callback : callable, optional
        Called as ``callback(step, gap)`` by iterative methods; a true return value stops them.
    method : str, optional
        Forces one method of the norm: "least-distance" or "projected-gradient" for Frobenius; "newton",
        "interior-point" or "linear-program" for ℓp; "semidefinite" for nuclear and spectral. None chooses, and
        ``stats`` says what and why.

    Returns
    -------
    Solution
        Certified: its ``status`` rests on bounds computed from what is returned, not on the solver's word. A selection
        that no weights keep is ``infeasible``, a result and not an error.

    Raises
    ------
    ProblemError
        If an argument does not fit the problem.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, equation (Att-SVM).
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, (Att-SVM) and
    (Att-SVM*) for the nuclear norm. Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror
    Descent*, (ℓp-AttSVM).
    """
    start = time.perf_counter()
    norm = parse_norm(norm)
    sets = selection_sets(problem, selected)
    lead = sets.shape[:-3]
    constraints = Constraints.of(problem, sets, check_relaxed(problem, relaxed, lead))
    weights, multipliers = _initial_weights(problem, lead, warm_start), _initial_multipliers(constraints, warm_start)
    settings = Settings(tol, max_steps, weights, callback, multipliers)
    euclidean = is_euclidean(norm, problem)
    if slack is None:
        candidate = _candidate(constraints, norm, euclidean, settings, method)
        done, status, bound = _certified(constraints, norm, candidate, tol)
        objective = done.value
    else:
        slack = check_slack(slack, euclidean, constraints, relaxed)
        _check_method(method, (), norm)
        candidate = solve_slack(constraints, slack, settings, solve_frobenius(constraints, settings))
        done, objective = certify_slack(constraints, slack, candidate.weights, candidate.multipliers)
        status, bound = np.where(done.gap <= tol, "optimal", "inaccurate"), np.zeros(lead)

    def own_axes(array: np.ndarray) -> np.ndarray:
        return array.reshape(sets.shape) if problem.has_query_axis else array[..., 0, :]

    number = _plain if not lead else np.asarray
    return Solution(
        direction=done.weights if problem.has_queries else done.weights[..., 0],
        value=number(done.value),
        margin=number(done.margin),
        dual=own_axes(done.dual),
        support=own_axes(done.support),
        gap=number(done.gap),
        violation=number(done.violation),
        raw_violation=number(done.raw_violation),
        status=number(status),
        bound=number(bound),
        objective=number(objective),
        selected=_with_lead(selected, problem, lead, sets=True),
        norm=norm,
        relaxed=None if relaxed is None else _with_lead(relaxed, problem, lead, sets=False),
        slack=slack,
        stats={
            "method": candidate.method,
            "why": candidate.why,
            "steps": number(candidate.steps),
            "seconds": time.perf_counter() - start,
        },
    )


def is_euclidean(norm: Norm, problem: Problem) -> bool:
    """Whether the norm is that of Frobenius; nuclear and spectral norm of a prompt are."""
    return (norm if problem.has_queries else norm.of_vectors) == Lp(2.0)


def _candidate(
    constraints: Constraints, norm: Norm, euclidean: bool, settings: Settings, method: str | None
) -> Candidate:
    """By the geometry of the norm; that of Frobenius also tells what is infeasible, in any norm."""
    if euclidean:
        _check_method(method, FROBENIUS_METHODS, norm)
        return solve_frobenius(constraints, settings, method)
    if isinstance(norm, Lp):
        return solve_lp(constraints, norm.p, settings, solve_frobenius(constraints, Settings()), method)
    _check_method(method, SEMIDEFINITE_METHODS, norm)
    return solve_semidefinite(constraints, norm, settings)


def _check_method(method: str | None, methods: tuple[str, ...], norm: Norm) -> None:
    if method not in (None, *methods):
        raise ProblemError(f"method: {method!r} does not solve {norm.name}; wanted {' or '.join(methods)}")


def _certified(
    constraints: Constraints, norm: Norm, candidate: Candidate, tol: float
) -> tuple[Certified, np.ndarray, np.ndarray]:
    """What the candidate proves; the status of each problem, and its Farkas bound."""
    done = certify(constraints, norm, candidate.weights, candidate.multipliers)
    optimal = (done.gap <= np.maximum(tol, 1e-15 * done.value)) & (done.violation <= VIOLATION_ALLOWED)
    status = np.where(optimal, "optimal", "inaccurate")
    impossible = unattainable(constraints)
    if not (candidate.ray.any() or impossible.any()):
        return done, status, np.zeros(constraints.lead)
    suspect = candidate.ray | impossible.any(axis=ALL_TOKENS)
    multipliers = np.where(impossible.any(axis=ALL_TOKENS, keepdims=True), impossible, candidate.multipliers)
    dual, bound = farkas(constraints, norm, multipliers)
    infeasible = suspect & (bound > FARKAS_BOUND)

    def where_infeasible(this: Any, otherwise: np.ndarray) -> np.ndarray:
        return np.where(
            infeasible.reshape(infeasible.shape + (1,) * (otherwise.ndim - infeasible.ndim)), this, otherwise
        )

    done = Certified(
        weights=where_infeasible(np.nan, done.weights),
        dual=where_infeasible(dual, done.dual),
        value=where_infeasible(np.nan, done.value),
        margin=where_infeasible(np.nan, done.margin),
        gap=where_infeasible(np.nan, done.gap),
        violation=where_infeasible(np.inf, done.violation),
        raw_violation=where_infeasible(np.inf, done.raw_violation),
        support=where_infeasible(False, done.support),
    )
    return done, where_infeasible("infeasible", status), np.where(infeasible, bound, 0.0)


def _with_lead(array: Any, problem: Problem, lead: tuple[int, ...], sets: bool) -> np.ndarray:
    """A copy of what was passed, with all leading axes, so that solutions index like it."""
    array = np.asarray(array)
    own = problem.query_shape[len(problem.batch_shape) :]
    if sets and array.dtype == bool:
        own = (*own, problem.num_tokens)
    return np.array(array) if array.shape == lead + own else np.broadcast_to(array, lead + own).copy()


def _plain(array: np.ndarray) -> Any:
    return array.item()


def _initial_weights(
    problem: Problem, lead: tuple[int, ...], warm_start: "Solution | np.ndarray | None"
) -> np.ndarray | None:
    """The warm start as weights (*lead, d_k, d_q); None if there is none, or where it holds no finite numbers."""
    if warm_start is None:
        return None
    weights = np.asarray(warm_start.direction if isinstance(warm_start, Solution) else warm_start, dtype=np.float64)
    own = (problem.key_dim, problem.query_dim) if problem.has_queries else (problem.key_dim,)
    if weights.shape not in (own, lead + own):
        raise ProblemError(f"warm_start: shape {weights.shape} does not fit the problem: {lead + own} wanted")
    if not problem.has_queries:
        weights = weights[..., None]
    return np.nan_to_num(np.broadcast_to(weights, (*lead, problem.key_dim, problem.query_dim)))


def _initial_multipliers(constraints: Constraints, warm_start: "Solution | np.ndarray | None") -> np.ndarray | None:
    """The multipliers of a solution that has as many, with the Q axis spelled out."""
    if not isinstance(warm_start, Solution) or warm_start.dual.size != constraints.right.size:
        return None
    return np.nan_to_num(warm_start.dual).reshape(constraints.right.shape)
