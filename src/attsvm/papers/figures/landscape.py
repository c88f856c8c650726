"""Stationary points of the loss: a search by Newton's method, where theory excludes them and where it does not."""

from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure as Drawing

from attsvm.datasets import random_problem
from attsvm.papers.drawing import panels, set_axes
from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Verdict, each, joined, verdict
from attsvm.papers.figures import FIGURES
from attsvm.plot import style
from attsvm.problem import Problem, stack_problems
from attsvm.selection import scores
from attsvm.theory import landscape_conditions

GROUPS = {"all tokens support": (2, 3, 6), "scores can be ordered": (4, 3, 2), "scores cannot be ordered": (4, 3, 2)}
"""n, T and d of the problems of each group."""
EXCLUDED = ("all tokens support", "scores can be ordered")
LONGEST = 1.0
"""A Newton step is not longer than this."""
APART = 1e-6
"""Stationary points that are closer than this are one."""


def _problems(group: str, count: int, seed: int) -> Problem:
    """The first problems of a group among random ones."""
    n, T, d = GROUPS[group]
    kept: list[Problem] = []
    for block in range(100):
        drawn = random_problem(n, T, d, seed + block, batch=(count,))
        found = landscape_conditions(drawn)
        in_group = {
            "all tokens support": found.all_support,
            "scores can be ordered": found.ordered & ~np.asarray(found.all_support),
            "scores cannot be ordered": ~np.asarray(found.holds),
        }[group]
        kept += [drawn[int(i)] for i in np.flatnonzero(in_group)]
        if len(kept) >= count:
            break
    return stack_problems(kept[:count])


def _features(problem: Problem) -> np.ndarray:
    """(k_t − k_1) z' of each token in an orthonormal basis of their span, shape (problems, n, T, D).

    The loss depends on the coordinates of W in this basis only.
    """
    assert problem.queries is not None
    differences = problem.tokens - problem.tokens[..., :1, :]
    full = np.einsum("...ntk,...ne->...ntke", differences, problem.queries)
    rows = full.reshape(len(full), -1, full.shape[-2] * full.shape[-1])
    values, right = np.linalg.svd(rows, full_matrices=False)[1:]
    rank = int((values > 1e-9 * values[:, :1]).sum(axis=1).max())
    return np.asarray((rows @ np.swapaxes(right[:, :rank], -1, -2)).reshape(*full.shape[:3], rank))


