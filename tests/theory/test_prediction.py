"""predict_direction, on runs whose end is known, and on planted wrong ones; conditions, feasibility and rates."""

from dataclasses import replace

import cvxpy
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import attsvm
from attsvm import optimizers
from attsvm.datasets import random_problem
from attsvm.norms import Lp, MaxOfHeads, Nuclear, OnColumns, Spectral, SumOfHeads
from attsvm.norms.factors import Gamma2
from attsvm.optimizers import limit_of
from attsvm.theory.rates import divergence_of
from attsvm.theory.standing import known_limits, limit_at, longest_changes
from oracles.results import assert_survives_a_file


def growing(step):
    return 0.1 * (1 + step / 100)


@pytest.mark.parametrize(
    ("options", "norm", "standing", "below"),
    [
        ({"optimizer": optimizers.normalized_gradient_descent(growing)}, "frobenius", "conjecture", 1e-6),
        ({"optimizer": optimizers.mirror_descent(learning_rate=growing, p=1.75)}, "l1.75", "conjecture", 1e-5),
        ({"attention": "factored", "optimizer": None}, "nuclear", "measured", 2e-3),
    ],
)
def test_a_run_goes_where_it_is_predicted_to_go(options, norm, standing, below):
    problem = random_problem(4, 5, 6, 3)
    run = attsvm.train(problem, steps=20_000, **options)
    prediction = attsvm.predict_direction(problem, run)
    assert (prediction.norm.name, prediction.standing) == (norm, standing)
    error = attsvm.direction_error(run.weights, prediction.solution.direction)
    assert error < below
    # the criterion tells the norms apart, and the selections: planted wrong answers fail it
    for wrong in {"frobenius", "l3", "nuclear"} - {norm}:
        other = attsvm.predict_direction(problem, run, norm=wrong)
        assert other.standing == "none"
        assert attsvm.direction_error(run.weights, other.solution.direction) > below
    shuffled = attsvm.solve_svm(problem, (run.selected + 1) % 5, norm=norm)
    assert attsvm.direction_error(run.weights, shuffled.direction) > 0.1


def test_factors_with_few_columns_go_to_the_att_svm_of_that_rank(tmp_path):
    problem = random_problem(6, 8, 10, 4)
    run = attsvm.train(problem, steps=8_000, attention="factored", rank=2)
    run.save(tmp_path / "run.npz")
    run = attsvm.training.Run.load(tmp_path / "run.npz")
    prediction = attsvm.predict_direction(problem, run)
    assert (prediction.norm.name, prediction.solution.rank, run.limit.rank) == ("nuclear", 2, 2)
    assert attsvm.direction_error(run.weights, prediction.solution.direction) < 1e-3
    # the nuclear solution of the same tokens has a higher rank, and is told apart
    free = attsvm.solve_svm(problem, run.selected, "nuclear")
    assert attsvm.direction_error(run.weights, free.direction) > 1e-3
    assert attsvm.train(problem, steps=1, attention="factored", rank=10).limit.rank is None


def smallest(problem, selected, shape, weights):
    """The variables of least ℓ2 norm with margins of 1, by CVXPY; ``weights`` maps them to u."""
    variables = cvxpy.Variable(shape)
    margins = [
        (problem.tokens[i, selected[i]] - problem.tokens[i, t]) @ weights(variables) >= 1
        for i in range(problem.num_sequences)
        for t in range(problem.num_tokens)
        if t != selected[i]
    ]
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(variables)), margins).solve(solver="CLARABEL")
    return variables.value


