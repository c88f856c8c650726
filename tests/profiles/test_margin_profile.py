"""Which norm's margin an optimizer maximises, for optimizers of JAX and of PyTorch."""

import re
import warnings
from dataclasses import replace
from functools import partial

import cvxpy as cp
import jax
import numpy as np
import optax
import pytest

import attsvm
from attsvm import optimizers
from attsvm.errors import ProblemError
from attsvm.norms import parse_norm
from attsvm.profiles.entries import without_decay
from attsvm.profiles.named import stepped
from attsvm.profiles.profile import _standard, _start
from attsvm.profiles.readings import SCHEDULES, MarginRatios, Reading, losses
from attsvm.profiles.stepped import ProfileTask
from attsvm.profiles.verdict import NONE_OF_THESE, VerdictOutcome, chosen, ends_early, outcome, reason, settled
from attsvm.training import LossGradient

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

NORMS = ["l1", "frobenius", "linf"]


@pytest.fixture(scope="module")
def task():
    problem = _standard(3)
    return ProfileTask(problem, "combined", _start(problem, {"W": (10, 10)}), looks=(5, 40), normalize=True)


@pytest.mark.parametrize(("normalize", "batch_size"), [(True, None), (False, None), (True, 4)])
@pytest.mark.parametrize(
    ("in_torch", "in_optax"),
    [
        (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), lambda rate: optax.sgd(rate, momentum=0.9)),
        (
            lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0.01),
            lambda rate: optax.adamw(rate, weight_decay=0.01),
        ),
    ],
    ids=["sgd", "adamw"],
)
def test_both_libraries_make_the_same_steps(task, normalize, batch_size, in_torch, in_optax):
    one, other = stepped(in_torch, None), stepped(in_optax, 0.1)
    assert (
        one.decays_weights({"W": (2, 2)})
        == other.decays_weights({"W": (2, 2)})
        == ("AdamW" in str(one._make([torch.nn.Parameter(torch.ones(1))])))
    )
    task = replace(task, normalize=normalize, batch_size=batch_size)
    looks = [list(each.trajectory(task, SCHEDULES["growing"])) for each in (one, other)]
    for one, other in zip(*looks, strict=True):
        # the two compute in different orders of summation
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.logit_change, other.logit_change, rtol=1e-6)


def test_mini_batches_are_those_of_training():
    profile = attsvm.margin_profile(torch.optim.SGD, learning_rate=0.1, seeds=2, steps=64, norms=NORMS, batch_size=2)
    assert (profile.batch_size, profile.steps_made) == (2, (64,) * len(profile.schedules))
    assert "SGD, mini-batches of 2" in str(profile)
    assert "mini-batches of 2" in repr(profile)
    problem = _standard(2)
    rates = attsvm.optimizers.normalized_gradient_descent(lambda k: 0.1 * SCHEDULES["decaying"](1.0 * k))
    start = _start(problem, {"W": (10, 10)})
    run = attsvm.train(problem, optimizer=rates, steps=64, init=start, batch_size=2)
    ratios = MarginRatios(problem, [parse_norm(norm) for norm in NORMS])(run.weights)
    np.testing.assert_allclose(profile.ratios[profile.schedules.index("decaying")], ratios, rtol=1e-6)
    whole = attsvm.margin_profile(optax.sgd(0.1), seeds=1, steps=8, norms=NORMS, batch_size=6)
    assert whole.batch_size is None
    assert "full batch" in repr(whole)


def test_pytorch_has_one_thread_inside_a_profile_and_its_own_number_after_it():
    before, seen = torch.get_num_threads(), set()
    torch.set_num_threads(2)
    try:
        attsvm.margin_profile(
            torch.optim.SGD, seeds=1, steps=8, norms=NORMS, callback=lambda at: seen.add(torch.get_num_threads())
        )
        assert (seen, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)


