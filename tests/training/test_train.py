"""What train promises besides the numbers: batches, masks, records, stops, resuming, files."""

import gc
import itertools
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import optax
import pytest

import attsvm
from attsvm import ProblemError, Run, optimizers, train
from attsvm.datasets import random_problem
from attsvm.training import loop, trials
from attsvm.training import session as sessions
from oracles.results import assert_same, assert_survives_a_file


def batch_of(size, **shape):
    problems = [random_problem(4, 5, 3, seed, **shape) for seed in range(size)]
    return attsvm.Problem(
        *(np.stack([getattr(p, x) for p in problems]) for x in ("tokens", "labels", "queries", "head"))
    )


def start(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# --- batches and symmetries


@pytest.mark.parametrize("size", [7, 70])
def test_a_batch_equals_its_members(size):
    # to rounding, not bit for bit: the order in which the compiler adds depends on how many trials lie side by side
    problem, W = batch_of(size), start(size, 3, 3)
    together = train(problem, init=W, steps=40, record=5)
    for i in (0, size // 2, size - 1):
        alone = train(problem[i], init=W[i], steps=40, record=5)
        np.testing.assert_allclose(together[i].weights, alone.weights, rtol=0, atol=1e-12)
        np.testing.assert_allclose(together[i].history["loss"], alone.history["loss"], rtol=1e-12)
        np.testing.assert_array_equal(together[i].selected, alone.selected)
        np.testing.assert_allclose(together[i].probability, alone.probability, rtol=1e-11)
        assert together[i].status == alone.status == "finished"


def test_many_starts_of_one_problem_and_of_a_batch():
    problem, W = batch_of(2), start(6, 2, 3, 3)
    run = train(problem, init=W, steps=10)
    assert run.batch_shape == (6, 2)
    assert run.weights.shape == (6, 2, 3, 3)
    assert run.selected.shape == run.probability.shape == (6, 2, 4)
    assert run.history["weights"].shape == (len(run.history["steps"]), 6, 2, 3, 3)
    shared = train(problem[1], init=W[:, 1], steps=10)
    np.testing.assert_allclose(run.weights[:, 1], shared.weights, rtol=0, atol=1e-13)


def test_a_sequence_of_one_token_changes_only_the_mean_which_a_normalised_step_ignores():
    generator = np.random.default_rng(5)
    sequences = [generator.normal(size=(length, 3)) for length in (2, 5, 3)]
    queries, labels, head = generator.normal(size=(3, 3)), [1, -1, 1], generator.normal(size=3)
    run = train(attsvm.Problem.from_sequences(sequences, labels, queries, head), init=start(3, 3), steps=60)
    single = attsvm.Problem.from_sequences(
        [*sequences, np.ones((1, 3))], [*labels, 1], np.r_[queries, [[1, 2, 3]]], head
    )
    np.testing.assert_allclose(train(single, init=start(3, 3), steps=60).weights, run.weights, rtol=0, atol=1e-12)


def test_several_queries_equal_sequences_that_repeat_the_tokens():
    generator = np.random.default_rng(6)
    tokens, queries = generator.normal(size=(3, 4, 2)), generator.normal(size=(3, 5, 2))
    labels, head = np.sign(generator.normal(size=(3, 5))), generator.normal(size=2)
    mask = np.tril(np.ones((5, 4), dtype=bool))[None].repeat(3, axis=0)
    query_mask = generator.random((3, 5)) < 0.7
    together = attsvm.Problem(tokens, labels, queries, head, mask=mask, query_mask=query_mask)
    rows = np.argwhere(query_mask)
    apart = attsvm.Problem(tokens[rows[:, 0]], labels[query_mask], queries[query_mask], head, mask=mask[query_mask])
    run, other = (train(p, init=start(2, 2), steps=50, train_head=True) for p in (together, apart))
    np.testing.assert_allclose(run.weights, other.weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.parameters["v"], other.parameters["v"], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(run.selected[query_mask], other.selected)
    np.testing.assert_array_equal(run.selected[~query_mask], -1)
    assert run.loss == pytest.approx(other.loss, rel=1e-12)


def test_a_large_problem_takes_the_matrix_path_to_the_same_numbers():
    small = random_problem(3, 4, 5, 0)
    # padding of zeros makes it large without changing it
    pad = [(0, 0), (0, 96), (0, 115)]
    mask = np.zeros((3, 100), dtype=bool)
    mask[:, :4] = True
    large = attsvm.Problem(
        np.pad(small.tokens, pad),
        small.labels,
        np.pad(small.queries, [(0, 0), (0, 115)]),
        np.pad(small.head, (0, 115)),
        mask=mask,
    )
    W = start(5, 5)
    run, other = train(small, init=W, steps=30), train(large, init=np.pad(W, [(0, 115), (0, 115)]), steps=30)
    np.testing.assert_allclose(other.weights[:5, :5], run.weights, rtol=0, atol=1e-12)


# --- records, callbacks, programs


def test_history_holds_the_steps_asked_for():
    problem = random_problem(4, 5, 3, 0)
    run = train(problem, steps=100, record=[0, 7, 100])
    assert run.history["steps"].tolist() == [0, 7, 100]
    np.testing.assert_array_equal(run.history["weights"][0], 0.0)
    np.testing.assert_array_equal(run.history["weights"][-1], run.weights)
    np.testing.assert_array_equal(train(problem, steps=7).weights, run.history["weights"][1])
    assert run.history["loss"][-1] == run.loss
    logs = train(problem, steps=10_000).history["steps"]
    assert logs[0] == 0
    assert logs[-1] == 10_000
    assert len(logs) <= 50
    assert train(problem, steps=0).history["steps"].tolist() == [0]
    assert len(train(problem, steps=500, record=200).history["steps"]) > 100


def test_calls_of_one_step_give_the_same_run_and_keep_what_is_recorded(monkeypatch):
    problem = random_problem(4, 5, 6, seed=3)
    whole = train(problem, steps=60, record=[20, 60])
    monkeypatch.setattr(trials, "_SECONDS_A_CALL", 0.0)
    monkeypatch.setattr(trials, "_CALL_OVER_FIXED", 1)
    calls, held = [], []
    keep = sessions.Session._keep

    def counted(session, results, steps):
        keep(session, results, steps)
        calls.append(len(steps))
        held.append(len(session.observed_steps))

    monkeypatch.setattr(sessions.Session, "_keep", counted)
    run = train(problem, steps=60, record=[20, 60])
    assert len(calls) > 30
    # steps 19, 20, 59 and 60, and the step where the last call ended
    assert max(held) <= 5
    assert run.history["steps"].tolist() == [20, 60]
    for name, values in whole.history.items():
        np.testing.assert_array_equal(run.history[name], values)
    np.testing.assert_array_equal(run.weights, whole.weights)


def test_sequences_that_pad_a_problem_change_nothing(monkeypatch):
    whole = random_problem(31, 5, 4, seed=0)
    mask = np.random.default_rng(0).random((31, 5)) < 0.7
    mask[:, 0] = True
    problem = attsvm.Problem(whole.tokens, whole.labels, whole.queries, whole.head, mask=mask)
    given = train(problem, steps=50)
    monkeypatch.setattr(sessions, "padded_number", lambda number: number)
    exact = train(problem, steps=50)
    assert given.history["selected"].shape[1:] == (31,)
    for name, x in exact.history.items():
        # sums over the sequences are added up in another order
        np.testing.assert_allclose(given.history[name], x, rtol=1e-11, atol=1e-13)


def test_problems_of_34_and_36_sequences_compile_one_program():
    first = train(random_problem(34, 4, 3, seed=0), steps=1)
    known = loop._compiled.cache_info().misses
    train(random_problem(36, 4, 3, seed=0), steps=1)
    assert loop._compiled.cache_info().misses == known
    assert first.selected.shape == (34,)


def test_slices_share_the_tokens_that_their_trials_share(monkeypatch):
    seen = []
    advance = sessions.Session.advance
    monkeypatch.setattr(sessions.Session, "advance", lambda self, *rest: seen.append(self) or advance(self, *rest))
    shared = random_problem(40, 30, 30, seed=0)
    train(shared, init=np.zeros((3, 30, 30)), steps=1)
    first, *others = seen[0].inputs
    assert len(others) == 2
    assert all(other.data.tokens is first.data.tokens and other.data.keys is first.data.tokens for other in others)
    both = np.stack([shared.tokens, random_problem(40, 30, 30, seed=1).tokens])
    train(attsvm.Problem(both, shared.labels, both[:, :, 0], shared.head), steps=1)
    first, other = seen[1].inputs
    assert not np.array_equal(first.data.tokens, other.data.tokens)


def test_numbers_change_without_compiling_anything_anew():
    problem = random_problem(4, 5, 3, 0)
    rate, other = optimizers.normalized_gradient_descent(0.1), optimizers.normalized_gradient_descent(0.02)
    train(problem, optimizer=rate, steps=10, penalty=0.1)
    before = loop._compiled.cache_info().misses
    train(random_problem(4, 5, 3, 1), optimizer=other, steps=300, penalty=0.2, record=7)
    assert loop._compiled.cache_info().misses == before


def test_callback_sees_the_run_advance():
    seen = []
    train(random_problem(4, 5, 3, 0), steps=600_000, callback=seen.append)
    assert seen[-1].step == seen[-1].steps == 600_000
    assert len(seen) > 1
    assert all(a.step < b.step for a, b in itertools.pairwise(seen))
    assert seen[-1].loss <= seen[0].loss
    assert 0 < seen[-1].probability <= 1


# --- stops


def press_ctrl_c(progress):
    if progress.step > 0:
        raise KeyboardInterrupt


@pytest.mark.parametrize("callback", [press_ctrl_c, lambda progress: progress.step > 0], ids=["Ctrl-C", "true"])
def test_a_callback_that_stops_a_run_leaves_what_there_is(callback):
    run = train(batch_of(3), steps=10_000_000, record=[0, 10, 10_000_000], callback=callback)
    assert (run.status == "interrupted").all()
    assert (run.step > 0).all()
    assert (run.step < 10_000_000).all()
    assert run.history["steps"].tolist() == [0, 10]
    assert np.isfinite(run.weights).all()


def test_a_callback_cannot_stop_a_run_at_its_end():
    assert train(batch_of(3)[0], steps=5, callback=lambda progress: True).status == "finished"


def test_a_real_signal_stops_a_long_run():
    import signal

    # a shell's background jobs ignore Ctrl-C, and so would the tests run in one
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1.0, signal.raise_signal, [signal.SIGINT])
    train(batch_of(3), steps=1)
    timer.start()
    began = time.perf_counter()
    run = train(batch_of(3), steps=1_000_000_000)
    timer.join()
    assert (run.status == "interrupted").all()
    assert time.perf_counter() - began < 20


def test_ctrl_c_in_a_callback_of_the_garbage_collector_is_not_lost():
    import gc
    import signal

    def press(phase, _):
        if phase == "start":
            gc.callbacks.remove(press)
            signal.raise_signal(signal.SIGINT)

    def collect(progress):
        if progress.step > 0 and not gc.callbacks.count(press):
            gc.callbacks.append(press)
            gc.collect()

    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert train(batch_of(3)[0], steps=3_000_000, callback=collect).status == "interrupted"


def test_a_trial_that_leaves_the_finite_numbers_stops_alone():
    problem = random_problem(4, 5, 3, 0)

    def update(gradient, state, params, *, log_scale, **extra):
        return {"W": 1e60 * params["W"]}, state

    grow = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    W = np.stack([np.eye(3), 1e-200 * np.eye(3)])
    run = train(problem, init=W, optimizer=grow, steps=8, record=[0, 3, 8])
    assert run.status.tolist() == ["non_finite", "finished"]
    assert run.step.tolist() == [5, 8]
    assert np.isfinite(run.weights).all()
    assert all(np.isfinite(x).all() for x in run.history.values())
    np.testing.assert_allclose(run.weights[1], 1e280 * np.eye(3), rtol=1e-13)


@pytest.mark.parametrize(
    ("scale", "head", "optimizer"),
    [(1e4, None, optimizers.gradient_descent(0.5)), (1.0, np.zeros(3), None)],
    ids=["underflows", "is zero"],
)
def test_a_gradient_that_is_zero_moves_nothing(scale, head, optimizer):
    problem, init = random_problem(4, 5, 3, 0), scale * start(3, 3)
    problem = problem if head is None else problem.with_head(head)
    run = train(problem, optimizer=optimizer, init=init, steps=50)
    assert run.status == "stalled"
    assert run.step == 0
    np.testing.assert_array_equal(run.weights, init)


def test_a_normalised_step_goes_on_where_the_gradient_underflows():
    init = 1e4 * start(3, 3)
    moved = train(random_problem(4, 5, 3, 0), init=init, steps=50)
    assert moved.status == "finished"
    assert np.linalg.norm(moved.weights - init) > 1


def test_logits_past_1e8_are_reported():
    problem = random_problem(4, 5, 3, 0)
    grown = train(problem, optimizer=optimizers.normalized_gradient_descent(1e7), steps=100, record=[0, 1, 50, 100])
    assert grown.precise_until == 50
    assert train(problem, steps=10).precise_until is None


# --- resuming, files


# what a run is begun with, and what has to be given again to resume it
COMPOSED = optimizers.momentum(
    optimizers.normalized(optimizers.mirror_descent(learning_rate=optimizers.Decaying(0.05, 10), p=3.0), scope="each"),
    decay=0.5,
    nesterov=True,
)
NOISY = {"optimizer": optax.noisy_sgd(0.1, key=3)}
ADAM, SCHEDULED = {"optimizer": optax.adam(0.01)}, {"optimizer": optimizers.gradient_descent(lambda k: 1.0 / (k + 1.0))}
BATCHES = {"batch_size": 1, "seed": 2, **ADAM}  # four steps an epoch, one of which is interrupted
RESUMED = {
    "by default": ({}, {}),
    "of optax": (ADAM, ADAM),
    "with keys of random numbers": (NOISY, NOISY),
    "with a schedule": (SCHEDULED, SCHEDULED),
    "of which each is normalized": ({"optimizer": optimizers.normalized_gradient_descent(0.03, scope="each")}, {}),
    "composed": ({"optimizer": COMPOSED}, {}),
    "of factors": ({"attention": "factored", "init": None}, {}),
    "of mini-batches": (BATCHES, BATCHES),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_is_the_longer_run(tmp_path, name):
    problem, (begin, again) = batch_of(3), RESUMED[name]
    begin = {"init": start(3, 3, 3), **begin}
    whole = train(problem, steps=50, record=[0, 10, 18, 35, 50], **begin)
    half = train(problem, steps=18, record=[0, 10, 18], **begin)
    half.save(tmp_path / "run.npz")
    for begun in (half, Run.load(tmp_path / "run.npz")):
        rest = train(problem, init=begun, steps=32, record=[35, 50], **again)
        assert rest.history["steps"].tolist() == [0, 10, 18, 35, 50]
        np.testing.assert_array_equal(rest.weights, whole.weights)
        np.testing.assert_array_equal(rest.history["weights"], whole.history["weights"])
        assert rest.step.tolist() == [50, 50, 50]


def test_a_run_of_an_optimizer_that_no_file_names_needs_it_again(tmp_path):
    problem = random_problem(4, 5, 3, 0)
    train(problem, optimizer=optax.sgd(0.1), steps=10).save(tmp_path / "foreign.npz")
    with pytest.raises(ProblemError, match="optimizer"):
        train(problem, init=Run.load(tmp_path / "foreign.npz"), steps=10)


def test_a_run_survives_its_file(tmp_path):
    run = train(batch_of(2), init=start(2, 3, 3), steps=30, train_head=True)
    loaded = assert_survives_a_file(run, tmp_path)
    assert_same(loaded.precise_until, run.precise_until)
    assert replace(loaded, live_optimizer=None).norm == run.norm
    random_problem(4, 5, 3, 0).save(tmp_path / "problem.npz")
    with pytest.raises(ProblemError, match="run"):
        Run.load(tmp_path / "problem.npz")


def test_indexing_a_batch():
    run = train(batch_of(3), init=start(3, 3, 3), steps=10)
    one = run[1]
    assert one.batch_shape == ()
    assert isinstance(one.loss, float)
    assert isinstance(one.step, int)
    assert one.status == "finished"
    assert one.precise_until is None
    np.testing.assert_array_equal(one.history["weights"], run.history["weights"][:, 1])
    assert run[:2].batch_shape == (2,)
    assert "finished" in repr(one)
    assert "Run(3;" in repr(run)


# --- types, arguments


def test_float32_runs_stay_near_and_return_float32():
    problem = random_problem(4, 5, 3, 0)
    run, exact = train(problem, steps=50, dtype="float32"), train(problem, steps=50)
    assert run.weights.dtype == np.float32
    assert exact.weights.dtype == np.float64
    assert run.parameters["W"].dtype == np.float32
    np.testing.assert_allclose(run.weights, exact.weights, atol=1e-3)


def test_factors_start_from_the_seed_and_compute_the_function_of_their_product():
    problem = random_problem(4, 5, 3, 0)
    run = train(problem, attention="factored", rank=2, seed=3, steps=0)
    assert run.parameters["K"].shape == (3, 2)
    np.testing.assert_array_equal(run.weights, run.parameters["K"] @ run.parameters["Q"].T)
    np.testing.assert_array_equal(train(problem, attention="factored", rank=2, seed=3, steps=0).weights, run.weights)
    assert train(problem, init=run.weights, steps=0).loss == pytest.approx(run.loss, rel=1e-13)


def test_a_prompt_is_the_weights_of_one_query_equal_to_one():
    base = random_problem(4, 5, 3, 0)
    prompt = attsvm.Problem(base.tokens, base.labels, head=base.head)
    combined = attsvm.Problem(base.tokens, base.labels, np.ones((4, 1)), base.head)
    p = train(prompt, steps=30)
    assert p.attention == "prompt"
    np.testing.assert_allclose(p.weights, train(combined, steps=30).weights[:, 0], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"attention": "prompt"}, "attention"),
        ({"attention": "other"}, "attention"),
        ({"rank": 2}, "rank"),
        ({"loss": "hinge"}, "loss"),
        ({"loss": "cross_entropy"}, "loss"),
        ({"steps": -1}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"penalty": np.nan}, "penalty"),
        ({"dtype": "float16"}, "dtype"),
        ({"record": 0}, "record"),
        ({"record": [-1, 2]}, "record"),
        ({"record": [50_000]}, "record"),
        ({"init": np.zeros((2, 2))}, "init"),
        ({"init": np.full((3, 3), np.nan)}, "init"),
        ({"init": {"V": np.zeros((3, 3))}}, "init"),
        ({"init": {"v": np.zeros(3)}}, "init"),
        ({"attention": "factored", "init": np.zeros((3, 3))}, "init"),
        ({"optimizer": "sgd"}, "optimizer"),
        ({"head": 3}, "head"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments, name):
    with pytest.raises(ProblemError, match=name):
        train(random_problem(4, 5, 3, 0), **arguments)


@pytest.mark.parametrize(
    ("name", "same"), [(None, optimizers.normalized_gradient_descent(0.02)), ("adam", optimizers.adam(0.02))]
)
def test_a_learning_rate_is_that_of_the_named_optimizer(name, same):
    problem = random_problem(4, 5, 3, 0)
    run = train(problem, optimizer=name, learning_rate=0.02, steps=20)
    np.testing.assert_array_equal(run.weights, train(problem, optimizer=same, steps=20).weights)
    with pytest.raises(ProblemError, match="learning_rate: expected None with an optimiser object, which has its own"):
        train(problem, optimizer=same, learning_rate=0.1)
    with pytest.raises(ProblemError, match="learning_rate: expected an optimiser with it, because a run is resumed"):
        train(problem, init=run, learning_rate=0.1)


def test_a_chain_names_an_optimizer_of_optax_and_changes_nothing_else():
    problem, lion = random_problem(4, 5, 3, 0), optimizers.chain(optax.lion(0.1), name="lion")
    plain, named = (train(problem, optimizer=o, steps=20) for o in (optax.lion(0.1), lion))
    np.testing.assert_array_equal(plain.weights, named.weights)
    assert (plain.optimizer, named.optimizer, train(problem, init=named, steps=1).optimizer) == (
        "optax",
        "lion",
        "lion",
    )
    assert "lion" in repr(named)


def test_problems_that_lack_something():
    base = random_problem(4, 5, 3, 0)
    with pytest.raises(ProblemError, match="labels"):
        train(attsvm.Problem(base.tokens, queries=base.queries, head=base.head))
    headless = attsvm.Problem(base.tokens, base.labels, base.queries)
    for train_head in (False, True):
        with pytest.raises(ProblemError, match=r'problem\.with_head\("mean"\) in Python fits one'):
            train(headless, train_head=train_head)
    assert train(headless.with_head("mean"), steps=1).step == 1


@pytest.mark.parametrize("options", [{}, {"attention": "factored"}, {"train_head": True}], ids=str)
def test_the_smallest_problems_are_trained_in_float32(options):
    """One token of one entry: less than 1 kB of state, which XLA's CPU compiler treats by a pass of its own."""
    problem = attsvm.Problem(np.ones((1, 1, 1)), [1.0], np.ones((1, 1)), [1.0])
    run = train(problem, dtype="float32", steps=3, **options)
    assert (run.probability == 1).all()
    assert np.isfinite(run.weights).all()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts the mappings of memory as Linux shows them")
def test_programs_that_are_no_longer_kept_give_their_memory_back():
    # a process that has used up its mappings ends with a segmentation fault inside the compiler
    def mappings():
        gc.collect()
        return len(Path("/proc/self/maps").read_text().splitlines())

    train(random_problem(2, 3, 2, 0), steps=1)  # the first one of a process loads more than a program
    loop._compiled.cache_clear()
    before = mappings()
    train(random_problem(2, 3, 2, 0), steps=1)
    taken = (mappings() - before) / loop._compiled.cache_info().currsize
    assert loop.MOST_EXECUTABLES * taken < 65_530 / 2
    loop._compiled.cache_clear()
    assert mappings() - before < taken
