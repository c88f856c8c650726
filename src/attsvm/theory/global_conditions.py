"""Conditions under which gradient descent converges to the optimal tokens."""

from typing import Any

import numpy as np
import optax

from attsvm._utils.checks import check_softmax
from attsvm.errors import ProblemError
from attsvm.losses import OutputLoss, parse_margin_loss
from attsvm.measures import attention_of, check_weights
from attsvm.norms import Lp
from attsvm.optimizers import Steps, optimizer_of, parse_optimizer
from attsvm.problem import Problem, check_is_problem
from attsvm.regularization import scalar_of
from attsvm.results import repeated
from attsvm.selection import optimal_tokens, selection_sets
from attsvm.svm import solve_svm
from attsvm.theory.conditions import Conditions, Hypothesis, conditions, is_feasible
from attsvm.theory.kinds import trial_axes
from attsvm.theory.loss_level import LossLevel, descent_direction
from attsvm.theory.smoothness import LossName, extent, lipschitz_of, scores_of_queries
from attsvm.training import Run

TIED = 1e-12
"""Scores are equal if they differ by less than this part of the largest."""

AGREEMENT = 1e-9
"""The loss of a run may differ by this, relative to the largest, from that computed from its weights."""


def global_convergence_conditions(
    problem: Problem,
    init: Any = None,
    loss: LossName = "logistic",
    *,
    optimizer: str | optax.GradientTransformation | None = None,
) -> Conditions:
    r"""Compute hypotheses under which gradient descent on W or p converges to the optimal tokens.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes, and a head, which is not trained.
    init : array, shape (*trials, *batch, d_k, d_q), or (*trials, *batch, d_k) for a prompt, Solution or Run, optional
        The initial weights; zeros by default. A run gives its initial weights and its optimiser. It must be a run of
        all steps on the full gradient, without penalty and with the ``loss`` that is given.
    loss : str, Loss or callable
        As for :func:`attsvm.train`. Slopes of a loss that is not built in are compared at 257 points only.
    optimizer : optimizer, optional
        As for :func:`attsvm.train`. By default that of the run; otherwise steps are taken to be short enough, and
        ``largest_rate`` and ``largest_step`` say what that means.

    Returns
    -------
    Conditions
        With the axes of the trials, then those of the problem. If all hypotheses hold, every query ends at its optimal
        token, by the argument below. They are compared in floating point. The names of the hypotheses and of their
        numbers:

        - ``feasible``: some weights select the optimal tokens.
        - ``score_gap``: the smallest difference of the best and the second score of a query is positive.
        - ``slope``: the smallest −ℓ' over the scores of the data is positive, so the loss decreases.
        - ``excess_loss``: Σ_i ℓ(f_i) − ℓ(γ_i,opt) at the start over min_i ℓ(γ_i,second) − ℓ(γ_i,opt) is below 1. Then
          no weights of this loss or a lower one let a query prefer its second token.
        - ``step``: the learning rate of the optimiser over the largest one is at most 1. It is 0 if no optimiser is
          given, ∞ if its steps are not of constant size along the negative gradient.

        Further numbers:

        - ``lipschitz``: the constant L of :func:`attsvm.theory.lipschitz_constant`.
        - ``largest_rate``, ``largest_step``: 1/L, the largest learning rate of gradient descent, and the longest step
          of normalised gradient descent. The latter depends on the start, and is 0 where ``excess_loss`` is not
          below 1.
        - ``favourable``: feasible, and either equal scores or a positive gradient margin. With a positive gradient
          margin and a start that is large enough the optimal tokens are reached, see ``start_radius``; equal scores
          suffice for one query.
        - ``equal_scores``: the tokens that are not optimal have equal scores, in each query.
        - ``gradient_margin``: min_it −⟨(x_i,opt − x_it) z_i', ∇L(W_0)⟩ divided by the lengths of both, in [−1, 1]. If
          it is positive, the first step favours the optimal tokens.
        - ``init_norm``: ‖W_0‖.
        - ``descent``: −∇L(W_0)/‖∇L(W_0)‖, of the shape of the weights; zero where the gradient is zero.
        - ``start_radius``: the starting size: from R · ``descent`` the excess loss is below 1 for every R ≥
          ``start_radius``. ∞ if the gradient margin is not positive.

    Raises
    ------
    ProblemError
        If the problem has no labels, more than two classes or no head, or an argument does not fit.

    See Also
    --------
    attsvm.theory.Conditions : The result.
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
    a_it for every other token t: every query selects its optimal token. The same holds for normalised steps that are
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
    Conditions(all hypotheses hold)
    """
    check_is_problem(problem)
    problem, parsed = parse_margin_loss(problem, loss)
    gamma = scores_of_queries(problem)
    start, optimizer = given_start(problem, init, parsed, optimizer)
    axes = 2 if problem.has_queries else 1
    trials = trial_axes(problem, start, "init")

    best = optimal_tokens(problem)
    solution = solve_svm(problem, best)
    chosen = selection_sets(problem, best)
    allowed = problem.canonical.allowed
    rest = allowed & ~chosen
    feasible, equal = is_feasible(solution), _equal_scores(gamma, rest, allowed)
    found = extent(problem, parsed)
    # E < min_i ℓ(γ_i,second) − ℓ(γ_i,opt) keeps f_i above the second score of each query
    level = LossLevel(problem, parsed, gamma, rest, found)
    descent = descent_direction(problem, start, parsed)
    margin = _gradient_margin(problem, descent, chosen & problem.copies.distinct, rest)

    # the loss does not increase for rates up to 1/L, nor for normalised steps up to the largest one
    excess = level.relative(level.excess(start))
    lipschitz = lipschitz_of(problem, found)
    largest_rate = np.divide(1.0, lipschitz, out=np.full(lipschitz.shape, np.inf), where=lipschitz > 0)
    largest_step = level.longest_step(level.excess(start), np.asarray(solution.margin))
    step = np.broadcast_to(_step(optimizer, largest_rate, largest_step), excess.shape)
    assumed = " (assumed: no optimiser is given)" if optimizer is None else ""
    gap, slope = level.score_gap, np.min(np.where(found.compared, found.least_slope, np.inf), axis=(-2, -1))

    def spread(of_problems: np.ndarray) -> np.ndarray:
        return np.broadcast_to(of_problems, trials + of_problems.shape)

    return conditions(
        (
            Hypothesis("feasible", "the optimal tokens can be separated from the others", feasible),
            Hypothesis("score_gap", "the gap of the best scores is positive", gap > 0, gap),
            Hypothesis("slope", "the smallest slope of the loss is positive", slope > 0, slope),
            Hypothesis("excess_loss", "the excess loss at the start is below 1", excess < 1, excess),
            Hypothesis(
                "step", f"the step is at most the largest step{assumed}", step <= 1, step, "step over the largest"
            ),
        ),
        {
            "lipschitz": spread(lipschitz),
            "largest_rate": spread(largest_rate),
            "largest_step": largest_step,
            # what the papers assume: equal scores, or a first gradient that favours the optimal tokens
            "favourable": spread(feasible == 1) & (spread(equal) | (margin > 0)),
            "equal_scores": spread(equal),
            "gradient_margin": margin,
            "init_norm": Lp(2.0).values(start, axes),
            "descent": descent,
            # the start −R∇L(W_0)/‖∇L(W_0)‖ of the papers, with the least R that is large enough
            "start_radius": level.radius_along(descent, spread(feasible == 1) & (margin > 0)),
        },
        repeated(solution, trials),
    )


