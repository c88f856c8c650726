"""What a run is compared with: decided trials, solved Att-SVMs of the trained parameters, a norm of its own."""

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import attsvm
from attsvm.errors import ProblemError
from attsvm.norms import Nuclear
from attsvm.optimizers import spectral_descent
from attsvm.results import Status
from attsvm.sweeps import training
from attsvm.sweeps.block import Arguments, Block
from attsvm.sweeps.compute import block_outputs
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.measure import Measure, OfFunction, Output
from attsvm.sweeps.measures import (
    KINDS,
    AllSupport,
    DirectionErrorMeasure,
    KindOfConvergence,
    MarginRatio,
    SupportCount,
)
from attsvm.sweeps.sources import Drawn
from attsvm.sweeps.sources import draw_random as draw


def test_a_run_with_a_fixed_matrix_is_compared_in_its_prompt_and_undecided_trials_are_missing():
    generators = [np.random.default_rng(seed) for seed in range(8)]
    problem = draw(generators, num_sequences=2, num_tokens=3, dim=3, prompt=True)
    train = {"attention": "key_prompt", "fixed": ("W",), "init": "uniform", "steps": 300, "record": 100}
    train |= {"optimizer": "normalized_gradient_descent"}
    block = Block(Drawn(problem), Arguments(train=train, optimizer={"learning_rate": 1.0}), generators)
    decided = block.decided >= 0
    assert decided.sum() > 0
    decided[0] = False  # as if its steps had ended before
    block.decided[0] = -1
    kinds = KindOfConvergence().measure(block)["kind"]
    expected = attsvm.classify(problem, block.run).kind
    assert [KINDS[kind] for kind in kinds] == list(expected)
    error = DirectionErrorMeasure().measure(block)["direction_error"]
    ratio = MarginRatio().measure(block)["margin_ratio"][:, 0]
    count = SupportCount().measure(block)["support_count"]
    for trial in range(8):
        W, p, selected = (block.run.parameters["W"][trial], block.run.parameters["p"][trial], block.run.selected[trial])
        keys = problem.tokens[trial] @ W
        rows = np.array([keys[i, selected[i]] - keys[i, t] for i in range(2) for t in range(3) if t != selected[i]])
        x = cp.Variable(3)
        cp.Problem(cp.Minimize(cp.sum_squares(x)), [rows @ x >= 1]).solve(solver="CLARABEL")
        if x.value is None or not decided[trial]:
            assert np.isnan([error[trial], ratio[trial]]).all()
            assert count[trial] == -1
            continue
        # Clarabel solves to 1e-8
        value = np.linalg.norm(x.value)
        np.testing.assert_allclose(error[trial], 1 - p @ x.value / np.linalg.norm(p) / value, atol=1e-6)
        np.testing.assert_allclose(ratio[trial], (rows @ p).min() / np.linalg.norm(p) * value, atol=1e-6)
        assert count[trial] == (rows @ x.value < 1 + 1e-5).sum()


def test_all_support_where_every_constraint_of_the_svm_is_active():
    generators = [np.random.default_rng(seed) for seed in range(16)]
    problem = draw(generators, num_sequences=2, num_tokens=3, dim=4)
    # in trial 0 nothing is separable, in trial 1 a padded token is no constraint
    queries = problem.queries.copy()
    queries[0, 0] = 0.0
    mask = np.ones(problem.tokens.shape[:-1], bool)
    mask[1, 0, 2] = False
    problem = replace(problem, queries=queries, mask=mask)
    found = AllSupport().measure(Block(Drawn(problem), Arguments(), generators))["all_support"]
    assert not found[0]
    assert 0 < found.sum() < 15
    for trial in range(1, 16):
        best = np.argmax(np.where(mask[trial], attsvm.scores(problem)[trial], -np.inf), axis=-1)
        tokens, queries = problem.tokens[trial], problem.queries[trial]
        rows = [
            np.outer(tokens[i, best[i]] - tokens[i, t], queries[i]).ravel()
            for i in range(2)
            for t in range(3)
            if t != best[i] and mask[trial, i, t]
        ]
        x = cp.Variable(16)
        cp.Problem(cp.Minimize(cp.sum_squares(x)), [np.array(rows) @ x >= 1]).solve(solver="CLARABEL")
        # Clarabel solves to 1e-8
        assert found[trial] == (np.array(rows) @ x.value < 1 + 1e-5).all()