def test_a_prompt_with_keys_goes_where_its_trained_parameters_are_smallest():
    """⟨Xv, softmax(XWp)⟩: W fixed, p fixed, and both trained."""
    problem = random_problem(3, 4, 4, 1, prompt=True)
    generator = np.random.default_rng(2)
    start = {"W": generator.normal(size=(4, 4)), "p": generator.normal(size=4)}
    ends = {}
    for fixed in ((), ("W",), ("p",)):
        descent = optimizers.normalized_gradient_descent(growing)
        run = attsvm.train(problem, attention="key_prompt", fixed=fixed, init=start, optimizer=descent, steps=20_000)
        prediction = attsvm.predict_direction(problem, run)
        assert attsvm.direction_error(run.weights, prediction.direction) < 1e-5
        ends[fixed] = run, prediction, prediction.direction / np.linalg.norm(prediction.direction)
    run, prediction, direction = ends["W",]
    # min ‖W⁻¹u‖
    p = smallest(problem, run.selected, 4, lambda p: start["W"] @ p)
    np.testing.assert_allclose(prediction.solution.direction, p, rtol=0, atol=1e-6)
    u = start["W"] @ p
    np.testing.assert_allclose(direction, u / np.linalg.norm(u), rtol=0, atol=1e-6)
    plain = attsvm.solve_svm(problem, run.selected).direction
    assert attsvm.direction_error(run.weights, plain) > 1e-3
    # min ‖W‖_F subject to margins of Wp, which is u p'/‖p‖²
    run, prediction, direction = ends["p",]
    W = smallest(problem, run.selected, (4, 4), lambda W: W @ start["p"])
    np.testing.assert_allclose(prediction.solution.direction, W, rtol=0, atol=1e-6)
    u = attsvm.solve_svm(problem, run.selected).direction
    np.testing.assert_allclose(W, np.outer(u, start["p"]) / (start["p"] @ start["p"]), rtol=0, atol=1e-6)
    assert attsvm.direction_error(run.parameters["W"], W) < 1e-5
    # min ½(‖W‖² + ‖p‖²) over Wp = u is ‖u‖
    run, prediction, direction = ends[()]
    u = smallest(problem, run.selected, 4, lambda u: u)
    np.testing.assert_allclose(direction, u / np.linalg.norm(u), rtol=0, atol=1e-6)


def test_what_cannot_be_predicted_is_refused():
    problem = random_problem(3, 4, 5, 0)
    for optimizer, attention, match in (
        (
            optax.adam(0.1, b1=0.5),
            None,
            r"norm: expected the norm of the Att-SVM.* because the limit of optax is not known",
        ),
        (
            optimizers.mirror_descent(learning_rate=0.1, p=3),
            "factored",
            r"norm: .*because the limit of mirror_descent on factors is not known",
        ),
    ):
        run = attsvm.train(problem, attention=attention, optimizer=optimizer, steps=20)
        with pytest.raises(attsvm.ProblemError, match=match):
            attsvm.predict_direction(problem, run)
    with pytest.raises(attsvm.ProblemError, match="run: expected a selection of shape"):
        attsvm.predict_direction(random_problem(4, 4, 5, 0), run)


def test_an_optimizer_of_optax_has_the_norm_that_was_measured():
    problem, rate, steps = random_problem(6, 8, 10, 0), 0.05, 5000

    def predicted(optimizer, steps=steps, **options):
        return attsvm.predict_direction(problem, attsvm.train(problem, optimizer=optimizer, steps=steps, **options))

    sign, normalized = optax.sign_sgd(rate), optimizers.normalized
    for optimizer in (normalized(sign), sign):
        found = predicted(optimizer)
        assert (found.norm.name, found.standing) == ("linf", "measured")
        assert "after 5,000 steps (python benchmarks/standings_of_optax.py)" in found.source
    # the range of the row: numbers of steps, changes of a logit, batches
    assert (predicted(normalized(sign), 2000).standing, predicted(normalized(sign), 6000).standing) == (
        "conjecture",
    ) * 2
    assert "use a learning rate of about 0.036" in predicted(normalized(optax.sign_sgd(0.01))).source
    assert predicted(normalized(sign), batch_size=2).standing == "none"
    schedule = predicted(normalized(optax.sign_sgd(lambda k: rate + 0.0 * k)))
    assert (schedule.norm.name, schedule.standing) == ("linf", "conjecture")
    # on the gradient itself Adam was measured to end elsewhere
    raw = predicted(optax.adam(0.01), 1000)
    assert (raw.norm.name, raw.standing) == ("linf", "none")
    # with heads, and with another option, nothing is known
    heads = attsvm.Problem(problem.tokens, problem.labels, problem.queries, [problem.head] * 2, num_heads=2)
    with pytest.raises(attsvm.ProblemError, match="the limit of normalized is not known"):
        attsvm.predict_direction(heads, attsvm.train(heads, optimizer=normalized(sign), steps=20))
    with pytest.raises(attsvm.ProblemError, match="the limit of normalized is not known"):
        predicted(normalized(optax.rmsprop(rate, decay=0.5)), 20)


ON_FACTORS = [
    (optimizers.normalized_gradient_descent(0.1), "nuclear", "sum over heads of nuclear", "nuclear"),
    (optimizers.spectral_descent(), "spectral", "max over heads of spectral", "nuclear"),
    (optimizers.spectral_descent(polar="newton_schulz", momentum=0.95), "spectral", None, "nuclear"),
    (optimizers.steepest_descent(norm="spectral"), "spectral", None, "nuclear"),
    (optimizers.row_descent(), "gamma2", None, None),
    (optimizers.column_descent(), "nuclear", None, "nuclear"),
    (optimizers.steepest_descent(norm="linf"), "nu", None, None),
    (optimizers.spectral_descent(scope="kq"), "fused_kq", None, "nuclear"),
    (optimizers.spectral_descent(scope="fused"), "spectral", "fused_heads", "nuclear"),
]


