"""Optimisers in the standard compositions of optax, each beside one of optax, or of its formula, in the same place."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attsvm import ProblemError, optimizers, theory, train
from attsvm.datasets import random_problem

STEPS = 3


def random_tree(seed):
    generator = np.random.default_rng(seed)
    shapes = {"k": (2, 3), "heads": (2, 2, 3), "bias": (2,), "scale": ()}
    return {name: jnp.asarray(generator.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


PARAMS = random_tree(0)
GRADIENTS = [random_tree(1 + step) for step in range(STEPS)]


def few(tree):
    """A matrix and a vector."""
    return {name: tree[name] for name in ("k", "bias")}


# --- the same steps by optax, or by their formulas in single precision


def by_hand(step):
    """A step −η step(g) of each array, or of the whole tree and the parameters."""
    return lambda rate: optax.stateless(lambda g, p: jax.tree.map(lambda x: -rate * step(x), g))


def unit(g, axis=None):
    length = jnp.sqrt(jnp.sum(g * g, axis=axis, keepdims=axis is not None))
    return g / jnp.where(length > 0, length, 1.0)


def of_matrices(step):
    return lambda g: unit(g) if g.ndim < 2 else step(g)


def polar(g):
    left, _, right = jnp.linalg.svd(g, full_matrices=False)
    return jnp.any(g != 0, axis=(-2, -1), keepdims=True) * (left @ right)


def mirror_by_hand(rate):
    def step(gradient, params):
        size = jnp.cbrt(sum(jnp.sum(jnp.abs(g) ** 3) for g in jax.tree.leaves(gradient)))

        def moved(g, x):
            mirror = jnp.sign(x) * jnp.sqrt(jnp.abs(x)) - rate * g / jnp.where(size > 0, size, 1.0)
            return mirror * jnp.abs(mirror) - x

        return jax.tree.map(moved, gradient, params)

    return optax.stateless(step)


UNIT = optax.normalize_by_update_norm(eps=1e-30)

PAIRS = {
    "gradient": (optimizers.gradient_descent, optax.sgd),
    "normalized": (optimizers.normalized_gradient_descent, lambda rate: optax.chain(UNIT, optax.sgd(rate))),
    "mirror": (partial(optimizers.mirror_descent, p=1.5), mirror_by_hand),
    "sign": (partial(optimizers.steepest_descent, norm="linf"), optax.sign_sgd),
    "spectral": (optimizers.spectral_descent, by_hand(of_matrices(polar))),
    "rows": (optimizers.row_descent, by_hand(of_matrices(partial(unit, axis=-1)))),
    "columns": (optimizers.column_descent, by_hand(of_matrices(partial(unit, axis=-2)))),
    "adam": (optimizers.adam, lambda rate: optax.chain(UNIT, optax.adam(rate))),
    "muon": (optimizers.muon, lambda rate: optax.chain(UNIT, optax.contrib.muon(rate))),
    "momentum": (
        lambda rate: optimizers.momentum(optimizers.normalized_gradient_descent(rate)),
        lambda rate: optax.chain(optax.trace(0.9), UNIT, optax.scale(-rate)),
    ),
    "polyak": (lambda rate: optimizers.polyak(), lambda rate: optax.polyak_sgd(1e6, f_min=0.0, eps=0.0)),
}


def in_single(make):
    """The transformation on single precision, with updates in the dtypes of the gradient."""

    def single(tree):
        return jax.tree.map(lambda x: x.astype(jnp.float32), tree)

    def made(rate):
        inner = optax.with_extra_args_support(make(rate))

        def update(gradient, state, params=None, **extra):
            updates, state = inner.update(single(gradient), state, single(params), **extra)
            return jax.tree.map(lambda u, g: u.astype(g.dtype), updates, gradient), state

        return optax.GradientTransformationExtraArgs(lambda params: inner.init(single(params)), update)

    return made


# --- the situations


def cast(tree, dtypes):
    return {name: tree[name].astype(dtype) for name, dtype in dtypes.items()}


def after_steps(transformation, prepare=few):
    """The parameters after some steps in one compiled loop, in which the state has to keep its dtypes."""
    transformation = optax.with_extra_args_support(transformation)

    def step(carry, gradient):
        params, state = carry
        updates, state = transformation.update(gradient, state, params, value=1.0)
        assert [u.dtype for u in jax.tree.leaves(updates)] == [x.dtype for x in jax.tree.leaves(params)]
        return (optax.apply_updates(params, updates), state), None

    def run(params, gradients):
        return jax.lax.scan(step, (params, transformation.init(params)), gradients, length=STEPS)[0][0]

    gradients = [prepare(gradient) for gradient in GRADIENTS]
    return jax.jit(run)(prepare(PARAMS), jax.tree.map(lambda *each: jnp.stack(each), *gradients))


def taking_values(multi_steps):
    """A transformation that passes the loss on, as ``gradient_transformation`` of optax's does not."""
    return optax.GradientTransformationExtraArgs(multi_steps.init, multi_steps.update)


