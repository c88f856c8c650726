"""Training problems in which every position of a sequence predicts the next token."""

from typing import Any

import numpy as np

from attsvm._utils.checks import as_floats
from attsvm.errors import ProblemError
from attsvm.next_token.contexts import padded, parse_sequences
from attsvm.problem import Problem


def causal_problem(sequences: Any, vocabulary: Any) -> Problem:
    """Make a problem for ``train(..., loss="token")`` in which every position predicts the next token.

    Each position is a query that attends to itself and to the positions before it. The loss is that of
    ``attsvm.token_graph(sequences).training_problem(vocabulary)``, which has one sequence for each position.

    Parameters
    ----------
    sequences : int array, shape (n, T), or n lists of token numbers
        Of any lengths.
    vocabulary : array, shape (K, d)
        The vector of each token.

    Returns
    -------
    Problem
        With T − 1 queries for each sequence. Queries whose tokens do not contain the next token are padded. Sequences
        without other queries are left out.

    Raises
    ------
    ProblemError
        If the sequences are not token numbers below K, the vocabulary is not finite or not of this shape, or no
        position contains its next token among its own and earlier ones.

    See Also
    --------
    attsvm.token_graph, attsvm.TokenGraph.training_problem

    References
    ----------
    Li, Huang, Ildiz, Rawat and Oymak (2024), *Mechanics of Next Token Prediction with Self-Attention*, AISTATS, whose
    contexts have one query, that of the last token.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> problem = attsvm.next_token.causal_problem([[0, 1, 0, 2, 1]], np.eye(3))
    >>> problem.query_mask.tolist()
    [[False, True, False, True]]
    >>> attsvm.train(problem, loss="token", steps=100).status
    <Status.FINISHED: 'finished'>
    """
    ids, offsets = parse_sequences(sequences)
    vectors = as_floats("vocabulary", vocabulary)
    if vectors.ndim != 2 or len(vectors) <= ids.max():
        raise ProblemError(f"vocabulary: expected shape (K, d) with K > {ids.max()}, got {vectors.shape}")
    lengths, rows = np.diff(offsets), padded(ids, offsets)
    T = rows.shape[1] - 1
    earlier = np.tril(np.ones((T, T), bool))
    has_label = (earlier & (rows[:, 1:, None] == rows[:, None, :-1])).any(axis=-1)
    active = has_label & (np.arange(T) < lengths[:, None] - 1)
    some = active.any(axis=1)
    if not some.any():
        raise ProblemError("sequences: expected a position whose next token is among its tokens, got none")
    rows, active = rows[some], active[some]
    return Problem(
        np.eye(len(vectors))[rows[:, :-1]],
        labels=rows[:, 1:],
        queries=vectors[rows[:, :-1]],
        head=np.eye(len(vectors)),
        keys=vectors[rows[:, :-1]],
        mask=np.broadcast_to(earlier, (len(rows), T, T)),
        query_mask=active,
    )