def test_gradient_descent_has_the_frobenius_norm_and_its_own_gradient_underflows(tmp_path):
    profile = attsvm.margin_profile(optax.sgd(0.1), norms=NORMS, seeds=2, steps=1500)
    assert profile.verdict == profile.norm.name == "frobenius"
    # the raw gradient shrinks with the loss, so that the weights hardly grow
    assert profile.underflows
    assert (profile.ratios <= 1 + 1e-9).all()
    path = tmp_path / "profile.npz"
    profile.save(path)
    loaded = attsvm.MarginProfile.load(path)
    assert str(loaded) == str(profile)
    # rounded down, as in the sentence below the table
    assert "0.868\n" in str(replace(profile, ratios=np.full_like(profile.ratios, 0.86899)))
    assert loaded.norm == profile.norm
    assert not loaded.unfinished
    np.testing.assert_array_equal(loaded.ratios, profile.ratios)


def test_a_ratio_is_the_margin_over_the_best_margin():
    problem = _standard(2)
    weights = np.random.default_rng(1).standard_normal((2, 10, 10))
    found = MarginRatios(problem, [parse_norm("frobenius"), parse_norm("linf")])(weights)
    logits = np.einsum("sntd,sde,sne->snt", problem.tokens, weights, problem.queries)
    selected = logits.argmax(axis=-1)
    kept = np.take_along_axis(logits, selected[..., None], axis=-1)
    margins = np.where(np.arange(8) == selected[..., None], np.inf, kept - logits).min(axis=(1, 2))
    for s in range(2):
        for n, (size, norm) in enumerate([(np.linalg.norm(weights[s]), 2), (abs(weights[s]).max(), "inf")]):
            rows = kept_minus_dropped(problem[s], selected[s])
            w = cp.Variable(100)
            least = cp.Problem(cp.Minimize(cp.norm(w, norm)), [rows @ w >= 1]).solve(solver=cp.CLARABEL)
            # Clarabel stops at 1e-8
            assert found[s, n] == pytest.approx(margins[s] / size * least, rel=1e-6)


def kept_minus_dropped(problem, selected):
    """The rows (x_α − x_t) z' of the constraints, as vectors."""
    return np.array(
        [
            np.outer(problem.tokens[i, selected[i]] - problem.tokens[i, t], problem.queries[i]).ravel()
            for i in range(6)
            for t in range(8)
            if t != selected[i]
        ]
    )


