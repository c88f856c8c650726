"""Steps of every optimizer from their definitions, in NumPy: no code of the library.

A gradient comes as :class:`Slopes`. The first axis of each array holds members: the gradient, and copies of it that are
perturbed by as much as rounding may change it. They share no operation, so their spread is the condition of the step.
A rule is a function of (parameters, slopes, value, state, number of steps before) that returns the next parameters and
the next state; the state before the first step is None.
"""

import mpmath
import numpy as np


class Slopes:
    """Gradients of several parameters: arrays (members, ...) times exp(log), with an mpmath number log for each."""

    def __init__(self, arrays, logs):
        self.arrays, self.logs = {}, {}
        for name, x in arrays.items():
            largest = np.abs(x).max(initial=0.0)
            self.arrays[name] = x / largest if largest > 0 else x
            self.logs[name] = logs[name] + mpmath.log(largest) if largest > 0 else mpmath.mpf("-inf")
        self.largest = max(self.logs.values())

    def joint(self):
        """All arrays relative to the largest entry of all."""
        if mpmath.isinf(self.largest):
            return self.arrays
        return {n: x * float(mpmath.exp(self.logs[n] - self.largest)) for n, x in self.arrays.items()}

    def plain(self):
        return {n: x * _float(mpmath.exp(self.logs[n])) for n, x in self.arrays.items()}


def _float(x):
    return float(x) if x < 1e308 else np.inf


def lp(arrays, p):
    """The ℓp norm of all arrays of a member, shape (members,)."""
    flat = np.concatenate([np.abs(x).reshape(len(x), -1) for x in arrays], axis=1)
    largest = flat.max(axis=1)
    safe = np.where(largest > 0, largest, 1.0)[:, None]
    if np.isinf(p):
        return largest
    return largest * ((flat / safe) ** p).sum(axis=1) ** (1 / p)


def by_member(factor, x):
    return np.reshape(factor, (-1, *(1,) * (x.ndim - 1))) * x


def divided(x, size):
    return by_member(np.where(size > 0, 1 / np.where(size > 0, size, 1.0), 0.0), x)


def normalized_gradient(slopes, scope, p=2.0):
    if scope == "all":
        arrays = slopes.joint()
        size = lp(arrays.values(), p)
        return {n: divided(x, size) for n, x in arrays.items()}
    return {n: divided(x, lp([x], p)) for n, x in slopes.arrays.items()}


def descent(rate, *, normalize=False, scope="all", relative=False):
    """(Normalized) gradient descent."""

    def step(theta, slopes, value, state, number):
        g = normalized_gradient(slopes, scope) if normalize else slopes.plain()
        size = {n: lp([x] if scope == "each" else theta.values(), 2.0) if relative else 1.0 for n, x in theta.items()}
        return {n: x - by_member(rate_at(rate, number) * size[n], g[n]) for n, x in theta.items()}, state

    return step


def rate_at(rate, number):
    return rate(number) if callable(rate) else rate


def polyak(target, longest):
    def step(theta, slopes, value, state, number):
        unit, excess = normalized_gradient(slopes, "all"), value - target
        if mpmath.isinf(slopes.largest):
            return theta, state
        size = lp(slopes.joint().values(), 2.0)
        length = [
            min(mpmath.mpf(max(e, 0.0)) / s / mpmath.exp(slopes.largest), longest)
            for e, s in zip(excess, size, strict=True)
        ]
        return {n: x - by_member(np.array(length, dtype=float), unit[n]) for n, x in theta.items()}, state

    return step


def mirror_descent(p, rate, *, normalize=True, scope="all", relative=False):
    q = p / (p - 1)

    def step(theta, slopes, value, state, number):
        z = {n: np.sign(x) * np.abs(x) ** (p - 1) for n, x in theta.items()}
        g = normalized_gradient(slopes, scope, q) if normalize else slopes.plain()
        size = {n: lp([x] if scope == "each" else z.values(), q) if relative else 1.0 for n, x in z.items()}
        z = {n: x - by_member(rate_at(rate, number) * size[n], g[n]) for n, x in z.items()}
        return {n: np.sign(x) * np.abs(x) ** (1 / (p - 1)) for n, x in z.items()}, state

    return step


def steepest_descent(norm, rate, *, normalize=True, relative=False):
    def step(theta, slopes, value, state, number):
        after = {}
        for n, x in theta.items():
            g = slopes.arrays[n]
            direction = steepest(norm, g)
            length = rate * np.ones(len(x))
            if not normalize:
                length = length * (g * direction).reshape(len(g), -1).sum(axis=1) * _float(mpmath.exp(slopes.logs[n]))
            if relative:
                length = length * norm_of(norm, x)
            after[n] = x - by_member(length, direction)
        return after, state

    return step


def weight_decay(inner, share):
    """Decoupled weight decay: the weights before the step shrink by this share of themselves."""

    def step(theta, slopes, value, state, number):
        after, state = inner(theta, slopes, value, state, number)
        return {n: x - share * theta[n] for n, x in after.items()}, state

    return step


