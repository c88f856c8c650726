"""What every norm provides, against its definition: duality, steepest directions, projections and proximal maps."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attsvm
from attsvm._utils import linear_algebra
from attsvm.norms import (
    Lp,
    Norm,
    Nuclear,
    OnColumns,
    OnRows,
    OnSingularValues,
    Owl,
    Scaled,
    Spectral,
    parse_norm,
    read_norm,
    schatten,
    written_norm,
)
from attsvm.optimizers import sizes
from oracles.outside_norms import LargestRow, ValueOnly

CLOSED = [Lp(1.0), Lp(2.0), Lp(np.inf), Nuclear(), Spectral()]
LIFTED = [schatten(1.5), schatten(3), OnRows(Lp(1)), OnRows(Lp(np.inf)), OnColumns(Lp(1)), OnColumns(Lp(4))]
NORMS = [*CLOSED, Lp(1.05), Lp(1.3), Lp(4.0), *LIFTED, Scaled(Nuclear(), 0.3)]
SHAPES = [(3, 4), (4, 2), (5,)]


class ByProx(Norm):
    """ℓ1, given by soft thresholding alone."""

    name = "by-prox"

    def value(self, x, axes=2):
        return float(np.abs(x).sum())

    def prox(self, x, step):
        return np.sign(x) * np.maximum(np.abs(x) - step, 0.0)


def arrays(seed, shape, count=2):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape) * 10.0 ** generator.uniform(-1, 1) for _ in range(count)]


def value(norm, x):
    return float(norm.values(x, x.ndim))


def named(norm):
    return norm.name


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", NORMS, ids=named)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_the_steepest_direction_attains_the_dual_norm(norm, shape, seed):
    g, other = arrays(seed, shape)
    D = norm.steepest(g)
    assert value(norm, D) <= 1 + 1e-12
    assert np.vdot(g, D) == pytest.approx(value(norm.dual, g), rel=1e-10)
    # and no direction of unit norm has a larger product
    assert np.vdot(g, other) <= value(norm, other) * value(norm.dual, g) * (1 + 1e-12)
    assert value(norm.dual.dual, g) == pytest.approx(value(norm, g), rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", [*NORMS, OnRows(Owl((1.0, 0.5, 0.2)))], ids=named)
def test_arrays_of_any_size_are_measured_and_moved_alike(norm, shape):
    (g,) = arrays(7, shape, count=1)
    g = g[:3] if "owl" in norm.name else g
    for scale in (1e-300, 1e-160, 1e160, 1e300):
        assert value(norm, scale * g) == pytest.approx(scale * value(norm, g), rel=1e-14)
        np.testing.assert_allclose(norm.steepest(scale * g), norm.steepest(g), rtol=1e-12, atol=1e-15)
        moved = norm.proxes(scale * g, 0.3 * scale, g.ndim) / scale
        np.testing.assert_allclose(moved, norm.proxes(g, 0.3, g.ndim), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", NORMS, ids=named)
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_the_projection_is_the_nearest_point_of_the_dual_ball(norm, shape, seed):
    x, other = arrays(seed, shape)
    nearest = norm.project_dual_ball(x)
    assert value(norm.dual, nearest) <= 1 + 1e-12
    inside = other / max(1.0, value(norm.dual, other))
    assert np.vdot(x - nearest, inside - nearest) <= 1e-10 * np.linalg.norm(x)
    np.testing.assert_allclose(norm.project_dual_ball(inside), inside, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", NORMS, ids=named)
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.03, 1.0, 5.0]))
def test_the_proximal_point_satisfies_its_optimality_conditions(norm, shape, seed, step):
    """x − w is step times a subgradient of N at w: of dual norm at most 1, and aligned with w."""
    (x,) = arrays(seed, shape, 1)
    w = norm.prox(x, step)
    subgradient = (x - w) / step
    assert value(norm.dual, subgradient) <= 1 + 1e-10
    assert np.vdot(subgradient, w) == pytest.approx(value(norm, w), rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("norm", [*NORMS, ByProx(), LargestRow()], ids=named)
def test_the_frobenius_factor_bounds_the_norm(norm):
    for shape in [(3, 4), (4, 2), (5, 1), (1, 1)]:
        factor, xs = norm.frobenius_factor(shape), arrays(7, shape, 50)
        assert all(value(norm, x) <= factor * np.linalg.norm(x) * (1 + 1e-14) for x in xs)
        # the bound is attained, except by norms that leave it to the default
        extremes = [np.ones(shape), np.eye(*shape), np.eye(1, shape[0] * shape[1]).reshape(shape)]
        if norm in NORMS:
            assert max(value(norm, x) / np.linalg.norm(x) for x in extremes) == pytest.approx(factor, rel=1e-14)


@pytest.mark.parametrize("norm", [*CLOSED, Lp(1.3), Lp(4.0), schatten(3), OnRows(Lp(1)), OnColumns(Lp(4))], ids=named)
def test_jax_and_numpy_agree(norm):
    for shape in SHAPES if norm in CLOSED else [(3, 4)]:
        (x,) = arrays(3, shape, 1)
        with jax.enable_x64():
            jax_x = jax.numpy.asarray(x)
            np.testing.assert_allclose(norm.steepest(jax_x), norm.steepest(x), atol=1e-12)
            if norm in CLOSED:
                np.testing.assert_allclose(norm.project_dual_ball(jax_x), norm.project_dual_ball(x), atol=1e-12)
                np.testing.assert_allclose(norm.prox(jax_x, 0.3), norm.prox(x, 0.3), atol=1e-12)


@pytest.mark.parametrize(
    "norm", [schatten(1.5), OnRows(Lp(1)), OnRows(Lp(np.inf)), Scaled(OnColumns(Lp(4)), 0.3)], ids=named
)
def test_the_fast_steps_of_many_trials_are_those_of_each_norm(norm):
    x = np.random.default_rng(4).standard_normal((3, 4))
    x /= abs(x).max()
    assert sizes.has_fast_steps(norm)
    with jax.enable_x64():
        trials = jax.numpy.stack([jax.numpy.asarray(x), 0 * x], axis=-1)
        direction, size = jax.jit(lambda g: (sizes.steepest(norm, g), sizes.size_of(norm, {"x": g})))(trials)
    np.testing.assert_allclose(direction[..., 0], norm.steepest(x), atol=1e-13)
    np.testing.assert_allclose(size, [value(norm, x), 0], rtol=1e-13)
    assert not np.asarray(direction[..., 1]).any()


@pytest.mark.parametrize("norm", NORMS, ids=named)
def test_zero_stays_zero(norm):
    for shape in SHAPES:
        zero = np.zeros(shape)
        assert not norm.steepest(zero).any()
        assert not norm.project_dual_ball(zero).any()
        assert not norm.prox(zero, 1.0).any()


@pytest.mark.parametrize("norm", NORMS, ids=named)
def test_many_matrices_at_once_are_each_by_itself(norm):
    for shape in SHAPES:
        (xs,) = arrays(5, (2, 3, *shape), 1)
        each = [norm.prox(x, 0.4) for x in xs.reshape(6, *shape)]
        np.testing.assert_allclose(norm.proxes(xs, 0.4, len(shape)), np.reshape(each, xs.shape), atol=1e-13)
        each = [value(norm, x) for x in xs.reshape(6, *shape)]
        np.testing.assert_allclose(norm.values(xs, len(shape)), np.reshape(each, (2, 3)), rtol=1e-13)


@pytest.mark.parametrize("p", [1.0, 1.2, 1.5, 2.0, 3.0, np.inf])
def test_lifted_norms_are_those_of_their_definition(p):
    x = np.random.default_rng(2).standard_normal((4, 3))
    for norm, taken in (
        (schatten(p), np.sqrt(np.maximum(np.linalg.eigvalsh(x.T @ x), 0))),
        (OnRows(Lp(p)), [np.hypot.reduce(row) for row in x]),
        (OnColumns(Lp(p)), [np.hypot.reduce(column) for column in x.T]),
    ):
        # the eigenvalues of X'X have lost some digits
        assert norm.value(x) == pytest.approx(np.linalg.norm(taken, p), rel=1e-11)
        assert norm.value(1e200 * x) == pytest.approx(1e200 * norm.value(x), rel=1e-13)
        assert norm.value(x[:, :1]) == pytest.approx(norm.value(x[:, 0], 1), rel=1e-14)


@pytest.mark.parametrize(
    ("text", "norm"),
    [
        ("schatten1.5", OnSingularValues(Lp(1.5))),
        ("schatten1", Nuclear()),
        ("schatten2", Lp(2)),
        ("schatteninf", Spectral()),
        ("l2,1", OnRows(Lp(1))),
        ("l2,1-rows", OnRows(Lp(1))),
        ("linf,2", OnRows(Lp(np.inf))),
        ("l2,inf", OnRows(Lp(np.inf))),
        ("l1.5,2", OnRows(Lp(1.5))),
        ("l2,1.5-columns", OnColumns(Lp(1.5))),
        ("LINF,2-columns", OnColumns(Lp(np.inf))),
    ],
)
def test_lifted_norms_are_read_from_their_names(text, norm):
    assert parse_norm(text) == norm
    assert parse_norm(norm.name) == norm
    assert read_norm(written_norm(norm)) == norm


@pytest.mark.parametrize("text", ["schatten", "schatten0.5", "l3,1", "l2,", "l2,1-diagonals", "l2,0.5"])
def test_names_of_no_norm_are_refused(text):
    with pytest.raises(attsvm.ProblemError, match="norm: expected"):
        parse_norm(text)


def test_a_norm_whose_part_cannot_be_imported_keeps_its_name():
    written = written_norm(OnRows(Scaled(schatten(1.5), 2.0)))
    assert read_norm(written) == OnRows(Scaled(schatten(1.5), 2.0))
    written["fields"]["of"]["norm"]["fields"]["of"]["norm"]["class"] = "absent:Norm"
    assert read_norm(written).name == "2*schatten1.5 of the rows"
    with pytest.raises(attsvm.ProblemError, match=r"schatten1\.5 was defined in absent:Norm"):
        read_norm(written).value(np.eye(2))


def test_each_of_the_two_maps_follows_from_the_other():
    (x,) = arrays(0, (3, 4), 1)
    np.testing.assert_allclose(ByProx().project_dual_ball(x), Lp(1.0).project_dual_ball(x), atol=1e-14)
    np.testing.assert_allclose(Lp(1.0).prox(x, 0.4), ByProx().prox(x, 0.4), atol=1e-14)


@pytest.mark.parametrize("piece", ["prox", "project_dual_ball", "steepest"])
def test_a_missing_piece_is_named(piece):
    with pytest.raises(attsvm.ProblemError, match=f"value-only does not provide `{piece}`"):
        getattr(ValueOnly(), piece)(*([np.eye(2), 1.0] if piece == "prox" else [np.eye(2)]))


@pytest.mark.parametrize("norm", [Nuclear(), Spectral(), schatten(3)], ids=str)
def test_a_matrix_without_entries_has_norm_0(norm):
    assert norm.value(np.zeros((0, 3))) == norm.value(np.zeros((3, 0))) == 0.0
    for shape in ((1, 0, 3), (2, 0, 3), (0, 3, 3)):
        assert np.array_equal(norm.value(np.zeros(shape)), np.zeros(shape[0]))


def test_no_matrix_has_no_factors():
    U, sigma, Vt = linear_algebra.svd(np.zeros((0, 3, 2)))
    assert (U.shape, sigma.shape, Vt.shape) == ((0, 3, 3), (0, 2), (0, 2, 2))


def test_the_module_lists_exactly_its_documented_names():
    assert dir(attsvm.norms) == sorted(attsvm.norms.__all__)


def test_norms_of_factors_are_loaded_when_they_are_named():
    code = """
import sys, attsvm
problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
attsvm.solve_svm(problem, [0, 0, 0], norm="nuclear")
loaded = lambda: [name for name in sys.modules if name.startswith("attsvm.norms.factors.")]
assert loaded() == [], loaded()
assert attsvm.norms.parse_norm("gamma2").name == "gamma2"
assert "attsvm.norms.factors.nu" not in loaded() and "attsvm.norms.factors.gamma2" in loaded()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
