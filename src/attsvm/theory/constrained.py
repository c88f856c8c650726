"""The limits of training with decoupled weight decay: stationary points of the loss over a ball.

A step of length η in a norm N with decay λ moves W to (1 − ηλ) W + ηλ (−D/λ), where D maximises ⟨∇L, D⟩ over N(D) ≤ 1:
it is a step of the Frank-Wolfe method on N(W) ≤ 1/λ.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from attsvm._utils.checks import as_array, check_positive, selection_of
from attsvm.errors import ProblemError
from attsvm.losses import parse_loss
from attsvm.measures import check_weights
from attsvm.norms import Lp, Norm, parse_norm, read_norm, written_norm
from attsvm.norms.factors import induced_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.regularization.barrier_balls import minimise_in_balls, start_inside, tolerance
from attsvm.regularization.barriers import barrier_of
from attsvm.regularization.interior_point import minimise_stack
from attsvm.regularization.margin_losses import scalar_of
from attsvm.regularization.stacked_excess import StackedExcess, StackedLogSum
from attsvm.results import Result, per_trial, plain, plain_status, shared
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm
from attsvm.theory.adam_points import adam_points
from attsvm.theory.conditions import is_feasible

FIRST_LOGIT = 0.1
"""A path begins at the radius at which the logits are at most about this large."""
GROWTH = 2.0
"""Ratio of neighbouring radii of a path."""
FAR = 1e12
"""A direction times this is outside of every ball, so that it is moved to the sphere."""
ALLOWED = 10.0
"""A point counts as stationary if its gap is at most this many times the one that the search ends at."""
SUPPORT = 1e-7
"""The least share of a multiplier of a support token."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConstrainedLimit(Result):
    """A stationary point of min L(W) over N(W) ≤ R, and what is known about it.

    Attributes
    ----------
    status : Status, or ndarray of str, shape (*batch_shape,)
        ``converged``: the point is stationary, with ``gap`` at most 1e-10 for ℓp with 1 < p < ∞, 1e-6 for ℓ1, ℓ∞, the
        spectral and the nuclear norm, and 1e-5 for others. It need not be a minimum. ``inaccurate``: the gap is larger.
    weights : ndarray, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k)
        W, or p; for factors their product.
    radius : float, or ndarray, shape (*batch_shape,)
        R; for factors that of the product.
    norm : Norm
        N; for factors the norm that theirs induces on the product.
    loss : float, or ndarray, shape (*batch_shape,)
        L(W).
    log_excess : float, or ndarray, shape (*batch_shape,)
        The logarithm of L(W) minus the loss of the selected tokens alone; −∞ if it is not positive.
    gap : float, or ndarray, shape (*batch_shape,)
        The relative Frank-Wolfe gap 1 + ⟨∇L(W), W⟩/(R N*(∇L(W))): 0 at stationary points only.
    selected : int ndarray, shape (*batch_shape, n[, Q])
        The token of largest logit.
    value : float, or ndarray, shape (*batch_shape,)
        V, the value of the Att-SVM of these tokens, as a lower bound; ∞ if they cannot be separated.
    ratio : float, or ndarray, shape (*batch_shape,)
        R/V. No weights of the ball have a larger gap between the logits of these tokens and all others. ∞ if there are
        no others.
    logit_gaps : ndarray, shape (*batch_shape, n[, Q], T)
        The logit of the selected token minus that of each token; NaN for masked ones.
    closed_form : ndarray, shape (*batch_shape, n[, Q], T)
        What the gaps of support tokens are for R → ∞, up to a difference that vanishes, like 1/R for the least of them;
        NaN for other tokens, and where a support token has at least the score of the selected one.
    cap : float, or ndarray, shape (*batch_shape,)
        1/(1 + exp(−R/V)): no weights of the ball give each selected token a larger probability.
    lower_bound : float, or ndarray, shape (*batch_shape,)
        A lower bound of the loss in the ball, up to rounding errors.
    log_bound : float, or ndarray, shape (*batch_shape,)
        The logarithm of this bound minus the loss of the optimal tokens alone; −∞ if optimal tokens are tied, or the
        norm has no barrier.
    excess_over_bound : float, or ndarray, shape (*batch_shape,)
        (L(W) − L*)/(bound − L*) − 1, L* the loss of the optimal tokens: a small number shows, up to rounding errors,
        that the point is nearly the global minimum in the ball. ∞ without a bound.

    See Also
    --------
    attsvm.theory.constrained_limit : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> limit = attsvm.theory.constrained_limit(problem, decay=0.01)
    >>> bool(limit.logit_gaps[limit.logit_gaps > 0].min() <= limit.ratio)
    True
    """

    kind: ClassVar[str] = "constrained limit"

    weights: np.ndarray = per_trial()
    radius: float | np.ndarray = per_trial()
    norm: Norm = shared(write=written_norm, read=read_norm)
    loss: float | np.ndarray = per_trial()
    log_excess: float | np.ndarray = per_trial()
    gap: float | np.ndarray = per_trial()
    selected: np.ndarray = per_trial()
    value: float | np.ndarray = per_trial()
    ratio: float | np.ndarray = per_trial()
    logit_gaps: np.ndarray = per_trial()
    closed_form: np.ndarray = per_trial()
    cap: float | np.ndarray = per_trial()
    lower_bound: float | np.ndarray = per_trial()
    log_bound: float | np.ndarray = per_trial()
    excess_over_bound: float | np.ndarray = per_trial()

    def reach(self, rates: Any, *, factors: bool = False) -> float | np.ndarray:
        """Return the largest N(W)/R after steps of these rates from zero weights, 1 − Π(1 − ηλ).

        ``rates``: η of each step, shape (steps,). ``factors``: whether K and Q decay, with λ = 1/√R; then it is that of
        each factor. A run ends at the point only if this is nearly 1.

        Raises ProblemError if the rates are no numbers, or a rate exceeds 1/λ.
        """
        given = np.asarray(as_array("rates", rates), dtype=np.float64)
        decay = np.asarray(self.radius)[..., None] ** (-0.5 if factors else -1.0)
        if given.ndim != 1:
            raise ProblemError(f"rates: expected shape (steps,), got {given.shape}")
        if not ((given >= 0) & (given * decay <= 1)).all():
            raise ProblemError(f"rates: expected numbers from 0 to 1/λ = {1 / decay.max():.3g}, got {given.max():.3g}")
        reached: float | np.ndarray = plain(1 - np.prod(1 - given * decay, axis=-1))
        return reached

    def _summary(self) -> str:
        return f"{self._batch_summary()}; R/V {self.ratio:.3g}, gap {self.gap:.1e}; {self.status}"

    def _batch_summary(self) -> str:
        return f"{self.norm.name} ball"


