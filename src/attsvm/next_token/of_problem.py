"""The token-priority graph of a training problem, whose tokens are one-hot vectors of their numbers."""

from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.errors import ProblemError
from attsvm.next_token.contexts import Contexts, ends
from attsvm.next_token.finite import FiniteMinimiser
from attsvm.next_token.graph import TokenGraph
from attsvm.problem import Problem


class ProblemGraph(NamedTuple):
    """The graph of one problem. Each distinct query vector has a graph of its own."""

    graph: TokenGraph
    contexts: Contexts  # one for each query that is not padded
    where: Bool[np.ndarray, "n Q T"]  # the place of each id of the contexts
    shape: tuple[int, ...]  # (n, T), or (n, Q, T) for a problem with an axis of queries

    @classmethod
    def of(cls, problem: Problem) -> "ProblemGraph":
        """Make the graph of a problem without batch axes.

        Raises ProblemError if a context does not contain its label.
        """
        assert problem.labels is not None
        _, queries, allowed, active = problem.canonical
        where = np.asarray(allowed & active[..., None])
        ids = np.broadcast_to(problem.tokens.argmax(axis=-1)[:, None], where.shape)[where]
        labels = problem.labels.reshape(active.shape)[active].astype(np.int64)
        _, last = np.unique(queries[active], axis=0, return_inverse=True)
        contexts = Contexts(ids, ends(where[active].sum(axis=-1)), labels, last.reshape(-1))
        absent = ~contexts.has_label()
        if absent.any():
            raise ProblemError(
                f"labels: expected the label of each context among its tokens, got {absent.sum()} contexts without it"
            )
        graph = TokenGraph.of_contexts(contexts, max(problem.dim, int(last.max()) + 1))
        shape = (*problem.query_shape, problem.num_tokens)
        return cls(graph, contexts, where, shape)

    def kept(self) -> Bool[np.ndarray, "*queries T"]:
        """The tokens in the component of the label of each query."""
        kept = np.zeros(self.where.shape, bool)
        kept[self.where] = self.graph.in_component_of_label(self.contexts)
        return kept.reshape(self.shape)

    def finite_minimiser(self, problem: Problem) -> FiniteMinimiser:
        """The least loss over weights that only move tokens of one component, for the keys and queries of a problem."""
        keys, queries, _, active = problem.canonical
        K = self.graph.num_tokens
        places = np.broadcast_to(keys[:, None], (*self.where.shape, keys.shape[-1]))[self.where]
        return self.graph.finite_part_of(
            self.contexts,
            _one_of_each(places, self.contexts.ids, K),
            _one_of_each(queries[active], self.contexts.last, K),
        )


def _one_of_each(vectors: Float[np.ndarray, "N d"], numbers: np.ndarray, count: int) -> Float[np.ndarray, "K d"]:
    """The vector of each number.

    Raises ProblemError if equal numbers have different vectors.
    """
    found = np.zeros((count, vectors.shape[1]))
    found[numbers] = vectors
    if not np.array_equal(found[numbers], vectors):
        raise ProblemError("keys: expected equal keys for equal tokens, got different ones")
    return found