def steepest(norm, g):
    """D with N(D) = 1 that maximises ⟨g, D⟩."""
    if norm in ("spectral", "nuclear") and g.ndim == 3:
        # a singular value near rounding errors may count, or may not: in the first copy of the gradient it does
        thresholds = np.array([[1e3], [1.0], *[[1e3]] * (len(g) - 2)])[: len(g)]
        left, values, right = np.linalg.svd(np.concatenate([g[:1], g[:1], g[2:]])[: len(g)], full_matrices=False)
        kept = values > thresholds * max(g.shape[1:]) * np.finfo(float).eps * values[:, :1]
        if norm == "nuclear":
            kept &= np.arange(values.shape[1]) == 0
        return np.einsum("mik,mk,mkj->mij", left, kept.astype(float), right)
    if norm in ("rows", "columns") and g.ndim == 3:
        axis = 2 if norm == "rows" else 1
        largest = np.abs(g).max(axis=axis, keepdims=True)
        unit = np.divide(g, largest, out=np.zeros_like(g), where=largest > 0)  # squares of small rows underflow
        size = np.sqrt((unit * unit).sum(axis=axis, keepdims=True))
        return np.divide(unit, size, out=np.zeros_like(g), where=size > 0)
    if norm == "linf":
        return np.sign(g)
    if norm == "l1":
        flat = g.reshape(len(g), -1)
        first = np.abs(flat).argmax(axis=1)
        one = np.zeros_like(flat)
        one[np.arange(len(g)), first] = np.sign(flat[np.arange(len(g)), first])
        return one.reshape(g.shape)
    p = 2.0 if norm in ("spectral", "nuclear", "rows", "columns", "frobenius") else float(norm)
    q = p / (p - 1)
    unit = divided(g, lp([g], q))
    return np.sign(unit) * np.abs(unit) ** (q - 1)


def norm_of(norm, x):
    if norm in ("spectral", "nuclear") and x.ndim == 3:
        values = np.linalg.svd(x, compute_uv=False)
        return values.max(axis=1) if norm == "spectral" else values.sum(axis=1)
    named = {"linf": np.inf, "l1": 1.0, "frobenius": 2.0, "spectral": 2.0, "nuclear": 2.0}
    return lp([x], named[norm] if norm in named else float(norm))


def adam_moments(g, state, number):
    first, second = state or (dict.fromkeys(g, 0.0), dict.fromkeys(g, 0.0))
    first = {n: 0.9 * first[n] + 0.1 * x for n, x in g.items()}
    second = {n: 0.999 * second[n] + 0.001 * x * x for n, x in g.items()}
    return first, second


def adam(rate):
    """Kingma and Ba's Adam, with optax's constants, on the gradient over its ℓ2 norm."""

    def step(theta, slopes, value, state, number):
        first, second = adam_moments(normalized_gradient(slopes, "all"), state, number)
        after = {n: x - rate * adam_direction(first[n], second[n], number) for n, x in theta.items()}
        return after, (first, second)

    return step


def adam_direction(first, second, number):
    return first / (1 - 0.9 ** (number + 1)) / adam_size(second, number)


def adam_size(second, number):
    return np.sqrt(second / (1 - 0.999 ** (number + 1))) + 1e-8


def muon(rate):
    """Jordan's Muon for matrices, Adam for the rest, both with Nesterov momentum, on the gradient over its ℓ2 norm."""

    def step(theta, slopes, value, state, number):
        g = normalized_gradient(slopes, "all")
        moments, sums = state or (None, dict.fromkeys(g, 0.0))
        first, second = adam_moments(g, moments, number)
        sums = {n: 0.95 * sums[n] + 0.05 * x for n, x in g.items()}
        after = {}
        for n, x in theta.items():
            if x.ndim != 3:
                # Adam with Nesterov momentum, too
                ahead = 0.9 * first[n] / (1 - 0.9 ** (number + 2)) + 0.1 * g[n] / (1 - 0.9 ** (number + 1))
                after[n] = x - rate * ahead / adam_size(second[n], number)
                continue
            ahead = 0.95 * sums[n] / (1 - 0.95 ** (number + 2)) + 0.05 * g[n] / (1 - 0.95 ** (number + 1))
            rows, columns = x.shape[1:]
            after[n] = x - rate * np.sqrt(max(1.0, columns / rows)) * newton_schulz(ahead)
        return after, ((first, second), sums)

    return step


def newton_schulz(x):
    if x.shape[1] > x.shape[2]:
        return np.swapaxes(newton_schulz(np.swapaxes(x, 1, 2)), 1, 2)
    x = by_member(1 / (lp([x], 2.0) + 1e-8), x)
    for _ in range(5):
        a = x @ np.swapaxes(x, 1, 2)
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x


def momentum(inner, decay, nesterov):
    """The inner rule on m⁺ = β m + g, or β m⁺ + g; sums are kept with their logarithms."""

    def added(factor, before, slopes):
        arrays, logs = {}, {}
        for n, x in slopes.arrays.items():
            old = before.arrays[n] if before else 0 * x
            old_log = before.logs[n] if before and factor > 0 else mpmath.mpf("-inf")
            largest = max(slopes.logs[n], old_log)
            logs[n] = largest if mpmath.isfinite(largest) else mpmath.mpf(0)
            of_old = float(mpmath.exp(old_log - logs[n]))
            arrays[n] = factor * of_old * old + float(mpmath.exp(slopes.logs[n] - logs[n])) * x
        return Slopes(arrays, logs)

    def step(theta, slopes, value, state, number):
        sums, of_inner = state or (None, None)
        sums = added(decay, sums, slopes)
        passed = added(decay, sums, slopes) if nesterov else sums
        after, of_inner = inner(theta, passed, value, of_inner, number)
        return after, (sums, of_inner)

    return step


def normalized(inner, scope):
    def step(theta, slopes, value, state, number):
        if scope == "all" and not mpmath.isinf(slopes.largest):
            # each parameter keeps its scale: next to the largest gradient that of another one may underflow
            size = lp(slopes.joint().values(), 2.0)
            given = {n: divided(x, size) for n, x in slopes.arrays.items()}
            logs = {n: log - slopes.largest for n, log in slopes.logs.items()}
        else:
            given = normalized_gradient(slopes, scope)
            logs = dict.fromkeys(given, mpmath.mpf(0))
        return inner(theta, Slopes(given, logs), value, state, number)

    return step
