"""Descent with a step of two parts: gradient descent on the cyclic subspace, and normalised descent off it."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attsvm._utils.checks import MOST_STEPS, check_integer, check_number
from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError
from attsvm.next_token.contexts import Contexts, ends, equal_rows
from attsvm.next_token.finite import outer_rows
from attsvm.next_token.graph import TokenGraph
from attsvm.results import Result, Status, per_trial

LARGEST = 2**27
"""The most numbers of the rows of all edges, one gibibyte."""

SMALLEST = 1e-15
"""A gradient in the cyclic subspace of at most this norm is zero up to rounding."""


@dataclass(frozen=True, eq=False, repr=False)
class TwoPartRun(Result):
    """Weights W trained by :func:`attsvm.next_token.two_part_descent`.

    Attributes
    ----------
    status : Status
        ``finished``, or ``stalled`` if no token competes with a component of higher priority: then the weights
        converge and have no direction.
    weights : ndarray, shape (d, d)
        ``cyclic + direction_part``.
    cyclic, direction_part : ndarray, shape (d, d)
        Their projection on the cyclic subspace, and the rest.
    loss : float
        The mean of −log of the attention on the label's tokens.
    cyclic_gradient_norm : float
        Of the gradient in the cyclic subspace.
    steps : int
    """

    kind: ClassVar[str] = "two-part run"

    weights: np.ndarray = per_trial()
    cyclic: np.ndarray = per_trial()
    direction_part: np.ndarray = per_trial()
    loss: float = per_trial()
    cyclic_gradient_norm: float = per_trial()
    steps: int = per_trial()


def two_part_descent(
    graph: TokenGraph,
    vocabulary: Any,
    *,
    steps: int = 20_000,
    learning_rate: float = 0.1,
    cyclic_learning_rate: float | None = None,
) -> TwoPartRun:
    """Train W on next tokens by gradient descent on the cyclic subspace and by normalised descent off it.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    The finite part of the weights needs short steps, and their direction needs long ones. With normalised steps alone
    both stall on graphs with cycles. Here the gradient of the mean loss −log(attention on the label) is divided into
    its projections on S_cyc (:meth:`attsvm.TokenGraph.cyclic_basis`) and on the complement. The terms of tokens that
    are level with the label lie in S_cyc. They are left out of the second part exactly, so it keeps its relative
    accuracy when the attention on lower components underflows.

    Parameters
    ----------
    graph : TokenGraph
        With contexts, not of documents.
    vocabulary : array, shape (K, d)
    steps : int
    learning_rate : float
        The length of the step off S_cyc.
    cyclic_learning_rate : float, optional
        The step of gradient descent on S_cyc; by default 1/L, L a bound of the curvature of the loss there.

    Returns
    -------
    TwoPartRun
        From W = 0.

    Raises
    ------
    ProblemError
        If a number is out of range, the vocabulary does not fit, the graph has no contexts, or edges times d² exceed
        2²⁷.

    See Also
    --------
    attsvm.TokenGraph.finite_minimiser : What the part in S_cyc converges to.
    attsvm.solve_svm : The graph-SVM, the direction of the other part.
    attsvm.train : Trains with ``loss="token"`` by any optimiser.

    References
    ----------
    The loss and the subspace are those of Li, Huang, Ildiz, Rawat and Oymak (2024), *Mechanics of Next Token Prediction
    with Self-Attention*, AISTATS. The step is not from the paper.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> graph = attsvm.token_graph([[0, 1, 2], [1, 0, 2], [0, 1, 2]], [0, 1, 1])
    >>> run = attsvm.next_token.two_part_descent(graph, np.eye(3))
    >>> bool(np.abs(run.cyclic - graph.finite_minimiser(np.eye(3)).weights).max() < 1e-8)
    True
    >>> solution = attsvm.solve_svm(graph.problem(np.eye(3)), graph.selected)
    >>> round(float(attsvm.correlation(run.weights - run.cyclic, solution.direction)), 6)
    1.0
    """
    check_integer("steps", steps, 0, MOST_STEPS)
    check_number("learning_rate", learning_rate, "a number > 0", lambda x: x > 0)
    if cyclic_learning_rate is not None:
        check_number("cyclic_learning_rate", cyclic_learning_rate, "a number > 0", lambda x: x > 0)
    vectors = graph.check_vocabulary(vocabulary)
    contexts = graph.training_contexts()
    d = vectors.shape[1]
    if len(graph.edges) * d * d > LARGEST:
        raise ProblemError(f"vocabulary: expected edges times d² up to {LARGEST:,}, got {len(graph.edges):,} · {d}²")
    terms, tied = _LossTerms.of(graph, contexts), graph.contradictory
    last, label, other = graph.edges.T
    rows = outer_rows(vectors[other] - vectors[label], vectors[last])
    basis = graph.cyclic_basis(vectors).reshape(-1, d * d)
    inside, outside = rows @ basis.T, rows[~tied]
    for _ in range(2):  # once more for the rounding of the first
        outside = outside - (outside @ basis.T) @ basis
    rate = _safe_rate(terms, inside) if cyclic_learning_rate is None else cyclic_learning_rate

    coefficients, off = np.zeros(len(basis)), np.zeros(d * d)
    status, step = Status.FINISHED, 0
    while True:
        logits = inside @ coefficients
        logits[~tied] += outside @ off
        logs, loss = terms.look(logits)
        pull = terms.mean(np.exp(logs)) @ inside
        if step == steps:
            break
        rest = terms.over(logs, ~tied)
        if rest is None:
            status = Status.STALLED
            if np.linalg.norm(pull) <= SMALLEST:
                break
        else:
            push = rest[~tied] @ outside
            size = np.linalg.norm(push)
            if not size > 0:
                status = Status.STALLED
                break
            off = off - (learning_rate / size) * push
        coefficients = coefficients - rate * pull
        step += 1
    cyclic, direction = (coefficients @ basis).reshape(d, d), off.reshape(d, d)
    return TwoPartRun(status, cyclic + direction, cyclic, direction, loss, float(np.linalg.norm(pull)), step)


class _LossTerms(NamedTuple):
    """The tokens of contexts other than their labels; equal contexts are counted together."""

    edge: Int[np.ndarray, " N"]  # the edge from the label to each token
    owner: Int[np.ndarray, " N"]  # the context of each
    start: Int[np.ndarray, " G"]  # the first term of each context
    log_count: Float[np.ndarray, " N"]  # the logarithm of the copies of the token over the copies of the label
    # the share of contexts; those that contain nothing but their label have no loss and are left out
    weight: Float[np.ndarray, " G"]
    num_edges: int

    @classmethod
    def of(cls, graph: TokenGraph, contexts: Contexts) -> "_LossTerms":
        K = graph.num_tokens
        owner, n = contexts.owner, len(contexts.labels)
        is_label = contexts.ids == contexts.labels[owner]
        of_label = np.bincount(owner[is_label], minlength=n)
        # the distinct tokens of each context, with their numbers
        keys, copies = np.unique(owner[~is_label] * K + contexts.ids[~is_label], return_counts=True)
        of, token = np.divmod(keys, K)
        known = (graph.edges[:, 0] * K + graph.edges[:, 1]) * K + graph.edges[:, 2]
        edge = np.searchsorted(known, (contexts.last[of] * K + contexts.labels[of]) * K + token)
        present, begin, lengths = np.unique(of, return_index=True, return_counts=True)
        first, counts = equal_rows(edge, copies, begin, of_label[present])
        group = np.repeat(np.arange(len(first)), lengths[first])
        start = ends(lengths[first])[:-1]
        places = np.arange(len(group)) + (begin[first] - start)[group]
        log_count = np.log(copies[places] / of_label[of[places]])
        return cls(edge[places], group, start, log_count, counts / n, len(graph.edges))

    def look(self, logits: Float[np.ndarray, " E"]) -> tuple[Float[np.ndarray, " N"], float]:
        """The logarithms of the attention on each term, and the mean loss."""
        if not len(self.edge):
            return np.zeros(0), 0.0
        within = logits[self.edge] + self.log_count
        top = np.maximum(np.maximum.reduceat(within, self.start), 0.0)
        total = np.add.reduceat(np.exp(within - top[self.owner]), self.start)
        # log(1 + x) keeps the digits of losses below rounding
        losses = top + np.log1p(np.where(top > 0, np.expm1(-top) + total, total))
        return within - losses[self.owner], float(self.weight @ losses)

    def mean(self, shares: Float[np.ndarray, " N"]) -> Float[np.ndarray, " E"]:
        """The weighted sum of shares of each edge."""
        return np.bincount(self.edge, shares * self.weight[self.owner], minlength=self.num_edges)

    def over(self, logs: Float[np.ndarray, " N"], some: np.ndarray) -> Float[np.ndarray, " E"] | None:
        """As :meth:`mean`, of the terms of some edges over the largest of their shares; None without such terms."""
        chosen = np.where(some[self.edge], logs, -np.inf)
        top = chosen.max(initial=-np.inf)
        return None if np.isneginf(top) else self.mean(np.exp(chosen - top))


def _safe_rate(terms: _LossTerms, inside: Float[np.ndarray, "E r"]) -> float:
    """1/L: the curvature of −log softmax in the logits is at most 1/2."""
    if not inside.any():
        return 1.0
    rows = inside[terms.edge] * np.sqrt(terms.weight[terms.owner])[:, None]
    return float(2.0 / np.linalg.eigvalsh(rows.T @ rows)[-1])
