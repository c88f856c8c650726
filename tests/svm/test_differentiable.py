"""Derivatives of the Att-SVM: finite differences, batches, JAX's transformations, and where there is no derivative."""

import jax
import numpy as np
import pytest

import attsvm
from attsvm.datasets import random_problem
from attsvm.norms import Norm
from attsvm.svm.differentiable import DEGENERATE, INACCURATE, INFEASIBLE, OPTIMAL, solve

RNG_SEED = 5


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def given(kind, rng):
    """Arrays of a small problem that is differentiable, and the arguments that are not differentiated."""
    problem = random_problem(3, 4, 5, seed=4)
    arrays = {"tokens": problem.tokens, "queries": problem.queries}
    fixed = {"selected": attsvm.optimal_tokens(problem)}
    if kind == "keys":
        arrays["keys"] = rng.standard_normal((3, 4, 6))
    if kind == "prompt":
        del arrays["queries"]
    if kind == "several queries, masked":
        arrays["queries"] = rng.standard_normal((3, 2, 4))
        fixed["selected"] = np.array([[0, 1], [2, 1], [3, 0]])
        fixed["mask"] = np.ones((3, 2, 4), bool)
        fixed["mask"][0, 0, 2:] = fixed["mask"][1, 1, 3] = False
    if kind == "sets, relaxed":
        fixed["selected"] = np.eye(4, dtype=bool)[fixed["selected"]]
        fixed["selected"][0, :2] = True
        fixed["relaxed"] = np.array([False, False, True])
    if kind == "a batch that shares its queries":
        arrays["tokens"] = arrays["tokens"] + 0.1 * rng.standard_normal((2, 3, 4, 5))
    return arrays, fixed


KINDS = ("keys", "prompt", "several queries, masked", "sets, relaxed", "a batch that shares its queries")
NORMS = ("frobenius", "nuclear", "l1", "l1.5", "l3", "linf", "schatten1.5", "l2,1", "linf,2")


@pytest.mark.parametrize(
    ("kind", "norm"),
    [("queries", norm) for norm in NORMS] + [(kind, norm) for kind in KINDS for norm in ("frobenius", "nuclear", "l1")],
)
def test_derivatives_are_those_of_finite_differences(kind, norm):
    rng = np.random.default_rng(RNG_SEED)
    arrays, fixed = given(kind, rng)
    found = solve(**arrays, **fixed, norm=norm)
    assert (np.asarray(found.status) == OPTIMAL).all()
    of_direction, of_value = rng.standard_normal(found.direction.shape), rng.standard_normal(found.value.shape)

    def function(arrays):
        found = solve(**arrays, **fixed, norm=norm)
        return (found.direction * of_direction).sum() + (found.value * of_value).sum()

    gradient = jax.grad(function)({name: jax.numpy.asarray(x) for name, x in arrays.items()})
    for name, x in arrays.items():
        move = rng.standard_normal(x.shape)

        def moved(step, name=name, x=x, move=move):
            return float(function({**arrays, name: x + step * move}))

        # of fourth order: their errors are about 1e-4⁴ of a fifth derivative, and 1e-16 / 1e-4 of the function
        step = 1e-4
        differences = (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step)
        assert float((gradient[name] * move).sum()) == pytest.approx(differences, rel=1e-6, abs=1e-6)


def test_the_value_changes_by_the_multipliers_alone():
    """The derivative of the optimum of a convex program: dN = −Σ λ_j (dA W)_j."""
    problem = random_problem(4, 5, 6, seed=1)
    selected = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_svm(problem, selected)
    gradient = jax.grad(lambda queries: solve(problem.tokens, selected, queries).value)(problem.queries)
    chosen = problem.tokens[np.arange(4), selected]
    pulls = (chosen[:, None] - problem.tokens) * solution.dual[..., None]
    np.testing.assert_allclose(gradient, -pulls.sum(axis=1) @ solution.direction, rtol=1e-9, atol=1e-12)