def labels(tree):
    return jax.tree.map(lambda x: "matrix" if x.ndim == 2 else "other", tree)


def is_matrix(tree):
    return jax.tree.map(lambda x: x.ndim == 2, tree)


def of_three_models(make):
    def one(scale):
        step = make(0.1)
        params, gradient = (jax.tree.map(lambda x: scale * x, few(tree)) for tree in (PARAMS, GRADIENTS[0]))
        return step.update(gradient, step.init(params), params, value=1.0)[0]

    return jax.jit(jax.vmap(one))(jnp.arange(1.0, 4.0))


def without_params(make):
    step = optax.with_extra_args_support(make(0.1))
    return jax.jit(lambda gradient, params: step.update(gradient, step.init(params), value=1.0)[0])(
        few(GRADIENTS[0]), few(PARAMS)
    )


SITUATIONS = {
    "a tree": lambda make: after_steps(make(0.1), lambda tree: tree),
    "matrices": lambda make: after_steps(make(0.1), lambda tree: {name: tree[name] for name in ("k", "heads")}),
    "multi_transform": lambda make: after_steps(
        optax.multi_transform({"matrix": make(0.1), "other": optax.adam(0.01)}, labels)
    ),
    "a label that no leaf has": lambda make: after_steps(
        optax.multi_transform({"matrix": optax.sgd(0.1), "other": optax.adam(0.01), "none": make(0.1)}, labels)
    ),
    "masked": lambda make: after_steps(optax.masked(make(0.1), is_matrix)),
    "MultiSteps": lambda make: after_steps(taking_values(optax.MultiSteps(make(0.1), 2))),
    "apply_if_finite": lambda make: after_steps(optax.apply_if_finite(make(0.1), 3)),
    "inject_hyperparams": lambda make: after_steps(
        optax.inject_hyperparams(lambda learning_rate: make(learning_rate))(learning_rate=0.1)
    ),
    "after clipping": lambda make: after_steps(optax.chain(optax.clip_by_global_norm(1.0), make(0.1))),
    "before decay": lambda make: after_steps(optax.chain(make(0.1), optax.add_decayed_weights(-1e-3))),
    "bfloat16": lambda make: after_steps(make(0.1), partial(cast, dtypes=dict.fromkeys(("k", "bias"), jnp.bfloat16))),
    "float16": lambda make: after_steps(make(0.1), partial(cast, dtypes=dict.fromkeys(("k", "bias"), jnp.float16))),
    "two dtypes": lambda make: after_steps(
        make(0.1), partial(cast, dtypes={"k": jnp.bfloat16, "heads": jnp.float32, "bias": jnp.float16})
    ),
    "an empty tree": lambda make: after_steps(make(0.1), lambda tree: {}),
    "zero gradients": lambda make: after_steps(optax.chain(optax.scale(0.0), make(0.1))),
    "vmap over models": of_three_models,
    "a leaf that is None": lambda make: after_steps(make(0.1), lambda tree: {"bias": tree["bias"], "none": None}),
    "no params in update": without_params,
}

