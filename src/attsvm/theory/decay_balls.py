"""Set up a constrained limit: the loss of each head, the balls, and the weights to start at."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.checks import as_array, as_floats, selection_of
from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.losses import parse_margin_loss
from attsvm.measures import check_weights
from attsvm.norms import MaxOfHeads, Norm, SumOfHeads, parse_norm
from attsvm.norms.factors import induced_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.regularization import (
    Excess,
    Minima,
    adam_points,
    block_diagonal,
    check_balls,
    minimise_in_ball,
    order_of,
    scalar_of,
)
from attsvm.results import Result
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm
from attsvm.theory.conditions import is_feasible

FIRST_LOGIT = 0.1
"""A path begins at the radius at which the logits are at most about this large."""
GROWTH = 2.0
"""Ratio of neighbouring radii of a path."""
FAR = 1e12
"""A direction times this is outside of every ball, so that it is moved to the sphere."""


@dataclass(frozen=True, eq=False)
class DecaySetting:
    """N models of H heads each, whose functions and weights follow each other."""

    problem: Problem
    batch: tuple[int, ...]  # without the axis of the heads
    excess: Excess  # of N H functions
    radii: Float[np.ndarray, " N"]
    norm: Norm
    together: bool  # whether all heads of a model are in one ball
    start: Float[np.ndarray, "NH k e"]
    svm: tuple[np.ndarray, Solution] | None  # the selection and the Att-SVM of a start at tokens

    @property
    def heads(self) -> int:
        """H."""
        return self.problem.num_heads or 1

    @property
    def balls(self) -> int:
        """The number of balls of a model."""
        return 1 if self.together else self.heads

    def solve_svm(self, selected: np.ndarray) -> Solution:
        """The Att-SVM of these tokens, which may be the one of the start."""
        if self.svm is not None and np.array_equal(self.svm[0], selected):
            return self.svm[1]
        return solve_svm(self.problem, selected, norm=self.norm)

    def join_heads(self, excess: Excess, weights: np.ndarray) -> tuple[Excess, np.ndarray]:
        """One function for each model, and its weights."""
        return excess.joined(self.heads), block_diagonal(weights, self.heads)

    def minimise(self) -> Minima:
        """Stationary points near the start."""
        return self._minimise(self.start, self.radii)

    def minimise_with_epsilon(self, epsilon: float) -> Minima:
        """Points near the start where AdamW with this ε ends."""
        return adam_points(self.excess, self.radii, epsilon, self.start, heads=self.heads)

    def follow_path(self) -> np.ndarray:
        """Weights at the radius, from minima at smaller ones."""
        # N(W) ≤ R bounds the gaps by R times this, so that the loss is nearly linear at the first radius
        longest = self.excess.largest_gaps(self.norm).reshape(len(self.radii), -1).max(axis=1)
        first = np.minimum(FIRST_LOGIT / np.where(longest > 0, longest, 1.0), self.radii)
        growths = int(np.ceil(np.log((self.radii / first).max()) / np.log(GROWTH)))
        weights = self.start
        for step in range(growths):
            radii = first * (self.radii / first) ** (step / growths)
            weights = self._minimise(self._scale_to_sphere(weights, radii), radii).weights
        return self._scale_to_sphere(weights, self.radii)

    def _minimise(self, start: np.ndarray, radii: np.ndarray) -> Minima:
        balls = radii if self.together else np.repeat(radii, self.heads)
        return minimise_in_ball(self.excess, self.norm, balls, start, heads=self.heads, together=self.together)

    def _scale_to_sphere(self, weights: np.ndarray, radii: np.ndarray) -> np.ndarray:
        size = self.norm.values(block_diagonal(weights, self.heads) if self.together else weights)
        factor = np.repeat(radii, self.balls) / np.where(size > 0, size, 1.0)
        return np.asarray(weights * np.repeat(factor, self.heads // self.balls)[:, None, None])


def setting_of(
    problem: Problem, radius: Any, decay: Any, norm: Any, start: Any, attention: str, loss: str, *, together: bool
) -> DecaySetting:
    """Check the arguments of :func:`attsvm.theory.constrained_limit`, and bring them together."""
    check_is_problem(problem)
    problem, parsed = parse_margin_loss(problem, loss)
    if problem.labels is None or problem.head is None:
        missing = "labels" if problem.labels is None else "a head"
        raise ProblemError(f"problem: expected labels -1 and 1 and a prediction head, but it has no {missing}")
    if problem.key_groups is not None:  # heads that share keys are not bounded one by one
        raise ProblemError(f"problem: expected one without key_groups, got key_groups={problem.key_groups}")
    if attention not in (("combined", "factored") if problem.has_queries else ("combined", "prompt")):
        expected = '"combined" or "factored"' if problem.has_queries else '"prompt", because there are no queries,'
        raise ProblemError(f"attention: expected {expected} got {attention!r}")
    used, joint = _norm_of_one_head(parse_norm(norm), together=together)
    name, radii = _radii(radius, decay)
    if attention == "factored":
        # the norm that N induces satisfies M(KQ') ≤ N(K) N(Q) ≤ R²
        used, radii = induced_norm(used, problem.key_dim), radii**2
    elif not problem.has_queries:
        used = used.of_vectors
    if problem.num_heads is not None:
        check_balls(used, together=joint)
    # the largest norm of a head is at most R if and only if each of them is
    joint = joint and problem.num_heads is not None and order_of(used) < np.inf
    begin, batch, svm = _start(problem, start, used)
    heads = problem.num_heads or 1
    batch = batch[: len(batch) - len(problem.heads_shape)]
    try:
        radii = np.broadcast_to(radii, batch).reshape(-1)
    except ValueError:
        raise ProblemError(f"{name}: expected a number, or shape {batch}, got {radii.shape}") from None
    excess = Excess.of(problem, scalar_of(parsed))
    # which entry of the flattened batch of the problem
    places = np.arange(len(excess.keys)).reshape(problem.batch_shape)
    places = np.broadcast_to(places, (*batch, *problem.heads_shape)).reshape(-1)
    excess = excess[places] if len(places) > len(excess.keys) else excess
    shape = (len(places), problem.key_dim, problem.query_dim)
    setting = DecaySetting(problem, batch, excess, radii, used, joint or heads == 1, np.zeros(shape), svm)
    if begin is None:
        return replace(setting, start=setting.follow_path())
    core = problem.key_dim, *((problem.query_dim,) if problem.has_queries else ())
    begin = np.broadcast_to(begin, (*batch, *problem.heads_shape, *core)).reshape(shape).copy()
    # of optimal tokens that cannot be separated
    lost = ~np.isfinite(begin.reshape(len(radii), -1)).all(axis=1)
    if lost.any():
        each = np.repeat(lost, heads)
        part = replace(setting, excess=excess[each], radii=radii[lost], start=setting.start[each])
        begin[each] = part.follow_path()
    return replace(setting, start=begin)


def _norm_of_one_head(norm: Norm, *, together: bool) -> tuple[Norm, bool]:
    """N of one head, and whether one ball is that of all heads."""
    if isinstance(norm, MaxOfHeads | SumOfHeads) and norm.num_groups is None:
        # max_h N(W_h) ≤ R is a ball for each head; Σ_h N(W_h), of ℓ1 or nuclear, is that of the block-diagonal one
        if isinstance(norm, MaxOfHeads):
            return norm.of, False
        if order_of(norm.of) == 1:
            return norm.of, True
    if norm.head_axes:
        raise ProblemError(
            f"norm: expected a norm of one head, its maximum, or a sum of nuclear or l1, got {norm.name}"
        )
    return norm, together


def _radii(radius: Any, decay: Any) -> tuple[str, np.ndarray]:
    """The name of the argument that was given, and R."""
    if (radius is None) == (decay is None):
        raise ProblemError("radius: expected exactly one of radius and decay")
    name, given = ("radius", radius) if decay is None else ("decay", decay)
    numbers = as_floats(name, given)
    if not (np.isfinite(numbers).all() and (numbers > 0).all()):
        raise ProblemError(f"{name}: expected positive numbers, got {given}")
    return name, numbers if decay is None else 1 / numbers


class _Start(NamedTuple):
    weights: np.ndarray | None  # NaN where they are those of the path; None for the path
    batch: tuple[int, ...]
    svm: tuple[np.ndarray, Solution] | None = None


def _start(problem: Problem, start: Any, norm: Norm) -> _Start:
    core = 2 if problem.has_queries else 1
    if isinstance(start, str):
        if start != "path":
            raise ProblemError(f'start: expected "path", weights, a run or a selection, got {start!r}')
        return _Start(None, problem.batch_shape)
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
        # a solution is a direction: its multiple outside of the ball is moved to the sphere
        return _Start(weights * (FAR if isinstance(start, Solution) else 1.0), batch)
    selected = selection_of(chosen)
    svm = solve_svm(problem, selected, norm=norm)
    feasible = is_feasible(svm)
    if start is not None and not feasible.all():
        raise ProblemError("start: expected a selection that can be separated, got one whose Att-SVM is infeasible")
    directions = np.where(feasible.reshape(*feasible.shape, *(1,) * core), svm.direction, np.nan)
    return _Start(directions * FAR, _checked_batch(problem, feasible.shape), (selected, svm))


def _checked_batch(problem: Problem, lead: tuple[int, ...]) -> tuple[int, ...]:
    own = problem.batch_shape
    if len(lead) < len(own):
        lead = own
    if lead[len(lead) - len(own) :] != own:
        raise ProblemError(f"start: expected batch axes that end with {own}, those of the problem, got {lead}")
    return lead
