"""One head at close quarters: the spectrum of its W, and its attention and support tokens sentence by sentence."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.svm.constraints.gram_products import Grams
from attsvm.svm.margin_bounds import MarginInterval, margin_interval
from attsvm.torch.inspection.measures import attention_of
from attsvm.torch.inspection.weights import Layer, singular_values

VIEW_GAP = 1e-4
"""Of the view's own solve: it is the support tokens that are wanted."""


@dataclass(frozen=True, eq=False)
class HeadView:
    """One head, with what it does for every query.

    Attributes
    ----------
    layer, head : int
    singular_values : ndarray, shape (d_h,)
        Of W; of rotary layers before the rotation.
    probabilities : ndarray, shape (n, Q, T)
        Its attention.
    allowed : bool ndarray, shape (n, Q, T)
        What may be attended to.
    selected, positions : int ndarrays, shape (n, Q)
        The token selected; the place of the query. −1 where there is no query.
    support : bool ndarray, shape (n, Q, T)
        Support tokens of the Att-SVM of this selection: dropped tokens whose constraint carries weight in the dual.
        None where there is no Att-SVM.
    interval : MarginInterval
        As narrow as :data:`VIEW_GAP`, if the steps sufficed.
    """

    layer: int
    head: int
    singular_values: Float[np.ndarray, " d_h"]
    probabilities: Float[np.ndarray, "n Q T"]
    allowed: Bool[np.ndarray, "n Q T"]
    selected: Int[np.ndarray, "n Q"]
    positions: Int[np.ndarray, "n Q"]
    support: Bool[np.ndarray, "n Q T"] | None
    interval: MarginInterval

    @property
    def nuclear_norm(self) -> float:
        """‖W‖_*: of all factorisations W = KQ', the least (‖K‖_F² + ‖Q‖_F²)/2."""
        return float(self.singular_values.sum())

    @property
    def spectral_norm(self) -> float:
        """The largest singular value."""
        return float(self.singular_values.max())


def view_head(layer: Layer, index: int, head: int, max_steps: int | None = None) -> HeadView:
    """A head of a layer at close quarters.

    Parameters
    ----------
    layer : Layer
    index, head : int
        Of the layer in its model, and of the head in its layer.
    max_steps : int, optional
        Of the solve.
    """
    problem = layer.head(head)
    attention = attention_of(problem, layer.allowed, None, None)
    grams = None if layer.is_rotary else Grams.of(problem.keys, problem.queries, layer.allowed, np.float64)
    interval, solved = margin_interval(problem, layer.allowed, attention.selected, VIEW_GAP, max_steps, grams)
    return HeadView(
        layer=index,
        head=head,
        singular_values=singular_values(layer.projections, head),
        probabilities=attention.probabilities,
        allowed=layer.allowed,
        selected=attention.selected,
        positions=layer.positions,
        support=None if solved is None else solved > 0,
        interval=interval,
    )
