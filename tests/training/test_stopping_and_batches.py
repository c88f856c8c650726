"""Mini-batches of sequences, and runs that end at a tolerance."""

import jax
import numpy as np
import pytest

import attsvm
from attsvm import optimizers
from attsvm.datasets import random_problem
from attsvm.training.trials import MiniBatchSampler
from oracles.attention import attention


def loss_gradient(problem, weights):
    """Of the mean logistic loss at W, by NumPy, as one writes it where nothing is saturated."""
    shares = attention(problem, weights)
    values = problem.labels[:, None] * (problem.tokens @ problem.head)
    margin = (shares * values).sum(axis=1, keepdims=True)
    of_logits = -shares * (values - margin) / (1 + np.exp(margin)) / len(shares)
    return np.einsum("nt,ntd,ne->de", of_logits, problem.tokens, problem.queries)


def drawn(seed, n, size, steps):
    batches, key = MiniBatchSampler(n, size), jax.random.PRNGKey(seed)
    orders = [np.asarray(batches.order(key, step)) for step in range(steps)]
    return [order[(step % batches.steps_an_epoch) * size :][:size] for step, order in enumerate(orders)]


def test_a_step_is_that_of_its_mini_batch():
    problem, size, steps = random_problem(7, 4, 3, 0), 3, 9
    run = attsvm.train(
        problem, optimizer=optimizers.gradient_descent(0.5), steps=steps, batch_size=size, seed=5, record=range(10)
    )
    weights = np.zeros((3, 3))
    for step, chosen in enumerate(drawn(5, 7, size, steps)):
        part = attsvm.Problem(
            problem.tokens[chosen], problem.labels[chosen], queries=problem.queries[chosen], head=problem.head
        )
        weights = weights - 0.5 * loss_gradient(part, weights)
        np.testing.assert_allclose(run.history["weights"][step + 1], weights, rtol=1e-12, atol=1e-14)


