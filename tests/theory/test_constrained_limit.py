"""Stationary points of the loss over balls of norms: gaps by NumPy alone, bounds by CVXPY and by random weights."""

import re

import cvxpy
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import attsvm
from attsvm.norms import parse_norm
from attsvm.optimizers import (
    Decaying,
    chain,
    normalized_gradient_descent,
    rule_of,
    spectral_descent,
    steepest_descent,
)
from attsvm.theory import constrained_limit, context_limit
from oracles.optimizers import with_decay

NORMS = ["frobenius", "linf", "spectral", "nuclear"]


def loss_and_gradient(problem, W):
    """The mean logistic loss, and its gradient relative to the largest term, without cancellation."""
    logits = np.einsum("ntd,de,ne->nt", problem.tokens, W, problem.queries)
    attention = np.exp(logits - logits.max(axis=1, keepdims=True))
    attention /= attention.sum(axis=1, keepdims=True)
    score = problem.labels[:, None] * (problem.tokens @ problem.head)
    above = np.einsum("nu,ntu->nt", attention, score[:, :, None] - score[:, None])
    output = (attention * score).sum(axis=1)
    slope = -attention * above / (1 + np.exp(output))[:, None]
    gradient = np.einsum("nt,ntd,ne->de", slope / np.abs(slope).max(), problem.tokens, problem.queries)
    return np.logaddexp(0, -output).mean(), gradient


def gap_by_hand(problem, W, radius, name):
    gradient = loss_and_gradient(problem, W)[1]
    singular = np.linalg.svd(gradient, compute_uv=False)
    dual = {
        "frobenius": np.linalg.norm(gradient),
        "linf": np.abs(gradient).sum(),
        "spectral": singular.sum(),
        "nuclear": singular[0],
    }[name]
    return 1 + (gradient * W).sum() / (radius * dual)


@pytest.mark.parametrize("size", [(6, 8, 10), (5, 4, 7)])
@pytest.mark.parametrize("name", NORMS)
def test_points_are_stationary(name, size):
    problem = attsvm.datasets.random_problem(*size, seed=11)
    value = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=name).value
    for ratio in (0.5, 2.0, 8.0, 64.0):
        limit = constrained_limit(problem, radius=ratio * value, norm=name)
        assert limit.status == "converged"
        assert float(parse_norm(name).value(limit.weights)) <= limit.radius * (1 + 1e-12)
        # 1e-12 is the rounding of a gradient of saturated attention at 64 logits
        assert gap_by_hand(problem, limit.weights, limit.radius, name) <= 1e-7 + 1e-12
        assert limit.loss == pytest.approx(loss_and_gradient(problem, limit.weights)[0], rel=1e-12)


@pytest.mark.parametrize("name", NORMS)
def test_no_weights_of_the_ball_exceed_the_caps(name):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=1)
    limit = constrained_limit(problem, radius=5.0, norm=name)
    rng = np.random.default_rng(0)
    # near the limit, where margins are largest, and anywhere
    others = np.concatenate([limit.weights + 0.1 * rng.standard_normal((500, 5, 5)), rng.standard_normal((500, 5, 5))])
    others *= limit.radius / parse_norm(name).values(others)[:, None, None]
    logits = np.einsum("ntd,kde,ne->knt", problem.tokens, others, problem.queries)
    chosen = np.take_along_axis(logits, limit.selected[None, :, None], axis=2)
    rest = np.where(np.arange(4) == limit.selected[:, None], -np.inf, logits)
    assert ((chosen[..., 0] - rest.max(axis=2)).min(axis=1) <= limit.ratio).all()
    probability = np.exp(chosen[..., 0] - np.logaddexp.reduce(logits, axis=2))
    assert (probability.min(axis=1) <= limit.cap).all()