def constrained_limit(
    problem: Problem,
    *,
    radius: Any = None,
    decay: Any = None,
    norm: str | float | Norm = "frobenius",
    start: Any = None,
    attention: str = "combined",
    loss: str = "logistic",
    epsilon: float | None = None,
) -> ConstrainedLimit:
    """Compute where training with decoupled weight decay ends: a stationary point of min L(W) over N(W) ≤ R.

    Steps of unit length in N with decay λ are those of the Frank-Wolfe method on the ball of radius R = 1/λ. If their
    rates decay and add up to about 10/λ, they were measured to end at stationary points (``docs/notes/weight_decay.md``
    has the optimizers). There are several, about one for each selection; ``start`` decides which is found.

    With V the value of the Att-SVM, no weights of the ball have a logit gap above R/V. For large R the gaps of support
    tokens are R/V + log(c/μ) − Σ μ log(c/μ), where μ are the multipliers of the Att-SVM over their sum, and c_it =
    |ℓ'(γ_iα)| (γ_iα − γ_it)/n for scores γ. For the optimal tokens and any W, L(W) − L* ≥ H/(1 + H/min c) with H =
    Σ c exp(−gap); log H is convex, so its minimum over the ball bounds the global minimum of the loss from below.

    Parameters
    ----------
    problem : Problem
        With labels ±1, a head, and one attention head.
    radius, decay : float, or array of shape (*batch_shape,)
        Exactly one of the two: R, or λ = 1/R. For factors, those of K and Q: the radius of the product is R².
    norm : str, float or Norm
        N, the norm of the steps. ℓ1, Frobenius, ℓ∞, spectral and nuclear are solved for all problems at once, other ℓp
        one by one. For any other norm with ``steepest`` a gap of 1e-6 takes seconds.
    start : str, Run, Solution, array or None
        Weights, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k), by themselves or of a run; a selection, integers
        of shape (*batch_shape, n[, Q]), whose Att-SVM is the start; or "path": the minima in balls of increasing
        radius. By default the optimal tokens, or the path where they cannot be separated.
    attention : {"combined", "prompt", "factored"}
        "factored": N is the norm of K and of Q with d_k columns each, and the ball is that of the norm which it induces
        on KQ': nuclear for Frobenius, spectral for spectral.
    loss : str
        A built-in decreasing loss of the margin.
    epsilon : float, optional
        The ε of AdamW on raw gradients, with ``norm="linf"``: the point is stationary for L(W) + (ε/λ) Σ [−λ|w| − log(1
        − λ|w|)]. Where λ is small, this is a penalty ½ ελ‖W‖²_F, so that the direction is near the Frobenius Att-SVM.
        ``gap`` is then the largest entry of |λW + g/(|g| + ε)|, g = ∇L(W). For Muon with the coefficients of optax or
        PyTorch no such point is known.

    Returns
    -------
    ConstrainedLimit
        With the batch axes of the problem, or those of ``start`` if it has more.

    Raises
    ------
    ProblemError
        If an argument does not fit, not exactly one of radius and decay is given, or a selection cannot be separated.

    See Also
    --------
    attsvm.regularization_path : The lowest minimum in each ball.
    attsvm.theory.context_limit : The longest context for a decay.

    References
    ----------
    Jaggi (2013), *Revisiting Frank-Wolfe*. Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support
    Vector Machines*, for the path of balls.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> limit = attsvm.theory.constrained_limit(problem, decay=0.01, norm="spectral")
    >>> limit.status, bool(limit.gap <= 1e-7)
    (<Status.CONVERGED: 'converged'>, True)
    >>> print(f"{limit.logit_gaps[limit.logit_gaps > 0].min():.1f} of {limit.ratio:.1f}")
    65.5 of 66.0
    """
    setting = _Setting.of(problem, radius, decay, norm, start, attention, loss)
    excess, radii = setting.excess, setting.radii
    if epsilon is not None:
        return _adam_limit(setting, epsilon)
    found = minimise_in_balls(problem, excess, setting.start, radii, setting.norm, setting.places)
    return _result(setting, found.weights, found.gap)


