"""Details of one head: attention and support tokens, singular values of its W, and the directions that it reads."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.explanation import Explanation
from attsvm.inspect.measures import TokenIds, selected_tokens
from attsvm.inspect.reasons import FactorChange, Reasons, factor_change, reasons_of
from attsvm.inspect.solves import SolveSettings
from attsvm.inspect.weights import Layer, Mask, Scores, Selected, singular_values
from attsvm.svm import Grams, MarginInterval, margin_interval

Ends = tuple[Int[np.ndarray, "count 2"], Int[np.ndarray, "count 2"]]


class ReadingDirection(NamedTuple):
    """A pair of singular directions of W = W_K (W_Q; b_Q)'/√d_h: u in the space of keys, v in that of queries.

    With rotary positions it is W before the rotation, or of the coordinates without rotation. The sign of the pair is
    arbitrary. A query with a positive coordinate along v raises the logits of tokens with a positive coordinate along
    u, and lowers those with a negative one.
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


def reading_directions(source: ModelAndBatch, index: int, head: int, count: int, ends: int) -> list[ReadingDirection]:
    """The directions that a head reads; see :meth:`attsvm.inspect.Inspection.reading_directions`."""
    layer = source.captured(index, head)
    tokens = source.tokens_of(layer)
    embeddings = source.embeddings(layer.tokens.shape[-1])
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


VIEW_GAP = 1e-4
"""Required relative width of the interval here; it is small so that the support tokens are accurate."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadView:
    """Details of one head."""

    layer: int
    head: int
    is_self: bool  # whether its queries and keys are made from the same tokens; not in cross-attention
    norm: float  # ‖W‖_F
    weights: str  # what W is, as :meth:`attsvm.inspect.Inspection.available` says
    # singular values of this W, and of I/√d_h if it is not known
    singular_values: Float[np.ndarray, " d_h"]
    probabilities: Scores  # the attention of every query
    allowed: Mask  # which tokens each query may attend to
    # selected, positions: the token with the largest probability, and the position of the query. −1 where there is no
    # query.
    selected: Selected
    positions: Selected
    # support tokens of the Att-SVM of this selection: dropped tokens whose constraint has a positive multiplier. None
    # if there is no Att-SVM, or margins were not requested.
    support: Mask | None
    # why the Att-SVM of this selection selects as it does, and the smallest change of W that alters a selection. None
    # without ``support``.
    reasons: Reasons | None
    # at most as wide as :data:`VIEW_GAP`, if the steps were sufficient. None if margins were not requested.
    interval: MarginInterval | None
    # the smallest change of the key and query weights that alters a selection. None with rotary positions, norms of
    # queries and keys, or biases of logits.
    factor_change: FactorChange | None
    explanation: Explanation | None  # the split of the head's logits by origin
    unexplained: str  # why there is no explanation
    directions: list[ReadingDirection]  # the directions that the head reads

    def __repr__(self) -> str:
        values, most = self.singular_values, self.probabilities.max(axis=-1)[self.selected >= 0]
        lines = [
            f"HeadView(head {self.layer}.{self.head}; W {self.weights}, norm {self.norm:.3g})",
            f"  singular values {', '.join(f'{x:.3g}' for x in values[:5])}{', …' * (len(values) > 5)}",
            f"  largest probability {np.median(most):.3g} (median of {len(most)} queries)",
        ]
        if (found := self.interval) is not None:
            ratio = "not found" if found.upper is None else f"{found.lower:.5g} to {found.upper:.5g}"
            lines.append(f"  margin ratio {ratio} ({found.status}), {found.support} support tokens")
        return "\n".join([*lines, "  arrays in probabilities, selected, support, reasons, directions and explanation"])

    @property
    def nuclear_norm(self) -> float:
        """‖W‖_*, which is the smallest (‖K‖_F² + ‖Q‖_F²)/2 over all factorisations W = KQ'."""
        return float(self.singular_values.sum())

    @property
    def spectral_norm(self) -> float:
        """The largest singular value."""
        return float(self.singular_values.max())


def view_head(so_far: Any, index: int, head: int, solves: SolveSettings | None) -> HeadView:
    """The details of one head of an :class:`Inspection`.

    ``solves``: how the other heads are solved; None leaves out the solve for the best margin.
    """
    layer: Layer = so_far.source.captured(index, head)
    problem, known, recipe = layer.head(head), layer.projections, so_far.source.layers[index].recipe
    probabilities = layer.probabilities(head)
    selected = selected_tokens(probabilities, layer.allowed)
    interval = multipliers = explanation = None
    if solves is not None:
        gap = min(VIEW_GAP, solves.gap)
        grams = Grams.of(problem.keys, problem.queries, layer.allowed, np.float64) if layer.shares_tokens else None
        interval, multipliers = margin_interval(problem, layer.allowed, selected, gap, None, grams)
    values = np.linalg.svd(problem.weights, compute_uv=False) if known is None else singular_values(known, head)
    change = (
        factor_change(*problem[:2], layer.weights(), head, layer.allowed, selected) if layer.shares_tokens else None
    )
    unexplained = ""
    try:
        explanation = so_far.explain(index, head)
    except ProblemError as error:  # not every family describes its residual stream
        unexplained = str(error)
    return HeadView(
        layer=index,
        head=head,
        is_self=layer.is_self,
        norm=float(np.linalg.norm(problem.weights)),
        weights="not known" if recipe is None else recipe.acts_on,
        singular_values=values,
        probabilities=probabilities,
        allowed=layer.allowed,
        selected=selected,
        positions=layer.positions,
        support=None if multipliers is None else multipliers > 0,
        reasons=None if multipliers is None else reasons_of(problem, layer.allowed, selected, multipliers),
        interval=interval,
        factor_change=change,
        explanation=explanation,
        unexplained=unexplained,
        directions=[] if known is None else so_far.reading_directions(index, head),
    )
