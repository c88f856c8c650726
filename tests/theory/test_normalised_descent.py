"""Normalised gradient descent in a cone: attacks on the lemma, and runs that are proved or not."""

from dataclasses import replace

import numpy as np
import pytest

import attsvm
from attsvm.datasets import random_problem
from attsvm.optimizers import Decaying, Growing, normalized_gradient_descent
from attsvm.theory import Standing, local_conditions, local_convergence_conditions
from oracles.cone_attack import attack

CHECKED = (
    "normalised_steps",
    "endless_steps",
    "full_batch",
    "same_problem",
    "last_step_moved",
    "short_steps",
    "in_cone",
)


def cones(seed, sizes=((2, 3, 4), (3, 4, 5), (4, 3, 6), (2, 6, 5), (1, 4, 2), (6, 8, 10))):
    """Data, selection and cones of several openings; half of the selections have a better token."""
    generator = np.random.default_rng(seed)
    n, T, d = sizes[generator.integers(len(sizes))]
    tokens, queries = generator.standard_normal((n, T, d)), generator.standard_normal((n, d))
    head = generator.standard_normal(d) * generator.choice([0.1, 1, 5])
    labels = np.where(generator.random(n) < 0.5, -1.0, 1.0)
    scores = labels[:, None] * (tokens @ head)
    selected = scores.argmax(axis=1)
    if generator.random() < 0.6:
        query = generator.integers(n)
        selected[query] = np.argsort(-scores[query])[1]
    problem = attsvm.Problem(tokens, labels=labels, queries=queries, head=head)
    found = local_convergence_conditions(problem, selected)
    openings = [min(part * found.widest, 0.499) for part in (0.3, 0.9, 0.99) if found.holds]
    wider = (local_convergence_conditions(problem, selected, opening=one) for one in openings)
    return (tokens, queries, scores), selected, [cone for cone in (*wider, found) if cone.holds], generator


def attacked(seeds, on_radius, on_step):
    """The numbers of points and of those that leave, and the least growth over its bound."""
    tried, left, growth = 0, 0, np.inf
    for seed in seeds:
        data, selected, found, generator = cones(seed)
        for cone in found:
            axis = cone.solution.direction.ravel() / cone.solution.value
            step = on_step * on_radius * cone.longest_step
            least, longer = attack(data, selected, axis, cone.opening, on_radius * cone.radius, step, generator)
            tried, left = tried + 15 * len(least), left + np.sum(least < -1e-12)
            growth = min(growth, longer / cone.growth)
    return tried, left, growth


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(400), marks=pytest.mark.long)])
def test_no_step_leaves_a_cone_and_the_norm_grows_as_fast_as_stated(seeds):
    tried, left, growth = attacked(seeds, 1, 1)
    assert tried > 300 * len(seeds)
    assert left == 0
    assert growth >= 1 - 1e-9


@pytest.mark.parametrize(("on_radius", "on_step", "seed"), [(0.3, 1, 91), (1, 16, 283)])
def test_the_attack_finds_wrong_constants(on_radius, on_step, seed):
    assert attacked([seed], on_radius, on_step)[1] > 0


def test_an_inaccurate_direction_has_no_cone(monkeypatch):
    problem = random_problem(2, 3, 4, 0)
    selected = attsvm.optimal_tokens(problem)
    assert local_convergence_conditions(problem, selected).holds
    inaccurate = replace(attsvm.solve_svm(problem, selected), status=attsvm.results.Status.INACCURATE)
    monkeypatch.setattr(local_conditions, "solve_svm", lambda *_: inaccurate)
    found = local_convergence_conditions(problem, selected)
    assert (found.holds, found.solved, found.locally_optimal, found.radius) == (False, False, True, np.inf)


@pytest.fixture(scope="module")
def in_a_cone():
    """A problem, weights in a cone, of a margin ratio above 0.9, and half of the longest step there."""
    problem = random_problem(3, 4, 5, 32101)
    cone = local_convergence_conditions(problem, attsvm.optimal_tokens(problem), opening=2e-3)
    axis = cone.solution.direction / cone.solution.value
    away = np.random.default_rng(0).standard_normal(axis.shape)
    away -= np.sum(away * axis) * axis
    c = 1 - cone.opening / 8
    unit = c * axis + np.sqrt(1 - c * c) * away / np.linalg.norm(away)
    assert attsvm.margin_ratio(problem, unit, attsvm.optimal_tokens(problem)) > 0.9
    return problem, 1.05 * cone.radius * unit, 0.5 * cone.longest_step, cone


