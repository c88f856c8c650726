"""Maps from logits to attention: values and gradients against mpmath, and training with each of them."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import attsvm
from attsvm import optimizers as o
from attsvm.datasets import random_problem
from attsvm.errors import ProblemError
from attsvm.training import MAPS, AttentionMap, LossGradient, parse_map
from attsvm.training.maps import entmax

STEP = mpmath.mpf(2) ** -133  # of the differences, whose error is about its square

# few, since each is compiled: both ways to find the threshold, several queries, and masks
SHAPES = [(1, 1, 2, 1), (2, 2, 6, 3), (1, 1, 20, 2)]
POWERS = {"sparsemax": 1, "entmax1.5": 2}


@pytest.fixture(autouse=True)
def digits():
    """The precision of mpmath, in this file alone."""
    with mpmath.workdps(90):
        yield


def case_of(seed):
    """Logits whose largest is 0 in each query, so that gaps are exact; those of other tokens are of any size."""
    generator = np.random.default_rng(seed)
    n, Q, T, d = SHAPES[seed % 3]
    logits = 10.0 ** generator.uniform(-3, 2.5) * generator.normal(size=(n, Q, T))
    allowed = generator.random((n, Q, T)) < generator.choice([0.6, 1.0])
    allowed[..., generator.integers(T)] = True
    logits -= np.where(allowed, logits, -np.inf).max(axis=-1, keepdims=True)
    if seed % 2:
        # a hair before the attention is one-hot
        edge = 1.0 + generator.integers(2)
        near = -edge + 10.0 ** generator.uniform(-16, -1) * generator.random((n, Q, T))
        logits = np.where(logits < 0, near, logits)
    tokens, gradient = generator.normal(size=(n, T, d)), generator.normal(size=(n, Q, d))
    log_slope = -(10.0 ** generator.uniform(-3, 3)) * generator.random((n, Q))
    return logits, tokens, allowed, gradient, log_slope, generator.random((n, Q))


def exact_attention(name, logits):
    """By the definition; the threshold of the entmax from the support of largest logits that fits it."""
    if name == "sigmoid":
        return [1 / (1 + mpmath.exp(-s)) for s in logits]
    p, ordered = POWERS[name], sorted(logits, reverse=True)
    for k in range(len(ordered), 0, -1):
        kept = [s / p for s in ordered[:k]]
        mean = sum(kept) / k
        spread = sum((s - mean) ** 2 for s in kept)
        if p == 2 and spread > 1:
            continue
        # Σ (s/p − τ)^p = 1 over the k largest
        tau = mean - (mpmath.mpf(1) / k if p == 1 else mpmath.sqrt((1 - spread) / k))
        if kept[-1] > tau:
            found = [max(s / p - tau, 0) ** p for s in logits]
            assert abs(sum(found) - 1) < STEP
            return found
    raise AssertionError("no support fits")


def exact_gradient(name, logits, of_attention):
    """By differences of the exact attention with 40 digits."""
    found = []
    for t in range(len(logits)):
        sides = []
        for sign in (1, -1):
            moved = [s + sign * STEP * (k == t) for k, s in enumerate(logits)]
            sides.append(mpmath.fdot(exact_attention(name, moved), of_attention))
        found.append((sides[0] - sides[1]) / (2 * STEP))
    return found


def ours(name, logits, tokens, allowed, gradient, log_slope, weight):
    with jax.enable_x64(True):
        arrays = (None if x is None else x[..., None] for x in (logits, tokens, allowed, gradient, log_slope, weight))
        return [np.asarray(x)[..., 0] for x in COMPILED[name](*arrays)]


def _compiled(name):
    of = MAPS.find(name)

    def call(logits, tokens, allowed, gradient, log_slope, weight):
        pooled = of.pool(logits, tokens, allowed, None)
        return of.attention(logits, allowed), *of.logit_gradient(pooled, tokens, gradient, log_slope, weight)

    return jax.jit(call)


COMPILED = {name: _compiled(name) for name in ("sparsemax", "entmax1.5", "sigmoid")}


@pytest.mark.parametrize("name", sorted(COMPILED))
@pytest.mark.parametrize("seed", range(18))
def test_attention_and_gradient_are_those_of_the_definition(name, seed):
    case = case_of(seed)
    logits, tokens, allowed, gradient, log_slope, weight = case
    attention, found, log_scale = ours(name, *case)
    scale = mpmath.exp(mpmath.mpf(float(log_scale)))
    largest = mpmath.mpf(0)
    for i, q in np.ndindex(*logits.shape[:2]):
        kept = np.flatnonzero(allowed[i, q])
        s = [mpmath.mpf(float(x)) for x in logits[i, q, kept]]
        factor = mpmath.mpf(weight[i, q]) * mpmath.exp(mpmath.mpf(log_slope[i, q]))
        g = [mpmath.fdot(map(mpmath.mpf, tokens[i, t]), map(mpmath.mpf, gradient[i, q])) for t in kept]
        a = exact_attention(name, s)
        assert (attention[i, q][~allowed[i, q]] == 0).all()
        assert (found[i, q][~allowed[i, q]] == 0).all()
        # the least attention matters too: relative to the largest of the tokens that do not win
        others = max([x for x, logit in zip(a, s, strict=True) if logit < 0], default=mpmath.mpf(0))
        for mine, true, logit in zip(attention[i, q, kept], a, s, strict=True):
            size = true if name == "sigmoid" else others if logit < 0 else 1
            assert abs(mpmath.mpf(float(mine)) - true) <= mpmath.mpf("1e-13") * size
        exact = exact_gradient(name, s, g)
        error = max(
            abs(mpmath.mpf(float(mine)) * scale - factor * true)
            for mine, true in zip(found[i, q, kept], exact, strict=True)
        )
        sizes = [x for x in exact if abs(x) > STEP]
        norm = max(map(abs, gradient[i, q])) * factor * (max(map(abs, sizes)) / max(map(abs, g)) if sizes else 0)
        assert (
            error
            <= mpmath.mpf("1e-12") * abs(norm) * tokens.shape[-1] * 4 + STEP * factor + mpmath.mpf("1e-300") * scale
        )
        largest = max(largest, factor * max(map(abs, exact)))
    # steps go on where the gradient itself is no float: with its scale taken out it is about 1
    if largest > STEP:
        assert 1e-8 < np.abs(found).max() < 1e3


@pytest.mark.parametrize("name", sorted(POWERS))
def test_one_hot_from_its_margin_on_with_gradient_zero(name):
    margin = MAPS.find(name).one_hot_margin
    assert margin == POWERS[name]
    tokens, ones = np.random.default_rng(0).normal(size=(1, 3, 4)), np.ones((1, 1))
    case = np.array([[[0.0, -margin, -margin - 1]]]), tokens, None, np.ones((1, 1, 4)), np.zeros((1, 1)), ones
    attention, gradient, _ = ours(name, *case)
    assert (attention == [1.0, 0.0, 0.0]).all()
    assert (gradient == 0).all()
    before = np.nextafter(-margin, 0)
    attention, gradient, _ = ours(name, np.array([[[0.0, before, -margin - 1]]]), *case[1:])
    assert attention[0, 0, 1] > 0
    assert (gradient[0, 0, :2] != 0).all()


@pytest.mark.parametrize("name", sorted(POWERS))
@pytest.mark.parametrize("T", [5, 30])
def test_both_ways_find_the_same_threshold(name, T, monkeypatch):
    generator = np.random.default_rng(T)
    scales = 10.0 ** generator.uniform(-3, 1, size=(200, 1, 1, 1))
    logits = scales * generator.normal(size=(200, 1, T, 1))
    with jax.enable_x64(True):
        found = []
        for most in (0, 100):
            monkeypatch.setattr(entmax, "MOST_PAIRS", most)
            found.append(np.asarray(MAPS.find(name).attention(jnp.asarray(logits), None)))
    assert np.abs(found[0] - found[1]).max() < 1e-15
    assert np.abs(found[0].sum(axis=2) - 1).max() < 1e-13


def attended_and_gradient(of, logits, tokens, copies):
    one = jnp.ones((1, 1, 1))
    pooled = of.pool(logits, tokens, None, copies)
    gradient, log_scale = of.logit_gradient(pooled, tokens, jnp.ones((1, 1, 3, 1)), 0 * one, one)
    return of.attention(logits, None), pooled.output, pooled.probability, gradient * jnp.exp(log_scale)


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_equal_keys_share_the_attention_of_their_token(name):
    # tokens 0 and 2 have one key: each has the attention of its logit, and no gradient is left between the two
    logits = np.array([[[0.0, -0.4, 0.0, -5.0]]])[..., None]
    tokens = np.random.default_rng(0).normal(size=(1, 4, 3))[..., None]
    copies, of = np.array([[[0, 1, 0, 3]]])[..., None], MAPS.find(name)
    with jax.enable_x64(True):
        found = jax.jit(attended_and_gradient, static_argnums=0)(of, logits, tokens, copies)
    attention, output, probability, gradient = map(np.asarray, found)
    values = tokens[0, :, :, 0].sum(axis=1)
    assert np.abs(output[0, 0, :, 0] - attention[0, 0, :, 0] @ tokens[0, :, :, 0]).max() < 1e-14
    together = 1 if name == "sigmoid" else 2
    assert probability[0, 0, 0, 0] == pytest.approx(together * attention[0, 0, 0, 0], abs=1e-15)
    s = [mpmath.mpf(float(x)) for x in logits[0, 0, :, 0]]
    exact = exact_gradient(name, s, [mpmath.mpf(float(x)) for x in values])
    # the key of both gets the sum
    assert gradient[0, 0, 0, 0] + gradient[0, 0, 2, 0] == pytest.approx(float(exact[0] + exact[2]), abs=1e-14)
    assert gradient[0, 0, 1, 0] == pytest.approx(float(exact[1]), abs=1e-14)


@pytest.mark.parametrize("name", ["sparsemax", "entmax1.5", "sigmoid", "softmax"])
@pytest.mark.parametrize("attention", ["combined", "factored"])
def test_the_gradient_of_the_loss_is_that_of_its_differences(name, attention):
    problem = random_problem(3, 4, 5, seed=1)
    gradient_of = LossGradient(problem, attention, map=name)
    generator = np.random.default_rng(0)
    shapes = {"combined": {"W": (5, 5)}, "factored": {"K": (5, 5), "Q": (5, 5)}}[attention]
    at = {key: 0.3 * generator.normal(size=(1, *shape)) for key, shape in shapes.items()}
    along = {key: generator.normal(size=(1, *shape)) for key, shape in shapes.items()}
    _, gradient, log_scale = gradient_of.with_value(at)
    slope = np.exp(log_scale[0]) * sum(np.sum(gradient[key] * along[key]) for key in shapes)
    ends = [gradient_of.with_value({key: x + h * along[key] for key, x in at.items()})[0][0] for h in (1e-6, -1e-6)]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["sparsemax", "entmax1.5", "sigmoid"])
def test_every_model_trains_with_every_map(name):
    generator = np.random.default_rng(0)
    tokens = generator.normal(size=(2, 3, 4, 5))  # a batch of two problems
    mask = np.ones((2, 3, 2, 4), bool)
    mask[:, :, :, 3] = generator.random((2, 3, 2)) < 0.5
    several = attsvm.Problem(
        tokens,
        labels=np.where(generator.random((2, 3, 2)) < 0.5, -1, 1),
        queries=generator.normal(size=(2, 3, 2, 5)),
        head=generator.normal(size=(2, 5)),
        mask=mask,
    )
    classes = attsvm.Problem(tokens[0], labels=[0, 1, 2], queries=tokens[0, :, 0], head=generator.normal(size=(3, 5)))
    heads = attsvm.Problem(
        tokens[0], labels=[1, -1, 1], queries=tokens[0, :, 0], head=generator.normal(size=(2, 5)), num_heads=2
    )
    prompt = attsvm.Problem(tokens[0], labels=[1, -1, 1], head=generator.normal(size=5))
    models = [
        (several, {}),
        (several, {"dtype": "float32"}),
        (classes, {"loss": "cross_entropy"}),
        (heads, {"train_head": True}),
        (prompt, {"penalty": 1e-3, "batch_size": 2}),
    ]
    # sparsemax and 1.5-entmax have one code
    for problem, arguments in models if name != "entmax1.5" else models[1:4:2]:
        run = attsvm.train(problem, map=name, steps=30, **arguments)
        assert run.map == name
        assert np.isfinite(run.loss).all()
        assert np.asarray(run.loss < run.history["loss"][0]).all()
        kept = run.probability[run.selected >= 0]
        assert ((kept > 0) & (kept <= 1)).all()
        resumed = attsvm.train(problem, init=run, steps=1, **arguments)
        assert resumed.map == name


def test_a_loaded_run_has_its_map(tmp_path):
    problem = random_problem(3, 4, 5, seed=0)
    run = attsvm.train(problem, map="sigmoid", steps=5)
    run.save(tmp_path / "run.npz")
    loaded = attsvm.Run.load(tmp_path / "run.npz")
    assert loaded.map == "sigmoid"
    whole, parts = attsvm.train(problem, map="sigmoid", steps=9), attsvm.train(problem, init=loaded, steps=4)
    assert (whole.weights == parts.weights).all()


def test_a_one_hot_start_stalls():
    problem = random_problem(3, 4, 5, seed=0)
    start = 1.1 * attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).direction
    run = attsvm.train(problem, map="sparsemax", init=start, steps=10)
    assert run.status == attsvm.Status.STALLED
    assert run.step == 0
    assert (run.weights == start).all()
    assert attsvm.train(problem, map="sparsemax", init=start, steps=10, penalty=1e-3).status == "finished"


def test_refusals_name_the_argument():
    problem = random_problem(3, 4, 5, seed=0)
    run = attsvm.train(problem, map="sparsemax", steps=2)
    with pytest.raises(ProblemError, match="map: expected sparsemax, as in the run that is resumed, got 'softmax'"):
        attsvm.train(problem, init=run, map="softmax")
    with pytest.raises(ProblemError, match=r"map: .*, got 'sparsmax'; did you mean sparsemax\? The names are "):
        attsvm.train(problem, map="sparsmax")
    with pytest.raises(ProblemError, match="map: expected a name"):
        attsvm.train(problem, map=parse_map("softmax"))
    with pytest.raises(ProblemError, match="margin_tol: expected None with the sigmoid map"):
        attsvm.train(problem, map="sigmoid", stop=attsvm.Stopping(margin_tol=1e-3))
    with pytest.raises(ProblemError, match="expected softmax attention"):
        attsvm.train(problem, map="sparsemax", optimizer=o.log_gradient_descent(0.1))


class Hardened(AttentionMap):
    """A softmax at half the temperature."""

    name = "hardened"

    def attention(self, logits, allowed):
        return jax.nn.softmax(2 * (logits if allowed is None else jnp.where(allowed, logits, -jnp.inf)), axis=2)


def test_a_new_map_is_one_class_with_one_formula():
    problem = random_problem(3, 4, 5, seed=0)
    run = attsvm.train(problem, map="training.test_maps:Hardened", optimizer=o.gradient_descent(0.1), steps=50)
    twice = attsvm.train(problem, optimizer=o.gradient_descent(0.4), steps=50)
    assert run.map == "training.test_maps:Hardened"
    # softmax(2 x'Wz) is that of the weights 2W, whose gradient is twice that of W
    assert np.abs(2 * run.weights - twice.weights).max() < 1e-12
