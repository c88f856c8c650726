"""The norm on W = KQ' that steps on keys and queries induce, with which they are compared.

Steepest descent in max(N(K), N(Q)) is conjectured to maximise the margin in the least max(N(K), N(Q))² over W = KQ'.
Steps that change logits by much more than 1 serve one support token each, whose gradient has rank one: they are
compared with the nuclear norm, unless they were measured not to converge to its Att-SVM.
"""

import numpy as np

from attsvm.norms import Lp, MaxOfHeads, Norm, Nuclear, OnColumns, OnRows, Spectral, SumOfHeads
from attsvm.norms.factors import Gamma2, Nu, induced_norm
from attsvm.optimizers.limit import Limit

SHORT = 1.5
"""The change of a logit in a step up to which the induced norm was measured."""

CROSSOVER = 30.0
"""The change from which spectral steps end at a larger margin ratio in the nuclear norm than in their own."""

_OF_FACTORS = Spectral(), Lp(np.inf), OnRows(Lp(np.inf)), OnColumns(Lp(np.inf))
INDUCED: dict[Norm, Norm] = {norm: induced_norm(norm, num_columns=1) for norm in _OF_FACTORS}
"""The least max(N(K), N(Q))² over W = KQ', as a norm of W, for norms N of steps on K and Q; without the factor 1/m."""

_NOT_NUCLEAR: frozenset[Norm] = frozenset({Gamma2(), Nu()})
"""The norms whose steps were measured not to converge to the nuclear Att-SVM when they are long."""

AS_SHIPPED = Limit(None, "muon as shipped")
"""Muon whose polar factor does not converge."""

_FAR = Limit(None, "adam, long")
BY_ADAM = Limit(
    Nu(),
    "adam",
    logit_change=CROSSOVER,
    beyond=_FAR,
    several=Limit(MaxOfHeads(Nu()), "adam", logit_change=CROSSOVER, beyond=_FAR),
)


def on_factors(norm: Norm | None, of_heads: Norm | None = None) -> Limit:
    """The limit of steps on factors, which depends on how far a step changes the logits.

    ``norm``: the norm of W that the steps induce; None if it is not known. ``of_heads``: that of the weights of several
    heads together.
    """
    several = Limit(None) if of_heads is None else _by_length(of_heads, SumOfHeads(Nuclear()))
    of_one = Limit(None) if norm is None else _by_length(norm, Nuclear())
    return Limit(of_one.norm, of_one.steps, logit_change=of_one.logit_change, beyond=of_one.beyond, several=several)


def of_each_head(norm: Norm | None) -> Limit:
    """The limit of steps on each factor of each head by itself."""
    return on_factors(norm, None if norm is None else MaxOfHeads(norm))


def _by_length(norm: Norm, of_long: Norm) -> Limit:
    beyond = Limit(None if norm in _NOT_NUCLEAR else of_long, f"{norm.name}, long")
    # steps of spectral descent that change a logit by 1 to 30 were measured to end between two norms
    middle = Limit(norm, f"{norm.name}, between", logit_change=CROSSOVER, beyond=beyond)
    return Limit(norm, f"{norm.name}, short", logit_change=SHORT, beyond=middle)
