"""Conditions do not depend on how a problem is padded, and a query of a single token adds nothing to them."""

import warnings

import numpy as np
import pytest

import attsvm

STARTS = np.random.default_rng(1).standard_normal((5, 4, 4))
FOUND = {
    "lipschitz": lambda problem, best: attsvm.theory.lipschitz_constant(problem),
    "global": lambda problem, best: attsvm.theory.global_convergence_conditions(problem, STARTS),
    "landscape": lambda problem, best: attsvm.theory.landscape_conditions(problem),
    "local": lambda problem, best: attsvm.theory.local_convergence_conditions(problem, best),
    "joint": lambda problem, best: attsvm.theory.joint_conditions(problem, best),
}
NUMBERS = {
    "lipschitz": (),
    "global": ("excess_loss", "score_gap", "slope", "largest_step", "gradient_margin", "start_radius", "descent"),
    "landscape": ("ordered", "all_support"),
    "local": ("opening", "radius", "longest_step", "largest_rate", "support_gap", "widest"),
    "joint": ("label_margin", "score_gap", "swap_ratio", "certified", "relaxed_feasible", "plain_feasible"),
}


@pytest.mark.parametrize("name", FOUND)
def test_padded_queries_and_tokens_change_nothing(name):
    rng = np.random.default_rng(0)
    tokens = [rng.standard_normal((3, 4)), rng.standard_normal((4, 4))]
    queries, head = [rng.standard_normal((1, 4)), rng.standard_normal((2, 4))], rng.standard_normal(4)
    padded = attsvm.Problem.from_sequences(tokens, [np.array([1.0]), np.array([-1.0, 1.0])], queries, head)
    repeated = attsvm.Problem.from_sequences(
        [tokens[0], tokens[1], tokens[1]], [1.0, -1.0, 1.0], np.concatenate(queries), head
    )
    one, other = (FOUND[name](problem, attsvm.optimal_tokens(problem)) for problem in (padded, repeated))
    for number in NUMBERS[name]:
        np.testing.assert_allclose(getattr(one, number), getattr(other, number), rtol=1e-6, atol=1e-9, err_msg=number)
    if name == "lipschitz":
        assert one == pytest.approx(other, rel=1e-12)


def test_problems_of_single_tokens():
    rng = np.random.default_rng(0)
    problem = attsvm.Problem(rng.standard_normal((2, 1, 3)), [1.0, -1.0], rng.standard_normal((2, 3)), rng.random(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert attsvm.theory.lipschitz_constant(problem) == 0
        assert attsvm.theory.global_convergence_conditions(problem).holds
        assert not attsvm.theory.landscape_conditions(problem).holds  # every point is stationary
        assert not attsvm.theory.local_convergence_conditions(problem, [0, 0]).holds