def test_several_heads_are_measured_by_the_loss_and_by_functions_and_refused_by_the_others():
    def draw_heads(generators):
        return attsvm.datasets.random_problem(2, 3, 4, 0, num_heads=2, batch=(len(generators),))

    def largest(problem, run):
        return {"largest": np.abs(run.weights).max(axis=(1, 2, 3))}

    shared = {"trials": 8, "data": draw_heads}
    definition = Definition({"steps": [5]}, ["loss", largest], **shared)
    found = block_outputs(definition, 0, 0)
    run = attsvm.train(draw_heads(range(8)), steps=5)
    np.testing.assert_allclose(found["loss"], run.loss, rtol=1e-12)  # another program may round differently
    np.testing.assert_allclose(found["largest"], np.abs(run.weights).max(axis=(1, 2, 3)), rtol=1e-12)
    with pytest.raises(ProblemError, match=r"^kind: expected problems with one attention head, got 2 heads$"):
        block_outputs(Definition({"steps": [5]}, ["kind"], **shared), 0, 0)


def test_an_inaccurate_svm_is_no_comparison():
    block = Block(Drawn(SimpleNamespace()), Arguments(), [])
    block.decided = np.array([5, 5, 5, -1])
    statuses = np.array([Status.OPTIMAL, Status.INACCURATE, Status.INFEASIBLE, Status.OPTIMAL])
    assert block.comparable(SimpleNamespace(status=statuses)).tolist() == [True, False, False, False]


def test_the_norm_of_a_run_never_depends_on_the_trials_beside_it():
    limit = spectral_descent().limit("factored")
    block = Block(Drawn(SimpleNamespace()), Arguments(), [])
    block.run = SimpleNamespace(limit=limit, optimizer="sgd", attention="factored", history={})
    with pytest.raises(ProblemError, match=r"^svm\.norm: expected the norm .*, because the norm of sgd depends on"):
        _ = block.norm
    block.arguments = Arguments(svm={"norm": "nuclear"})
    assert block.norm == Nuclear()


def test_slack_is_refused():
    with pytest.raises(ProblemError, match=r"expected arguments of the sweep .*, got 'slack'"):
        Definition({"dim": [2]}, ["feasible"], fixed={"slack": 1.0})


def test_codes_are_integers_of_their_range_and_nan_is_missing():
    output = Output(codes=("no", "yes"))
    assert output.stored("x", np.array([0.0, 1.0, np.nan])).tolist() == [0, 1, -1]
    for bad in (0.5, 2.0, np.inf):
        with pytest.raises(ProblemError, match=r"^x: expected integers from -1 to 1, got"):
            output.stored("x", np.array([bad]))
    assert Output(count=True).stored("x", np.array([np.nan, 300.0])).tolist() == [-1, 300]
    for codes in (("not local",), tuple(map(str, range(128)))):
        with pytest.raises(ProblemError, match="codes: expected at most 127 names without spaces"):
            Output(codes=codes)


def test_booleans_of_a_function_are_shares(tmp_path):
    class Large(Measure):
        name = "large"

        def measure(self, block):
            return {"large": block.problem.tokens.max(axis=(1, 2, 3)) > 0.5}

    found = attsvm.sweep({"dim": [3]}, [Large()], trials=8, workers=0, store=tmp_path / "store")
    assert (found.large.dtype, found.large.attrs["interval"]) == ("int8", "wilson")
    assert set(np.unique(found.large)) <= {0, 1}


def test_names_that_would_overwrite_each_other_are_refused(tmp_path):
    with pytest.raises(ProblemError, match=r"^measures: expected outputs with different names, got loss$"):
        Definition({"loss": ["logistic", "exponential"]}, ["loss"])

    class Shadow(Measure):
        name = "shadow"

        def measure(self, block):
            return {"feasible": np.zeros(8)}

    with pytest.raises(ProblemError, match=r"^measures: expected outputs with different names, got feasible$"):
        block_outputs(Definition({"dim": [3]}, ["feasible", Shadow()], trials=8), 0, 0)


def test_an_interrupted_training_is_no_result(monkeypatch):
    problem = attsvm.datasets.random_problem(2, 3, 2, 0)
    run = replace(attsvm.train(problem, steps=10), status=Status.INTERRUPTED)
    monkeypatch.setattr(training, "train", lambda *_, **__: run)
    with pytest.raises(KeyboardInterrupt):
        training.train_to_the_end(problem, {"steps": 50, "record": 10}, seed=0)


@pytest.mark.parametrize("name", ["../victim", "a/b", "..", "__init__", "", "\x1b[2J"])
def test_an_output_of_a_sweep_that_is_no_name_of_a_folder_is_refused(name):
    measure = OfFunction(lambda problem, run: {name: np.zeros(1)})
    with pytest.raises(ProblemError, match="measures: expected names of outputs that are valid names of folders, got"):
        measure.measure(SimpleNamespace(problem=None, run=None))
