"""Runs under the sigmoid: each token is kept or dropped by the sign of its logit, and the limit is the SVM of tokens.

Gradient descent on Σ_i ℓ(Σ_t σ(s_it) γ_it) weighs token t of query i by |ℓ'| γ_it σ'(s_it), and σ'(s) ≈ e^−|s|. So the
weights tend to those of least norm with x_it'W z_i ≥ 1 for the kept tokens and ≤ −1 for the others: the Att-SVM of
sequences of two tokens, x_it and 0. A bias of token t is one of x_it, and 0 has none. Tokens of value 0, such as a
sink, do not change the output, and are left out.
"""

from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Int
from attsvm.errors import ProblemError
from attsvm.measures import margin, token_logits
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.results import plain
from attsvm.selection import scores
from attsvm.svm import Solution, solve_svm
from attsvm.theory.conditions import Hypothesis, at_most
from attsvm.theory.hypotheses import separable
from attsvm.theory.nearness import Place, even_slopes, short_start
from attsvm.theory.standing import norm_for
from attsvm.theory.trained import TrainedPart, trained_part
from attsvm.training import Run

SATURATED = 1e-6
"""Attention is saturated if that of each dropped token is at most this, and a sigmoid keeps others within this of 1."""


class TokenSVM(NamedTuple):
    """The SVM of the tokens of a run."""

    problem: Problem  # one sequence (x_it, 0) for each token, and each query of its sequence
    selected: Int[np.ndarray, "*tokens"]  # which of the two the run selects; −1 for tokens that do not count
    solution: Solution
    kept: Bool[np.ndarray, "*queries T"]  # the tokens of positive logit
    support: Bool[np.ndarray, "*queries T"]  # the support tokens


def solve_tokens(part: TrainedPart, run: Run, used: Norm, rank: int | None = None) -> TokenSVM:
    """Solve the SVM of the tokens of a run by the signs of its logits. ``part``: the run in its trained parameters.

    Raises ProblemError if there are several attention heads.
    """
    problem = part.problem
    if problem.num_heads is not None:
        raise ProblemError(
            f"run: expected one attention head under the {run.map} map, whose SVM of tokens is known for one, got "
            f"{problem.num_heads}"
        )
    allowed = _counted(problem)
    weights = part.history[-1]
    # a logit of 0 has no sign: no weights separate its token, and the SVM says so
    kept = allowed & (token_logits(problem, weights) > 0)
    pairs = token_pairs(problem)
    signs = np.where(kept, 0, 1)
    if problem.has_queries:
        signs = np.where(allowed, signs, -1)
    else:
        signs = np.take_along_axis(signs, np.broadcast_to(_stand_ins(problem), signs.shape), axis=-1)
    batch = signs.shape[:-3]
    # sequences (i, t), each with the queries of sequence i
    selected = np.moveaxis(signs, -1, -2).reshape(*batch, -1, signs.shape[-2])
    selected = selected if pairs.has_query_axis else selected[..., 0]
    solution = solve_svm(pairs, selected, norm=used, rank=rank)
    of_pairs = np.asarray(solution.support).any(axis=-1).reshape(*batch, *np.moveaxis(signs, -1, -2).shape[-3:])
    support = np.moveaxis(of_pairs, -1, -2) & allowed
    if not problem.has_query_axis:
        kept, support = kept[..., 0, :], support[..., 0, :]
    return TokenSVM(pairs, selected, solution, kept, support)


def token_pairs(problem: Problem) -> Problem:
    """One sequence (x_it, 0) for each token, with the queries of its sequence; offsets move no direction."""
    keys, queries, biases, _ = problem.terms
    allowed = _counted(problem)
    if not problem.has_queries:
        # a token that does not count is replaced by another one of its sequence: equal constraints change no Att-SVM
        keys = np.take_along_axis(keys, _stand_ins(problem)[..., 0, :, None], axis=-2)
    number = problem.num_tokens
    points = keys.reshape(*keys.shape[:-3], -1, 1, keys.shape[-1])
    tokens = np.concatenate([points, np.zeros_like(points)], axis=-2)
    if not problem.has_queries:
        return Problem(tokens)

    def of_pairs(x: np.ndarray) -> np.ndarray:
        return np.moveaxis(x, -1, -2).reshape(*x.shape[:-3], -1, x.shape[-2])

    index = None
    if biases is not None:
        own = of_pairs(biases)
        index = np.stack([own, np.full_like(own, -1)], axis=-1)
    queries = np.repeat(queries, number, axis=-3)
    return Problem(tokens, queries=queries, query_mask=of_pairs(allowed), bias_index=index)