def test_steps_on_factors_are_predicted_by_how_far_they_change_the_logits(tmp_path):
    """The norm after short steps, of one head and of several, and after long ones."""
    made = {heads: random_problem(3, 4, 5, 0, num_heads=heads) for heads in (None, 2)}
    runs = {heads: attsvm.train(problem, steps=20, record=[10, 20]) for heads, problem in made.items()}

    def predicted(optimizer, heads, change, decay=0.0):
        limit = optimizer.limit("factored", heads)
        # the first of the records is of the earlier half
        history = runs[heads].history | {"steps": np.array([5, 20]), "logit_change": np.array([1e9, change])}
        selected = attsvm.optimal_tokens(made[heads])
        run = replace(
            runs[heads], attention="factored", limit=limit, history=history, weight_decay=decay, selected=selected
        )
        run.save(tmp_path / "run.npz")
        return attsvm.predict_direction(made[heads], attsvm.Run.load(tmp_path / "run.npz"))

    for optimizer, norm, of_heads, of_long_steps in ON_FACTORS:
        short = predicted(optimizer, None, 0.9)
        assert short.norm.name == norm
        # 20 steps are fewer than were measured; the ratio of sign descent ends at 0.946
        assert short.standing == ("none" if norm == "nu" else "conjecture")
        assert norm == "nu" or "take at least" in short.source
        if of_long_steps is None:
            with pytest.raises(attsvm.ProblemError, match=r"norm: .* is not known.*change no logit by more than 1"):
                predicted(optimizer, None, 1e4)
        else:
            assert predicted(optimizer, None, 1e4).norm.name == of_long_steps
        if of_heads is not None:
            joint = predicted(optimizer, 2, 0.9)
            assert joint.norm.name == of_heads
            assert attsvm.margin_ratio(made[2], joint.direction, joint.selected, joint.norm) > 1 - 1e-6
    # weight decay does not change the norm, but only spectral steps were measured with it, and only a small one
    for optimizer, decay, standing in (
        (optimizers.spectral_descent(weight_decay=0.02), 0.02, "conjecture"),
        (optimizers.spectral_descent(weight_decay=0.2), 0.2, "none"),  # the logits are at most about 25
        (optimizers.row_descent(weight_decay=0.02), 0.02, "none"),
    ):
        assert predicted(optimizer, None, 0.9, decay).standing == standing
    with pytest.raises(attsvm.ProblemError, match=r"norm: .* is not known"):
        predicted(optimizers.adam(), None, 1e4)
    # between the two it is not known
    between = predicted(optimizers.spectral_descent(), None, 5.0)
    assert (between.standing, between.source) == ("conjecture", "no theorem; such steps were not measured")
    for shipped in (optimizers.spectral_descent(polar="optax"), optimizers.muon()):
        with pytest.raises(attsvm.ProblemError, match=r"norm: .* is not known.*newton_schulz.*for each head"):
            predicted(shipped, None, 0.9)


def test_limits_of_bounded_rank_and_of_several_heads():
    descent, spectral, rows, columns = (ON_FACTORS[i][0] for i in (0, 1, 4, 5))
    # one head with m columns and 3 queries: W has at most the rank of the queries if the norm is right-invariant
    for optimizer, m, norm, rank in (
        (descent, 2, Nuclear(), 2),
        (spectral, 2, Spectral(), 2),
        (spectral, 3, Spectral(), None),
        (rows, 3, Gamma2(), 3),
        (columns, 2, Nuclear(), 2),
    ):
        bounded = limit_of(optimizer.steps, "factored", rank=m, queries=3)
        assert (bounded.norm, bounded.rank) == (norm, rank)
    # several heads, whose rank is bounded one by one
    for optimizer, attention, m, change, norm, rank in (
        (descent, "factored", 2, 1e4, Nuclear(), 2),
        (columns, "factored", 2, 0.9, Nuclear(), 2),
        (spectral, "factored", 2, 1e4, Nuclear(), 2),
        (spectral, "factored", 3, 1e4, SumOfHeads(Nuclear()), None),
        (spectral, "factored", 3, 0.9, MaxOfHeads(Spectral()), None),
        (optimizers.muon(), "factored", None, 0.9, None, None),
        (optimizers.gradient_descent(), "combined", None, 0.9, Lp(2.0), None),
        (optimizers.mirror_descent(p=3), "combined", None, 0.9, Lp(3.0), None),
        (optimizers.spectral_descent(), "combined", None, 0.9, Spectral(), None),
        # W of both heads is one matrix, but the columns of one matrix do not meet
        (optimizers.spectral_descent(scope="fused"), "combined", None, 0.9, None, None),
        (optimizers.row_descent(scope="kq"), "combined", None, 0.9, None, None),
        (optimizers.column_descent(scope="kq"), "combined", None, 0.9, OnColumns(Lp(np.inf)), None),
    ):
        known = limit_at(limit_of(optimizer.steps, attention, 2, rank=m, queries=3), change, queries=3)
        assert (known.norm, known.rank) == (norm, rank)
    for scope in ("fused", "kq"):
        assert optimizers.column_descent(scope=scope).steps == optimizers.column_descent().steps


