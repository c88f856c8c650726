"""The share of right tokens of Att-SVMs on sequences that they were not solved for."""

from collections.abc import Iterator, Sequence

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.estimator import AttentionClassifier
from attsvm.measures import token_logits
from attsvm.norms import Norm
from attsvm.problem import Problem, stack_problems, take_sequences
from attsvm.results import Status
from attsvm.selection import selected_tokens
from attsvm.svm import solve_svm

TOLERANCE = 1e-4
"""Duality gap of the solves: the tokens of largest logit do not depend on further digits."""

NUMBERS_AT_ONCE = 1 << 24
"""Coordinates of tokens, 128 MiB, up to which the folds of a norm are solved together."""


def right_queries(
    problem: Problem, sets: Bool[np.ndarray, "n Q T"], norms: Sequence[Norm], folds: Sequence[np.ndarray]
) -> tuple[Float[np.ndarray, "N n Q"], Bool[np.ndarray, " n"]]:
    """For each norm and query, whether the Att-SVM of the other folds gives a token of its set the largest logit.

    Also the sequences of folds whose other sequences have no Att-SVM. There, the soft margin of the Frobenius norm
    counts for every norm.
    """
    right = np.zeros((len(norms), *sets.shape[:2]))
    soft = np.zeros(len(sets), dtype=bool)
    for group in _of_equal_size(folds, problem.tokens.size):
        rest = [np.setdiff1d(np.arange(len(sets)), fold) for fold in group]
        training = stack_problems(take_sequences(problem, rows) for rows in rest)
        kept = np.stack([sets[rows] for rows in rest])
        kept = kept if problem.has_query_axis else kept[:, :, 0]
        for i, norm in enumerate(norms):
            solution = solve_svm(training, kept, norm=norm, tol=TOLERANCE)
            # whether weights exist does not depend on the norm, so the answer is the same for each of them
            without = np.asarray(solution.status) == Status.INFEASIBLE
            weights = np.array(solution.direction)
            if without.any():
                weights[without] = _soft_margin(training, kept, without)
            for fold, found, is_soft in zip(group, weights, without, strict=True):
                right[i, fold] = _right(take_sequences(problem, fold), sets[fold], found)
                soft[fold] = is_soft
    return right, soft


def accuracies(
    problem: Problem, norms: Sequence[Norm], folds: Sequence[np.ndarray], seed: int
) -> Float[np.ndarray, "N n 1"]:
    """For each norm and sequence, whether a classifier that is trained on the other folds classifies it rightly.

    Raises ProblemError if the problem has no labels, or has queries or keys, or if all sequences of the other folds
    have one label.
    """
    one_array = not problem.has_queries and problem.keys is None
    if not one_array or problem.labels is None:
        raise ProblemError(
            "selected: expected the tokens to select, because they are known only for problems with labels and "
            "without queries and keys"
        )
    labels, right = problem.labels, np.zeros((len(norms), len(problem.labels), 1))
    for i, norm in enumerate(norms):
        for fold in folds:
            rest = np.setdiff1d(np.arange(len(labels)), fold)
            if len(np.unique(labels[rest])) < 2:
                raise ProblemError(
                    "labels: expected several labels outside of each fold, got only one; use more sequences"
                )
            classifier = AttentionClassifier(norm=norm.name, scale="common", random_state=seed, ensemble=False)
            classifier.fit(_rows(problem, rest), labels[rest])
            said = classifier.predict(_rows(problem, fold))
            right[i, fold, 0] = said == labels[fold]
    return right


def _rows(problem: Problem, rows: np.ndarray) -> Sequences:
    return Sequences.from_padded(problem.tokens[rows], None if problem.mask is None else problem.mask[rows])


def _of_equal_size(folds: Sequence[np.ndarray], numbers: int) -> Iterator[list[np.ndarray]]:
    """Folds of the same number of sequences, as many as may be solved together."""
    most = max(1, NUMBERS_AT_ONCE // numbers)
    for size in sorted({len(fold) for fold in folds}):
        equal = [fold for fold in folds if len(fold) == size]
        yield from (equal[at : at + most] for at in range(0, len(equal), most))


def _soft_margin(training: Problem, kept: np.ndarray, without: Bool[np.ndarray, " folds"]) -> np.ndarray:
    if ((kept & training.copies.distinct.reshape(kept.shape))[without].sum(axis=-1) > 1).any():
        raise ProblemError(
            "selected: no weights keep these sets of tokens outside of some fold, and soft margins work only for "
            "single tokens"
        )
    return np.asarray(solve_svm(training[without], kept[without], slack=1.0, tol=TOLERANCE).direction)


def _right(problem: Problem, sets: Bool[np.ndarray, "n Q T"], weights: np.ndarray) -> Bool[np.ndarray, "n Q"]:
    chosen = selected_tokens(token_logits(problem, weights), problem.canonical.allowed)
    return np.asarray(np.take_along_axis(sets, np.maximum(chosen, 0)[..., None], axis=-1)[..., 0])
