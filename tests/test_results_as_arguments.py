"""A run, a solution or a prediction may stand wherever weights or a selection may; another type is one line."""

from types import SimpleNamespace

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

import attsvm
from attsvm import plot
from attsvm.datasets import random_problem

PROBLEM = random_problem(4, 5, 6, seed=0)
OTHER = random_problem(4, 5, 6, seed=1)
RUN = attsvm.train(PROBLEM, steps=300)
FACTORED = attsvm.train(PROBLEM, attention="factored", steps=300)
SOLUTION = attsvm.solve_svm(PROBLEM, attsvm.optimal_tokens(PROBLEM))
PREDICTION = attsvm.predict_direction(PROBLEM, RUN)
W, SELECTED = RUN.weights, RUN.selected


def drawn(axes):
    """The numbers that a plot shows."""
    numbers = [x.get_xydata() for axis in np.ravel(axes) for x in axis.lines]
    return [*numbers, *(x.get_offsets() for axis in np.ravel(axes) for x in axis.collections)]


RESULTS = SimpleNamespace(run=RUN, solution=SOLUTION, predicted=PREDICTION, chosen=RUN, best=SOLUTION, found=PREDICTION)
ARRAYS = SimpleNamespace(
    run=W,
    solution=SOLUTION.direction,
    predicted=PREDICTION.direction,
    chosen=SELECTED,
    best=SOLUTION.selected,
    found=PREDICTION.selected,
)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: attsvm.direction_error(x.run, x.solution),
        lambda x: attsvm.correlation(x.predicted, x.run),
        lambda x: attsvm.measures.bregman_divergence(x.solution, x.run, 3.0),
        lambda x: [attsvm.measures.in_cone(x.run, x.solution, opening) for opening in (0.01, 0.5)],
        lambda x: attsvm.margin(PROBLEM, x.solution, x.chosen),
        lambda x: attsvm.solve_svm(PROBLEM, x.chosen, warm_start=x.run).direction,
        lambda x: attsvm.solve_svm(PROBLEM, x.chosen).selected,
        lambda x: attsvm.solve_head(PROBLEM, x.chosen).selected,
        lambda x: attsvm.feasibility(PROBLEM, x.found).solution.direction,
        lambda x: attsvm.classify(PROBLEM, x.solution).largest_dropped,
        lambda x: attsvm.theory.local_convergence_conditions(PROBLEM, x.best).radius,
        lambda x: attsvm.theory.joint_conditions(PROBLEM, x.chosen).swap_ratio,
        lambda x: attsvm.theory.global_convergence_conditions(PROBLEM, x.solution).excess_loss,
        lambda x: attsvm.finite_part(PROBLEM, x.run, x.found).weights,
        lambda x: attsvm.svm.combined_prediction(PROBLEM, x.run, x.chosen).weights,
        lambda x: attsvm.train(PROBLEM, init=x.solution, steps=2).weights,
        lambda x: plot.attention(PROBLEM, x.predicted).images[0].get_array(),
    ],
)
def test_a_result_is_its_weights_or_its_selection(call):
    assert_equal(call(RESULTS), call(ARRAYS))


@pytest.mark.parametrize(
    ("of_results", "of_arrays"),
    [
        (lambda: attsvm.margin(PROBLEM, RUN, norm=1), lambda: attsvm.margin(PROBLEM, W, SELECTED, 1)),
        (lambda: attsvm.margin_ratio(PROBLEM, RUN), lambda: attsvm.margin_ratio(PROBLEM, W, SELECTED)),
        (
            lambda: attsvm.margin_ratio(PROBLEM, PREDICTION),
            lambda: attsvm.margin_ratio(PROBLEM, PREDICTION.direction, PREDICTION.selected),
        ),
        (
            lambda: attsvm.margin_ratio(PROBLEM, FACTORED),
            lambda: attsvm.margin_ratio(PROBLEM, FACTORED.weights, FACTORED.selected, "nuclear"),
        ),
        (lambda: attsvm.margin_ratio(PROBLEM, attsvm.solve_svm(PROBLEM, RUN, norm=1.5)) > 1 - 1e-9, lambda: True),
        (
            lambda: attsvm.theory.factor_ratio(PROBLEM, FACTORED),
            lambda: attsvm.theory.factor_ratio(PROBLEM, FACTORED.parameters, FACTORED.selected),
        ),
        (
            lambda: attsvm.theory.kkt_ratio(PROBLEM, FACTORED, norm="frobenius"),
            lambda: attsvm.theory.kkt_ratio(PROBLEM, FACTORED.parameters, FACTORED.selected, "frobenius"),
        ),
        (lambda: drawn(plot.margins(PROBLEM, RUN)), lambda: drawn(plot.margins(PROBLEM, W, SELECTED))),
        (lambda: drawn(RUN.plot(FACTORED)), lambda: drawn(RUN.plot(FACTORED.weights))),
        (
            lambda: drawn(plot.paths(PROBLEM, RUN)),
            lambda: drawn(plot.paths(PROBLEM, RUN, {"predicted": PREDICTION.direction})),
        ),
        (lambda: drawn(plot.compare(PROBLEM, RUN)), lambda: drawn(plot.compare(PROBLEM, RUN, PREDICTION.direction))),
    ],
)
def test_a_result_is_its_weights_and_its_selection(of_results, of_arrays):
    assert_equal(of_results(), of_arrays())


