"""``attsvm.sweep``: the same bits however it is computed, nothing lost but what was under way, refusals by name."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from scipy.optimize import linprog

import attsvm
from attsvm._utils import progress_display
from attsvm.errors import ProblemError
from attsvm.sweeps.block import Block
from attsvm.sweeps.compute import measured
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.driver import sweep
from attsvm.sweeps.sources import draw_random as draw
from attsvm.sweeps.sources import drawn_block
from attsvm.sweeps.store import open_sweep

pytestmark = pytest.mark.slow

# the learning rate is a number of the compiled program, so that all cells share one
TRAINED = Definition(
    grid={"learning_rate": [0.1, 0.4]},
    fixed={
        "num_sequences": 2,
        "num_tokens": 3,
        "dim": 2,
        "init": "uniform",
        "optimizer": "normalized_gradient_descent",
        "steps": 120,
        "record": 10,
    },
    measures=["kind", "margin_ratio", "decision_step", "direction_error", "loss", "rank"],
    trials=20,
    block=8,
)
SOLVED = Definition(grid={"dim": [1, 2, 5], "num_tokens": [3]}, measures=["feasible"], trials=20, block=8)


def assert_equal_bits(found, expected):
    assert set(found.data_vars) == set(expected.data_vars)
    assert found.done.all()
    for name in expected.data_vars:
        assert found[name].values.tobytes() == expected[name].values.tobytes(), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return sweep(TRAINED, store=tmp_path_factory.mktemp("sweep") / "store", workers=0).load()


def test_workers_and_chunks_change_no_bit_and_a_killed_worker_loses_nothing(undisturbed, tmp_path, monkeypatch):
    from distributed import Client, LocalCluster

    # as in this process: other options of the compiler give other bits
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            pids = list(client.run(os.getpid).values())
        seen = []

        def kill_one_worker(progress):
            if not seen:
                os.kill(pids[0], signal.SIGKILL)
            seen.append(progress)

        arguments = {"scheduler": cluster.scheduler_address, "callback": kill_one_worker}
        found = sweep(TRAINED, store=tmp_path / "store", chunk=8, **arguments).load()
    assert_equal_bits(found, undisturbed)
    assert (seen[-1].step, seen[-1].steps, seen[-1].stage) == (40, 40, "2/2 cells")
    assert found.attrs["chunk"] == 8
    assert undisturbed.attrs["chunk"] == 24
    assert found.attrs["hash"] == undisturbed.attrs["hash"] == TRAINED.hash


def test_undecided_trials_are_those_of_the_same_training_and_missing_in_averages(undisturbed):
    arguments, generators = TRAINED.arguments(0), TRAINED.generators(0, 0)
    problem = draw(generators, **arguments.data)
    block = Block(drawn_block(problem, 8), arguments, generators, TRAINED.training_seed(0, 0))
    start = np.stack([each.uniform(-(2**-0.5), 2**-0.5, (2, 2)) for each in _after_drawing(problem, arguments)])
    run = attsvm.train(problem, init=start, steps=120, record=10, optimizer="normalized_gradient_descent")
    # to the bit: the starts are drawn after the problems, and each trial makes its own steps
    np.testing.assert_array_equal(run.weights, block.run.weights)
    decided = undisturbed.decision_step.values[0, :8]
    undecided = undisturbed.kind.values[0, :8] == list(attsvm.theory.Kind).index("undecided")
    assert 0 < undecided.sum() < 8
    np.testing.assert_array_equal(decided < 0, undecided)
    # by hand: a trial is decided once the probabilities of all its selected tokens stay above 1 - 1e-6
    saturated = (run.history["probability"] >= 1 - 1e-6).all(axis=(2, 3) if run.history["probability"].ndim == 4 else 2)
    for trial in np.flatnonzero(~undecided):
        first = len(saturated) - np.argmin(saturated[::-1, trial]) if not saturated[:, trial].all() else 0
        assert decided[trial] == run.history["steps"][first]
    for name in ("margin_ratio", "direction_error"):
        assert np.isnan(undisturbed[name].values[0, :8][undecided]).all(), "undecided trials do not enter averages"
    assert (undisturbed.steps.values[0, :8] == 120).all()


def _after_drawing(problem, arguments):
    generators = TRAINED.generators(0, 0)
    np.testing.assert_array_equal(draw(generators, **arguments.data).tokens, problem.tokens)
    return generators


def test_in_memory_it_has_the_same_bits_and_needs_no_extra(undisturbed, monkeypatch):
    for name in ("dask", "distributed", "xarray", "zarr"):
        monkeypatch.setitem(sys.modules, name, None)  # importing them fails
    found = measured(TRAINED)
    assert set(found) == set(undisturbed.data_vars) - {"done"}
    for name, array in found.items():
        assert array.tobytes() == undisturbed[name].values.tobytes(), name


def test_in_this_process_it_needs_no_dask(tmp_path, monkeypatch):
    for name in ("dask", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    assert sweep(SOLVED, store=tmp_path / "store", workers=0).done.all()
    with pytest.raises(ProblemError, match=r"attsvm\.sweep needs dask: pip install 'attsvm\[sweep\]'"):
        sweep(SOLVED, store=tmp_path / "other", workers=1)


def test_a_trial_is_drawn_from_its_own_seed_and_feasibility_is_that_of_a_linear_program(tmp_path):
    found = sweep(SOLVED, store=tmp_path / "store", workers=0)
    assert found.feasible.dims == ("dim", "num_tokens", "trial")
    n, T = 6, 3
    for cell, d in enumerate([1, 2, 5]):
        for trial in (0, 7, 8, 19):
            seeds = np.random.SeedSequence(0, spawn_key=(cell, trial))
            numbers = np.random.default_rng(seeds).standard_normal(n + d + n * T * d + n * d)
            labels, head, tokens, queries = np.split(numbers, np.cumsum([n, d, n * T * d]))
            tokens, queries = tokens.reshape(n, T, d), queries.reshape(n, d)
            # lengths matter for the order of scores alone, and for no sign
            tokens /= np.linalg.norm(tokens, axis=-1, keepdims=True)
            best = np.argmax(np.where(labels >= 0, 1, -1)[:, None] * (tokens @ head), axis=1)
            rows = [
                np.outer(tokens[i, best[i]] - tokens[i, t], queries[i]).ravel()
                for i in range(n)
                for t in range(T)
                if (tokens[i, t] != tokens[i, best[i]]).any()  # equal tokens are one
            ]
            rows = np.reshape(rows, (-1, d * d))
            solved = linprog(np.zeros(d * d), -rows, -np.ones(len(rows)), bounds=(None, None))
            assert found.feasible.values[cell, 0, trial] == (solved.status == 0)
    # the bound is that of the infeasible trials alone, and so is its mean
    np.testing.assert_array_equal(np.isnan(found.bound), found.feasible != 0)
    assert found.bound.min() >= 1e12


def test_killed_at_any_moment_it_continues_and_a_second_client_is_refused(tmp_path):
    store = tmp_path / "store"
    options = ["--grid", "dim=1,2,5", "--grid", "num_tokens=3", "--measure", "feasible", "--block", "8"]
    command = [sys.executable, "-m", "attsvm", "sweep", *options, "--trials", "160", "--chunk", "8"]
    running = subprocess.Popen([*command, "--workers", "0", "--out", store], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while len(list(store.glob("data.zarr/done/c/*/0/*"))) < 3:
        assert running.poll() is None, running.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    running.send_signal(signal.SIGSTOP)  # it lives, and commits nothing more
    definition = Definition({"dim": [1, 2, 5], "num_tokens": [3]}, ["feasible"], trials=160, block=8)
    with pytest.raises(ProblemError, match="another process is running this sweep"):
        sweep(definition, store=store, workers=0)
    running.kill()
    running.communicate()
    left = attsvm.open_sweep(store).load()
    assert 0 < left.done.sum() < 480
    assert left.attrs["command"].startswith("attsvm sweep --grid dim=1,2,5")
    assert (left.feasible.values[~left.done.values] == -1).any()
    counts = []
    found = sweep(definition, store=store, workers=0, callback=lambda progress: counts.append(progress.step))
    assert counts[0] == left.done.sum()
    assert_equal_bits(found, sweep(definition, store=tmp_path / "other", workers=0, chunk=80).load())


def test_a_store_of_another_sweep_or_version_is_refused_by_name(tmp_path, monkeypatch):
    store = tmp_path / "store"
    sweep(SOLVED, store=store, workers=0)
    with pytest.raises(ProblemError, match="one of another sweep: its seed is 0 and not 1"):
        sweep(SOLVED, store=store, workers=0, seed=1)
    monkeypatch.setattr("attsvm.sweeps.store.__version__", "9.0.0")
    with pytest.raises(ProblemError, match=r"of attsvm 9\.0\.0, got one of attsvm \d"):
        sweep(SOLVED, store=store, workers=0)
    (store / "sweep.json").unlink()
    for call in (partial(sweep, SOLVED, store=store, workers=0), partial(open_sweep, store)):
        with pytest.raises(ProblemError, match=r"expected the folder of a sweep, got one without sweep\.json"):
            call()
    shutil.rmtree(store)
    found = sweep(SOLVED, store=store, workers=0, trials=40, block=16)
    assert (found.feasible.shape, (found.feasible.values >= 0).all()) == ((3, 1, 40), True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(ProblemError, match=r"got one with notes\.txt"):
        sweep(SOLVED, store=tmp_path / "mine", workers=0)
    assert os.listdir(tmp_path / "mine") == ["notes.txt"]


def test_a_chunk_that_fails_three_times_is_recorded_and_tried_again_by_the_next_call(tmp_path):
    broken = tmp_path / "broken"
    broken.touch()
    calls = []

    class Largest(attsvm.sweeps.Measure):
        name = "largest"

        def measure(self, block):
            calls.append(block.problem.dim)
            if block.problem.dim == 2 and broken.exists():
                raise ArithmeticError("cannot do two")
            return {"largest": block.problem.tokens.max(axis=(1, 2, 3))}

    arguments = {"store": tmp_path / "store", "trials": 8, "workers": 0}
    with pytest.warns(RuntimeWarning, match="1 chunk failed, the first one with ArithmeticError: cannot do two"):
        found = attsvm.sweep({"dim": [1, 2, 5]}, [Largest()], **arguments)
    assert calls == [1, 2, 2, 2, 5]
    assert found.done.values.all(axis=1).tolist() == [True, False, True]
    assert np.isnan(found.largest.values[1]).all()
    assert np.isfinite(found.largest.values[::2]).all()
    [error] = json.loads(found.attrs["errors"])
    assert (error["cell"], error["trials"], error["attempts"]) == ({"dim": 2}, [0, 8], 3)
    assert error["error"] == "ArithmeticError: cannot do two"
    assert 'raise ArithmeticError("cannot do two")' in error["traceback"], "the line that failed"
    broken.unlink()
    found = attsvm.sweep({"dim": [1, 2, 5]}, [Largest()], **arguments)
    assert found.done.all()
    assert found.attrs["errors"] == "[]"


def test_the_command_runs_and_refuses(command, tmp_path, monkeypatch):
    # a line at each change, not after seconds
    monkeypatch.setattr(progress_display, "SECONDS_A_STAGE", 0.0)
    monkeypatch.setattr("attsvm.cli.messages.SECONDS_A_LINE", 0.0)
    options = ["--grid", "dim=1,2", "--measure", "feasible", "--trials", 20, "--set", "num_tokens=3", "--workers", 0]
    status, printed, said = command("sweep", *options, "--out", tmp_path / "store")
    assert status == 0
    assert "2/2 cells, 40/40" in said.splitlines()[-1]
    assert "40 of 40 trials in 2 cells: bound, feasibility_status, feasible, gap" in printed
    status, _, said = command("sweep", *options, "--seed", 1, "--out", tmp_path / "store")
    assert (status, "of another sweep: its seed is 0 and not 1" in said) == (2, True)
    status, _, said = command("sweep", *options, "--grid", "dim=3", "--out", tmp_path / "other")
    assert (status, "--grid: expected each name once, got dim twice" in said) == (2, True)
    assert command("sweep", "phase-globe", "--out", tmp_path / "other")[0] == 2
    for wrong, expected in {
        ("--device", "cuda"): "device: expected one of those available here, 'cpu', got 'cuda'",
        ("--scheduler", "tcp://nowhere:1"): "workers: expected None with a scheduler",
        ("--grid", "num_sequences=2,x"): "num_sequences: expected values that the sweep can use, got 'x'",
    }.items():
        status, _, said = command("sweep", *options, *wrong, "--out", tmp_path / "other")
        assert (status, expected in said) == (2, True)
    assert not (tmp_path / "other").exists()


def test_a_learning_rate_without_an_optimizer_is_that_of_the_default():
    definition = Definition(grid={"learning_rate": [0.1, 0.2]}, measures=["loss"], trials=8)
    assert definition.arguments(1).of_train()["optimizer"].arguments["learning_rate"] == 0.2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grid": {"dims": [2]}}, "expected arguments of the sweep .*, got 'dims'"),
        ({"grid": {"rank": [2]}}, r"rank: expected one of train\.rank, svm\.rank"),
        ({"grid": {"dim": []}}, "dim: expected a sequence of values"),
        ({"fixed": {"dim": 2}}, "dim: expected in the grid or among the fixed arguments, not in both"),
        ({"measures": ["kinds"]}, "measure: expected a name .*, got 'kinds'"),
        ({"measures": ["kind=3"]}, "kind: expected no arguments, got '3'"),
        ({"block": 12}, "block: expected a multiple of 8, got 12"),
        ({"trials": 0}, "trials: expected an integer >= 1, got 0"),
    ],
)
def test_bad_definitions_are_refused_by_name(changes, said):
    with pytest.raises(ProblemError, match=said):
        SOLVED.changed(**changes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cluster": "tcp://10.0.0.1:8786"}, r"cluster: expected .*, got another keyword; did you mean scheduler\?"),
        ({"source": "random"}, r"source: .* did you mean data\?"),
        ({"trails": 8}, r"trails: .* did you mean trials\?"),
        ({"other": 8}, "other: expected one of trials, data, fixed, seed, block, name, summary, got"),
        (
            {"data": lambda rng, *, dim=2: None},
            r"data: expected .* draw\(generators, \.\.\.\), got .* is rng",
        ),
    ],
)
def test_other_keywords_and_functions_are_refused_with_what_is_meant(options, said, tmp_path):
    with pytest.raises(ProblemError, match=said):
        sweep({"dim": [2]}, ["feasible"], store=tmp_path / "store", workers=0, **options)
