"""The hypotheses of the theorems on the direction of a run, checked on the run.

Theorems are known for gradient descent on W or p with a small constant learning rate, for ℓp mirror descent likewise,
and for gradient descent on W with the token loss. Of keys and queries a theorem is known for gradient flow alone.
``normalised.py`` has the theorem on normalised steps.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from attsvm.measures import token_logits
from attsvm.norms import Norm, Rotary, SumOfHeads
from attsvm.optimizers import Limit, Steps
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.selection import better_support_tokens, scores
from attsvm.svm import Solution
from attsvm.theory.conditions import Hypothesis, at_most, is_feasible, worst_case
from attsvm.theory.cones import best_cone
from attsvm.theory.smoothness import SAMPLES, derivatives, diameters, lipschitz_constant
from attsvm.training import Run

# the papers, as sources of theorems
TOKEN_SELECTION = "Tarzanagh, Li, Zhang and Oymak (2023), Max-Margin Token Selection in Attention Mechanism"
TRANSFORMERS = "Tarzanagh, Li, Thrampoulidis and Oymak (2023), Transformers as Support Vector Machines"
MIRROR_DESCENT = "Julistiono, Tarzanagh and Azizan (2025), Optimizing Attention with Mirror Descent"
GRADIENT_FLOW = (
    "Sheen, Chen, Wang and Zhou (2024), Implicit Regularization of Gradient Flow on One-Layer Softmax Attention"
)
NEXT_TOKEN = "Li, Huang, Ildiz, Rawat and Oymak (2024), Mechanics of Next Token Prediction with Self-Attention"

BUILT_IN = frozenset({"logistic", "exponential", "linear", "correlation", "cross_entropy", "token"})
"""The losses that are known to decrease, and whose slopes are bounded exactly."""

# statements that are not checked where another hypothesis fails
RATE_OF_LOSS = "the learning rate is at most 1/L"
RATE_OF_CONE = "the learning rate is at most the largest one for the cone"
IN_CONE = "the weights are in a cone that gradient descent does not leave"

BEYOND_ROUNDING = 100
"""A step moves the logits if it changes one by more than this many rounding errors of the largest one."""
LARGEST = 300.0
"""Of a larger scale of the weights, the exponential of this is enough: no rounding error is small."""
ARRIVED = 1e-6
"""A run whose distance to a point is below this part of the length of the point has arrived, and moves no more."""

NO_RANK = 1e-6
"""Singular values below this part of the value of the Att-SVM do not count for the rank of rotated weights."""

NEAR_POINT = 0.05
"""The distance to a point over its length at which a run counts as near."""


class Theorem(NamedTuple):
    """A theorem and its hypotheses beside those that all share."""

    source: str
    hypotheses: tuple[Hypothesis, ...]


def training_hypotheses(run: Run, known: Collection[Limit], used: Norm) -> list[Hypothesis]:
    """List what every prediction assumes of the training. ``known``: the limits of the trials."""
    least, norms = int(np.min(run.step)), {limit.norm for limit in known}
    own = None if None in norms else norms == {used}
    return [
        Hypothesis("moved", "the run made at least 2 steps", least >= 2, float(least), "steps"),
        _zero("no_penalty", "no penalty is added to the loss", run.penalty),
        Hypothesis("same_norm", "the Att-SVM is in the norm of the steps", own),
        _zero("no_decay", "the weights do not decay", run.weight_decay),
        _full_batch(run),
        endless_steps(run.limit.steps),
    ]


def endless_steps(steps: Steps) -> Hypothesis:
    """State that the steps do not end, by the power of their decay."""
    key, statement, power = "endless_steps", "the learning rates add up to infinity", steps.power
    if not power:  # constant or unknown
        return Hypothesis(key, statement, None if power is None else True)
    # Σ k^(−a) is infinite exactly for a ≤ 1
    return Hypothesis(key, statement, power <= 1, power, "is the power of the decay")


def _zero(name: str, statement: str, found: float | str | None) -> Hypothesis:
    if isinstance(found, str) or found is None:
        return Hypothesis(name, statement, None)
    return Hypothesis(name, statement, found == 0, float(found))


def _full_batch(run: Run) -> Hypothesis:
    key, statement = "full_batch", "each step uses all sequences"
    if isinstance(run.batch_size, str):
        return Hypothesis(key, statement, None)
    size = None if run.batch_size is None else float(run.batch_size)
    return Hypothesis(key, statement, run.batch_size is None, size, "" if size is None else "sequences in a step")


def decreasing_loss(problem: Problem, run: Run) -> Hypothesis:
    """State that the loss decreases over the possible margins; sampled for a loss of the user's own."""
    key, statement = "decreasing_loss", "the loss decreases as the scores of the tokens grow"
    known = run.loss_name in BUILT_IN
    # the outputs of other models have another range than the scores
    scored = run.head == "linear" and problem.head is not None and problem.num_classes is None
    if known or not scored or run.live_loss is None:
        return Hypothesis(key, statement, True if known else None)
    gamma = np.asarray(scores(problem))
    finite = gamma[np.isfinite(gamma)]
    steepest = derivatives(run.live_loss, np.linspace(finite.min(), finite.max(), SAMPLES))[0].max()
    # samples can refute the statement, but not prove it
    return Hypothesis(key, statement, False if steepest >= 0 else None, float(-steepest))


