"""The token-priority graph of a corpus and its Att-SVM."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from attsvm._utils.checks import as_floats, check_integer
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.next_token.contexts import Contexts, Edges, of_documents, padded, parse_contexts, parse_sequences
from attsvm.next_token.finite import FiniteMinimiser, Groups, least_loss, outer_rows
from attsvm.next_token.prediction import KeptTokens, limit_of_attention
from attsvm.next_token.priorities import Priorities
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.svm import Solution, solve_svm

DEPENDENT = 1e-12
"""Directions of unit length are consequences of the others if less than this is left of them."""

MOST_TOKENS = 2_000_000
"""K³ must be a 64-bit integer."""


@dataclass(frozen=True, eq=False, repr=False)
class TokenGraph:
    """Which tokens of a context must get more attention than others, for each last token of the context.

    A context whose next token is y requires the query of its last token to attend to y rather than to the other tokens
    of the context: edges from y to each of them. If edges contradict each other, their tokens are in one strongly
    connected component. Training keeps the tokens of the highest component of a context. It separates the components
    in the direction of the Att-SVM, the graph-SVM, and gives the tokens of one component a finite share each.

    Attributes
    ----------
    num_tokens : int
        K, the size of the vocabulary.
    edges : ndarray, shape (E, 3)
        Distinct rows (last token, label, other token), sorted.
    num_contexts, num_dropped : int
        All contexts, and those without their label, which say nothing about their other tokens.
    contexts : Contexts or None
        Those that contain their label; None for a graph of documents, which are not kept.

    See Also
    --------
    attsvm.token_graph : Builds one from contexts.
    attsvm.solve_svm : Solves the graph-SVM.

    References
    ----------
    Li, Huang, Ildiz, Rawat and Oymak (2024), *Mechanics of Next Token Prediction with Self-Attention*, AISTATS
    (arXiv 2403.08081): the token-priority graph, its components, and (Graph-SVM).

    Examples
    --------
    >>> import attsvm
    >>> graph = attsvm.token_graph([[0, 1, 2], [1, 0, 2], [3, 0, 2]], [0, 1, 3])
    >>> graph.components(2)
    [[3], [0, 1], [2]]
    """

    num_tokens: int
    edges: Int[np.ndarray, "E 3"]
    num_contexts: int
    num_dropped: int
    contexts: Contexts | None = None

    @classmethod
    def from_documents(cls, documents: Iterable[Any], *, length: int, num_tokens: int) -> "TokenGraph":
        """The graph of all positions of documents, each of which predicts its next token.

        Parameters
        ----------
        documents : iterable of int arrays
            The token numbers of each document. They are read once and not kept.
        length : int
            Number of tokens in the longest context, which ends at the position and starts in its document.
        num_tokens : int
            K, the size of the vocabulary.

        Examples
        --------
        >>> import attsvm
        >>> graph = attsvm.TokenGraph.from_documents([[0, 1, 0, 1], [1, 2, 1]], length=3, num_tokens=3)
        >>> graph.edges.tolist(), graph.num_dropped
        ([[0, 1, 0], [1, 0, 1], [2, 1, 2]], 2)
        """
        num_tokens = check_integer("num_tokens", num_tokens, 1, MOST_TOKENS)
        found = Edges(num_tokens)
        for contexts in of_documents(documents, length):
            found.add(contexts)
        return cls(num_tokens, found.rows(), found.seen, found.dropped)

    @classmethod
    def of_contexts(cls, contexts: Contexts, num_tokens: int) -> "TokenGraph":
        """The graph of contexts."""
        found = Edges(num_tokens)
        found.add(contexts)
        return cls(num_tokens, found.rows(), found.seen, found.dropped, contexts.keep(contexts.has_label()))

    @cached_property
    def _nodes(self) -> Int[np.ndarray, " M"]:
        """Last token · K + token, for each token that has an edge with this last token."""
        K = self.num_tokens
        return np.unique(self.edges[:, :1] * K + self.edges[:, 1:])

    @cached_property
    def _ends(self) -> Int[np.ndarray, "E 2"]:
        """The nodes of each edge."""
        return np.asarray(np.searchsorted(self._nodes, self.edges[:, :1] * self.num_tokens + self.edges[:, 1:]))

    @cached_property
    def priorities(self) -> Priorities:
        """The components of all last tokens, numbered together."""
        return Priorities.of(len(self._nodes), self._ends)

    def node_of(self, last: Int[np.ndarray, "*k"], token: Int[np.ndarray, "*k"]) -> Int[np.ndarray, "*k"]:
        """The number of a token's node in the graph of a last token; −1 where it has none."""
        if not len(self._nodes):
            return np.full(np.broadcast_shapes(np.shape(last), np.shape(token)), -1)
        keys = np.asarray(last) * self.num_tokens + np.asarray(token)
        node = np.minimum(np.searchsorted(self._nodes, keys), len(self._nodes) - 1)
        known = (np.asarray(token) < self.num_tokens) & (self._nodes[node] == keys)
        return np.where(known, node, -1)

    @property
    def last_tokens(self) -> Int[np.ndarray, " L"]:
        """The last tokens that have a graph."""
        return np.unique(self.edges[:, 0])

    @property
    def contradictory(self) -> Bool[np.ndarray, " E"]:
        """The edges inside a component: other edges require the opposite order."""
        component = self.priorities.component[self._ends]
        return np.asarray(component[:, 0] == component[:, 1])

    @property
    def is_cyclic(self) -> bool:
        """Whether edges contradict each other."""
        return bool(self.contradictory.any())

    def components(self, last: int) -> list[list[int]]:
        """The tokens of each component for one last token, from the highest level of priority to the lowest.

        Components of different levels need not be comparable: the graph is a partial order.
        """
        check_integer("last", last, 0, self.num_tokens - 1)
        nodes = np.flatnonzero(self._nodes // self.num_tokens == last)
        component = self.priorities.component[nodes]
        found = sorted(set(component.tolist()), key=lambda c: (self.priorities.level[c], c))
        return [(self._nodes[nodes[component == c]] % self.num_tokens).tolist() for c in found]

    @cached_property
    def pairs(self) -> tuple[Int[np.ndarray, "P 2"], Bool[np.ndarray, " P"]]:
        """Pairs of nodes that say all that the edges say, and whether the two of a pair are level.

        Each token of a component is level with its first token, and the first tokens of two components stand for them.
        Orders that follow from others are left out.
        """
        component = self.priorities.component
        order = np.argsort(component, kind="stable")
        first = order[np.searchsorted(component[order], np.arange(len(self.priorities.level)))]
        others = np.flatnonzero(first[component] != np.arange(len(component)))
        level = np.stack([first[component[others]], others], axis=1)
        above = first[self.priorities.covers()]
        return np.concatenate([level, above]), np.arange(len(level) + len(above)) < len(level)

    def problem(self, vocabulary: Any) -> Problem:
        """The graph-SVM as a problem: ``solve_svm(graph.problem(vocabulary), graph.selected)``.

        Each sequence is one pair of tokens with the query of one last token. There are few: orders that follow from
        others are left out, so their number does not grow with the number of contexts.

        Parameters
        ----------
        vocabulary : array, shape (K, d)
            The vector of each token.

        Raises
        ------
        ProblemError
            If the vocabulary has another shape or is not finite, or if there are no constraints.

        Examples
        --------
        >>> import numpy as np
        >>> import attsvm
        >>> graph = attsvm.token_graph([[0, 1, 2], [1, 0, 2], [3, 0, 2]], [0, 1, 3])
        >>> problem = graph.problem(np.eye(4))
        >>> problem.num_sequences, attsvm.solve_svm(problem, graph.selected).status
        (3, <Status.OPTIMAL: 'optimal'>)
        """
        vocabulary = self.check_vocabulary(vocabulary)
        pairs, _ = self.pairs
        if not len(pairs):
            raise ProblemError("graph: expected at least one edge, got contexts that contain only their label")
        last, token = np.divmod(self._nodes[pairs], self.num_tokens)
        return Problem(vocabulary[token], queries=vocabulary[last[:, 0]])

    def training_problem(self, vocabulary: Any) -> Problem:
        """The contexts as a problem for ``train(..., loss="token")``.

        The tokens are one-hot vectors of their numbers, the keys and queries vectors of the vocabulary, and the head is
        the identity. So the output f_y is the attention on the tokens y, and the label is the next token.

        Parameters
        ----------
        vocabulary : array, shape (K, d)

        Raises
        ------
        ProblemError
            If the vocabulary does not fit, or there are no contexts.

        Examples
        --------
        >>> import numpy as np
        >>> import attsvm
        >>> graph = attsvm.token_graph([[0, 1, 2], [3, 0, 2]], [0, 3])
        >>> run = attsvm.train(graph.training_problem(np.eye(4)), loss="token", steps=100)
        >>> run.selected.tolist()
        [0, 0]
        """
        vocabulary = self.check_vocabulary(vocabulary)
        contexts = self.training_contexts()
        ids, lengths = padded(contexts.ids, contexts.offsets), np.diff(contexts.offsets)
        mask = np.arange(ids.shape[1]) < lengths[:, None]
        return Problem(
            np.eye(self.num_tokens)[ids],
            labels=contexts.labels,
            queries=vocabulary[contexts.last],
            head=np.eye(self.num_tokens),
            keys=vocabulary[ids],
            mask=None if mask.all() else mask,
        )

    @property
    def selected(self) -> Bool[np.ndarray, "P 2"]:
        """The tokens that the sequences of :meth:`problem` keep: both of a pair that is level, else the first."""
        return np.stack([np.ones(len(self.pairs[1]), bool), self.pairs[1]], axis=1)

    def cyclic_basis(self, vocabulary: Any) -> Float[np.ndarray, "r d d"]:
        """An orthonormal basis of S_cyc, the span of (x_i − x_j) x_k' over tokens i and j of a component of k.

        Weights in it change the shares of tokens of one component. The direction of the graph-SVM is orthogonal to it.

        Examples
        --------
        >>> import numpy as np
        >>> import attsvm
        >>> graph = attsvm.token_graph([[0, 1, 2], [1, 0, 2]], [0, 1])
        >>> graph.cyclic_basis(np.eye(3)).shape
        (1, 3, 3)
        """
        vocabulary = self.check_vocabulary(vocabulary)
        d = vocabulary.shape[1]
        pairs, level = self.pairs
        last, token = np.divmod(self._nodes[pairs[level]], self.num_tokens)
        if not len(token):
            return np.zeros((0, d, d))
        spanning = outer_rows(vocabulary[token[:, 0]] - vocabulary[token[:, 1]], vocabulary[last[:, 0]])
        lengths = np.linalg.norm(spanning, axis=1, keepdims=True)
        return _orthonormal(spanning / np.where(lengths > 0, lengths, 1.0)).reshape(-1, d, d)

    def finite_minimiser(self, vocabulary: Any, sequences: Any = None, next_tokens: Any = None) -> FiniteMinimiser:
        """W_fin: the least loss over S_cyc, on contexts restricted to the component of their label.

        It predicts the part of trained weights that stays finite, the shares of tokens that contradict each other, and
        does not come from training.

        Parameters
        ----------
        vocabulary : array, shape (K, d)
        sequences, next_tokens : optional
            The contexts of the graph, as for :func:`attsvm.token_graph`. Only a graph of documents, which keeps none,
            needs them.

        Returns
        -------
        FiniteMinimiser
            Zero if no edges contradict each other.

        Raises
        ------
        ProblemError
            If the vocabulary does not fit, there are no contexts, or their edges are not those of the graph: then there
            may be no minimum.

        Examples
        --------
        >>> import numpy as np
        >>> import attsvm
        >>> graph = attsvm.token_graph([[0, 1, 2], [1, 0, 2], [0, 1, 2]], [0, 1, 1])
        >>> weights = graph.finite_minimiser(np.eye(3)).weights
        >>> round(float(np.exp(weights[1, 2] - weights[0, 2])), 6)  # token 1 follows twice as often as token 0
        2.0
        """
        vocabulary = self.check_vocabulary(vocabulary)
        if sequences is not None:
            contexts = parse_contexts(sequences, next_tokens)
            found = Edges(self.num_tokens)
            found.add(contexts)
            if not np.array_equal(found.rows(), self.edges):
                raise ProblemError("sequences: expected the contexts of the graph, got contexts with other edges")
            contexts = contexts.keep(contexts.has_label())
        elif self.contexts is not None:
            contexts = self.contexts
        elif not self.is_cyclic:
            contexts = Contexts.of(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64))
        else:
            raise ProblemError("sequences: expected the contexts, because a graph of documents does not keep them")
        return self.finite_part_of(contexts, vocabulary, vocabulary)

    def finite_part_of(
        self, contexts: Contexts, keys: Float[np.ndarray, "K d_k"], queries: Float[np.ndarray, "K d_q"]
    ) -> FiniteMinimiser:
        """As :meth:`finite_minimiser`, for contexts of the graph, with a key and a query for each token."""
        groups = Groups.of(contexts, self.node_of, self.priorities.component)
        last, token = np.divmod(self._nodes, self.num_tokens)
        pairs, level = self.pairs
        return least_loss(groups, pairs[level], keys[token], queries[last])

    def in_component_of_label(self, contexts: Contexts) -> Bool[np.ndarray, " N"]:
        """Which ids of contexts are in the component of their label."""
        label, last = contexts.labels[contexts.owner], contexts.last[contexts.owner]
        node, of_label = self.node_of(last, contexts.ids), self.node_of(last, label)
        found = contexts.ids == label
        both = (node >= 0) & (of_label >= 0)
        component = self.priorities.component
        found[both] |= component[node[both]] == component[of_label[both]]
        return np.asarray(found)

    def predict(
        self, contexts: Any, vocabulary: Any, *, solution: Solution | None = None, finite: FiniteMinimiser | None = None
    ) -> KeptTokens:
        """The tokens of contexts that training keeps, and their attention in the limit.

        Parameters
        ----------
        contexts : sequence of int sequences
            Each ends with its last token.
        vocabulary : array, shape (K, d)
        solution, finite : optional
            The graph-SVM and the finite part, if they are known; otherwise they are computed.

        Returns
        -------
        KeptTokens

        Raises
        ------
        ProblemError
            If an argument does not fit, or if no weights satisfy the graph-SVM.

        Examples
        --------
        >>> import numpy as np
        >>> import attsvm
        >>> graph = attsvm.token_graph([[0, 1, 2], [1, 0, 2], [3, 0, 2]], [0, 1, 3])
        >>> graph.predict([[0, 1, 2], [0, 3, 2]], np.eye(4)).kept.tolist()
        [[True, True, False], [False, True, False]]
        """
        vocabulary = self.check_vocabulary(vocabulary)
        ids, offsets = parse_sequences(contexts)
        if ids.max() >= len(vocabulary):
            raise ProblemError(f"contexts: expected token numbers below {len(vocabulary)}, got {ids.max()}")
        solution = solve_svm(self.problem(vocabulary), self.selected) if solution is None else solution
        if not np.isfinite(solution.direction).all():
            raise ProblemError("graph: expected an order that some weights can give, but the graph-SVM is infeasible")
        finite = self.finite_minimiser(vocabulary) if finite is None else finite
        last = np.repeat(ids[offsets[1:] - 1], np.diff(offsets))
        logits, of_finite = (
            np.vecdot((vocabulary @ weights)[ids], vocabulary[last]) for weights in (solution.direction, finite.weights)
        )
        kept, shares = limit_of_attention(logits, of_finite, offsets)
        done = solution.status == Status.OPTIMAL and finite.status == Status.CONVERGED
        ordered = self.priorities.orders(self.node_of(last, ids), kept, offsets)
        status = Status.OPTIMAL if done else Status.INACCURATE
        return KeptTokens(ordered, padded(kept, offsets), padded(shares, offsets), status)

    def training_contexts(self) -> Contexts:
        """The contexts that contain their label.

        Raises
        ------
        ProblemError
            If there are none.
        """
        if self.contexts is None or not len(self.contexts.labels):
            raise ProblemError("graph: expected contexts that contain their label, but none does")
        return self.contexts

    def check_vocabulary(self, vocabulary: Any) -> Float[np.ndarray, "K d"]:
        """The vectors of all tokens.

        Raises
        ------
        ProblemError
            If there are fewer vectors than tokens, or one is not finite.
        """
        array = as_floats("vocabulary", vocabulary)
        if array.ndim != 2 or len(array) < self.num_tokens or not array.shape[1]:
            raise ProblemError(f"vocabulary: expected shape ({self.num_tokens}, d), got {array.shape}")
        if not np.isfinite(array).all():
            raise ProblemError("vocabulary: expected finite numbers, got NaN or infinity")
        return array

    def __repr__(self) -> str:
        sizes = np.bincount(self.priorities.component)
        return (
            f"<TokenGraph: {self.num_contexts:,} contexts ({self.num_dropped:,} without their label),"
            f" {len(self.last_tokens):,} last tokens, {len(self.edges):,} edges,"
            f" {int((sizes > 1).sum()):,} components of several tokens>"
        )


