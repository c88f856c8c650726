"""Regularisation paths: to the Att-SVM of each norm, inside a cone, jointly with the head, against plain optimisers."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import attsvm
from attsvm.losses import LOSSES
from attsvm.norms import Lp, Norm
from attsvm.regularization import WeightBall, ball_of
from attsvm.regularization.flat_excess import FlatExcess
from attsvm.regularization.gaps import LogSum
from attsvm.regularization.margin_losses import LinearFunction, scalar_of
from oracles.attention import mean_loss
from oracles.minimise import lowest_in_ball, on_sphere
from oracles.norms import norm_and_dual
from oracles.results import assert_survives_a_file

pytestmark = pytest.mark.slow

LONG = np.array([0.1, 1.0, 10.0, 100.0, 1e3, 1e4])


def small(seed, n=2, T=3, d=3, **changes):
    problem = attsvm.datasets.random_problem(n, T, d, seed)
    arrays = {name: getattr(problem, name) for name in ("tokens", "labels", "queries", "head")}
    return attsvm.Problem(**(arrays | changes))


# --- the limit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["frobenius", 1.75, "nuclear"])
@pytest.mark.parametrize("seed", range(10))
def test_at_1e4_times_the_value_the_path_points_to_the_att_svm(norm, seed):
    problem = attsvm.datasets.random_problem(6, 8, 10, seed)
    optimal = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_svm(problem, optimal, norm)
    path = attsvm.regularization_path(problem, [1e4 * solution.value], norm=norm)
    assert (path.selected[-1] == optimal).all()
    assert path.status == "converged"
    np.testing.assert_allclose(attsvm.margin(problem, path.weights[-1], optimal, norm), solution.margin, rtol=1e-3)
    assert attsvm.direction_error(path.weights[-1], solution.direction) < 1e-5
    assert path.direction_errors[-1] < 1e-5
    # planted: another norm's solution, and that of another selection, are told apart
    other = attsvm.solve_svm(problem, optimal, "nuclear" if norm == "frobenius" else "frobenius")
    assert attsvm.direction_error(path.weights[-1], other.direction) > 1e-5
    shuffled = attsvm.solve_svm(problem, (optimal + 1) % 8, norm)
    assert attsvm.direction_error(path.weights[-1], shuffled.direction) > 1e-5


@pytest.mark.parametrize("norm", ["frobenius", 1.3, 3.0, 6.0])
def test_the_error_falls_like_the_square_of_the_radius(norm):
    problem = attsvm.datasets.random_problem(6, 8, 10, 3)
    value = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm).value
    path = attsvm.regularization_path(problem, LONG * value, norm=norm)
    assert path.status == "converged"
    assert (np.diff(path.direction_errors) < 0).all()
    assert path.direction_errors[-1] < 0.02 * path.direction_errors[-2]
    assert (np.diff(path.log_excess) < 0).all()
    assert (np.diff(path.loss) <= 0).all()


def test_factored_is_the_nuclear_ball_and_a_prompt_has_its_own():
    problem = small(0)
    by_factors = attsvm.regularization_path(problem, [0.5, 3.0], attention="factored")
    by_weights = attsvm.regularization_path(problem, [0.5, 3.0], norm="nuclear")
    np.testing.assert_array_equal(by_factors.weights, by_weights.weights)
    prompt = small(0, queries=None)
    solution = attsvm.solve_svm(prompt, attsvm.optimal_tokens(prompt))
    path = attsvm.regularization_path(prompt, [1e4 * solution.value])
    assert path.weights.shape == (1, 3)
    assert attsvm.direction_error(path.weights[-1], solution.direction) < 1e-5


def test_a_path_of_few_columns_points_to_the_att_svm_of_that_rank():
    rank = 2
    problem = attsvm.datasets.random_problem(4, 4, 4, 4)
    selected = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_svm(problem, selected, "nuclear", rank=rank)
    assert solution.gap > 1e-3  # the nuclear solution has rank three
    radii = [solution.value, 1e4 * solution.value]
    path = attsvm.regularization_path(problem, radii, attention="factored", rank=rank)
    assert (path.status, path.rank) == ("converged", rank)
    assert np.linalg.matrix_rank(path.weights, rtol=1e-9).tolist() == [rank, rank]
    assert attsvm.direction_error(path.weights[-1], solution.direction) < 1e-5
    assert path.direction_errors[-1] < 1e-5
    free = attsvm.regularization_path(problem, radii, attention="factored")
    assert free.rank is None
    assert attsvm.direction_error(free.weights[-1], solution.direction) > 1e-3
    assert (free.log_excess < path.log_excess).all()


def test_no_start_of_slsqp_over_one_column_gets_below_the_path():
    """W = a b': SLSQP over the entries of a and b."""
    problem, radius = small(1, 3, 4, 4), 6.0
    path = attsvm.regularization_path(problem, [radius], attention="factored", rank=1)
    starts = np.random.default_rng(0).standard_normal((8, 8))
    lowest = lowest_in_ball(
        lambda x: mean_loss(problem, np.outer(x[:4], x[4:])), np.linalg.norm, np.sqrt(2 * radius), starts
    )
    assert path.loss[0] == pytest.approx(mean_loss(problem, path.weights[0]), rel=1e-12)
    assert path.loss[0] <= lowest + 1e-9


