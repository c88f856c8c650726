"""The tokens that each layer of a trained stack sees and selects, and which positions lie on the selected path."""

from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.measures import attention_of, token_logits
from attsvm.problem import Problem
from attsvm.stack.layout import StackLayout
from attsvm.stack.run import StackRun

EQUAL = 1e-9
"""Tokens whose difference is at most this, relative to the largest entry of their sequence, count as equal."""

LARGEST_LOG_SCALE = 230.0
"""Weights that are larger than exp of this are multiplied by it: every softmax is saturated."""


class Layer(NamedTuple):
    """One layer at the end of a run.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    problem : Problem
        The tokens that the layer sees. The positions are its queries, except in the last layer.
    weights : ndarray, shape (*batch, d, d_q)
    selected : bool ndarray, shape (*batch, n[, Q], T)
        The token of largest logit of each query, and all tokens that are equal to it.
    relaxed : bool ndarray, shape (*batch, n, Q), or None
        The positions that are not on the selected path, which need only a margin of 0; None for the last layer.
    probability : ndarray, shape (*batch, n[, Q])
        The softmax probability of the selected tokens; 0 for padded queries.

    See Also
    --------
    attsvm.Stack.layer : Makes one.
    attsvm.solve_svm : Takes these fields.

    Examples
    --------
    >>> import attsvm
    >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
    >>> layer = stack.layer(stack.train(steps=2000), 0)
    >>> layer.problem
    Problem(2 sequences × 3 tokens, d = 6; 3 queries per sequence, d_q = 6)
    >>> attsvm.solve_svm(layer.problem, layer.selected, relaxed=layer.relaxed).status.value
    'optimal'
    """

    problem: Problem
    weights: np.ndarray
    selected: Bool[np.ndarray, "*queries T"]
    relaxed: Bool[np.ndarray, "*batch n Q"] | None
    probability: Float[np.ndarray, "*queries"]


def layers_of(stack: StackLayout, run: StackRun) -> tuple[list[Layer], list[Bool[np.ndarray, "*batch n T"]]]:
    """All layers at the end of a run, and the positions on the path among the tokens of each."""
    found: list[tuple[Problem, np.ndarray, np.ndarray, np.ndarray]] = []
    heads = stack.problem.heads_shape
    of_batch = run.batch_shape
    tokens = np.broadcast_to(_of_one_head(stack, stack.problem.tokens), of_batch + stack.problem.tokens.shape[-3:])
    for number in range(stack.layers):
        problem = _problem(stack, run, tokens, number)
        weights = _true_weights(run, number)
        attention = attention_of(problem, weights)
        logits = np.where(problem.canonical.allowed, token_logits(problem, weights), -np.inf)
        selected = _with_equal(tokens, logits.argmax(axis=-1), problem, heads)
        probability = np.where(problem.canonical.active, np.sum(attention * selected, axis=-1), 0.0)
        found.append((problem, weights, selected, probability))
        if number < stack.layers - 1:
            tokens = _next_tokens(stack, tokens, attention, number)
    path = _path(stack, [selected for _, _, selected, _ in found], heads)
    layers = []
    for number, (problem, weights, selected, probability) in enumerate(found):
        on_path = None if number == stack.layers - 1 else path[number + 1]
        # the path is that of the model: all attention heads of a layer select for the same positions
        relaxed = None if on_path is None else ~np.broadcast_to(_for_heads(on_path, heads), selected.shape[:-1])
        if not problem.has_query_axis:
            selected, probability = selected[..., 0, :], probability[..., 0]
        layers.append(Layer(problem, weights, selected, relaxed, probability))
    return layers, path


def smallest_margin(layer: Layer) -> np.ndarray:
    """The smallest difference of the logits of selected and other tokens, over the queries on the path; inf if none."""
    problem = layer.problem
    selected = layer.selected if problem.has_query_axis else layer.selected[..., None, :]
    logits = token_logits(problem, layer.weights)
    others = problem.canonical.allowed & ~selected
    on_path = problem.canonical.active if layer.relaxed is None else ~layer.relaxed
    lowest, highest = np.where(selected, logits, np.inf).min(axis=-1), np.where(others, logits, -np.inf).max(axis=-1)
    counted = on_path & others.any(axis=-1)
    return np.asarray(np.where(counted, lowest - np.where(counted, highest, 0.0), np.inf).min(axis=(-2, -1)))


