"""Conditions under which gradient descent converges to the optimal tokens."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import optax

from attsvm.errors import ProblemError
from attsvm.losses import OutputLoss, parse_loss
from attsvm.measures import attention_of, check_weights
from attsvm.norms import Lp
from attsvm.optimizers import parse_optimizer
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Batched, Status, per_trial, plain, repeated
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm
from attsvm.theory.feasibility import is_feasible
from attsvm.theory.hypotheses import Hypothesis
from attsvm.theory.kinds import trial_axes
from attsvm.theory.loss_level import Level, descent_direction
from attsvm.theory.smoothness import LossName, extent, lipschitz_of, loss_values, scores_of_queries
from attsvm.training import Run
from attsvm.training.run import optimizer_of

TIED = 1e-12
"""Scores are equal if they differ by less than this part of the largest."""

AGREEMENT = 1e-9
"""The loss of a run may differ by this, relative to the largest, from that computed from its weights."""


@dataclass(frozen=True, eq=False, repr=False)
class GlobalConditions(Batched):
    """The hypotheses under which gradient descent converges to the optimal tokens, with their numbers.

    Attributes
    ----------
    holds : bool, or bool ndarray, shape (*batch_shape,)
        Whether all of :attr:`hypotheses` hold. Then every query ends at its optimal token.
    feasible : bool, or bool ndarray, shape (*batch_shape,)
        Whether some weights select the optimal tokens.
    score_gap : float, or ndarray, shape (*batch_shape,)
        The smallest difference of the best and the second score of a query. It must be positive.
    slope : float, or ndarray, shape (*batch_shape,)
        The smallest −ℓ' over the scores of the data. It must be positive: the loss decreases.
    excess_loss : float, or ndarray, shape (*batch_shape,)
        Σ_i ℓ(f_i) − ℓ(γ_i,opt) at the start over min_i ℓ(γ_i,second) − ℓ(γ_i,opt). It must be below 1: then no
        weights of this loss or a lower one let a query prefer its second token.
    lipschitz : float, or ndarray, shape (*batch_shape,)
        The constant L of :func:`attsvm.theory.lipschitz_constant`.
    largest_rate, largest_step : float, or ndarray, shape (*batch_shape,)
        1/L, the largest learning rate of gradient descent, and the longest step of normalized gradient descent. The
        latter depends on the start, and is 0 where ``excess_loss`` is not below 1.
    step : float, or ndarray, shape (*batch_shape,)
        The learning rate of the optimizer over the largest one. It must be at most 1. 0 if no optimizer is given,
        ∞ if its steps are not of constant size along the negative gradient.
    favourable : bool, or bool ndarray, shape (*batch_shape,)
        Feasible, and either equal scores or a positive gradient margin. With a positive gradient margin and a start
        that is large enough the optimal tokens are reached, see ``start_radius``; equal scores suffice for one query.
    equal_scores : bool, or bool ndarray, shape (*batch_shape,)
        Whether the tokens that are not optimal have equal scores, in each query.
    gradient_margin : float, or ndarray, shape (*batch_shape,)
        min_it −⟨(x_i,opt − x_it) z_i', ∇L(W_0)⟩ divided by the lengths of both, in [−1, 1]. If it is positive, the
        first step favours the optimal tokens.
    init_norm : float, or ndarray, shape (*batch_shape,)
        ‖W_0‖.
    descent : ndarray, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k)
        −∇L(W_0)/‖∇L(W_0)‖; zero where the gradient is zero.
    start_radius : float, or ndarray, shape (*batch_shape,)
        The starting size: from R · ``descent`` the excess loss is below 1 for every R ≥ ``start_radius``. ∞ if the
        gradient margin is not positive.
    solution : Solution
        The certificate of ``feasible``.

    See Also
    --------
    attsvm.theory.global_convergence_conditions : Makes one.
    attsvm.theory.Hypothesis : One hypothesis, with its number.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> found = attsvm.theory.global_convergence_conditions(problem)
    >>> found.feasible, found.favourable
    (True, False)
    """

    kind: ClassVar[str] = "global conditions"
    schema: ClassVar[int] = 2

    holds: bool | np.ndarray = per_trial()
    feasible: bool | np.ndarray = per_trial()
    score_gap: float | np.ndarray = per_trial()
    slope: float | np.ndarray = per_trial()
    excess_loss: float | np.ndarray = per_trial()
    lipschitz: float | np.ndarray = per_trial()
    largest_rate: float | np.ndarray = per_trial()
    largest_step: float | np.ndarray = per_trial()
    step: float | np.ndarray = per_trial()
    favourable: bool | np.ndarray = per_trial()
    equal_scores: bool | np.ndarray = per_trial()
    gradient_margin: float | np.ndarray = per_trial()
    init_norm: float | np.ndarray = per_trial()
    descent: np.ndarray = per_trial()
    start_radius: float | np.ndarray = per_trial()
    solution: Solution = per_trial()

    @property
    def status(self) -> Status | np.ndarray:
        """The status of the Att-SVM."""
        status: Status | np.ndarray = self.solution.status
        return status

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The hypotheses of the theorem, in the order in which they are to be checked."""
        return _hypotheses(self.feasible, self.score_gap, self.slope, self.excess_loss, self.step)

    def _summary(self) -> str:
        broken = "; ".join(str(one) for one in self.hypotheses if not one.holds)
        return "all hypotheses hold" if self.holds else broken

    def _batch_summary(self) -> str:
        return "; ".join(str(one) for one in self.hypotheses)