# --- each minimum -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
@pytest.mark.parametrize("norm", ["frobenius", 1.75, 3.0, "nuclear"])
def test_no_start_of_a_plain_optimiser_gets_below_the_path(norm, loss):
    """SLSQP from four starts on two tiny problems, at radii where a loss is still a number."""
    size, _ = norm_and_dual(norm, (3, 3))
    generator = np.random.default_rng(0)
    for seed in (0, 1):
        problem = small(seed)
        path = attsvm.regularization_path(problem, [0.3, 4.0], norm=norm, loss=loss)
        for radius, weights, value in zip(path.radii, path.weights, path.loss, strict=True):
            assert size(weights.reshape(-1)) <= radius * (1 + 1e-9)
            np.testing.assert_allclose(value, mean_loss(problem, weights, loss), rtol=1e-12)
            starts = on_sphere(generator.standard_normal((4, 9)), size, radius)
            lowest = lowest_in_ball(
                lambda w, problem=problem: mean_loss(problem, w.reshape(3, 3), loss), size, radius, starts
            )
            assert value <= lowest + 1e-9


def test_the_gradient_is_the_engines_exact_one_and_points_along_the_weights():
    """On the Frobenius sphere W is a multiple of −∇L, also where the loss is its infimum plus exp(−3e3)."""
    problem = attsvm.datasets.random_problem(6, 8, 10, 5)
    path = attsvm.regularization_path(problem, [1.0, 1e2, 1e4])
    for weights in path.weights:
        # one step of normalised gradient descent, long enough not to be lost in the weights' rounding
        step = attsvm.optimizers.normalized_gradient_descent(np.linalg.norm(weights))
        moved = attsvm.train(problem, init=weights, steps=1, optimizer=step).weights - weights
        assert attsvm.direction_error(moved, weights) < 1e-12