def _outcome(**changed):
    return VerdictOutcome(
        **{
            "schedule": "constant",
            "norm": "linf",
            "mean": 0.97,
            "second": "l3",
            "second_mean": 0.86,
            "separate": True,
            "leads": 1.0,
            "rising": "linf",
            "rise": 0.001,
            "flat": False,
            "decided": 1.0,
            "change": 0.1,
            "last_change": 0.1,
            "finite": True,
            "losses": (0.7, 0.5),
            "means": np.array([0.97, 0.86]),
            "norms": ("linf", "l3"),
            "distant": np.inf,
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("changed", "decays", "said"),
    [
        ({}, False, "mean margin ratio 0.970 with constant steps"),
        ({"losses": (0.7, 0.9), "finite": False}, True, "the loss rises from 0.7 to 0.9"),
        ({"finite": False}, False, "smaller learning rate"),
        ({"decided": 0.5}, False, "not saturated in 50% of the problems. Use more steps"),
        ({"decided": 0.5, "flat": True}, False, "not saturated in 50% of the problems, and the weights no longer grow"),
        ({"decided": 0.5}, True, "Weight decay keeps the weights small"),
        ({"change": 5.0}, False, "a late step changes a logit by 5"),
        ({"change": 5.0, "decided": 0.5}, False, "a late step changes a logit by 5"),
        ({"mean": 0.9, "rise": 0.1}, False, "and it is still rising (by 0.1 in the later half). Use more steps"),
        (
            {"mean": 0.9, "rise": 0.1, "distant": 7.34},
            False,
            "0.95 is 7.34 times the steps away at this pace. Use more",
        ),
        ({"mean": 0.9, "rise": 0.004, "distant": 7.34, "flat": True}, False, "0.95 is 7.34 times the steps away"),
        ({"mean": 0.9, "rise": 0.1, "rising": "l3"}, False, "and that in the l3 norm is still rising"),
        ({"mean": 0.9, "rise": -0.1}, False, "the ratios still change. Use more steps"),
        ({"leads": 0.5}, False, "in 50% of the problems another norm"),
        (
            {"mean": 0.85, "flat": True},
            False,
            "none of these norms (linf, l3): the largest ratio is 0.850, in the linf",
        ),
        ({"mean": 0.85, "flat": True}, True, "and no ratio rises any more. Weight decay may be the cause"),
        (
            {"mean": 0.85, "flat": True, "distant": 1e4},
            False,
            "the later half (a rise of 0.001) none reaches 0.95 within 100",
        ),
        ({"mean": 0.988, "second_mean": 0.987}, False, "0.987 in the l3 norm: too close to tell them apart"),
        ({"mean": 0.988, "second_mean": 0.987, "flat": True}, False, "apart. Compare with norms between the two."),
    ],
)
def test_a_profile_says_why_it_is_inconclusive(changed, decays, said):
    one = _outcome(**changed)
    assert one.conclusive == (not changed)
    cause, why = reason(one, decays)
    assert said in why
    assert one.unfinished == ("Use more steps" in why)
    assert (cause == "") == one.conclusive
    assert (cause == NONE_OF_THESE) == why.startswith(NONE_OF_THESE)
    assert " as the row says." in reason(one, True, " as the row says.")[1] or cause not in (
        NONE_OF_THESE,
        "not settled",
    )


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({"losses": (0.7, 0.9)}, "Check the sign of its steps."),
        ({"finite": False}, "the weights are no longer finite."),
        ({"decided": 0.5}, "Use more steps."),
        ({"change": 5.0}, "Correcting the learning rate was not enough."),
    ],
)
def test_no_other_learning_rate_is_advised_where_it_was_found(changed, end):
    assert reason(_outcome(schedule="paced", **changed), False)[1].endswith(end)
    assert "learning rate." in reason(_outcome(**changed), False)[1]


def test_long_steps_with_a_larger_ratio_do_not_outweigh_short_ones():
    assert chosen([_outcome(norm="l3", mean=0.99, change=20.0), _outcome()]).norm == "linf"
    assert not _outcome(last_change=20.0).conclusive


def test_a_schedule_ends_when_two_looks_in_a_row_say_the_same():
    sure, flat = _outcome(), _outcome(mean=0.83, flat=True)
    assert ends_early([sure, sure])
    assert ends_early([flat, flat])
    # flat, but not for ever
    assert not ends_early([_outcome(mean=0.94, flat=True, distant=4.0)] * 2)
    assert ends_early([_outcome(last_change=3.0), _outcome(last_change=2.0)])
    for said in (
        [sure],
        [sure, flat],
        [sure, _outcome(norm="l3")],
        [sure, _outcome(mean=0.969)],
        [sure, _outcome(separate=False)],
        # as Adam at 2,500 steps: the interval of another norm than its own lies above those of all others
        [_outcome(norm="l3", mean=0.9)] * 2,
        [_outcome(mean=0.9, last_change=3.0), _outcome(mean=0.9)],
    ):
        assert not ends_early(said)


def test_further_schedules_are_trained_until_the_answer_is_known():
    flat = _outcome(mean=0.83, flat=True, means=np.array([0.83, 0.81]))
    assert settled([_outcome()])
    assert settled([flat, replace(flat, means=np.array([0.84, 0.80]))])
    assert settled([replace(flat, decided=0.0), replace(flat, decided=0.0, means=np.array([0.5, 0.5]))])
    for outcomes in (
        [flat],
        [flat, replace(flat, means=np.array([0.9, 0.81]))],
        [replace(flat, change=5.0, last_change=5.0), flat],
        [flat, _outcome(mean=0.83, means=flat.means)],
    ):
        assert not settled(outcomes)


