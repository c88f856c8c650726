"""The cone of local convergence: one step from its border against plain NumPy, and its limits by hand."""

import itertools

import numpy as np
import pytest

import attsvm
from attsvm.datasets import random_problem


def descent(problem, selected, weights):
    """−∇L/‖∇L‖ of the logistic loss for many weights near a selection; sums without cancellation, in plain NumPy."""
    tokens, queries = problem.tokens, problem.queries
    gamma = problem.labels[:, None] * (tokens @ problem.head)
    rows = np.stack([tokens[i, selected[i]] - tokens[i] for i in range(len(tokens))])
    gaps = np.stack([gamma[i, selected[i]] - gamma[i] for i in range(len(tokens))])
    margins = np.einsum("ntd,bde,ne->bnt", rows, weights, queries)
    others = np.arange(tokens.shape[1]) != np.asarray(selected)[:, None]
    attention = np.exp(-np.where(others, margins, 0.0))  # relative to the selected token
    total = attention.sum(axis=-1, keepdims=True)
    lost = np.sum(attention * gaps, axis=-1, keepdims=True) / total
    output = np.stack([gamma[i, selected[i]] for i in range(len(tokens))])[:, None] - lost
    log_size = np.where(others, -margins, -np.inf) - np.logaddexp(0.0, output)
    size = np.exp(log_size - log_size.max(axis=(-2, -1), keepdims=True)) / total
    direction = np.einsum("bnt,ntd,ne->bde", size * (gaps - lost), rows, queries)
    return direction / np.linalg.norm(direction, axis=(-2, -1), keepdims=True)


def correlation(weights, axis):
    return np.sum(weights * axis, axis=(-2, -1)) / np.linalg.norm(weights, axis=(-2, -1))


def in_cone(axis, c, count, generator):
    """Unit weights of correlation at least c with an axis; half of them on the border."""
    away = generator.standard_normal((count, *axis.shape))
    away -= np.sum(away * axis, axis=(-2, -1), keepdims=True) * axis
    away /= np.linalg.norm(away, axis=(-2, -1), keepdims=True)
    cosine = np.where(np.arange(count) % 2, c, generator.uniform(c, 1.0, count))[:, None, None]
    return cosine * axis + np.sqrt(1 - cosine**2) * away


@pytest.mark.parametrize(("n", "T", "d", "seed"), [(2, 3, 4, 0), (3, 4, 4, 1), (2, 5, 3, 2), (2, 2, 2, 3)])
def test_no_step_leaves_the_cone(n, T, d, seed):
    generator = np.random.default_rng(seed)
    problem = random_problem(n, T, d, seed)
    best = attsvm.optimal_tokens(problem)
    tried, other, escaped = 0, 0, 0
    for selected in generator.permutation(list(itertools.product(range(T), repeat=n)))[:16]:
        cone = attsvm.theory.local_convergence_conditions(problem, selected)
        assert cone.holds == cone.locally_optimal
        if not cone.holds:
            continue
        tried += 1
        other += bool((selected != best).any())
        axis = cone.solution.direction / np.linalg.norm(cone.solution.direction)
        unit = in_cone(axis, 1 - cone.opening, 2000, generator)
        for factor in (1.0, 1.5, 10.0):
            weights = factor * cone.radius * unit
            step = cone.longest_step * descent(problem, selected, weights)
            for part in (1.0, 0.01):
                moved = weights + part * step
                # correlations are rounded to 1e-16, and a hundredth of a step moves them by 1e-7 or more
                assert correlation(moved, axis).min() >= 1 - cone.opening - 1e-15
                assert (np.linalg.norm(moved, axis=(-2, -1)) >= factor * cone.radius * (1 - 1e-14)).all()
        # far below the radius it need not hold
        weights = 1e-3 * cone.radius * unit
        moved = weights + 1e-3 * cone.longest_step * descent(problem, selected, weights)
        escaped += bool(correlation(moved, axis).min() < 1 - cone.opening - 1e-9)
    assert tried >= 1
    assert (escaped, other) >= ((1, 1) if T == 4 else (0, 0))


def test_a_better_token_and_the_data_bound_the_opening():
    # one prompt sequence: keys at (0, 0) selected, (−1, 0) worse and supporting, (−x, y) better
    def cone(x, y, **options):
        keys = np.array([[[0.0, 0.0], [-1.0, 0.0], [-x, y]]])
        problem = attsvm.Problem([[[2.0], [1.0], [3.0]]], [1.0], head=[1.0], keys=keys)
        return attsvm.theory.local_convergence_conditions(problem, [0], **options)

    found = cone(3.0, 1.0)
    np.testing.assert_allclose(found.solution.direction, [1.0, 0.0], atol=1e-9)
    assert found.support_gap == pytest.approx(1.0)
    # the margin of the better token, 3 − ε √10, stays above 1
    assert found.widest == pytest.approx((2 / np.sqrt(10)) ** 2 / 2)
    assert 0 < found.opening < found.widest
    assert cone(3.0, 1.0, opening=0.999 * found.widest).radius > 10 * found.radius
    assert not cone(3.0, 1.0, opening=1.001 * found.widest).holds
    assert cone(1.5, 1.0).widest < found.widest
    # where the better token supports, the selection is not locally optimal
    none = cone(1.0, 0.5)
    assert not none.locally_optimal
    assert (none.holds, none.opening, none.radius, none.longest_step) == (False, 0.0, np.inf, 0.0)
    assert none.support_gap == pytest.approx(-1.0)


def test_batches_and_refusals():
    problem = random_problem(2, 3, 4, 0, batch=(5,))
    selected = attsvm.optimal_tokens(problem)
    many = attsvm.theory.local_convergence_conditions(problem, selected)
    one = attsvm.theory.local_convergence_conditions(problem[3], selected[3])
    assert many[3].radius == pytest.approx(one.radius, rel=1e-9)
    assert many[3].largest_rate == pytest.approx(one.largest_rate, rel=1e-6)
    # gradient descent at the largest rate makes no longer steps than the longest one
    axis = one.solution.direction / one.solution.value
    start = one.radius * in_cone(axis, 1 - one.opening, 500, np.random.default_rng(0))
    rule = attsvm.optimizers.gradient_descent(one.largest_rate)
    moved = attsvm.train(problem[3], init=start, optimizer=rule, steps=1).weights - start
    assert 0 < np.linalg.norm(moved, axis=(-2, -1)).max() <= one.longest_step
    with pytest.raises(attsvm.ProblemError, match=r"opening: expected a number between 0 and 0\.5, got 0\.7"):
        attsvm.theory.local_convergence_conditions(problem, selected, opening=0.7)
    with pytest.raises(attsvm.ProblemError, match="selected: expected one token per query, got sets"):
        attsvm.theory.local_convergence_conditions(problem[0], np.array([[True, True, False], [True, False, False]]))
    # three tokens on a line: the middle one cannot be selected
    line = attsvm.Problem([[[1.0], [3.0], [2.0]]], [1.0], head=[1.0], keys=[[[0.0], [1.0], [2.0]]])
    assert not attsvm.theory.local_convergence_conditions(line, [1]).holds
