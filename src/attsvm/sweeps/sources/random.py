"""Random problems, distributed as those of :func:`attsvm.datasets.random_problem`."""

from collections.abc import Sequence

import numpy as np

from attsvm._utils.checks import check_flag, check_integer
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.sweeps.format import Drawn


def draw(
    generators: Sequence[np.random.Generator],
    *,
    num_sequences: int = 6,
    num_tokens: int = 8,
    dim: int = 10,
    prompt: bool = False,
    self_attention: bool = False,
    pad_to: int | Sequence[int] = (),
) -> Problem | Drawn:
    """Draw Gaussian heads, tokens and queries, scaled to unit norm, and labels ±1 with equal probability.

    ``generators``: one for each trial. ``num_sequences``, ``num_tokens``, ``dim``: n, T and d. ``prompt``: leave out
    the queries, for prompt attention. ``self_attention``: the query of a sequence is its first token. ``pad_to``: the
    problem is filled up with zeros to the smallest of these dimensions that is not below ``dim``. Cells that are filled
    up to one dimension share their compiled programs. Tokens and initial weights are those of ``dim`` dimensions, and
    so is the training up to rounding.
    """
    n, T, d = (
        check_integer(name, size, 1)
        for name, size in (("num_sequences", num_sequences), ("num_tokens", num_tokens), ("dim", dim))
    )
    if check_flag("self_attention", self_attention) and check_flag("prompt", prompt):
        raise ProblemError("self_attention: expected False for a prompt, which has no queries, got True")
    ends = np.cumsum([n, d, n * T * d, n * d])
    # one call for each trial, because drawing few numbers takes less time than calling
    labels, head, tokens, queries = np.split(
        np.stack([generator.standard_normal(ends[-1]) for generator in generators]), ends[:-1], axis=1
    )
    tokens = _unit(tokens.reshape(-1, n, T, d))
    problem = Problem(
        tokens,
        labels=np.where(labels >= 0, 1.0, -1.0),
        head=_unit(head),
        queries=None if prompt else tokens[..., 0, :] if self_attention else _unit(queries.reshape(-1, n, d)),
    )
    sizes = [check_integer("pad_to", size, 1) for size in ([pad_to] if isinstance(pad_to, int) else pad_to)]
    space = min((size for size in sizes if size >= d), default=d)
    return problem if space == d else Drawn(padded(problem, space), unpadded=problem)


def padded(problem: Problem, dim: int) -> Problem:
    """A problem in more dimensions, whose further coordinates are zero."""

    def filled(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, dim - problem.dim)])

    queries = None if problem.queries is None else filled(problem.queries)
    head = None if problem.head is None else filled(problem.head)
    return Problem(filled(problem.tokens), labels=problem.labels, queries=queries, head=head)


def _unit(vectors: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled
