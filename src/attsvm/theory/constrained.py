"""The limits of training with decoupled weight decay: stationary points of the loss over a ball.

A step of length η in a norm N with decay λ moves W to (1 − ηλ) W + ηλ (−D/λ), where D maximises ⟨∇L, D⟩ over N(D) ≤ 1:
it is a step of the Frank-Wolfe method on N(W) ≤ 1/λ.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attsvm._utils.checks import as_floats, check_positive
from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, read_norm, written_norm
from attsvm.problem import Problem
from attsvm.regularization import (
    Excess,
    LogSum,
    Minima,
    barrier_of,
    minimise_in_ball,
    order_of,
    relative_gap,
    tolerance,
)
from attsvm.results import Result, per_trial, plain, plain_status, shared
from attsvm.theory.conditions import is_feasible
from attsvm.theory.decay_balls import DecaySetting, setting_of

ALLOWED = 10.0
"""A point counts as stationary if its gap is at most this many times the one that the search ends at."""
SUPPORT = 1e-7
"""The least share of a multiplier of a support token."""
WORTH = 1e-3, 0.5
"""The excess over the least c for which a bound of each query is worth the time, and for which it is the better one."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConstrainedLimit(Result):
    """A stationary point of min L(W) over N(W) ≤ R, and what is known about it.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    With several attention heads, ``weights``, ``selected``, ``logit_gaps`` and ``closed_form`` have their axis behind
    batch_shape, and so have ``value``, ``ratio`` and ``cap`` if each head has a ball of its own.

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
        The relative Frank-Wolfe gap 1 + ⟨∇L(W), W⟩/(R N*(∇L(W))): 0 at stationary points only. Of several balls the
        largest.
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
        1/(1 + exp(−R/V)): no weights of the ball give each selected token a larger probability. With m tokens of the
        selected key and m' of another, exp(−R/V) m'/m; the smallest of the support tokens counts.
    lower_bound : float, or ndarray, shape (*batch_shape,)
        A lower bound of the loss in the ball, up to rounding errors.
    log_bound : float, or ndarray, shape (*batch_shape,)
        The logarithm of this bound minus the loss of the optimal tokens alone; −∞ if optimal tokens are tied, or the
        norm has no barrier.
    excess_over_bound : float, or ndarray, shape (*batch_shape,)
        (L(W) − L*)/(bound − L*) − 1, L* the loss of the optimal tokens: a small number shows, up to rounding errors,
        that the point is nearly the global minimum in the ball. ∞ without a bound. It is at most about (L(W) − L*)/min
        c, c as in :func:`constrained_limit` and L(W) − L* = exp(``log_excess``) of the optimal tokens.

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
        given = as_floats("rates", rates)
        # λ = 1/R for W; the product of K and Q with N ≤ 1/λ has R = 1/λ²
        decay = np.asarray(self.radius)[..., None] ** (-0.5 if factors else -1.0)
        if given.ndim != 1:
            raise ProblemError(f"rates: expected shape (steps,), got {given.shape}")
        if not ((given >= 0) & (given * decay <= 1)).all():
            raise ProblemError(f"rates: expected numbers from 0 to 1/λ = {1 / decay.max():.3g}, got {given.max():.3g}")
        # N(W_k+1) ≤ (1 − ηλ) N(W_k) + η, so that 1 − λ N(W) falls at most by the factor 1 − ηλ
        reached: float | np.ndarray = plain(1 - np.prod(1 - given * decay, axis=-1))
        return reached

    def _summary(self) -> str:
        ratios = " ".join(f"{one:.3g}" for one in np.ravel(self.ratio))  # of each attention head
        return f"{self._batch_summary()}; R/V {ratios}, gap {np.max(self.gap):.1e}; {self.status}"

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
    together: bool = False,
) -> ConstrainedLimit:
    """Compute where training with decoupled weight decay ends: a stationary point of min L(W) over N(W) ≤ R.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Steps of unit length in N with decay λ are those of the Frank-Wolfe method on the ball of radius R = 1/λ. If their
    rates decay and add up to about 10/λ, they were measured to end at stationary points (``docs/notes/weight_decay.md``
    has the optimizers). There are several, about one for each selection; ``start`` decides which is found.

    With V the value of the Att-SVM, no weights of the ball have a logit gap above R/V. For large R the gaps of support
    tokens are R/V + log(c/μ) − Σ μ log(c/μ), where μ are the multipliers of the Att-SVM over their sum, and c_it =
    |ℓ'(γ_iα)| (γ_iα − γ_it)/n for scores γ. For the optimal tokens and any W, L(W) − L* ≥ H/(1 + H/min c) with H =
    Σ c exp(−gap); log H is convex, so its minimum over the ball bounds the global minimum of the loss from below. If
    the excess E = L(W) − L* of the point is 0.001 to 0.5 times min c, better weights give the token of query i a
    probability of at least 1 − E/min_t c, and Σ (1 − E/min_t c) c exp(−gap) is minimised instead.

    The scores of several attention heads are added up, so ℓ' is that of their sum. Steps of unit length in each head
    lead to a ball of its own for each head, N(W_h) ≤ R, and steps of unit length in all of them ``together`` to one.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes, and a head, or one for each attention head; without ``key_groups``.
    radius, decay : float, or array of shape (*batch_shape,)
        Exactly one of the two: R, or λ = 1/R. For factors, those of K and Q: the radius of the product is R².
    norm : str, float or Norm
        N, the norm of the steps. ℓ1, Frobenius, ℓ∞, spectral and nuclear are solved for all problems at once, other ℓp
        one by one. For any other norm with ``steepest`` a gap of 1e-6 takes seconds. Several attention heads take all
        but the other ℓp. "max over heads of N" is the default for them, and a sum of nuclear or ℓ1 norms ``together``.
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
    together : bool
        For several attention heads: one ball, of the norm of the block-diagonal matrix of all W_h, as of
        normalised gradient descent with one length for all heads and decay. For ℓ1, Frobenius, ℓ∞,
        spectral and nuclear; for ℓ∞ and spectral it is the same as a ball for each. On factors, ‖K‖² + ‖Q‖² ≤ 1/λ²
        bounds Σ_h ‖W_h‖_* by 1/(2λ²): give that radius with ``norm="nuclear"``.

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
    setting = setting_of(problem, radius, decay, norm, start, attention, loss, together=together)
    if epsilon is None:
        return _result(setting, setting.minimise())
    epsilon = check_positive("epsilon", epsilon)
    if setting.norm != Lp(np.inf):
        raise ProblemError(f'norm: expected "linf" with epsilon, which is that of AdamW, got {setting.norm.name}')
    return _result(setting, setting.minimise_with_epsilon(epsilon))


