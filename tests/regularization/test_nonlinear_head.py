"""Paths under nonlinear heads: exact derivatives, no lower minimum, single tokens and kept sets in the limit."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import attsvm
from attsvm.heads import MLP, FunctionHead, Linear, Quadratic
from attsvm.losses import LOSSES
from attsvm.norms import Lp
from attsvm.regularization import ball_of
from attsvm.regularization.flat_excess import FlatExcess
from attsvm.regularization.margin_losses import function_of, scalar_of
from oracles.attention import mean_loss
from oracles.minimise import lowest_in_ball, on_sphere
from oracles.norms import norm_and_dual

pytestmark = pytest.mark.slow

LOGISTIC = scalar_of(LOSSES.find("logistic"))
DIM = 3
GELU = MLP.random(6, DIM, activation="gelu", seed=3)
RELU = MLP.random(6, DIM, seed=3)
TANH = FunctionHead(lambda w, o: 2 * jnp.tanh(o @ w["w"] - 0.2), {"w": np.array([1.0, -0.5, 0.3])}, True)


def problem_of(seed, n=4, T=5):
    return attsvm.datasets.random_problem(n, T, DIM, seed)


def excess(problem, head):
    return FlatExcess.of(problem, function_of(head, head.initial(problem)), LOGISTIC)


@pytest.mark.parametrize("head", [Quadratic(0.7), GELU, RELU, TANH])
@pytest.mark.parametrize("scale", [0.3, 3.0, 300.0])
def test_derivatives_are_those_of_finite_differences(head, scale):
    problem = problem_of(0)
    generator = np.random.default_rng(1)
    over = excess(problem, head)
    direction = attsvm.solve_svm(problem, over.optimal).direction.reshape(-1)
    weights = scale * direction + generator.standard_normal(9)
    over = over.rebased(weights)
    u, h = generator.standard_normal(9), 1e-5
    here, up, down = (over.expand(weights + s * h * u) for s in (0, 1, -1))
    # differences of values of size 300 in steps of 1e-5 have errors of 300 · 1e-16 / 1e-5 = 3e-9, and truncation more
    np.testing.assert_allclose(here.gradient @ u, (up.value - down.value) / (2 * h), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        here.curvature.dense() @ u, (up.gradient - down.gradient) / (2 * h), rtol=1e-5, atol=1e-6
    )


def test_without_curvature_the_quadratic_head_is_the_linear_one():
    problem = problem_of(0)
    weights = 20 * np.random.default_rng(0).standard_normal(9)
    of_function, linear = (
        excess(problem, head).rebased(weights).expand(weights) for head in (Quadratic(0.0), Linear())
    )
    np.testing.assert_allclose(of_function.value, linear.value, rtol=1e-13)
    np.testing.assert_allclose(of_function.gradient, linear.gradient, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(of_function.curvature.dense(), linear.curvature.dense(), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("scale", [1.0, 30.0, 900.0])
def test_the_log_excess_keeps_its_digits_where_the_loss_equals_its_infimum(scale):
    problem = problem_of(2, n=2, T=3)
    over = excess(problem, TANH)
    weights = scale * attsvm.solve_svm(problem, over.optimal).direction.reshape(-1)
    with mpmath.workdps(450):

        def loss(attention):
            total = mpmath.mpf(0)
            for a, x, y in zip(attention, problem.tokens, problem.labels, strict=True):
                o = [mpmath.fsum(a[t] * x[t, k] for t in range(len(a))) for k in range(DIM)]
                w = TANH.parameters["w"]
                f = 2 * mpmath.tanh(mpmath.fsum(o[k] * w[k] for k in range(DIM)) - mpmath.mpf(0.2))
                total += mpmath.log1p(mpmath.exp(-mpmath.mpf(y) * f))
            return total / len(problem.labels)

        attention = []
        for logits in over.logits(weights):
            e = [mpmath.exp(mpmath.mpf(s)) for s in logits]
            attention.append([x / mpmath.fsum(e) for x in e])
        kept = [[mpmath.mpf(float(t == best)) for t in range(3)] for best in over.optimal]
        exact = float(mpmath.log(loss(attention) - loss(kept)))
    # the largest logit alone has a rounding of 900 · 1e-16
    np.testing.assert_allclose(over.value(weights), exact, rtol=1e-12, atol=1e-12)


def loss_by_hand(problem, head, weights):
    def output(o):
        if isinstance(head, Quadratic):
            return problem.head @ o - head.curvature * o @ o
        units = np.asarray(head.hidden) @ o + np.asarray(head.bias)
        gelu = units * 0.5 * (1 + np.vectorize(mpmath.erf, otypes=[float])(units / np.sqrt(2)))
        return np.asarray(head.output) @ gelu

    return mean_loss(problem, weights, output=output)


@pytest.mark.optimized
@pytest.mark.parametrize(("head", "norm"), [(Quadratic(0.8), "frobenius"), (GELU, "frobenius"), (Quadratic(0.8), 3.0)])
def test_no_start_of_a_plain_optimiser_gets_below_the_path(head, norm):
    size, _ = norm_and_dual(norm)
    generator = np.random.default_rng(0)
    problem = problem_of(1, n=2, T=3)
    path = attsvm.regularization_path(problem, [0.5, 5.0], head=head, norm=norm)
    for radius, weights, value in zip(path.radii, path.weights, path.loss, strict=True):
        np.testing.assert_allclose(value, loss_by_hand(problem, head, weights), rtol=1e-11)
        assert size(weights.reshape(-1)) <= radius * (1 + 1e-9)
        starts = on_sphere(generator.standard_normal((3, 9)), np.linalg.norm, radius)
        lowest = lowest_in_ball(lambda w: loss_by_hand(problem, head, w.reshape(3, 3)), size, radius, starts)
        assert value <= lowest + 1e-9


@pytest.mark.parametrize("head", [GELU, RELU, TANH])
def test_a_path_to_single_tokens_ends_at_their_att_svm_with_the_engines_gradient(head):
    problem = problem_of(5, n=3, T=4)
    path = attsvm.regularization_path(problem, [1e2, 1e4], head=head)
    assert path.solved[-1]
    np.testing.assert_array_equal(path.kept[-1].sum(axis=-1), 1)
    svm = attsvm.solve_svm(problem, path.selected[-1])
    assert attsvm.direction_error(path.weights[-1], svm.direction) < 1e-5
    # on the sphere W is a multiple of −∇L; one step of normalised descent, long enough not to be lost in rounding
    step = attsvm.optimizers.normalized_gradient_descent(np.linalg.norm(path.weights[-1]))
    moved = attsvm.train(problem, head=head, init=path.weights[-1], steps=1, optimizer=step).weights - path.weights[-1]
    assert attsvm.direction_error(moved, path.weights[-1]) < 1e-12


def test_a_mixture_that_beats_every_token_is_kept_and_the_finite_part_distributes_the_attention():
    """One sequence: v'o − ‖o‖² is largest at a quarter of the way from (1, 0) to (0, 1), closed form below."""
    tokens = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]])
    problem = attsvm.Problem(tokens, labels=[1.0], head=[1.0, 0.0, 0.0])
    # o = (1 − s, s, 0): 1 − s − (1 − s)² − s² has its maximum at s = 1/4
    path = attsvm.regularization_path(problem, [1e2, 1e4, 1e6], head=Quadratic(1.0))
    assert path.status == "converged"
    np.testing.assert_array_equal(path.kept[-1], [[True, True, False]])
    # equal logits of the first two and a margin of 1 over the third: the shortest is −(1, 1, 2)/3
    direction = np.array([-1.0, -1.0, -2.0])
    for radius, weights in zip(path.radii, path.weights, strict=True):
        fixed = np.log(3) / 2 * np.array([1.0, -1.0, 0.0])
        across = direction / np.linalg.norm(direction)
        exact = fixed + np.sqrt(radius**2 - fixed @ fixed) * across
        np.testing.assert_allclose(weights, exact, rtol=1e-13, atol=1e-10)
        np.testing.assert_allclose(path.loss[0], np.log1p(np.exp(-1 / 8)), rtol=1e-12)
    # planted: the direction of the best single token is another one
    single = attsvm.solve_svm(problem, path.selected[-1]).direction
    assert attsvm.direction_error(path.weights[-1], single) > 1e-2
    assert path.direction_errors[-1] < 1e-11


