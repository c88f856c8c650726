"""The tokens that attention keeps where the best one alone need not be the best attention.

A loss φ(w'o) of the pooled token o with a decreasing φ is smallest at the token of largest score. This is so for labels
±1 under a linear head, and for two classes, whose cross-entropy is the logistic loss of the difference of both heads
(:func:`as_margins`). Otherwise a mixture can be better than each token, and attention keeps a set.

The cross-entropy of C ≥ 3 classes is an increasing function of F(a) = log Σ_{c ≠ y} exp Σ_t a_t (v_c − v_y)'x_t, which
is convex in the attention a of a query. Attention reaches every point of the simplex where logits of any ratio are
possible, so that what is kept is the support of the minimum (:func:`least_attention`). Training may drop one of these
tokens for good, as it may select a token that is not optimal; then the rest of them is kept (:func:`kept_by_classes`).
Under other losses and heads, the sets are those of the run.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attsvm._utils.linear_algebra import softmax
from attsvm._utils.shapes import Bool, Float
from attsvm.losses import CrossEntropy
from attsvm.measures import attention_of, token_logits
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.svm import Solution, finite_part, solve_svm
from attsvm.theory.conditions import Hypothesis, at_most, worst_case
from attsvm.theory.hypotheses import separable
from attsvm.theory.standing import EUCLIDEAN, rank_for
from attsvm.theory.trained import TrainedPart
from attsvm.training import Run

KEPT = 1e-3
"""Where no minimum is known, the tokens whose probability exceeds this are kept; and what a dropped one may have."""
CERTIFIED = 1e-6
"""The Frank-Wolfe gap of a minimum, over the largest |(v_c − v_y)'x_t|; and the error of logits of the finite part."""
_CONVERGED = 1e-12  # the Frank-Wolfe gap below which rounding is left
_MOST_STEPS = 100  # far more than an interior-point method takes; the gap shows where they are not enough
_MOST_NUMBERS = 1 << 22  # of the matrices of queries that are solved together


class Kept(NamedTuple):
    """The kept sets, their Att-SVM, the finite part of the weights, what was trained, and what is assumed."""

    selected: Bool[np.ndarray, "*queries T"]
    solution: Solution
    finite: np.ndarray | None
    model: str
    hypotheses: list[Hypothesis]


class LeastAttention(NamedTuple):
    """The attention of least cross-entropy of each query, its support, the slack of each token, and the gap."""

    attention: Float[np.ndarray, "N T"]
    kept: Bool[np.ndarray, "N T"]
    slack: Float[np.ndarray, "N T"]  # ∂F/∂a_t minus its least entry, over the largest |(v_c − v_y)'x_t|
    gap: Float[np.ndarray, " N"]  # Σ a_t slack_t bounds F(a) − min F


def as_margins(problem: Problem, run: Run) -> tuple[Problem, Run]:
    """A problem of two classes and its run with the cross-entropy as those of labels ±1; others as they are."""
    if problem.num_classes != 2 or run.head != "linear" or not _has_cross_entropy(run):
        return problem, run

    def difference(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: x[..., 1, :] - x[..., 0, :] if name == "v" else x for name, x in arrays.items()}

    binary = problem.binary
    same = run.data_hash == problem.data_hash
    return binary, replace(
        run,
        parameters=difference(run.parameters),
        history=difference(run.history),
        loss_name="logistic",
        live_loss=None,
        data_hash=binary.data_hash if same else run.data_hash,
    )


def _has_cross_entropy(run: Run) -> bool:
    return run.loss_name == "cross_entropy" or isinstance(run.live_loss, CrossEntropy)


