"""Prediction heads, one file each: from the pooled token o to the output of a query.

====================== ============================================================================
head                   output
====================== ============================================================================
:class:`Linear`        v'o, with v the problem's head; one row of v for each class
:class:`Quadratic`     v'o − λ‖o‖²
:class:`MLP`           u'σ(H o + b), one hidden layer with ReLU or GELU
:class:`ValueMLP`      u'σ(H V'o + b), a value matrix before the hidden layer: a one-layer transformer
:class:`FunctionHead`  any function of o and its parameters, written in JAX
====================== ============================================================================

A new head is a subclass of :class:`Head`, in this package or outside it.
"""

from attsvm.heads.base import Head
from attsvm.heads.function import FunctionHead
from attsvm.heads.linear import Linear
from attsvm.heads.mlp import MLP
from attsvm.heads.quadratic import Quadratic
from attsvm.heads.registry import HEADS, parse_head
from attsvm.heads.value_mlp import ValueMLP

__all__ = ["HEADS", "MLP", "FunctionHead", "Head", "Linear", "Quadratic", "ValueMLP", "parse_head"]


def __dir__() -> list[str]:
    return sorted(__all__)