def _result(setting: DecaySetting, found: Minima) -> ConstrainedLimit:
    problem, batch, norm = setting.problem, setting.batch, setting.norm
    of_heads, weights = (*batch, *problem.heads_shape), found.weights
    queries = problem.query_shape[len(problem.batch_shape) :]
    excess = setting.excess.with_reference(setting.excess.selected(weights))
    joined, whole = setting.join_heads(excess, weights)
    selected = np.where(excess.share > 0, excess.reference, -1).reshape(*of_heads, *queries)
    svm = _AttSVM.of(selected, setting)
    over_optimal = joined.with_reference(joined.optimal)
    log_loss, infimum = over_optimal.value(whole), over_optimal.infimum
    log_bound = _log_bound(setting, weights, log_loss)
    with np.errstate(over="ignore", invalid="ignore"):
        # (L − L*)/(bound − L*) − 1, of numbers that may underflow
        over_bound = np.where(np.isfinite(log_bound), np.expm1(log_loss - log_bound), np.inf)

    def shaped(array: np.ndarray) -> Any:
        return plain(array.reshape(batch))

    def per_ball(array: np.ndarray) -> Any:
        return plain(array.reshape(of_heads if setting.balls > 1 else batch))

    def per_token(array: np.ndarray) -> np.ndarray:
        with_query_axis = array.reshape(*of_heads, *problem.canonical.active.shape[-2:], -1)
        return problem.copies.of_first(with_query_axis).reshape(*of_heads, *queries, -1)

    core = weights.shape[1:] if problem.has_queries else weights.shape[1:2]
    return ConstrainedLimit(
        status=plain_status(np.where(found.gap <= ALLOWED * tolerance(norm), "converged", "inaccurate").reshape(batch)),
        weights=weights.reshape(*of_heads, *core),
        radius=shaped(setting.radii),
        norm=norm,
        loss=shaped(infimum + np.exp(log_loss)),
        log_excess=shaped(joined.value(whole)),
        gap=shaped(found.gap),
        selected=selected,
        value=per_ball(svm.value),
        ratio=per_ball(svm.ratio),
        logit_gaps=per_token(np.where(excess.allowed, excess.gaps(weights), np.nan)),
        closed_form=per_token(_closed_form(_log_costs(joined) + joined.offsets_from_own, svm)),
        # 1 + exp(−700) is 1 to rounding
        cap=per_ball(1 / (1 + np.exp(_least_offset(joined, svm) - np.minimum(svm.ratio, 700.0)))),
        lower_bound=shaped(infimum + np.where(np.isfinite(log_bound), np.exp(log_bound), 0.0)),
        log_bound=shaped(log_bound),
        excess_over_bound=shaped(over_bound),
    )


