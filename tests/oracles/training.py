"""The gradient of the objective by its definition, in mpmath's arithmetic: no code of the library, no formula of its.

Arrays are NumPy's of mpmath numbers, and stand on the left of a number: a number on the left converts them to text
first. Each function returns what is exact and what its rounding errors may be
proportional to: the same sums with absolute values.
"""

import mpmath
import numpy as np

exact = np.vectorize(lambda x: mpmath.mpf(float(x)), otypes=[object])
_exp = np.vectorize(mpmath.exp, otypes=[object])


def linear(v, o, size):
    """f = v'o for each row of v; its slopes along o and v, each with sizes of errors."""
    return v @ o, np.abs(v) @ size, (v, np.abs(v)), {"v": (_rows(len(v), o), _rows(len(v), size))}


def quadratic(curvature, v, o, size):
    f, of_f, _, slopes = linear(v, o, size)
    along = v - o * (2 * curvature), np.abs(v) + size * (2 * abs(curvature))
    return f - curvature * (o @ o), of_f + abs(curvature) * (size @ size), along, slopes


def hidden_layer(activation, hidden, output, bias, o, size):
    units, of_units = hidden @ o + bias, np.abs(hidden) @ size + np.abs(bias)
    values, slopes, of_slopes = (np.array(x) for x in zip(*map(activation, units), strict=True))
    through, of_through = output * slopes, np.abs(output) * of_slopes
    parameters = {
        "output": (_rows(len(output), values), _rows(len(output), np.abs(values) + of_slopes * of_units)),
        "hidden": (through[..., None] * o, of_through[..., None] * size),
        "bias": (through, of_through),
    }
    along = through @ hidden, of_through @ np.abs(hidden)
    return output @ values, np.abs(output) @ (np.abs(values) + of_slopes * of_units), along, parameters


def value_matrix(activation, value, hidden, output, bias, o, size):
    """A hidden layer of V'o."""
    inner = value.T @ o, np.abs(value).T @ size
    f, of_f, (along, of_along), parameters = hidden_layer(activation, hidden, output, bias, *inner)
    slopes = {
        "value": (
            np.stack([np.multiply.outer(o, row) for row in along]),
            np.stack([np.multiply.outer(size, row) for row in of_along]),
        )
    }
    return f, of_f, (along @ value.T, of_along @ np.abs(value).T), parameters | slopes


def relu(x):
    return (x, mpmath.mpf(1), mpmath.mpf(1)) if x > 0 else (mpmath.mpf(0),) * 3


def gelu(x, least=0):
    """``least``: below what size errors are absolute, as floats underflow."""
    share, density = mpmath.ncdf(x), mpmath.npdf(x)
    return x * share, share + x * density, max(share + abs(x) * density + abs(x * x * density), least)


def tanh_sum(weights, scale, o, size):
    """f = c Σ tanh(A o)."""
    values = np.array([mpmath.tanh(u) for u in weights @ o])
    slopes, of_slopes = 1 - values * values, 1 + values * values
    parameters = {
        "A": ((np.multiply.outer(slopes, o) * scale)[None], (np.outer(of_slopes, size) * abs(scale))[None]),
        "c": (np.array([values.sum()]), np.array([np.abs(values).sum()])),
    }
    along = slopes * scale @ weights, of_slopes * abs(scale) @ np.abs(weights)
    f = scale * values.sum()
    return np.array([f]), np.array([abs(scale) * np.abs(values).sum()]), tuple(x[None] for x in along), parameters


def margin_slope(loss, f, label):
    """dℓ/df of labels ±1, and the size of its errors where that is larger."""
    m = label * f
    slope = {
        "logistic": lambda: -1 / (1 + mpmath.exp(m)),
        "exponential": lambda: -mpmath.exp(-m),
        "linear": lambda: mpmath.mpf(-1),
        "correlation": lambda: mpmath.mpf(-1),
        "sigmoid": lambda: -1 / ((1 + mpmath.exp(m)) * (1 + mpmath.exp(-m))),
        "squares": lambda: m - 1,
    }[loss]()
    return np.array([label * slope]), np.array([abs(m) + 1 if loss == "squares" else abs(slope)])