@pytest.mark.parametrize(("name", "ratio"), [*((name, 8) for name in NORMS), ("frobenius", 2)])
def test_the_bound_is_that_of_the_convex_program_and_holds_for_all_weights(name, ratio):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=4)
    selected = attsvm.optimal_tokens(problem)
    limit = constrained_limit(problem, radius=ratio * attsvm.solve_svm(problem, selected, norm=name).value, norm=name)
    score = problem.labels[:, None] * (problem.tokens @ problem.head)
    best = score.max(axis=1)
    costs = (best[:, None] - score) / (1 + np.exp(best))[:, None] / 3
    least = np.where(costs > 0, costs, np.inf).min(axis=1)
    by_query = ratio == 8
    if by_query:  # the excess is small enough to bound the probability of each token
        assert (limit.selected == selected).all()
        costs *= 1 - np.exp(limit.log_excess) / least[:, None]
    W = cvxpy.Variable((5, 5))
    norm = {
        "frobenius": lambda: cvxpy.norm(W, "fro"),
        "linf": lambda: cvxpy.max(cvxpy.abs(W)),
        "spectral": lambda: cvxpy.sigma_max(W),
        "nuclear": lambda: cvxpy.normNuc(W),
    }[name]()
    terms = [
        np.log(costs[i, t]) - (problem.tokens[i, selected[i]] - problem.tokens[i, t]) @ W @ problem.queries[i]
        for i in range(3)
        for t in range(4)
        if t != selected[i]
    ]
    program = cvxpy.Problem(cvxpy.Minimize(cvxpy.log_sum_exp(cvxpy.hstack(terms))), [norm <= limit.radius])
    program.solve(solver="CLARABEL")
    expected = program.value - (0.0 if by_query else np.log1p(np.exp(program.value) / least.min()))
    assert limit.log_bound == pytest.approx(expected, abs=3e-6)
    rng = np.random.default_rng(0)
    others = limit.weights + 0.3 * limit.radius * rng.standard_normal((200, 5, 5)) * rng.random((200, 1, 1)) ** 4
    others *= limit.radius / np.maximum(parse_norm(name).values(others), limit.radius)[:, None, None]
    assert min(loss_and_gradient(problem, one)[0] for one in others) >= limit.lower_bound
    assert limit.loss >= limit.lower_bound
    # at R/V = 2 the bound is loose, and only its value, which is compared above, tests it
    assert limit.excess_over_bound <= (0.05 if by_query else 20.0)


@pytest.mark.parametrize("name", NORMS)
def test_the_least_gap_tends_to_its_closed_form(name):
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=5)
    selected = attsvm.optimal_tokens(problem)
    value = attsvm.solve_svm(problem, selected, norm=name).value
    errors = []
    for ratio in (16.0, 128.0, 1024.0):
        limit = constrained_limit(problem, radius=ratio * value, norm=name)
        assert (limit.selected == selected).all()
        least = limit.logit_gaps[np.arange(5) != selected[:, None]].min()
        errors.append(abs(np.nanmin(limit.closed_form) - least))
    # of the least gap the difference falls like 1/R
    assert errors[1] <= 0.02
    assert errors[2] <= 0.003


STEPS = 4000


def trained(optimizer, decay, attention="combined", first=0.1, **options):
    """A run of a few thousand steps whose rates decrease linearly to zero."""
    problem = attsvm.datasets.random_problem(6, 8, 10, seed=900)

    def rate(step):
        return first / decay * (1 - step / STEPS)

    return problem, attsvm.train(
        problem, attention=attention, optimizer=optimizer(rate, decay), steps=STEPS, record=[STEPS], **options
    )


@pytest.mark.parametrize(
    ("attention", "norm", "optimizer"),
    [
        ("combined", "frobenius", lambda rate, decay: steepest_descent(learning_rate=rate, norm=2, weight_decay=decay)),
        ("combined", "frobenius", lambda rate, decay: in_one_ball(rate, decay)),
        ("factored", "spectral", lambda rate, decay: spectral_descent(rate, weight_decay=decay)),
    ],
    ids=["Frobenius", "one norm of all parameters", "spectral, factors"],
)
def test_runs_with_decay_end_at_the_predicted_point(attention, norm, optimizer):
    problem, run = trained(optimizer, 0.5, attention)
    prediction = attsvm.predict_direction(problem, run)
    assert (prediction.standing, prediction.norm.name) == ("measured", norm)
    # runs approach the point by factors, down to rounding of the gradient
    assert attsvm.direction_error(run, prediction.point) <= 1e-9
    assert prediction.distance <= 1e-4 * np.linalg.norm(prediction.point)
    radius = 0.5 ** (-2 if attention == "factored" else -1)
    limit = constrained_limit(problem, decay=0.5, norm=norm, start=run, attention=attention)
    assert limit.radius == pytest.approx(radius)
    np.testing.assert_allclose(limit.weights, prediction.point, atol=1e-12)
    assert float(prediction.norm.value(run.weights)) <= radius * (1 + 1e-9)
    rates = 0.1 / 0.5 * (1 - np.arange(STEPS) / STEPS)
    assert limit.reach(rates, factors=attention == "factored") == pytest.approx(1.0)
    # two steps from zero: 1 − (1 − ηλ)² of the radius
    assert limit.reach([0.2, 0.2], factors=attention == "factored") == pytest.approx(1 - 0.9**2)
    with pytest.raises(attsvm.ProblemError, match="rates: expected"):
        limit.reach([1e9])


