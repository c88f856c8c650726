"""Predictions say "proved" or "measured" only where every hypothesis holds: each is broken in turn."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import optax
import pytest
import scipy

import attsvm
from attsvm import optimizers
from attsvm.datasets import random_problem
from attsvm.optimizers import Decaying, gradient_descent, mirror_descent
from attsvm.results import NOT_RECORDED
from attsvm.theory import Standing
from attsvm.theory.measured import Found, enough, table
from oracles.attention import mean_loss

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def failing(prediction):
    return [one.statement for one in prediction.hypotheses if one.holds is False]


def named(prediction):
    """The hypotheses by their names, of which no two are equal."""
    found = {one.name: one for one in prediction.hypotheses}
    assert len(found) == len(prediction.hypotheses)
    return found


@pytest.fixture(scope="module")
def in_a_cone():
    """A problem, a start in the cone of its optimal tokens, and a learning rate that the theorem allows."""
    problem = random_problem(3, 4, 5, 0, prompt=True)
    cone = attsvm.theory.local_convergence_conditions(problem, attsvm.optimal_tokens(problem))
    rate = 0.9 * min(1 / attsvm.theory.lipschitz_constant(problem), cone.largest_rate)
    return problem, 1.01 * cone.radius * cone.solution.direction / cone.solution.value, rate


def test_gradient_descent_in_a_cone_is_proved_and_each_broken_hypothesis_is_named(in_a_cone):
    problem, start, rate = in_a_cone
    run = attsvm.train(problem, init=start, optimizer=gradient_descent(rate), steps=20)
    proved = attsvm.predict_direction(problem, run)
    assert proved.standing is Standing.PROVED
    assert all(one.holds for one in proved.hypotheses)
    assert np.abs(run.weights - start).max() > 0
    assert "local convergence" in proved.source
    smooth = named(proved)["rate_of_loss"]
    assert smooth.number == pytest.approx(rate * attsvm.theory.lipschitz_constant(problem), rel=1e-12)

    def broken(name, **options):
        options = {"init": start, "optimizer": gradient_descent(rate), "steps": 20} | options
        found = attsvm.predict_direction(problem, attsvm.train(problem, **options))
        assert found.standing is not Standing.PROVED
        assert any(name in statement for statement in failing(found)), failing(found)
        first = next(one.name for one in found.hypotheses if one.holds is False)
        assert first in repr(found)
        return found

    assert broken("at least 2 steps", steps=1).standing is Standing.NONE
    broken("uses all sequences", batch_size=2)
    broken("not normalized", optimizer=gradient_descent(Decaying(rate, 100)))
    broken("at most 1/L", optimizer=gradient_descent(1.01 / attsvm.theory.lipschitz_constant(problem)))
    broken("in a cone", init=0.9 * start)
    broken("despite rounding", init=10 * start)
    # a run of another problem, and one from a file that lacks what a prediction depends on
    other = attsvm.predict_direction(replace_head(problem), run)
    assert other.standing is not Standing.PROVED
    for name in ("batch_size", "penalty", "loss_name", "weight_decay", "data_hash"):
        assert attsvm.predict_direction(problem, replace(run, **{name: NOT_RECORDED})).standing is not Standing.PROVED
    unknown = replace(run.limit, steps=replace(run.limit.steps, schedule=None))
    assert attsvm.predict_direction(problem, replace(run, limit=unknown)).standing is not Standing.PROVED


def replace_head(problem):
    return attsvm.Problem(problem.tokens, problem.labels, head=1.5 * problem.head)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("locally optimal", {"optimizer": gradient_descent(lambda k: 1e-3 / (1 + k) ** 2)}),
        ("locally optimal", {"optimizer": gradient_descent(1e6), "steps": 300}),
        ("at least 2 steps", {"steps": 0}),
        ("at least 2 steps", {"steps": 1}),
        ("uses all sequences", {"batch_size": 1}),
        ("uses all sequences", {"batch_size": 1, "penalty": 0.1}),
        ("add up to infinity", {"learning_rate": Decaying(1.0, 100, 2)}),
    ],
)
def test_nothing_is_predicted_where_runs_go_elsewhere(name, options):
    problem = random_problem(6, 5, 8, 0)
    found = attsvm.predict_direction(problem, attsvm.train(problem, **{"steps": 2000, **options}))
    assert found.standing is Standing.NONE
    assert any(name in statement for statement in failing(found))


def test_hypotheses_on_functions_of_the_user_are_not_checked():
    problem = random_problem(6, 5, 8, 0)
    run = attsvm.train(problem, loss=lambda m: (m - 1) ** 2, optimizer=gradient_descent(lambda k: 0.3), steps=200)
    assert (run.loss_name, run.limit.steps.schedule) == ("custom", None)
    loss = named(attsvm.predict_direction(problem, run))["decreasing_loss"]
    assert loss.holds is None
    # samples show that it decreases over the scores, which are below 1, with this least slope
    gamma = attsvm.scores(problem)
    assert loss.number == pytest.approx(np.min(2 * (1 - gamma)), rel=1e-6)


def test_a_run_is_measured_only_within_the_range_of_the_table():
    problem = random_problem(
        6, 8, 10, 32109
    )  # with a run that has not reached the cone in which it is proved to converge
    run = attsvm.train(problem)
    found = attsvm.predict_direction(problem, run)
    assert found.standing is Standing.MEASURED
    assert (run.batch_size, run.penalty, run.loss_name, run.limit.steps.constant) == (None, 0.0, "logistic", 0.1)
    assert (run.weight_decay, run.start, run.dtype) == (0.0, "zeros", "float64")
    key = (run.limit.steps.family, "combined", "frobenius", "fixed head", "one", "all", "softmax")
    row = next(row for row in table() if row.key == key and not row.batch and not row.momentum[1])
    few, (least, largest) = row.num_steps[0], row.logit_change
    changed = run.history | {"logit_change": np.full_like(run.history["logit_change"], 2 * largest)}
    slower = run.history | {"logit_change": np.full_like(run.history["logit_change"], least / 10)}
    for outside, advice in (
        (attsvm.train(problem, steps=few - 1), f"take at least {few:,} steps"),
        (replace(run, history=changed), "use a learning rate of about 0.05 "),
        (replace(run, history=slower), "use a learning rate of about 1 "),
    ):
        found = attsvm.predict_direction(problem, outside)
        assert (found.standing, advice in found.source) == (Standing.CONJECTURE, True)
    # relative steps make the weights grow exponentially, so that more steps are enough
    relative = attsvm.train(problem, attention="factored", steps=1000)
    assert attsvm.predict_direction(problem, relative).source.endswith("take at least 5,000 steps")
    absolute = attsvm.train(problem, attention="factored", optimizer="normalized_gradient_descent", steps=1000)
    assert "by relative=True" in attsvm.predict_direction(problem, absolute).source
    # without a known norm nor decay, an optimizer of optax is never more than a conjecture
    foreign = attsvm.train(problem, optimizer=optimizers.normalized(optax.sgd(0.1, momentum=0.5)), steps=few)
    assert attsvm.predict_direction(problem, foreign, "frobenius").standing is Standing.CONJECTURE


def test_mini_batches_have_rows_of_their_own():
    problem = random_problem(6, 8, 10, 0)
    descent = optimizers.normalized_gradient_descent(lambda k: 0.1 * (1 + k / 100))
    standings = {
        size: attsvm.predict_direction(
            problem, attsvm.train(problem, optimizer=descent, batch_size=size, steps=100_000)
        ).standing
        for size in (1, 2, 4)
    }
    # batches of 2 were measured with growing steps, and with 4 of 6 sequences nothing was measured
    assert standings == {1: Standing.NONE, 2: Standing.CONJECTURE, 4: Standing.NONE}


def test_a_run_that_was_continued_with_other_settings_is_not_judged_by_its_end():
    problem = random_problem(6, 8, 10, 0)
    first = attsvm.train(problem, batch_size=1, steps=20_000)
    mixed = attsvm.train(problem, init=first, batch_size=6, steps=10)
    assert (mixed.batch_size, mixed.penalty) == (NOT_RECORDED, 0.0)
    assert attsvm.predict_direction(problem, mixed).standing in (Standing.CONJECTURE, Standing.NONE)
    assert attsvm.train(problem, init=attsvm.train(problem, steps=10), steps=10).batch_size is None


def test_an_infeasible_graph_is_not_proved():
    contexts = [[0, 1, 2], [1, 2, 3]]
    graph = attsvm.token_graph(contexts, [1, 2], num_tokens=4)
    assert not graph.is_cyclic
    problem = graph.training_problem(np.array([[0.0], [1.0], [3.0], [2.0]]))  # 1 > 0, 2 and 2 > 1, 3 on a line
    run = attsvm.train(problem, loss="token", optimizer=gradient_descent(1e-3), steps=50)
    found = attsvm.predict_direction(problem, run)
    assert (found.status, found.standing) == ("infeasible", Standing.NONE)


def test_a_penalty_is_predicted_by_the_minimiser_next_to_the_run():
    problem = random_problem(6, 5, 8, 0)
    smooth = attsvm.theory.lipschitz_constant(problem)

    def objective(flat, penalty):
        return mean_loss(problem, flat.reshape(8, 8)) + penalty * flat @ flat

    for penalty, proved in ((0.6 * smooth, True), (0.02 * smooth, False)):
        run = attsvm.train(problem, penalty=penalty, optimizer=gradient_descent(1.0), steps=3000)
        found = attsvm.predict_direction(problem, run)
        oracle = scipy.optimize.minimize(objective, run.weights.ravel(), (penalty,), method="BFGS", tol=1e-9).x
        # finite differences of a loss near 0.7 give a gradient of about 1e-8, and the curvature is about the penalty
        np.testing.assert_allclose(found.point.ravel(), oracle, atol=1e-7 / penalty)
        assert found.distance == pytest.approx(np.linalg.norm(run.weights - found.point), rel=1e-9)
        assert found.standing is (Standing.PROVED if proved else Standing.CONJECTURE)
        np.testing.assert_array_equal(found.direction, found.point)
    # mirror descent ends at the same point; K and Q lose all weights; a trained head is not covered
    mirror = attsvm.train(problem, penalty=0.6 * smooth, optimizer=mirror_descent(p=3, normalize=False), steps=3000)
    assert attsvm.predict_direction(problem, mirror).standing is Standing.CONJECTURE
    factored = attsvm.train(problem, attention="factored", penalty=1.0, steps=3000)
    assert np.abs(attsvm.predict_direction(problem, factored).point).max() < 1e-6
    joint = attsvm.train(problem, train_head=True, penalty=0.1, steps=100)
    found = attsvm.predict_direction(problem, joint)
    assert (found.standing, found.point) == (Standing.NONE, None)


def test_plain_gradient_descent_on_graphs_without_cycles_is_proved():
    rng = np.random.default_rng(3)
    vocabulary = rng.standard_normal((6, 8))
    graphs = {}
    while len(graphs) < 2:
        contexts = [rng.permutation(6)[:4] for _ in range(6)]
        graph = attsvm.token_graph(contexts, [rng.choice(context) for context in contexts], num_tokens=6)
        graphs[graph.is_cyclic] = graph
    for cyclic, graph in graphs.items():
        problem = graph.training_problem(vocabulary)
        lengths = np.linalg.norm(problem.queries, axis=-1)
        # a rate far below 1/L, whose bound is a quarter of the largest squared distance times ‖z‖²
        rate = 0.1 / np.max(lengths**2 * np.max(np.sum(vocabulary**2, axis=-1)))
        for factor, proved in ((1.0, not cyclic), (1e4, False)):
            options = {"loss": "token", "optimizer": gradient_descent(factor * rate), "steps": 50}
            found = attsvm.predict_direction(problem, attsvm.train(problem, **options))
            # 50 steps from zero are too few to be near the limit
            assert found.standing is not Standing.PROVED
            assert ("covered by" in found.source) == proved
            start = 5 * found.solution.direction / found.solution.value + (0 if found.finite is None else found.finite)
            near = attsvm.predict_direction(problem, attsvm.train(problem, init=start, **options))
            assert (near.standing is Standing.PROVED) == proved


def test_a_file_of_version_0_2_is_never_proved(in_a_cone, tmp_path):
    problem, start, rate = in_a_cone
    attsvm.train(problem, init=start, optimizer=gradient_descent(rate), steps=20).save(tmp_path / "run.npz")
    new = ("batch_size", "penalty", "loss_name", "weight_decay", "start", "dtype")
    arrays = dict(np.load(tmp_path / "run.npz"))
    meta = json.loads(arrays["__meta__"].tobytes())
    for name in (*new, "data_hash"):
        del meta[name]
    meta["limit"]["steps"] = "gradient descent"
    arrays["__meta__"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(tmp_path / "old.npz", **arrays)
    run = attsvm.Run.load(tmp_path / "old.npz")
    assert {getattr(run, name) for name in (*new, "data_hash")} == {NOT_RECORDED}
    assert attsvm.predict_direction(problem, run).standing is Standing.CONJECTURE


def test_the_table_names_kinds_of_steps_and_commands_that_exist():
    for row in table():
        script = next(word for word in shlex.split(row.command) if word.endswith(".py"))
        assert (ROOT / script).is_file()
        assert row.num_steps[0] <= row.num_steps[1]
        assert row.logit_change[0] <= row.logit_change[1]
        if row.found is Found.MEASURED:
            assert min(row.first[0], row.last[0]) >= enough()
    same = {(row.key, row.decay, row.momentum, row.batch, row.sequences) for row in table()}
    assert len(same) == len(table())


def test_the_note_shows_the_table():
    note = (ROOT / "docs" / "notes" / "standings.md").read_text("utf-8")
    assert f"mean margin ratio of at least {enough():g}" in " ".join(note.split())
    rows = [row for row in table() if not row.batch]  # the note on mini-batches has the others
    main = [row for row in rows if "optax." not in str(row.steps)]
    of_optax = [row for row in rows if "optax." in str(row.steps)]
    lines, lines_of_optax = (_cells(part) for part in note.split("\n## Optimisers of optax\n"))
    assert len(lines) == len(main)
    for cells, row in zip(lines, main, strict=True):
        assert [cells[0], *cells[2:]] == [str(row.steps), row.norm, str(row.found), _values(row), _steps(row)]
    shown = [
        ([f"{prefix}optax.{name}", attention, norm, steps], result)
        for name, attention, norm, *results, steps in lines_of_optax
        for prefix, result in zip(("normalized ", ""), results, strict=True)
    ]
    expected = [
        ([str(row.steps), row.attention, row.norm, _steps(row)], f"{row.found} {_values(row)}") for row in of_optax
    ]
    assert sorted(shown) == sorted(expected)


def _cells(part):
    """The rows of the first table of a part of the note."""
    lines = [line for line in part.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _values(row):
    return "{:.3f} / {:.3f}".format(*row.last)


def _steps(row):
    return f"{row.num_steps[-1]:,}"


def test_a_number_that_misses_its_bound_does_not_look_like_it():
    for number, shown in ((0.92084, "0.9208"), (0.5, "0.5"), (0.921, "0.921"), (float("inf"), "inf")):
        assert str(attsvm.theory.Hypothesis("near", "at least 0.921", False, number)).endswith(f"({shown})")
    assert str(attsvm.theory.Hypothesis("near", "at least 0.921", None, float("nan"))).endswith("(nan)")
