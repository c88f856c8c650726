"""The hypotheses of global convergence: each number against an oracle, and runs that meet or break them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import attsvm
from attsvm import optimizers
from attsvm.datasets import random_problem
from attsvm.losses import parse_loss
from attsvm.norms import Lp
from attsvm.theory.loss_level import descent_direction
from oracles import training as oracle
from oracles.attention import attention, mean_loss
from oracles.optimizers import with_decay

LOSSES = ("logistic", "exponential", "linear")


def loss_of(problem, loss="logistic"):
    """The mean loss as a function of flat weights."""
    shape = problem.dim if problem.queries is None else (problem.dim, problem.query_dim)
    return lambda flat: mean_loss(problem, flat.reshape(shape), loss, xp=jnp)


@pytest.mark.parametrize("shape", ["combined", "prompt", "several queries"])
@pytest.mark.parametrize("scale", [0.1, 3.0, 1e3])
def test_the_direction_of_descent_however_saturated(shape, scale):
    generator = np.random.default_rng(int(scale))
    of_shape = {"combined": {}, "prompt": {"prompt": True}, "several queries": {"num_queries": 2}}[shape]
    problem = random_problem(2, 3, 2, seed=1, **of_shape)
    weights = scale * generator.standard_normal((2,) if shape == "prompt" else (2, 2))
    name = "p" if shape == "prompt" else "W"
    with mpmath.workdps(800):
        exact, _ = oracle.gradient(
            problem, {name: weights, "v": problem.head}, lambda p, o, a: oracle.linear(p["v"][None], o, a), "logistic"
        )
        gradient = exact[name][0]
        length = mpmath.sqrt(sum(x * x for x in gradient.ravel()))
        expected = np.array([float(-x / length) for x in gradient.ravel()]).reshape(weights.shape)
    # logits of 1e3 have an absolute rounding error of about 1e-13
    found = descent_direction(problem, weights, parse_loss("logistic", None))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15 * max(100.0, 10 * scale))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("prompt", [False, True])
def test_no_hessian_exceeds_the_lipschitz_constant(loss, prompt):
    problem = random_problem(2, 3, 2, seed=3, prompt=prompt)
    constant = attsvm.theory.lipschitz_constant(problem, loss)
    value = loss_of(problem, loss)
    size = 2 if prompt else 4

    with jax.enable_x64(True):
        largest = jax.jit(jax.vmap(lambda flat: jnp.abs(jnp.linalg.eigvalsh(jax.hessian(value)(flat))).max()))
        generator = np.random.default_rng(0)
        points = 4.0 * generator.standard_normal((4000, size))
        best = np.asarray(largest(points))
        for scale in (1.0, 0.3, 0.1):  # search further around the best points
            points = np.repeat(points[np.argsort(-best)[:100]], 40, axis=0)
            points += scale * generator.standard_normal(points.shape)
            best = np.asarray(largest(points))
    assert best.max() <= constant * (1 + 1e-9)
    # the bound is not idle, and better than that of the papers
    assert best.max() >= 0.15 * constant
    sizes = np.linalg.norm(problem.tokens, ord=2, axis=(-2, -1))
    low, high = np.sort(attsvm.scores(problem).ravel())[[0, -1]]
    slope = {"logistic": 1.0, "exponential": np.exp(-low), "linear": 1.0}[loss]
    bend = {"logistic": 0.25, "exponential": np.exp(-low), "linear": 0.0}[loss]
    norm = np.linalg.norm(problem.head)
    assert high > low
    assert constant <= np.mean(norm * sizes**3 * (bend * norm * sizes + 3 * slope)) / 4


def test_two_tokens_attain_the_lipschitz_constant():
    problem = attsvm.Problem([[[3.0, 1.0], [1.0, 1.0]]], [1.0], head=[1.0, 5.0])
    # p (1 − p)(1 − 2p) is largest at p = ½ − √3/6
    share = 0.5 - np.sqrt(3) / 6
    at = jnp.array([np.log(share / (1 - share)) / 2, 0.0])
    with jax.enable_x64(True):
        curvature = np.abs(np.linalg.eigvalsh(jax.jit(jax.hessian(loss_of(problem, "linear")))(at))).max()
    assert attsvm.theory.lipschitz_constant(problem, "linear") == pytest.approx(float(curvature), rel=1e-6)


def by_hand(problem, weights):
    """Σ ℓ(f) − ℓ(best), min ℓ(second) − ℓ(best), and whether every output is above its second score."""
    gamma = np.sort(problem.labels[:, None] * (problem.tokens @ problem.head), axis=1)
    loss = lambda m: np.log1p(np.exp(-m))  # noqa: E731
    outputs = np.sum(attention(problem, weights) * problem.labels[:, None] * (problem.tokens @ problem.head), axis=1)
    excess = np.sum(loss(outputs) - loss(gamma[:, -1]))
    return excess, np.min(loss(gamma[:, -2]) - loss(gamma[:, -1])), bool((outputs > gamma[:, -2]).all())


def test_the_level_the_starting_size_and_the_steps():
    found = 0
    for seed in range(12):
        problem = random_problem(3, 4, 8, seed)
        at_zero = attsvm.theory.global_convergence_conditions(problem)
        excess, level, _ = by_hand(problem, np.zeros((8, 8)))
        assert at_zero.excess_loss == pytest.approx(excess / level, rel=1e-10)
        if not at_zero.favourable:
            assert at_zero.start_radius == np.inf
            continue
        found += 1
        factors = np.array([0.999, 1.001, 3.0])[:, None, None]
        starts = factors * at_zero.start_radius * at_zero.descent
        ratios = [np.divide(*by_hand(problem, start)[:2]) for start in starts]
        assert ratios[0] > 1 > ratios[1] > ratios[2]
        value = loss_of(problem)
        with jax.enable_x64(True):
            losses, slopes = jax.jit(value), jax.jit(jax.grad(value))
            for start in starts[1:]:
                conditions = attsvm.theory.global_convergence_conditions(problem, start)
                assert conditions.holds
                # both largest steps decrease the loss; a longer first-order gain than what is bounded away is kept
                slope = np.asarray(slopes(start.ravel())).reshape(start.shape)
                length = np.linalg.norm(slope)
                np.testing.assert_allclose(conditions.descent, -slope / length, atol=1e-9)
                step = start + conditions.largest_step * conditions.descent
                gained = float(losses(start.ravel()) - losses(step.ravel()))
                assert gained >= 0.49 * conditions.largest_step * length
                step = start - conditions.largest_rate * slope
                assert losses(start.ravel()) - losses(step.ravel()) >= 0.49 * conditions.largest_rate * length**2
    assert found >= 3


def test_below_the_level_every_output_is_above_its_second_score():
    generator = np.random.default_rng(0)
    below, above = 0, 0
    problem = random_problem(2, 3, 4, 1)
    direction = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).direction
    for _ in range(3000):
        weights = 10.0 ** generator.uniform(0, 2) * (direction + generator.standard_normal((4, 4)))
        excess, level, fine = by_hand(problem, weights)
        below += excess < level
        above += (excess >= level) and not fine
        assert fine or excess >= level
    assert below > 100
    assert above > 100


def test_equal_scores_are_sufficient_for_one_query_but_not_for_two():
    generator = np.random.default_rng(0)
    # two sequences of two tokens: the differences of their keys oppose each other, and one is longer
    tokens = np.array([[[1.0, 0.0, 5.0], [0.0, 0.0, 0.0]], [[-2.0, 0.5, 0.05], [0.0, 0.0, 0.0]]])
    both = attsvm.Problem(tokens, [1.0, 1.0], head=[0.0, 0.0, 1.0], keys=tokens[..., :2])
    found = attsvm.theory.global_convergence_conditions(both, optimizer=optimizers.gradient_descent(0.1))
    assert found.favourable
    assert found.equal_scores
    assert [one.statement for one in found.hypotheses if not one.holds] == ["the excess loss at the start is below 1"]
    run = attsvm.train(both, steps=50_000, optimizer=optimizers.gradient_descent(float(found.largest_rate)))
    assert run.selected.tolist() == [0, 1]
    assert run.probability.min() > 0.99
    one = attsvm.Problem(tokens[:1], [1.0], head=[0.0, 0.0, 1.0], keys=tokens[:1, :, :2])
    starts = 2.0 * generator.standard_normal((200, 2))
    found = attsvm.theory.global_convergence_conditions(one, starts)
    assert found.holds.all()
    rule = optimizers.gradient_descent(float(found.largest_rate[0]))
    assert (attsvm.train(one, init=starts, steps=20_000, optimizer=rule).selected == 0).all()


def test_a_run_is_read_with_its_start_and_its_optimizer(tmp_path):
    problem = random_problem(3, 4, 8, 4)
    at_zero = attsvm.theory.global_convergence_conditions(problem)
    start = 1.5 * at_zero.start_radius * at_zero.descent
    for rate, fine in ((0.99, True), (1.5, False)):
        rule = optimizers.gradient_descent(rate * float(at_zero.largest_rate))
        run = attsvm.train(problem, init=start, optimizer=rule, steps=50)
        run.save(tmp_path / "run.npz")
        found = attsvm.theory.global_convergence_conditions(problem, attsvm.Run.load(tmp_path / "run.npz"))
        assert found.holds == fine
        assert ("assumed" in found.hypotheses[-1].statement, "assumed" in at_zero.hypotheses[-1].statement) == (
            False,
            True,
        )
        assert found.step == pytest.approx(rate)
        assert found.init_norm == pytest.approx(1.5 * at_zero.start_radius)
    plain = {"name": "plain", "steps": optimizers.Steps("gradient", Lp(2.0))}
    longest = float(attsvm.theory.global_convergence_conditions(problem, start).largest_step)
    for rule, step in (
        (optimizers.normalized_gradient_descent(0.5 * longest), 0.5),
        (optimizers.normalized(optimizers.gradient_descent(0.5 * longest)), 0.5),
        (optimizers.normalized_gradient_descent(0.5 * longest, relative=True), np.inf),
        (optimizers.gradient_descent(lambda k: 0.1 / (1 + k)), np.inf),
        (optimizers.momentum(optimizers.gradient_descent(0.1)), np.inf),
        (optimizers.chain(optimizers.gradient_descent(0.1), **plain), 0.1 / float(at_zero.largest_rate)),
        (optimizers.chain(with_decay(optimizers.gradient_descent(0.1), 0.5), **plain), np.inf),
    ):
        found = attsvm.theory.global_convergence_conditions(problem, start, optimizer=rule)
        assert found.step == pytest.approx(step)
        assert found.holds == (step <= 1)
    assert "the step is at most the largest step: does not hold" in repr(found)
    late = {**run.history, "steps": run.history["steps"] + 1}
    for other, loss, told in (
        (run, "exponential", "with other losses"),
        (replace(run, parameters={"K": start, "Q": start}), "logistic", "expected a run of W or p"),
        (replace(run, history=late), "logistic", "whose history starts at step 0"),
    ):
        with pytest.raises(attsvm.ProblemError, match=told):
            attsvm.theory.global_convergence_conditions(problem, other, loss)