def class_slope(f, label):
    e = _exp(f - f.max())
    others = np.array([sum(e[k] for k in range(len(e)) if k != c) for c in range(len(e))])
    slope = np.array([-others[c] / e.sum() if c == int(label) else e[c] / e.sum() for c in range(len(e))])
    return slope, np.abs(slope)


def margin_loss(loss, m):
    """ℓ(m) of the margin."""
    return {
        "logistic": lambda: mpmath.log1p(mpmath.exp(-m)),
        "exponential": lambda: mpmath.exp(-m),
        "linear": lambda: -m,
    }[loss]()


def mean_loss(problem, parameters, head, loss):
    """The mean loss of one problem without batch axes; arguments as of :func:`gradient`."""
    keys, queries, allowed, active = problem.canonical
    labels = problem.labels if problem.has_query_axis else problem.labels[:, None]
    tokens, keys, queries = exact(problem.tokens), exact(keys), exact(queries)
    given = {name: exact(x) for name, x in parameters.items()}
    weights, _ = _weights(given, keys.shape[-1])
    total = mpmath.mpf(0)
    for i, q in np.argwhere(active):
        kept = np.flatnonzero(allowed[i, q])
        s = keys[i][kept] @ weights @ queries[i, q]
        e = _exp(s - s.max())
        o = e @ tokens[i][kept] / e.sum()
        f = head(given, o, np.abs(o))[0]
        label = labels[i, q]
        if loss == "cross_entropy":
            total += mpmath.log(_exp(f - f[int(label)]).sum())
        else:
            total += margin_loss(loss, label * f[0])
    return total / int(active.sum())


def gradient(problem, parameters, head, loss):
    """Gradients of all parameters, sizes of their errors, and the condition of what they are computed from.

    ``problem`` is one problem without batch axes, ``head`` a function of (parameters, o, size of o) as above.
    """
    keys, queries, allowed, active = problem.canonical
    labels = problem.labels if problem.has_query_axis else problem.labels[:, None]
    tokens, keys, queries = exact(problem.tokens), exact(keys), exact(queries)
    given = {name: exact(x) for name, x in parameters.items()}
    weights, size_of_weights = _weights(given, keys.shape[-1])
    found: dict[str, np.ndarray] = {}
    error: dict[str, np.ndarray] = {}
    condition = mpmath.mpf(0)
    share = mpmath.mpf(1) / int(active.sum())

    def add(name, value, size):
        found[name] = found.get(name, 0) + value
        error[name] = error.get(name, 0) + size

    for i, q in np.argwhere(active):
        kept = np.flatnonzero(allowed[i, q])
        x, k, z = tokens[i][kept], keys[i][kept], queries[i, q]
        s = k @ weights @ z
        condition = max(condition, (np.abs(k) @ size_of_weights @ np.abs(z)).max())
        star = int(np.argmax(s))
        e = _exp(s - s[star])
        S = e.sum()
        o, size = e @ x / S, e @ np.abs(x) / S
        f, size_of_f, along, slopes = head(given, o, size)
        condition = max(condition, size_of_f.max())
        label = int(labels[i, q])
        slope, size_of_slope = class_slope(f, label) if loss == "cross_entropy" else margin_slope(loss, f[0], label)
        g, size_of_g = slope @ along[0], size_of_slope @ along[1]
        of_winner = x[star] - x
        D, size_of_D = of_winner @ g, np.abs(of_winner) @ size_of_g
        r = e @ D / S
        # (x - o) @ g, without the cancellation that saturated softmax would bring
        of_logits = e * (share / S) * -(D - r)
        size_of_logits = e * (share / S) * (size_of_D + abs(r))
        for name, (value, absolute) in _pulled_back(given, k, z).items():
            add(name, np.tensordot(of_logits, value, 1), np.tensordot(size_of_logits, absolute, 1))
        for name, (value, absolute) in slopes.items():
            if name in given:
                add(name, np.tensordot(slope, value, 1) * share, np.tensordot(size_of_slope, absolute, 1) * share)
    shapes = {name: np.shape(x) for name, x in parameters.items()}
    shaped = {n: (np.reshape(x, shapes[n]), np.reshape(error[n], shapes[n])) for n, x in found.items()}
    return shaped, condition