@pytest.mark.parametrize("scale", [0.3, 3.0, 60.0])
def test_derivatives_are_those_of_finite_differences(scale):
    problem = attsvm.datasets.random_problem(4, 5, 3, 0)
    generator = np.random.default_rng(1)
    excess = FlatExcess.of(problem, LinearFunction(problem.head * 5), scalar_of(LOSSES.find("logistic")))
    mixed = replace(excess, stack=excess.stack.with_reference((excess.stack.optimal + 1) % 5))
    weights = scale * attsvm.solve_svm(problem, excess.optimal).direction.reshape(-1) + generator.standard_normal(9)
    objectives = [
        excess,
        LogSum.from_rows(-excess.rows, generator.standard_normal(len(excess.rows))),
        LogSum.from_rows(generator.standard_normal((4, 9)), -np.log(4), scalar_of(LOSSES.find("logistic"))),
    ]
    if np.isfinite(mixed.value(weights)):
        objectives.append(mixed)
    u, h = generator.standard_normal(9), 1e-5
    for objective in objectives:
        here = objective.expand(weights)
        up, down = objective.expand(weights + h * u), objective.expand(weights - h * u)
        np.testing.assert_allclose(here.value, objective.value(weights), rtol=1e-12)
        np.testing.assert_allclose(here.gradient @ u, (up.value - down.value) / (2 * h), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(
            here.curvature.dense() @ u, (up.gradient - down.gradient) / (2 * h), rtol=1e-5, atol=1e-7
        )


def test_a_branch_that_leaves_the_optimal_tokens_again_is_not_the_last_one():
    """At radius 2 a minimum selects the optimal tokens, from which a branch leads to other ones."""
    problem = attsvm.datasets.random_problem(3, 4, 4, 1)
    path = attsvm.regularization_path(problem, 0.06702565428893499 * 1.9784 ** np.arange(21), norm=1.5)
    assert (path.selected[5] == attsvm.optimal_tokens(problem)).all()
    assert (path.selected[-1] == attsvm.optimal_tokens(problem)).all()
    assert path.direction_errors[-1] < 1e-8


# --- cones ------------------------------------------------------------------------------------------------------


def test_inside_a_cone_the_path_goes_to_a_local_direction_that_is_not_the_global_one():
    # Tarzanagh et al. (2023), *Max-Margin Token Selection*, figure 1: two tokens are locally optimal
    tokens = np.array([[[-0.1, 1.0, 1.0], [1.0, 0.0, 0.9], [0.0, 0.0, 0.0]]])
    problem = attsvm.Problem(tokens, labels=[1.0], head=[0.0, 0.0, 1.0], keys=tokens * [1.0, 1.0, 0.0])
    local, best = (attsvm.solve_svm(problem, np.array([token])) for token in (1, 0))
    radii = LONG * local.value
    inside = attsvm.regularization_path(problem, radii, cone=(local.direction, 0.999))
    assert (inside.selected[-1] == 1).all()
    assert inside.status == "converged"
    assert attsvm.direction_error(inside.weights[-1], local.direction) < 1e-5
    anywhere = attsvm.regularization_path(problem, radii)
    assert attsvm.direction_error(anywhere.weights[-1], best.direction) < 1e-5
    assert inside.loss[-1] > anywhere.loss[-1]
    # in a wide cone there is something better than the local direction, and the cone holds the path back
    wide = attsvm.regularization_path(problem, radii, cone=(local.direction, 0.9))
    np.testing.assert_allclose(attsvm.correlation(wide.weights[-1], local.direction), 0.9, rtol=1e-9)


def test_in_a_cone_without_descent_the_path_stays_at_zero():
    generator = np.random.default_rng(0)
    tokens = generator.standard_normal((2, 4, 4))
    head = generator.standard_normal(4)
    problem = attsvm.Problem(tokens, np.ones(2), generator.standard_normal((2, 4)), head)
    worst = np.argmin(tokens @ head, axis=1)
    solution = attsvm.solve_svm(problem, worst)
    assert solution.status == "optimal"
    path = attsvm.regularization_path(problem, [1e-3, 1.0, 1e4], cone=(solution.direction, 0.99))
    assert path.status == "converged"
    np.testing.assert_array_equal(path.weights, 0.0)
    np.testing.assert_array_equal(path.direction_errors, 1.0)
    np.testing.assert_allclose(path.loss, mean_loss(problem, np.zeros((4, 4))), rtol=1e-12)


@pytest.mark.parametrize("norm", ["frobenius", 1.75, "nuclear"])
def test_no_start_of_a_plain_optimiser_gets_below_the_path_in_a_cone(norm):
    problem = small(3)
    axis = np.eye(3).reshape(-1) / np.sqrt(3)
    size, _ = norm_and_dual(norm, (3, 3))
    path = attsvm.regularization_path(problem, [0.5, 5.0], norm=norm, cone=(np.eye(3), 0.8))
    assert path.status == "converged"
    generator = np.random.default_rng(0)
    for radius, weights, value in zip(path.radii, path.weights, path.loss, strict=True):
        assert size(weights.reshape(-1)) <= radius * (1 + 1e-9)
        assert attsvm.correlation(weights, np.eye(3)) >= 0.8 - 1e-9
        starts = on_sphere(axis + 0.1 * generator.standard_normal((4, 9)), size, radius)
        cone = [lambda w: w @ axis - 0.8 * np.linalg.norm(w)]
        lowest = lowest_in_ball(lambda w: mean_loss(problem, w.reshape(3, 3)), size, radius, starts, cone)
        assert value <= lowest + 1e-6


# --- jointly with the head --------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", ["joint_all_support", "joint_relaxed"])
@pytest.mark.parametrize("head_grows_faster", [True, False])
def test_the_joint_path_of_prompt_and_head(reference, example, head_grows_faster):
    data = reference("prompt_attention.npz")
    problem = attsvm.Problem(data[f"{example}_X"], labels=data[f"{example}_Y"])
    slow, fast = np.array([1.0, 10.0, 100.0]), np.array([1.0, 100.0, 1e4])
    radii, head_radii = (slow, fast) if head_grows_faster else (fast, slow)
    path = attsvm.regularization_path(problem, radii, head_radii=head_radii)
    assert (path.selected[-1] == 1).all()
    assert path.status == "converged"
    head = attsvm.solve_head(problem, path.selected[-1])
    assert attsvm.direction_error(path.head_weights[-1], head.direction) < 1e-3
    plain = attsvm.solve_svm(problem, path.selected[-1])
    relaxed = attsvm.solve_svm(problem, path.selected[-1], relaxed=~head.support)
    has_slack = example == "joint_relaxed"
    right, wrong = (relaxed, plain) if has_slack and head_grows_faster else (plain, relaxed)
    assert attsvm.direction_error(path.weights[-1], right.direction) < 1e-3
    assert path.direction_errors[-1] < 1e-3
    if has_slack:
        assert attsvm.direction_error(path.weights[-1], wrong.direction) > 1e-2  # planted: the other one fails


@pytest.mark.parametrize("seed", [2, 4])
def test_no_start_of_a_plain_optimiser_gets_below_the_joint_path(seed):
    """Two problems on which the branch from the origin alone is not the lowest."""
    data = attsvm.datasets.random_problem(4, 4, 3, seed)
    problem = attsvm.Problem(data.tokens, labels=data.labels)
    path = attsvm.regularization_path(problem, [0.5, 2.0], head_radii=[1.0, 3.0])
    generator = np.random.default_rng(0)

    def loss(both):
        return mean_loss(attsvm.Problem(data.tokens, labels=data.labels, head=both[3:]), both[:3])

    for k, (radius, head_radius) in enumerate(zip(path.radii, path.head_radii, strict=True)):
        np.testing.assert_allclose(path.loss[k], loss(np.r_[path.weights[k], path.head_weights[k]]), rtol=1e-12)
        balls = [
            {"type": "ineq", "fun": lambda z, radius=radius: radius**2 - z[:3] @ z[:3]},
            {"type": "ineq", "fun": lambda z, head_radius=head_radius: head_radius**2 - z[3:] @ z[3:]},
        ]
        starts = generator.standard_normal((6, 6))
        found = [minimize(loss, start, constraints=balls, method="SLSQP") for start in starts]
        assert path.loss[k] <= min(one.fun for one in found) + 1e-5


def test_the_joint_path_of_weights_and_head():
    problem = small(0, n=3, T=4, d=4)
    path = attsvm.regularization_path(problem, [1.0, 100.0, 1e4], head_radii=[1.0, 10.0, 100.0])
    assert path.status == "converged"
    assert path.direction_errors[-1] < 1e-3
    assert path.head_direction_errors[-1] < 1e-3


# --- what comes back --------------------------------------------------------------------------------------------


def test_queries_that_share_tokens_and_masks():
    generator = np.random.default_rng(0)
    tokens = generator.standard_normal((3, 4, 5))
    causal = np.broadcast_to(np.tril(np.ones((4, 4), bool)), (3, 4, 4))
    labels = np.sign(generator.standard_normal((3, 4)))
    problem = attsvm.Problem(tokens, labels, queries=tokens, head=generator.standard_normal(5), mask=causal)
    path = attsvm.regularization_path(problem, [1.0, 100.0, 1e4])
    assert (path.selected[-1] == attsvm.optimal_tokens(problem)).all()
    assert path.direction_errors[-1] < 1e-6
    # a query that may attend to one token alone is no part of the problem
    assert (path.selected[:, :, 0] == 0).all()
    run = attsvm.train(problem, init=path.weights[0], steps=1)
    assert attsvm.direction_error(run.weights - path.weights[0], path.weights[0]) < 1e-12


def test_a_path_that_stays_inside_the_ball_says_so():
    """No weights select the optimal tokens here, and from some radius on nothing is gained by larger ones."""
    problem = attsvm.datasets.random_problem(5, 4, 2, 1)
    assert attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).status == "infeasible"
    path = attsvm.regularization_path(problem, [1.0, 10.0, 100.0, 1e4])
    assert path.status == "converged"
    np.testing.assert_allclose(path.weights[-1], path.weights[-2], rtol=1e-5)
    assert np.linalg.norm(path.weights[-1]) < 20
    assert "the minimum lies inside the last ball, at norm 17.61" in repr(path)