def token_graph(sequences: Any, next_tokens: Any = None, *, num_tokens: int | None = None) -> TokenGraph:
    """Build the token-priority graph of contexts and the tokens that follow them.

    Parameters
    ----------
    sequences : int array, shape (n, T), or n lists of token numbers
        The contexts, of any lengths. The last token of each is the one that attends.
    next_tokens : int array, shape (n,), optional
        The token that follows each context. By default every position of a sequence predicts its next token, from
        itself and the positions before it (causal). A context that does not contain it says nothing about what
        attention should copy; such contexts are counted in ``num_dropped`` and left out, with a warning.
    num_tokens : int, optional
        K, the size of the vocabulary; by default the largest token number + 1.

    Returns
    -------
    TokenGraph

    Raises
    ------
    ProblemError
        If there is no context, one is empty, or an entry is no token number.

    Warns
    -----
    UserWarning
        If contexts do not contain their label.

    See Also
    --------
    attsvm.TokenGraph.from_documents : The same for each position of a corpus, in bounded memory.
    attsvm.next_token.causal_problem : A training problem in which every position predicts.

    References
    ----------
    Li, Huang, Ildiz, Rawat and Oymak (2024), *Mechanics of Next Token Prediction with Self-Attention*, AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> graph = attsvm.token_graph([[0, 1, 2], [1, 0, 2], [3, 0, 2]], [0, 1, 3])
    >>> vocabulary = np.eye(4)
    >>> solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected)
    >>> solution.status
    <Status.OPTIMAL: 'optimal'>
    >>> graph.predict([[0, 3, 1, 2], [0, 1, 1, 2]], vocabulary).probabilities.round(3)
    array([[0.   , 1.   , 0.   , 0.   ],
           [0.333, 0.333, 0.333, 0.   ]])
    """
    contexts = parse_contexts(sequences, next_tokens)
    if num_tokens is None:
        num_tokens = int(max(contexts.ids.max(), contexts.labels.max())) + 1
    num_tokens = check_integer("num_tokens", num_tokens, 1, MOST_TOKENS)
    graph = TokenGraph.of_contexts(contexts, num_tokens)
    if graph.num_dropped:
        warnings.warn(
            f"{graph.num_dropped} of {graph.num_contexts} contexts do not contain their next token and are left out",
            stacklevel=2,
        )
    return graph


def _orthonormal(vectors: Float[np.ndarray, "m D"]) -> Float[np.ndarray, "r D"]:
    """An orthonormal basis of the span of the rows."""
    basis, triangle, _ = scipy.linalg.qr(vectors.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    return np.asarray(basis[:, sizes > DEPENDENT * sizes[0]].T)
