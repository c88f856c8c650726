"""The condition on mixtures: closed forms, and a fine grid of mixtures."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import attsvm
from attsvm.heads import MLP, FunctionHead, Quadratic


def test_under_a_linear_head_the_constant_is_the_gap_of_the_scores():
    problem = attsvm.datasets.random_problem(3, 4, 5, 0, batch=(2,))
    found = attsvm.theory.mixture_conditions(problem)
    ordered = np.sort(attsvm.scores(problem), axis=-1)
    np.testing.assert_allclose(found.constants, ordered[..., -1] - ordered[..., -2], rtol=1e-10)
    np.testing.assert_array_equal(found.selected, attsvm.optimal_tokens(problem))
    assert found.holds.all()


@pytest.mark.parametrize(
    ("label", "constant"),
    [
        # v'o − ‖o‖² on the segment from (1, 0) to (0, 1), a token of score −1: both tokens lose to the mixture
        # 1 − s − (1 − s)² − s² = s − 2s² above the best score 0; its slope there is −1
        (1.0, -1.0),
        # for the other label the far end is best: scores 0 and 1, and (1 − (−s + 2s²)) / (1 − s) = 1 + 2s
        (-1.0, 1.0),
    ],
)
def test_a_quadratic_head_on_two_tokens_has_a_closed_form(label, constant):
    problem = attsvm.Problem([[[1.0, 0.0], [0.0, 1.0]]], labels=[label], head=[1.0, 0.0])
    found = attsvm.theory.mixture_conditions(problem, Quadratic(1.0))
    np.testing.assert_allclose(found.constant, constant, rtol=1e-9)
    assert found.holds == (constant > 0)
    assert found.selected.tolist() == [0 if label > 0 else 1]


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("seed", range(3))
def test_no_mixture_of_a_fine_grid_has_a_smaller_ratio(activation, seed):
    problem = attsvm.datasets.random_problem(2, 3, 4, seed)
    head = MLP.random(8, 4, activation=activation, seed=seed)
    found = attsvm.theory.mixture_conditions(problem, head)
    steps = 120
    grid = np.array([(i, j, steps - i - j) for i in range(steps + 1) for j in range(steps + 1 - i)]) / steps

    def outputs(o):
        units = o @ np.asarray(head.hidden).T + np.asarray(head.bias)
        active = np.asarray(jnp.where(units > 0, units, 0.0)) if activation == "relu" else units * norm.cdf(units)
        return active @ np.asarray(head.output)

    for i in range(2):
        g = problem.labels[i] * outputs(grid @ problem.tokens[i])
        best = found.selected[i]
        top = problem.labels[i] * outputs(problem.tokens[i][best])
        rest = 1 - grid[:, best]
        ratio = (top - g[rest > 0]) / rest[rest > 0]
        # the grid has mixtures within 1/120 of the smallest one; the search reaches faces up to shares of 1e-9, and
        # ends near a kink of ReLU
        assert ratio.min() - 0.05 <= found.constants[i] <= ratio.min() + 1e-6


def test_masked_tokens_do_not_count_and_bad_problems_are_refused():
    tokens = np.array([[[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]])
    problem = attsvm.Problem(tokens, labels=[-1.0], head=[1.0, 0.0], mask=[[True, True, False]])
    found = attsvm.theory.mixture_conditions(problem, Quadratic(1.0))
    np.testing.assert_allclose(found.constant, 1.0, rtol=1e-9)
    assert found.mixture.shape == (1, 3)
    with pytest.raises(attsvm.ProblemError, match="problem: expected labels -1 and 1"):
        attsvm.theory.mixture_conditions(attsvm.Problem(tokens, head=[1.0, 0.0]))
    with pytest.raises(attsvm.ProblemError, match="head: expected finite outputs at mixtures"):
        attsvm.theory.mixture_conditions(problem, FunctionHead(lambda w, o: jnp.log(o[0] - 0.5)))
