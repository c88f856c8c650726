"""Normalised gradient descent in a cone of local convergence, checked on a run.

The theorem, its proof and a table from inequality to line of code are in ``docs/notes/normalised_descent.md``.
"""

from collections.abc import Callable

import numpy as np

from attsvm.optimizers import Steps
from attsvm.problem import Problem
from attsvm.theory.conditions import Hypothesis, at_most, worst_case
from attsvm.theory.cones import Numbers, best_cone
from attsvm.theory.hypotheses import IN_CONE, Theorem, same_problem
from attsvm.theory.local_conditions import Cones
from attsvm.training import Run

# the source of the theorem, and the statement on all later steps
SOURCE = "docs/notes/normalised_descent.md: normalised gradient descent in the cone of local_convergence_conditions"
SHORT_STEPS = "this and all later steps are at most as long as the cone allows"


def normalised_descent(problem: Problem, run: Run, so_far: list[Hypothesis]) -> Theorem:
    """Convergence in direction of W or p, in the exact continuation of the last weights."""
    rows = (normalised_steps(run.limit.steps), same_problem(problem, run))
    # the rest is expensive, and of no use where another hypothesis does not hold
    one_head = problem.num_heads is None and problem.num_classes is None and not run.fixed
    if not (one_head and all(one.holds for one in (*so_far, *rows))):
        unchecked = Hypothesis("short_steps", SHORT_STEPS, None), Hypothesis("in_cone", IN_CONE, None)
        return Theorem(SOURCE, (*rows, *unchecked))
    found = best_cone(problem, run, longest_later_step(run))
    # 1.005, because three digits may be rounded down by half a percent
    bound = (
        f"; 1 - correlation of the exact continuation is at most {1.005 * np.max(found.opening):.3g}, and tends to 0"
    )
    return Theorem(
        SOURCE + bound,
        (
            *rows,
            at_most("short_steps", SHORT_STEPS, found.step, 1, "step over the longest"),
            worst_case("in_cone", IN_CONE, found.norm >= 1, found.norm, "norm over the radius of the cone"),
        ),
    )


def normalised_steps(steps: Steps) -> Hypothesis:
    """State that the steps are of normalised gradient descent, with known lengths that do not depend on the weights."""
    statement = "the steps are those of normalised gradient descent with known lengths, not relative to the weights"
    plain = (steps.kind, steps.normalised, steps.momentum, steps.relative) == ("gradient", "step", 0, False)
    known = True if steps.schedule is not None else None
    return Hypothesis("normalised_steps", statement, known if plain else False, steps.learning_rate, "learning rate")


def longest_later_step(run: Run) -> Callable[[Cones], Numbers]:
    """Of all later steps the longest one over that of the cone, which grows in proportion to the norm.

    Of constant and decaying steps that is the next one. Growing steps stay short if they grow no faster than the norm:
    by at most h⁺/h − 1 in a step, which decreases, while the norm grows by at least ``growth`` times h.
    """
    schedule, made = run.limit.steps.schedule, np.asarray(run.step)
    now, after = (
        np.asarray(schedule(k) if callable(schedule) else np.full(k.shape, schedule)) for k in (made, made + 1)
    )
    # if h ≤ θr and h⁺/h − 1 ≤ θβ, then h⁺ ≤ θ(r + βh) ≤ θr⁺, and so on
    faster = np.maximum(after / now - 1, 0.0)
    return lambda cones: np.maximum(
        now / cones.longest_step, faster / (cones.longest_step / cones.radius * cones.growth)
    )
