"""Lengths of gradients and steps, which the parts of a chain say of themselves."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from attsvm.norms import Norm

Array = jax.Array
Schedule = Callable[[Array], Array]


class GradientLength(NamedTuple):
    """A gradient on its way to a rule is η g; this is what is known of its length."""

    rate: float | Schedule = 1.0  # η
    unit: Norm | None = None  # the norm in which g has length one; None where its length is not known
    together: bool = False  # whether that is one norm over all parameters


UNKNOWN_LENGTH = GradientLength()


class UnitSteps(NamedTuple):
    """Steps −η D with N(D) = 1, in each parameter, or in all of them together; decay comes on top."""

    norm: Norm
    together: bool
    rate: float | Schedule
    decays: bool = False
    exact: bool = True  # False for an iteration that converges to the polar factor, and may end above it
