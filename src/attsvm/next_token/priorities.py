"""The order given by the edges of a directed graph: components, their levels, and the edges that suffice."""

import itertools
from typing import NamedTuple

import numpy as np
import scipy

from attsvm._utils.shapes import Bool, Int

Pairs = Int[np.ndarray, "E 2"]


class Priorities(NamedTuple):
    """The strongly connected components of a directed graph of N nodes."""

    component: Int[np.ndarray, " N"]  # the number of each node's component
    # the number of edges on the longest path to each component: 0 for those that no other one precedes
    level: Int[np.ndarray, " C"]
    edges: Pairs  # shape (E, 2), the pairs of different components that an edge joins, the higher one first

    @classmethod
    def of(cls, num_nodes: int, edges: Pairs) -> "Priorities":
        """Make the priorities of the graph with these edges."""
        matrix = scipy.sparse.coo_array((np.ones(len(edges), bool), edges.T), shape=(num_nodes, num_nodes))
        count, component = scipy.sparse.csgraph.connected_components(matrix, connection="strong")
        between = component[edges]
        between = np.unique(between[between[:, 0] != between[:, 1]], axis=0)
        return cls(component.astype(np.int64), _levels(count, between), between)

    def covers(self) -> Pairs:
        """The edges that are no consequence of others: the transitive reduction.

        A component that must be above a second one, and this above a third one, is above the third one.

        References: Aho, Garey and Ullman (1972), *The transitive reduction of a directed graph*.
        """
        return np.array(sorted(self._closed()[0]), np.int64).reshape(-1, 2)

    def below(self) -> list[int]:
        """The components below each one, as bits of an integer: those that edges lead to, also through others."""
        return self._closed()[1]

    def orders(
        self, node: Int[np.ndarray, " N"], kept: Bool[np.ndarray, " N"], offsets: Int[np.ndarray, " n+1"]
    ) -> Bool[np.ndarray, " n"]:
        """Whether the nodes kept of each context are in one component, above all others; a token without one has −1."""
        below, place = self.below(), self.places()
        ordered = np.zeros(len(offsets) - 1, bool)
        for i, (start, end) in enumerate(itertools.pairwise(offsets)):
            own = node[start:end]
            if (own < 0).any():  # nothing is known about a token without an edge
                continue
            component = self.component[own]
            top = set(component[kept[start:end]].tolist())
            if len(top) == 1:
                above = below[next(iter(top))]
                ordered[i] = all(above >> int(place[c]) & 1 for c in set(component.tolist()) - top)
        return ordered

    def _closed(self) -> tuple[list[tuple[int, int]], list[int]]:
        """The pairs of :meth:`covers`, and the sets of :meth:`below`."""
        # the children of each component from the highest to the lowest: one that is below another comes after it
        order = np.lexsort((self.level[self.edges[:, 1]], self.edges[:, 0]))
        children = self.edges[order, 1].tolist()
        begin = np.searchsorted(self.edges[order, 0], np.arange(len(self.level) + 1)).tolist()
        place = self.places().tolist()
        below, kept = [0] * len(self.level), []
        for parent in np.argsort(-self.level, kind="stable").tolist():
            reached = 0
            for child in children[begin[parent] : begin[parent + 1]]:
                bit = 1 << place[child]
                if not reached & bit:
                    kept.append((parent, child))
                    reached |= below[child] | bit
            below[parent] = reached
        return kept, below

    def places(self) -> Int[np.ndarray, " C"]:
        """The bit of each component: its number within its connected part of the graph, so that integers are short."""
        count = len(self.level)
        matrix = scipy.sparse.coo_array((np.ones(len(self.edges), bool), self.edges.T), shape=(count, count))
        _, part = scipy.sparse.csgraph.connected_components(matrix, directed=False)
        order = np.argsort(part, kind="stable")
        place = np.empty(count, np.int64)
        place[order] = np.arange(count) - np.searchsorted(part[order], part[order])
        return place


def _levels(count: int, edges: Pairs) -> Int[np.ndarray, " C"]:
    """The length of the longest path to each node of a graph without cycles; the edges are sorted."""
    begin = np.searchsorted(edges[:, 0], np.arange(count + 1))
    waits = np.bincount(edges[:, 1], minlength=count)
    level, now, depth = np.zeros(count, np.int64), np.flatnonzero(waits == 0), 0
    while len(now):
        level[now] = depth
        lengths = begin[now + 1] - begin[now]
        first = np.cumsum(lengths) - lengths
        children = edges[np.arange(lengths.sum()) + np.repeat(begin[now] - first, lengths), 1]
        left, numbers = np.unique(children, return_counts=True)
        waits[left] -= numbers
        now, depth = left[waits[left] == 0], depth + 1
    return level