def _adam_limit(setting: "_Setting", epsilon: float) -> ConstrainedLimit:
    epsilon = check_positive("epsilon", epsilon)
    if setting.norm != Lp(np.inf):
        raise ProblemError(f'norm: expected "linf" with epsilon, which is that of AdamW, got {setting.norm.name}')
    radii = setting.radii
    start = start_inside(setting.norm, setting.start, radii) / radii[:, None, None]
    found = adam_points(setting.excess.scaled(radii), start, 1 / (radii * epsilon))
    return _result(setting, found.weights * radii[:, None, None], found.residual)


class _Setting(NamedTuple):
    """The arguments, with flat batch axes of N entries."""

    problem: Problem
    batch: tuple[int, ...]
    places: np.ndarray  # (N,): which problem of the flattened batch
    excess: StackedExcess
    radii: Float[np.ndarray, " N"]
    norm: Norm
    start: Float[np.ndarray, "N k e"]

    @classmethod
    def of(
        cls, problem: Problem, radius: Any, decay: Any, norm: Any, start: Any, attention: str, loss: str
    ) -> "_Setting":
        check_is_problem(problem)
        problem.check_one_head()
        if problem.labels is None or problem.num_classes is not None or problem.head is None:
            raise ProblemError("problem: expected labels -1 and 1 and a prediction head, got classes or none")
        if (radius is None) == (decay is None):
            raise ProblemError("radius: expected exactly one of radius and decay")
        if attention not in (("combined", "factored") if problem.has_queries else ("combined", "prompt")):
            expected = '"combined" or "factored"' if problem.has_queries else '"prompt", because there are no queries,'
            raise ProblemError(f"attention: expected {expected} got {attention!r}")
        name, given = ("radius", radius) if decay is None else ("decay", decay)
        radii = np.asarray(as_array(name, given), dtype=np.float64)
        if not (np.isfinite(radii).all() and (radii > 0).all()):
            raise ProblemError(f"{name}: expected positive numbers, got {given}")
        radii = radii if decay is None else 1 / radii
        used = parse_norm(norm)
        if attention == "factored":
            used, radii = induced_norm(used, problem.key_dim), radii**2
        elif not problem.has_queries:
            used = used.of_vectors
        excess = StackedExcess.of(problem, scalar_of(parse_loss(loss, None)))
        begin, batch = _start(problem, start, used)
        batch = problem.batch_shape if batch is None else batch
        try:
            radii = np.broadcast_to(radii, batch).reshape(-1)
        except ValueError:
            raise ProblemError(f"{name}: expected a number, or shape {batch}, got {radii.shape}") from None
        number = len(excess.keys)
        index = np.broadcast_to(np.arange(number).reshape(problem.batch_shape), batch).reshape(-1)
        excess = excess[index] if batch != problem.batch_shape else excess
        shape = (len(radii), problem.key_dim, problem.query_dim if problem.has_queries else 1)
        setting = cls(problem, batch, index, excess, radii, used, np.zeros(shape))
        if begin is None:
            return setting._replace(start=_along_path(setting))
        begin = np.broadcast_to(begin, (*batch, *begin.shape[len(begin.shape) - (2 if problem.has_queries else 1) :]))
        begin = begin.reshape(shape)
        lost = ~np.isfinite(begin).all(axis=(-2, -1))
        if lost.any():  # optimal tokens that cannot be separated
            part = setting._replace(
                places=index[lost], excess=excess[lost], radii=radii[lost], start=setting.start[lost]
            )
            begin = begin.copy()
            begin[lost] = _along_path(part)
        return setting._replace(start=begin)