def assert_equal(of_results, of_arrays):
    for found, expected in zip(*(x if isinstance(x, list) else [x] for x in (of_results, of_arrays)), strict=True):
        np.testing.assert_array_equal(found, expected)
    plt.close("all")


def test_the_batch_axes_of_results_are_no_part_of_a_direction():
    problems = random_problem(4, 5, 6, seed=0, batch=(3,))
    run = attsvm.train(problems, steps=50)
    errors = attsvm.direction_error(run, attsvm.predict_direction(problems, run))
    single = [attsvm.direction_error(run[i], attsvm.predict_direction(problems[i], run[i])) for i in range(3)]
    np.testing.assert_allclose(errors, single, rtol=1e-6)
    assert attsvm.margin_ratio(problems[1], run[1]) == pytest.approx(attsvm.margin_ratio(problems, run)[1])
    assert attsvm.direction_error(run, SOLUTION).shape == (3,)
    # the heads of a run are one direction, although each has a solution of its own
    heads = random_problem(3, 4, 5, seed=0, num_heads=2)
    run = attsvm.train(heads, steps=50)
    solutions = attsvm.solve_svm(heads, run)
    assert solutions.batch_shape == (2,)
    assert attsvm.direction_error(run, solutions) == attsvm.direction_error(run.weights, solutions.direction)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attsvm.direction_error(W, "x"), "b: expected an array of numbers, a Run or a Solution, got str"),
        (lambda: attsvm.correlation(PROBLEM, W), "a: expected an array of numbers, a Run or a Solution, got Problem"),
        (lambda: attsvm.direction_error(W[0], SOLUTION), "b: expected a shape that fits"),
        (lambda: attsvm.direction_error(W, W, axis=2), "b: expected a shape that fits"),
        (
            lambda: attsvm.measures.in_cone({}, W, 0.1),
            "weights: expected an array of numbers, a Run or a Solution, got dict",
        ),
        (lambda: attsvm.margin_ratio(W, PROBLEM, SELECTED), "problem: expected a Problem, got an array"),
        (
            lambda: attsvm.margin_ratio(OTHER, RUN),
            "weights: expected a run of this problem, got one whose weights select",
        ),
        (
            lambda: attsvm.predict_direction(OTHER, RUN),
            "run: expected a run of this problem, got one whose weights select",
        ),
        (lambda: attsvm.margin(PROBLEM, W), r"selected: expected .*optimal_tokens\(problem\), .*, got NoneType"),
        (lambda: attsvm.margin(PROBLEM, RUN, "nuclear"), "selected: expected .*, got str"),
        (lambda: attsvm.solve_svm(PROBLEM, PROBLEM), "selected: expected .*, got Problem"),
        (lambda: attsvm.solve_svm(PROBLEM, RUN, warm_start="x"), "warm_start: expected .*, got str"),
        (lambda: attsvm.finite_part(PROBLEM, "x", RUN), "weights_or_probabilities: expected .*, got str"),
        (lambda: attsvm.theory.local_convergence_conditions(PROBLEM, W), "selected: expected .* type float64"),
        (
            lambda: attsvm.theory.factor_ratio(PROBLEM, W, RUN),
            "parameters: expected a Run or a dict of arrays, got ndarray",
        ),
        (lambda: attsvm.theory.observed_rates(PROBLEM, W), "run: expected a Run, got an array"),
        (lambda: attsvm.train(PROBLEM, init="x"), "init: expected .*, got str"),
        (lambda: RUN.plot("paths"), "target: expected a Problem, .*, got str"),
        (lambda: RUN.plot({"nuclear": SOLUTION}), "target: expected a Problem, .*, got dict"),
        (lambda: plot.compare({"GD": RUN}, PROBLEM), "problem: expected a Problem, got dict"),
        (lambda: plot.compare(PROBLEM, {}), "runs: expected at least one, got none"),
        (lambda: plot.compare(PROBLEM, {"a": SOLUTION}), "runs: expected a Run or a dict of runs by name, got Sol"),
        (lambda: plot.paths(RUN, {"a": SOLUTION}), "problem: expected a Problem, got Run"),
        (lambda: plot.paths(PROBLEM, RUN, SOLUTION), "directions: expected a dict of directions by name, got Sol"),
        (lambda: plot.paths(PROBLEM, RUN, {"a": "b"}), "directions: a: expected .*, got str"),
        (lambda: plot.attention(RUN, PROBLEM), "problem: expected a Problem, got Run"),
        (lambda: plot.margins(RUN, PROBLEM, SELECTED), "problem: expected a Problem, got Run"),
        (lambda: plot.selection(PROBLEM, W), "run: expected a Run, got ndarray"),
    ],
)
def test_another_type_is_one_line(call, message):
    with pytest.raises(attsvm.ProblemError, match=f"^{message}") as found:
        call()
    assert "\n" not in str(found.value)
    assert not plt.get_fignums()
