"""Optimisers: each step against its formula, far below the smallest float, composed, and written to files."""

from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attsvm
from attsvm import ProblemError, Run, optimizers, train
from attsvm.datasets import random_problem
from attsvm.norms import Norm, parse_norm
from attsvm.optimizers.gradient import GradientDescent
from attsvm.optimizers.mirror import Mirror
from attsvm.optimizers.potential import Power
from attsvm.optimizers.registry import configuration, from_configuration
from attsvm.optimizers.singular import singular_values_and_vectors
from attsvm.optimizers.sizes import power, signed_power, steepest
from attsvm.optimizers.steepest import Steepest
from attsvm.optimizers.transformations import LearningRate, Normalize
from attsvm.training import LossGradient
from oracles import steps as oracle
from oracles.attention import mean_loss
from oracles.outside_norms import ValueOnly, unit_rows


def growing(step):
    return 0.1 * (1 + step)


# each optimizer with its steps by definition
SCALE_FREE = {
    "normalized": (optimizers.normalized_gradient_descent(0.1), oracle.descent(0.1, normalize=True)),
    "normalized each": (
        optimizers.normalized_gradient_descent(0.1, scope="each"),
        oracle.descent(0.1, normalize=True, scope="each"),
    ),
    "normalized relative": (
        optimizers.normalized_gradient_descent(0.1, relative=True),
        oracle.descent(0.1, normalize=True, relative=True),
    ),
    "mirror 1.75": (optimizers.mirror_descent(learning_rate=0.1, p=1.75), oracle.mirror_descent(1.75, 0.1)),
    "mirror 3 relative": (
        optimizers.mirror_descent(learning_rate=0.1, p=3.0, relative=True),
        oracle.mirror_descent(3.0, 0.1, relative=True),
    ),
    "sign": (optimizers.steepest_descent(learning_rate=0.1, norm="linf"), oracle.steepest_descent("linf", 0.1)),
    "coordinate": (optimizers.steepest_descent(learning_rate=0.1, norm="l1"), oracle.steepest_descent("l1", 0.1)),
    "spectral": (
        optimizers.steepest_descent(learning_rate=0.1, norm="spectral"),
        oracle.steepest_descent("spectral", 0.1),
    ),
    "polyak": (optimizers.polyak(longest=0.5), oracle.polyak(0.0, 0.5)),
    "momentum": (
        optimizers.momentum(optimizers.normalized_gradient_descent(0.1), 0.8),
        oracle.momentum(oracle.descent(0.1, normalize=True), 0.8, nesterov=False),
    ),
    "nesterov": (
        optimizers.momentum(optimizers.normalized_gradient_descent(0.1), 0.8, nesterov=True),
        oracle.momentum(oracle.descent(0.1, normalize=True), 0.8, nesterov=True),
    ),
    "adam, normalized": (optimizers.normalized(optax.adam(0.1)), oracle.adam(0.1)),
    "muon, normalized": (optimizers.normalized(optax.contrib.muon(0.1)), oracle.muon(0.1)),
}
SCALED = {
    "plain": (optimizers.gradient_descent(0.1), oracle.descent(0.1)),
    "plain relative": (optimizers.gradient_descent(0.1, relative=True), oracle.descent(0.1, relative=True)),
    "mirror plain": (
        optimizers.mirror_descent(learning_rate=0.1, p=1.75, normalize=False),
        oracle.mirror_descent(1.75, 0.1, normalize=False),
    ),
    "steepest plain": (
        optimizers.steepest_descent(learning_rate=0.1, norm="linf", normalize=False),
        oracle.steepest_descent("linf", 0.1, normalize=False),
    ),
    "heavy ball": (
        optimizers.momentum(optimizers.gradient_descent(0.1), nesterov=True),
        oracle.momentum(oracle.descent(0.1), 0.9, nesterov=True),
    ),
}
# of these, no files are written
UNWRITTEN = {
    "a schedule": (
        optimizers.mirror_descent(learning_rate=growing, p=2.0),
        oracle.mirror_descent(2.0, growing),
    ),
    # sign descent on the gradient divided by its joint ℓ2 norm: N*(g) = ‖g‖₁ is no longer 1
    "a joint norm before signs": (
        optimizers.chain(Normalize(), LearningRate(0.1), Steepest("linf")),
        oracle.normalized(oracle.steepest_descent("linf", 0.1, normalize=False), "all"),
    ),
}
STEPS = SCALE_FREE | SCALED | UNWRITTEN
OPTAX = {"adam": optax.adam(0.1), "muon": optax.contrib.muon(0.1)}