def test_long_steps_with_shared_keys_were_not_measured():
    lagging = optimizers.momentum(optimizers.spectral_descent()).limit("factored", 4, 2)
    assert limit_at(lagging, 1e9) == lagging


def test_long_steps_on_the_factors_of_a_stack_are_compared_in_the_nuclear_norm():
    stack = attsvm.Stack(random_problem(2, 4, 5, 0), layers=2)
    run = stack.train(steps=100, attention="factored", rank=2, optimizer=optimizers.spectral_descent(5.0))
    (known,) = known_limits(run, stack.num_positions)
    # still of two columns
    assert (known.norm, known.rank) == (Nuclear(), 2)


def test_the_steps_of_the_later_half_of_each_trial_are_short_or_long():
    problem = random_problem(3, 4, 5, 0, batch=(3,))
    run = attsvm.train(
        problem, attention="factored", rank=2, optimizer=optimizers.spectral_descent(), steps=20, record=range(21)
    )
    assert (run.limit.norm, run.limit.rank) == (Spectral(), 2)
    moved = np.diff(run.history["weights"], axis=0)[9:]  # steps 10 to 20
    logits = np.einsum("bitk,rbkq,biq->rbit", problem.tokens, moved, problem.queries)
    np.testing.assert_allclose(longest_changes(run), np.abs(logits).max(axis=(0, 2, 3)), rtol=1e-9)

    def planted(step, steps, changes):
        limit = optimizers.spectral_descent().limit("factored")
        history = {"steps": np.array(steps), "logit_change": np.array(changes)}
        return replace(run, step=np.array(step), limit=limit, history=run.history | history)

    # maxima 3, 2 and 9: the last trial stopped at step 6, and later records repeat its weights
    changes = [[0, 0, 0], [80, 80, 9], [3, 1, 0], [0.5, 2, 0]]
    late = planted([20, 20, 6], [0, 5, 15, 20], changes)
    assert longest_changes(late).tolist() == [3, 2, 9]
    assert [(limit.steps.factors, trials.tolist()) for limit, trials in known_limits(late).items()] == [
        ("between", [0, 1, 2])
    ]
    # no step, or none that a trial made
    without = planted([20, 20, 6], [0], [[0, 0, 0]])
    frozen = planted([3, 2, 4], [0, 5], [[0, 0, 0], [0, 0, 0]])
    for unknown in (without, frozen):
        assert np.isnan(longest_changes(unknown)).all()
        assert [limit.norm for limit in known_limits(unknown)] == [Spectral()]


def test_a_run_from_a_file_is_predicted_as_the_run(tmp_path):
    problem = random_problem(3, 4, 5, 0, batch=(2,))
    run = attsvm.train(problem, steps=50, attention="factored")
    run.save(tmp_path / "run.npz")
    again = attsvm.predict_direction(problem, attsvm.Run.load(tmp_path / "run.npz"))
    assert again.hypotheses == attsvm.predict_direction(problem, run).hypotheses
    np.testing.assert_array_equal(again.solution.direction, attsvm.predict_direction(problem, run).solution.direction)


