"""Barriers of balls: their derivatives, the inverse Hessian, and minima over the balls against CVXPY."""

import cvxpy
import numpy as np
import pytest

import attsvm
from attsvm.norms import Lp, OnRows, parse_norm
from attsvm.regularization import Excess, LogSum, barrier_of, minimise_in_ball, scalar_of
from attsvm.regularization.interior_point import minimise_stack
from oracles.att_svm import convex_norm

NORMS = ["l1", "frobenius", "linf", "spectral", "nuclear"]
STEP = 1e-5


@pytest.mark.parametrize("shape", [(4, 3), (3, 5), (4, 4)])
@pytest.mark.parametrize("name", NORMS)
def test_derivatives_and_inverse_agree_with_finite_differences(name, shape):
    barrier = barrier_of(parse_norm(name))
    rng = np.random.default_rng(0)
    weights, along = rng.standard_normal((2, 2, *shape))
    weights *= 0.8 / barrier.norm.values(weights)[:, None, None]
    ahead, behind = barrier.metric(weights + STEP * along), barrier.metric(weights - STEP * along)
    metric = barrier.metric(weights)
    slope = (metric.gradient * along).sum(axis=(1, 2))
    # central differences of step 1e-5: third derivatives are below 1e4, and values about 100
    np.testing.assert_allclose((ahead.value - behind.value) / (2 * STEP), slope, rtol=1e-5, atol=1e-5)
    times_hessian = (ahead.gradient - behind.gradient) / (2 * STEP)
    np.testing.assert_allclose(metric.solve(times_hessian), along, atol=1e-5)
    np.testing.assert_allclose(barrier.value(weights), metric.value, rtol=1e-14)


@pytest.mark.parametrize("name", NORMS)
def test_gram_is_the_product_with_the_inverse_hessian(name):
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((2, 4, 3))
    barrier = barrier_of(parse_norm(name))
    metric = barrier.metric(0.9 * weights / barrier.norm.values(weights)[:, None, None])
    left, right = rng.standard_normal((2, 3, 2, 4)), rng.standard_normal((2, 3, 3))
    rows = (left[..., None] * right[:, :, None, None]).reshape(2, 6, 4, 3)
    expected = np.einsum("nike,njke->nij", rows, metric.solve(rows))
    np.testing.assert_allclose(metric.gram(left, right), expected, atol=1e-13)


def test_the_barrier_of_a_sum_is_exact_beside_the_sphere():
    # 1 − Σ s = 2⁻³⁰ has no rounding, and 0 is a size at which x is not near s
    sizes = np.array([[0.5, 0.25, 0.25 - 2.0**-30, 0.0]])
    slopes = barrier_of(Lp(1.0)).gauge.slopes(sizes)
    # h'' = ν²/(t(1 + t)) is ν²/2 at 0, and ν(1 − Σ s) = 4 + Σ (t − νs)
    nu = np.sqrt(2 * slopes.curvature[0, 3])
    above = 1 / (np.sqrt(1 + (nu * sizes) ** 2) + nu * sizes)
    assert nu * 2.0**-30 == pytest.approx(4 + above.sum(), rel=1e-14)


@pytest.mark.parametrize("name", NORMS)
def test_the_convex_minimum_is_that_of_cvxpy(name):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=2)
    norm, selected = parse_norm(name), attsvm.optimal_tokens(problem)
    radius = 6 * attsvm.solve_svm(problem, selected, norm=norm).value
    rng = np.random.default_rng(0)
    costs = np.where(np.arange(4) == selected[:, None], -np.inf, rng.standard_normal((3, 4)))
    stack = LogSum(radius * problem.tokens[None], problem.queries[None], selected[None], costs[None])
    found = minimise_stack(stack, np.zeros((1, 5, 5)), barrier_of(norm), 1e-7)
    W = cvxpy.Variable((5, 5))
    terms = [
        costs[i, t] - (problem.tokens[i, selected[i]] - problem.tokens[i, t]) @ W @ problem.queries[i]
        for i in range(3)
        for t in range(4)
        if t != selected[i]
    ]
    program = cvxpy.Problem(cvxpy.Minimize(cvxpy.log_sum_exp(cvxpy.hstack(terms))), [convex_norm(name)(W) <= radius])
    program.solve(solver="CLARABEL")
    # the gap bounds the distance to the minimum by 1e-7 times the dual norm, which is about 6
    assert float(stack.value(found.weights)[0]) == pytest.approx(program.value, abs=2e-6)


