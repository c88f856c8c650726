"""Training reaches the direction that the theorem names, to more digits the longer it goes on."""

import jax.numpy as jnp
import numpy as np
import pytest

import attsvm
from attsvm import optimizers

pytestmark = [pytest.mark.optimized, pytest.mark.slow]

# the error falls like one over the square of the steps
ENDS = [
    pytest.param((200_000, 7.5e-7), id="200,000"),
    pytest.param((1_000_000, 3e-8), id="1,000,000", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=ENDS)
def long_run(request, reference):
    """Seeds 0, 1 and 4, trained with steps of 0.1, their direction errors (steps, seeds), the end and its bound."""
    steps, _ = request.param
    data = reference("combined_and_factored.npz")
    stacked = {name: np.stack([data[f"s{seed}_{name}"] for seed in (0, 1, 4)]) for name in ("X", "Y", "Z", "v", "W_W0")}
    problem = attsvm.Problem(stacked["X"], stacked["Y"], stacked["Z"], stacked["v"])
    marks = np.unique(np.r_[np.rint(np.geomspace(2_000, steps, 25)), 20_000]).astype(int)
    run = attsvm.train(problem, init=stacked["W_W0"], steps=steps, record=marks)
    direction = attsvm.solve_svm(problem, run.selected).direction
    return run, attsvm.direction_error(run.history["weights"], direction, axis=(-2, -1)), request.param


def test_direction_error_at_20_000_steps_and_at_the_end(long_run):
    run, errors, (_, below) = long_run
    assert (errors[run.history["steps"].tolist().index(20_000)] < 5e-5).all()
    assert (errors[-1] < below).all()


def test_direction_error_falls_over_every_record(long_run):
    run, errors, _ = long_run
    assert len(errors) >= 20
    assert (np.diff(errors, axis=0) < 0).all()
    # the selection is final before the first of these records
    assert (run.history["selected"] == run.selected).all()


def test_the_run_is_finished_and_precise(long_run):
    run, _, (steps, _) = long_run
    assert (run.status == "finished").all()
    assert (run.step == steps).all()
    assert (run.precise_until == -1).all()
    assert (run.probability == 1).all()


def test_a_seed_that_changes_its_selection_late_shows_it_in_the_history(reference):
    data = reference("combined_and_factored.npz")
    problem = attsvm.Problem(*(data[f"s2_{name}"] for name in ("X", "Y", "Z", "v")))
    run = attsvm.train(problem, init=data["s2_W_W0"], steps=100_000, record=[2_000, 20_000, 100_000])
    assert (run.history["selected"][0] != run.selected).any()
    error = attsvm.direction_error(run.weights, attsvm.solve_svm(problem, run.selected).direction)
    assert error < 1e-4


def together(seeds):
    each = [attsvm.datasets.random_problem(6, 8, 10, seed) for seed in range(seeds)]
    names = ("tokens", "labels", "queries", "head")
    return attsvm.Problem(*(np.stack([getattr(one, name) for one in each]) for name in names))


# steps of 1 % of the norm end at 1.4e-4 to 5e-4 after any number of them
@pytest.mark.parametrize(
    ("seeds", "steps", "below"), [(4, 30_000, 8e-5), pytest.param(20, 100_000, 3e-5, marks=pytest.mark.long)]
)
def test_the_default_steps_of_factors_reach_the_nuclear_solution(seeds, steps, below):
    """Each seed starts where it starts by itself."""
    problem = together(seeds)
    init = attsvm.train(problem[0], attention="factored", steps=0)
    init = {name: np.broadcast_to(x, (seeds, *x.shape)) for name, x in init.parameters.items() if name in "KQ"}
    run = attsvm.train(problem, attention="factored", init=init, steps=steps, record=2)
    solution = attsvm.solve_svm(problem, run.selected, "nuclear")
    assert (attsvm.direction_error(run.weights, solution.direction, axis=(-2, -1)) < below).all()


@pytest.mark.parametrize(
    ("norm", "optimizer", "steps", "below"),
    [
        ("frobenius", optimizers.normalized_gradient_descent(lambda k: 0.1 * (1 + k / 100)), 20_000, 1e-6),
        (1.5, optimizers.mirror_descent(learning_rate=lambda k: 0.1 * (1 + k / 100), p=1.5), 50_000, 1e-6),
        (1.75, optimizers.mirror_descent(learning_rate=lambda k: 0.1 * (1 + k / 100), p=1.75), 50_000, 1e-6),
        (3.0, optimizers.mirror_descent(learning_rate=lambda k: 0.1 * (1 + k / 100) ** 1.5, p=3.0), 100_000, 1e-6),
        (
            "nuclear",
            optimizers.normalized_gradient_descent(
                lambda k: jnp.select([k < 20_000, k < 40_000, k < 60_000], [1e-2, 3e-3, 1e-3], 1e-4), relative=True
            ),
            80_000,
            1e-4,
        ),
    ],
    ids=["W", "p=1.5", "p=1.75", "p=3", "KQ"],
)
def test_every_way_of_training_reaches_the_att_svm_of_its_norm(norm, optimizer, steps, below):
    """Four of the twenty seeds of docs/notes/training_limit.md."""
    problem = together(4)
    generator = np.random.default_rng(0)
    factored = norm == "nuclear"
    run = attsvm.train(
        problem,
        attention="factored" if factored else "combined",
        optimizer=optimizer,
        steps=steps,
        record=2,
        init=tuple(generator.standard_normal((4, 10, 10)) for _ in "KQ") if factored else None,
    )
    assert (1 - run.probability).max() < 1e-6
    solution = attsvm.solve_svm(problem, run.selected, norm)
    assert (attsvm.direction_error(run.weights, solution.direction, axis=(-2, -1)) < below).all()