def test_the_prediction_of_a_trial_does_not_depend_on_its_neighbours():
    problem = random_problem(3, 4, 5, 0, batch=(4,))
    run = attsvm.train(problem, attention="factored", optimizer=optimizers.adam(), steps=20, record=range(21))
    changes = np.full(run.history["logit_change"].shape, 0.9)
    short = replace(run, history=run.history | {"logit_change": changes.copy()})
    changes[:, 2] = 100.0
    mixed = replace(run, history=run.history | {"logit_change": changes})
    expected = r"norm: .*because it depends .* adam: nu for trials 0, 1, 3, unknown for trials 2; give one"
    with pytest.raises(attsvm.ProblemError, match=expected):
        attsvm.predict_direction(problem, mixed)
    expected = r"adam on factors with steps that change a logit by up to 100 is not known; .* such as adam\(0\.001\)$"
    with pytest.raises(attsvm.ProblemError, match=expected):
        attsvm.predict_direction(problem[2], mixed[2])
    others = [0, 1, 3]
    alone, of_all = attsvm.predict_direction(problem[others], mixed[others]), attsvm.predict_direction(problem, short)
    assert (alone.norm, alone.standing) == (of_all.norm, of_all.standing)
    # one trial outside of the measured range decides for all
    descent = attsvm.train(problem, steps=20_000, optimizer=optimizers.mirror_descent(p=1.75))
    assert attsvm.predict_direction(problem, descent).standing == "measured"
    changes = descent.history["logit_change"].copy()
    changes[-1, 3] = 1e9
    one = replace(descent, history=descent.history | {"logit_change": changes})
    assert attsvm.predict_direction(problem, one).standing == "conjecture"
    assert attsvm.predict_direction(problem[:3], one[:3]).standing == "measured"


def test_a_run_from_a_file_keeps_what_is_known_of_its_steps(tmp_path):
    problem = random_problem(6, 8, 10, 0)
    plain, lagging = optimizers.normalized_gradient_descent(growing), optimizers.steepest_descent(norm="linf")
    for optimizer, command in ((plain, "standings.py"), (optimizers.momentum(lagging, 0.9), "mini_batch_limits.py")):
        attsvm.train(problem, steps=500, optimizer=optimizer).save(tmp_path / "run.npz")
        loaded = replace(attsvm.Run.load(tmp_path / "run.npz"), optimizer_config=None)
        found = attsvm.predict_direction(problem, loaded, norm="linf" if command != "standings.py" else None)
        assert (found.standing, command in found.source) == ("conjecture", True)


def unequal_steps(head_step, attention_step):
    """Normalised steps of a length of their own for v and p, as functions of the number of the step."""

    def init(_):
        return jnp.zeros(())

    def update(gradient, count, _=None, *, log_scale, **__):  # asked for, so that nothing underflows
        lengths = {"v": head_step(count), "p": attention_step(count)}
        moves = {name: -lengths[name] * g / jnp.sqrt(jnp.sum(g * g)) for name, g in gradient.items()}
        return moves, count + 1

    return optax.GradientTransformationExtraArgs(init, update)


@pytest.mark.parametrize("outgrows", ["head", "attention"])
def test_the_radii_of_a_joint_run_say_relaxed_or_plain(reference, outgrows):
    data = reference("prompt_attention.npz")
    problem = attsvm.Problem(data["joint_relaxed_X"], data["joint_relaxed_Y"], head=data["joint_relaxed_v_at"][1])

    def fast(k):
        return 0.02 * (1 + k / 100)

    def slow(k):
        return 0.1 / (1 + k / 100)

    rule = unequal_steps(fast, slow) if outgrows == "head" else unequal_steps(slow, fast)
    run = attsvm.train(
        problem, optimizer=rule, steps=30_000, train_head=True, init={"p": data["joint_relaxed_p_at"][1]}
    )
    prediction = attsvm.predict_direction(problem, run, norm="frobenius")
    assert prediction.standing == "conjecture"  # of an optimizer of optax nothing is known
    named = {one.name: one for one in prediction.hypotheses}
    assert all(named[name].holds for name in ("separable", "best_for_head", "one_grows_faster"))
    slack = ~attsvm.solve_head(problem, run.selected).support
    assert slack.any()
    np.testing.assert_array_equal(prediction.relaxed, slack if outgrows == "head" else np.zeros_like(slack))
    right, wrong = (
        attsvm.direction_error(run.weights, attsvm.solve_svm(problem, run.selected, relaxed=relaxed).direction)
        for relaxed in (prediction.relaxed, slack & ~prediction.relaxed)
    )
    assert right < 0.1 * wrong
    # the same records with a scale taken out of the weights, as of weights that are too long for a float
    lead = 3 * np.log(1 + run.history["steps"])
    weights = run.history["weights"] * np.exp(-lead)[:, None]
    scaled = replace(run, history={**run.history, "weights": weights, "log_scale": lead})
    again = attsvm.predict_direction(problem, scaled, norm="frobenius")
    np.testing.assert_array_equal(again.relaxed, prediction.relaxed)


