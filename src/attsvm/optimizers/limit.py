"""The Att-SVM that the steps of an optimiser are compared with, under each attention.

Short steps of steepest descent in max(N(K), N(Q)) are conjectured to maximise the margin in the least
max(N(K), N(Q))² over W = KQ'. What was measured, of long steps too, is in the table of :mod:`attsvm.theory`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attsvm.norms import (
    Lp,
    MaxOfHeads,
    Norm,
    Nuclear,
    OnColumns,
    OnRows,
    Rotary,
    Spectral,
    SumOfHeads,
    factors,
    read_norm,
    written_norm,
)
from attsvm.optimizers.steps import Steps, read_steps, written_steps
from attsvm.results import shared

# of weights of bounded rank, the heads are solved one by one
_OF_EACH_HEAD: Mapping[Norm, Norm] = {SumOfHeads(Nuclear()): Nuclear(), MaxOfHeads(Nuclear()): Nuclear()}

# by N, the least max(N(K), N(Q))² over W = KQ' as a norm of W, without the factor 1/m
_INDUCED: Mapping[Norm | None, Norm] = {
    norm: factors.induced_norm(norm, num_columns=1)
    for norm in (Spectral(), Lp(np.inf), OnRows(Lp(np.inf)), OnColumns(Lp(np.inf)))
}
# by N and scope, what N of fused factors induces, where it is known: of several heads side by side, or of K and Q
_FUSED: Mapping[tuple[Norm | None, str, bool], Norm] = {
    (Spectral(), "fused", True): factors.FusedHeads(),
    (Spectral(), "kq", False): factors.FusedKeysQueries(),
}
# by parametrization, the norm of the weights that half the sum of squares of their parameters is at least
_OF_SQUARES: Mapping[str, Norm] = {"factored": Nuclear(), "key_prompt": Lp(2.0), "gain": OnRows(Lp(1.0))}


@dataclass(frozen=True)
class Limit:
    """The Att-SVM to whose direction the weights are expected to converge under an optimiser.

    The table of measurements in :mod:`attsvm.theory` has its level of evidence, by the steps.

    Attributes
    ----------
    norm : Norm or None
        The norm that the Att-SVM minimises, for steps on factors that of short ones; None if it is not known.
    steps : Steps
        The steps on these parameters.
    rank : int or None
        The largest rank that the weights can have, where the attention restricts it.

    See Also
    --------
    attsvm.predict_direction : Says how well the limit of a run is known.

    Examples
    --------
    >>> from attsvm.optimizers import mirror_descent
    >>> limit = mirror_descent(p=1.75).limit("combined")
    >>> limit.norm.name, limit.steps.kind
    ('l1.75', 'mirror')
    """

    norm: Norm | None
    steps: Steps = field(default_factory=Steps)
    rank: int | None = None


def limit_of(
    steps: Steps,
    attention: str,
    heads: int | None = None,
    key_groups: int | None = None,
    *,
    rank: int | None = None,
    queries: int = 0,
    layers: bool = False,
    frequencies: int | None = None,
) -> Limit:
    """The limit of steps on the parameters of an attention.

    ``heads``: None for a problem without their axis. ``key_groups``: g, where the heads of a group share K. ``rank``:
    that of the weights, if the attention restricts it, with the number of ``queries``. ``layers``: whether there are
    several. ``frequencies``: the number of those of rotary attention; without it its norm is not known.
    """
    several, shared, scope = heads is not None, key_groups not in (None, heads), steps.scope
    if scope in ("fused", "kq") and not several and (scope == "fused" or attention != "factored"):
        scope = "heads"  # it is one matrix
    if scope == "each" and attention not in ("factored", "gain", "rotary") and not layers:
        scope = "all"  # it is one parameter
    steps = replace(steps, scope=scope, shared_keys=shared)
    norm, by_length = _norm_of(steps, attention, several, frequencies)
    norm, rank = bounded(norm, rank, queries)
    if shared:
        return Limit(None if rank is not None else _of_groups(norm, key_groups), steps, rank)
    return Limit(norm, replace(steps, factors="any" if by_length else "no"), rank)


def _norm_of(steps: Steps, attention: str, several: bool, frequencies: int | None = None) -> tuple[Norm | None, bool]:
    """The norm of the Att-SVM of W, p, KQ', diag(g) W or Wp, and whether it is that of short steps only.

    In a product of parameters, half the sum of their squared norms is at least the nuclear norm of KQ', the sum of
    those of the complex matrices of rotated K and Q, Σ_r ‖row r‖ of diag(g) W, and the ℓ2 norm of Wp; for other norms
    than the Euclidean one nothing is known of plain sums.
    """
    euclidean = steps.norm == Lp(2.0)
    if attention in ("combined", "prompt"):
        # no norm of the heads side by side is among those of an Att-SVM
        return (None if steps.scope in ("fused", "kq") else steps.norm), False
    together = several and steps.kind in ("gradient", "log gradient") and steps.scope == "all"
    of_squares = _OF_SQUARES.get(attention) if euclidean else None
    if attention == "rotary" and euclidean and frequencies is not None:
        of_squares = Rotary(frequencies)
    if attention in ("gain", "rotary"):
        known = None if steps.scope == "each" else of_squares
        return (SumOfHeads(known) if known and together else known), False
    if attention == "key_prompt":
        return of_squares, False
    if attention != "factored" or steps.kind == "muon":
        return None, False
    if steps.kind == "bilinear":
        return steps.norm, False
    if steps.scope in ("fused", "kq"):
        of_fused = _FUSED.get((steps.norm, steps.scope, several))
        return of_fused, of_fused is not None
    of_each = _INDUCED.get(steps.norm) if steps.kind in ("adam", "steepest") else None
    if of_each is not None:
        return (MaxOfHeads(of_each) if several else of_each), True
    return (SumOfHeads(of_squares) if of_squares and together else of_squares), False


def _of_groups(norm: Norm | None, number: int | None) -> Norm | None:
    """The norm of heads in groups which share K, from that of heads with a K for each; None if it is not known.

    The product of K and of all Q_h below each other is [W_1 … W_G]. The largest row or entry of all Q_h, and their sum
    of squares, are those of this one factor, so [W_1 … W_G] takes the place of W. The least maximum of the spectral
    norms of K and of each Q_h is still the largest ‖W_h‖, because K = I has the norm 1.
    """
    if norm == MaxOfHeads(Spectral()):
        return norm
    if norm in (SumOfHeads(Nuclear()), MaxOfHeads(factors.Gamma2()), MaxOfHeads(factors.Nu())):
        return replace(norm, num_groups=number)
    return None


def bounded(norm: Norm | None, rank: int | None, queries: int) -> tuple[Norm | None, int | None]:
    """The norm and the rank of the Att-SVM for weights of at most this rank.

    A norm with N(WV) = N(W) for orthogonal V has a solution whose rank is at most the number of queries: its rows can
    be projected onto their span.
    """
    if rank is None or (norm is not None and norm.right_invariant and rank >= queries):
        return norm, None
    return (None if norm is None else _OF_EACH_HEAD.get(norm, norm)), rank


def limit_field() -> Any:
    """The field of a result that is a limit."""
    return shared(write=written_limit, read=read_limit)


def written_limit(limit: Limit) -> dict[str, Any]:
    """A limit as JSON-able data."""
    norm = None if limit.norm is None else written_norm(limit.norm)
    return {"norm": norm, "steps": written_steps(limit.steps), "rank": limit.rank}


def read_limit(written: dict[str, Any]) -> Limit:
    """The limit that :func:`written_limit` wrote."""
    norm = None if written["norm"] is None else read_norm(written["norm"])
    return Limit(norm, read_steps(written["steps"]), written.get("rank"))