def _counted(problem: Problem) -> Bool[np.ndarray, "*batch n Q T"]:
    """The tokens that a query may attend to and whose value is not 0."""
    has_value = np.asarray(problem.tokens.any(axis=-1))
    return np.asarray(problem.canonical.allowed & has_value[..., None, :])


def _stand_ins(problem: Problem) -> Int[np.ndarray, "*batch n Q T"]:
    """Each token that counts; for another one the first that does."""
    allowed = _counted(problem)
    return np.where(allowed, np.arange(allowed.shape[-1]), allowed.argmax(axis=-1)[..., None])


def sign_hypotheses(problem: Problem, run: Run, part: TrainedPart, tokens: TokenSVM) -> list[Hypothesis]:
    """State that the tokens are separable by their signs, and each support token has the sign of its score."""
    rows = [separable(tokens.solution)]
    key, statement = "signs_of_scores", "each support token has a logit of the sign of its score"
    linear = run.head == "linear" and problem.num_classes is None and problem.head is not None and not part.trains_head
    rows.append(Hypothesis("linear_head", "the prediction head is linear and fixed, with labels ±1", linear))
    if not linear:
        return [*rows, Hypothesis(key, statement, None)]
    wrong = (_against_score(scores(problem), tokens.kept) & tokens.support).reshape(*run.batch_shape, -1)
    return [*rows, at_most(key, statement, wrong.sum(axis=-1), 0, "other support tokens")]


def place_of_signs(problem: Problem, run: Run, part: TrainedPart, tokens: TokenSVM, norm: Norm) -> Place:
    """By the margin ratio in the SVM of tokens."""
    achieved = np.asarray(margin(tokens.problem, part.history[-1], tokens.selected, norm))
    slopes = Hypothesis("measured_slopes", "the slopes of the loss differ as little as measured", None)
    if run.head == "linear" and problem.num_classes is None and problem.head is not None:
        # once the sigmoids are saturated, the output is the sum of the scores of the kept tokens
        gamma = scores(problem)
        outputs = np.sum(np.where(tokens.kept, np.where(np.isfinite(gamma), gamma, 0.0), 0.0), axis=-1)
        slopes = even_slopes(problem, run, outputs)
    compared = (short_start(run.start, run.history, (run.history["weights"],)), slopes)
    return Place("margin ratio", np.ravel(achieved * np.asarray(tokens.solution.value)), compared)


def kinds_of_signs(problem: Problem, run: Run, norm: str | float | Norm | None) -> tuple[Any, ...]:
    """The kind of the signs, the tokens that violate local optimality, the selection and what is not saturated."""
    part = trained_part(problem, run)
    tokens = solve_tokens(part, run, norm_for(run, norm))
    logits = np.where(_counted(problem), np.abs(token_logits(problem, run.weights)), np.inf)
    # σ(−|s|) is the attention of a dropped token, and what a kept one lacks
    missing = np.exp(-np.logaddexp(0.0, logits)).max(axis=(-3, -2, -1))
    counted = _counted(problem) if problem.has_query_axis else _counted(problem)[..., 0, :]
    other = _against_score(scores(problem), tokens.kept) & counted
    decided = missing <= SATURATED
    own = tuple(range(len(run.batch_shape), other.ndim))
    is_global = ~other.any(axis=own)
    breaking = other & tokens.support
    breaking &= np.expand_dims(decided & ~is_global, own)
    kind = np.select([~decided, is_global, ~breaking.any(axis=own)], ["undecided", "global", "local"], "not_local")
    return kind, breaking, run.selected, plain(missing)


def _against_score(gamma: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The tokens whose logit has not the sign of their score; a score of 0 has none."""
    return np.asarray(np.where(kept, gamma <= 0, gamma >= 0) & np.isfinite(gamma))