def test_what_is_not_predicted_of_decay():
    def sign(rate, decay):
        return steepest_descent(learning_rate=rate, norm="linf", weight_decay=decay)

    # the rates do not add up to 10/λ: the point is not reached, and the prediction is that without decay
    problem, run = trained(sign, 0.1, first=1e-3)
    short = attsvm.predict_direction(problem, run)
    assert short.point is None
    total = 1e-3 * (1 - np.arange(STEPS) / STEPS).sum()
    more = float(re.search("after about ([0-9,]+) more steps", short.source)[1].replace(",", ""))
    assert more == pytest.approx(STEPS * (10 / total - 1), rel=0.05)
    # a run without steps has no rates
    start = attsvm.train(problem, optimizer=sign(Decaying(1.0, 50), 0.1), steps=0)
    assert attsvm.predict_direction(problem, start).point is None
    # steps on mini-batches end elsewhere
    problem, run = trained(sign, 0.1, batch_size=2)
    prediction = attsvm.predict_direction(problem, run)
    assert prediction.standing == "none"
    assert next(one.name for one in prediction.hypotheses if one.holds is False) == "full_batch"
    # a constant rate stays at a distance of about the last step
    problem, run = trained(lambda rate, decay: sign(0.05 / decay, decay), 0.1)
    prediction = attsvm.predict_direction(problem, run)
    assert prediction.standing == "conjecture"
    assert "small_last_step" in [one.name for one in prediction.hypotheses if one.holds is False]
    # a normalization after the learning rate makes steps of length one
    rule = rule_of(with_decay(normalized_gradient_descent(1e-3, scope="each"), 0.5))
    optimizer = chain(*reversed(rule.parts), rule.rule)
    problem = attsvm.datasets.random_problem(3, 4, 5, 0)
    prediction = attsvm.predict_direction(problem, attsvm.train(problem, optimizer=optimizer, steps=30))
    numbers = {one.name: one.number for one in prediction.hypotheses}
    assert (numbers["reach"], numbers["small_last_step"]) == (30 * 0.5, 0.5)
    with pytest.raises(attsvm.ProblemError, match="weight_decay: expected 0"):
        steepest_descent(norm=2, relative=True, weight_decay=0.1)


def test_points_of_epsilon_are_stationary_and_near_the_penalty_path():
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    decay, epsilon = 0.01, 1e-6
    limit = constrained_limit(problem, decay=decay, norm="linf", epsilon=epsilon)
    scaled = loss_and_gradient(problem, limit.weights)[1]
    # the gradient by hand is relative to its largest term, whose size follows from the balance in one entry
    balance = epsilon * decay * limit.weights / (1 - decay * np.abs(limit.weights))
    size = -(balance * scaled).sum() / (scaled * scaled).sum()
    assert np.abs(decay * limit.weights + size * scaled / (size * np.abs(scaled) + epsilon)).max() <= 1e-6
    path = attsvm.regularization.penalty_path(problem, [np.log(epsilon * decay / 2)])
    # the barrier exceeds the penalty by the relative size of λ|w|, at most 0.1 here
    assert attsvm.direction_error(path.weights[0], limit.weights) <= 2e-3
    with pytest.raises(attsvm.ProblemError, match='norm: expected "linf" with epsilon'):
        constrained_limit(problem, decay=decay, epsilon=epsilon)


