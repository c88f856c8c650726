"""The norms of products KQ' that norms of the factors induce."""

from collections.abc import Callable

import numpy as np

from attsvm._utils.checks import check_integer
from attsvm.errors import ProblemError
from attsvm.norms.attention_heads import MaxOfHeads, SumOfHeads
from attsvm.norms.base import Norm
from attsvm.norms.factors.fused import FusedHeads, FusedKeysQueries
from attsvm.norms.factors.gamma2 import Gamma2
from attsvm.norms.factors.nu import Nu
from attsvm.norms.lifted import OnColumns, OnRows
from attsvm.norms.lp import Lp
from attsvm.norms.registry import parse_norm
from attsvm.norms.scaled import scaled
from attsvm.norms.singular_values import Nuclear, Spectral

_of_one_head: dict[tuple[Norm, str], Callable[[int], Norm]] = {
    (Lp(2.0), "heads"): lambda m: Nuclear(),
    (Lp(2.0), "kq"): lambda m: scaled(Nuclear(), 2.0),
    (Spectral(), "heads"): lambda m: Spectral(),
    (Spectral(), "kq"): lambda m: FusedKeysQueries(),
    (OnRows(Lp(np.inf)), "heads"): lambda m: Gamma2(),
    (OnColumns(Lp(np.inf)), "heads"): lambda m: scaled(Nuclear(), 1 / m),
    (Lp(np.inf), "heads"): lambda m: scaled(Nu(), 1 / m),
}

_of_all_heads: dict[tuple[Norm, str], Callable[[int], Norm]] = {
    (Lp(2.0), "fused"): lambda m: SumOfHeads(Nuclear()),
    (Lp(2.0), "kq"): lambda m: SumOfHeads(scaled(Nuclear(), 2.0)),
    (Spectral(), "fused"): lambda m: FusedHeads(),
}


def induced_norm(
    norm: str | float | Norm, num_columns: int, scope: str = "heads", num_heads: int | None = None
) -> Norm:
    """Return the largest norm M of products with M(KQ') ≤ N(K) N(Q) for all factors of m columns.

    The spectral norm induces itself, the Frobenius norm the nuclear norm, the largest row (``"linf,2"``) γ2, the
    largest column 1/m of the nuclear norm, and the largest entry ν/m. M(W) is the least N(K) N(Q) over factors of W, if
    m is large enough. This does not hold for the largest entry: ν(W) is the infimum of m N(K) N(Q) over all m.

    Parameters
    ----------
    norm : str, float or Norm
        N, the norm of K and of Q.
    num_columns : int
        m.
    scope : {"heads", "fused", "kq"}
        What N measures: K_h and Q_h of each head; [K_1 … K_H] and [Q_1 … Q_H]; or [K_1 … Q_H], where N([K_1 … Q_H])²
        takes the place of N(K) N(Q).
    num_heads : int, optional
        H. M is then a norm of the weights of all heads; for the scope "heads" it is the largest norm of a head.
        None is for the weights of one head, for which "fused" is the same as "heads".

    Returns
    -------
    Norm

    Raises
    ------
    ProblemError
        If an argument does not fit, or if M is not known. It is not known for the spectral norm of [K_1 … Q_H] with
        several heads.

    See Also
    --------
    attsvm.norms.Nuclear, attsvm.norms.factors.Gamma2, attsvm.norms.factors.Nu

    Examples
    --------
    >>> from attsvm.norms.factors import induced_norm
    >>> induced_norm("frobenius", 4).name, induced_norm("linf", 4).name
    ('nuclear', '0.25*nu')
    >>> induced_norm("spectral", 4, "fused", num_heads=2).name, induced_norm("frobenius", 4, "kq", num_heads=2).name
    ('fused_heads', 'sum over heads of 2*nuclear')
    """
    norm = parse_norm(norm)
    check_integer("num_columns", num_columns, 1)
    if scope not in ("heads", "fused", "kq"):
        raise ProblemError(f'scope: expected "heads", "fused" or "kq", got {scope!r}')
    one_head = num_heads is None or check_integer("num_heads", num_heads, 1) == 1
    table = _of_one_head if one_head or scope == "heads" else _of_all_heads
    what = "heads" if one_head and scope == "fused" else scope
    if (norm, what) not in table:
        known = ", ".join(each.name for each, of in table if of == what)
        heads = "" if num_heads is None else f" and {num_heads} attention heads"
        raise ProblemError(
            f'norm: expected a norm of factors whose norm of products is known for scope "{scope}"{heads}, {known}, '
            f"got {norm.name}"
        )
    induced = table[norm, what](num_columns)
    return induced if num_heads is None or induced.head_axes else MaxOfHeads(induced)