class _AttSVM(NamedTuple):
    """The Att-SVM of the selected tokens in each ball: N models, and G balls in each."""

    value: Float[np.ndarray, "N G"]
    ratio: Float[np.ndarray, "N G"]
    multipliers: Float[np.ndarray, "N G m"]  # over their sum

    @classmethod
    def of(cls, selected: np.ndarray, setting: DecaySetting) -> "_AttSVM":
        solution = setting.solve_svm(selected)
        # the value minus its gap is a lower bound of V, so that no cap is too low
        lower = np.ravel(solution.value) * (1 - np.clip(np.ravel(solution.gap), 0.0, 1.0))
        value = np.where(is_feasible(solution).reshape(-1), lower, np.inf).reshape(len(setting.radii), -1)
        mu = np.where(np.isfinite(solution.dual), solution.dual, 0.0).reshape(*value.shape, -1)
        mu = np.maximum(mu, 0.0)
        if setting.balls < setting.heads:
            # of all heads in one ball: V = ‖(V_h)‖_p, and the multipliers of a head are (V_h/V)^(p − 1) times its own
            with np.errstate(invalid="ignore"):  # NaN where some V_h are infinite
                order = order_of(setting.norm)
                whole = np.sum(value**order, axis=1, keepdims=True) ** (1 / order)
                mu = mu * np.nan_to_num((value / np.where(whole > 0, whole, 1.0)) ** (order - 1))[..., None]
            value, mu = whole, mu.reshape(len(mu), 1, -1)
        total = mu.sum(axis=-1, keepdims=True)
        with np.errstate(divide="ignore"):  # V = 0 where there are no other tokens
            return cls(value, setting.radii[:, None] / value, mu / np.where(total > 0, total, 1.0))


def _least_offset(excess: Excess, svm: _AttSVM) -> Float[np.ndarray, "N G"]:
    """The least log(m_t/m_α) of a support token: one of them has a gap of at most R/V under weights of the ball."""
    mu = svm.multipliers
    least = np.min(np.where(mu > 0, excess.offsets_from_own.reshape(mu.shape), np.inf), axis=-1)
    return np.where(np.isfinite(least), least, 0.0)


def _log_costs(excess: Excess) -> np.ndarray:
    """Log c_it, c_it = |ℓ'(m_i)| (γ_iα − γ_it) share_i, m_i the margin of α; −∞ where that is not positive."""
    slope = np.exp(excess.loss.log_slope(excess.margins)) * excess.share
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(excess.worse * slope[..., None], 0.0)))