def test_context_limits_are_those_of_a_softmax_of_equal_gaps():
    limit = context_limit(2.5, decay=0.08, miss=0.05)
    probability = 1 / (1 + (limit.num_tokens - 1) * np.exp(-1 / (0.08 * 2.5)))
    assert probability == pytest.approx(0.95)
    assert limit.largest_decay(limit.num_tokens) == pytest.approx(0.08)
    assert context_limit(1.0, decay=1e-4, miss=0.5).num_tokens == np.inf
    for arguments, message in (((0.0, 1.0, 0.1), "value"), ((1.0, -1.0, 0.1), "decay"), ((1.0, 1.0, 1.0), "miss")):
        with pytest.raises(attsvm.ProblemError, match=f"{message}: expected"):
            context_limit(arguments[0], decay=arguments[1], miss=arguments[2])
    with pytest.raises(attsvm.ProblemError, match="num_tokens: expected"):
        limit.largest_decay(1)


def test_a_batch_gives_what_each_problem_gives():
    problem = attsvm.datasets.random_problem(4, 5, 6, batch=(2, 3), seed=0)
    radius = np.linspace(5.0, 30.0, 6).reshape(2, 3)
    together = constrained_limit(problem, radius=radius, norm="spectral")
    assert together.batch_shape == (2, 3)
    alone = constrained_limit(problem[1, 2], radius=30.0, norm="spectral")
    np.testing.assert_allclose(together.weights[1, 2], alone.weights, atol=1e-4)
    assert together[1, 2].log_bound == pytest.approx(alone.log_bound, abs=1e-5)


def test_starts_may_be_weights_selections_solutions_and_paths():
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=3)
    selected = attsvm.optimal_tokens(problem)
    best = constrained_limit(problem, radius=40.0, start=selected)
    assert (best.selected == selected).all()
    again = constrained_limit(problem, radius=40.0, start=best)
    solution = constrained_limit(problem, radius=40.0, start=attsvm.solve_svm(problem, selected))
    for other in (again, solution):
        assert attsvm.direction_error(best.weights, other.weights) <= 1e-10
    trials = constrained_limit(problem, radius=40.0, start=np.stack([best.weights, np.zeros((6, 6))]))
    assert trials.batch_shape == (2,)
    path = constrained_limit(problem, radius=5.0, start="path")
    ball = attsvm.regularization_path(problem, [5.0])
    assert path.loss >= ball.loss[-1] - 1e-12


@pytest.mark.parametrize("name", ["frobenius", "spectral"])
def test_starts_where_other_tokens_are_better_lead_to_stationary_points(name):
    """The attention is saturated there, so that the first gradient is much smaller than the later ones."""
    for seed in range(4):
        problem = attsvm.datasets.random_problem(3, 4, 5, seed=seed)
        start = attsvm.optimal_tokens(problem)
        start[:2] = (start[:2] + 1) % 4
        limit = constrained_limit(problem, decay=0.05, norm=name, start=start)
        assert limit.status == "converged"
        # the accuracy of a gap by NumPy's softmax, whose small probabilities cancel
        assert gap_by_hand(problem, limit.weights, 20.0, name) <= 1e-5


def test_prompts_and_shared_tokens_of_several_queries():
    rng = np.random.default_rng(0)
    prompt = attsvm.Problem(rng.standard_normal((3, 4, 8)), [1, -1, 1], head=rng.standard_normal(8))
    limit = constrained_limit(prompt, radius=50.0, norm="spectral")
    assert limit.weights.shape == (8,)
    assert np.linalg.norm(limit.weights) == pytest.approx(50.0)
    tokens, labels = rng.standard_normal((2, 4, 6)), rng.choice([-1, 1], (2, 4))
    mask = np.tril(np.ones((4, 4), dtype=bool))[None].repeat(2, axis=0)
    causal = attsvm.Problem(tokens, labels, queries=tokens, head=rng.standard_normal(6), mask=mask)
    found = constrained_limit(causal, radius=20.0)
    assert found.status == "converged"
    assert np.isnan(found.logit_gaps[:, 0, 1:]).all()


def test_sequences_of_one_token_have_no_gaps():
    problem = attsvm.datasets.random_problem(3, 1, 5, seed=0)
    limit = constrained_limit(problem, radius=10.0)
    assert (limit.status, limit.gap, limit.ratio, limit.log_excess) == ("converged", 0.0, np.inf, -np.inf)
    assert np.isnan(limit.closed_form).all()
    assert np.isfinite(limit.weights).all()
    assert limit.lower_bound == limit.loss