def _derivatives(w: jax.Array, features: jax.Array, gamma: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gradient and Hessian of the mean logistic loss, as cumulants under the softmax."""
    attention = jax.nn.softmax(features @ w, axis=-1)
    output = jnp.sum(attention * gamma, axis=-1)
    centred = features - jnp.einsum("nt,ntd->nd", attention, features)[:, None]
    weight = attention * (gamma - output[:, None])
    slope = -jax.nn.sigmoid(-output)
    first = jnp.einsum("nt,ntd->nd", weight, centred)
    second = jnp.einsum("n,nt,ntd,nte->de", slope, weight, centred, centred)
    bend = -slope * (1 + slope)
    hessian = second + jnp.einsum("n,nd,ne->de", bend, first, first)
    return slope @ first / len(gamma), hessian / len(gamma)


@partial(jax.jit, static_argnums=3)
def _newton(start: jax.Array, features: jax.Array, gamma: jax.Array, steps: int) -> tuple[jax.Array, ...]:
    """Newton's method on the gradient: the last point, the length of the next step, and the Hessian's eigenvalues."""

    def advance(_: int, w: jax.Array) -> jax.Array:
        gradient, hessian = _derivatives(w, features, gamma)
        step = jnp.linalg.solve(hessian, -gradient)
        length = jnp.sqrt(jnp.sum(step**2))
        moved = w + step * jnp.minimum(1.0, LONGEST / jnp.maximum(length, 1e-300))
        return jnp.where(jnp.isfinite(moved).all(), moved, w)

    w = jax.lax.fori_loop(0, steps, advance, start)
    gradient, hessian = _derivatives(w, features, gamma)
    step = jnp.linalg.solve(hessian, gradient)
    return w, jnp.sqrt(jnp.sum(step**2)), jnp.linalg.eigvalsh(hessian)


def third_derivative(features: np.ndarray, gamma: np.ndarray) -> float:
    """A bound of the third derivative of the loss along a unit direction.

    The derivatives of an output are at most GH/4, (√3/18) GH² and (5/16) GH³ for scores in a range G and logits in a
    range H, and those of the logistic loss at most 1, 1/4 and 1/(6√3).
    """
    G = gamma.max(axis=-1) - gamma.min(axis=-1)
    H = np.linalg.norm(features[:, :, None] - features[:, None], axis=-1).max(axis=(-2, -1))
    first, second, third = G * H / 4, np.sqrt(3) / 18 * G * H**2, 5 / 16 * G * H**3
    return float(np.mean(first**3 / (6 * np.sqrt(3)) + 0.75 * first * second + third))


def _search(group: str, count: int, starts: int, steps: int, seed: int) -> Arrays:
    """The stationary points that Newton's method finds: how many on each problem, and their indices.

    A point counts if Newton's method provably converges from it (Kantorovich): the length of the next step times
    ‖H⁻¹‖ times a bound of the third derivative is at most ½.
    """
    problem = _problems(group, count, seed)
    every = _features(problem)
    gammas = scores(problem)
    generator = np.random.default_rng(seed)
    search = jax.vmap(_newton, in_axes=(0, None, None, None))
    numbers, indices, sizes = np.zeros(count, int), [], []
    for i in range(count):
        scale = np.exp(generator.uniform(np.log(0.3), np.log(30.0), (starts, 1)))
        start = scale * generator.standard_normal((starts, every.shape[-1]))
        with jax.enable_x64(True):
            points, length, values = (np.asarray(x) for x in search(start, every[i], gammas[i], steps))
        nearest = np.abs(values).min(axis=1)
        bound = third_derivative(every[i], gammas[i])
        proved = np.isfinite(length) & (length * bound <= 0.5 * nearest) & (nearest > 0)
        _, first = np.unique(np.round(points[proved] / APART) * APART, axis=0, return_index=True)
        numbers[i] = len(first)
        indices += list((values[proved][first] < 0).sum(axis=1))
        sizes += list(np.linalg.norm(points[proved][first], axis=1))
    return {"number": numbers, "index": np.array(indices, int), "size": np.array(sizes)}


class Landscape(Figure):
    name = "landscape"
    paper = Paper.TRANSFORMERS
    order = 4.6
    title = "Stationary points at finite weights"
    seconds = 45
    claim = (
        "If every token is a support token, the loss has no stationary point at finite weights. The same holds if some "
        "weights order the logits of every query like its scores. (Newton's method on the gradient from random starts. "
        "Top: share of problems on which it finds a stationary point. Bottom: number of negative eigenvalues of the "
        "Hessian at those points; 0 is a minimum.)"
    )
    criterion = (
        "The search finds no stationary point under either condition. If neither holds, it finds one on at least a "
        "tenth of the problems, which shows that it can find them."
    )
    full: ClassVar[Sizes] = {"problems": 200, "starts": 1000, "steps": 40, "seed": 0}
    quick: ClassVar[Sizes] = {"problems": 20, "starts": 100, "steps": 40, "seed": 0}

    def measure(self, sizes: Sizes, piece: Piece) -> Arrays:
        arguments = [sizes[key] for key in ("problems", "starts", "steps", "seed")]
        return joined(each(piece, GROUPS, _search, *arguments))

    def judge(self, sizes: Sizes, found: Arrays) -> Verdict:
        counts = {group: found[f"number {group}"] for group in GROUPS}
        shares = {group: float((counts[group] > 0).mean()) for group in GROUPS}
        other = next(group for group in GROUPS if group not in EXCLUDED)
        passed = {f"{group}: a stationary point": shares[group] == 0 for group in EXCLUDED}
        passed[f"{other}: stationary points on fewer than a tenth of the problems"] = shares[other] >= 0.1
        return verdict(
            passed,
            f"Stationary points under the conditions: {sum(int(counts[group].sum()) for group in EXCLUDED)}, from "
            f"{len(EXCLUDED) * sizes['problems'] * sizes['starts']:,} starts. Where neither holds: "
            f"{int(counts[other].sum())}, on {shares[other]:.0%} of the problems.",
        )

    def rows(self, sizes: Sizes, found: Arrays) -> list[Row]:
        rows = []
        for group, (n, T, d) in GROUPS.items():
            there = found[f"number {group}"] > 0
            of = f"{group} (n = {n}, T = {T}, d = {d})"
            rows.append(Row(f"{of}: problems with a stationary point", f"{int(there.sum())} of {len(there)}"))
        index = found[f"index {group}"]
        summary = " / ".join(str(int((index == k).sum())) for k in range(int(index.max(initial=0)) + 1))
        rows.append(Row(f"{group}: stationary points with 0, 1, … negative eigenvalues", summary))
        if len(index):
            norms = found[f"size {group}"]
            rows.append(Row(f"{group}: their norm, median and largest", f"{np.median(norms):.1f}, {norms.max():.0f}"))
        return rows

    def draw(self, sizes: Sizes, found: Arrays) -> Drawing:
        figure, (top, bottom) = panels(3.6, 2)
        shares = [float((found[f"number {group}"] > 0).mean()) for group in GROUPS]
        bars = top.barh(range(len(GROUPS)), shares, color=[style.BLUE, style.GREEN, style.VERMILLION])
        top.bar_label(bars, [f"{share:.0%}" for share in shares], padding=2)
        top.set_yticks(range(len(GROUPS)), [group.replace("scores can", "scores\ncan") for group in GROUPS])
        top.invert_yaxis()
        top.set_xlim(0, 1.1 * max(*shares, 0.1))
        top.set_xlabel("share of problems with a stationary point")
        top.grid(False, axis="y")
        index = found[f"index {list(GROUPS)[-1]}"]
        places = np.arange(int(index.max(initial=0)) + 1)
        bottom.bar(places, [(index == k).sum() for k in places], color=style.VERMILLION)
        bottom.set_xticks(places)
        set_axes(bottom, "negative eigenvalues of the Hessian", "points found")
        bottom.grid(False, axis="x")
        return figure


FIGURES.register(Landscape.name, Landscape())
