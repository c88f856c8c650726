"""The linear head."""

from dataclasses import dataclass

import jax
import numpy as np

from attsvm._utils.contractions import contract
from attsvm.heads.arguments import head_of
from attsvm.heads.base import Head, Parameters
from attsvm.heads.registry import HEADS
from attsvm.problem import Problem

Array = jax.Array


@dataclass(frozen=True)
class Linear(Head):
    """h(o) = v'o, or one row of v for each class; v is the problem's head.

    See Also
    --------
    attsvm.solve_head : The max-margin linear head.
    attsvm.heads.Quadratic

    Examples
    --------
    >>> from attsvm.heads import Linear, parse_head
    >>> parse_head("linear") == Linear(), Linear().name
    (True, 'linear')
    """

    name = "linear"
    defined_everywhere = True

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        """Return the problem's head."""
        return {"v": head_of(problem)}

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        """Compute v'o of each query and class."""
        v = parameters["v"]
        return contract("nqd,d->nq" if v.ndim == 2 else "nqd,cd->nqc", pooled, v)


HEADS.register("linear", Linear)