def same_problem(problem: Problem, run: Run) -> Hypothesis:
    """State that the run is of this problem; not checked for one trial of a batch, whose data has another hash."""
    return Hypothesis("same_problem", "the run was trained on this problem", run.data_hash == problem.data_hash or None)


def separable(solution: Solution) -> Hypothesis:
    """State that the Att-SVM is feasible, and its value."""
    statement = "the selected tokens can be separated from the others"
    return worst_case(
        "separable", statement, is_feasible(solution), np.asarray(solution.value), "is the norm of the Att-SVM"
    )


def rotation_hypotheses(solution: Solution, used: Norm) -> list[Hypothesis]:
    """State that rotated factors attain the value of the Att-SVM; empty for other norms than that of rotations.

    K and Q of one pair of columns for each frequency make complex matrices of rank one. The norm is the convex bound on
    ½(‖K‖² + ‖Q‖²), which they attain only if the ranks of the Att-SVM are at most one.
    """
    norm = used.of if isinstance(used, SumOfHeads) else used
    if not isinstance(norm, Rotary):
        return []
    feasible = is_feasible(solution)
    of_heads = tuple(range(feasible.ndim, solution.direction.ndim - 2))
    weights = np.where(np.isfinite(solution.direction), solution.direction, 0.0)
    value = np.reshape(solution.value, feasible.shape + (1,) * (len(of_heads) + 2))
    kept = np.linalg.svd(norm.blocks(weights), compute_uv=False) > NO_RANK * value
    ranks = kept.sum(axis=-1).max(axis=(*of_heads, -1)).astype(float)
    statement = "the Att-SVM has a rank of at most 1 at each frequency, as rotated factors require"
    holds = np.where(feasible == 1, ranks <= 1, np.nan)
    return [worst_case("rank_one", statement, holds, ranks, "is the largest rank", least=False)]


def selection_hypotheses(problem: Problem, selected: np.ndarray, solution: Solution) -> list[Hypothesis]:
    """State that the tokens can be selected, and that no support token of their Att-SVM is as good."""
    rows = [separable(solution)]
    key, statement = "locally_optimal", "the selection is locally optimal"
    if problem.num_classes is not None or problem.head is None:
        return [*rows, Hypothesis(key, statement, None)]
    worse = better_support_tokens(problem, selected, solution.support).sum(axis=-1)
    return [*rows, at_most(key, statement, worse, 0, "better support tokens")]


def arithmetic_hypotheses(problem: Problem, run: Run, distance: np.ndarray | None = None) -> list[Hypothesis]:
    """Check what every theorem assumes of floating point: that rounding does not decide where the run goes.

    ``distance``: to the point that the run converges to, over the length of the point, if there is one.
    """
    # a step that rounding removes goes nowhere, whatever a theorem says of exact arithmetic
    change = np.asarray(run.history.get("logit_change", np.zeros((1, *run.batch_shape)))[-1])
    logits = np.where(problem.canonical.allowed, np.abs(token_logits(problem, run.weights)), 0.0)
    largest = logits.reshape(*run.batch_shape, -1).max(axis=-1) * np.exp(np.minimum(run.log_scale, LARGEST))
    # the rounding error of a logit, a sum of products, is about that of the largest one
    rounding = np.finfo(np.float32 if run.dtype == "float32" else np.float64).eps * largest
    moved = change > BEYOND_ROUNDING * rounding
    moved |= False if distance is None else distance <= ARRIVED
    finite = np.isfinite(largest) & np.isfinite(run.loss) & (np.asarray(run.status) != Status.NON_FINITE)
    first = np.asarray(-1 if run.precise_until is None else run.precise_until)
    return [
        worst_case("last_step_moved", "the last step changed the logits, despite rounding", moved, change, "logits"),
        Hypothesis("finite", "all weights of the run are finite", bool(np.all(finite))),
        Hypothesis("precise", "no logit exceeded 1e8, beyond which rounding decides", bool(np.all(first < 0))),
    ]


def arrived(part: np.ndarray) -> Hypothesis:
    """State that a run is near the point to which it converges. ``part``: its distance over the length of the point."""
    statement = f"the weights are within {NEAR_POINT:g} of the length of the point"
    return at_most("arrived", statement, part, NEAR_POINT, "is the distance to the point over its length")