def _weights(given, key_dim):
    if {"W", "p"} <= set(given):
        return (given["W"] @ given["p"])[:, None], (np.abs(given["W"]) @ np.abs(given["p"]))[:, None]
    if {"g", "W"} <= set(given):
        return given["g"][:, None] * given["W"], np.abs(given["g"])[:, None] * np.abs(given["W"])
    if "W" in given:
        return given["W"], np.abs(given["W"])
    if "p" in given:
        return given["p"][:, None], np.abs(given["p"])[:, None]
    if len(given["K"]) != key_dim:  # rotated: [A_j; B_j] of each pair of columns
        pairs = list(zip(_pairs(given["K"]), _pairs(given["Q"]), strict=True))
        size = [np.abs(k) @ np.abs(part).T for k, q in pairs for part in (q, q[:, ::-1])]
        return np.concatenate([part for k, q in pairs for part in (k @ q.T, k @ _turned(q).T)]), np.concatenate(size)
    return given["K"] @ given["Q"].T, np.abs(given["K"]) @ np.abs(given["Q"]).T


def _pairs(factor):
    return [factor[:, first : first + 2] for first in range(0, factor.shape[1], 2)]


def _turned(q):
    """(q₁ q₂) as (q₂ −q₁): k₁q₂' − k₂q₁' is the product with it."""
    return np.stack([q[:, 1], -q[:, 0]], axis=1)


def _pulled_back(given, k, z):
    """Slopes of the logits of one query along the attention's parameters."""
    outer = np.multiply.outer(k, z)
    if {"W", "p"} <= set(given):
        W, p = given["W"], given["p"]
        return {
            "W": (np.multiply.outer(k, p), np.multiply.outer(np.abs(k), np.abs(p))),
            "p": (k @ W, np.abs(k) @ np.abs(W)),
        }
    if {"g", "W"} <= set(given):
        g, W = given["g"], given["W"]
        return {
            "g": (k * (W @ z), np.abs(k) * (np.abs(W) @ np.abs(z))),
            "W": (np.multiply.outer(k * g, z), np.abs(np.multiply.outer(k * g, z))),
        }
    if "W" in given:
        return {"W": (outer, np.abs(outer))}
    if "p" in given:
        return {"p": (k, np.abs(k))}
    K, Q = given["K"], given["Q"]
    if len(K) != k.shape[-1]:
        return _pulled_back_by_pairs(K, Q, k.reshape(len(k), -1, 2, len(K)), z)
    return {
        "K": (np.multiply.outer(k, z @ Q), np.multiply.outer(np.abs(k), np.abs(z) @ np.abs(Q))),
        "Q": (
            np.swapaxes(np.multiply.outer(k @ K, z), 1, 2),
            np.swapaxes(np.multiply.outer(np.abs(k) @ np.abs(K), np.abs(z)), 1, 2),
        ),
    }


def _pulled_back_by_pairs(K, Q, k, z):
    """Slopes for rotated columns; ``k`` are the keys of the blocks A_j and B_j, (T, J, 2, d)."""
    of_K, of_Q, sizes = [], [], ([], [])
    for j, (own, q) in enumerate(zip(_pairs(K), _pairs(Q), strict=True)):
        (q1, q2), c, e = z @ q, k[:, j, 0], k[:, j, 1]
        of_K += [c * q1 + e * q2, c * q2 - e * q1]
        of_Q += [c @ own[:, 0] - e @ own[:, 1], c @ own[:, 1] + e @ own[:, 0]]
        (q1, q2), own, c, e = np.abs(z) @ np.abs(q), np.abs(own), np.abs(c), np.abs(e)
        sizes[0].extend([c * q1 + e * q2, c * q2 + e * q1])
        sizes[1].extend([c @ own[:, 0] + e @ own[:, 1], c @ own[:, 1] + e @ own[:, 0]])
    return {
        "K": (np.stack(of_K, axis=-1), np.stack(sizes[0], axis=-1)),
        "Q": tuple(
            np.multiply.outer(np.stack(parts, axis=-1), of).swapaxes(1, 2)
            for parts, of in ((of_Q, z), (sizes[1], np.abs(z)))
        ),
    }


def _rows(number, values):
    """Slopes of output c along an array of one row an output: ``values`` in row c."""
    slopes = np.full((number, number, len(values)), mpmath.mpf(0))
    for c in range(number):
        slopes[c, c] = values
    return slopes
