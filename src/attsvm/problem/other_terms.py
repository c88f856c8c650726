"""Methods of :class:`attsvm.Problem` about trained biases of its logits: those of positions, and of a sink."""

from typing import Any, TypeVar

import numpy as np

from attsvm._utils.checks import as_array, check_choice, check_flag, check_integer, weights_of
from attsvm._utils.shapes import Int
from attsvm.errors import ProblemError

P = TypeVar("P")


def with_sink(self: P, *, trained: bool = False) -> P:
    """The problem with a sink: a last token of key 0 and value 0, which every query may attend to.

    Its logit is 0 under all weights, so that the softmax of the other tokens has a 1 in its denominator. A query
    may attend to nothing in this way.

    Parameters
    ----------
    trained : bool
        Give the sink a trained logit, as a last bias. For a prompt it is the last entry of the prompt.

    Returns
    -------
    Problem

    See Also
    --------
    attsvm.Problem.with_position_bias

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> problem.with_sink().num_tokens, problem.with_sink(trained=True).weights_shape
    (5, (6, 6))
    """
    problem: Any = self
    arrays, T = problem.arrays(), problem.num_tokens
    of_prompt = check_flag("trained", trained) and not problem.has_queries
    if of_prompt:  # an entry of the keys that the sink alone has
        keys = arrays.get("keys", arrays["tokens"])
        arrays["keys"] = np.insert(keys, keys.shape[-1], 0.0, axis=-1)
    elif trained:
        arrays.setdefault("bias_index", np.full((problem.num_sequences, T), -1))
    number = problem.num_biases if trained else -1
    for name, last in (("tokens", 0), ("keys", 0), ("mask", True), ("bias_index", number), ("offsets", 0)):
        if name in arrays:
            arrays[name] = np.insert(arrays[name], T, last, axis=-2 if name in ("tokens", "keys") else -1)
    if of_prompt:
        arrays["keys"][..., -1, -1] = 1.0
    return type(self)(**arrays)


def with_position_bias(self: P, kind: str, *, query_positions: Any = None, max_distance: int | None = None) -> P:
    """The problem with trained biases of the positions of tokens, added to the logits.

    Parameters
    ----------
    kind : {"absolute", "relative"}
        "absolute" adds one number for each position t. "relative" adds one for each difference t - q of the
        positions of token and query, the first one for the least difference.
    query_positions : int array, shape (Q,), (n,) or (n, Q), optional
        The positions of queries, for "relative". By default query q has position q, if there is one for each token.
    max_distance : int, optional
        Clip relative positions to ±max_distance, which makes 2 max_distance + 1 biases. By default all differ.

    Returns
    -------
    Problem
        With ``bias_index``. For a prompt, with the positions as further entries of the keys.

    Raises
    ------
    ProblemError
        If the kind is unknown, an argument does not fit it, the problem is one of a prompt for "relative", or it
        has biases already or ends with a sink.

    See Also
    --------
    attsvm.Problem.with_sink : To be called after this method.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0).with_position_bias("absolute")
    >>> solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    >>> W, b = problem.blocks(solution)
    >>> W.shape, b.shape, solution.status
    ((5, 5), (4,), <Status.OPTIMAL: 'optimal'>)
    """
    problem: Any = self
    check_choice("kind", kind, "absolute", "relative")
    if problem.bias_index is not None:
        raise ProblemError("bias_index: expected None, because a token has only one bias; call with_sink after it")
    if not problem.tokens[..., -1, :].any() and problem.canonical.allowed[problem.canonical.active][:, -1].all():
        raise ProblemError(
            "tokens: expected no sink (value 0) in the last place; call with_position_bias first, so that the "
            "sink has no position, or give bias_index"
        )
    arrays, n, T = problem.arrays(), problem.num_sequences, problem.num_tokens
    if kind == "absolute":
        for name, given in (("query_positions", query_positions), ("max_distance", max_distance)):
            if given is not None:
                raise ProblemError(f'{name}: expected None for "absolute", got {given!r}')
        if problem.has_queries:
            return type(self)(**{**arrays, "bias_index": np.broadcast_to(np.arange(T), (n, T))})
        keys = arrays.get("keys", arrays["tokens"])
        features = np.broadcast_to(np.eye(T), (*keys.shape[:-1], T))
        return type(self)(**{**arrays, "keys": np.concatenate([keys, features], axis=-1)})
    positions = _query_positions(problem, query_positions)
    distance = None if max_distance is None else check_integer("max_distance", max_distance, 1)
    index = _distances(positions, T, distance)
    return type(self)(**{**arrays, "bias_index": np.broadcast_to(index, (n, *index.shape[1:]))})


def blocks(self: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """The blocks W and b of weights.

    Parameters
    ----------
    weights : array of shape (..., d_k + m, d_q + 1), Run or Solution

    Returns
    -------
    W : ndarray, shape (..., d_k, d_q)
    b : ndarray, shape (..., m)
        Empty for a problem without biases.

    Raises
    ------
    ProblemError
        If the problem is one of a prompt, or the shape does not fit.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0).with_sink(trained=True)
    >>> W, b = problem.blocks(attsvm.train(problem, steps=100))
    >>> W.shape, b.shape
    ((5, 5), (1,))
    """
    if not self.has_queries:
        raise ProblemError("problem: expected queries, so that the weights are a matrix, got a prompt problem")
    array = weights_of(weights, "weights")
    if array.shape[-2:] != self.weights_shape:
        raise ProblemError(f"weights: expected shape (..., {str(self.weights_shape)[1:-1]}), got {array.shape}")
    W, b = self.terms.split(array)
    return W.copy(), b.copy()


def check_blocks(self: Any, name: str, weights: np.ndarray) -> None:
    """Raise ProblemError if weights are not zero outside of W and b, where no logit depends on them."""
    if self.num_biases and np.count_nonzero(weights) > sum(map(np.count_nonzero, self.terms.split(weights))):
        raise ProblemError(f"{name}: expected zeros outside of the blocks W {self.key_dim, self.query_dim} and b")


def _query_positions(problem: Any, given: Any) -> np.ndarray:
    """The positions of queries, shape (n or 1[, Q])."""
    if not problem.has_queries:
        raise ProblemError('kind: expected "absolute" for a problem without queries, got "relative"')
    own = problem.query_shape[len(problem.batch_shape) :]
    if given is None:
        if own[1:] != (problem.num_tokens,):
            raise ProblemError(
                'query_positions: expected the positions of the queries for "relative", unless there is one query '
                f"for each of the {problem.num_tokens} tokens, got None for queries of shape {own}"
            )
        return np.arange(problem.num_tokens)[None]
    positions = as_array("query_positions", given, "integers", "iu")
    if positions.shape not in (own, own[1:]):
        raise ProblemError(f"query_positions: expected shape {own[1:]} or {own}, got {positions.shape}")
    return positions.astype(np.int64).reshape((-1, *own[1:]))


def _distances(
    positions: Int[np.ndarray, "*queries"], num_tokens: int, max_distance: int | None
) -> Int[np.ndarray, "*queries T"]:
    """The number of the bias of each relative position t − q, clipped to ±max_distance, from the least one on."""
    relative = np.arange(num_tokens) - positions[..., None]
    if max_distance is not None:
        return np.asarray(np.clip(relative, -max_distance, max_distance) + max_distance)
    return np.asarray(relative + positions.max())
