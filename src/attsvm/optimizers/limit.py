"""The Att-SVM that the steps of an optimizer are compared with, under each attention.

Short steps of steepest descent in max(N(K), N(Q)) are conjectured to maximise the margin in the least
max(N(K), N(Q))² over W = KQ'. What was measured, of long steps too, is in the table of :mod:`attsvm.theory`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attsvm.norms import (
    Lp,
    MaxOfHeads,
    Norm,
    Nuclear,
    OnColumns,
    OnRows,
    Spectral,
    SumOfHeads,
    factors,
    read_norm,
    written_norm,
)

# of weights of bounded rank, the heads are solved one by one
_OF_EACH_HEAD: Mapping[Norm, Norm] = {SumOfHeads(Nuclear()): Nuclear(), MaxOfHeads(Nuclear()): Nuclear()}

UNNAMED = "unnamed"
"""The kind of steps about which nothing is known."""

MOMENTUM = ", momentum"
"""How the kinds of steps end that follow a decaying sum of gradients."""

ON_FACTORS = " on factors"
"""How the kinds of steps end whose limit depends on how far a step changes the logits."""

SHARED_KEYS = ", shared keys"
"""How the kinds of steps end where attention heads share keys."""


@dataclass(frozen=True)
class Limit:
    """The Att-SVM whose direction the weights of an optimizer are expected to take.

    How well that is known is in the table of standings of :mod:`attsvm.theory`, which lists kinds of steps by name.

    Attributes
    ----------
    norm : Norm or None
        The norm that the Att-SVM minimises, for steps on factors that of short ones; None if it is not known.
    steps : str
        The kind of steps, by its name in the table of standings. The table has several names for a kind that ends with
        "on factors", by how far a step changes the logits.
    rank : int or None
        The largest rank that the weights can have, where the attention restricts it.
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
    several: "Limit | None" = None

    def of_heads(self, number: int | None, key_groups: int | None = None) -> "Limit":
        """The limit of this number of attention heads together, None for a problem without their axis.

        ``key_groups``: g, where the heads of a group share K.
        """
        known = self if number is None or self.several is None else self.several
        return known if key_groups is None else known._of_groups(key_groups)

    def _of_groups(self, number: int) -> "Limit":
        """That of heads in groups which share K, from that of heads with a K for each.

        The product of K and of all Q_h below each other is [W_1 … W_G]. The largest row or entry of all Q_h, and their
        sum of squares, are those of this one factor, so [W_1 … W_G] takes the place of W. The least maximum of the
        spectral norms of K and of each Q_h is still the largest ‖W_h‖, because K = I has the norm 1.
        """
        if self.steps == UNNAMED:
            return Limit(None)
        momentum = MOMENTUM if self.steps.endswith(MOMENTUM) else ""
        steps = f"{self.steps.removesuffix(momentum).removesuffix(ON_FACTORS)}{SHARED_KEYS}{momentum}"
        if self.rank is not None or not isinstance(self.norm, SumOfHeads | MaxOfHeads):
            return Limit(None, steps)
        if self.norm == MaxOfHeads(Spectral()):
            return Limit(self.norm, steps)
        grouped = self.norm in (SumOfHeads(Nuclear()), MaxOfHeads(factors.Gamma2()), MaxOfHeads(factors.Nu()))
        return Limit(replace(self.norm, num_groups=number) if grouped else None, steps)

    def of_rank(self, rank: int | None, queries: int) -> "Limit":
        """The same for weights of at most this rank, of one or several heads.

        A norm with N(WV) = N(W) for orthogonal V has a solution whose rank is at most the number of queries: its rows
        can be projected onto their span.
        """
        of_each = replace(self, several=None if self.several is None else self.several.of_rank(rank, queries))
        if rank is None or (self.norm is not None and self.norm.right_invariant and rank >= queries):
            return of_each
        norm = None if self.norm is None else _OF_EACH_HEAD.get(self.norm, self.norm)
        return replace(of_each, norm=norm, rank=rank)


def written_limit(limit: Limit) -> dict[str, Any]:
    """A limit as JSON-able data."""
    return {
        "norm": None if limit.norm is None else written_norm(limit.norm),
        "steps": limit.steps,
        "rank": limit.rank,
        "several": None if limit.several is None else written_limit(limit.several),
    }


def read_limit(written: dict[str, Any]) -> Limit:
    """The limit that :func:`written_limit` wrote, and those of version 0.2.

    Those had limits of longer steps in them, and named the kind of steps by its length, or not at all.
    """
    norm, several = written["norm"], written.get("several")
    read = None if norm is None else read_norm(norm)
    steps = written.get("steps", UNNAMED)
    if read is not None and written.get("beyond") is not None:
        steps = f"{steps if steps == 'adam' else read.name}{ON_FACTORS}"
    return Limit(read, steps, written.get("rank"), None if several is None else read_limit(several))


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


def with_momentum(limits: Limits) -> Limits:
    """The same limits, of steps along a decaying sum of gradients; nothing is known of kinds without a name."""

    def named(limit: Limit) -> Limit:
        steps = limit.steps if limit.steps == UNNAMED else f"{limit.steps}{MOMENTUM}"
        return replace(limit, steps=steps, several=None if limit.several is None else named(limit.several))

    return {attention: named(limit) for attention, limit in limits.items()}


def euclidean(steps: str, scope: str = "all") -> Limits:
    """The limits of gradient descent, whose gradients are normalized over this scope, if at all."""
    limits = limits_of(Lp(2.0), steps)
    if scope == "each":
        return {**limits, "factored": Limit(Nuclear(), f"{steps}, each factor")}
    return {**limits, "factored": Limit(Nuclear(), steps, several=Limit(SumOfHeads(Nuclear()), steps))}


_OF_FACTORS = Spectral(), Lp(np.inf), OnRows(Lp(np.inf)), OnColumns(Lp(np.inf))


def induced(norm: Norm) -> Norm | None:
    """The least max(N(K), N(Q))² over W = KQ', as a norm of W without the factor 1/m; None if it is not known."""
    return factors.induced_norm(norm, num_columns=1) if norm in _OF_FACTORS else None


AS_SHIPPED = Limit(None, "muon as shipped")
"""Muon whose polar factor does not converge."""


def on_factors(norm: Norm | None, of_heads: Norm | None = None) -> Limit:
    """The limit of steps on factors.

    ``norm``: the norm of W that short steps induce; None if it is not known. ``of_heads``: that of the weights of
    several heads together.
    """
    several = Limit(None) if of_heads is None else Limit(of_heads, f"{of_heads.name}{ON_FACTORS}")
    return Limit(None, several=several) if norm is None else Limit(norm, f"{norm.name}{ON_FACTORS}", several=several)


def of_each_head(norm: Norm | None) -> Limit:
    """The limit of steps on each factor of each head by itself."""
    return on_factors(norm, None if norm is None else MaxOfHeads(norm))