def gradient_descent(problem: Problem, run: Run, so_far: list[Hypothesis]) -> Theorem:
    """Local convergence of W or p, with the cone of :func:`attsvm.theory.local_convergence_conditions`.

    The papers prove that a cone and a learning rate exist; the docstring of that function computes them.
    """
    paper = TRANSFORMERS if problem.has_queries else TOKEN_SELECTION
    source = f"{paper}: local convergence of gradient descent; local_convergence_conditions has the constants"
    plain = constant_rate(run, "gradient")
    # the rest is expensive, and of no use where another hypothesis does not hold
    one_head = problem.num_heads is None and problem.num_classes is None and not run.fixed
    same = same_problem(problem, run)
    if not (one_head and all(one.holds for one in (*so_far, plain, same))):
        unchecked = {"rate_of_loss": RATE_OF_LOSS, "rate_of_cone": RATE_OF_CONE, "in_cone": IN_CONE}
        return Theorem(source, (plain, same, *(Hypothesis(*one, None) for one in unchecked.items())))
    rate = run.limit.steps.constant or 0.0
    # η ≤ 1/L: each step decreases the loss, and the sum of squared steps is finite
    smooth = rate * np.asarray(lipschitz_constant(problem, run.loss_name))
    # largest_rate is the longest step of the cone over a bound of the gradient in it
    found = best_cone(problem, run, lambda cones: rate / cones.largest_rate)
    return Theorem(
        source,
        (
            plain,
            same,
            at_most("rate_of_loss", RATE_OF_LOSS, smooth, 1, "rate · L"),
            at_most("rate_of_cone", RATE_OF_CONE, found.step, 1, "rate over the largest"),
            worst_case("in_cone", IN_CONE, found.norm >= 1, found.norm, "norm over the radius of the cone"),
        ),
    )


def mirror_descent(run: Run) -> Theorem:
    """Convergence of ℓp mirror descent, whose paper states that a cone and a learning rate exist."""
    return Theorem(
        f"{MIRROR_DESCENT}: local convergence in direction",
        (
            constant_rate(run, "mirror"),
            # without numbers nothing can be checked, so that mirror descent is never called proved
            Hypothesis("small_rate", "the learning rate is small enough (the paper states no number)", None),
            Hypothesis(
                "in_cone", "the weights are in a cone of the Bregman divergence (the paper states no size)", None
            ),
        ),
    )


def gradient_flow() -> Theorem:
    """Keys and queries: a theorem for gradient flow."""
    return Theorem(
        f"{GRADIENT_FLOW}; {TRANSFORMERS}: regularisation path",
        (
            # discrete steps never are, so that this theorem proves no run, and is only named
            Hypothesis("gradient_flow", "the steps are those of gradient flow, in continuous time", False),
            Hypothesis("aligned", "the singular vectors of K and Q are aligned with the data at the start", None),
        ),
    )


def next_tokens(problem: Problem, run: Run, so_far: list[Hypothesis], *, cyclic: bool) -> Theorem:
    """Global convergence with the token loss on graphs without cycles, where the loss is convex in W."""
    plain = constant_rate(run, "gradient")
    rows = [
        plain,
        same_problem(problem, run),
        Hypothesis("acyclic", "the token-priority graph has no cycles", not cyclic),
    ]
    if not all(one.holds for one in (*so_far, *rows)):
        return Theorem(f"{NEXT_TOKEN}: global convergence", (*rows, Hypothesis("rate_of_loss", RATE_OF_LOSS, None)))
    canonical = problem.canonical
    # a log-sum-exp of logits in a range D‖Vz‖ has a second derivative of at most a quarter of its square
    weight = np.where(canonical.active, diameters(problem) ** 2 / 4, 0.0)
    weight /= canonical.active.sum(axis=(-2, -1), keepdims=True)
    matrix = np.einsum("...nq,...nqe,...nqf->...ef", weight, canonical.queries, canonical.queries)
    smooth = (run.limit.steps.constant or 0.0) * np.linalg.eigvalsh(matrix)[..., -1]
    return Theorem(
        f"{NEXT_TOKEN}: global convergence",
        (*rows, at_most("rate_of_loss", RATE_OF_LOSS, smooth, 1, "rate · L")),
    )


def constant_rate(run: Run, kind: str) -> Hypothesis:
    """State that the steps are those of gradient or mirror descent, with one learning rate for all."""
    steps = run.limit.steps
    plain = (steps.kind, steps.normalised, steps.momentum) == (kind, "no", 0)
    # a schedule that is not known leaves it open whether the rate is constant
    constant = None if steps.schedule is None else steps.constant is not None
    statement = f"the steps are those of {kind} descent with a constant learning rate, not normalized"
    return Hypothesis("constant_rate", statement, constant if plain else False, steps.learning_rate, "learning rate")