def test_more_problems_are_needed_only_while_the_intervals_of_large_ratios_overlap():
    assert _outcome(separate=False).open
    assert _outcome(leads=0.875).open
    assert not _outcome().open
    # as Muon: the intervals of two norms overlap, and both ratios are too small for an answer
    assert not _outcome(mean=0.83, separate=False).open


def test_problems_that_follow_have_the_ratios_that_they_have_from_the_start(monkeypatch):
    options = {"seeds": 3, "steps": 400, "norms": NORMS, "learning_rate": 0.1}
    whole = attsvm.margin_profile(optax.sgd, **options)
    monkeypatch.setattr("attsvm.profiles.profile.FIRST_PROBLEMS", 2)
    monkeypatch.setattr(VerdictOutcome, "open", False)
    assert attsvm.margin_profile(optax.sgd, **options).ratios.shape[1] == 2
    monkeypatch.setattr(VerdictOutcome, "open", True)
    later = attsvm.margin_profile(optax.sgd, **options)
    assert (later.schedules, later.steps_made) == (whole.schedules, whole.steps_made)
    np.testing.assert_allclose(later.ratios, whole.ratios, rtol=1e-9)
    np.testing.assert_allclose(later.raw_ratios, whole.raw_ratios, rtol=1e-9)


def _reading(step, ratios, decided=True, distance=1.0):
    count = len(ratios)
    every = np.ones(count)
    return Reading(step, np.array(ratios), np.full(count, decided), 0.1 * every, 0.5 * every, distance * every)


def test_an_outcome_tells_flat_ratios_from_rising_ones_and_has_students_interval():
    norms, loss = ("linf", "l3"), np.full(2, 0.7)
    first, last = [[0.80, 0.70], [0.84, 0.72]], [[0.81, 0.70], [0.85, 0.72]]
    found = outcome("constant", norms, loss, _reading(50, first), _reading(100, last), growth=2.0)
    assert found.flat
    assert found.last_change == pytest.approx(0.2)
    assert found.losses == pytest.approx((0.7, 0.5))
    # 0.82 + 0.01 leaves 16/17 of the lack, and 0.17 (16/17)^k = 0.05 after 2^k times the steps
    assert found.distant == pytest.approx(2 ** (np.log(0.05 / 0.17) / np.log(17 / 18)))
    still = outcome("constant", norms, loss, _reading(50, last), _reading(100, first))
    assert still.distant == np.inf
    # the largest ratio may be flat while another one rises
    risen = outcome("constant", norms, loss, _reading(50, [[0.8, 0.6], [0.84, 0.6]]), _reading(100, last))
    assert (risen.flat, risen.norm, risen.rising) == (False, "linf", "l3")
    # with unsaturated attention the weights must have stopped, too
    half = _reading(50, first, decided=False)
    assert outcome("constant", norms, loss, half, _reading(100, last, decided=False)).flat
    assert not outcome("constant", norms, loss, half, _reading(100, last, decided=False, distance=1.5)).flat
    # half width of two values a, b: 12.706 |a - b| / 2
    for spread, separate in ((0.015, True), (0.025, False)):
        ratios = [[0.9 - spread / 2, 0.7 - 0.0], [0.9 + spread / 2, 0.7]]
        assert outcome("constant", norms, loss, _reading(50, ratios), _reading(100, ratios)).separate == (
            12.706 * spread / 2 < 0.2
        )
        assert separate == (12.706 * spread / 2 < 0.1)