REFUSED = {
    ("mirror", "no params in update"): "params: expected the parameters in update",
    # that of optax is refused, too
    ("muon", "no params in update"): "a transformation that requires the current value of parameters",
}


# every fourth pair: each optimizer meets four or five situations, and each situation two or three optimizers; the
# others are left to `make test-long`
MATRIX = [
    pytest.param(name, situation, marks=pytest.mark.long if (row + column) % 4 else ())
    for row, name in enumerate(PAIRS)
    for column, situation in enumerate(SITUATIONS)
]


@pytest.mark.parametrize(("name", "situation"), MATRIX)
def test_compositions_step_as_with_optimizers_of_optax(name, situation):
    ours, beside = PAIRS[name]
    run = SITUATIONS[situation]
    if (name, situation) in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[name, situation]):
            run(ours)
        return
    got, expected = run(ours), run(in_single(beside))
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    # a unit in the last place of half precision in a step
    within = 0.02 if situation in ("bfloat16", "float16", "two dtypes") else 2e-5
    for found, of_optax in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert found.dtype == of_optax.dtype
        np.testing.assert_allclose(np.float32(found), np.float32(of_optax), rtol=within, atol=within)


# --- numbers that JAX traces

CHANGING = {
    "normalized, average": (optimizers.normalized_gradient_descent, {"learning_rate": 0.1, "average": 0.5}),
    "normalized": (optimizers.normalized_gradient_descent, {"learning_rate": 0.1}),
    "normalized, inner": (partial(optimizers.normalized, optax.sgd(0.1)), {}),
    "mirror": (partial(optimizers.mirror_descent, p=3.0), {"learning_rate": 0.1}),
    "steepest": (partial(optimizers.steepest_descent, norm="linf"), {"learning_rate": 0.1, "weight_decay": 0.2}),
    "spectral": (optimizers.spectral_descent, {"learning_rate": 0.1}),
    "spectral, momentum": (optimizers.spectral_descent, {"momentum": 0.5, "weight_decay": 0.1}),
    "polyak": (optimizers.polyak, {"target": 0.5, "longest": 0.1}),
    "polyak, unbounded": (optimizers.polyak, {}),
    "momentum": (partial(optimizers.momentum, optimizers.gradient_descent(0.1)), {"decay": 0.5}),
}


@pytest.mark.parametrize("name", CHANGING)
def test_all_numbers_of_an_optimizer_may_be_traced(name):
    make, numbers = CHANGING[name]
    traced = optax.inject_hyperparams(make, static_args="p" if name == "mirror" else ())(**numbers)
    found, expected = (after_steps(each, lambda tree: tree["k"]) for each in (traced, make(**numbers)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_traced_number_can_be_changed_between_steps():
    traced = optax.inject_hyperparams(optimizers.spectral_descent)(learning_rate=0.1)
    state = traced.init(few(PARAMS))
    state.hyperparams["learning_rate"] = jnp.asarray(0.0)
    updates, state = jax.jit(traced.update)(few(GRADIENTS[0]), state, few(PARAMS))
    assert not any(np.any(update) for update in jax.tree.leaves(updates))


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "polyak"])
def test_a_learning_rate_of_zero_moves_nothing(name):
    optimizer = PAIRS[name][0](0.0)
    updates, _ = optimizer.update(PARAMS["k"], optimizer.init(PARAMS["k"]), PARAMS["k"])
    # mirror descent computes the weights from its mirror variable
    np.testing.assert_allclose(updates, 0.0, atol=1e-7 if name == "mirror" else 0.0)
    # no theorem takes it for a rate that leads to a limit
    assert optimizer.steps.schedule is None


# --- what the state keeps