def test_an_epoch_draws_no_sequence_twice():
    for n, size in ((7, 3), (8, 2), (5, 4)):
        batches = drawn(1, n, size, 5 * (n // size))
        epochs = [np.concatenate(batches[i : i + n // size]) for i in range(0, len(batches), n // size)]
        assert all(len(set(epoch)) == len(epoch) for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) > 1


def test_trials_share_their_mini_batches():
    problems = random_problem(6, 4, 3, 2, batch=(3,))
    together = attsvm.train(problems, steps=40, batch_size=2)
    for i in range(3):
        alone = attsvm.train(problems[i], steps=40, batch_size=2)
        # sums of products are ordered by the number of trials
        np.testing.assert_allclose(together[i].weights, alone.weights, rtol=1e-12, atol=1e-13)


def test_padded_queries_weigh_nothing_in_a_mini_batch():
    rng = np.random.default_rng(3)
    tokens, queries = rng.standard_normal((4, 5, 3)), rng.standard_normal((4, 2, 3))
    mask = np.array([[True, True], [True, False], [False, False], [True, True]])
    problem = attsvm.Problem(tokens, np.ones((4, 2)), queries=queries, head=np.ones(3), query_mask=mask)
    run = attsvm.train(problem, optimizer=optimizers.gradient_descent(1.0), steps=12, batch_size=1, record=range(13))
    for step, (chosen,) in enumerate(drawn(0, 4, 1, 12)):
        before, after = run.history["weights"][step : step + 2]
        # a batch of padded queries alone has no gradient, moves nothing, and ends nothing
        assert (before == after).all() == (chosen == 2)
        kept = mask[chosen]
        if kept.any():
            part = attsvm.Problem(
                np.repeat(tokens[chosen][None], kept.sum(), axis=0),
                np.ones(kept.sum()),
                queries=queries[chosen][kept],
                head=np.ones(3),
            )
            np.testing.assert_allclose(after - before, -loss_gradient(part, before), rtol=1e-11, atol=1e-14)
    assert run.status == "finished"


def test_an_epoch_without_a_gradient_stalls():
    problem = random_problem(6, 4, 3, 0)
    flat = attsvm.Problem(np.repeat(problem.tokens[:, :1], 4, axis=1), problem.labels, problem.queries, problem.head)
    run = attsvm.train(flat, steps=100, batch_size=2)
    assert run.status == "stalled"
    assert run.step < 6


def test_mini_batches_reach_the_att_svm_as_well():
    problem = random_problem(6, 8, 10, 0)
    run = attsvm.train(problem, steps=100_000, batch_size=2, seed=1)
    solution = attsvm.solve_svm(problem, run.selected)
    assert attsvm.margin_ratio(problem, run.weights, run.selected) > 0.99
    assert attsvm.direction_error(run.weights, solution.direction) < 1e-2


@pytest.mark.optimized
def test_a_plateau_of_the_margin_ends_a_trial():
    problems = random_problem(6, 8, 10, 0, batch=(4,))
    starts = np.random.default_rng(0).standard_normal((4, 10, 10))
    tolerance = 1e-3
    run = attsvm.train(problems, steps=1_000_000, init=starts, stop=attsvm.Stopping(margin_tol=tolerance))
    assert (run.status == "converged").all()
    assert len(set(run.step)) > 1
    all_checks = [check for check in sorted({round(2 ** (k / 2)) for k in range(41)}) if check <= run.step.max()]
    history = attsvm.train(problems, steps=all_checks[-1], init=starts, record=all_checks).history
    for i in range(4):
        checks = [check for check in all_checks if check <= run.step[i]]
        again = {name: history[name][: len(checks), i] for name in ("weights", "selected")}
        margins = attsvm.margin(problems[i], again["weights"], run.selected[i])
        lengths = np.linalg.norm(again["weights"], axis=(1, 2))
        # the first check at which a doubling gained less than the tolerance, and no check before it
        for end in range(len(checks)):
            halves = np.flatnonzero(2 * lengths[:end] <= lengths[end])
            same = halves.size and (again["selected"][halves[-1]] == again["selected"][end]).all()
            here = same and abs(margins[end] - margins[halves[-1]]) <= tolerance * margins[end]
            assert here == (end == len(checks) - 1)
        # what is left to gain is about what the last doubling gained
        assert 1 - attsvm.margin_ratio(problems[i], run.weights[i], run.selected[i]) < 5 * tolerance


def test_where_a_run_ends_does_not_depend_on_its_records():
    problem = random_problem(5, 6, 7, 1)
    runs = [
        attsvm.train(problem, steps=500_000, stop=attsvm.Stopping(margin_tol=1e-2), record=record, callback=callback)
        for record, callback in ((50, None), (3, None), ([10, 11, 12], lambda at: None))
    ]
    assert runs[0].status == "converged"
    assert len({run.step for run in runs}) == 1
    for run in runs[1:]:
        np.testing.assert_array_equal(run.weights, runs[0].weights)


def test_a_small_gradient_ends_a_trial_at_once():
    problems = random_problem(5, 6, 7, 2, batch=(3,))
    rule = optimizers.gradient_descent(1.0)
    run = attsvm.train(problems, optimizer=rule, steps=100_000, stop=attsvm.Stopping(gradient_tol=1e-3))
    assert (run.status == "converged").all()
    for i in range(3):
        there = run.weights[i]
        before = attsvm.train(problems[i], optimizer=rule, steps=int(run.step[i]) - 1).weights
        assert np.linalg.norm(loss_gradient(problems[i], there)) <= 1e-3 * (1 + 1e-9)
        assert np.linalg.norm(loss_gradient(problems[i], before)) > 1e-3 * (1 - 1e-9)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"batch_size": 0}, "batch_size: expected an integer from 1 to n = 4, got 0"),
        ({"batch_size": 5}, "batch_size: .* got 5"),
        ({"batch_size": 2.0}, "batch_size: .* got 2.0"),
        ({"stop": 1e-3}, "stop: expected a Stopping, got 0.001"),
        ({"stop": attsvm.Stopping(gradient_tol=1e-3), "batch_size": 2}, "gradient_tol: expected None with batch_size"),
    ],
)
def test_what_is_refused(arguments, said):
    with pytest.raises(attsvm.ProblemError, match=said):
        attsvm.train(random_problem(4, 5, 3, 0), steps=3, **arguments)


@pytest.mark.parametrize("name", ["margin_tol", "gradient_tol"])
@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, [1.0]])
def test_a_tolerance_is_a_number_of_at_least_zero(name, value):
    with pytest.raises(attsvm.ProblemError, match=rf"^{name}: expected a number >= 0, got "):
        attsvm.Stopping(**{name: value})