class _OfTorch(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.moved(p.data, group["lr"] * p.grad)


class Ascent(_OfTorch):
    def moved(self, weights, step):
        return weights + step


class Projected(_OfTorch):
    def moved(self, weights, step):
        weights = weights - step
        return weights / max(1.0, float(weights.norm()))


class Random(_OfTorch):
    def moved(self, weights, step):
        return weights - 0.1 * torch.randn_like(weights)


class OfModule(torch.optim.SGD):
    def __init__(self, model, lr=0.1, weight_decay=0.1):
        super().__init__(model.parameters(), lr=lr, weight_decay=weight_decay)


class Single(_OfTorch):
    def moved(self, weights, step):
        return (weights - step).float()


def test_a_rising_loss_is_said_first_and_no_norm_is_named():
    profile = attsvm.margin_profile(Ascent, seeds=2, steps=800, norms=NORMS)
    assert profile.verdict == "inconclusive"
    assert profile.reason.startswith("the loss rises from ")
    problem = _standard(2)
    # the attention of zero weights is uniform
    values = np.einsum("sntd,sd->sn", problem.tokens, problem.head) / 8 * problem.labels
    expected = np.log1p(np.exp(-values)).mean(axis=1)
    np.testing.assert_allclose(losses(problem, np.zeros((2, 10, 10))), expected)


@pytest.mark.parametrize("optimizer", [Projected, Random])
def test_weight_decay_is_blamed_only_where_there_is_some(optimizer):
    torch.manual_seed(0)
    assert not stepped(optimizer, None).decays_weights({"W": (10, 10)})
    for decaying in (torch.optim.AdamW, lambda ps: torch.optim.Adam(ps, lr=0.1, weight_decay=0.1), torch.optim.Muon):
        assert stepped(decaying, None).decays_weights({"W": (10, 10)})


def test_the_norm_of_an_optimizer_and_norms_of_columns_are_compared():
    few = {"seeds": 4, "steps": 2500}
    profile = attsvm.margin_profile("column_descent", **few)
    assert (profile.verdict, profile.cause) == ("linf,2-columns", "")
    mirror = partial(optimizers.mirror_descent, p=2.2)
    for optimizer, attention, own in ((mirror, None, "l2.2"), ("row_descent", "factored", "gamma2")):
        names = attsvm.margin_profile(optimizer, seeds=1, steps=8, attention=attention).norms
        assert names == (*profile.norms, own)
    # those that are given are the ones that are compared
    assert attsvm.margin_profile(mirror, seeds=1, steps=8, norms=NORMS).norms == tuple(NORMS)


def test_weight_decay_is_named_with_the_row_of_the_catalogue_that_has_none():
    rows = {one.setting: one for one in attsvm.profiles.catalogue().of("torch.optim.AdamW")}
    decaying = "The cause is its weight decay: without it, at most as many steps give the linf norm"
    for optimizer in ("torch.optim.AdamW", torch.optim.AdamW, partial(torch.optim.AdamW, weight_decay=0.5)):
        assert decaying in without_decay(optimizer, "W", rows["W"].steps)
        assert "in the row torch.optim.AdamW on W, no decay of the catalogue." in without_decay(optimizer, "W", 10**6)
    for optimizer, setting, steps in (
        (torch.optim.AdamW, "W", rows["W"].steps - 1),
        (torch.optim.AdamW, "K and Q", 10**6),  # where no norm is known
        (torch.optim.Adam, "W", 10**6),  # which has none
        (partial(torch.optim.AdamW, betas=(0.5, 0.5)), "W", 10**6),
    ):
        assert without_decay(optimizer, setting, steps) == ""


def test_muon_as_it_is_shipped_converges_to_none_of_the_norms():
    profile = attsvm.margin_profile("muon", seeds=5, steps=4000, norms=["frobenius", "spectral", "linf"])
    assert (profile.verdict, profile.raw_ratios) == ("inconclusive", None)
    assert profile.cause == NONE_OF_THESE
    assert profile.reason.startswith("none of these norms (frobenius, spectral, linf): ")
    assert "Use more steps" not in profile.reason


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        (optax.sgd, "sgd"),
        (optax.sgd(0.1), "optax"),
        (lambda rate: optax.sgd(rate), "optax"),
        (lambda rate: attsvm.optimizers.chain(optax.sgd(rate), name="mine"), "mine"),
        (lambda parameters: torch.optim.SGD(parameters, lr=0.1), "SGD"),
    ],
)
def test_an_anonymous_function_has_the_name_of_what_it_returns(optimizer, name):
    assert stepped(optimizer, None).name == name