def test_wrong_arguments_are_refused():
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    for arguments, message in (
        ({}, "radius: expected exactly one"),
        ({"radius": 1.0, "decay": 1.0}, "radius: expected exactly one"),
        ({"decay": 0.0}, "decay: expected positive numbers"),
        ({"radius": [1.0, 2.0]}, "radius: expected a number, or shape"),
        ({"radius": 1.0, "start": "origin"}, "start: expected"),
        ({"radius": 1.0, "start": np.zeros((2, 2))}, "start: expected shape"),
        ({"radius": 1.0, "attention": "both"}, "attention: expected"),
        ({"radius": 1.0, "attention": "prompt"}, "attention: expected"),
        ({"radius": 1.0, "norm": "gamma2"}, "norm: gamma2 does not provide `steepest`"),
    ):
        with pytest.raises(attsvm.ProblemError, match=message):
            constrained_limit(problem, **arguments)


def head_problem(seed=1000, **batch):
    return attsvm.datasets.random_problem(5, 5, 8, seed=seed, num_heads=2, **batch)


def loss_of_heads(problem, W):
    """The mean logistic loss of the sum of all heads, in JAX."""
    logits = jnp.einsum("hntd,hde,hne->hnt", problem.tokens, W, problem.queries)
    score = problem.labels[0][:, None] * jnp.einsum("hntd,hd->hnt", problem.tokens, problem.head)
    return jnp.logaddexp(0, -(jax.nn.softmax(logits) * score).sum(axis=(0, 2))).mean()


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_points_of_several_heads_are_stationary_in_each_ball(name, together):
    problem = head_problem()
    for ratio in (0.7, 6.0):
        value = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=name).value
        limit = constrained_limit(problem, radius=ratio * max(value), norm=name, together=together)
        with jax.enable_x64(True):
            gradient = np.asarray(jax.grad(lambda W: loss_of_heads(problem, W))(limit.weights))
            assert limit.loss == pytest.approx(float(loss_of_heads(problem, limit.weights)), rel=1e-12)
        dual = parse_norm(name).dual.values(gradient)
        inner = (gradient * limit.weights).sum(axis=(1, 2))
        if together and name in ("frobenius", "nuclear"):  # of the block-diagonal matrix
            dual, inner = {"frobenius": np.linalg.norm, "nuclear": np.max}[name](dual), inner.sum()
        # the smallest probabilities of a softmax by hand cancel at 6 logits
        assert np.max(1 + inner / (limit.radius * dual)) <= 1e-7 + 1e-11
        assert limit.status == "converged"
        assert limit.lower_bound <= limit.loss


@pytest.mark.parametrize(("name", "together"), [("frobenius", False), ("frobenius", True), ("nuclear", True)])
def test_bounds_and_closed_forms_of_several_heads(name, together):
    problem = head_problem(seed=1)
    selected = attsvm.optimal_tokens(problem)
    value = attsvm.solve_svm(problem, selected, norm=name).value
    limit = constrained_limit(problem, radius=150 * np.sum(value), norm=name, together=together)
    whole = {"frobenius": np.linalg.norm(value), "nuclear": value.sum()}[name]
    np.testing.assert_allclose(limit.radius / limit.ratio, whole if together else value, rtol=1e-8)
    kept = np.arange(5) == selected[..., None]
    least = np.where(kept, np.inf, limit.logit_gaps).min(axis=(1, 2))
    assert (least <= limit.ratio).all()
    # the difference to the closed form vanishes like 1/R: it is 0.12 at R/V = 40
    np.testing.assert_allclose(np.nanmin(limit.closed_form, axis=(1, 2)), least, atol=0.05)
    assert limit.excess_over_bound == pytest.approx(0.0, abs=1e-4)  # 150 logits times the gap of the bound, 1e-7
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for _ in range(50):
            other = limit.weights + 0.02 * limit.radius * rng.standard_normal(limit.weights.shape)
            size = parse_norm(name).values(other)
            size = {"frobenius": np.linalg.norm, "nuclear": np.sum}[name](size) if together else size[:, None, None]
            assert float(loss_of_heads(problem, other * limit.radius / size)) >= limit.lower_bound