def test_where_rounding_decides_the_status_is_inaccurate():
    """In another norm the weights do not split into both parts."""
    tokens = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]])
    problem = attsvm.Problem(tokens, labels=[1.0], head=[1.0, 0.0, 0.0])
    path = attsvm.regularization_path(problem, [5.0, 1e4], head=Quadratic(1.0), norm=3.0)
    assert path.status == "inaccurate"
    assert path.solved.tolist() == [True, False]


def test_a_batch_has_one_head_each_and_bad_heads_are_refused():
    each = [attsvm.datasets.random_problem(2, 3, 2, seed) for seed in (0, 1)]
    names = ("tokens", "labels", "queries", "head")
    problem = attsvm.Problem(*(np.stack([getattr(one, name) for one in each]) for name in names))
    hidden = np.random.default_rng(0).standard_normal((2, 4, 2))
    path = attsvm.regularization_path(problem, [1.0, 20.0], head=MLP(hidden, activation="gelu"))
    alone = attsvm.regularization_path(each[1], [1.0, 20.0], head=MLP(hidden[1], activation="gelu"))
    np.testing.assert_array_equal(path.weights[:, 1], alone.weights)
    assert path.kept.shape == (2, 2, 2, 3)
    with pytest.raises(attsvm.ProblemError, match="head: expected None with head_radii"):
        attsvm.regularization_path(each[0], [1.0], head=Quadratic(1.0), head_radii=[1.0])
    with pytest.raises(attsvm.ProblemError, match="head: expected finite outputs at the tokens, got nan"):
        attsvm.regularization_path(each[0], [1.0], head=FunctionHead(lambda w, o: jnp.sqrt(-1 - o @ o)))
    with pytest.raises(attsvm.ProblemError, match="hidden: expected shape"):
        attsvm.regularization_path(each[0], [1.0], head=MLP(np.ones((4, 5))))


@pytest.mark.parametrize("far", [730.0, 742.0])
def test_a_search_ends_where_the_inverse_of_the_excess_overflows(far):
    """The two tokens of large attention have one output, and the attention of the others is about exp(-far)."""
    tokens, keys = [[1.0, 0.0], [1.0, 5.0], [0.5, 0.0], [0.4, 0.0], [0.3, 0.0]], np.eye(5)
    keys[:, 0] = [0.0, -1.0, -far, -far, -far]
    problem = attsvm.Problem([tokens], keys=[keys], labels=[1.0])
    own, start = excess(problem, MLP([[1.0, 0.0], [0.0, -1.0], [0.0, -2.0]])), np.eye(5)[0]
    _, gradient, (_, core) = own.expand(start)
    assert np.isfinite(gradient).all()
    assert np.isfinite(core).all()
    found = ball_of(Lp(2.0), (5, 1)).minimise(own, start, 1.0)
    assert np.isfinite(found.weights).all()
    assert own.loss_at(found.weights) <= own.loss_at(start)