def test_jit_vmap_and_float32_agree_with_single_calls():
    problem = random_problem(3, 4, 5, seed=4)
    selected = attsvm.optimal_tokens(problem)
    tokens = problem.tokens + 0.1 * np.random.default_rng(0).standard_normal((3, 3, 4, 5))

    def function(tokens):
        return solve(tokens, selected, problem.queries).direction[0, 0]

    each = np.array([jax.grad(function)(x) for x in tokens])
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.grad(function)))(tokens), each)
    single = jax.grad(function)(tokens[0].astype(np.float32))
    assert single.dtype == np.float32
    # the tokens are rounded to 24 bits, and the derivatives are about 10 times as large as they
    np.testing.assert_allclose(single, each[0], atol=1e-5)


def test_the_status_refuses_what_has_no_derivative():
    tokens = np.array([[[2.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]])
    cases = {
        "one": (tokens[:1], [0], OPTIMAL),
        "a token twice": (tokens[:1, [0, 1, 1]], [0], DEGENERATE),
        "a multiplier of zero": (np.array([[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]), [0], DEGENERATE),
        "nearly a token twice": (np.array([[[1.0, 0.0], [0.0, 0.0], [0.0, 1e-9]]]), [0], DEGENERATE),
        "inside the hull": (np.array([[[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]]), [0], INFEASIBLE),
    }
    for name, (arrays, selected, status) in cases.items():
        assert int(solve(arrays, selected).status) == status, name
        gradient = jax.grad(lambda x, selected=selected: solve(x, selected).value)(arrays)
        assert np.isnan(gradient).all() == (status != OPTIMAL), name
    # many directions have this spectral norm; and a Schatten-3 norm has no curvature in the kernel of W
    problem = random_problem(3, 4, 5, seed=4)
    for norm in ("spectral", "schatten3"):
        found = solve(problem.tokens, attsvm.optimal_tokens(problem), problem.queries, norm=norm)
        assert int(found.status) == DEGENERATE, norm
    np.testing.assert_allclose(
        found.value, attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm).value, rtol=1e-7
    )


def test_a_batch_refuses_only_its_degenerate_members():
    good = np.array([[[2.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]])
    tokens = np.stack([good, np.array([[[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]])])
    found = solve(tokens, np.array([[0], [0]]))
    assert found.status.tolist() == [OPTIMAL, INFEASIBLE]
    gradient = jax.grad(lambda x: solve(x, np.array([[0], [0]])).value[0])(tokens)
    np.testing.assert_array_equal(gradient[0], jax.grad(lambda x: solve(x, [0]).value)(good))
    assert np.isnan(gradient[1]).all()


def test_without_a_required_margin_the_weights_are_zero_and_stay_so():
    tokens = np.array([[[2.0, 0.0], [0.0, 0.0]]])
    gradient = jax.grad(lambda x: solve(x, [0], relaxed=[True]).value)(tokens)
    np.testing.assert_array_equal(gradient, 0.0)


def test_arguments_are_checked_and_numbers_that_are_not_finite_are_inaccurate_under_jit():
    tokens = np.array([[[2.0, 0.0], [0.0, 0.0]]])
    with pytest.raises(attsvm.ProblemError, match=r"selected: expected tokens 0\.\.1, got 2"):
        solve(tokens, [2])
    with pytest.raises(attsvm.ProblemError, match="tokens"):
        solve(np.where(tokens > 0, np.nan, tokens), [0])
    broken = jax.jit(lambda x: solve(x, [0]))(np.where(tokens > 0, np.nan, tokens))
    assert int(broken.status) == INACCURATE
    assert np.isnan(broken.value)

    class WithoutProx(Norm):
        name = "without-prox"

        def value(self, x, axes=2):
            return float(np.linalg.norm(x))

        @property
        def dual(self):
            return self

    with pytest.raises(attsvm.ProblemError, match="does not provide `prox`"):
        solve(tokens, [0], norm=WithoutProx())
