"""The finite part of trained weights: the least loss over weights that only move tokens of one component."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import scipy

from attsvm._utils.shapes import Float, Int
from attsvm.next_token.contexts import Contexts, equal_rows
from attsvm.results import Result, Status, per_trial

MOST_STEPS = 200

SMALLEST = 1e-26
"""A Newton step whose expected decrease of the loss is at most this, relative to the share of contexts, is the last."""

DEPENDENT = 1e-12
"""Unit rows count as consequences of others if less than this is left of them."""


Look = tuple[float, np.ndarray, scipy.sparse.csr_array]
"""The loss, its gradient in the scores of the nodes, and the shares of the nodes in each group."""


class Groups(NamedTuple):
    """Contexts restricted to the component of their label, equal ones counted together."""

    numbers: scipy.sparse.csr_array  # shape (G, M), how often each of the M nodes occurs in a context
    label: Int[np.ndarray, " G"]  # the node of the label
    weight: Float[np.ndarray, " G"]  # the share of such contexts

    @classmethod
    def of(cls, contexts: Contexts, node_of: Callable[..., np.ndarray], component: Int[np.ndarray, " M"]) -> "Groups":
        """Keep the contexts that contain their label; contexts whose component has one token left are left out."""
        owner, last = contexts.owner, contexts.last
        node, label = node_of(last[owner], contexts.ids), node_of(last, contexts.labels)
        own = (label[owner] >= 0) & (node >= 0)
        own[own] = component[node[own]] == component[label[owner[own]]]
        shape = len(label), len(component)
        numbers = scipy.sparse.coo_array((np.ones(own.sum()), (owner[own], node[own])), shape=shape).tocsr()
        numbers.sum_duplicates()
        numbers.sort_indices()
        open_ones = np.diff(numbers.indptr) > 1
        numbers, label = numbers[open_ones], label[open_ones]
        first, counts = equal_rows(numbers.indices, numbers.data, numbers.indptr[:-1], label)
        return cls(numbers[first], label[first], counts / max(len(contexts.labels), 1))


@dataclass(frozen=True, eq=False, repr=False)
class FiniteMinimiser(Result):
    """The least loss over S_cyc, on contexts restricted to the component of their label.

    Attributes
    ----------
    weights : ndarray, shape (d, d)
        W_fin: the part of trained weights that stays finite.
    loss : float
        The mean of −log of the attention on the label's tokens, over all contexts that contain their label: the
        infimum of the loss, because attention on lower components vanishes.
    gradient_norm : float
        Of the gradient at ``weights``.
    steps : int
        Newton steps.
    status : Status
        ``converged``, or ``finished`` if a Newton step would still lower the loss by more than rounding.
    """

    kind: ClassVar[str] = "finite minimiser"

    weights: np.ndarray = per_trial()
    loss: float = per_trial()
    gradient_norm: float = per_trial()
    steps: int = per_trial()


def least_loss(
    groups: Groups, pairs: Int[np.ndarray, "P 2"], keys: Float[np.ndarray, "M d_k"], queries: Float[np.ndarray, "M d_q"]
) -> FiniteMinimiser:
    """Minimise Σ weight · −log(attention on the label) by Newton's method.

    The unknowns are scores of tokens relative to the first token of their component, so the result does not depend on
    the lengths of the vectors. Where their rows (x_i − x_j) x_k' depend on each other, some scores follow from others.

    ``pairs``: the first node of each component, with each of its other nodes. ``keys``, ``queries``: the vectors of
    each node's token, and of its last token.
    """
    M, shape = len(keys), (keys.shape[1], queries.shape[1])
    first, other = pairs.T
    rows = outer_rows(keys[other] - keys[first], queries[other])
    lengths = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(lengths > 0, lengths, 1.0)[:, None]
    basis, triangle, order = scipy.linalg.qr(unit.T, mode="economic", pivoting=True)
    rank = int((np.abs(np.diag(triangle)) > DEPENDENT).sum())
    chosen, rest = order[:rank], order[rank:]
    triangle, follows = triangle[:rank, :rank], triangle[:rank, rank:]
    # the scores of all nodes, from those of the chosen ones
    spread = np.zeros((M, rank))
    spread[other[chosen], np.arange(rank)] = 1.0
    combination = scipy.linalg.solve_triangular(triangle, follows)
    spread[other[rest]] = lengths[rest, None] * combination.T / lengths[chosen]

    scores = np.zeros(rank)
    total, step, status = float(groups.weight.sum()), 0, Status.FINISHED
    loss, slope, share = _look(groups, spread @ scores)
    while step < MOST_STEPS:
        mean = share.T @ groups.weight
        curvature = spread.T @ (mean[:, None] * spread) - _square(share, groups.weight, spread)
        gradient = spread.T @ slope
        change = -scipy.linalg.lstsq(curvature, gradient)[0] if rank else gradient
        gain = -float(gradient @ change)
        if gain <= SMALLEST * total:
            status = Status.CONVERGED
            break
        moved = _first_lower(lambda point: _look(groups, spread @ point), scores, change, loss, -gain)
        if moved is None:
            # the loss has no digits left: the last steps have to shorten the gradient
            moved = 1.0, _look(groups, spread @ (scores + change))
            if not np.linalg.norm(spread.T @ moved[1][1]) < np.linalg.norm(gradient):
                break
        part, (loss, slope, share) = moved
        scores, step = scores + part * change, step + 1
    # the least weights with these scores
    weights = basis[:, :rank] @ scipy.linalg.solve_triangular(triangle, scores / lengths[chosen], trans="T")
    gradient = (keys * slope[:, None]).T @ queries
    return FiniteMinimiser(status, weights.reshape(shape), loss, float(np.linalg.norm(gradient)), step)


def outer_rows(differences: Float[np.ndarray, "P d_k"], queries: Float[np.ndarray, "P d_q"]) -> np.ndarray:
    """The rows (x_i − x_j) x_k' of constraints on W, each as one axis of d_k · d_q entries."""
    products = differences[:, :, None] * queries[:, None]
    return np.asarray(products.reshape(len(queries), differences.shape[1] * queries.shape[1]))