def _problem(stack: StackLayout, run: StackRun, tokens: np.ndarray, number: int) -> Problem:
    given = stack.problem
    mask = None if given.mask is None else np.broadcast_to(_of_one_head(stack, given.mask), tokens.shape[:-1])
    if number == stack.layers - 1:
        assert given.queries is not None
        queries = _of_one_head(stack, given.queries)
        queries = np.broadcast_to(queries, run.batch_shape + queries.shape[len(given.model_shape) :])
        query_mask = given.query_mask
        if query_mask is not None:
            query_mask = np.broadcast_to(_of_one_head(stack, query_mask), queries.shape[:-1])
        return Problem(tokens, queries=queries, mask=mask, query_mask=query_mask, num_heads=given.num_heads)
    T = given.num_tokens
    if not stack.causal:
        return Problem(tokens, queries=tokens, mask=mask, query_mask=mask, num_heads=given.num_heads)
    before = np.tril(np.ones((T, T), bool))
    allowed = np.broadcast_to(before if mask is None else before & mask[..., None, :], (*tokens.shape[:-1], T))
    return Problem(tokens, queries=tokens, mask=allowed, query_mask=mask, num_heads=given.num_heads)


def _true_weights(run: StackRun, number: int) -> np.ndarray:
    weights = run.weights[f"W{number}"]
    scale = np.exp(np.minimum(run.log_scale, LARGEST_LOG_SCALE))
    return np.asarray(weights * np.reshape(scale, np.shape(scale) + (1,) * (weights.ndim - np.ndim(scale))))


def _with_equal(
    tokens: np.ndarray, winner: np.ndarray, problem: Problem, heads: tuple[int, ...]
) -> Bool[np.ndarray, "*batch n Q T"]:
    """The winner of each query and the tokens that are equal to it."""
    nearest = np.abs(tokens[..., :, None, :] - tokens[..., None, :, :]).max(axis=-1)
    equal = nearest <= EQUAL * np.abs(tokens).max(axis=(-2, -1), keepdims=True)
    equal = np.broadcast_to(_for_heads(equal, heads, 3), (*winner.shape[:-1], *equal.shape[-2:]))
    return np.asarray(np.take_along_axis(equal, winner[..., None], axis=-2) & problem.canonical.allowed)


def _next_tokens(stack: StackLayout, tokens: np.ndarray, attention: np.ndarray, number: int) -> np.ndarray:
    """The tokens of the next layer; those that are equal up to rounding are made the same."""
    heads = stack.problem.heads_shape
    pooled = attention @ _for_heads(tokens, heads, 3)
    if stack.values is not None:
        pooled = pooled @ np.swapaxes(stack.values[..., number, :, :], -1, -2)[..., None, :, :]
    pooled = pooled.sum(axis=-4) if heads else pooled
    found = tokens + pooled if stack.residual else pooled
    nearest = np.abs(found[..., :, None, :] - found[..., None, :, :]).max(axis=-1)
    first = np.argmax(nearest <= EQUAL * np.abs(found).max(axis=(-2, -1), keepdims=True), axis=-1)
    return np.take_along_axis(found, first[..., None], axis=-2)


def _path(
    stack: StackLayout, selected: list[np.ndarray], heads: tuple[int, ...]
) -> list[Bool[np.ndarray, "*batch n T"]]:
    """The tokens of each layer that reach the output, from the last layer to the first."""

    def over_heads(x: np.ndarray) -> np.ndarray:
        return np.asarray(x.any(axis=-3)) if heads else x

    path = [over_heads(np.asarray(selected[-1].any(axis=-2)))]
    for sets in reversed(selected[:-1]):
        above = path[0]
        read = over_heads(np.asarray((sets & _for_heads(above, heads)[..., None]).any(axis=-2)))
        path.insert(0, above | read if stack.residual else read)
    return path


def _for_heads(x: np.ndarray, heads: tuple[int, ...], axes: int = 2) -> np.ndarray:
    """An array with this number of own axes, with an axis of attention heads of length 1 in front of them, if any."""
    return np.expand_dims(x, -axes - 1) if heads else x


def _of_one_head(stack: StackLayout, x: np.ndarray) -> np.ndarray:
    """An array of the problem without the axis of attention heads, which share it."""
    return x[(slice(None),) * len(stack.problem.model_shape) + (0,)] if stack.problem.heads_shape else x