def tree(seed, scale=1.0):
    """Parameters as optax's users have them: nested, of several shapes."""
    generator = np.random.default_rng(seed)
    return {
        "layer": [scale * generator.normal(size=(4, 3)), scale * generator.normal(size=(2,))],
        "head": scale * generator.normal(),
    }


# compiled in half the time; how fast it runs is no matter here
quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
begin = cache(lambda optimizer: quickly(optimizer.init))
move = cache(lambda optimizer: quickly(optimizer.update))


def one_update(optimizer, gradient, params, log_scale=0.0, value=1.0, state=None):
    with jax.enable_x64(True):
        # arrays of a dtype, also of the numbers in a tree, so that all trees share one program
        gradient, params = jax.tree.map(partial(np.asarray, dtype=np.float64), (gradient, params))
        state = begin(optimizer)(params) if state is None else state
        scales = jax.tree.map(lambda _: np.float64(log_scale), gradient)
        updates, state = move(optimizer)(gradient, state, params, value=value, log_scale=scales)
        return jax.tree.map(np.asarray, updates), state


def leaves(of_tree):
    return [np.asarray(x) for x in jax.tree.leaves(of_tree)]


def members(of_tree):
    """The leaves by their places, each with the oracle's axis of one member."""
    return {place: x[None] for place, x in enumerate(leaves(of_tree))}


# --- each step against its formula


@pytest.mark.parametrize(
    ("log_scale", "rtol", "atol"), [(0.0, 1e-13, 1e-14), (-3000.0, 1e-11, 1e-14), (-1e5, 1e-10, 1e-13)]
)
@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=2)
@given(st.integers(0, 10**6))
def test_steps_are_what_their_formula_says_on_any_tree_at_any_scale(name, log_scale, rtol, atol, seed):
    optimizer, by_definition = STEPS[name]
    params, state, expected_state = tree(seed), None, None
    for step in range(5):
        gradient = tree([seed, step], scale=10.0 ** (-2 * step))
        slopes = oracle.Slopes(members(gradient), dict.fromkeys(range(3), mpmath.mpf(log_scale)))
        theta = members(params)
        after, expected_state = by_definition(theta, slopes, np.ones(1), expected_state, step)
        updates, state = one_update(optimizer, gradient, params, log_scale=log_scale, state=state)
        assert jax.tree.structure(updates) == jax.tree.structure(gradient)
        for place, got in enumerate(leaves(updates)):
            np.testing.assert_allclose(got, after[place][0] - theta[place][0], rtol=rtol, atol=atol)
            if name in SCALED and log_scale == -1e5:
                np.testing.assert_allclose(got, 0.0, atol=1e-15)
        params = jax.tree.map(np.add, params, updates)


def test_every_registered_optimizer_is_a_public_name():
    """``__init__.pyi`` lists it, so ``attsvm.optimizers`` has it, and its API page must."""
    assert set(optimizers.OPTIMIZERS.names()) <= set(optimizers.__all__)


@pytest.mark.parametrize("name", STEPS)
def test_a_zero_gradient_moves_nothing(name):
    gradient = jax.tree.map(np.zeros_like, tree(0))
    params = tree(1)
    updates, _ = one_update(STEPS[name][0], gradient, params)
    for got, x in zip(leaves(updates), leaves(params), strict=True):
        # the mirror variable is stepped on, so θ returns to rounding
        np.testing.assert_allclose(got, 0.0, atol=4e-15 * np.abs(x).max())


