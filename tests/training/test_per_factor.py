"""Normalising K and Q each by itself has a limit of its own; normalising them together has the nuclear one."""

import jax.numpy as jnp
import numpy as np
import pytest

import attsvm
from attsvm import optimizers
from attsvm.datasets import random_problem

pytestmark = pytest.mark.optimized

STEPS = 40_000


@pytest.fixture(scope="module")
def near_nuclear():
    problem = random_problem(6, 8, 10, 1, batch=(3,))
    selected = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_svm(problem, selected, "nuclear")
    left, values, right = np.linalg.svd(solution.direction)
    root = np.sqrt(values)[:, None, :]
    generator = np.random.default_rng(0)
    factors = [x * root for x in (left, np.swapaxes(right, -1, -2))]
    K, Q = (100 * (x + 1e-3 * generator.standard_normal(x.shape)) for x in factors)
    # the same product from factors that are far from balanced
    change = np.eye(10) + 0.2 * generator.standard_normal((10, 10))
    skewed = K @ change, Q @ np.linalg.inv(change).T
    return problem, selected, solution.direction, np.stack([[K, skewed[0]], [Q, skewed[1]]])


def ends(near_nuclear, scope):
    problem, selected, nuclear, (K, Q) = near_nuclear

    def learning_rate(k):
        return jnp.select([k < STEPS / 2, k < 3 * STEPS / 4], [1e-2, 1e-3], 1e-4)

    optimizer = optimizers.normalized_gradient_descent(learning_rate, scope=scope, relative=True)
    run = attsvm.train(problem, attention="factored", optimizer=optimizer, steps=STEPS, init=(K, Q), record=1)
    assert (run.selected == selected).all()
    return run.weights, np.asarray(attsvm.direction_error(run.weights, nuclear, axis=(-2, -1)))


def test_jointly_normalised_factors_stay_at_the_nuclear_solution(near_nuclear):
    _, errors = ends(near_nuclear, "all")
    assert errors.max() < 1e-4


def test_factors_normalised_each_leave_it_for_one_point_whatever_the_start(near_nuclear):
    weights, errors = ends(near_nuclear, "each")
    assert errors.min() > 1e-3
    assert errors.max() < 0.1
    assert attsvm.direction_error(weights[0], weights[1], axis=(-2, -1)).max() < 1e-5