@pytest.mark.parametrize("schedule", [lambda h, _: Decaying(h, 50), lambda h, steps: Growing(h, steps)])
def test_runs_in_a_cone_are_proved_and_stay_below_the_bound(in_a_cone, schedule):
    problem, start, step, cone = in_a_cone
    # steps that grow half as fast as the norm is known to
    rate = schedule(step, 2 * cone.radius / (cone.longest_step * cone.growth))
    run = attsvm.train(problem, init=start, optimizer=normalized_gradient_descent(rate), steps=5)
    found = attsvm.predict_direction(problem, run)
    assert found.standing is Standing.PROVED, found
    bound = float(found.source.split("at most ")[1].split(",")[0])
    later = attsvm.train(problem, init=run, steps=2000).history["weights"]
    errors = np.asarray(attsvm.direction_error(later, found.direction, axis=(-2, -1)))
    assert errors[5:].max() <= bound <= 1.3 * cone.opening
    assert errors[-1] < 0.9 * errors[0]
    assert (np.diff(np.linalg.norm(later, axis=(-2, -1))) > 0).all()


def with_steps(run, **fields):
    return replace(run, limit=replace(run.limit, steps=replace(run.limit.steps, **fields)))


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        (None, lambda run, h: run),
        (None, lambda run, h: with_steps(run, schedule=Decaying(h, 50, 0.5))),
        ("normalised_steps", lambda run, h: with_steps(run, relative=True)),
        ("normalised_steps", lambda run, h: with_steps(run, schedule=None)),
        ("momentum", lambda run, h: with_steps(run, momentum=0.5)),
        ("average", lambda run, h: with_steps(run, normalised="average")),
        ("endless_steps", lambda run, h: with_steps(run, schedule=Decaying(h, 50, 2))),
        ("short_steps", lambda run, h: with_steps(run, schedule=1000 * h)),
        ("short_steps", lambda run, h: with_steps(run, schedule=Growing(h, 5.0))),
        ("in_cone", lambda run, h: replace(run, weights=0.01 * run.weights)),
        ("full_batch", lambda run, h: replace(run, batch_size=2)),
        ("no_decay", lambda run, h: replace(run, weight_decay=1e-9)),
        ("penalty", lambda run, h: replace(run, penalty=1e-9)),
        ("decreasing_loss", lambda run, h: replace(run, loss_name="custom", live_loss=None)),
        ("last_step_moved", lambda run, h: replace(run, history=run.history | {"logit_change": np.zeros(6)})),
    ],
)
def test_each_hypothesis_is_needed(in_a_cone, short_run, name, changed):
    problem, _, step, _ = in_a_cone
    found = attsvm.predict_direction(problem, changed(short_run, step))
    assert (found.standing is Standing.PROVED) == (name is None), found
    named = {one.name: one.holds for one in found.hypotheses}
    assert not named.get(name, False)
    # the others of the theorem hold or were not checked
    assert False not in [named.get(one) for one in CHECKED if one != name]


@pytest.fixture(scope="module")
def short_run(in_a_cone):
    problem, start, step, _ = in_a_cone
    return attsvm.train(problem, init=start, optimizer=normalized_gradient_descent(step), steps=5, record=range(6))


def test_several_heads_are_not_proved():
    problem = random_problem(3, 4, 5, 32101)
    head = np.stack([problem.head] * 2)
    several = attsvm.Problem(problem.tokens, problem.labels, queries=problem.queries, head=head, num_heads=2)
    found = attsvm.predict_direction(several, attsvm.train(several, steps=3))
    assert {one.name: one.holds for one in found.hypotheses}["in_cone"] is None


@pytest.mark.slow
def test_default_runs_are_proved():
    for sizes, seed in (((2, 3, 4), 32102), ((6, 8, 10), 0)):  # the latter is the example of docs/guide/which_call.md
        problem = random_problem(*sizes, seed)
        assert attsvm.predict_direction(problem, attsvm.train(problem)).standing is Standing.PROVED