def _start(problem: Problem, start: Any, norm: Norm) -> tuple[np.ndarray | None, tuple[int, ...] | None]:
    """Weights on the sphere or anywhere, NaN where they are those of the path; None for the path of all problems."""
    if isinstance(start, str):
        if start != "path":
            raise ProblemError(f'start: expected "path", weights, a run or a selection, got {start!r}')
        return None, None
    core = 2 if problem.has_queries else 1
    if start is None:
        chosen: Any = optimal_tokens(problem)
    elif isinstance(start, Result):
        chosen = None
    else:
        given = as_array("start", start)
        chosen = given if given.dtype.kind in "iu" else None
    if chosen is None:
        weights = check_weights(problem, start, name="start")
        batch = _checked_batch(problem, weights.shape[: weights.ndim - core])
        return weights * (FAR if isinstance(start, Solution) else 1.0), batch
    svm = solve_svm(problem, selection_of(chosen), norm=norm)
    feasible = is_feasible(svm)
    if start is not None and not feasible.all():
        raise ProblemError("start: expected a selection that can be separated, got one whose Att-SVM is infeasible")
    directions = np.where(feasible.reshape(*feasible.shape, *(1,) * core), svm.direction, np.nan)
    return directions * FAR, _checked_batch(problem, feasible.shape)


def _checked_batch(problem: Problem, lead: tuple[int, ...]) -> tuple[int, ...]:
    own = problem.batch_shape
    if len(lead) < len(own):
        lead = own
    if lead[len(lead) - len(own) :] != own:
        raise ProblemError(f"start: expected batch axes that end with {own}, those of the problem, got {lead}")
    return lead


def _along_path(setting: _Setting) -> np.ndarray:
    """Weights at the radius, from minima at smaller ones."""
    excess, norm = setting.excess, setting.norm
    left, right = norm.dual.values(excess.left, 1), norm.dual.values(excess.queries, 1)
    longest = (left * right[..., None] * excess.allowed).max(axis=(-2, -1))
    first = np.minimum(FIRST_LOGIT / np.where(longest > 0, longest, 1.0), setting.radii)
    growths = int(np.ceil(np.log((setting.radii / first).max()) / np.log(GROWTH)))
    weights = setting.start
    for step in range(growths):
        radii = first * (setting.radii / first) ** (step / growths)
        size = norm.values(weights)
        weights = weights * (radii / np.where(size > 0, size, 1.0))[:, None, None]
        weights = minimise_in_balls(setting.problem, excess, weights, radii, norm, setting.places).weights
    size = norm.values(weights)
    return np.asarray(weights * (setting.radii / np.where(size > 0, size, 1.0))[:, None, None])