@pytest.mark.parametrize(
    "optimizer", [torch.optim.SGD, torch.optim.SGD([torch.ones(1)], lr=0.1)], ids=["class", "object"]
)
def test_training_says_where_an_optimizer_of_pytorch_works(optimizer):
    problem = attsvm.datasets.random_problem(4, 5, 3, 0)
    with pytest.raises(ProblemError, match=r"got SGD; PyTorch.s optimisers work only in attsvm\.margin_profile"):
        attsvm.train(problem, optimizer=optimizer)


@pytest.mark.parametrize(
    ("optimizer", "options", "said"),
    [
        (
            torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1),
            {},
            "got SGD, whose parameters are given already",
        ),
        (torch.optim.LBFGS, {}, "optimizer: LBFGS needs a closure; a profile only provides the values of the gradient"),
        (optax.lbfgs, {}, "optimizer: lbfgs needs the loss as a function"),
        (optax.lbfgs(0.1), {}, "optimizer: optax needs the loss as a function"),
        (optax.contrib.schedule_free, {}, "schedule_free needs the argument `base_optimizer`"),
        (partial(optax.contrib.dpsgd, seed=1), {}, "dpsgd needs the arguments `l2_norm_clip`, `noise_multiplier`"),
        (partial(OfModule, weight_decay=0.0), {}, "OfModule needs the argument `model`"),
        (partial(torch.optim.SGD, lr=0.1), {"learning_rate": 0.1}, "learning_rate: expected None for SGD"),
        (partial(torch.optim.SGD, lr=-1.0), {}, "SGD cannot be made (Invalid learning rate: -1.0)"),
        (lambda ps: torch.optim.SGD(ps, lr=-1.0), {}, "cannot be made (Invalid learning rate: -1.0)"),
        (lambda rate: optax.nothing(rate), {}, "cannot be made (module 'optax' has no attribute 'nothing')"),
        (optax.sgd(0.1), {"learning_rate": 0.1}, "learning_rate: expected None"),
        (optax.adam, {"learning_rate": -1}, "learning_rate: expected a positive number, got -1"),
        (lambda rate: 3, {}, "returned something else"),
        ("torch.optim.Nope", {}, "'torch.optim.Nope' cannot be imported"),
        ("nope", {}, "expected a name or one such as torch.optim.Adam, got 'nope'"),
        (optax.adam, {"steps": 3}, "steps: expected an integer >= 4"),
        (optax.adam, {"norms": ["frobenius", "l2"]}, "norms: expected at least two different ones, got 1"),
        (partial(optax.adam, 1e-3), {}, "expected a function of a learning rate, got adam, which has one"),
        (torch.optim.SparseAdam, {}, "SparseAdam"),
        (Single, {}, "keeps the dtype float64 of its parameters, got Single, which changes it to torch.float32"),
        (optax.adam, {"batch_size": 7}, "batch_size: expected an integer from 1 to n = 6, got 7"),
        ("steepest_descent", {}, "norm"),
        (optax.adam, {"problems": attsvm.Problem(np.ones((1, 2, 3)))}, "problems: expected labels ±1"),
    ],
)
def test_bad_input_has_one_clear_error(optimizer, options, said):
    with pytest.raises(ProblemError, match=re.escape(said)):
        attsvm.margin_profile(optimizer, **{"seeds": 1, "steps": 8, **options})