def _closed_form(log_costs: np.ndarray, svm: _AttSVM) -> np.ndarray:
    """R/V + log(c/μ) − Σ μ log(c/μ) of the support tokens."""
    mu, support = svm.multipliers, svm.multipliers > SUPPORT
    # for R → ∞ c exp(−y) is proportional to μ, and Σ μ y = R/V, so that y = R/V + log(c/μ) − Σ μ log(c/μ)
    log_ratio = log_costs.reshape(mu.shape) - np.log(np.where(support, mu, 1.0))
    known = np.isfinite(log_ratio) | ~support
    mean = (mu * np.where(support & known, log_ratio, 0.0)).sum(axis=-1, keepdims=True)
    usable = support & known.all(axis=-1, keepdims=True)
    return np.where(usable, svm.ratio[..., None] + np.where(usable, log_ratio, 0.0) - mean, np.nan)


def _log_bound(setting: DecaySetting, weights: np.ndarray, log_loss: np.ndarray) -> np.ndarray:
    """Log of a lower bound of L − L* over the balls, from the minimum of log H and its Frank-Wolfe gap.

    ``log_loss``: log(L − L*) at the weights.
    """
    joined, whole = setting.join_heads(setting.excess, weights)
    joined = joined.with_reference(joined.optimal)
    costs = _log_costs(joined)
    others = joined.allowed & (np.arange(costs.shape[-1]) != joined.reference[..., None])
    others &= (joined.share > 0)[..., None]
    tied = (others & ~np.isfinite(costs)).any(axis=(-2, -1)) | ~others.any(axis=(-2, -1))
    bound = np.full(len(costs), -np.inf)
    if barrier_of(setting.norm) is None or tied.all():
        return bound
    of_query = np.where(np.isfinite(costs), costs, np.inf).min(axis=-1, keepdims=True)
    least = of_query.min(axis=(-2, -1))
    # weights with at most the excess E of these give the selected token of a query the probability 1 − E/min_t c at
    # least, so that the excess is at least Σ (1 − E/min_t c) c exp(−gap)
    lost = np.exp(np.minimum(log_loss - least, 0.0))
    by_query = (lost > WORTH[0]) & (lost < WORTH[1])
    shares = np.exp(np.where(by_query, log_loss, -np.inf)[:, None, None] - of_query)
    costs = costs + joined.offsets_from_own + np.log1p(-shares)
    # H is a sum over the balls, each with its own weights
    if setting.balls > 1:
        joined, whole = setting.excess.with_reference(setting.excess.optimal), weights
        costs = costs.reshape(joined.scores.shape)
    own = np.repeat(~tied, setting.balls) & np.isfinite(costs).any(axis=(-2, -1))
    radii = np.repeat(setting.radii, setting.balls)[:, None, None]
    log_sum = LogSum(joined.keys * radii[..., None], joined.queries, joined.reference, costs)[own]
    found = _minimum(log_sum, whole[own] / radii[own], setting.norm)
    # log H ≥ log H(W) + ⟨G, V − W⟩ ≥ log H(W) − ⟨G, W⟩ − N*(G) for all V in the unit ball
    slack = found.gap * setting.norm.dual.values(log_sum.gradient(found.weights))
    lows = np.full(len(own), -np.inf)
    lows[own] = log_sum.value(found.weights) - slack
    low = np.logaddexp.reduce(lows.reshape(len(tied), -1), axis=1)[~tied]
    bound[~tied] = low - np.where(by_query[~tied], 0.0, np.logaddexp(0.0, low - least[~tied]))
    return bound


def _minimum(log_sum: LogSum, near: np.ndarray, norm: Norm) -> Minima:
    """The minimum over the unit ball, near weights that are it where attention is saturated."""
    # H is convex, so that any stationary point is its minimum
    gap = relative_gap(norm, near, log_sum.gradient(near))
    weights, left = near.copy(), np.flatnonzero(~(gap <= tolerance(norm)))
    if len(left):
        found = minimise_in_ball(log_sum[left], norm, np.ones(len(left)), near[left])
        weights[left], gap[left] = found.weights, found.gap
    return Minima(weights, gap, np.zeros(len(gap), dtype=int))