def _hypotheses(feasible: Any, score_gap: Any, slope: Any, excess_loss: Any, step: Any) -> tuple[Hypothesis, ...]:
    return (
        Hypothesis("the optimal tokens can be separated from the others", feasible),
        Hypothesis("the gap of the best scores is positive", score_gap > 0, score_gap),
        Hypothesis("the smallest slope of the loss is positive", slope > 0, slope),
        Hypothesis("the excess loss at the start is below 1", excess_loss < 1, excess_loss),
        Hypothesis("the step is at most the largest step", step <= 1, step, "step over the largest"),
    )


def global_convergence_conditions(
    problem: Problem,
    init: Any = None,
    loss: LossName = "logistic",
    *,
    optimizer: str | optax.GradientTransformation | None = None,
) -> GlobalConditions:
    r"""Compute every hypothesis under which gradient descent on W or p must converge to the optimal tokens.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and a head, which is not trained.
    init : array, shape (*trials, *batch, d_k, d_q), or (*trials, *batch, d_k) for a prompt, Solution or Run, optional
        The initial weights; zeros by default. A run gives its initial weights and its optimizer. It must be a run of
        all steps on the full gradient, without penalty and with the ``loss`` that is given.
    loss : str, Loss or callable
        As for :func:`attsvm.train`.
    optimizer : optimizer, optional
        As for :func:`attsvm.train`. By default that of the run; otherwise steps are taken to be short enough, and
        ``largest_rate`` and ``largest_step`` say what that means.

    Returns
    -------
    GlobalConditions
        With the axes of the trials, then those of the problem.

    Raises
    ------
    ProblemError
        If the problem has no labels ±1 or no head, or an argument does not fit.

    See Also
    --------
    attsvm.theory.GlobalConditions : The result.
    attsvm.theory.lipschitz_constant, attsvm.theory.local_convergence_conditions

    Notes
    -----
    Write f_i for the output of query i times its label, and call the sum of ℓ(f_i) − ℓ(γ_i,opt) the excess loss E. If
    the loss decreases, each term is at most E. So if E < ℓ(γ_i,second) − ℓ(γ_i,opt) for all i, then f_i > γ_i,second.
    Steps η ≤ 1/L do not increase E, therefore this stays true for ever. For weights V that separate the optimal tokens,
    with margins m_it > 0,

    .. math:: \langle -\nabla L(W), V\rangle
              = \frac1n\sum_i |\ell'(f_i)| \sum_{t \ne opt} a_{it}\,(f_i - \gamma_{it})\, m_{it},

    and each term is positive. So there is no stationary point on the way. The gradient tends to zero, hence so does
    a_it for every other token t: every query selects its optimal token. The same holds for normalized steps that are
    so short that the loss decreases; ``largest_step`` compares the slope with the curvature along a step, which is
    bounded by the excess loss as well.

    The papers assume instead that the first gradient favours the optimal tokens, and start at −R ∇L(0)/‖∇L(0)‖ with an
    R that is large enough. ``start_radius`` is such an R. With equal scores of all other tokens and a single query the
    excess loss is always below 1, and every start converges; with several queries equal scores are not sufficient.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Tarzanagh, Li,
    Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: the theorems on global convergence. The
    constants are not from the papers, which state that they exist.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 8, seed=4)
    >>> at_zero = attsvm.theory.global_convergence_conditions(problem)
    >>> at_zero.holds, at_zero.favourable
    (False, True)
    >>> rule = attsvm.optimizers.gradient_descent(at_zero.largest_rate)
    >>> start = 1.01 * at_zero.start_radius * at_zero.descent
    >>> attsvm.theory.global_convergence_conditions(problem, start, optimizer=rule)
    GlobalConditions(all hypotheses hold)
    """
    check_is_problem(problem)
    parsed = parse_loss(loss, problem.num_classes)
    gamma = scores_of_queries(problem)
    start, optimizer = given_start(problem, init, parsed, optimizer)
    axes = 2 if problem.has_queries else 1
    trials = trial_axes(problem, start, "init")

    best = optimal_tokens(problem)
    solution = solve_svm(problem, best)
    chosen = (best if problem.has_query_axis else best[..., None])[..., None] == np.arange(problem.num_tokens)
    allowed = problem.canonical.allowed
    rest = allowed & ~chosen
    feasible, equal = is_feasible(solution), _equal_scores(gamma, rest, allowed)
    found = extent(problem, parsed)
    level = Level(problem, parsed, gamma, rest, found)
    descent = descent_direction(problem, start, parsed)
    margin = _gradient_margin(problem, descent, chosen, rest)

    excess = level.relative(level.excess(start))
    lipschitz = lipschitz_of(problem, found)
    largest_rate = np.divide(1.0, lipschitz, out=np.full(lipschitz.shape, np.inf), where=lipschitz > 0)
    largest_step = level.longest_step(level.excess(start), np.asarray(solution.margin))
    step = np.broadcast_to(_step(optimizer, largest_rate, largest_step), excess.shape)
    gap, slope = level.score_gap, np.min(np.where(found.compared, found.least_slope, np.inf), axis=(-2, -1))

    def spread(of_problem: np.ndarray) -> np.ndarray:
        return np.broadcast_to(of_problem, trials + of_problem.shape)

    numbers = (spread(feasible), spread(gap), spread(slope), excess, step)
    return GlobalConditions(
        holds=plain(np.all(np.stack([np.asarray(one.holds) for one in _hypotheses(*numbers)]), axis=0)),
        feasible=plain(numbers[0]),
        score_gap=plain(numbers[1]),
        slope=plain(numbers[2]),
        excess_loss=plain(excess),
        lipschitz=plain(spread(lipschitz)),
        largest_rate=plain(spread(largest_rate)),
        largest_step=plain(largest_step),
        step=plain(step),
        favourable=plain(spread(feasible) & (spread(equal) | (margin > 0))),
        equal_scores=plain(spread(equal)),
        gradient_margin=plain(margin),
        init_norm=plain(Lp(2.0).values(start, axes)),
        descent=descent,
        start_radius=plain(level.radius_along(descent, spread(feasible) & (margin > 0))),
        solution=repeated(solution, trials),
    )