def several_tokens(problem: Problem, run: Run, part: TrainedPart, used: Norm, decreasing: Hypothesis) -> Kept | None:
    """The sets that a run keeps, and their Att-SVM; None if the loss decreases in the score of one token.

    ``decreasing``: whether the loss decreases over the scores of the tokens. A custom loss counts as decreasing unless
    samples refute it.
    """
    linear = run.head == "linear"
    if linear and problem.num_classes is None and decreasing.holds is not False:
        return None
    convex = linear and problem.num_classes is not None and problem.num_classes > 2 and _has_cross_entropy(run)
    if convex and not part.trains_head and problem.num_heads is None:
        return kept_by_classes(problem, run, part, used)
    kept = problem.canonical.allowed & (problem.copies.total(attention_of(problem, run.weights)) > KEPT)
    selected = kept if problem.has_query_axis else kept[..., 0, :]
    solution = solve_svm(part.problem, selected, norm=used, rank=rank_for(run, used))
    model = "nonlinear head" if not linear else "several tokens" if problem.num_classes is None else "classes"
    model = f"trained {model}" if part.trains_head else model
    # the loss of a linear head need not decrease here
    rows = [*([] if linear else [decreasing]), separable(solution), _drops(problem, selected)]
    attention = attention_of(problem, run.weights)
    finite = finite_part(part.problem, attention if problem.has_query_axis else attention[..., 0, :], selected).weights
    return Kept(selected, solution, _finite(part, finite, used), model, rows)


def _finite(part: TrainedPart, weights: np.ndarray, used: Norm) -> np.ndarray | None:
    """The finite part of least ℓ2 norm, for this norm."""
    return part.whole(weights) if used == EUCLIDEAN else None


def _drops(problem: Problem, selected: np.ndarray) -> Hypothesis:
    """State that there is something to separate; else the weights stay finite."""
    allowed = problem.canonical.allowed if problem.has_query_axis else problem.canonical.allowed[..., 0, :]
    axes = tuple(range(len(problem.batch_shape) - allowed.ndim, 0))
    dropped = np.sum(allowed & ~selected, axis=axes)
    return worst_case("drops", "attention drops some tokens", dropped > 0, dropped, "tokens")


def kept_by_classes(problem: Problem, run: Run, part: TrainedPart, used: Norm) -> Kept:
    """Find what a run with the cross-entropy keeps under a fixed linear head, in its trained parameters ``part``.

    Candidates are the supports of the minima over the tokens of largest logits of each query, from all tokens down to
    one. Far along a run the kept tokens have the ratios of the minimum, and all others vanish. So the candidate is
    taken whose least a_t/a*_t of a kept token exceeds the largest a_t of a dropped one by the largest factor.
    """
    assert problem.head is not None
    assert problem.labels is not None
    batch, (n, Q, T) = run.batch_shape, problem.canonical.allowed.shape[-3:]
    active = np.broadcast_to(problem.canonical.active, (*batch, n, Q))
    # tokens with equal keys are one, of their mean value and total attention
    copies = problem.copies
    allowed = np.broadcast_to(copies.distinct, (*batch, n, Q, T))[active]
    scores = problem.tokens @ np.swapaxes(problem.head, -1, -2)[..., None, :, :]
    scores = copies.mean(np.broadcast_to(scores[..., None, :, :], (*batch, n, Q, *scores.shape[-2:])), 1)[active]
    labels = problem.labels if problem.has_query_axis else problem.labels[..., None]
    wrong = np.arange(problem.head.shape[-2]) != np.broadcast_to(labels, active.shape)[active][:, None]
    own = scores[~np.broadcast_to(wrong[:, None], scores.shape)].reshape(*scores.shape[:2], 1)
    gaps = np.swapaxes(scores - own, 1, 2)[wrong].reshape(len(scores), -1, T)
    logits = token_logits(problem, run.weights) + np.log(copies.number)
    logits = np.where(copies.distinct, logits, -np.inf)[active]
    logs = logits - logits.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    least = least_attention(gaps, allowed)
    apart = np.empty(batch)
    trial = np.broadcast_to(np.arange(apart.size).reshape(*batch, 1, 1), active.shape)[active]
    for index, rows in enumerate(np.split(np.arange(len(trial)), np.flatnonzero(np.diff(trial)) + 1)):
        apart.flat[index] = _choose(least, rows, gaps, allowed, logs)
    shape = (*active.shape, T)

    def spread(of_rows: np.ndarray) -> np.ndarray:
        whole = np.zeros(shape, of_rows.dtype)
        whole[active] = of_rows
        whole = copies.of_first(whole)
        return whole if problem.has_query_axis else whole[..., 0, :]

    selected = spread(least.kept)
    of_each = np.broadcast_to(copies.number, (*batch, n, Q, T))[active]
    attention = spread(least.attention / of_each)
    solution = solve_svm(part.problem, selected, norm=used, rank=rank_for(run, used))
    better = solution.support & spread(~least.kept & (least.slack <= 0))
    finite = finite_part(part.problem, attention, selected)
    gap = np.zeros(active.shape)
    gap[active] = least.gap
    axes = tuple(range(len(batch), selected.ndim))
    minimum, residual = "the attention of least loss was found for each query", finite.residual
    hypotheses = [
        separable(solution),
        _drops(problem, selected),
        at_most("minimum", minimum, gap, CERTIFIED, "relative Frank-Wolfe gap"),
        at_most("attainable", "weights exist that give the kept tokens this attention", residual, CERTIFIED, "logits"),
        worst_case("kept_apart", "the logits of kept tokens are larger than those of the others", apart > 0, apart),
        at_most(
            "locally_optimal", "the selection is locally optimal", better.sum(axis=axes), 0, "better support tokens"
        ),
    ]
    return Kept(selected, solution, _finite(part, finite.weights, used), "classes", hypotheses)


