"""Steps on matrices: polar factors against LAPACK, what is one matrix against a direct computation, use in optax."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attsvm
from attsvm import ProblemError, optimizers
from attsvm.datasets import random_problem
from attsvm.norms import Lp
from attsvm.optimizers import NewtonSchulz
from attsvm.optimizers.matrix_directions import PolarDirection, UnitRowDirection
from attsvm.optimizers.matrix_steps import MatrixSteps
from attsvm.optimizers.optimizer import rule_of
from attsvm.optimizers.registry import configuration, from_configuration
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.singular import exact_polar_factor
from attsvm.optimizers.steepest import Steepest
from attsvm.optimizers.transformations import DecayingSum, LearningRate, Normalize
from attsvm.optimizers.unit_steps import UNKNOWN_LENGTH, UnitSteps
from attsvm.training import LossGradient

quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def updated(optimizer, g, params):
    with jax.enable_x64(True):
        updates, _ = quickly(lambda g, params: optimizer.update(g, optimizer.init(params), params))(g, params)
        return jax.tree.map(np.asarray, updates)


def with_singular_values(generator, count, rows, columns, values):
    k = len(values)
    left = np.linalg.qr(generator.normal(size=(count, rows, k)))[0]
    right = np.linalg.qr(generator.normal(size=(count, columns, k)))[0]
    return (left * values) @ np.swapaxes(right, 1, 2), left @ np.swapaxes(right, 1, 2)


@pytest.mark.parametrize(
    ("count", "rows", "columns", "values", "within"),
    [
        (5, 4, 4, np.ones(4), 1e-13),
        (5, 6, 6, 10.0 ** -np.linspace(0, 4, 3), 1e-10),  # rank 3
        (70, 3, 5, np.array([1.0, 1e-3]), 1e-12),  # more than are computed together
        # the polar factor of a matrix is known to eps over its smallest singular value
        (5, 6, 6, 10.0 ** -np.linspace(0, 12, 4), 1e-2),
    ],
)
def test_the_polar_factor_is_that_of_the_numerical_range(count, rows, columns, values, within):
    matrices, factors = with_singular_values(np.random.default_rng(rows), count, rows, columns, values)
    matrices = matrices * 10.0 ** np.arange(count)[:, None, None]
    with jax.enable_x64(True):
        found = np.moveaxis(quickly(exact_polar_factor)(np.moveaxis(matrices, 0, -1)), -1, 0)
    np.testing.assert_allclose(found, factors, rtol=0, atol=within)
    singular = np.linalg.svd(found, compute_uv=False)
    np.testing.assert_allclose(singular[:, : len(values)], 1.0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(singular[:, len(values) :], 0.0, rtol=0, atol=1e-14)


def test_the_polar_factor_in_single_precision_and_of_zero():
    matrices, factors = with_singular_values(np.random.default_rng(0), 8, 6, 5, np.array([1.0, 0.1, 0.01]))
    matrices[3], factors[3] = 0.0, 0.0
    found = quickly(exact_polar_factor)(np.moveaxis(matrices, 0, -1).astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), factors, rtol=0, atol=3e-5)


def tree(seed):
    generator = np.random.default_rng(seed)
    # K and Q of three heads, and a bias
    return {"K": generator.normal(size=(3, 5, 2)), "Q": generator.normal(size=(3, 5, 2)), "b": generator.normal(size=4)}


def unit_rows(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def polar_factor(x):
    left, _, right = np.linalg.svd(x, full_matrices=False)
    return left @ right


def expected(map_matrix, g, scope):
    """Directions of K and Q, by a loop over the heads."""
    if scope == "heads":
        return [np.stack([map_matrix(head) for head in g[name]]) for name in "KQ"]
    if scope == "fused":
        return [np.stack(np.split(map_matrix(np.hstack(list(g[name]))), 3, axis=1)) for name in "KQ"]
    both = np.split(map_matrix(np.hstack([*g["K"], *g["Q"]])), 6, axis=1)
    return [np.stack(both[:3]), np.stack(both[3:])]


@pytest.mark.parametrize(
    ("make", "map_matrix", "scope"),
    [
        (optimizers.row_descent, unit_rows, "heads"),
        (optimizers.row_descent, unit_rows, "fused"),
        (optimizers.row_descent, unit_rows, "kq"),
        (optimizers.column_descent, lambda x: unit_rows(x.T).T, "heads"),
        (optimizers.spectral_descent, polar_factor, "fused"),
    ],
)
def test_what_is_one_matrix(make, map_matrix, scope):
    g, params = tree(0), tree(1)
    g["Q"] *= 1e-3
    updates = updated(make(0.3, scope=scope), g, params)
    for name, direction in zip("KQ", expected(map_matrix, g, scope), strict=True):
        np.testing.assert_allclose(updates[name], -0.3 * direction, rtol=0, atol=1e-13)
    np.testing.assert_allclose(updates["b"], -0.3 * g["b"] / np.linalg.norm(g["b"]), rtol=1e-14)


@pytest.mark.parametrize(
    ("optimizer", "is_of_columns"),
    [
        (optimizers.row_descent(0.3), False),
        (optimizers.column_descent(0.3), True),
        (optimizers.steepest_descent(0.3, norm="linf,2"), False),
        (optimizers.steepest_descent(0.3, norm="linf,2-columns"), True),
    ],
)
@pytest.mark.parametrize(("dtype", "least", "within"), [(np.float64, 290, 1e-14), (np.float32, 34, 1e-6)])
def test_lines_far_below_the_largest_one_step_as_far(optimizer, is_of_columns, dtype, least, within):
    g = np.random.default_rng(4).uniform(0.5, 1.0, size=(12, 3)).astype(dtype)
    g /= g.max()  # so that scaling rounds nothing
    sizes = 10.0 ** -np.linspace(0, least, 12)[:, None]
    lines, directions = (x.T if is_of_columns else x for x in ((g * sizes).astype(dtype), unit_rows(g)))
    updates = updated(optimizer, {"W": lines}, {"W": np.ones_like(lines)})
    np.testing.assert_allclose(updates["W"], -0.3 * directions, rtol=within)


def test_momentum_weight_decay_and_steps_by_logit_follow_their_formulas():
    options = {"momentum": 0.8, "weight_decay": 0.1, "by_logit": True, "scope": "fused"}
    optimizer = optimizers.row_descent(optimizers.Decaying(0.2, 2, 0.5), **options)
    weights, state, sums = tree(1), None, dict.fromkeys("KQb", 0.0)
    with jax.enable_x64(True):
        update = quickly(optimizer.update)
        params = tree(1)
        state = quickly(optimizer.init)(params)
        for step in range(3):
            g = tree(10 + step)
            updates, state = update(g, state, params)
            params = {name: params[name] + np.asarray(x) for name, x in updates.items()}
            length = np.sqrt(sum(np.sum(x * x) for x in g.values()))
            sums = {name: 0.8 * sums[name] + x / length for name, x in g.items()}
            ahead = {name: 0.8 * sums[name] + x / length for name, x in g.items()}
            directions = dict(zip("KQ", expected(unit_rows, ahead, "fused"), strict=True))
            directions["b"] = ahead["b"] / np.linalg.norm(ahead["b"])
            sizes = [max(np.linalg.norm(head, axis=1).max() for head in weights[name]) for name in "KQ"]
            eta = 0.2 / np.sqrt(1 + step / 2) / (sum(sizes) + np.linalg.norm(weights["b"]))
            weights = {name: (1 - 0.1 * eta) * x - eta * directions[name] for name, x in weights.items()}
    for name, x in weights.items():
        np.testing.assert_allclose(params[name], x, rtol=0, atol=1e-13)


def test_the_size_of_matrices_in_the_spectral_norm():
    matrices = np.random.default_rng(0).normal(size=(3, 4, 3))
    matrices[1], matrices[2] = 0.0, np.eye(4, 3)
    with jax.enable_x64(True):
        sizes = quickly(PolarDirection().size)(np.moveaxis(matrices, 0, -1))
    np.testing.assert_allclose(sizes, np.linalg.norm(matrices, 2, axis=(1, 2)), rtol=1e-5)


@pytest.mark.parametrize(("polar", "within"), [("torch", 0.1), (NewtonSchulz((2, -1.5, 0.5), 3), 1e-12)])
def test_newton_schulz_polynomials_act_on_singular_values(polar, within):
    a, b, c = (2.0, -1.5, 0.5) if isinstance(polar, NewtonSchulz) else (3.4445, -4.7750, 2.0315)
    g = np.random.default_rng(3).normal(size=(4, 6))
    left, values, right = np.linalg.svd(g, full_matrices=False)
    values = values / np.linalg.norm(values)
    for _ in range(3 if isinstance(polar, NewtonSchulz) else 5):
        values = a * values + b * values**3 + c * values**5
    updates = updated(optimizers.spectral_descent(1.0, polar=polar), {"w": g}, {"w": g})
    np.testing.assert_allclose(updates["w"], -(left * values) @ right, rtol=0, atol=within)


def test_a_training_step_on_factors_is_that_by_hand_and_resumes():
    problem = random_problem(4, 5, 3, 0, batch=(2,))
    generator = np.random.default_rng(0)
    start = {name: generator.normal(size=(2, 3, 3)) for name in "KQ"}
    muon = optimizers.spectral_descent(momentum=0.9)
    run = attsvm.train(problem, attention="factored", optimizer=muon, init=start, steps=1)
    G = LossGradient(problem)({"W": start["K"] @ np.swapaxes(start["Q"], 1, 2)})[0]["W"]
    along = {"K": G @ start["Q"], "Q": np.swapaxes(G, 1, 2) @ start["K"]}
    for name, g in along.items():
        moved = start[name] - 0.05 * np.stack([polar_factor(x) for x in g])
        np.testing.assert_allclose(run.parameters[name], moved, rtol=0, atol=1e-12)
    whole = attsvm.train(problem, attention="factored", optimizer=muon, init=start, steps=2)
    np.testing.assert_array_equal(attsvm.train(problem, init=run, steps=1).weights, whole.weights)


@pytest.mark.parametrize("norm", ["frobenius", "spectral"])
def test_bilinear_steps_move_the_product_along_the_projected_gradient(norm):
    generator = np.random.default_rng(5)
    K, Q, G = (generator.normal(size=(2, *shape)) for shape in ((4, 2), (3, 2), (4, 3)))
    gradient = {"K": G @ Q, "Q": np.swapaxes(G, 1, 2) @ K}
    eta = 1e-9
    updates = updated(optimizers.bilinear_descent(eta, norm=norm), gradient, {"K": K, "Q": Q})

    def projected(matrix, k, q):
        # the products of the unit changes of K and Q span the tangent space
        changes = [np.outer(np.eye(4)[i], q[:, j]) for i in range(4) for j in range(2)]
        changes += [np.outer(k[:, j], np.eye(3)[i]) for i in range(3) for j in range(2)]
        basis = np.reshape(changes, (len(changes), -1)).T
        return (basis @ np.linalg.lstsq(basis, matrix.ravel(), rcond=1e-10)[0]).reshape(4, 3)

    for h in range(2):
        tangent = projected(G[h], K[h], Q[h])
        along = (
            tangent / np.linalg.norm(tangent) if norm == "frobenius" else projected(polar_factor(tangent), K[h], Q[h])
        )
        moved = updates["K"][h] @ Q[h].T + K[h] @ updates["Q"][h].T
        # singular values are inverted with a damping of η
        np.testing.assert_allclose(moved, -eta * along, rtol=0, atol=1e-7 * eta)


def test_arguments_are_written_checked_and_named():
    muon = optimizers.spectral_descent(polar=NewtonSchulz(iterations=7), momentum=0.9, scope="kq", weight_decay=0.1)
    rebuilt = from_configuration(configuration(muon))
    assert repr(rebuilt) == repr(muon)
    assert rebuilt.rule == muon.rule
    wrong = {"polar": "square", "scope": "all", "momentum": 1.0, "weight_decay": -1.0}
    for name, value in wrong.items():
        with pytest.raises(ProblemError, match=f"{name}: expected"):
            optimizers.spectral_descent(**{name: value})
    g, kq = {"K": np.ones((2, 3, 4)), "Q": np.ones((2, 5, 4))}, optimizers.row_descent(scope="kq")
    with pytest.raises(ProblemError, match=r"scope: expected two parameters of one shape.*\(2, 3, 4\), \(2, 5, 4\)"):
        jax.eval_shape(lambda: kq.update(g, kq.init(g), g))
    one, bilinear = {"K": g["K"]}, optimizers.bilinear_descent()
    with pytest.raises(ProblemError, match=r"params: expected only the matrices K .* got matrices \(2, 3, 4\)"):
        jax.eval_shape(lambda: bilinear.update(one, bilinear.init(one), one))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, r"\(3, 3\)"),
        ({"attention": "factored", "fixed": ["K"]}, r"\(3, 3\)"),
        ({"head": attsvm.heads.MLP(np.ones((2, 3))), "train_head": True}, r"\(3, 3\), \(2, 3\)"),
    ],
)
def test_bilinear_steps_train_two_factors_alone(options, found):
    problem = random_problem(3, 4, 3, 0)
    with pytest.raises(
        ProblemError,
        match=r"params: expected only the matrices K \(.* and Q \(.*, got matrices "
        rf".*{found}",
    ):
        attsvm.train(problem, optimizer="bilinear_descent", **options)


@dataclass(frozen=True)
class Signs(Rule):
    """A custom rule: the signs of a gradient of any size."""

    def unit_steps(self, gradient=UNKNOWN_LENGTH):
        return UnitSteps(Lp(np.inf), together=False, rate=gradient.rate)

    def update(self, updates, state, params, *, numbers, value):
        return {name: -updates.lengths[name] * jnp.sign(g) for name, g in updates.gradient.items()}, state


OF_KNOWN_LENGTH = {
    "l1": optimizers.steepest_descent(norm="l1", learning_rate=0.1),
    "linf": optimizers.steepest_descent(norm="linf", learning_rate=0.1),
    "schatten": optimizers.steepest_descent(norm="schatten1.5", learning_rate=0.1),
    "together": optimizers.normalized_gradient_descent(0.1),
    "each": optimizers.normalized_gradient_descent(0.1, scope="each"),
    "momentum": optimizers.momentum(optimizers.steepest_descent(norm="linf,2", learning_rate=0.1)),
    "spectral": optimizers.spectral_descent(0.1),
    "columns": optimizers.column_descent(0.1),
    "iteration": optimizers.spectral_descent(0.1, momentum=0.9, polar="newton_schulz"),
    "a sum of steps": optimizers.chain(LearningRate(0.1), DecayingSum(0.5), MatrixSteps(UnitRowDirection())),
    "custom": optimizers.chain(LearningRate(0.1), Signs()),
}


@pytest.mark.parametrize("name", OF_KNOWN_LENGTH)
def test_steps_have_the_length_that_their_rule_says(name):
    optimizer = OF_KNOWN_LENGTH[name]
    found = rule_of(optimizer).unit_steps()
    assert found.rate == (1.0 if name == "a sum of steps" else 0.1)
    params = {key: np.zeros((4, 3)) for key in "KQ"}
    g = {key: 3.0 * x for key, x in zip("KQ", np.random.default_rng(0).standard_normal((2, 4, 3)), strict=True)}
    moved = updated(optimizer, g, params)
    parts = [np.concatenate([*moved.values()])] if found.together else [*moved.values()]
    # the iteration comes from above or below, to the rounding of 20 products
    lengths = [found.norm.value(part) for part in parts]
    np.testing.assert_allclose(lengths, found.rate, rtol=1e-12 if found.exact else 1e-6)
    assert found.exact == (name != "iteration")


@pytest.mark.parametrize(
    "optimizer",
    [
        optimizers.gradient_descent(),
        optimizers.momentum(optimizers.gradient_descent()),
        optimizers.normalized_gradient_descent(relative=True),
        optimizers.normalized_gradient_descent(average=0.9),
        optimizers.spectral_descent(polar="optax"),
        optimizers.spectral_descent(scope="fused"),
        optimizers.column_descent(by_logit=True),
        optimizers.adam(),
        optimizers.chain(Normalize("each"), LearningRate(0.1), Steepest("linf")),
        optimizers.chain(Normalize("all", "l1"), LearningRate(0.1), Steepest("linf")),
        optimizers.chain(Normalize("each", "l1"), LearningRate(lambda k: 0.1), LearningRate(0.1), Steepest("linf")),
        optimizers.chain(Normalize("each", "l1"), DecayingSum(0.9), LearningRate(0.1), Steepest("linf")),
    ],
    ids=range(12),
)
def test_other_steps_have_no_known_length(optimizer):
    assert rule_of(optimizer).unit_steps() is None


def test_a_custom_rule_of_known_length_has_a_bound_of_the_earliest_selection():
    problem = random_problem(3, 4, 5, seed=1)
    bounds = [
        attsvm.theory.earliest_selection(problem, optimizer, selected=[0, 1, 2]).steps
        for optimizer in (OF_KNOWN_LENGTH["custom"], OF_KNOWN_LENGTH["linf"])
    ]
    np.testing.assert_array_equal(*bounds)
    assert (bounds[0] > 0).all()
