"""The separability conditions of joint training, against margins of convex hulls computed by CVXPY."""

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm.datasets import random_problem


def joint_prompt(slack):
    """Figure 3 of *Max-Margin Token Selection*; with slack one token is not a support vector of the head."""
    kept = [[1.0, 1.0], [1.0, -1.0], [0.5, 1.5 if slack else 1.0]]
    return attsvm.Problem([[[0.0, 0.0], token] for token in kept], labels=[1.0, -1.0, 1.0])


def label_margin(signed):
    """max over unit v of min_i v'(y_i r_i): the distance of 0 from the hull of the rows."""
    shares = cp.Variable(len(signed), nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.norm(signed.T @ shares)), [cp.sum(shares) == 1])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return problem.value, signed.T @ shares.value


def test_margins_and_swaps():
    held = 0
    for seed in range(6):
        problem = random_problem(3, 3, 4, seed)
        selected = attsvm.optimal_tokens(problem)
        found = attsvm.theory.joint_conditions(problem, selected)
        kept = problem.labels[:, None] * problem.tokens[np.arange(3), selected]
        margin, direction = label_margin(kept)
        head = direction / margin**2
        assert found.label_margin == pytest.approx(margin, rel=1e-6)
        slack = kept @ head > 1 + 1e-5
        assert found.slack.tolist() == slack.tolist()
        places = [(i, t) for i in range(3) for t in range(3) if t != selected[i] and not slack[i]]
        gaps = [1 - problem.labels[i] * problem.tokens[i, t] @ head for i, t in places]
        assert found.score_gap == pytest.approx(min(gaps), abs=1e-5)
        ratios = []
        for i, t in places:
            swapped = kept.copy()
            swapped[i] = problem.labels[i] * problem.tokens[i, t]
            ratios.append(label_margin(swapped)[0] / margin)
        # Clarabel's margin of a swap that is not separable is 0 up to its tolerance
        assert found.swap_ratio == pytest.approx(max(ratios), rel=1e-5, abs=1e-5)
        assert found.holds == (min(gaps) > 0 and max(ratios) < 1 and found.relaxed_feasible)
        held += found.holds
    assert 0 < held < 6


def test_a_certificate_covers_all_mixtures_of_one_query():
    generator = np.random.default_rng(0)
    problem = random_problem(2, 3, 4, 0, batch=(60,))
    selected = attsvm.optimal_tokens(problem)
    found = attsvm.theory.joint_conditions(problem, selected)
    certified = np.flatnonzero(found.certified)
    assert 3 < len(certified) < 60
    assert found.holds[certified].sum() == found.relaxed_feasible[certified].sum()
    for index in certified[:4]:
        one = problem[int(index)]
        kept = one.labels[:, None] * one.tokens[np.arange(2), selected[index]]
        for i in np.flatnonzero(~found.slack[index]):
            for _ in range(5):
                mixed = kept.copy()
                mixed[i] = one.labels[i] * generator.dirichlet(np.ones(3)) @ one.tokens[i]
                assert label_margin(mixed)[0] < found.label_margin[index] * (1 + 1e-8)


def test_the_examples_of_the_paper_and_what_breaks_them():
    problem = joint_prompt(True)
    found = attsvm.theory.joint_conditions(problem, [1, 1, 1])
    assert found.holds
    assert found.slack.tolist() == [False, False, True]
    assert not attsvm.theory.joint_conditions(joint_prompt(False), [1, 1, 1]).slack.any()
    # equal tokens of opposite labels cannot be separated
    equal = attsvm.Problem([[[1.0, 0.0], [0.0, 1.0]]] * 2, labels=[1, -1])
    broken = attsvm.theory.joint_conditions(equal, [0, 0])
    assert (broken.holds, broken.label_margin, broken.swap_ratio) == (False, 0.0, np.inf)
    assert "the label margin is positive: does not hold (0)" in repr(broken)
    # several queries for each sequence, and another norm
    many = random_problem(2, 3, 8, 1, num_queries=2)
    found = attsvm.theory.joint_conditions(many, attsvm.optimal_tokens(many), norm=1.75)
    assert found.slack.shape == (2, 2)
    assert found.label_margin == pytest.approx(1 / attsvm.solve_head(many, attsvm.optimal_tokens(many), 1.75).value)


def test_nothing_is_predicted_where_the_conditions_do_not_hold():
    data = joint_prompt(False)
    for selected, standing in (([1, 1, 1], "conjecture"), ([0, 0, 0], "none")):
        # runs that have saturated at a selection, whose head is trained for a few steps
        solution = attsvm.solve_svm(data, selected)
        start = {"p": np.nan_to_num(100 * solution.direction), "v": np.array([-1.0, 0.0])}
        problem = attsvm.Problem(data.tokens, labels=data.labels, head=start["v"])
        run = attsvm.train(problem, steps=30, init=start, train_head=True)
        assert run.selected.tolist() == selected
        assert attsvm.predict_direction(problem, run).standing == standing
