"""The gradient of every head under every parametrisation, entry by entry against arithmetic with enough digits."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attsvm
from attsvm.heads import MLP, FunctionHead, Linear, Quadratic
from attsvm.losses import Loss, parse_loss
from attsvm.training.attention.registry import ATTENTIONS as KINDS
from attsvm.training.attention.registry import parse_attention
from attsvm.training.objective import Objective
from attsvm.training.trials import TrialData
from oracles import training as oracle

N, T, D, C, WIDTH = 2, 3, 2, 3, 4
CURVATURE = 0.3

ATTENTIONS = {
    "combined": {"attention": "combined"},
    "rank 1": {"attention": "factored", "rank": 1},
    "rank above d": {"attention": "factored", "rank": 3},
    "prompt": {"attention": "prompt"},
    "several queries, masked": {"attention": "combined", "num_queries": 3},
    "factored causal with keys": {"attention": "factored", "rank": 2, "num_queries": 3, "key_dim": 3},
    "gain": {"attention": "gain", "key_dim": 3},
    "rotary": {"attention": "rotary", "num_queries": 3},
}

LOSSES = {
    "logistic": "logistic",
    "exponential": "exponential",
    "linear": "linear",
    "sigmoid": Loss(jax.nn.sigmoid, lambda m: -jax.nn.softplus(m) - jax.nn.softplus(-m)),
    "squares": lambda m: 0.5 * (1.0 - m) ** 2,
}


def function(parameters, o):
    return parameters["c"] * jnp.sum(jnp.tanh(parameters["A"] @ o))


# how each is built from random parameters, and how the oracle reads them
HEADS = {
    "linear": (lambda p: Linear(), lambda p, o, a: oracle.linear(p["v"][None], o, a)),
    "classes": (lambda p: Linear(), lambda p, o, a: oracle.linear(p["v"], o, a)),
    "quadratic": (
        lambda p: Quadratic(CURVATURE),
        lambda p, o, a: oracle.quadratic(oracle.exact(CURVATURE), p["v"][None], o, a),
    ),
    "relu": (
        lambda p: MLP(p["hidden"], p["output"], p["bias"]),
        lambda p, o, a: oracle.hidden_layer(oracle.relu, p["hidden"], p["output"][None], p["bias"], o, a),
    ),
    "gelu": (
        lambda p: MLP(p["hidden"], p["output"], activation="gelu"),
        lambda p, o, a: oracle.hidden_layer(oracle.gelu, p["hidden"], p["output"][None], oracle.exact(0), o, a),
    ),
    "relu classes": (
        lambda p: MLP(p["hidden"], p["output"], p["bias"]),
        lambda p, o, a: oracle.hidden_layer(oracle.relu, p["hidden"], p["output"], p["bias"], o, a),
    ),
    "function": (
        lambda p: FunctionHead(function, p),
        lambda p, o, a: oracle.tanh_sum(p["A"], p["c"], o, a),
    ),
}


def head_parameters(name, generator, scale):
    shapes = {
        "linear": {"v": (D,)},
        "classes": {"v": (C, D)},
        "quadratic": {"v": (D,)},
        "relu": {"hidden": (WIDTH, D), "output": (WIDTH,), "bias": (WIDTH,)},
        "gelu": {"hidden": (WIDTH, D), "output": (WIDTH,)},
        "relu classes": {"hidden": (WIDTH, D), "output": (C, WIDTH), "bias": (WIDTH,)},
        "function": {"A": (WIDTH, D), "c": ()},
    }[name]
    return {part: scale * generator.normal(size=shape) for part, shape in shapes.items()}


def random_case(attention, head, seed):
    """A problem and parameters from unsaturated to saturated beyond what floats hold, with small and large outputs."""
    generator = np.random.default_rng(seed)
    saturation, scale = 10.0 ** generator.uniform(-2, 2.3), 10.0 ** generator.uniform(-1, 1.5)
    num_queries, key_dim = attention.get("num_queries"), attention.get("key_dim")
    per_query = (N,) if num_queries is None else (N, num_queries)
    classes = "classes" in head
    of_head = head_parameters(head, generator, scale)
    optional = {}
    if key_dim:
        optional["keys"] = generator.normal(size=(N, T, key_dim))
    if num_queries:
        optional["mask"] = np.broadcast_to(np.tril(np.ones((num_queries, T), dtype=bool)), (*per_query, T))
        optional["query_mask"] = np.array([[True] * num_queries, [True, False, True]])
    if classes or "v" in of_head:
        # a hidden layer is told the number of classes by the problem's head
        optional["head"] = of_head.get("v", np.zeros((C, D)))
    problem = attsvm.Problem(
        generator.normal(size=(N, T, D)),
        generator.integers(C, size=per_query) if classes else generator.choice([-1.0, 1.0], size=per_query),
        generator.normal(size=(*per_query, 2)) if KINDS.find(attention["attention"]).takes_queries else None,
        **optional,
    )
    if attention["attention"] == "rotary":
        problem = problem.with_rotations(generator.normal(size=2), query_positions=generator.normal(size=per_query))
    layer = parse_attention(attention["attention"], problem, attention.get("rank"))
    shapes = layer.shapes(problem)
    root = saturation ** (1 / len(shapes))
    return problem, layer, {name: root * generator.normal(size=x) for name, x in shapes.items()}, of_head


# heads do not depend on the attention, so that the younger parametrizations are tested under few
CASES = [
    (offset, attention, number, head)
    for offset, attention in enumerate(ATTENTIONS)
    for number, head in enumerate(HEADS)
    if attention not in ("gain", "rotary") or head in ("linear", "relu classes")
]


@pytest.mark.parametrize(("offset", "attention", "number", "head"), CASES)
def test_every_entry_of_every_parameter_keeps_its_accuracy(offset, attention, number, head):
    build, oracle_head = HEADS[head]
    loss = "cross_entropy" if "classes" in head else list(LOSSES)[(number + offset) % len(LOSSES)]

    # compiled in half the time; how fast it runs is no matter here
    @partial(jax.jit, compiler_options={"xla_llvm_disable_expensive_passes": True, "xla_backend_optimization_level": 0})
    def evaluate(parameters, fixed, data):
        return objective.evaluate(parameters, fixed, data, 0.0)

    objective = None

    @settings(max_examples=4)
    @given(st.integers(0, 2**32))
    def check(seed):
        nonlocal objective
        problem, layer, parameters, of_head = random_case(ATTENTIONS[attention], head, seed)
        trained = parameters | of_head
        built, parsed = build(of_head), parse_loss(LOSSES.get(loss, loss), problem.num_classes)
        objective = Objective(layer, built, parsed, tuple(built.initial(problem)))
        with jax.enable_x64(True):
            data = TrialData(problem, np.dtype(float)).take(np.arange(1))
            _, found = evaluate({name: x[..., None] for name, x in trained.items()}, {}, data)
            got = {name: np.asarray(x)[..., 0] for name, x in found.gradient.items()}
            scales = {name: float(x[0]) for name, x in found.logs.items()}
        mpmath.mp.dps = 900
        expected, condition = oracle.gradient(problem, trained, oracle_head, loss)
        assert set(got) == set(expected)
        # logits and outputs are rounded before anything else is computed
        relative = mpmath.mpf("1e-12") + 32 * np.finfo(float).eps * condition
        for name, (exact, size) in expected.items():
            scale = mpmath.exp(mpmath.mpf(scales[name]))
            # far below the largest entry of a trial, entries may underflow
            largest = max(np.abs(x).max() for x in trained.values())
            least = mpmath.mpf(np.finfo(float).tiny) * scale * 1e6 * (1 + largest)
            assert np.isfinite(got[name]).all()
            for index in np.ndindex(exact.shape):
                error = abs(mpmath.mpf(float(got[name][index])) * scale - exact[index])
                assert error <= relative * size[index] + least, (name, index, seed, float(error / size[index]))

    check()