def test_a_small_parameter_beside_a_large_one_steps_by_itself_at_full_length():
    gradient = {"a": 1e-250 * np.ones((2, 2)), "b": 1e200 * np.ones((2, 2))}
    params = {"a": np.ones((2, 2)), "b": np.ones((2, 2))}
    for optimizer in (
        optimizers.normalized_gradient_descent(0.1, scope="each"),
        optimizers.steepest_descent(learning_rate=0.1, norm=2),
    ):
        updates, _ = one_update(optimizer, gradient, params)
        np.testing.assert_allclose(updates["a"], -0.05)
        np.testing.assert_allclose(updates["b"], -0.05)


@pytest.mark.parametrize("shape", [(4, 3), (5,)])
@pytest.mark.parametrize("name", ["l1", "l1.25", "l2", "l3", "linf", "spectral", "nuclear"])
def test_the_steepest_direction_has_norm_one_and_reaches_the_dual_norm(name, shape):
    generator = np.random.default_rng(len(name))
    gradients = generator.normal(size=(30, *shape))
    gradients[10:20] = np.round(2 * gradients[10:20])  # ties and zeros
    if len(shape) == 2:
        gradients[20:] = gradients[20:, :, :1] * gradients[20:, :1]  # rank one
    gradients /= np.abs(gradients).max(axis=tuple(range(1, gradients.ndim)), keepdims=True)
    norm = parse_norm(name)
    with jax.enable_x64(True):
        trials_last = jnp.asarray(np.moveaxis(gradients, 0, -1))
        directions = np.moveaxis(np.asarray(quickly(lambda g: steepest(norm, g))(trials_last)), -1, 0)
    np.testing.assert_allclose(norm.values(directions, len(shape)), 1.0, rtol=1e-12)
    reached = np.sum(directions * gradients, axis=tuple(range(1, gradients.ndim)))
    np.testing.assert_allclose(reached, norm.dual.values(gradients, len(shape)), rtol=1e-12)