def _choose(least: LeastAttention, rows: np.ndarray, gaps: np.ndarray, allowed: np.ndarray, logs: np.ndarray) -> float:
    """Replace the minima of the queries ``rows`` by those that a run keeps, and return by how much these stand apart.

    ``logs``: the logarithms of the attention of the run.
    """
    one = LeastAttention(*(x[rows].copy() for x in least))
    logs, remaining, best = logs[rows], allowed[rows], -np.inf
    while True:
        ratio = logs[one.kept] - np.log(one.attention[one.kept])
        others = allowed[rows] & ~one.kept
        apart = ratio.min() - (logs[others].max() if others.any() else np.log(KEPT))
        if apart > best:
            best = apart
            for whole, part in zip(least, one, strict=True):
                whole[rows] = part
        several = one.kept & (one.kept.sum(axis=1, keepdims=True) > 1)
        if not several.any():
            return float(best)
        # next the query of the kept token with least attention loses this token and those below it
        query, token = np.unravel_index(np.argmin(np.where(several, logs, np.inf)), logs.shape)
        remaining[query] &= logs[query] > logs[query, token]
        if not remaining[query].any():  # all of them have the same attention
            return float(best)
        at = rows[query : query + 1]
        new = least_attention(gaps[at], remaining[query : query + 1], allowed[at])
        for whole, part in zip(one, new, strict=True):
            whole[query] = part[0]