def _square(share: scipy.sparse.csr_array, weight: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The part of the curvature that comes from the product of shares."""
    # nodes by nodes first: groups by unknowns would be large for many contexts
    weighted = scipy.sparse.dia_array((weight[None], [0]), shape=(len(weight),) * 2) @ share
    return np.asarray(spread.T @ ((share.T @ weighted) @ spread))


def _look(groups: Groups, logits: Float[np.ndarray, " M"]) -> Look:
    rows, starts, lengths = groups.numbers.indices, groups.numbers.indptr[:-1], np.diff(groups.numbers.indptr)
    if not len(starts):
        return 0.0, np.zeros(len(logits)), groups.numbers
    within = logits[rows] + np.log(groups.numbers.data)
    top = np.maximum.reduceat(within, starts)
    shares = np.exp(within - np.repeat(top, lengths))
    total = np.add.reduceat(shares, starts)
    # the copies of the label count together, as all copies of a token do
    own = within[rows == np.repeat(groups.label, lengths)]
    loss = float(groups.weight @ (top + np.log(total) - own))
    share = scipy.sparse.csr_array(
        (shares / np.repeat(total, lengths), rows, groups.numbers.indptr), shape=groups.numbers.shape
    )
    slope = share.T @ groups.weight - np.bincount(groups.label, groups.weight, minlength=len(logits))
    return loss, slope, share


def _first_lower(
    look: Callable[[np.ndarray], Look], weights: np.ndarray, change: np.ndarray, loss: float, slope: float
) -> tuple[float, Look] | None:
    """The first of the parts 1, 1/2, 1/4, … of a step at which the loss is lower as Armijo's rule asks."""
    for part in 0.5 ** np.arange(40.0):
        found = look(weights + part * change)
        if found[0] < loss + 1e-4 * part * slope:
            return float(part), found
    return None
