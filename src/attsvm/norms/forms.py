"""Other forms of a norm.

A multiple of another norm, a norm of vectors on singular values, rows or columns, or a function that is linear in the
sum and the largest of the absolute entries.
"""

import math
from functools import singledispatch

from attsvm.norms.base import Norm
from attsvm.norms.lifted import Lifted, OnColumns, OnRows, OnSingularValues
from attsvm.norms.lp import Lp
from attsvm.norms.scaled import Scaled
from attsvm.norms.schatten import Nuclear, Spectral
from attsvm.norms.sum_and_largest import Pair, SumAndLargest


@singledispatch
def and_factor(norm: Norm, weight: float) -> tuple[Norm, float]:
    """A norm N and a number c for which c N is the weight times this norm; N is no multiple of another norm."""
    return norm, weight


@and_factor.register
def _(norm: Scaled, weight: float) -> tuple[Norm, float]:
    return and_factor(norm.of, norm.factor * weight)


@singledispatch
def vector_forms(norm: Norm) -> dict[type[Lifted], Norm]:
    """The norms of vectors that make a norm of matrices when they are put on singular values, rows or columns."""
    return {}


@vector_forms.register
def _(norm: Lifted) -> dict[type[Lifted], Norm]:
    return {type(norm): norm.of}


@vector_forms.register
def _(norm: Lp) -> dict[type[Lifted], Norm]:
    return dict.fromkeys((OnSingularValues, OnRows, OnColumns), norm) if norm.p == 2 else {}


@vector_forms.register
def _(norm: Nuclear) -> dict[type[Lifted], Norm]:
    return {OnSingularValues: Lp(1.0)}


@vector_forms.register
def _(norm: Spectral) -> dict[type[Lifted], Norm]:
    return {OnSingularValues: Lp(math.inf)}


@singledispatch
def linear_form(norm: Norm) -> tuple[Pair, ...]:
    """The pairs (α, β) for which a norm is the largest α ‖W‖₁ + β ‖W‖_∞; empty for any other norm."""
    return ()


@linear_form.register
def _(norm: SumAndLargest) -> tuple[Pair, ...]:
    return norm.pairs


@linear_form.register
def _(norm: Lp) -> tuple[Pair, ...]:
    return {1.0: ((1.0, 0.0),), math.inf: ((0.0, 1.0),)}.get(norm.p, ())