@pytest.mark.parametrize("norm", ["spectral", "nuclear"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_singular_directions_of_the_smallest_matrices_are_trained_along(norm, shape, dtype):
    """Such loops are small enough that XLA's CPU compiler would treat them by a pass that fails on barriers."""
    generator = np.random.default_rng(0)
    problem = attsvm.Problem(
        generator.normal(size=(4, 3, shape[0])), np.ones(4), generator.normal(size=(4, shape[1])), np.ones(shape[0])
    )
    start = generator.normal(size=shape)
    descent = optimizers.steepest_descent(norm=norm, learning_rate=0.1)
    run = train(problem, optimizer=descent, init=start, steps=1, dtype=dtype)
    gradient = LossGradient(problem)({"W": start[None]})[0]["W"][0]
    left, _, right = np.linalg.svd(gradient, full_matrices=False)
    rank = 1 if norm == "nuclear" else len(right)
    expected = start - 0.1 * left[:, :rank] @ right[:rank]
    np.testing.assert_allclose(run.weights, expected, rtol=0, atol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize(("rows", "columns", "rank"), [(1, 1, 1), (7, 4, 3), (3, 6, 3)])
def test_singular_values_and_vectors(rows, columns, rank):
    generator = np.random.default_rng(rows * columns)
    matrices = generator.normal(size=(6, rows, rank)) * 10.0 ** generator.uniform(-12, 0, size=(6, 1, rank))
    matrices = matrices @ generator.normal(size=(6, rank, columns))
    matrices[5] = 0.0
    matrices[:5] /= np.abs(matrices[:5]).max(axis=(1, 2), keepdims=True)
    with jax.enable_x64(True):
        found = quickly(singular_values_and_vectors)(jnp.asarray(np.moveaxis(matrices, 0, -1)))
    left, values, right = map(np.asarray, found)
    np.testing.assert_allclose(np.einsum("rkb,kb,ckb->brc", left, values, right), matrices, rtol=0, atol=1e-14)
    expected = np.linalg.svd(matrices, compute_uv=False)
    np.testing.assert_allclose(np.sort(values, axis=0)[::-1][: expected.shape[1]].T, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("exponent", [0.25, 1 / 3, 0.5, 4 / 3, 7 / 3, 1.5, 2.0, 3.0, 3.5, 10.0, 0.1, 1.6, 2.6666])
def test_powers_are_exact_to_rounding(exponent):
    x = np.concatenate([10.0 ** np.random.default_rng(0).uniform(-28, 28, size=300), [0.0, 1.0, 8.0, 1e-300]])
    with jax.enable_x64(True):
        got = np.asarray(quickly(power, static_argnums=1)(x, exponent))
    mpmath.mp.dps = 40
    for mine, value in zip(got, x, strict=True):
        true = mpmath.mpf(value) ** mpmath.mpf(exponent)
        assert abs(mine - true) <= 4e-14 * true + 1e-300
    assert got[300] == 0
    assert got[301] == 1


def test_powers_of_both_precisions_keep_the_sign():
    x = np.array([-8.0, -1.0, 0.0, 27.0])
    for dtype, within in ((np.float32, 1e-6), (np.float64, 1e-15)):
        with jax.enable_x64(True):
            got = np.asarray(quickly(signed_power, static_argnums=1)(x.astype(dtype), 1 / 3))
        assert got.dtype == dtype
        np.testing.assert_allclose(got, [-2.0, -1.0, 0.0, 3.0], rtol=within)


# --- state


def test_entries_that_underflow_come_back_by_the_mirror_variable():
    # θ = z^20: it is zero until |z| > 7e-17, and computed anew from θ = 0 it would stay there
    optimizer = optimizers.mirror_descent(learning_rate=3e-17, p=1.05, normalize=False)
    params, state = {"w": np.zeros(1)}, None
    for _ in range(100):
        updates, state = one_update(optimizer, {"w": -np.ones(1)}, params, state=state)
        params = {"w": params["w"] + updates["w"]}
    np.testing.assert_allclose(params["w"], 3e-15**20, rtol=1e-10)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_without_decay_is_its_inner_optimizer_where_gradients_vanish(nesterov):
    problem = random_problem(4, 5, 3, 0)
    # each step divides the gradient by more than the range of floats
    inner = optimizers.normalized_gradient_descent(1e4)
    start = 1e4 * np.random.default_rng(1).standard_normal((3, 3))
    runs = [
        attsvm.train(problem, optimizer=each, init=start, steps=20)
        for each in (inner, optimizers.momentum(inner, 0.0, nesterov=nesterov))
    ]
    np.testing.assert_allclose(runs[1].weights, runs[0].weights, rtol=1e-13)


def test_a_gradient_without_a_scale_is_taken_as_it_stands():
    optimizer, gradient, params = optimizers.gradient_descent(0.1), {"w": jnp.ones(2)}, {"w": jnp.zeros(2)}
    updates, _ = quickly(optimizer.update)(gradient, quickly(optimizer.init)(params))
    np.testing.assert_allclose(updates["w"], -0.1, rtol=1e-6)


def test_polyak_rests_at_its_target_and_lands_on_a_line():
    optimizer = optimizers.polyak(target=2.0)
    for value in (1.5, 2.0):
        updates, _ = one_update(optimizer, {"w": np.ones(2)}, {"w": np.ones(2)}, value=value)
        np.testing.assert_array_equal(updates["w"], 0.0)
    # L = ⟨g, θ⟩ meets its target in one step
    g, theta = np.array([1.0, -2.0]), np.array([5.0, 1.0])
    updates, _ = one_update(optimizer, {"w": g}, {"w": theta}, value=g @ theta)
    assert g @ (theta + updates["w"]) == pytest.approx(2.0)


def test_updates_that_need_the_parameters_say_so():
    optimizer = optimizers.mirror_descent(p=3.0)
    state = begin(optimizer)({"w": np.ones(2)})
    with pytest.raises(ProblemError, match="params"):
        optimizer.update({"w": np.ones(2)}, state)


# --- in training


@pytest.fixture(scope="module")
def problem():
    return random_problem(4, 5, 3, 0)


@pytest.mark.parametrize("name", ["adam", "muon"])
@pytest.mark.parametrize("unit", [False, True])
def test_optimizers_of_optax_on_the_gradient_and_on_the_normalized_one(problem, name, unit):
    inner = {
        "adam": optax.adam(0.05),
        "muon": optax.contrib.muon(0.05),
    }[name]
    start = np.random.default_rng(0).normal(size=(3, 3))
    run = train(problem, optimizer=optimizers.normalized(inner) if unit else inner, init=start, steps=15)
    with jax.enable_x64(True):
        W, state = start, quickly(inner.init)({"W": start})

        @quickly
        def step(W, state):
            gradient = jax.grad(lambda W: mean_loss(problem, W, xp=jnp))(W)
            gradient = gradient / jnp.linalg.norm(gradient) if unit else gradient
            updates, state = inner.update({"W": gradient}, state, {"W": W})
            return W + updates["W"], state

        for _ in range(15):
            W, state = step(W, state)
    np.testing.assert_allclose(run.weights, np.asarray(W), rtol=0, atol=1e-9)
    assert run.norm is None
    assert run.status == "finished"


@pytest.mark.parametrize(
    "name",
    ["mirror 1.75", "spectral", "adam, normalized", "muon, normalized", "mirror plain", "heavy ball", "adam", "muon"],
)
def test_only_steps_that_depend_on_the_size_of_the_gradient_stall_where_it_underflows(problem, name):
    far = 1e5 * np.random.default_rng(0).normal(size=(2, 3, 3))
    run = train(problem, optimizer=OPTAX[name] if name in OPTAX else STEPS[name][0], init=far, steps=6)
    assert np.isfinite(run.weights).all()
    if name in SCALE_FREE:
        assert run.status.tolist() == ["finished", "finished"]
        assert (np.abs(run.weights - far).max(axis=(1, 2)) > 0.01).all()
    else:
        assert run.status.tolist() == ["stalled", "stalled"]
        assert run.step.tolist() == [0, 0]
        np.testing.assert_array_equal(run.weights, far)


def test_each_norm_descends_to_its_own_margin():
    problem = random_problem(6, 8, 10, seed=0)
    steps = {"frobenius": 0.1, "linf": 0.01, "spectral": 0.05, "l1": 0.1}
    for row, (norm, step) in enumerate(steps.items()):
        run = train(problem, optimizer=optimizers.steepest_descent(learning_rate=step, norm=norm), steps=4000, record=1)
        ratios = [attsvm.margin_ratio(problem, run.weights, run.selected, other) for other in steps]
        assert np.argmax(ratios) == row, (norm, ratios)
        assert run.norm == parse_norm(norm)


# --- files and arguments


# an optimizer of optax is not written
WRITTEN = [name for name in SCALE_FREE | SCALED if "," not in name]
COMPOSED = optimizers.momentum(
    optimizers.normalized(optimizers.mirror_descent(learning_rate=optimizers.Decaying(0.05, 10), p=3.0), scope="each"),
    decay=0.5,
    nesterov=True,
)


@pytest.mark.parametrize("optimizer", [*(STEPS[name][0] for name in WRITTEN), COMPOSED], ids=[*WRITTEN, "composed"])
def test_what_is_written_rebuilds_the_optimizer(optimizer):
    written = configuration(optimizer)
    rebuilt = from_configuration(written)
    assert repr(rebuilt) == repr(optimizer)
    assert rebuilt.rule == optimizer.rule
    assert rebuilt.numbers == optimizer.numbers
    assert rebuilt.norm == optimizer.norm


def test_decaying_steps():
    decaying = optimizers.Decaying(0.4, 3)
    assert [decaying(step) for step in (0, 3, 9)] == pytest.approx([0.4, 0.2, 0.1], rel=1e-15)


def test_other_schedules_and_foreign_optimizers_are_not_written():
    assert configuration(optimizers.gradient_descent(lambda k: 0.1)) is None
    assert configuration(optimizers.normalized(optax.adam(0.1))) is None
    assert configuration(optax.adam(0.1)) is None


def named(name, **options):
    return partial(optimizers.parse_optimizer, name, **options)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: optimizers.gradient_descent(-0.1), "learning_rate"),
        (lambda: optimizers.gradient_descent("fast"), "learning_rate"),
        (lambda: optimizers.normalized_gradient_descent(np.inf), "learning_rate"),
        (lambda: optimizers.normalized_gradient_descent(0.1, scope="some"), "scope"),
        *(
            (partial(optimizers.normalized_gradient_descent, average=wrong), "average: expected 0 <= average < 1")
            for wrong in (-0.1, 1.0, "much")
        ),
        (lambda: optimizers.mirror_descent(learning_rate=0.1, p=1.0), "p:"),
        (lambda: optimizers.mirror_descent(learning_rate=0.1, p=np.inf), "p:"),
        (lambda: optimizers.mirror_descent(learning_rate=0.1, p=3.0, scope="some"), "scope"),
        (lambda: optimizers.steepest_descent(learning_rate=0.1, norm="round"), "norm"),
        (lambda: optimizers.steepest_descent(learning_rate=0.1, norm=0.5), "norm"),
        (lambda: optimizers.polyak(target=np.nan), "target"),
        (lambda: optimizers.polyak(longest=0.0), "longest"),
        (lambda: optimizers.momentum(optimizers.polyak(), 1.0), "decay"),
        (lambda: optimizers.momentum(optimizers.momentum(optimizers.polyak())), "momentum"),
        (lambda: optimizers.momentum("sgd"), "optimizer"),
        (lambda: optimizers.normalized(3), "optimizer"),
        (lambda: optimizers.normalized(optax.sgd(0.1), norm="round"), "norm"),
        (lambda: from_configuration({"name": "newton", "arguments": {}}), "optimizer"),
        (lambda: from_configuration({"name": "polyak", "arguments": {"speed": 1}}), "optimizer"),
        *(
            (partial(optimizers.Decaying, *wrong), "expected a positive number")
            for wrong in ((0.0, 3), (0.4, -1), ("much", 3), (0.4, np.inf))
        ),
        (named("newton"), "optimizer: expected a name .*The names are .*adam, "),
        (named("polyak", p=2), "p: not an option of polyak; its options are target, longest"),
        (named("mirror_descent"), "p: expected a value for mirror_descent"),
        (named("momentum"), "inner: expected a value for momentum"),
        (named("attsvm.norms:Lp.missing"), "cannot be imported"),
        (
            lambda: optimizers.chain(LearningRate(0.1), optimizers.gradient_descent(0.1)),
            "learning_rate: expected once",
        ),
        (lambda: optimizers.chain(LearningRate(0.1)), "chain: expected a rule at the end, got LearningRate"),
    ],
)
def test_what_does_not_fit_is_named(build, words):
    with pytest.raises(ProblemError, match=words):
        build()


# --- chains, names, norms of users


def test_a_factory_is_the_chain_it_documents(problem):
    o, start = optimizers, np.random.default_rng(0).normal(size=(3, 3))
    pairs = [
        (o.gradient_descent(0.5), o.chain(LearningRate(0.5), GradientDescent())),
        (o.mirror_descent(p=3, scope="each"), o.chain(Normalize("each", 1.5), LearningRate(0.1), Mirror(Power(3)))),
        (o.steepest_descent(norm="linf"), o.chain(Normalize("each", 1), LearningRate(0.1), Steepest("linf"))),
    ]
    for factory, chained in pairs:
        assert factory.rule == chained.rule
        assert configuration(chained) is None
        found, other = (train(problem, optimizer=x, init=start, steps=20).weights for x in (factory, chained))
        np.testing.assert_array_equal(found, other)


def test_the_learning_rate_and_a_norm_or_exponent_are_not_confused():
    # 1.5 is the learning rate
    with pytest.raises(attsvm.ProblemError, match="p: expected a value for mirror_descent"):
        optimizers.mirror_descent(1.5)
    for build in (optimizers.steepest_descent, optimizers.polyak):
        with pytest.raises(TypeError):
            build(1.5)


@pytest.mark.parametrize("name", ["adam", "muon", "normalized_gradient_descent", "attsvm.optimizers:polyak"])
def test_training_takes_the_names_of_the_registry(problem, tmp_path, name):
    run = train(problem, optimizer=name, steps=20)
    made = optimizers.parse_optimizer(name)
    np.testing.assert_array_equal(run.weights, train(problem, optimizer=made, steps=20).weights)
    run.save(tmp_path / "run.npz")
    loaded = Run.load(tmp_path / "run.npz")
    assert loaded.limit == run.limit == made.limit("combined")
    assert repr(from_configuration(loaded.optimizer_config)) == repr(made)


@dataclass(frozen=True)
class UnitRows(Norm):
    """The largest ℓ2 norm of a row, whose steepest direction has unit rows; in NumPy and in JAX, and no dual."""

    name = "largest row"

    def value(self, x, axes=2):
        return (x * x).sum(axis=-1).max() ** 0.5

    def steepest(self, g):
        return unit_rows(g)


def test_steepest_descent_in_a_norm_of_the_user():
    problem = random_problem(4, 5, 3, 0, batch=(3,))
    start = np.random.default_rng(0).normal(size=(3, 3, 3))
    run = train(
        problem, optimizer=optimizers.steepest_descent(norm=UnitRows()), init=start, steps=40, record=[0, 1, 40]
    )
    first = run.history["weights"][1] - start
    np.testing.assert_allclose(np.linalg.norm(first, axis=-1), 0.1, rtol=1e-12)
    assert run.norm == UnitRows()
    alone = train(problem[1], optimizer=optimizers.steepest_descent(norm=UnitRows()), init=start[1], steps=40)
    np.testing.assert_allclose(run.weights[1], alone.weights, rtol=1e-12, atol=1e-13)
    # without normalizing, a step has length N*(g) = Σ of the rows' norms; relative steps are multiplied by N(θ)
    g = np.random.default_rng(1).normal(size=(3, 4))
    plain = optimizers.steepest_descent(norm=UnitRows(), normalize=False, relative=True)
    updates, _ = one_update(plain, {"w": g}, {"w": 2 * np.ones((3, 4))})
    rows = np.linalg.norm(g, axis=1)
    np.testing.assert_allclose(updates["w"], -0.1 * 4 * rows.sum() * g / rows[:, None], rtol=1e-10)
    with pytest.raises(ProblemError, match="value-only does not provide `steepest`"):
        optimizers.steepest_descent(norm=ValueOnly())


def test_the_limit_of_an_optimizer_depends_on_the_attention():
    o = optimizers
    known = {
        (o.normalized_gradient_descent(0.1), "combined"): ("frobenius", "normalized gradient descent"),
        (o.normalized_gradient_descent(0.1), "factored"): ("nuclear", "normalized gradient descent"),
        (o.normalized_gradient_descent(0.1, scope="each"), "factored"): (
            "nuclear",
            "normalized gradient descent of each parameter",
        ),
        (o.mirror_descent(p=1.75), "prompt"): ("l1.75", "normalized mirror descent"),
        (o.adam(), "combined"): ("linf", "adam"),
        (o.polyak(), "combined"): ("frobenius", "unknown descent"),
    }
    for (optimizer, attention), (norm, steps) in known.items():
        limit = optimizer.limit(attention)
        assert (limit.norm.name, str(limit.steps)) == (norm, steps)
    assert o.mirror_descent(p=1.75).limit("factored").norm is None


def test_the_module_lists_its_documented_names():
    for module in (optimizers, attsvm.heads, attsvm.losses):
        assert dir(module) == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
