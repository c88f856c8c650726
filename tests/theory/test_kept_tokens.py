"""Classes and losses under which attention keeps several tokens, and two classes as labels ±1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attsvm
from attsvm.datasets import random_problem
from attsvm.theory.kept_tokens import least_attention


def class_problem(seed, num_classes, n=3, T=4, d=8):
    generator = np.random.default_rng(seed)
    tokens, labels = generator.standard_normal((n, T, d)), generator.integers(0, num_classes, n)
    queries, head = generator.standard_normal((n, d)), generator.standard_normal((num_classes, d))
    return attsvm.Problem(tokens, labels=labels, queries=queries, head=head)


def two_classes(problem):
    """The problem with class numbers, and a second row of the head that a difference removes."""
    other = np.random.default_rng(0).standard_normal(problem.dim)
    head = np.stack([other, other + problem.head])
    return attsvm.Problem(problem.tokens, (problem.labels + 1) // 2, problem.queries, head)


@given(st.integers(0, 2000), st.sampled_from([3, 4, 10]), st.sampled_from([1e-3, 0.3, 1.0, 30.0, 1000.0]))
def test_the_least_attention_meets_the_optimality_conditions_of_the_cross_entropy(seed, num_classes, scale):
    generator = np.random.default_rng(seed)
    scores = scale * generator.standard_normal((5, num_classes, 6))
    allowed = generator.random((5, 6)) < 0.7
    allowed[:, 0] = True
    found = least_attention(scores[:, 1:] - scores[:, :1], allowed)
    assert (found.attention >= 0).all()
    np.testing.assert_allclose(found.attention.sum(axis=1), 1.0, rtol=1e-12)
    assert not found.attention[~allowed].any()
    for attention, of_query, among, kept in zip(found.attention, scores, allowed, found.kept, strict=True):
        np.testing.assert_array_equal(kept, attention > 0)
        outputs = of_query @ attention
        wrong = np.exp(outputs[1:] - outputs[1:].max())
        # the slope of the cross-entropy, which it has up to the positive factor 1 - p_y
        slope = (wrong / wrong.sum()) @ (of_query[1:] - of_query[0])
        size = np.abs(of_query[1:] - of_query[0])[:, among].max()
        best = slope[among].min()
        assert attention @ slope - best <= 1e-6 * size
        assert (slope[kept] <= best + 1e-4 * size).all()


def test_equal_tokens_are_kept_together():
    gaps = np.random.default_rng(1).standard_normal((20, 3, 4))
    kept = least_attention(gaps, np.ones((20, 4), bool)).kept
    twice = least_attention(np.concatenate([gaps, gaps], axis=2), np.ones((20, 8), bool)).kept
    np.testing.assert_array_equal(twice, np.concatenate([kept, kept], axis=1))


@pytest.mark.optimized
def test_runs_with_classes_go_to_the_att_svm_of_what_they_keep():
    problems = [class_problem(seed, 4) for seed in range(8)]
    arrays = {
        name: np.stack([getattr(one, name) for one in problems]) for name in ("tokens", "labels", "queries", "head")
    }
    batch = attsvm.Problem(**arrays)
    optimizer = attsvm.optimizers.normalized_gradient_descent(0.03)
    run = attsvm.train(batch, loss="cross_entropy", optimizer=optimizer, steps=20_000)
    predicted = attsvm.predict_direction(batch, run)
    largest = attsvm.direction_error(run.weights, attsvm.solve_svm(batch, run.selected).direction, axis=(-2, -1))
    direct = attsvm.direction_error(run, predicted)
    without = attsvm.direction_error(run.weights - predicted.finite, predicted.direction, axis=(-2, -1))
    assert np.median(largest) > 0.1
    assert np.median(direct) < 0.03
    assert np.median(without) < np.median(direct)
    checked = {one.name: one.holds for one in predicted.hypotheses}
    assert all(checked[name] for name in ("separable", "drops", "minimum", "attainable", "kept_apart"))
    alone = attsvm.predict_direction(problems[3], run[3])
    np.testing.assert_array_equal(alone.selected, predicted.selected[3])
    optimal = next(one.holds for one in alone.hypotheses if one.name == "locally_optimal")
    assert alone.standing == ("conjecture" if optimal else "none")


def test_a_run_that_drops_a_token_of_the_minimum_keeps_the_rest():
    # token 0 of the first query is kept at the minimum, but is no support token where token 2 is selected alone
    problem = class_problem(41956, 3)
    scores = problem.tokens @ problem.head.T
    own = np.take_along_axis(scores, problem.labels[:, None, None].astype(int), axis=2)
    wrong = np.arange(3) != problem.labels[:, None]
    gaps = np.swapaxes(scores - own, 1, 2)[wrong].reshape(3, 2, 4)
    assert least_attention(gaps, np.ones((3, 4), bool)).kept[0].tolist() == [True, False, True, False]
    run = attsvm.train(problem, loss="cross_entropy", steps=3000)
    predicted = attsvm.predict_direction(problem, run)
    assert predicted.selected[0].tolist() == [False, False, True, False]
    assert attsvm.direction_error(run, predicted) < 0.05
    assert next(one for one in predicted.hypotheses if one.name == "locally_optimal").holds


@pytest.mark.parametrize("loss", ["cross_entropy", attsvm.losses.CrossEntropy()], ids=["name", "object"])
def test_a_run_that_may_keep_sets_is_no_selection_of_single_tokens(loss):
    problem = class_problem(3, 4)
    run = attsvm.train(problem, loss=loss, steps=3000)
    predicted = attsvm.predict_direction(problem, run)
    assert predicted.selected.sum(axis=1).max() > 1
    for call in (attsvm.margin, attsvm.margin_ratio, attsvm.solve_svm):
        with pytest.raises(attsvm.ProblemError, match=r"several tokens .* predict_direction\(problem, run\).selected"):
            call(problem, run)
    # the figure divides by the Att-SVM of the sets, so that its margins are those of the sets, too
    ratio = attsvm.margin_ratio(problem, run, predicted.selected)
    assert attsvm.plot.compare(problem, run, quantity="margin ratio").lines[0].get_ydata()[-1] == pytest.approx(ratio)
    assert ratio > 2 * attsvm.margin_ratio(problem, run, run.selected)


def test_where_nothing_is_dropped_nothing_is_predicted():
    # both tokens are needed: each is right against one of the wrong classes only
    head = np.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]])
    problem = attsvm.Problem([np.eye(2)], labels=[0], queries=[[1.0]], head=head)
    predicted = attsvm.predict_direction(problem, attsvm.train(problem, loss="cross_entropy", steps=50))
    assert predicted.selected.all()
    assert predicted.standing == "none"
    assert not predicted.direction.any()


@pytest.mark.parametrize(("lowest", "several"), [(0.3, True), (1e3, False)])
def test_a_loss_with_a_minimum_on_the_scores_keeps_several_tokens(lowest, several):
    problem = random_problem(3, 4, 8, seed=3)
    run = attsvm.train(problem, loss=lambda m: (m - lowest) ** 2, steps=20_000)
    predicted = attsvm.predict_direction(problem, run)
    assert (predicted.selected.dtype == bool) == several
    assert predicted.standing == "conjecture"
    if several:
        assert predicted.selected.sum(axis=1).max() > 1
        single = attsvm.direction_error(run, attsvm.solve_svm(problem, run.selected))
        assert attsvm.direction_error(run.weights - predicted.finite, predicted.direction) < 0.5 * single


@pytest.mark.parametrize("trained", [False, True])
def test_two_classes_are_predicted_as_labels_of_both_signs(trained):
    problem = random_problem(3, 4, 6, seed=5)
    classes = two_classes(problem)
    run = attsvm.train(classes, loss="cross_entropy", train_head=trained, steps=300)
    twin = attsvm.predict_direction(*attsvm.theory.kept_tokens.as_margins(classes, run))
    found = attsvm.predict_direction(classes, run)
    assert found.selected.dtype.kind == "i"
    np.testing.assert_array_equal(found.direction, twin.direction)
    if not trained:
        alone = attsvm.train(problem, steps=300)
        np.testing.assert_allclose(run.weights, alone.weights, rtol=1e-7, atol=1e-9)
        margins = attsvm.predict_direction(problem, alone)
        np.testing.assert_allclose(found.direction, margins.direction, rtol=1e-9, atol=1e-12)
        assert [str(one) for one in found.hypotheses] == [str(one) for one in margins.hypotheses]
        assert found.standing == margins.standing


SELECTED = [1, 0, 2]
OF_PROBLEM = {
    "scores": lambda p, _: attsvm.scores(p),
    "optimal_tokens": lambda p, _: attsvm.optimal_tokens(p),
    "solve_head": lambda p, _: attsvm.solve_head(p, SELECTED).direction,
    "classify": lambda p, _: attsvm.classify(p, 50 * attsvm.solve_svm(p, SELECTED).direction).breaking,
    "path": lambda p, loss: attsvm.regularization_path(p, [1.0, 20.0], loss=loss).weights,
    "penalties": lambda p, loss: attsvm.regularization.penalty_path(p, [-5.0, -9.0], loss=loss).weights,
    "lipschitz": lambda p, loss: attsvm.theory.lipschitz_constant(p, loss),
    "local": lambda p, loss: attsvm.theory.local_convergence_conditions(p, SELECTED, loss).radius,
    "global": lambda p, loss: attsvm.theory.global_convergence_conditions(p, loss=loss).lipschitz,
    "landscape": lambda p, _: attsvm.theory.landscape_conditions(p).order,
    "joint": lambda p, _: attsvm.theory.joint_conditions(p, SELECTED).swap_ratio,
    "mixture": lambda p, _: attsvm.theory.mixture_conditions(p).constants,
    "decay": lambda p, loss: attsvm.theory.constrained_limit(p, decay=0.1, loss=loss).weights,
}


@pytest.mark.parametrize("name", OF_PROBLEM)
def test_two_classes_mean_what_their_difference_means_and_more_are_refused(name):
    problem, function = random_problem(3, 4, 6, seed=5), OF_PROBLEM[name]
    found, expected = function(two_classes(problem), "cross_entropy"), function(problem, "logistic")
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    message = "because the problem has 4 classes" if name == "scores" else "or two classes, got 4 classes"
    with pytest.raises(attsvm.ProblemError, match=message):
        function(class_problem(0, 4), "cross_entropy")


def test_norms_are_compared_by_accuracy_for_classes():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 48)
    tokens = generator.standard_normal((48, 3, 4))
    tokens[:, 0] += 4 * np.eye(4)[labels]
    problem = attsvm.Problem(tokens, labels=labels, head=np.eye(4)[:3])
    assert attsvm.recommend(problem, norms=["l3"], folds=2).share.min() > 0.9
