"""Steps that are a matrix of norm one times the learning rate, read off the chain."""

from typing import NamedTuple

from attsvm.norms import Lp, Norm
from attsvm.optimizers.gradient import Descent
from attsvm.optimizers.matrix_directions import ExactPolarFactor, PolarDirection
from attsvm.optimizers.matrix_steps import MatrixSteps
from attsvm.optimizers.rule import Chain, Rule, WeightDecay
from attsvm.optimizers.steepest import Steepest
from attsvm.optimizers.transformations import DecayingSum, LearningRate, Normalize, Schedule


class UnitSteps(NamedTuple):
    """Steps −η D with N(D) = 1, in each parameter, or in all of them together; decay comes on top."""

    norm: Norm
    together: bool
    rate: float | Schedule
    decays: bool
    exact: bool  # False for an iteration that converges to the polar factor, and may end above it


def unit_steps(rule: Rule) -> UnitSteps | None:
    """The steps of a rule; None if their length is not known, as of Adam and of steps relative to the weights."""
    if not isinstance(rule, Chain) or not rule.parts:
        return None
    *before, last = rule.parts
    if not isinstance(last, LearningRate) or not all(isinstance(part, DecayingSum | Normalize) for part in before):
        return None
    decays = isinstance(rule.rule, WeightDecay)
    own = rule.rule.rule if isinstance(rule.rule, WeightDecay) else rule.rule
    if isinstance(own, MatrixSteps):
        polar = own.direction.polar if isinstance(own.direction, PolarDirection) else ExactPolarFactor()
        if own.scope != "heads" or not polar.converges:
            return None
        return UnitSteps(own.norm, False, last.rate, decays, isinstance(polar, ExactPolarFactor))
    # what these rules get has to be of length one: a sum of normalized gradients is not
    if not before or not isinstance(before[-1], Normalize):
        return None
    if isinstance(own, Steepest):
        return UnitSteps(own.norm, False, last.rate, decays, True)
    if isinstance(own, Descent) and before[-1].by == Lp(2.0):
        return UnitSteps(own.norm, before[-1].scope == "all", last.rate, decays, True)
    return None