@pytest.mark.parametrize("name", ["mirror", "momentum", "adam", "muon"])
def test_the_state_of_each_leaf_has_its_dtype(name):
    params = cast(PARAMS, {"k": jnp.bfloat16, "heads": jnp.float32, "bias": jnp.float16})
    state = PAIRS[name][0](0.1).init(params)
    found = {(x.shape, x.dtype.name) for x in jax.tree.leaves(state) if x.ndim}
    # with the attention heads last
    assert found >= {((2, 3), "bfloat16"), ((2, 3, 2), "float32"), ((2,), "float16")}


def test_mirror_descent_steps_from_weights_that_others_have_changed():
    optimizer = optimizers.mirror_descent(0.1, p=1.5)
    first, second = map(few, GRADIENTS[:2])
    _, state = optimizer.update(first, optimizer.init(few(PARAMS)), few(PARAMS))
    # in place of those of its state
    other = few(random_tree(9))
    updates, _ = optimizer.update(second, state, other)
    expected, _ = mirror_by_hand(0.1).update(second, (), other)
    for found, step in zip(jax.tree.leaves(updates), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, step, rtol=1e-4, atol=1e-5)


# --- in training


@pytest.mark.parametrize("make", [optax.sgd, optimizers.normalized_gradient_descent])
def test_training_takes_multi_steps(make):
    problem = random_problem(4, 5, 3, 0)
    every_second = optax.MultiSteps(make(0.1), 2)
    run = train(problem, optimizer=every_second, steps=3)
    # two steps on all sequences have one gradient
    np.testing.assert_allclose(run.weights, train(problem, optimizer=make(0.1), steps=1).weights, rtol=1e-6)
    resumed = train(problem, init=run, steps=1)
    np.testing.assert_allclose(resumed.weights, train(problem, optimizer=make(0.1), steps=2).weights, rtol=1e-5)
    assert optimizers.parse_optimizer(every_second) == optimizers.parse_optimizer(every_second)


# --- what is refused


def update(optimizer, gradient, *params, **given):
    return optimizer.update(gradient, optimizer.init(gradient), *params, **given)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: update(optimizers.polyak(), PARAMS), "value: expected the loss as value= in update"),
        (
            lambda: update(optimizers.normalized(optax.polyak_sgd()), PARAMS),
            "value: expected the loss as value= in update",
        ),
        (
            lambda: update(optimizers.gradient_descent(), jnp.ones(2, jnp.complex64)),
            "expected real numbers, got complex64; wrap the optimiser in optax.contrib.split_real_and_imaginary",
        ),
        (lambda: update(optimizers.mirror_descent(p=3), PARAMS, PARAMS["k"]), "params: expected 4 arrays"),
        (
            lambda: update(optimizers.bilinear_descent(), {"K": PARAMS["k"], "Q": PARAMS["k"]}),
            "params: expected the parameters in update",
        ),
        (lambda: optimizers.mirror_descent(p=1.05).init(jnp.ones(2, jnp.bfloat16)), "p: expected at least .*bfloat16"),
        (
            lambda: after_steps(optax.inject_hyperparams(optimizers.mirror_descent)(p=3.0)),
            "p: expected a constant, got a traced number; list p in the static_args",
        ),
        (lambda: jax.jit(lambda x: optimizers.gradient_descent(x).init(PARAMS))(jnp.ones(2)), "learning_rate"),
        (lambda: theory.earliest_selection(random_problem(4, 5, 3, 0), learning_rate=0.0), "learning_rate: expected"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(call, words):
    with pytest.raises(ProblemError, match=words):
        call()


def test_a_complex_tree_is_stepped_on_by_its_real_and_imaginary_parts():
    optimizer = optax.contrib.split_real_and_imaginary(optimizers.normalized_gradient_descent(0.1))
    updates, _ = update(optimizer, jnp.asarray([3 + 4j], jnp.complex64))
    np.testing.assert_allclose(updates, [-0.06 - 0.08j], rtol=1e-6)
