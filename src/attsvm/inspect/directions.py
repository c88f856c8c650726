"""The directions that a head reads: singular directions of W, with the tokens at their ends."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attsvm.inspect.measures import TokenIds
from attsvm.inspect.weights import Layer

Ends = tuple[Int[np.ndarray, "count 2"], Int[np.ndarray, "count 2"]]


class ReadingDirection(NamedTuple):
    """A pair of singular directions of W = W_K (W_Q; b_Q)'/√d_h: u in the space of keys, v in that of queries.

    With rotary positions it is W before the rotation. The sign of the pair is arbitrary. A query with a positive
    coordinate along v raises the logits of tokens with a positive coordinate along u, and lowers those with a negative
    one.
    """

    value: float  # singular value
    share: float  # its square over the sum of the squares
    key: Float[np.ndarray, " d"]  # u, of unit length
    query: Float[np.ndarray, " d_q_1"]  # v, of unit length; the last coordinate belongs to the constant one
    # key_ends, query_ends: sequence and place of the tokens, and of the queries, with the largest coordinates, and of
    # those with the smallest, one for each different token where tokens are known
    key_ends: Ends
    query_ends: Ends
    # tokens of the vocabulary whose embeddings have the largest and the smallest coordinates along u. The embeddings
    # are those of the table, before positions and norms are applied. None if there is no table.
    vocabulary_ends: tuple[Int[np.ndarray, " count"], Int[np.ndarray, " count"]] | None


def reading_directions(
    layer: Layer,
    head: int,
    count: int,
    ends: int,
    tokens: TokenIds | None,
    embeddings: Float[np.ndarray, "vocabulary d"] | None,
) -> list[ReadingDirection]:
    """The ``count`` pairs with the largest singular values, with ``ends`` tokens at each end.

    See :meth:`attsvm.inspect.Inspection.reading_directions`.
    """
    parts = layer.weights()
    left, triangle = np.linalg.qr(parts.key[head])
    right, other = np.linalg.qr(parts.biased_query(head))
    # W = Q_l (R_l R_r') Q_r', so its singular directions are those of the small product, moved by Q_l and Q_r
    inner_left, values, inner_right = np.linalg.svd(parts.scale * triangle @ other.T)
    total = float((values**2).sum())
    there, asks = layer.allowed.any(axis=1), layer.positions >= 0
    at_keys = np.argwhere(there)
    at_queries = np.stack([np.nonzero(asks)[0], layer.positions[asks]], axis=1)
    found = []
    for k in range(min(count, len(values))):
        u, v = left @ inner_left[:, k], right @ inner_right[k]
        along_v = layer.queries @ v[:-1] + v[-1]
        table = None if embeddings is None else np.argsort(embeddings @ u, kind="stable")
        found.append(
            ReadingDirection(
                value=float(values[k]),
                share=float(values[k] ** 2 / total) if total else 0.0,
                key=u,
                query=v,
                key_ends=_ends((layer.tokens @ u)[there], at_keys, ends, tokens),
                query_ends=_ends(along_v[asks], at_queries, ends, tokens),
                vocabulary_ends=None if table is None else (table[::-1][:ends], table[:ends]),
            )
        )
    return found


def _ends(values: Float[np.ndarray, " m"], places: Int[np.ndarray, "m 2"], count: int, tokens: TokenIds | None) -> Ends:
    """The places with the largest and the smallest values, with each token once."""
    order = np.argsort(values, kind="stable")

    def first(order: np.ndarray) -> np.ndarray:
        if tokens is not None:
            of_order = tokens[tuple(places[order].T)]
            order = order[np.sort(np.unique(of_order, return_index=True)[1])]
        return np.asarray(places[order[:count]])

    return first(order[::-1]), first(order)