def _result(setting: _Setting, weights: np.ndarray, gap: np.ndarray) -> ConstrainedLimit:
    problem, batch, radii, norm = setting.problem, setting.batch, setting.radii, setting.norm
    queries = problem.query_shape[len(problem.batch_shape) :]
    excess = setting.excess.over(setting.excess.selected(weights))
    gaps = np.where(excess.allowed, excess.gaps(weights), np.nan)
    log_excess = excess.value(weights)
    selected = np.where(excess.share > 0, excess.reference, -1).reshape(*batch, *queries)
    of_batch = weights.reshape(*batch, *weights.shape[1:])
    svm = solve_svm(problem, selected, norm=norm)
    feasible = is_feasible(svm).reshape(-1)
    # the value minus its gap is a lower bound of V, so that no cap is too low
    lower = np.ravel(svm.value) * (1 - np.clip(np.ravel(svm.gap), 0.0, 1.0))
    value = np.where(feasible, lower, np.inf)
    with np.errstate(divide="ignore"):  # V = 0 where there are no other tokens
        ratio = radii / value
    over_optimal = excess.over(excess.optimal)
    log_bound = _log_bound(setting, over_optimal, weights)
    infimum = over_optimal.infimum
    log_loss = over_optimal.value(weights)
    with np.errstate(over="ignore", invalid="ignore"):
        over_bound = np.where(np.isfinite(log_bound), np.expm1(log_loss - log_bound), np.inf)

    def shaped(array: np.ndarray) -> Any:
        return plain(array.reshape(batch))

    return ConstrainedLimit(
        status=plain_status(np.where(gap <= ALLOWED * tolerance(norm), "converged", "inaccurate").reshape(batch)),
        weights=of_batch if problem.has_queries else of_batch[..., 0],
        radius=shaped(radii),
        norm=norm,
        loss=shaped(infimum + np.exp(log_loss)),
        log_excess=shaped(log_excess),
        gap=shaped(gap),
        selected=selected,
        value=shaped(value),
        ratio=shaped(ratio),
        logit_gaps=gaps.reshape(*batch, *queries, -1),
        closed_form=_closed_form(excess, svm, ratio).reshape(*batch, *queries, -1),
        cap=shaped(1 / (1 + np.exp(-np.minimum(ratio, 700.0)))),
        lower_bound=shaped(infimum + np.where(np.isfinite(log_bound), np.exp(log_bound), 0.0)),
        log_bound=shaped(log_bound),
        excess_over_bound=shaped(over_bound),
    )


def _log_costs(excess: StackedExcess) -> np.ndarray:
    """Log c_it, c_it = |ℓ'(γ_iα)| (γ_iα − γ_it) share_i; −∞ where that is not positive."""
    slope = np.exp(excess.loss.log_slope(excess.own_scores)) * excess.share
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(excess.worse * slope[..., None], 0.0)))


def _closed_form(excess: StackedExcess, svm: Solution, ratio: np.ndarray) -> np.ndarray:
    """R/V + log(c/μ) − Σ μ log(c/μ) of the support tokens."""
    mu = np.where(np.isfinite(svm.dual), svm.dual, 0.0).reshape(excess.scores.shape)
    total = mu.sum(axis=(-2, -1), keepdims=True)
    mu = np.maximum(mu, 0.0) / np.where(total > 0, total, 1.0)
    support = mu > SUPPORT
    log_ratio = _log_costs(excess) - np.log(np.where(support, mu, 1.0))
    known = np.isfinite(log_ratio) | ~support
    mean = (mu * np.where(support & known, log_ratio, 0.0)).sum(axis=(-2, -1))
    usable = support & known.all(axis=(-2, -1), keepdims=True)
    return np.where(usable, ratio[:, None, None] + np.where(usable, log_ratio, 0.0) - mean[:, None, None], np.nan)


def _log_bound(setting: _Setting, excess: StackedExcess, weights: np.ndarray) -> np.ndarray:
    """Log of a lower bound of L − L* over the ball, from the minimum of log H and its Frank-Wolfe gap."""
    barrier = barrier_of(setting.norm)
    costs = _log_costs(excess)
    others = excess.allowed & (np.arange(costs.shape[-1]) != excess.reference[..., None])
    others &= (excess.share > 0)[..., None]
    tied = (others & ~np.isfinite(costs)).any(axis=(-2, -1)) | ~others.any(axis=(-2, -1))
    if barrier is None or tied.all():
        return np.full(len(weights), -np.inf)
    radii = setting.radii[:, None, None]
    log_sum = StackedLogSum(excess.keys * radii[..., None], excess.queries, excess.reference, costs)[~tied]
    begin = 0.9 * weights[~tied] / radii[~tied]
    found = minimise_stack(log_sum, begin, barrier, tolerance(setting.norm))
    # log H ≥ log H(W) + ⟨G, V − W⟩ ≥ log H(W) − ⟨G, W⟩ − N*(G) for all V in the unit ball
    slack = found.gap * barrier.norm.dual.values(log_sum.gradient(found.weights))
    low = log_sum.value(found.weights) - slack
    least = np.where(np.isfinite(costs), costs, np.inf)[~tied].min(axis=(-2, -1))
    bound = np.full(len(weights), -np.inf)
    bound[~tied] = low - np.logaddexp(0.0, low - least)
    return bound