def _step(
    optimizer: optax.GradientTransformation | None, largest_rate: np.ndarray, largest_step: np.ndarray
) -> np.ndarray:
    """The rate of an optimizer over the largest one; 0 without an optimizer."""
    if optimizer is None:
        return np.zeros(())
    made = getattr(optimizer, "gradient_step", None)
    if made is None:
        return np.full((), np.inf)
    largest = largest_step if made.normalized else largest_rate
    return np.asarray(np.divide(made.rate, largest, out=np.full(largest.shape, np.inf), where=largest > 0))


def _equal_scores(gamma: np.ndarray, rest: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Whether the scores of the tokens in ``rest`` are equal, in all queries of a problem."""
    highest = np.max(np.where(rest, gamma, -np.inf), axis=-1)
    lowest = np.min(np.where(rest, gamma, np.inf), axis=-1)
    largest = np.max(np.where(allowed, np.abs(gamma), 0.0), axis=-1)
    equal = ~rest.any(axis=-1) | (np.where(rest.any(axis=-1), highest - lowest, 0.0) <= TIED * largest)
    return np.asarray(equal.all(axis=(-2, -1)))


def _gradient_margin(problem: Problem, descent: np.ndarray, chosen: np.ndarray, rest: np.ndarray) -> np.ndarray:
    keys, queries = problem.canonical.keys, problem.canonical.queries
    matrix = descent if problem.has_queries else descent[..., None]
    kept = np.einsum("...qt,...tk->...qk", chosen.astype(np.float64), keys)
    away = kept[..., None, :] - keys[..., None, :, :]
    downhill = np.einsum("...nqtk,...ke,...nqe->...nqt", away, matrix, queries)
    size = np.linalg.norm(away, axis=-1) * np.linalg.norm(queries, axis=-1)[..., None]
    # a token equal to the optimal one is neither favoured nor disfavoured
    relative = np.divide(downhill, size, out=np.zeros(downhill.shape), where=np.broadcast_to(size > 0, downhill.shape))
    return np.asarray(np.min(np.where(rest, relative, 1.0), axis=(-3, -2, -1)))


def given_start(
    problem: Problem, init: Any, loss: OutputLoss, optimizer: str | optax.GradientTransformation | None
) -> tuple[np.ndarray, optax.GradientTransformation | None]:
    """The initial weights, and the optimizer; zeros and None if they are not given.

    Raises ProblemError if they do not fit, or the run is of another objective.
    """
    given = None if optimizer is None else parse_optimizer(optimizer)
    if isinstance(init, Run):
        weights = _first_weights(problem, init, loss)
        return weights, optimizer_of(init) if given is None else given
    core = (problem.key_dim, problem.query_dim) if problem.has_queries else (problem.key_dim,)
    return np.zeros(problem.batch_shape + core) if init is None else check_weights(problem, init), given


def _first_weights(problem: Problem, run: Run, loss: OutputLoss) -> np.ndarray:
    if not {"W", "p"} & set(run.parameters):
        raise ProblemError(f"init: expected a run of W or p, got one of {run.attention} attention")
    if run.history["steps"][0] != 0:
        raise ProblemError(f"init: expected a run whose history starts at step 0, got {run.history['steps'][0]}")
    for record in (0, -1):
        weights = check_weights(problem, run.history["weights"][record])
        expected, found = _mean_loss(problem, weights, loss), run.history["loss"][record]
        if (
            run.history["log_scale"][record].any()
            or np.abs(expected - found).max() > AGREEMENT * np.abs(expected).max()
        ):
            raise ProblemError(
                f"init: expected a run of the {loss.name} loss of this problem, without penalty and with the head "
                "fixed, got one with other losses"
            )
    return check_weights(problem, run.history["weights"][0])


def _mean_loss(problem: Problem, weights: np.ndarray, loss: OutputLoss) -> np.ndarray:
    gamma, active = scores_of_queries(problem), problem.canonical.active
    outputs = np.sum(attention_of(problem, weights) * np.where(np.isfinite(gamma), gamma, 0.0), axis=-1)
    total = np.sum(np.where(active, loss_values(loss, outputs), 0.0), axis=(-2, -1))
    return np.asarray(total / active.sum(axis=(-2, -1)))
