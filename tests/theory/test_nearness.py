"""No run is called proved or measured that is far from its limit, or that rounding stopped."""

from dataclasses import replace

import numpy as np
import pytest

import attsvm
from attsvm.datasets import random_problem
from attsvm.optimizers import gradient_descent, mirror_descent, normalized_gradient_descent, steepest_descent
from attsvm.theory import Standing
from attsvm.theory.measured import table

pytestmark = pytest.mark.slow

KNOWN = Standing.PROVED, Standing.MEASURED


def named(prediction):
    return {one.name: one for one in prediction.hypotheses}


def ratio_by_hand(problem, weights, selected, value):
    logits = np.einsum("itk,kq,iq->it", problem.tokens, weights, problem.queries)
    kept = np.take_along_axis(logits, selected[:, None], axis=1)
    others = np.arange(problem.num_tokens) != selected[:, None]
    return (kept - logits)[others].min() * value / np.linalg.norm(weights)


def test_a_run_that_is_far_from_its_limit_is_not_measured():
    problem = random_problem(6, 8, 10, seed=12)
    run = attsvm.train(problem)
    found = attsvm.predict_direction(problem, run)
    assert found.standing in KNOWN
    direction, selected = found.solution.direction / found.solution.value, run.selected
    away = np.random.default_rng(11).standard_normal((10, 10))
    away *= 0.2 / np.linalg.norm(away)
    while ratio_by_hand(problem, direction + away, selected, found.solution.value) > 0.5:
        away *= 1.05
    start = 1e4 * (direction + away)
    still = attsvm.train(problem, init=start, optimizer=normalized_gradient_descent(0.1))
    far = attsvm.predict_direction(problem, still)
    assert far.standing is Standing.CONJECTURE
    assert far.source.startswith("not there yet: the margin ratio of the run is at least 0.921: does not hold (0.")
    near, begun = named(far)["near"], named(far)["measured_start"]
    assert near.number == pytest.approx(ratio_by_hand(problem, still.weights, selected, found.solution.value), rel=1e-6)
    assert begun.number == pytest.approx(np.linalg.norm(start) / np.linalg.norm(still.weights), rel=1e-9)
    # from zero, the steps that are lacking follow from the rate of the row
    planted = replace(run, weights=start)
    key = (run.limit.steps.family, "combined", "frobenius", "fixed head", "one", "all", "softmax")
    row = next(row for row in table() if row.key == key and not row.batch and not row.momentum[1])
    power = np.log((1 - row.first[0]) / (1 - row.last[0])) / np.log(row.num_steps[1] / row.num_steps[0])
    more = run.step * (((1 - ratio_by_hand(problem, start, selected, found.solution.value)) / 0.079) ** (1 / power) - 1)
    assert f"; about {float(f'{more:.2g}'):,.0f} more steps at the" in attsvm.predict_direction(problem, planted).source
    # one far trial decides for the batch
    several = attsvm.train(random_problem(6, 8, 10, seed=12, batch=(2,)))
    problems = random_problem(6, 8, 10, seed=12, batch=(2,))
    weights = several.weights.copy()
    weights[1] += np.linalg.norm(weights[1]) * away / np.linalg.norm(away)
    assert attsvm.predict_direction(problems, several).standing in KNOWN
    assert attsvm.predict_direction(problems, replace(several, weights=weights)).standing not in KNOWN


def test_a_head_that_has_not_begun_to_learn_counts():
    """Of one sequence with two tokens, every step has the direction of the Att-SVM: only the lengths are wrong."""
    generator = np.random.default_rng(919)
    tokens, queries, head = (generator.standard_normal(shape) for shape in ((1, 2, 3), (1, 3), 3))
    for scale, near in ((1.0, True), (1e-300, False)):
        problem = attsvm.Problem(tokens, [1.0], queries, np.stack([head, scale * head]), num_heads=2)
        run = attsvm.train(problem, optimizer=normalized_gradient_descent(0.03), steps=12_000)
        found = attsvm.predict_direction(problem, run)
        assert attsvm.margin_ratio(problem, run) == pytest.approx([1.0, 1.0])
        assert (found.standing == "measured") == near
        assert (attsvm.direction_error(run, found) < 1e-6) == near
        # by hand: the same margin in both heads, over the length of all weights
        logits = np.einsum("hkq,tk,q->ht", run.weights, tokens[0], queries[0])
        ratio = np.abs(logits[:, 0] - logits[:, 1]).min() * np.sqrt(2) / np.linalg.norm(run.weights)
        assert named(found)["near"].number == pytest.approx(ratio * np.mean(found.solution.value), rel=1e-6)