def test_nonlinear_heads_keep_sets():
    problem = random_problem(3, 4, 6, 1)
    head = attsvm.heads.MLP(np.random.default_rng(0).standard_normal((8, 6)), activation="relu")
    run = attsvm.train(problem, head=head, steps=3000, init=0.1 * np.eye(6))
    prediction = attsvm.predict_direction(problem, run)
    assert prediction.selected.shape == (3, 4)
    assert prediction.selected.dtype == bool
    assert prediction.selected[np.arange(3), run.selected].all()
    assert prediction.standing == "none"  # after 3,000 steps no token is dropped yet
    assert prediction.selected.all()


# --- conditions


def test_feasibility_says_what_sizes_and_data_say():
    wide = attsvm.feasibility(random_problem(4, 5, 6, 0))
    assert wide.almost_sure
    assert wide.feasible
    # three tokens on a line: the middle one is never alone the largest
    tokens = np.array([[[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]])
    line = attsvm.Problem(tokens, [1.0], queries=[[1.0, 0.0]], head=[1.0, 0.0])
    middle = attsvm.feasibility(line, [1])
    assert middle.almost_sure  # for generic tokens it would be
    assert not middle.feasible
    assert middle.solution.certificate.bound > 1e12
    assert attsvm.feasibility(line, [0]).feasible
    assert not attsvm.feasibility(random_problem(4, 5, 6, 0, prompt=True)).almost_sure
    assert not attsvm.feasibility(random_problem(7, 5, 6, 0)).almost_sure
    assert not attsvm.feasibility(random_problem(4, 8, 6, 0)).almost_sure
    many = attsvm.feasibility(random_problem(5, 5, 2, 0, batch=(50,)))
    assert 0 < many.feasible.mean() < 1


def test_feasibility_that_nothing_proves_is_none(tmp_path, monkeypatch):
    problem = random_problem(4, 5, 2, 0, batch=(6,))
    solved = attsvm.feasibility(problem).solution
    assert "infeasible" in solved.status
    lost = replace(
        solved,
        status=np.where(np.arange(6) == 1, "inaccurate", solved.status),
        gap=np.where(np.arange(6) == 1, np.inf, solved.gap),
    )
    monkeypatch.setattr("attsvm.theory.conditions.solve_svm", lambda *_, **__: lost)
    found = attsvm.feasibility(problem)
    proved = np.where(solved.status == "infeasible", 0.0, 1.0)
    proved[1] = np.nan
    np.testing.assert_array_equal(found.holds, proved)
    assert [one.holds for one in (found[k] for k in range(6))] == [None if np.isnan(p) else bool(p) for p in proved]
    assert found.hypotheses[0].verdict == f"holds for {int(np.nansum(proved))} of 6, not decided for 1"
    assert found[1].feasible is None
    assert found[1].hypotheses[0].verdict == "not decided"
    found[1].save(tmp_path / "one.npz")
    assert type(found).load(tmp_path / "one.npz").feasible is None
    # weights with positive margins are a proof, even if they are not optimal
    monkeypatch.setattr("attsvm.theory.conditions.solve_svm", lambda *_, **__: replace(lost, gap=np.full(6, 0.5)))
    assert attsvm.feasibility(problem).holds[1] == 1


def test_every_selection_is_feasible_where_the_sizes_say_so():
    for seed in range(5):
        problem = random_problem(3, 4, 3, seed)
        choices = np.stack(np.meshgrid(*[np.arange(4)] * 3), axis=-1).reshape(-1, 3)
        found = attsvm.feasibility(problem, choices)
        assert found.almost_sure
        assert found.feasible.all()


def test_the_gradient_margin_is_that_of_the_gradient():
    problem = random_problem(3, 4, 5, 2, batch=(2,))
    starts = 0.3 * np.random.default_rng(0).standard_normal((4, 2, 5, 5))
    found = attsvm.theory.global_convergence_conditions(problem, starts)
    for k, b in np.ndindex(4, 2):
        one, W, step = problem[b], starts[k, b], 1e-6
        gradient = np.zeros((5, 5))
        for entry in np.ndindex(5, 5):
            moved = [W.copy(), W.copy()]
            moved[0][entry] += step
            moved[1][entry] -= step
            high, low = (attsvm.train(one, steps=0, init=x).loss for x in moved)
            gradient[entry] = (high - low) / (2 * step)
        best = attsvm.optimal_tokens(one)
        rows = [
            np.outer(one.tokens[i, best[i]] - one.tokens[i, t], one.queries[i])
            for i in range(3)
            for t in range(4)
            if t != best[i]
        ]
        margin = min(-np.sum(row * gradient) / np.linalg.norm(row) / np.linalg.norm(gradient) for row in rows)
        # central differences of a loss near 0.7 have about eight digits
        assert found.gradient_margin[k, b] == pytest.approx(margin, abs=1e-6)
        assert found.init_norm[k, b] == pytest.approx(np.linalg.norm(W))


def test_where_the_first_gradient_is_favourable_small_starts_end_globally():
    rng = np.random.default_rng(0)
    # one token is best, the others score alike
    tokens = rng.standard_normal((60, 4, 5, 8))
    tokens[..., 0] = 0.0
    tokens[:, :, 2, 0] = 1.0
    labels = np.ones((60, 4))
    equal = attsvm.Problem(tokens, labels, queries=rng.standard_normal((60, 4, 8)), head=np.eye(8)[0])
    starts = 1e-3 * rng.standard_normal((60, 8, 8))
    found = attsvm.theory.global_convergence_conditions(equal, starts)
    assert found.equal_scores.all()
    assert found.favourable.all()
    assert (attsvm.classify(equal, attsvm.train(equal, steps=3000, init=starts).weights).kind == "global").all()
    # generic scores: where the first gradient favours the best tokens
    generic = random_problem(3, 3, 4, 5, batch=(300,))
    found = attsvm.theory.global_convergence_conditions(generic)
    assert not found.equal_scores.any()
    assert 20 < found.favourable.sum() < 280
    kinds = attsvm.classify(generic, attsvm.train(generic, steps=3000).weights).kind
    assert (kinds[found.favourable] == "global").all()
    # and it says something: elsewhere some runs end locally
    assert (kinds[~found.favourable] == "local").any()


# --- rates


def test_the_rate_of_a_power_law_is_its_power():
    steps = np.unique(np.geomspace(1, 1e5, 60).astype(int))
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal((len(steps), 2)))
    errors = np.stack([steps**-1.5, 3 * steps**-0.5], axis=1) * noise
    rate = attsvm.theory.convergence_rate(steps, errors)
    np.testing.assert_allclose(rate.slope, [-1.5, -0.5], atol=0.01)
    assert ((rate.low < [-1.5, -0.5]) & (rate.high > [-1.5, -0.5])).all()
    # records past the floor of rounding do not count, nor do those before the last change of the selection
    floored = np.maximum(steps**-4.0, 1e-16)
    assert attsvm.theory.convergence_rate(steps, floored).slope == pytest.approx(-4, abs=1e-9)
    kinked = np.where(steps < 100, 1.0, 100.0 / steps)
    assert attsvm.theory.convergence_rate(steps, kinked, since=100).slope == pytest.approx(-1, abs=1e-9)
    few = attsvm.theory.convergence_rate([1, 2, 3], [1, 0.5, 0.3])
    assert (few.slope, few.low, few.high, few.points) == (0.0, -np.inf, np.inf, 3)
    with pytest.raises(attsvm.ProblemError, match="confidence"):
        attsvm.theory.convergence_rate(steps, floored, confidence=1)


