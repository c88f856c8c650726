"""Which norm's margin an optimizer maximises, for optimizers of JAX and of PyTorch."""

from dataclasses import replace
from functools import partial

import cvxpy as cp
import jax
import numpy as np
import optax
import pytest

import attsvm
from attsvm.errors import ProblemError
from attsvm.norms import parse_norm
from attsvm.profiles.named import stepped
from attsvm.profiles.profile import SCHEDULES, _MarginRatios, _standard, _start
from attsvm.profiles.stepped import Task
from attsvm.profiles.verdict import Outcome, chosen, disagreement, reason
from attsvm.training import LossGradient

torch = pytest.importorskip("torch")

NORMS = ["l1", "frobenius", "linf"]


@pytest.fixture(scope="module")
def task():
    problem = _standard(3)
    return Task(problem, "combined", _start(problem, {"W": (10, 10)}), steps=40, normalize=True)


@pytest.mark.parametrize("normalize", [True, False])
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
def test_both_libraries_make_the_same_steps(task, normalize, in_torch, in_optax):
    one, other = stepped(in_torch, None), stepped(in_optax, 0.1)
    assert (
        one.decays_weights({"W": (2, 2)})
        == other.decays_weights({"W": (2, 2)})
        == ("AdamW" in str(one._make([torch.nn.Parameter(torch.ones(1))])))
    )
    task = Task(task.problem, task.attention, task.start, task.steps, normalize)
    weights = [each.trajectory(task, SCHEDULES["growing"]).weights for each in (one, other)]
    # the two compute in different orders of summation
    np.testing.assert_allclose(*weights, rtol=1e-9, atol=1e-12)


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
    assert "0.868  " in str(replace(profile, ratios=np.full_like(profile.ratios, 0.86899)))
    assert loaded.norm == profile.norm
    np.testing.assert_array_equal(loaded.ratios, profile.ratios)


def test_a_ratio_is_the_margin_over_the_best_margin():
    problem = _standard(2)
    weights = np.random.default_rng(1).standard_normal((2, 10, 10))
    found = _MarginRatios(problem, [parse_norm("frobenius"), parse_norm("linf")])(weights)
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
    return Outcome(
        **{
            "schedule": "constant",
            "norm": "linf",
            "mean": 0.97,
            "second": "l3",
            "second_mean": 0.86,
            "leads": 1.0,
            "rise": 0.001,
            "decided": 1.0,
            "change": 0.1,
            "finite": True,
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("changed", "decays", "said"),
    [
        ({}, False, "mean margin ratio 0.970 with constant steps"),
        ({"finite": False}, False, "smaller learning rate"),
        ({"decided": 0.5}, False, "not saturated in 50% of the problems. Use more steps"),
        ({"decided": 0.5}, True, "Weight decay keeps the weights small"),
        ({"change": 5.0}, False, "a late step changes a logit by 5"),
        ({"mean": 0.9, "rise": 0.1}, False, "still rising"),
        ({"leads": 0.5}, False, "in 50% of the problems another norm"),
        ({"mean": 0.85}, False, "none of these norms"),
        ({"mean": 0.988, "second_mean": 0.987}, False, "0.987 in the l3 norm: too close to tell them apart"),
    ],
)
def test_a_profile_says_why_it_is_inconclusive(changed, decays, said):
    one = _outcome(**changed)
    assert one.conclusive == (not changed)
    assert said in reason(one, decays)
    # long steps with a larger ratio do not outweigh short ones
    long = _outcome(norm="l3", mean=0.99, change=20.0)
    assert chosen([long, _outcome()]).norm == "linf"
    # two short schedules that name different norms name none
    other = _outcome(norm="l3", schedule="decaying")
    assert "linf with constant steps, l3 with decaying steps" in disagreement([_outcome(), other])
    assert not disagreement([_outcome(), long])


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
    with pytest.raises(ProblemError, match=r"got SGD; optimizers of PyTorch work in attsvm\.margin_profile"):
        attsvm.train(problem, optimizer=optimizer)


@pytest.mark.parametrize(
    ("optimizer", "options", "said"),
    [
        (
            torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1),
            {},
            "got SGD, whose parameters are given already",
        ),
        (torch.optim.LBFGS, {}, "got LBFGS, which needs a closure"),
        (optax.sgd(0.1), {"learning_rate": 0.1}, "learning_rate: expected None"),
        (optax.adam, {"learning_rate": -1}, "learning_rate: expected a positive number, got -1"),
        (lambda rate: 3, {}, "returned none of them"),
        ("torch.optim.Nope", {}, "'torch.optim.Nope' cannot be imported"),
        ("nope", {}, "or a name such as torch.optim.Adam, got 'nope'"),
        (optax.adam, {"steps": 3}, "steps: expected an integer >= 4"),
        (optax.adam, {"norms": ["frobenius", "l2"]}, "norms: expected at least two different ones, got 1"),
        (partial(optax.adam, 1e-3), {}, "expected a function of a learning rate, got adam with one"),
        (torch.optim.SparseAdam, {}, "SparseAdam"),
        ("steepest_descent", {}, "norm"),
        (optax.adam, {"problems": attsvm.Problem(np.ones((1, 2, 3)))}, "problems: expected labels ±1"),
    ],
)
def test_bad_input_has_one_clear_error(optimizer, options, said):
    with pytest.raises(ProblemError, match="(?s).*" + said.replace("(", r"\(")):
        attsvm.margin_profile(optimizer, **{"seeds": 1, "steps": 8, **options})


def test_a_callback_ends_it_without_a_verdict():
    seen = []
    profile = attsvm.margin_profile(
        torch.optim.SGD, seeds=1, steps=8, norms=NORMS, callback=lambda at: seen.append(at.steps) or True
    )
    assert (profile.status, profile.verdict, profile.raw_ratios) == ("interrupted", "inconclusive", None)
    assert seen == [40]


def test_a_callback_ends_training_in_jax_too():
    profile = attsvm.margin_profile(optax.sgd(0.1), seeds=1, steps=2_000_000, norms=NORMS, callback=lambda at: True)
    assert (profile.status, profile.verdict) == ("interrupted", "inconclusive")


def test_problems_do_not_share_the_state_of_an_optimizer(task):
    # one norm over all parameters of the optimizer
    def make(parameters):
        return attsvm.torch.MirrorDescent(parameters, lr=0.1, p=3.0, normalize=True, scope="all")

    one = Task(_first(task.problem), "combined", {"W": task.start["W"][:1]}, task.steps, normalize=True)
    alone, together = (stepped(make, None).trajectory(each, SCHEDULES["constant"]).weights for each in (one, task))
    np.testing.assert_allclose(together[:, 0], alone[:, 0], rtol=1e-9)


def _first(problem):
    names = ("tokens", "labels", "queries", "head")
    return attsvm.Problem(**{name: getattr(problem, name)[:1] for name in names})


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


def test_the_gradient_refuses_parameters_of_another_shape(task):
    gradient_at = LossGradient(task.problem)
    for parameters in ({"W": np.zeros((4, 10, 10))}, {"K": np.zeros((3, 10, 10))}):
        with pytest.raises(ProblemError, match=r"parameters: expected shapes \{'W': \(3, 10, 10\)\}, got"):
            gradient_at(parameters)
    with pytest.raises(ProblemError, match="problem: expected labels and a head"):
        LossGradient(attsvm.Problem(task.problem.tokens[0], queries=task.problem.queries[0]))