def _step(
    optimizer: optax.GradientTransformation | None, largest_rate: np.ndarray, largest_step: np.ndarray
) -> np.ndarray:
    """The rate of an optimiser over the largest one; 0 without an optimiser."""
    if optimizer is None:
        return np.zeros(())
    steps: Steps = getattr(optimizer, "steps", Steps())
    # the proof is for steps of constant rate or length along −∇L, without weight decay
    decays = bool(dict(getattr(optimizer, "numbers", {})).get("weight_decay"))
    other = steps.kind != "gradient" or steps.normalised == "average" or steps.momentum != 0
    if decays or other or steps.constant is None:
        return np.full((), np.inf)
    # a normalised step has a length, a plain one a rate
    largest = largest_rate if steps.normalised == "no" else largest_step
    return np.asarray(np.divide(steps.constant, largest, out=np.full(largest.shape, np.inf), where=largest > 0))


def _equal_scores(gamma: np.ndarray, rest: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Whether the scores of the tokens in ``rest`` are equal, in all queries of a problem."""
    # the scores of other tokens, and the largest score, which is the unit of a tie
    highest = np.max(np.where(rest, gamma, -np.inf), axis=-1)
    lowest = np.min(np.where(rest, gamma, np.inf), axis=-1)
    largest = np.max(np.where(allowed, np.abs(gamma), 0.0), axis=-1)
    equal = ~rest.any(axis=-1) | (np.where(rest.any(axis=-1), highest - lowest, 0.0) <= TIED * largest)
    return np.asarray(equal.all(axis=(-2, -1)))


def _gradient_margin(problem: Problem, descent: np.ndarray, chosen: np.ndarray, rest: np.ndarray) -> np.ndarray:
    keys, queries = problem.canonical.keys, problem.canonical.queries
    matrix = descent if problem.has_queries else descent[..., None]
    # k_α of each query, one of its copies
    kept = np.einsum("...qt,...tk->...qk", chosen.astype(np.float64), keys)
    away = kept[..., None, :] - keys[..., None, :, :]
    # (k_α − k_t)'D z over its largest value for a D of length 1
    downhill = np.einsum("...nqtk,...ke,...nqe->...nqt", away, matrix, queries)
    size = np.linalg.norm(away, axis=-1) * np.linalg.norm(queries, axis=-1)[..., None]
    # a token equal to the optimal one is neither favoured nor disfavoured
    relative = np.divide(downhill, size, out=np.zeros(downhill.shape), where=np.broadcast_to(size > 0, downhill.shape))
    return np.asarray(np.min(np.where(rest, relative, 1.0), axis=(-3, -2, -1)))


def given_start(
    problem: Problem, init: Any, loss: OutputLoss, optimizer: str | optax.GradientTransformation | None
) -> tuple[np.ndarray, optax.GradientTransformation | None]:
    """The initial weights, and the optimiser; zeros and None if they are not given.

    Raises ProblemError if they do not fit, or the run is of another objective.
    """
    given = None if optimizer is None else parse_optimizer(optimizer)
    if isinstance(init, Run):
        check_softmax(init, "init")
        weights = _first_weights(problem, init, loss)
        return weights, optimizer_of(init) if given is None else given
    core = problem.weights_shape
    return np.zeros(problem.batch_shape + core) if init is None else check_weights(problem, init, name="init"), given


def _first_weights(problem: Problem, run: Run, loss: OutputLoss) -> np.ndarray:
    if not {"W", "p"} & set(run.parameters):
        raise ProblemError(f"init: expected a run of W or p, got one of {run.attention} attention")
    if run.history["steps"][0] != 0:
        raise ProblemError(f"init: expected a run whose history starts at step 0, got {run.history['steps'][0]}")
    # the first and the last loss tell whether the run had this objective
    for record in (0, -1):
        weights = check_weights(problem, run.history["weights"][record])
        expected, found = _mean_loss(problem, weights, loss), run.history["loss"][record]
        if (
            run.history["log_scale"][record].any()
            or np.abs(expected - found).max() > AGREEMENT * np.abs(expected).max()
        ):
            raise ProblemError(
                f"init: expected a run on this problem with the {loss.name} loss, a fixed prediction head and no "
                "penalty, got one with other losses"
            )
    return check_weights(problem, run.history["weights"][0])


def _mean_loss(problem: Problem, weights: np.ndarray, loss: OutputLoss) -> np.ndarray:
    gamma, active = scores_of_queries(problem), problem.canonical.active
    # f_i = Σ a_it γ_it, and L = (1/n) Σ ℓ(f_i) over the queries that are not padded
    outputs = np.sum(attention_of(problem, weights) * np.where(np.isfinite(gamma), gamma, 0.0), axis=-1)
    total = np.sum(np.where(active, scalar_of(loss).value(outputs), 0.0), axis=(-2, -1))
    return np.asarray(total / active.sum(axis=(-2, -1)))