def test_excess_and_its_derivatives_agree_with_differences_of_the_loss():
    problem = attsvm.datasets.random_problem(4, 5, 6, batch=(3,), seed=0)
    from attsvm.losses import parse_loss

    excess = Excess.of(problem, scalar_of(parse_loss("logistic", None)))
    rng = np.random.default_rng(3)
    weights, along = rng.standard_normal((2, 3, 6, 6))

    def loss(W):
        logits = np.einsum("bntd,bde,bne->bnt", problem.tokens, W, problem.queries)
        attention = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        outputs = np.einsum("bnt,bntd,bd->bn", attention, problem.tokens, np.broadcast_to(problem.head, (3, 6)))
        return np.logaddexp(0.0, -problem.labels * outputs).mean(axis=-1)

    np.testing.assert_allclose(np.exp(excess.value(weights)), loss(weights) - excess.infimum, rtol=1e-12)
    ahead, behind = excess.value(weights + STEP * along), excess.value(weights - STEP * along)
    slopes = excess.slopes(weights)
    np.testing.assert_allclose((slopes.gradient * along).sum(axis=(1, 2)), (ahead - behind) / (2 * STEP), rtol=1e-6)
    turned = (excess.gradient(weights + STEP * along) - excess.gradient(weights - STEP * along)) / (2 * STEP)
    flat = excess.gaps(along).reshape(3, -1)
    bent = np.einsum("ni,nij,nj->n", flat, slopes.curvature, flat)
    np.testing.assert_allclose(bent, (turned * along).sum(axis=(1, 2)), rtol=1e-6)
    assert (np.linalg.eigvalsh(excess.safe_curvature(weights)) > -1e-14).all()


@pytest.mark.parametrize("norm", [Lp(1.5), OnRows(Lp(np.inf))], ids=str)
def test_norms_without_a_barrier_are_minimised_too(norm):
    problem = attsvm.datasets.random_problem(2, 3, 3, seed=0)
    from attsvm.losses import parse_loss

    excess = Excess.of(problem, scalar_of(parse_loss("logistic", None)))
    svm = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=norm)
    radius = 4.0 * np.array([svm.value])
    found = minimise_in_ball(excess, norm, radius, svm.direction[None])
    gradient = excess.rebased(found.weights).gradient(found.weights)
    assert float(norm.value(found.weights[0])) <= radius[0] * (1 + 1e-12)
    gap = 1 + (gradient * found.weights).sum() / (radius[0] * norm.dual.value(gradient[0]))
    assert gap <= 1e-6


@pytest.mark.parametrize("norm", ["linf", "spectral"])
def test_paths_in_these_norms_converge_to_their_svm(norm):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    path = attsvm.regularization_path(problem, [1.0, 30.0, 3000.0], norm=norm)
    assert path.solved.all()
    ratio = [attsvm.margin_ratio(problem, W, s, norm=norm) for W, s in zip(path.weights, path.selected, strict=True)]
    # R/V − gap is bounded, so that 1 − ratio falls like 1/R: to 1e-3 at R/V of some thousands
    assert ratio[-1] >= 1 - 1e-3
    sizes = parse_norm(norm).values(path.weights)
    np.testing.assert_allclose(sizes, path.radii, rtol=1e-6)


def test_a_path_of_l1_and_cones_of_barriers_are_refused():
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    with pytest.raises(attsvm.ProblemError, match="norm: expected a norm with regularisation paths"):
        attsvm.regularization_path(problem, [1.0], norm=1)
    with pytest.raises(attsvm.ProblemError, match="cone: expected None"):
        attsvm.regularization_path(problem, [1.0], norm="spectral", cone=(np.eye(5), 0.5))
