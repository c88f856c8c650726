"""Several attention heads: their gradient against the definition, and their axis in trainings and results."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import attsvm
from attsvm import optimizers
from attsvm.datasets import random_problem
from attsvm.heads import Linear
from attsvm.losses import parse_loss
from attsvm.norms import schatten
from attsvm.optimizers import Rule, SquaredNorm, rule_of
from attsvm.training.attention.factored import FactoredAttention
from attsvm.training.attention_heads import AttentionHeads
from attsvm.training.objective import Objective
from attsvm.training.trials import TrialData
from oracles.optimizers import with_decay
from oracles.training import exact

H, N, Q, T, D, M = 2, 2, 2, 3, 3, 2


def masked_problem(generator):
    mask, query_mask = np.ones((N, Q, T), dtype=bool), np.ones((N, Q), dtype=bool)
    mask[0, 1, 2], query_mask[1, 0] = False, False
    arrays = (generator.standard_normal(shape) for shape in ((N, T, D), (N, Q, D), (H, D)))
    tokens, queries, head = arrays
    labels = generator.choice([-1.0, 1.0], size=(N, Q))
    return attsvm.Problem(tokens, labels, queries, head, mask=mask, query_mask=query_mask, num_heads=H)


def gradient_by_definition(problem, K, Q_, v):
    """∂L of the logistic loss of f = Σ_h v_h'X' softmax(X K_h Q_h' z), in mpmath's arithmetic; K may be shared."""
    x, z, K, Q_, v = (exact(a) for a in (problem.tokens[0], problem.queries[0], K, Q_, v))
    found = {name: np.zeros(a.shape, dtype=object) for name, a in (("K", K), ("Q", Q_), ("v", v))}
    _, _, allowed, active = (a[0] for a in problem.canonical)
    for i, q in np.argwhere(active):
        kept = x[i][allowed[i, q]]
        attention = []
        for h in range(H):
            s = kept @ K[h % len(K)] @ (z[i, q] @ Q_[h])
            e = np.array([mpmath.exp(u) for u in s - s.max()])
            attention.append(e / e.sum())
        y = mpmath.mpf(problem.labels[0, i, q])
        f = sum(a @ kept @ v[h] for h, a in enumerate(attention))
        slope = -y / (1 + mpmath.exp(y * f)) / int(active.sum())
        for h, a in enumerate(attention):
            o = a @ kept
            of_key = np.array([a[t] * ((kept[t] - o) @ v[h]) for t in range(len(kept))]) @ kept * slope
            found["v"][h] += o * slope
            found["K"][h % len(K)] += np.outer(of_key, z[i, q] @ Q_[h])
            found["Q"][h] += np.outer(z[i, q], of_key @ K[h % len(K)])
    return found


@pytest.mark.parametrize("key_groups", [None, 1])
def test_each_head_has_an_exact_gradient_however_saturated_it_is(key_groups):
    generator = np.random.default_rng(3)
    problem = masked_problem(generator)
    factors = generator.standard_normal((2, H, D, M))
    with mpmath.workdps(1800), jax.enable_x64(True):
        data = TrialData(problem, np.dtype(float)).take(np.arange(1))
        evaluations = {}
        for heads in (AttentionHeads(H, True, key_groups), AttentionHeads(H, False, key_groups)):
            objective = Objective(FactoredAttention(M), Linear(), parse_loss("logistic", None), ("v",), heads=heads)
            evaluations[heads] = jax.jit(objective.evaluate)
        for sizes in ((1.0, 1.0), (1.0, 36.0), (22.0, 36.0)):
            K, Q_ = factors * np.array(sizes)[:, None, None]
            if key_groups is not None:
                # the keys are shared by both heads, whose queries have the sizes of before
                K, Q_ = K[:1] / sizes[0], Q_ * np.array(sizes)[:, None, None]
            given = {"K": K, "Q": Q_, "v": problem.head}
            wanted = gradient_by_definition(problem, K, Q_, problem.head)
            smallest = min(np.abs(x).max() for x in wanted["Q"])
            assert sizes[1] == 1 or smallest < mpmath.mpf("1e-320")
            for heads, evaluate in evaluations.items():
                start = {name: np.moveaxis(x, 0, -1)[..., None] for name, x in given.items()}
                _, scaled = evaluate(start, {}, data, np.zeros(()))
                found = {
                    name: exact(np.asarray(g)[..., 0]) * mpmath.exp(float(scaled.logs[name][0]))
                    for name, g in scaled.gradient.items()
                }
                for name, h in ((name, h) for name, x in given.items() for h in range(len(x))):
                    of_head = found[f"{name}[{h}]"] if heads.apart else found[name][..., h]
                    # together, heads share the scale of the larger gradient; logits of 1e4 are rounded by 1e-12
                    of = wanted[name][h] if heads.apart else wanted[name]
                    assert np.abs(of_head - wanted[name][h]).max() < 1e-10 * np.abs(of).max()


def test_one_head_trains_as_a_problem_without_the_axis():
    optimizer = optimizers.steepest_descent(norm="linf")
    problem = random_problem(3, 4, 5, seed=0)
    arrays = {"labels": problem.labels, "queries": problem.queries}
    single = attsvm.Problem(problem.tokens, **arrays, head=problem.head[None], num_heads=1)
    options = {"attention": "factored", "optimizer": optimizer, "steps": 100, "train_head": True}
    plain, run = attsvm.train(problem, **options), attsvm.train(single, **options)
    # the same operations in another order
    np.testing.assert_allclose(run.weights[0], plain.weights, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(run.parameters["v"][0], plain.parameters["v"], rtol=1e-12)
    np.testing.assert_array_equal(run.history["selected"][:, 0], plain.history["selected"])
    np.testing.assert_allclose(run.history["loss"], plain.history["loss"], rtol=1e-12)


def test_runs_do_not_depend_on_the_batch_nor_on_the_order_of_heads(tmp_path):
    problem = random_problem(3, 4, 5, seed=0, num_heads=2, batch=(3,))
    start = np.random.default_rng(0).standard_normal((3, 2, 5, 5))
    run = attsvm.train(problem, init=start, steps=2000)
    alone = attsvm.train(problem[1], init=start[1], steps=2000)
    np.testing.assert_allclose(alone.weights, run.weights[1], rtol=1e-9, atol=1e-9)
    assert run[1].selected.shape == alone.selected.shape == (2, 3)
    arrays = {"labels": problem.labels[:, 0], "queries": problem.queries[:, 0], "num_heads": 2}
    swapped = attsvm.Problem(problem.tokens[:, 0], **arrays, head=problem.head[:, ::-1])
    other = attsvm.train(swapped, init=start[:, ::-1], steps=2000)
    np.testing.assert_allclose(other.weights[:, ::-1], run.weights, rtol=1e-9, atol=1e-9)

    half = attsvm.train(problem, init=start, steps=1000)
    half.save(tmp_path / "run.npz")
    problem.save(tmp_path / "problem.npz")
    again = attsvm.train(
        attsvm.Problem.load(tmp_path / "problem.npz"), init=attsvm.Run.load(tmp_path / "run.npz"), steps=1000
    )
    np.testing.assert_array_equal(again.weights, run.weights)

    # each head goes to the Att-SVM of its own selection, and all heads reach one margin
    prediction = attsvm.predict_direction(problem, run)
    assert prediction.solution.batch_shape == (3, 2)
    assert (attsvm.direction_error(run.weights, prediction.direction, axis=(-3, -2, -1)) < 5e-3).all()
    kinds = attsvm.classify(problem, 10 * run.weights)
    ratios = attsvm.margin_ratio(problem, run.weights, run.selected)
    for place in np.ndindex(3, 2):
        one, weights = problem[place], run.weights[place]
        assert kinds.kind[place] == attsvm.classify(one, 10 * weights).kind
        assert np.isclose(ratios[place], attsvm.margin_ratio(one, weights, run.selected[place]), rtol=1e-12)


@dataclass(frozen=True)
class Unit(Rule):
    """A rule that says nothing of attention heads: each parameter over its ℓ2 norm."""

    scale_free = True

    def update(self, updates, state, params, *, numbers, value):
        norm = {name: jnp.sqrt(jnp.sum(g * g, axis=tuple(range(g.ndim - 1)))) for name, g in updates.gradient.items()}
        return {name: -g / jnp.where(norm[name] > 0, norm[name], 1) for name, g in updates.gradient.items()}, state


CUSTOM = optimizers.chain(*rule_of(optimizers.gradient_descent(0.1)).parts, Unit())
STEPS_ON_EACH_HEAD = {
    "each norm": optimizers.normalized_gradient_descent(0.1, scope="each"),
    "each norm of weights": optimizers.mirror_descent(p=3, scope="each", relative=True),
    "signs": optimizers.steepest_descent(norm="linf"),
    "joint norm before signs": optimizers.normalized(optimizers.steepest_descent(norm="linf")),
    "joint average before signs": optimizers.normalized(optimizers.steepest_descent(norm="linf"), average=0.9),
    "joint norm before momentum": optimizers.spectral_descent(0.1, momentum=0.9),
    "momentum": optimizers.momentum(optimizers.spectral_descent(0.1)),
    "decay": optimizers.spectral_descent(0.1, weight_decay=0.1),
    "product": optimizers.bilinear_descent(),
    "potential": optimizers.mirror_descent(potential=SquaredNorm(schatten(1.5)), scope="each"),
    "custom": CUSTOM,
    "custom with decay": with_decay(CUSTOM, 0.1),
}


@pytest.mark.parametrize("name", STEPS_ON_EACH_HEAD)
def test_a_head_moves_as_far_as_the_others_however_small_its_gradient_is(name):
    problem = random_problem(3, 4, 5, seed=0, num_heads=2)
    K, Q_ = np.random.default_rng(0).standard_normal((2, 2, 5, 5))
    sizes = np.array([1.0, 60.0])[:, None, None]  # the gradient of the second head is below 1e-400 of that of the first
    optimizer = STEPS_ON_EACH_HEAD[name]
    run = attsvm.train(problem, attention="factored", init=(sizes * K, sizes * Q_), optimizer=optimizer, steps=1)
    assert (run.status, run.step) == ("finished", 1)
    still = attsvm.train(problem, attention="factored", init=(sizes * K, sizes * Q_), optimizer=optimizer, steps=0)
    decay = dict(optimizer.numbers).get("weight_decay", 0.0) * 0.1
    moved = run.parameters["Q"] - (1 - decay) * still.parameters["Q"]
    first, second = np.abs(moved).max(axis=(-2, -1))
    assert second > 1e-3 * first > 0


def test_optimizers_of_all_heads_see_them_together():
    for optimizer in (
        optimizers.gradient_descent(),
        optimizers.normalized_gradient_descent(0.1, relative=True),
        optimizers.mirror_descent(p=3),
        optimizers.spectral_descent(scope="fused", weight_decay=0.1),
        optimizers.row_descent(scope="kq"),
    ):
        assert not rule_of(optimizer).on_each_head


def test_what_takes_one_head_says_so():
    problem = random_problem(3, 4, 5, seed=0, num_heads=4)
    selected = attsvm.optimal_tokens(problem)
    for refused in (
        lambda: attsvm.regularization_path(problem, [1.0]),
        lambda: attsvm.theory.global_convergence_conditions(problem),
        lambda: attsvm.theory.local_convergence_conditions(problem, selected),
        lambda: attsvm.theory.joint_conditions(problem, selected),
        lambda: attsvm.theory.mixture_conditions(problem),
        lambda: attsvm.theory.lipschitz_constant(problem),
        lambda: attsvm.solve_head(problem, selected),
    ):
        with pytest.raises(attsvm.ProblemError, match=r"num_heads: expected None, .*got 4"):
            refused()