def test_a_callback_ends_it_without_a_verdict():
    seen = []
    profile = attsvm.margin_profile(
        torch.optim.SGD, seeds=1, steps=8, norms=NORMS, callback=lambda at: seen.append(at.steps) or True
    )
    assert (profile.status, profile.verdict, profile.raw_ratios) == ("interrupted", "inconclusive", None)
    # two schedules whose learning rates are found, and one run on the gradient itself
    assert seen == [24]


def test_an_interrupted_run_on_the_gradient_itself_says_nothing_of_underflow():
    def ends(at):
        return at.stage.startswith("gradient not divided")

    profile = attsvm.margin_profile(torch.optim.SGD, norms=NORMS, seeds=2, steps=8000, callback=ends)
    assert (profile.status, profile.verdict, profile.reason) == ("interrupted", "inconclusive", "interrupted.")
    assert profile.raw_ratios is not None
    assert not profile.underflows


def test_a_callback_ends_training_in_jax_too():
    profile = attsvm.margin_profile(optax.sgd(0.1), seeds=1, steps=2_000_000, norms=NORMS, callback=lambda at: True)
    assert (profile.status, profile.verdict) == ("interrupted", "inconclusive")


def test_the_stack_of_the_problems_is_not_taken_for_a_convolution(task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(stepped("attsvm.torch.SpectralDescent", None).trajectory(task, SCHEDULES["constant"]))


def test_problems_do_not_share_the_state_of_an_optimizer(task):
    # one norm over all parameters of the optimizer
    def make(parameters):
        return attsvm.torch.MirrorDescent(parameters, lr=0.1, p=3.0, normalize=True, scope="all")

    one = replace(task, problem=task.problem[:1], start={"W": task.start["W"][:1]})
    alone, together = (list(stepped(make, None).trajectory(each, SCHEDULES["constant"])) for each in (one, task))
    np.testing.assert_allclose(together[-1].weights[0], alone[-1].weights[0], rtol=1e-9)


def test_norms_that_are_one_norm_of_a_prompt_count_once_and_optimizers_of_numbers_are_taken():
    problem = attsvm.Problem([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [0.0, 2.0]]], labels=[1, 1], head=[1.0, 0.0])

    def descent(rate):
        def update(gradient, state, params=None):
            return jax.tree.map(lambda g: -rate * g, gradient), state

        return optax.GradientTransformation(lambda params: (), update)

    profile = attsvm.margin_profile(descent, problem, norms=["frobenius", "spectral", "l1"], steps=400)
    assert profile.norms == ("frobenius", "l1")
    assert profile.ratios.shape[1:] == (1, 2)
    assert (profile.status, profile.optimizer) == ("finished", descent.__qualname__)


def test_problems_with_biases_have_a_profile():
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=1).with_position_bias("absolute").with_sink(trained=True)
    profile = attsvm.margin_profile("normalized_gradient_descent", problem, norms=["frobenius", "linf"], steps=400)
    assert profile.norms == ("frobenius", "linf")
    assert (profile.ratios <= 1 + 1e-9).all()
    assert profile.ratios[..., 0].max() > 0.9
    with pytest.raises(
        attsvm.ProblemError, match="problems: expected problems without bias_index for factored attention"
    ):
        attsvm.margin_profile("normalized_gradient_descent", problem, attention="factored", steps=400)


def test_the_gradient_refuses_parameters_of_another_shape(task):
    gradient_at = LossGradient(task.problem)
    for parameters in ({"W": np.zeros((4, 10, 10))}, {"K": np.zeros((3, 10, 10))}):
        with pytest.raises(ProblemError, match=r"parameters: expected shapes \{'W': \(3, 10, 10\)\}, got"):
            gradient_at(parameters)
    with pytest.raises(ProblemError, match="problem: expected labels and a head"):
        LossGradient(attsvm.Problem(task.problem.tokens[0], queries=task.problem.queries[0]))
