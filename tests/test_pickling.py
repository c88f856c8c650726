"""Results and optimizers pass between processes: by pickle, and by cloudpickle, which joblib and Dask use."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import cloudpickle
import numpy as np
import optax
import pytest

import attsvm
from attsvm import next_token, theory
from attsvm.datasets import random_problem
from attsvm.optimizers import OPTIMIZERS, adam, parse_optimizer
from attsvm.results import Batched, Result
from oracles.results import assert_same

PROBLEM = random_problem(4, 4, 5, seed=0)
TOKENS = attsvm.optimal_tokens(PROBLEM)
PAIR = attsvm.Problem([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
GRAPH = attsvm.token_graph([[0, 1, 2], [1, 0, 2], [0, 1, 2]], [0, 1, 1])
STEPS = [1, 10, 100, 1000, 10000]
NEEDS: dict[str, dict[str, Any]] = {
    "mirror_descent": {"p": 3},
    "momentum": {"inner": adam(0.1)},
    "normalized": {"inner": adam(0.1)},
    "steepest_descent": {"norm": "spectral"},
}


def trained(optimizer: Any = None) -> attsvm.Run:
    return attsvm.train(PROBLEM, optimizer=optimizer, steps=3)


def margin_report():
    bags = attsvm.datasets.digit_bags(20, 20, seed=0)
    return attsvm.AttentionClassifier(max_steps=3).fit(bags.train, bags.train_labels).margin_report(bags.train)


def inspection():
    torch = pytest.importorskip("torch")
    attention, tokens = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 4, 8)
    return attsvm.inspect.inspect(attention, (tokens, tokens, tokens), workers=1)


MAKERS = {
    "Run": trained,
    "StackRun": lambda: attsvm.Stack(PROBLEM, layers=2).train(steps=3),
    "Solution": lambda: attsvm.solve_svm(PROBLEM, TOKENS, norm="l1.75"),
    "Prediction": lambda: attsvm.predict_direction(PROBLEM, trained()),
    "Classification": lambda: attsvm.classify(PROBLEM, trained()),
    "Conditions": lambda: attsvm.feasibility(PROBLEM, TOKENS),
    "RegularizationPath": lambda: attsvm.regularization_path(PROBLEM, [1.0]),
    "PenaltyPath": lambda: attsvm.regularization.penalty_path(PROBLEM, [0.0]),
    "ConstrainedLimit": lambda: theory.constrained_limit(PROBLEM, radius=1.0),
    "MiniBatchDirection": lambda: theory.mini_batch_direction(PROBLEM, TOKENS, 2),
    "Rate": lambda: theory.convergence_rate(STEPS, np.power(STEPS, -1.0)),
    "Rates": lambda: theory.compare_laws(STEPS, np.power(STEPS, -1.0)),
    "FinitePart": lambda: attsvm.finite_part(PAIR, [[0.5, 0.3, 0.2]], [[True, True, False]]),
    "Combined": lambda: attsvm.svm.combined_prediction(PAIR, [9.0, 8.0], [[True, True, False]]),
    "KeptTokens": lambda: GRAPH.predict([[0, 1, 2], [1, 0]], np.eye(3)),
    "FiniteMinimiser": lambda: GRAPH.finite_minimiser(np.eye(3)),
    "TwoPartRun": lambda: next_token.two_part_descent(GRAPH, np.eye(3), steps=3),
    "MarginProfile": lambda: attsvm.margin_profile(optax.sgd(0.1), seeds=1, steps=8, norms=["l1", "l2"], batch_size=6),
    "Recommendation": lambda: attsvm.recommend(random_problem(12, 4, 3, seed=0), TOKENS_OF_12, norms=["linf"]),
    "MarginReport": margin_report,
    "Inspection": inspection,
}
TOKENS_OF_12 = attsvm.optimal_tokens(random_problem(12, 4, 3, seed=0))


def kinds(of=Batched):
    """The classes of results that the package defines, by name."""
    found = {one.__name__: one for one in of.__subclasses__() if one.__module__.startswith("attsvm.")}
    return found | {name: one for each in found.values() for name, one in kinds(each).items()}


@pytest.mark.parametrize("name", MAKERS)
def test_a_fresh_result_is_the_same_after_pickling(name):
    made = MAKERS[name]()
    assert type(made).__name__ == name
    for way in (pickle, cloudpickle):
        assert_same(way.loads(way.dumps(made)), made)


def test_every_kind_of_result_is_pickled_above():
    assert kinds().keys() - {Result.__name__, "PathResult"} <= MAKERS.keys()


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_an_optimizer_by_name_is_the_same_after_pickling(name):
    made = parse_optimizer(name, **NEEDS.get(name, {}))
    found = pickle.loads(pickle.dumps(made))
    assert (repr(found), found.norm, found.steps) == (repr(made), made.norm, made.steps)
    assert dict(found.numbers) == dict(made.numbers)


def test_runs_and_optimizers_pass_through_a_process():
    sent = [adam(0.1), "spectral_descent"]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(trained, sent))
    for run, optimizer in zip(found, sent, strict=True):
        np.testing.assert_allclose(run.weights, trained(optimizer).weights, rtol=1e-6)
        assert attsvm.train(PROBLEM, init=run, steps=2).step == 5  # its optimizer is rebuilt
