"""Points of a cone from which a descent step leaves it, looked for by local search, in plain NumPy."""

import numpy as np


def descent(weights, rows, gaps, best):
    """−∇L/‖∇L‖ of the mean logistic loss at weights (B, d), in logarithms.

    ``rows``: (n, T, d), k_selected z' − k_t z'. ``gaps``: (n, T), of the scores. ``best``: (n, 1), scores selected.
    """
    margins = np.einsum("ntd,bd->bnt", rows, weights)
    log_size = -margins - np.logaddexp.reduce(-margins, axis=-1, keepdims=True)
    lost = np.sum(np.exp(log_size) * gaps, axis=-1, keepdims=True)
    log_size = log_size - np.logaddexp(0.0, best - lost)
    log_size = np.where((rows == 0).all(axis=-1), -np.inf, log_size)
    size = np.exp(log_size - log_size.max(axis=(1, 2), keepdims=True)) * (gaps - lost)
    found = np.einsum("bnt,ntd->bd", size, rows)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def attack(data, selected, axis, opening, radius, step, generator, points=100, rounds=15):
    """The least (⟨W + hu, D⟩ − c‖W + hu‖)/h of each point, and the least (‖W + hu‖ − ‖W‖)/h of all that were tried.

    ``data``: tokens, queries and scores. ``axis``: the unit D. ``step``: the longest one at the radius. Half of the
    points have their correlation on the border of the cone; no differences of W + hu and W are taken.
    """
    tokens, queries, scores = data
    each = np.arange(len(selected))
    away = tokens[each, selected][:, None] - tokens
    rows = np.einsum("ntk,nq->ntkq", away, queries).reshape(*scores.shape, -1)
    best = scores[each, selected][:, None]
    c, s2 = 1 - opening, opening * (2 - opening)
    flat = rows[(rows != 0).any(axis=-1)]
    starts = generator.standard_normal((points, axis.size))
    half = len(starts[::2])
    along = generator.choice([-1.0, 1.0], (half, 1)) * flat[generator.integers(len(flat), size=half)]
    starts[::2] = along + 0.1 * np.linalg.norm(flat, axis=1).mean() / np.sqrt(axis.size) * starts[::2]
    r = radius * generator.choice([1.0, 1.0, 1.2, 2.0, 8.0], points)
    above = np.minimum(generator.choice([0.0, 0.0, 0.0, 0.3, 1.0], points) * 1.05 * s2 / (8 * c), opening)
    h = generator.choice([1.0, 1.0, 1.0, 0.3, 0.01], points) * step * r / radius
    cosine = c + above

    def values(normal):
        normal = normal - np.outer(normal @ axis, axis)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        unit = cosine[:, None] * axis + np.sqrt((1 - cosine) * (1 + cosine))[:, None] * normal
        u = descent(r[:, None] * unit, rows, best - scores, best)
        ahead = np.sum(u * unit, axis=1)
        longer = (2 * r * ahead + h) / (np.sqrt(r * r + 2 * r * h * ahead + h * h) + r)
        return r * above / h + u @ axis - c * longer, longer

    least, longer = values(starts)
    growth = longer.min()
    for _ in range(rounds - 1):
        width = generator.choice([0.5, 0.1, 0.02], (points, 1)) * np.linalg.norm(starts, axis=1, keepdims=True)
        moved = starts + width * generator.standard_normal(starts.shape) / np.sqrt(axis.size)
        now, longer = values(moved)
        growth = min(growth, longer.min())
        starts = np.where((now < least)[:, None], moved, starts)
        least = np.minimum(now, least)
    return least, growth