def least_attention(
    gaps: Float[np.ndarray, "N C T"], among: np.ndarray, allowed: np.ndarray | None = None
) -> LeastAttention:
    """Minimise F(a) = log Σ_c exp Σ_t a_t gaps_ct over the simplex of each query, by a primal-dual interior point.

    ``gaps``: (v_c − v_y)'x_t of the wrong classes c. ``among``: the tokens of the simplex; slacks and support are those
    of the ``allowed`` ones beside them, too.
    """
    chunk = max(1, _MOST_NUMBERS // (gaps.shape[2] * max(gaps.shape[1:])))
    allowed = among if allowed is None else allowed
    parts = [
        _least(gaps[i : i + chunk], among[i : i + chunk], allowed[i : i + chunk]) for i in range(0, len(gaps), chunk)
    ]
    return LeastAttention(*(np.concatenate(one) for one in zip(*parts, strict=True)))


def _least(gaps: np.ndarray, among: np.ndarray, allowed: np.ndarray) -> LeastAttention:
    gaps = np.where(allowed[:, None], gaps, 0.0)
    size = np.abs(gaps).max(axis=(1, 2))
    size = np.where(size > 0, size, 1.0)[:, None]
    count = among.sum(axis=1)

    def slope(a: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.asarray((softmax((gaps[rows] @ a[..., None])[..., 0])[:, None] @ gaps[rows])[:, 0] / size[rows])

    def slack_of(a: np.ndarray, rows: np.ndarray) -> np.ndarray:
        g = slope(a, rows)
        return np.asarray(g - np.min(g, axis=1, keepdims=True, where=among[rows], initial=np.inf))

    # F(a) = max_p p'Da + H(p) over the simplex of the classes: conditions D'p = level + s, a s = 0, log p = Da − const
    a, s = among / count[:, None], np.ones(among.shape)
    p, level = np.full(gaps.shape[:2], 1 / gaps.shape[1]), np.zeros((len(gaps), 1))
    live = np.arange(len(gaps))
    for _ in range(_MOST_STEPS):
        live = live[np.sum(a[live] * slack_of(a[live], live), axis=1) > _CONVERGED]
        if not live.size:
            break
        on, D = among[live], gaps[live] * among[live][:, None]
        safe, mu = np.where(on, a[live], 1.0), 0.1 * np.sum(a[live] * s[live], axis=1) / count[live]
        # Newton's equations of these conditions, with a s = μ, a tenth of its mean
        lacking = (D @ a[live][..., None])[..., 0] - np.log(p[live])
        lacking -= np.sum(p[live] * lacking, axis=1, keepdims=True)
        weighted = p[live][..., None] * D
        g = weighted.sum(axis=1)
        # D'(diag(p) − pp')D over the size, plus diag(s/a), after p and s are eliminated
        matrix = (np.swapaxes(D, 1, 2) @ weighted - g[:, :, None] * g[:, None, :]) / size[live][..., None]
        matrix += np.eye(D.shape[2]) * np.where(on, s[live] / safe, 1.0)[:, None, :]
        aim = level[live] - (g + (lacking[:, None] @ weighted)[:, 0]) / size[live] + mu[:, None] / safe
        try:
            x = np.linalg.solve(matrix, np.stack([np.where(on, aim, 0.0), on.astype(np.float64)], axis=-1))
        except np.linalg.LinAlgError:  # the gap shows how far it came
            break
        # the change of the level, by which Σ da = 0
        rise = -x[..., 0].sum(axis=1, keepdims=True) / x[..., 1].sum(axis=1, keepdims=True)
        da = x[..., 0] + rise * x[..., 1]
        # s da + a ds = μ − a s
        ds = np.where(on, (mu[:, None] - s[live] * da) / safe - s[live], 0.0)
        # of log p; the change of a share is kept positive by p(1 + δ) above and p/(1 − δ) below
        dp = (D @ da[..., None])[..., 0] + lacking
        dp -= np.sum(p[live] * dp, axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = [np.where(d < 0, -x / d, np.inf).min(axis=1) for x, d in ((a[live], da), (s[live], ds))]
        # 99 % of the way to the border of a ≥ 0 and s ≥ 0
        t = np.minimum(1.0, 0.99 * np.minimum(*reach))[:, None]
        a[live], s[live], level[live] = a[live] + t * da, s[live] + t * ds, level[live] + t * rise
        shares = np.maximum(p[live] * np.where(dp > 0, 1 + t * dp, 1 / (1 + t * np.abs(dp))), 1e-300)
        p[live] = shares / shares.sum(axis=1, keepdims=True)
    everything = np.arange(len(gaps))
    # a token is kept where its share exceeds its slack: at the end one of both vanishes
    kept = among & (a > slack_of(a, everything))
    a = np.where(kept, a, 0.0)
    a /= a.sum(axis=1, keepdims=True)
    slack = slack_of(a, everything)
    return LeastAttention(a, kept, slack, np.sum(a * slack, axis=1))