def test_laws_are_told_apart_by_aic():
    steps = np.unique(np.geomspace(1, 1e6, 60).astype(int))
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal((len(steps), 3)))
    logs = np.log(np.maximum(steps, 2))
    # of pure noise about a constant, both laws are as good
    errors = np.stack([steps**-0.5, logs**-2.0, np.ones(len(steps))], axis=1) * noise
    rates = attsvm.theory.compare_laws(steps, errors)
    assert rates.preferred.tolist() == ["power", "polylog", "neither"]
    np.testing.assert_allclose([rates.power.slope[0], rates.polylog.slope[1]], [-0.5, -2], atol=0.05)
    assert (rates.polylog.low[1] < -2) & (rates.polylog.high[1] > -2)
    # AIC of a line with normal residuals, by its definition: 2 · parameters − 2 log L at the largest likelihood
    used = steps >= 2
    x, y = np.log(steps[used]), np.log(errors[used, 1])
    spread = np.std(y - np.polyval(np.polyfit(x, y, 1), x))
    log_likelihood = stats.norm.logpdf(y, np.polyval(np.polyfit(x, y, 1), x), spread).sum()
    constant = used.sum() * (1 + np.log(2 * np.pi))
    assert rates.power.aic[1] + constant == pytest.approx(6 - 2 * log_likelihood, rel=1e-10)
    few = attsvm.theory.compare_laws([2, 3], [1, 0.5])
    assert (few.evidence, few.preferred) == (0.0, "neither")
    with pytest.raises(attsvm.ProblemError, match="law: expected power, polylog, got 'exponential'"):
        attsvm.theory.convergence_rate(steps, errors, law="exponential")


