"""The Att-SVM that the steps of an optimizer are compared with, under each attention.

Steepest descent in max(N(K), N(Q)) is conjectured to maximise the margin in the least max(N(K), N(Q))² over W = KQ'.
Steps that change logits by much more than 1 serve one support token each, whose gradient has rank one: they are
compared with the nuclear norm, unless they were measured not to converge to its Att-SVM.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from attsvm.norms import Lp, MaxOfHeads, Norm, Nuclear, OnColumns, OnRows, Spectral, SumOfHeads, read_norm, written_norm
from attsvm.norms.factors import Gamma2, Nu, induced_norm

# of weights of bounded rank, the heads are solved one by one
_OF_EACH_HEAD: Mapping[Norm, Norm] = {SumOfHeads(Nuclear()): Nuclear(), MaxOfHeads(Nuclear()): Nuclear()}

UNNAMED = "unnamed"
"""The kind of steps about which nothing is known."""


@dataclass(frozen=True)
class Limit:
    """The Att-SVM whose direction the weights of an optimizer are expected to take.

    How well that is known is in the table of standings of :mod:`attsvm.theory`, which lists kinds of steps by name.

    Attributes
    ----------
    norm : Norm or None
        The norm that the Att-SVM minimises; None if it is not known.
    steps : str
        The kind of steps, by its name in the table of standings.
    rank : int or None
        The largest rank that the weights can have, where the attention restricts it.
    logit_change : float or None
        The largest change of a logit in a step for which this holds; None if it does not depend on it.
    beyond : Limit or None
        The limit after longer steps.
    several : Limit or None
        The limit of several attention heads together; by default each is as a single one.

    See Also
    --------
    attsvm.predict_direction : Says how well the limit of a run is known.

    Examples
    --------
    >>> from attsvm.optimizers import mirror_descent
    >>> limit = mirror_descent(p=1.75).limit("combined")
    >>> limit.norm.name, limit.steps
    ('l1.75', 'normalized mirror descent')
    """

    norm: Norm | None
    steps: str = UNNAMED
    rank: int | None = None
    logit_change: float | None = None
    beyond: "Limit | None" = None
    several: "Limit | None" = None

    def at(self, logit_change: float | None) -> "Limit":
        """The limit of steps that change a logit by this much, or, for None, by an unknown number."""
        if self.beyond is None or self.logit_change is None or logit_change is None:
            return self
        return self if logit_change <= self.logit_change else self.beyond.at(logit_change)

    def of_heads(self, number: int | None) -> "Limit":
        """The limit of this number of attention heads together, None for a problem without their axis."""
        return self if number is None or self.several is None else self.several

    def of_rank(self, rank: int | None, queries: int) -> "Limit":
        """The same for weights of at most this rank, after steps of any length, of one or several heads.

        A norm with N(WV) = N(W) for orthogonal V has a solution whose rank is at most the number of queries: its rows
        can be projected onto their span.
        """
        beyond, several = (None if x is None else x.of_rank(rank, queries) for x in (self.beyond, self.several))
        everywhere = replace(self, beyond=beyond, several=several)
        if rank is None or (self.norm is not None and self.norm.right_invariant and rank >= queries):
            return everywhere
        norm = None if self.norm is None else _OF_EACH_HEAD.get(self.norm, self.norm)
        return replace(everywhere, norm=norm, rank=rank)


def written_limit(limit: Limit) -> dict[str, Any]:
    """A limit as JSON-able data."""
    written = {field.name: getattr(limit, field.name) for field in fields(limit)}
    written |= {name: written_limit(written[name]) for name in ("beyond", "several") if written[name] is not None}
    return written | {"norm": None if limit.norm is None else written_norm(limit.norm)}


def read_limit(written: dict[str, Any]) -> Limit:
    """The limit that :func:`written_limit` wrote, and those of version 0.2, which named no kind of steps."""
    found = {field.name: written[field.name] for field in fields(Limit) if field.name in written}
    found |= {name: read_limit(found[name]) for name in ("beyond", "several") if found.get(name) is not None}
    return Limit(**(found | {"norm": None if found["norm"] is None else read_norm(found["norm"])}))


Limits = Mapping[str, Limit]
"""The limit for each attention: "combined", "prompt", "factored", "key_prompt"."""


def limits_of(norm: Norm | None, steps: str = UNNAMED) -> Limits:
    """The limits of steps in a norm.

    In a product of parameters, half the sum of their squared norms is at least the nuclear norm of KQ', and the ℓ2 norm
    of Wp; for other norms than the Euclidean one, nothing is known.
    """
    of_matrix, of_vector = (Nuclear(), Lp(2.0)) if norm == Lp(2.0) else (None, None)
    return {
        "combined": Limit(norm, steps),
        "prompt": Limit(norm, steps),
        "factored": Limit(of_matrix, steps),
        "key_prompt": Limit(of_vector, steps),
    }


def euclidean(steps: str, scope: str = "all") -> Limits:
    """The limits of gradient descent, whose gradients are normalized over this scope, if at all."""
    limits = limits_of(Lp(2.0), steps)
    if scope == "each":
        return {**limits, "factored": Limit(Nuclear(), f"{steps}, each factor")}
    return {**limits, "factored": Limit(Nuclear(), steps, several=Limit(SumOfHeads(Nuclear()), steps))}


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
