"""Optimizers that the factories of the package do not make."""

from attsvm.optimizers import chain, rule_of
from attsvm.optimizers.rule import DecoupledWeightDecay


def with_decay(optimizer, decay):
    """The steps of an optimizer that is a chain, with decoupled weight decay."""
    of = rule_of(optimizer)
    return chain(*of.parts, DecoupledWeightDecay(of.rule, decay))
