"""Where the loss has no stationary point: the certificates, an exact search in the plane, and the Newton search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attsvm
from attsvm.datasets import random_problem
from attsvm.papers.figures import landscape as figure
from oracles.attention import attention


def slope_along(problem, weights, direction):
    """d/dε of the mean logistic loss at W + εV, and its size without cancellation; plain NumPy."""
    queries = np.ones((len(problem.tokens), 1)) if problem.queries is None else problem.queries
    moved = np.einsum("ntd,de,ne->nt", problem.tokens, direction.reshape(problem.dim, -1), queries)
    shares = attention(problem, weights)
    gamma = problem.labels[:, None] * (problem.tokens @ problem.head)
    output = np.sum(shares * gamma, axis=1)
    terms = shares[:, :, None] * shares[:, None, :] * (gamma[:, :, None] - gamma[:, None, :])
    terms = terms * (moved[:, :, None] - moved[:, None, :]) / (2 * (1 + np.exp(output)))[:, None, None]
    return -terms.sum() / len(gamma), np.abs(terms).sum() / len(gamma)


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_decreases_along_the_certificate_everywhere(seed):
    generator = np.random.default_rng(seed)
    problem = random_problem(3, 3, 2, seed, batch=(30,), prompt=seed == 3)
    found = attsvm.theory.landscape_conditions(problem)
    assert found.ordered.any()
    assert not found.ordered.all()
    for i in np.flatnonzero(found.ordered):
        for scale in (0.1, 1.0, 10.0):
            slope, size = slope_along(
                problem[int(i)], scale * generator.standard_normal(found.order[i].shape), found.order[i]
            )
            # each term has the sign of the sum, up to the tolerance of the linear program
            assert slope <= -size * (1 - 1e-6)
            assert size > 0


def ordered_in_the_plane(problem):
    """Whether some direction of a prompt in the plane orders all logits like the scores: every sector is tried."""
    gamma = problem.labels[:, None] * (problem.tokens @ problem.head)
    sorted_tokens = np.take_along_axis(problem.tokens, np.argsort(gamma, axis=1)[..., None], axis=1)
    rows = (sorted_tokens[:, 1:] - sorted_tokens[:, :-1]).reshape(-1, 2)
    borders = np.arctan2(rows[:, 1], rows[:, 0])[:, None] + np.array([0.5, 1.5]) * np.pi
    borders = np.sort(np.mod(borders.ravel(), 2 * np.pi))
    middles = (borders + np.append(borders[1:], borders[0] + 2 * np.pi)) / 2
    return bool((rows @ np.stack([np.cos(middles), np.sin(middles)]) >= 0).all(axis=0).any())


def test_every_sector_of_the_plane_agrees_with_the_linear_program():
    for n, T in ((1, 3), (2, 2), (2, 3), (3, 2), (1, 4)):
        problem = random_problem(n, T, 2, seed=n + T, batch=(20,), prompt=True)
        found = attsvm.theory.landscape_conditions(problem).ordered
        expected = [ordered_in_the_plane(problem[i]) for i in range(20)]
        assert found.tolist() == expected
        assert n * (T - 1) <= 2 or n == 1 or not all(expected)


def test_independent_queries_and_support_tokens_are_sufficient():
    independent = attsvm.theory.landscape_conditions(random_problem(4, 5, 4, 0, batch=(10,)))
    assert independent.ordered.all()
    # all tokens support: all margins of the Att-SVM are equal
    problem = random_problem(2, 3, 6, 0, batch=(200,))
    found = attsvm.theory.landscape_conditions(problem)
    best = attsvm.optimal_tokens(problem)
    logits = np.einsum("bntd,bde,bne->bnt", problem.tokens, found.solution.direction, problem.queries)
    margins = np.take_along_axis(logits, best[..., None], axis=-1) - logits
    equal = np.array([np.sort(one.ravel())[-1] < 1 + 1e-6 for one in margins])
    assert found.all_support.tolist() == equal.tolist()
    assert 20 < equal.sum() < 200
    assert found.ordered[equal].all()
    # keys on a line whose middle one has the best score cannot be ordered
    keys = np.array([[[0.0], [1.0], [2.0]]])
    line = attsvm.Problem([[[1.0], [3.0], [2.0]]], [1.0], queries=[[1.0]], head=[1.0], keys=keys)
    found = attsvm.theory.landscape_conditions(line)
    assert not found.holds
    assert not found.order.any()
    # ... unless they have to be ordered from one end to the other
    assert attsvm.theory.landscape_conditions(
        attsvm.Problem([[[1.0], [2.0], [3.0]]], [1.0], head=[1.0], keys=keys)
    ).ordered


def test_the_derivatives_of_the_newton_search():
    generator = np.random.default_rng(0)
    features, gamma = generator.standard_normal((3, 4, 5)), generator.standard_normal((3, 4))

    def value(w):
        return jnp.mean(jax.nn.softplus(-jnp.sum(jax.nn.softmax(features @ w, axis=-1) * gamma, axis=-1)))

    def bend(w, direction):
        return direction @ figure._derivatives(w, features, gamma)[1] @ direction

    slope = jax.jit(jax.grad(value))
    with jax.enable_x64(True):
        for scale in (0.1, 1.0, 5.0):
            w = scale * generator.standard_normal(5)
            gradient, hessian = figure._derivatives(jnp.asarray(w), features, gamma)
            np.testing.assert_allclose(gradient, slope(w), atol=1e-14)
            high, low = (np.stack([slope(w + sign * 1e-5 * e) for e in np.eye(5)]) for sign in (1, -1))
            np.testing.assert_allclose(hessian, (high - low) / 2e-5, atol=1e-9)
        points = generator.standard_normal((2000, 5))
        directions = generator.standard_normal((2000, 5))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        bends = jax.jit(jax.vmap(bend))
        # central differences of 1e-4 are exact to about 1e-8
        high, low = (np.asarray(bends(points + sign * 1e-4 * directions, directions)) for sign in (1, -1))
        largest = np.abs(high - low).max() / 2e-4
    assert 0.01 < largest / figure.third_derivative(features, gamma) <= 1