def test_the_bound_of_mirror_descent_has_the_proved_form():
    steps = np.array([10, 10**6, 10**100], dtype=np.float64)
    logs = np.array([np.log(10), 6 * np.log(10), 100 * np.log(10)])
    for p, bound in ((1.5, logs**-0.5), (2.0, np.log(logs) ** 2 / logs), (3.0, np.log(logs) / logs)):
        np.testing.assert_allclose(attsvm.theory.mirror_descent_bound(steps, p), bound, rtol=1e-13)
    with pytest.raises(attsvm.ProblemError, match="p: expected a number above 1"):
        attsvm.theory.mirror_descent_bound(steps, 1.0)
    with pytest.raises(attsvm.ProblemError, match="steps: expected at least 3, got 2"):
        attsvm.theory.mirror_descent_bound([2, 3], 2.0)


def test_observed_rates_of_normalised_gradient_descent():
    problem = random_problem(5, 6, 8, 0, batch=(3,))
    run = attsvm.train(problem, steps=50_000)
    rates = attsvm.theory.observed_rates(problem, run)
    # the margin's gap closes like 1/k, and what is quadratic in it twice as fast
    powers = {name: rate.power.slope for name, rate in rates.items()}
    assert (np.abs(powers["margin_gap"] + 1) < 0.1).all()
    assert (np.abs(powers["direction_error"] + 2) < 0.3).all()
    np.testing.assert_allclose(powers["bregman_divergence"], powers["direction_error"], rtol=1e-6)
    assert (rates["margin_gap"].preferred == "power").all()
    wrong = attsvm.predict_direction(problem, run, norm="nuclear")
    assert (np.abs(attsvm.theory.observed_rates(problem, run, wrong)["direction_error"].power.slope) < 0.2).all()


# --- what comes back


def test_answers_are_saved_loaded_and_indexed(tmp_path):
    problem = random_problem(3, 4, 5, 0, batch=(2,))
    starts = 0.1 * np.random.default_rng(0).standard_normal((3, 2, 5, 5))
    run = attsvm.train(problem, steps=2000, init=starts)
    answers = [
        attsvm.predict_direction(problem, run),
        attsvm.classify(problem, run.weights),
        attsvm.feasibility(problem),
        attsvm.theory.global_convergence_conditions(problem, starts),
        attsvm.theory.observed_rates(problem, run)["direction_error"],
        attsvm.theory.local_convergence_conditions(problem, attsvm.optimal_tokens(problem)),
        attsvm.theory.joint_conditions(problem, attsvm.optimal_tokens(problem)),
        attsvm.theory.mini_batch_direction(problem, attsvm.optimal_tokens(problem), 1, "spectral"),
        attsvm.theory.landscape_conditions(problem),
        attsvm.theory.mixture_conditions(problem),
    ]
    for answer in answers:
        again = assert_survives_a_file(answer, tmp_path)
        last = (-1,) * len(answer.batch_shape)
        assert repr(again[last]) == repr(answer[last])
        assert answer[last].batch_shape == ()
    prediction, kinds, _, conditions, *_ = answers
    np.testing.assert_array_equal(prediction[1, 0].solution.direction, prediction.solution.direction[1, 0])
    assert prediction[0].standing in attsvm.theory.Standing
    assert prediction[0].hypotheses == prediction.hypotheses
    assert kinds[0, 0].kind == str(kinds.kind[0, 0])
    assert kinds[0, 0].kind in attsvm.theory.Kind
    assert conditions[2, 1].solution.status == conditions.solution.status[2, 1] == "optimal"


def test_the_divergence_of_a_norm_is_found_by_its_type():
    assert divergence_of(Nuclear()) is None
    assert divergence_of(Lp(1.0)) is None
    a, b = np.array([1.0, 2.0]), np.array([2.0, 1.0])
    assert divergence_of(Lp(1.5))(a, b) == attsvm.measures.bregman_divergence(a, b, 1.5)


def test_the_repr_of_a_prediction_is_short():
    problem = random_problem(3, 4, 5, seed=0, batch=(2,))
    run = attsvm.train(problem, steps=5)
    for one in (attsvm.predict_direction(problem, run), attsvm.predict_direction(problem[0], run[0])):
        assert len(repr(one)) <= 100
        assert one.standing in repr(one)