def in_one_ball(rate, decay):
    return with_decay(normalized_gradient_descent(rate), decay)


@pytest.mark.parametrize(
    ("attention", "optimizer", "norm", "one_ball"),
    [
        ("combined", lambda r, d: steepest_descent(learning_rate=r, norm=2, weight_decay=d), "frobenius", False),
        ("combined", in_one_ball, "frobenius", True),
        ("factored", lambda r, d: spectral_descent(r, weight_decay=d), "max over heads of spectral", False),
        ("factored", in_one_ball, "nuclear", True),
    ],
    ids=["Frobenius", "Frobenius together", "spectral, factors", "Frobenius together, factors"],
)
def test_runs_of_several_heads_end_at_the_predicted_point(attention, optimizer, norm, one_ball):
    problem = head_problem()

    def rate(step):
        return 0.1 / 0.5 * (1 - step / STEPS)

    run = attsvm.train(problem, attention=attention, optimizer=optimizer(rate, 0.5), steps=STEPS, record=[STEPS])
    prediction = attsvm.predict_direction(problem, run)
    assert (prediction.standing, prediction.norm.name) == ("measured", norm)
    heads = (0, 1, 2) if one_ball else (1, 2)
    # one ball of the nuclear norm leaves a head of K and Q slowly: 4e-12 after 30,000 steps
    error = 1e-4 if attention == "factored" and one_ball else 1e-9
    assert np.max(attsvm.direction_error(run.weights, prediction.point, axis=heads)) <= error


def test_a_limit_of_several_heads_shows_the_ratio_of_each():
    limit = constrained_limit(head_problem(seed=1), radius=10.0)
    assert f"R/V {limit.ratio[0]:.3g} {limit.ratio[1]:.3g}, " in repr(limit)


def test_of_several_heads_what_has_no_limit_is_refused():
    problem = head_problem()
    for norm, message in ((3.0, "expected l1, frobenius"), ("fused_heads", "expected a norm of one head")):
        with pytest.raises(attsvm.ProblemError, match=f"norm: {message}"):
            constrained_limit(problem, radius=1.0, norm=norm)
    shared = attsvm.datasets.random_problem(5, 5, 8, seed=0, num_heads=2, key_groups=1)
    with pytest.raises(attsvm.ProblemError, match="without key_groups, got key_groups=1"):
        constrained_limit(shared, radius=1.0)
    one_ball = constrained_limit(problem, radius=9.0, norm="sum over heads of nuclear")
    np.testing.assert_allclose(
        one_ball.weights, constrained_limit(problem, radius=9.0, norm="nuclear", together=True).weights
    )
    batch = constrained_limit(head_problem(batch=(2,)), radius=[5.0, 9.0], start="path")
    assert (batch.weights.shape, batch.ratio.shape, batch.gap.shape) == ((2, 2, 8, 8), (2, 2), (2,))


def test_the_least_gap_of_adam_grows_no_faster_than_its_average_of_squares_decays():
    problem, steps = attsvm.datasets.random_problem(4, 4, 6, seed=2000), 3000
    adamw = optax.adamw(lambda k: 0.1 * (1 - k / steps), b2=0.99, eps=1e-300, weight_decay=0.01)
    run = attsvm.train(problem, optimizer=adamw, steps=steps, record=[500, 1000, 2000, steps])
    logits = np.einsum("ntd,rde,ne->rnt", problem.tokens, run.history["weights"], problem.queries)
    ordered = np.sort(logits, axis=-1)
    gaps = (ordered[..., -1] - ordered[..., -2]).min(axis=1)[-4:]
    needed = np.array([attsvm.theory.adam_steps(gap, b2=0.99) for gap in gaps])
    assert (needed <= [500, 1000, 2000, steps]).all()
    # 12 logits are the largest start of the law; these runs are at most as many steps ahead
    assert needed[-2] >= 2000 - 12 * 2 / -np.log(0.99)
    assert attsvm.theory.adam_steps(5.0) == 0
    for arguments in ({"gap": -1.0}, {"gap": 1.0, "b2": 1.0}):
        with pytest.raises(attsvm.ProblemError, match="expected"):
            attsvm.theory.adam_steps(**arguments)
