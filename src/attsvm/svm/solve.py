"""``solve_svm``: from a problem and a selection to a certified direction, in any norm."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.checks import check_integer, check_number, selection_of, weights_of
from attsvm._utils.memory import enough_memory
from attsvm._utils.progress import Callback, Progress, reports
from attsvm._utils.threads import threads_for
from attsvm.errors import ProblemError
from attsvm.norms import Norm, for_heads, parse_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Status, plain, plain_status
from attsvm.selection import selection_sets
from attsvm.svm.certificate import (
    FARKAS_BOUND,
    FROBENIUS,
    VIOLATION_ALLOWED,
    Certified,
    certify,
    farkas,
    is_optimal,
    unattainable,
)
from attsvm.svm.constraints.attention_heads import stacked_heads
from attsvm.svm.constraints.constraints import ALL_TOKENS, Constraints, TokenValues, Weights, check_relaxed
from attsvm.svm.constraints.exact import ExactConstraints
from attsvm.svm.loop import Report
from attsvm.svm.methods.registry import Candidate, SolverSettings, check_method, find_candidate
from attsvm.svm.right_sides import (
    ROOM,
    check_center,
    check_required,
    least_violating,
    measured_from,
    repaired,
    with_margins,
)
from attsvm.svm.solution import Solution
from attsvm.svm.variants.rank import check_rank, solve_rank
from attsvm.svm.variants.slack import best_soft_margin, check_slack, solve_slack

NO_METHODS: Sequence[str] = ()

# np.where is three times as fast on plain strings
OPTIMAL, INACCURATE, INFEASIBLE = (str(word.value) for word in (Status.OPTIMAL, Status.INACCURATE, Status.INFEASIBLE))


@reports("solving")
def solve_svm(
    problem: Problem,
    selected: Any,
    norm: str | float | Norm = "frobenius",
    *,
    required: Any = None,
    center: Any = None,
    relaxed: Any = None,
    slack: float | None = None,
    rank: int | None = None,
    tol: float = 1e-8,
    max_steps: int | None = None,
    warm_start: Any = None,
    callback: Callback | None = None,
    progress: bool = False,
    method: str | None = None,
) -> Solution:
    """Solve the Att-SVM: the weights of least norm that keep the selected tokens with a margin of 1.

    Minimise N(W) subject to (k_iα − k_it)' W z_i ≥ 1 for every query i, its selected token α and every other token t
    that it may attend to. For a prompt, W is the vector p and there is no z. Tokens of a query with equal keys have
    equal logits under all weights, so they count as one token: tokens with the key of the selected token have no
    constraint, and several tokens with another key have one.

    With ``required`` and ``center``, minimise N(W − W_0) subject to (k_iα − k_it)' W z_i ≥ b_it: the smallest change of
    the weights W_0 that gives these margins.

    Parameters
    ----------
    problem : Problem
        Only tokens (or keys), queries and masks matter.
    selected : int array, shape (*batch, n[, Q]), or bool array, shape (*batch, n[, Q], T); or Run, Solution, Prediction
        The token that each query keeps, or the set of tokens that it keeps together: these have equal logits, and a
        margin of 1 over the other tokens. For a run or another result, its ``selected`` is used.
    norm : str, float or Norm
        "frobenius", "nuclear", "spectral", "l<p>", the p of an entrywise ℓp norm with 1 ≤ p ≤ ∞, or any norm with
        ``dual`` and at least one of ``prox``, ``project_dual_ball`` and ``steepest``. With several attention heads,
        each one is a separate problem in the batch, unless the norm is a :class:`attsvm.norms.JointNorm`: then all
        attention heads are one problem, and its ``direction`` and ``dual`` have the axis of heads.
    required : array, shape (*batch, n[, Q], T), optional
        The margins b_it, of any sign; NaN where nothing is required. By default 1. Entries for masked tokens, and for
        tokens with the key of the selected token, are ignored. Among other tokens with equal keys, the largest entry
        counts.
    center : ndarray of shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt; or Run, Solution, optional
        W_0. By default 0. Neither ``required`` nor ``center`` can be used with ``relaxed``, ``slack``, ``rank`` or sets
        of tokens.
    relaxed : bool array, shape (*batch, n[, Q]), optional
        Queries that need only a margin of 0.
    slack : float, optional
        C > 0: minimise ½‖W‖² + C Σ max(0, 1 − A(W)_it) instead. Only for the Frobenius norm (ℓ2 for a prompt), one
        token per query and without ``relaxed``.
    rank : int, optional
        The largest rank of W; only for the nuclear norm: minimise ½(‖K‖² + ‖Q‖²) over W = KQ', where K and Q have this
        many columns. If the nuclear solution has a larger rank, the problem is not convex, and the result is the lowest
        of several local minima. It is compared with the nuclear optimum, a lower bound: ``gap`` is 1 − (nuclear
        value)/value, and the status is ``inaccurate`` unless the gap is within ``tol``. If no weights of this rank that
        keep the selection are found, ``gap`` is ∞.
    tol : float
        Largest relative duality gap with which a solution is called optimal.
    max_steps : int, optional
        Largest number of steps of iterative methods.
    warm_start : Solution, Run, or ndarray of shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt, optional
        Initial weights, for the methods that can use them.
    callback : callable, optional
        Called by iterative methods with a :class:`attsvm.Progress` that holds ``step``, ``seconds`` and ``gap``; a
        true return value stops them.
    progress : bool
        Show the progress, as :func:`attsvm.train` does.
    method : str, optional
        Forces one method: "least-distance" or "projected-gradient" for Frobenius; "newton", "interior-point" or
        "linear-program" for ℓp; "semidefinite" or "douglas-rachford" for nuclear and spectral; for other norms
        "semismooth-newton" or "douglas-rachford" with a prox, and "quasi-newton" or "douglas-rachford" with
        ``steepest`` alone. By default the method is chosen; ``stats`` has its name and the reason.

    Returns
    -------
    Solution
        Its ``status`` follows from bounds that are computed from the returned arrays. If no weights keep the selection,
        this is not an error: the status is ``infeasible``.

    Raises
    ------
    ProblemError
        If an argument does not fit the problem, or if the norm lacks what a solver needs.
    MemoryError
        If there is not enough memory. The message says how many constraints to try.

    See Also
    --------
    attsvm.Solution : The result.
    attsvm.feasibility, attsvm.margin_ratio
    attsvm.svm.differentiable.solve : The solution as a function that JAX differentiates.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*, equation (Att-SVM).
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, (Att-SVM) and
    (Att-SVM*) for the nuclear norm. Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror
    Descent*, (ℓp-AttSVM).

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> problem = attsvm.Problem([[[2.0, 0.0], [0.0, 0.0], [0.0, 1.0]]])
    >>> solution = attsvm.solve_svm(problem, [0])
    >>> solution.direction
    array([0.5, 0. ])
    >>> solution.value, solution.status
    (0.5, <Status.OPTIMAL: 'optimal'>)

    The smallest change of the weights (1, 1) after which the first token leads the second by at least 3, and the third
    by at least −1:

    >>> change = attsvm.solve_svm(problem, [0], required=[[0.0, 3.0, -1.0]], center=[1.0, 1.0])
    >>> change.direction, round(change.value, 12)
    (array([1.5, 1. ]), 0.5)
    """
    check_is_problem(problem)
    check_number("tol", tol, "a number >= 0", lambda x: x >= 0)
    if max_steps is not None:
        check_integer("max_steps", max_steps, 1)
    options = _SolveOptions(parse_norm(norm), required, center, relaxed, slack, rank, tol, max_steps, callback, method)
    if required is not None or center is not None:
        _check_combination(options)
    # the certificate detects overflow
    with np.errstate(all="ignore"), threads_for(_multiplications(problem)), _enough_memory(problem):
        solution = _solve(problem, selection_of(selected), options, warm_start)
    if hasattr(selected, "selected"):
        solution.stats["selected_by"] = type(selected).__name__
    return solution


@contextlib.contextmanager
def _enough_memory(problem: Problem) -> Iterator[None]:
    """Say which size to try if memory does not suffice."""
    shape = " × ".join(map(str, problem.weights_shape))
    count = math.prod(problem.query_shape) * problem.num_tokens
    with enough_memory("cpu", f"constraints on {shape} weights", count):
        yield


def _multiplications(problem: Problem) -> int:
    """In a product of the rows of one problem with weights, and back."""
    num_rows = math.prod(problem.query_shape[len(problem.batch_shape) :]) * problem.num_tokens
    return 2 * num_rows * math.prod(problem.weights_shape)


class _SolveOptions(NamedTuple):
    norm: Norm
    required: Any
    center: Any
    relaxed: Any
    slack: float | None
    rank: int | None
    tol: float
    max_steps: int | None
    callback: Callback | None
    method: str | None


def _check_combination(options: _SolveOptions) -> None:
    """Check that nothing is combined with margins or a centre that they exclude."""
    given = "center" if options.required is None else "required"
    for name in ("relaxed", "slack", "rank"):
        if getattr(options, name) is not None:
            raise ProblemError(f"{name}: expected None with {given}, got {getattr(options, name)!r}")


def _solve(problem: Problem, selected: np.ndarray, options: _SolveOptions, warm_start: Any) -> Solution:
    norm, required, center, relaxed, slack, rank, tol, max_steps, callback, method = options
    start = time.perf_counter()
    if rank is not None:
        rank = check_rank(rank, norm, problem.has_queries)
    sets = selection_sets(problem, selected)
    batch = sets.shape[:-3]
    constraints = Constraints.of(problem, sets, check_relaxed(problem, relaxed, batch))
    constraints.check_lengths()
    origin = check_center(problem, center, batch)
    if required is not None or origin is not None:
        constraints = with_margins(constraints, check_required(problem, required, batch))
    # several heads are one problem whose keys are block-diagonal
    own_norm = for_heads(norm, problem.num_heads)
    if constraints.blocks is not None:
        _check_takes_blocks(own_norm, rank)
    if own_norm.head_axes:
        constraints = stacked_heads(constraints)
    whole = constraints
    if origin is not None:
        origin = origin.reshape(whole.batch_shape + whole.weights_shape)
        constraints = measured_from(origin, whole)
    exact = partial(ExactConstraints.of_problem, whole, problem, sets)
    settings = SolverSettings(
        tol,
        max_steps,
        _initial_weights(problem, batch, warm_start, constraints, origin),
        _report(callback, max_steps, start),
        _initial_multipliers(constraints, warm_start),
    )
    own_norm = own_norm if problem.has_queries else own_norm.of_vectors
    if own_norm == FROBENIUS:
        own_norm = FROBENIUS  # comparisons by identity are faster
    if slack is None:
        if own_norm is not FROBENIUS:
            _ = own_norm.dual  # raises where there is none, before the work begins
        # first decision: the method
        candidate = find_candidate(constraints, own_norm, settings, method)
        if rank is not None:
            candidate = solve_rank(constraints, rank, settings, candidate)
        if constraints.blocks is not None:  # rounding of a prox
            candidate = candidate._replace(weights=constraints.blocks.only(candidate.weights))
        if constraints.center_length is not None:
            candidate = repaired(constraints, candidate)
        # second decision: the status
        done, status, bound = _certified(constraints, whole, own_norm, candidate, tol, exact, origin)
        objective = done.value
    else:
        slack = check_slack(slack, own_norm, constraints, relaxed)
        if method is not None:
            check_method(method, NO_METHODS, norm)
        hard = find_candidate(constraints, own_norm, settings)
        candidate = solve_slack(constraints, slack, settings, hard)
        done, objective = best_soft_margin(constraints, slack, settings, candidate, hard, exact)
        status, bound = np.where(done.gap <= tol, OPTIMAL, INACCURATE), np.zeros(batch)

    own_shape = problem.weights_shape
    weights = done.weights.reshape(batch + own_shape)
    if origin is not None:
        weights = weights + origin.reshape(batch + own_shape)

    def own_axes(array: np.ndarray) -> np.ndarray:
        return array.reshape(sets.shape if problem.has_query_axis else (*sets.shape[:-2], sets.shape[-1]))

    return Solution(
        status=plain_status(status),
        direction=weights,
        value=plain(done.value),
        margin=plain(done.margin),
        dual=own_axes(done.dual),
        support=own_axes(problem.copies.of_first(done.support.reshape(sets.shape))),
        gap=plain(done.gap),
        violation=plain(done.violation),
        raw_violation=plain(done.raw_violation),
        bound=plain(bound),
        objective=plain(objective),
        selected=_with_batch_axes(selected, problem, batch, tokens=selected.dtype == bool),
        norm=norm,
        required=None if required is None else _with_batch_axes(required, problem, batch, tokens=True),
        center=None if origin is None else origin.reshape(batch + own_shape).copy(),
        relaxed=None if relaxed is None else _with_batch_axes(relaxed, problem, batch),
        slack=slack,
        rank=rank,
        num_biases=problem.num_biases,
        stats={
            "method": candidate.method,
            "why": candidate.why,
            "steps": plain(candidate.steps),
            "seconds": time.perf_counter() - start,
        },
    )


def _check_takes_blocks(norm: Norm, rank: int | None) -> None:
    """Refuse what is for rows of rank one, as those of weights of one block."""
    if rank is not None:
        raise ProblemError(f"rank: expected None for a problem with bias_index, got {rank}")
    if norm.head_axes or not norm.takes_biases:
        expected = "a norm of each attention head alone" if norm.head_axes else "one without rotations"
        raise ProblemError(f"norm: expected {expected} for a problem with bias_index, got {norm.name}")


def _report(callback: Callback | None, max_steps: int | None, start: float) -> Report | None:
    if callback is None:
        return None

    def report(step: int, gap: float) -> bool:
        return bool(callback(Progress(step=step, steps=max_steps, seconds=time.perf_counter() - start, gap=gap)))

    return report


def _certified(
    constraints: Constraints,
    whole: Constraints,
    norm: Norm,
    candidate: Candidate,
    tol: float,
    exact: Callable[[int], Constraints],
    origin: np.ndarray | None,
) -> tuple[Certified, np.ndarray, np.ndarray]:
    """What the candidate proves; the status of each problem, and its Farkas bound.

    ``whole``: the constraints on W itself, if those are on W − W_0, the ``origin``. ``exact``: those of one problem,
    with exact products.
    """
    norm, ray, multipliers = candidate.norm or norm, candidate.ray, candidate.multipliers
    done = certify(constraints, norm, candidate.weights, multipliers, tol)
    optimal, impossible = is_optimal(done, tol) & _keeps_margins(constraints, done), unattainable(whole)
    if np.count_nonzero(optimal) == optimal.size and not (np.count_nonzero(ray) or np.count_nonzero(impossible)):
        return done, np.where(optimal, OPTIMAL, INACCURATE), np.zeros(constraints.batch_shape)
    # a row of zeros that asks for a margin is a ray by itself
    suspect = ray | impossible.any(axis=ALL_TOKENS)
    multipliers = np.where(impossible.any(axis=ALL_TOKENS, keepdims=True), impossible, multipliers)
    dual, bound = map(np.array, farkas(whole, norm, multipliers))
    if (suspect & (bound <= FARKAS_BOUND)).any():  # whether there are weights does not depend on the norm or its scale
        proved = np.maximum(bound, farkas(whole, FROBENIUS, multipliers)[1])
    else:
        proved = bound
    infeasible = np.array(suspect & (proved > FARKAS_BOUND))
    bound = np.where(suspect, bound, 0.0)
    fields = Certified(*map(np.array, done))
    for k in np.flatnonzero(~optimal & ~infeasible):
        index = np.unravel_index(k, whole.batch_shape)
        pair, center = (candidate.weights[index], multipliers[index]), None if origin is None else origin[index]
        own, proof = _without_rounding(constraints[index], exact(int(k)), norm, pair, bool(suspect[index]), tol, center)
        for field, value in zip(fields, own, strict=True):
            field[index] = value
        if proof is not None:
            dual[index], bound[index], infeasible[index] = proof
    done, optimal = fields, is_optimal(fields, tol) & ~infeasible

    def where_infeasible(this: Any, otherwise: np.ndarray) -> np.ndarray:
        return np.where(
            infeasible.reshape(infeasible.shape + (1,) * (otherwise.ndim - infeasible.ndim)), this, otherwise
        )

    status = np.where(infeasible, INFEASIBLE, np.where(optimal, OPTIMAL, INACCURATE))
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
    return done, status, np.where(optimal, 0.0, bound)


def _without_rounding(
    constraints: Constraints,
    exact: Constraints,
    norm: Norm,
    pair: tuple[Weights, TokenValues],
    suspect: bool,
    tol: float,
    origin: Weights | None,
) -> tuple[Certified, tuple[TokenValues, Any, bool] | None]:
    """What exact products prove of one problem that is not optimal with bounds on the rounding errors.

    Returns the bounds, those of the least-violating weights if there are such; and Farkas multipliers, their bound, and
    whether they prove that there are no weights.
    """
    done, found = certify(constraints, norm, *pair), certify(constraints, norm, *pair, tol)
    near = _keeps_margins(constraints, found)
    if origin is None and is_optimal(done, tol) and near:
        return certify(exact, norm, *pair, tol), None
    keeps_rows = exact.center_length is None or (near and done.violation <= VIOLATION_ALLOWED and np.isfinite(done.gap))
    weights, ray = (None, None) if keeps_rows else least_violating(exact)
    rays = [each for each in (pair[1] if suspect else None, ray) if each is not None]
    proofs = [(*farkas(exact, norm, each), farkas(exact, FROBENIUS, each)[1]) for each in rays]
    dual, bound, other = max(proofs, key=lambda each: max(each[1:]), default=(pair[1], 0.0, 0.0))
    if weights is not None:
        least = certify(constraints, norm, weights - (0.0 if origin is None else origin), dual, tol)
        closer = least.raw_violation < found.raw_violation and not is_optimal(found, tol)
        found = least if bound > 0 or closer else found
    return found, (dual, bound, bool(max(bound, other) > FARKAS_BOUND))


def _keeps_margins(constraints: Constraints, done: Certified) -> Any:
    """Whether weights keep the margins that are required, up to a part of the largest; True where none are.

    Long weights may violate rows by much more than these ask for, and by little relative to their own length.
    """
    if constraints.center_length is None:
        return np.True_
    return done.raw_violation <= ROOM[1] * abs(constraints.right).max(axis=ALL_TOKENS, initial=0.0)


def _with_batch_axes(array: Any, problem: Problem, batch: tuple[int, ...], tokens: bool = False) -> np.ndarray:
    """A copy of an argument with all batch axes, so that it is indexed like the solution."""
    array = np.asarray(array)
    own = problem.query_shape[len(problem.batch_shape) :]
    if tokens:
        own = (*own, problem.num_tokens)
    return np.array(array) if array.shape == batch + own else np.broadcast_to(array, batch + own).copy()


def _initial_weights(
    problem: Problem, batch: tuple[int, ...], warm_start: Any, constraints: Constraints, origin: np.ndarray | None
) -> np.ndarray | None:
    """The warm start as weights of the constraints, with 0 in place of numbers that are not finite."""
    if warm_start is None:
        return None
    weights = weights_of(warm_start, "warm_start")
    own = problem.weights_shape
    if weights.shape not in (own, batch + own):
        raise ProblemError(f"warm_start: expected shape {batch + own}, got {weights.shape}")
    if not problem.has_queries:
        weights = weights[..., None]
    whole = np.broadcast_to(weights, batch + (own if problem.has_queries else (*own, 1)))
    finite: np.ndarray = np.nan_to_num(whole if origin is None else whole - origin)
    return finite.reshape(constraints.batch_shape + constraints.weights_shape)


def _initial_multipliers(constraints: Constraints, warm_start: Any) -> np.ndarray | None:
    """The multipliers of a solution that has as many as there are constraints, with the Q axis written out."""
    if not isinstance(warm_start, Solution) or warm_start.dual.size != constraints.right.size:
        return None
    return np.asarray(np.nan_to_num(warm_start.dual).reshape(constraints.right.shape))
