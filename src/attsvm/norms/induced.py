"""The norms of products KQ' that norms of the factors induce."""

from collections.abc import Callable

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms.base import Norm
from attsvm.norms.fused import FusedHeads, FusedKeysQueries
from attsvm.norms.gamma2 import Gamma2
from attsvm.norms.heads import SumOfHeads
from attsvm.norms.lifted import OnColumns, OnRows
from attsvm.norms.lp import Lp
from attsvm.norms.nu import Nu
from attsvm.norms.registry import parse_norm
from attsvm.norms.scaled import scaled
from attsvm.norms.schatten import Nuclear, Spectral

_induced: dict[tuple[Norm, str], Callable[[int], Norm]] = {
    (Lp(2.0), "heads"): lambda m: Nuclear(),
    (Lp(2.0), "fused"): lambda m: SumOfHeads(Nuclear()),
    (Lp(2.0), "kq"): lambda m: scaled(Nuclear(), 2.0),
    (Spectral(), "heads"): lambda m: Spectral(),
    (Spectral(), "fused"): lambda m: FusedHeads(),
    (Spectral(), "kq"): lambda m: FusedKeysQueries(),
    (OnRows(Lp(np.inf)), "heads"): lambda m: Gamma2(),
    (OnColumns(Lp(np.inf)), "heads"): lambda m: scaled(Nuclear(), 1 / m),
    (Lp(np.inf), "heads"): lambda m: scaled(Nu(), 1 / m),
}


def register_induced(norm: Norm, scope: str, make: Callable[[int], Norm]) -> None:
    """State the norm of products that a norm of factors induces, as a function of the number of columns."""
    _induced[norm, scope] = make


def induced_norm(norm: str | float | Norm, num_columns: int, scope: str = "heads") -> Norm:
    """The largest norm M of products with M(KQ') ≤ N(K) N(Q) for all factors.

    The spectral norm induces itself, the Frobenius norm the nuclear norm, the largest row (``"linf,2"``) γ2, the
    largest of m columns 1/m of the nuclear norm, and the largest entry ν/m. M(W) is the least N(K) N(Q) over
    factors of W with enough columns; for the largest entry it is the infimum over any number of columns.

    Parameters
    ----------
    norm : str, float or Norm
        N, the norm of K and of Q.
    num_columns : int
        m.
    scope : {"heads", "fused", "kq"}
        What N measures: K_h and Q_h of each head; [K_1 … K_H] and [Q_1 … Q_H], so that M is a norm of all heads; or
        [K, Q] of one head, where N([K, Q])² takes the place of N(K) N(Q).

    Returns
    -------
    Norm

    Raises
    ------
    ProblemError
        If it is not known.

    Examples
    --------
    >>> from attsvm.norms import induced_norm
    >>> induced_norm("frobenius", 4).name, induced_norm("linf", 4).name, induced_norm("spectral", 4, "fused").name
    ('nuclear', '0.25*nu', 'fused_heads')
    """
    norm = parse_norm(norm)
    make = _induced.get((norm, scope))
    if make is None:
        known = ", ".join(f"{known.name} ({of})" for known, of in _induced)
        raise ProblemError(
            f"norm: expected a norm of factors whose norm of products is known, {known}, got {norm.name} ({scope})"
        )
    return make(num_columns)
