"""Measures of the heads of a small GPT, from what enters each attention layer and its weights; used by small_gpt.py."""

from typing import Any

import numpy as np

import attsvm
from attsvm._utils.linear_algebra import softmax
from attsvm.norms import JointNorm, MaxOfHeads, Nuclear, Spectral, SumOfHeads
from attsvm.norms.factors import FusedHeads
from small_gpt_training import Size, logits_of

NORMS = ("nuclear", "frobenius", "spectral")

SATURATED = 0.9
"""A query is saturated if its largest probability is above this."""

LEAST_QUERIES = 8
"""Heads with fewer saturated queries are not compared with an Att-SVM."""

FEWEST_TOKENS = 0.25
"""Share of the context that a query may attend to at least, to be among those of the Att-SVM."""

TOL, MAX_STEPS = 1e-4, 2000

JOINT: dict[str, JointNorm] = {
    "nuclear": SumOfHeads(Nuclear()),
    "spectral": MaxOfHeads(Spectral()),
    "fused": FusedHeads(),
}
"""Norms of all heads of a layer together."""

Measures = dict[str, Any]


def effective_rank(weights: np.ndarray) -> float:
    """Exponential of the entropy of the singular values divided by their sum (Roy and Vetterli, 2007)."""
    values = np.linalg.svd(weights, compute_uv=False)
    share = values[values > 0] / values.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def measure(tokens: np.ndarray, weights: np.ndarray, size: Size) -> list[Measures]:
    """The measures of all heads, from tokens (L, n, T, d) and W (L, H, d, d); layer by layer."""
    tokens, weights = tokens.astype(np.float64), weights.astype(np.float64)
    logits = logits_of({"tokens": tokens, "weights": weights})
    return [
        {"layer": layer, "head": head} | measure_head(tokens[layer], weights[layer, head], logits[layer, head], size)
        for layer, head in np.ndindex(weights.shape[:2])
    ]


def measure_together(tokens: np.ndarray, weights: np.ndarray, num_queries: int) -> Measures:
    """Joint margin ratios of the heads of one layer, from tokens (n, T, d) and W (H, d, d).

    The heads select tokens for the same queries, those whose smallest largest probability over the heads is largest.
    The ratio is that of the smallest margin of all heads.
    """
    tokens, weights = tokens.astype(np.float64), weights.astype(np.float64)
    probabilities = softmax_of(logits_of({"tokens": tokens, "weights": weights}))
    first = int(FEWEST_TOKENS * tokens.shape[1])
    least = probabilities[:, :, first:].max(axis=-1).min(axis=0)
    window, place = np.unravel_index(np.argsort(-least, axis=None)[:num_queries], least.shape)
    problem = problem_of(tokens, window, first + place, num_heads=len(weights))
    selected = probabilities[:, window, first + place].argmax(axis=-1)
    values = {name: attsvm.solve_svm(problem, selected, norm, tol=TOL).value for name, norm in JOINT.items()}
    return {
        "least_probability": float(least[window, place].min()),
        "ratios": {
            name: float(attsvm.margin(problem, weights, selected, norm) * values[name]) for name, norm in JOINT.items()
        },
    }


def measure_head(tokens: np.ndarray, weights: np.ndarray, logits: np.ndarray, size: Size) -> Measures:
    """The measures of one head, from tokens (n, T, d), W (d, d) and logits (n, T, T)."""
    probabilities = softmax_of(logits)
    largest = probabilities[:, int(FEWEST_TOKENS * tokens.shape[1]) :].max(axis=-1)
    found: Measures = {
        "effective_rank": effective_rank(weights),
        "largest_logit": float(np.abs(logits).max()),
        "largest_probability": float(np.median(largest)),
        "saturated": float((largest > SATURATED).mean()),
    }
    window, place = saturated_queries(probabilities, size.queries)
    if len(window) >= LEAST_QUERIES:
        problem = problem_of(tokens, window, place)
        found |= ratios(problem, probabilities[window, place].argmax(axis=-1), weights)
    return found | {"queries": len(window)}


def softmax_of(logits: np.ndarray) -> np.ndarray:
    """Causal attention (..., T, T) from logits."""
    return softmax(logits, np.broadcast_to(np.tri(logits.shape[-1], dtype=bool), logits.shape))


def problem_of(
    tokens: np.ndarray, window: np.ndarray, place: np.ndarray, num_heads: int | None = None
) -> attsvm.Problem:
    """The problem of some queries, each with the tokens of its window up to its own."""
    allowed = np.arange(tokens.shape[1]) <= place[:, None]
    return attsvm.Problem(tokens[window], queries=tokens[window, place], mask=allowed, num_heads=num_heads)


def saturated_queries(probabilities: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows and places of saturated queries, at most ``most`` and drawn at random."""
    first = int(FEWEST_TOKENS * probabilities.shape[1])
    window, place = np.nonzero(probabilities[:, first:].max(axis=-1) > SATURATED)
    drawn = np.random.default_rng(0).permutation(len(window))[:most]
    return window[drawn], first + place[drawn]


def ratios(problem: attsvm.Problem, selected: np.ndarray, weights: np.ndarray) -> Measures:
    """Margin ratios of W in each norm, and of the nuclear and the spectral solution in each other's norm."""
    solutions = {norm: attsvm.solve_svm(problem, selected, norm, tol=TOL, max_steps=MAX_STEPS) for norm in NORMS}
    found: Measures = {"statuses": {norm: str(solution.status) for norm, solution in solutions.items()}}
    if any(solution.status == attsvm.Status.INFEASIBLE for solution in solutions.values()):
        return found

    def ratio(of: np.ndarray, norm: str) -> float:
        return float(attsvm.margin(problem, of, selected, norm) * solutions[norm].value)

    return found | {
        "ratios": {norm: ratio(weights, norm) for norm in NORMS},
        "gaps": {norm: float(solution.gap) for norm, solution in solutions.items()},
        "solution_ranks": {norm: effective_rank(solution.direction) for norm, solution in solutions.items()},
        "crossed": {
            "nuclear solution, spectral": ratio(solutions["nuclear"].direction, "spectral"),
            "spectral solution, nuclear": ratio(solutions["spectral"].direction, "nuclear"),
        },
    }