def test_slopes_of_the_loss_and_sizes_of_prompts_are_those_that_were_measured():
    problem = random_problem(6, 8, 10, seed=11)
    steep = attsvm.Problem(problem.tokens, problem.labels, problem.queries, 30 * problem.head)
    run = attsvm.train(steep)
    found = attsvm.predict_direction(steep, run)
    assert found.standing not in KNOWN
    outputs = steep.labels * (np.take_along_axis(steep.tokens, run.selected[:, None, None], 1)[:, 0] @ steep.head)
    slopes = 1 / (1 + np.exp(outputs))
    factor = named(found)["measured_slopes"]
    assert (factor.holds, factor.number) == (False, pytest.approx(slopes.max() / slopes.min(), rel=1e-9))
    for n, holds in ((6, True), (7, False)):
        prompt = random_problem(n, 3, 10, seed=1, prompt=True)
        size = named(
            attsvm.predict_direction(
                prompt, attsvm.train(prompt, optimizer=steepest_descent(norm="linf"), steps=10_000)
            )
        )["measured_size"]
        assert (size.holds, size.number) == (holds, n / 10)


ARITHMETIC = {"last_step_moved", "finite", "precise"}


def test_every_theorem_assumes_that_rounding_does_not_decide():
    problem = random_problem(3, 4, 5, 0)
    plain = gradient_descent(0.1)
    runs = {
        "W": {"optimizer": plain},
        "mirror descent": {"optimizer": mirror_descent(p=3, normalize=False)},
        "factors": {"attention": "factored"},
        "penalty": {"optimizer": plain, "penalty": 1.0},
    }
    for name, options in runs.items():
        found = attsvm.predict_direction(problem, attsvm.train(problem, steps=20, **options))
        assert named(found).keys() >= ARITHMETIC, name
    # the token loss: a start that no step changes, far from the limit
    rng = np.random.default_rng(31005)
    vocabulary = rng.standard_normal((5, 6))
    graph = attsvm.token_graph([[0, 1, 2], [1, 3, 2], [0, 4, 2]], [0, 1, 0])
    tokens = graph.training_problem(vocabulary)
    first = attsvm.train(tokens, loss="token", optimizer=gradient_descent(0.01), steps=20)
    direction = attsvm.predict_direction(tokens, first).solution.direction
    away = rng.standard_normal(direction.shape)
    start = 20 * (direction / np.linalg.norm(direction) + 0.4 * away / np.linalg.norm(away))
    still = attsvm.train(tokens, loss="token", optimizer=gradient_descent(0.01), steps=200, init=start)
    assert (still.weights == start).all()
    found = attsvm.predict_direction(tokens, still)
    assert found.standing is not Standing.PROVED
    assert named(found)["last_step_moved"].holds is False
    assert named(found).keys() >= ARITHMETIC


def test_a_proved_limit_is_named_where_the_run_is_far_from_it():
    """The cone of local convergence is wide: its theorem holds for runs that have most of their way before them."""
    problem = random_problem(3, 4, 5, 0, prompt=True)
    cone = attsvm.theory.local_convergence_conditions(problem, attsvm.optimal_tokens(problem))
    rate = 0.9 * min(1 / attsvm.theory.lipschitz_constant(problem), cone.largest_rate)
    direction = cone.solution.direction / cone.solution.value
    standings = set()
    for seed in range(20):
        away = np.random.default_rng(seed).standard_normal(5)
        away -= (away @ direction) * direction
        tilted = direction + np.sqrt(2 * cone.opening) * away / np.linalg.norm(away)
        run = attsvm.train(problem, init=1.2 * cone.radius * tilted, optimizer=gradient_descent(rate), steps=5)
        found = attsvm.predict_direction(problem, run)
        near = named(found)["near"]
        assert (found.standing is Standing.PROVED) <= bool(near.holds)
        standings.add((str(found.standing), found.source.startswith("not there yet")))
    assert standings & {("conjecture", True), ("proved", False)}