def test_a_loss_of_ones_own():
    problem = small(0)
    own = attsvm.losses.Loss(lambda m: jnp.logaddexp(0.0, -m), lambda m: -jnp.logaddexp(0.0, m), "own")
    mine, named = (attsvm.regularization_path(problem, [1.0, 1e3], loss=loss) for loss in (own, "logistic"))
    np.testing.assert_allclose(mine.weights, named.weights, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(mine.log_excess, named.log_excess, rtol=1e-12)


def test_a_callback_that_returns_true_keeps_the_radii_solved_so_far(tmp_path):
    whole = attsvm.regularization_path(small(0), [1.0, 10.0, 100.0])
    seen = []

    def twice(progress):
        seen.append(progress)
        return progress.step == 2

    path = attsvm.regularization_path(small(0), [1.0, 10.0, 100.0], callback=twice)
    assert [(one.step, one.steps) for one in seen] == [(1, 3), (2, 3)]
    assert path.status is attsvm.Status.INTERRUPTED
    assert path.radii.tolist() == [1.0, 10.0]
    assert (path.loss >= whole.loss[:2] * (1 - 1e-12)).all()
    np.testing.assert_allclose([one.loss for one in seen], path.loss, rtol=1e-12)
    # in a batch, the problems that were not reached hold no numbers
    batch = attsvm.datasets.random_problem(3, 4, 3, 1, batch=(2,))
    path = attsvm.regularization_path(batch, [1.0, 50.0], callback=lambda progress: True)
    assert path.status.tolist() == ["interrupted", "interrupted"]
    assert np.isfinite(path.loss[:, 0]).all()
    assert np.isnan(path.weights[:, 1]).all()
    assert (path.selected[:, 1] == -1).all()
    assert_survives_a_file(path, tmp_path)
    # head and attention jointly
    data = attsvm.datasets.random_problem(4, 4, 3, 2)
    joint = attsvm.Problem(data.tokens, labels=data.labels)
    path = attsvm.regularization_path(joint, [0.5, 2.0], head_radii=[1.0, 3.0], callback=lambda progress: True)
    assert (path.status, path.radii.tolist(), path.head_radii.tolist()) == ("interrupted", [0.5], [1.0])


def test_a_norm_of_another_type_is_refused_by_name_or_brings_its_ball():
    @dataclass(frozen=True)
    class Doubled(Norm):
        name = "doubled"

        def value(self, x, axes=2):
            return 2 * float(np.linalg.norm(x))

        @property
        def dual(self):
            return Halved()

    class Halved(Norm):
        name = "halved"

        def value(self, x, axes=2):
            return float(np.linalg.norm(x)) / 2

    problem = small(0)
    excess = FlatExcess.of(problem, LinearFunction(problem.head), scalar_of(LOSSES.find("logistic")))
    with pytest.raises(attsvm.ProblemError, match=r"norm: expected a norm with regularisation paths .*, got doubled"):
        attsvm.regularization_path(problem, [1.0], norm=Doubled())

    @dataclass(frozen=True)
    class DoubledBall(WeightBall):
        def steepest(self, gradient):
            return -gradient / np.linalg.norm(gradient) / 2

        def minimise(self, objective, start, radius):
            inner = ball_of(Lp(2.0), self.shape).minimise(objective, start, radius / 2)
            return self._found(objective, inner.weights, radius, 0.0)

    @ball_of.register
    def _(norm: Doubled, shape, cone=None) -> WeightBall:
        return DoubledBall(shape, norm, cone)

    found = ball_of(Doubled(), (3, 3)).minimise(excess, np.ones(9), 8.0)
    plain = ball_of(Lp(2.0), (3, 3)).minimise(excess, np.ones(9), 4.0)
    np.testing.assert_array_equal(found.weights, plain.weights)
    assert found.residual < 1e-12


def test_batches_files_and_what_a_path_says_of_itself(tmp_path):
    each = [small(seed, n=3, T=4, d=3) for seed in range(3)]
    names = ("tokens", "labels", "queries", "head")
    problem = attsvm.Problem(*(np.stack([getattr(one, name) for one in each]) for name in names))
    path = attsvm.regularization_path(problem, [1.0, 50.0], norm=1.75)
    assert path.weights.shape == (2, 3, 3, 3)
    assert path.direction_errors.shape == (2, 3)
    np.testing.assert_array_equal(
        path.weights[:, 1], attsvm.regularization_path(each[1], [1.0, 50.0], norm=1.75).weights
    )
    again = assert_survives_a_file(path, tmp_path)
    assert "3; combined, l1.75: 2 radii, 1 to 50; 6 of 6 solved" in repr(path)
    assert path[1].status is again[1].status is attsvm.Status.CONVERGED
    np.testing.assert_array_equal(again[1].direction_errors, path.direction_errors[:, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"radii": [1.0, 1.0]}, "radii: expected increasing radii, got 1 after 1"),
        ({"radii": [-1.0, 1.0]}, "radii: expected positive finite numbers, got -1.0"),
        ({"radii": [np.nan]}, "radii: expected positive finite numbers, got nan"),
        ({"radii": []}, "radii: expected shape (L,) with L >= 1, got (0,)"),
        ({"radii": "many"}, "radii: expected an array of numbers, got str"),
        (
            {"norm": 1},
            "norm: expected a norm with regularisation paths",
        ),
        ({"norm": "euclid"}, "norm: expected a name"),
        ({"norm": 3, "attention": "factored"}, 'norm: expected "frobenius" or "nuclear" for factored'),
        ({"attention": "prompt"}, "attention: expected a problem without queries"),
        ({"loss": "cross_entropy"}, "loss: expected a loss of the margin, such as logistic, to fit the labels ±1"),
        ({"cone": np.eye(3)}, "cone: expected a pair of a direction and the smallest correlation with it, got ndarray"),
        ({"cone": (np.eye(3), 2.0)}, "cone: expected a correlation in (0, 1), got 2"),
        ({"cone": (np.eye(2), 0.5)}, "cone: expected a direction of shape (3, 3), got (2, 2)"),
        ({"cone": (np.zeros((3, 3)), 0.5)}, "cone: expected a finite nonzero direction"),
        ({"head_radii": [1.0, 2.0]}, "head_radii: expected one for each of 1 radii, got 2"),
        ({"head_radii": [1.0], "loss": "linear"}, 'loss: expected "logistic" or "exponential" with head_radii'),
        ({"problem": small(0, head=None)}, "problem: expected a head, or head_radii, got neither"),
        ({"problem": small(0, labels=None)}, "problem: expected labels -1 and 1"),
        ({"problem": small(0, tokens=np.ones((2, 3, 3)))}, "problem: the loss does not depend"),
        ({"problem": small(0, tokens=np.ones((2, 3, 3))), "head_radii": [1.0]}, "problem: the loss does not depend"),
        ({"problem": small(0, n=300, T=30)}, "problem: expected at most 6,000 logits"),
    ],
)
def test_bad_input_is_refused_in_one_line(changes, message):
    arguments = {"problem": small(0), "radii": [1.0]} | changes
    with pytest.raises(attsvm.ProblemError) as caught:
        attsvm.regularization_path(arguments.pop("problem"), arguments.pop("radii"), **arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
