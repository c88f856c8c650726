"""Details of one head: the singular values of its W, and its attention and support tokens in every sequence."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from attsvm.errors import ProblemError
from attsvm.inspect.directions import ReadingDirection
from attsvm.inspect.explanation import Explanation
from attsvm.inspect.measures import selected_tokens
from attsvm.inspect.reasons import FactorChange, Reasons, factor_change, reasons_of
from attsvm.inspect.solves import SolveSettings
from attsvm.inspect.weights import Layer, Mask, Scores, Selected, singular_values
from attsvm.svm.constraints.dual_products import Grams
from attsvm.svm.margin_interval import MarginInterval, margin_interval

VIEW_GAP = 1e-4
"""Required relative width of the interval here; it is small so that the support tokens are accurate."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadView:
    """Details of one head."""

    layer: int
    head: int
    norm: float  # ‖W‖_F
    # singular values of W; with rotary positions those before the rotation, and of I/√d_h if W is not known
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
    # queries and keys, or biases of positions.
    factor_change: FactorChange | None
    explanation: Explanation | None  # the split of the head's logits by origin
    unexplained: str  # why there is no explanation
    directions: list[ReadingDirection]  # the directions that the head reads

    def __repr__(self) -> str:
        return f"HeadView(head {self.layer}.{self.head}: {self.interval})"

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
    layer: Layer = so_far.source.captured(index)
    problem, known = layer.head(head), layer.projections
    probabilities = layer.probabilities(head)
    selected = selected_tokens(probabilities, layer.allowed)
    interval = multipliers = explanation = None
    if solves is not None:
        gap = min(VIEW_GAP, solves.gap)
        grams = Grams.of(problem.keys, problem.queries, layer.allowed, np.float64) if layer.shares_tokens else None
        interval, multipliers = margin_interval(problem, layer.allowed, selected, gap, solves.max_steps, grams)
    unexplained = ""
    try:
        explanation = so_far.explain(index, head)
    except ProblemError as error:  # not every family describes its residual stream
        unexplained = str(error)
    return HeadView(
        layer=index,
        head=head,
        norm=float(np.linalg.norm(problem.weights)),
        singular_values=np.linalg.svd(problem.weights, compute_uv=False)
        if known is None
        else singular_values(known, head),
        probabilities=probabilities,
        allowed=layer.allowed,
        selected=selected,
        positions=layer.positions,
        support=None if multipliers is None else multipliers > 0,
        reasons=None if multipliers is None else reasons_of(problem, layer.allowed, selected, multipliers),
        interval=interval,
        factor_change=factor_change(*problem[:2], layer.weights(), head, layer.allowed, selected)
        if layer.shares_tokens
        else None,
        explanation=explanation,
        unexplained=unexplained,
        directions=[] if known is None else so_far.reading_directions(index, head),
    )
