"""The gradient of softmax pooling, entry by entry against arithmetic with enough digits."""

import jax
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attsvm.training.softmax import logit_gradient, pool

# few, since each is compiled
SHAPES = [(1, 1, 1, 1), (3, 1, 2, 1), (2, 3, 6, 4), (1, 2, 4, 2)]


@st.composite
def cases(draw):
    """Logits of any saturation with ties and masks, tokens with duplicates, slopes of any size."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, Q, T, d = draw(st.sampled_from(SHAPES))
    spread = 10.0 ** draw(st.floats(-3, 2.7))
    logits = spread * generator.normal(size=(n, Q, T))
    tokens = generator.normal(size=(n, T, d)) * 10.0 ** draw(st.integers(-6, 6))
    if draw(st.booleans()):
        logits = np.round(logits / spread) * spread  # ties
    if draw(st.booleans()):
        logits[generator.random((n, Q)) < 0.7, 0] += draw(st.sampled_from([1.0, 30.0, 100.0, 231.0]))
    if draw(st.booleans()):
        # duplicates and near duplicates of another token
        tokens[:, generator.integers(T)] = tokens[:, 0] * (1 + draw(st.sampled_from([0.0, 1e-15, 1e-9])))
    allowed = None
    if draw(st.booleans()):
        allowed = generator.random((n, Q, T)) < 0.6
        allowed[np.arange(n)[:, None], np.arange(Q), generator.integers(T, size=(n, Q))] = True
    weight = generator.random((n, Q)) * (generator.random((n, Q)) < 0.8)
    log_slope = -(10.0 ** draw(st.floats(-3, 2.5))) * generator.random((n, Q))
    gradient = generator.normal(size=(n, Q, d))
    if draw(st.booleans()):
        gradient[generator.random((n, Q, d)) < 0.3] = 0.0
    return logits, tokens, allowed, gradient, log_slope, weight


def scaled_gradient(logits, tokens, allowed, gradient, log_slope, weight):
    """Ours, without the trailing axis of trials."""
    arrays = logits, tokens, allowed, gradient, log_slope, weight
    with jax.enable_x64(True):
        result, log_scale, output = compiled(*(None if x is None else x[..., None] for x in arrays))
        return np.asarray(result)[..., 0], float(log_scale[0]), np.asarray(output)[..., 0]


@jax.jit
def compiled(logits, tokens, allowed, gradient, log_slope, weight):
    pooled = pool(logits, tokens, allowed)
    return *logit_gradient(pooled, tokens, gradient, log_slope, weight), pooled.output


def exact_gradient(logits, tokens, allowed, gradient, log_slope, weight):
    """By the definition a_t (g_t − Σ_u a_u g_u), and the error that each entry may have."""
    n, Q, T = logits.shape
    gap = max(1.0, float(np.ptp(logits)), float(-log_slope.min()))
    mpmath.mp.dps = int(2 * gap / np.log(10)) + 50
    exact = np.full((n, Q, T), mpmath.mpf(0))
    bound = np.full((n, Q, T), mpmath.mpf(0))
    for i, q in np.ndindex(n, Q):
        kept = [t for t in range(T) if allowed is None or allowed[i, q, t]]
        star = max(kept, key=lambda t: (logits[i, q, t], -t))
        e = {t: mpmath.exp(mpmath.mpf(logits[i, q, t]) - mpmath.mpf(logits[i, q, star])) for t in kept}
        S = sum(e.values())
        g = [mpmath.mpf(x) for x in gradient[i, q]]
        values = {t: mpmath.fdot([mpmath.mpf(x) for x in tokens[i, t]], g) for t in kept}
        mean = sum(e[t] * values[t] for t in kept) / S
        r = sum(e[t] * (values[star] - values[t]) for t in kept if t != star) / S
        factor = mpmath.mpf(weight[i, q]) * mpmath.exp(mpmath.mpf(log_slope[i, q]))
        for t in kept:
            exact[i, q, t] = factor * e[t] / S * (values[t] - mean)
            gap_t = [abs(mpmath.mpf(a) - mpmath.mpf(b)) for a, b in zip(tokens[i, star], tokens[i, t], strict=True)]
            bound[i, q, t] = factor * e[t] / S * (abs(r) + mpmath.fdot(gap_t, [abs(x) for x in g]))
            # the oracle's own rounding, which is all there is where the exact result is 0
            bound[i, q, t] += factor * e[t] / S * max(map(abs, values.values())) * mpmath.mpf("1e-30")
    return exact, bound


@settings(max_examples=200)
@given(cases())
def test_every_entry_keeps_its_relative_accuracy(case):
    result, log_scale, _ = scaled_gradient(*case)
    exact, bound = exact_gradient(*case)
    scale = mpmath.exp(mpmath.mpf(log_scale))
    assert np.isfinite(result).all()
    # the smallest entries of a trial may underflow below the largest: what is then left out is under the least float
    least = mpmath.mpf(np.finfo(float).tiny) * scale * (1 + np.abs(case[1]).max() * np.abs(case[3]).sum())
    for index in np.ndindex(result.shape):
        error = abs(mpmath.mpf(float(result[index])) * scale - exact[index])
        assert error <= mpmath.mpf("1e-12") * bound[index] + least, (index, case)


@pytest.mark.parametrize("exponent", [1, 16, 30, 100])
def test_a_probability_as_near_to_one_as_can_be(exponent):
    gap = exponent * np.log(10)
    logits = np.array([[[0.0, -gap, -gap - 3.0, -gap]]])
    generator = np.random.default_rng(exponent)
    tokens, gradient = generator.normal(size=(1, 4, 3)), generator.normal(size=(1, 1, 3))
    case = (logits, tokens, None, gradient, np.zeros((1, 1)), np.ones((1, 1)))
    result, log_scale, _ = scaled_gradient(*case)
    exact, _ = exact_gradient(*case)
    assert log_scale == pytest.approx(-gap)
    got = [mpmath.mpf(float(x)) * mpmath.exp(log_scale) for x in result[0, 0]]
    for mine, true in zip(got, exact[0, 0], strict=True):
        assert abs(mine / true - 1) < 1e-12


def test_a_duplicate_of_the_winner_does_not_let_the_rest_underflow():
    logits = np.array([[[0.0, 0.0, -2000.0, -2001.0]]])
    tokens = np.array([[[1.0, 2.0], [1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]])
    case = (logits, tokens, None, np.array([[[1.0, -0.5]]]), np.zeros((1, 1)), np.ones((1, 1)))
    result, log_scale, _ = scaled_gradient(*case)
    exact, _ = exact_gradient(*case)
    assert log_scale == -2000.0
    for mine, true in zip(result[0, 0], exact[0, 0], strict=True):
        assert abs(mpmath.mpf(float(mine)) * mpmath.exp(log_scale) / true - 1) < 1e-12


def test_copies_of_the_winner_with_other_values_do_not_let_the_rest_underflow():
    logits = np.array([0.0, 0.0, -2000.0, -2001.0, 0.0])
    tokens, gradient = np.random.default_rng(0).standard_normal((5, 3)), np.array([0.5, -1.0, 2.0])
    copies = np.array([0, 0, 2, 3, 0], np.int32)
    with jax.enable_x64(True):
        x, arrays = tokens[None, ..., None], (gradient[None, None, :, None], np.zeros((1, 1, 1)), np.ones((1, 1, 1)))
        of_logits = jax.jit(lambda s, first: logit_gradient(pool(s, x, None, first), x, *arrays))
        found, log_scale = map(np.asarray, of_logits(logits[None, None, :, None], copies[None, None, :, None]))
    mpmath.mp.dps = 2000
    a = [mpmath.exp(mpmath.mpf(s)) for s in logits]
    values = [mpmath.fdot(row, gradient) for row in tokens]
    mean = mpmath.fdot(a, values) / sum(a)
    exact = [x / sum(a) * (v - mean) for x, v in zip(a, values, strict=True)]
    group = float(sum(exact[t] for t in (0, 1, 4)) / mpmath.exp(log_scale[0]))
    assert log_scale[0] == -2000.0
    assert found[0, 0, [0, 1, 4], 0].sum() == pytest.approx(group, rel=1e-12)
    for t in (2, 3):
        assert found[0, 0, t, 0] == pytest.approx(float(exact[t] / mpmath.exp(log_scale[0])), rel=1e-12)


def test_finite_differences_where_nothing_is_saturated():
    generator = np.random.default_rng(3)
    logits, tokens = generator.normal(size=(3, 2, 5)), generator.normal(size=(3, 5, 4))
    gradient, weight = generator.normal(size=(3, 2, 4)), np.full((3, 2), 1 / 6)
    allowed = generator.random((3, 2, 5)) < 0.7
    allowed[..., 2] = True

    def value(logits):
        e = np.where(allowed, np.exp(logits), 0.0)
        a = e / e.sum(axis=-1, keepdims=True)
        return np.sum(weight * np.einsum("nqt,ntd,nqd->nq", a, tokens, gradient))

    result, log_scale, output = scaled_gradient(logits, tokens, allowed, gradient, np.zeros((3, 2)), weight)
    assert value(logits) == pytest.approx(np.sum(weight[..., None] * output * gradient), rel=1e-13)
    for index in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[index] = 1e-5
        slope = (value(logits + step) - value(logits - step)) / 2e-5
        assert result[index] * np.exp(log_scale) == pytest.approx(slope, abs=1e-9)


def test_a_query_that_may_attend_to_nothing_gets_no_gradient():
    logits, tokens = np.zeros((1, 2, 3)), np.ones((1, 3, 2))
    allowed = np.array([[[True, True, False], [False, False, False]]])
    case = (logits, tokens, allowed, np.ones((1, 2, 2)), np.zeros((1, 2)), np.array([[1.0, 0.0]]))
    result, _, output = scaled_gradient(*case)
    assert np.isfinite(output).all()
    np.testing.assert_array_equal(result[0, 1], 0.0)
