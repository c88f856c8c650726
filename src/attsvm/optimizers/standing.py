"""What is known about the direction that an optimizer converges to."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from attsvm.norms import Lp, Norm, Nuclear, SumOfHeads, read_norm, written_norm

TOKEN_SELECTION = "Tarzanagh, Li, Zhang and Oymak (2023), Max-Margin Token Selection in Attention Mechanism"
TRANSFORMERS = "Tarzanagh, Li, Thrampoulidis and Oymak (2023), Transformers as Support Vector Machines"
MIRROR_DESCENT = "Julistiono, Tarzanagh and Azizan (2025), Optimizing Attention with Mirror Descent"


class Standing(StrEnum):
    """How well a statement about a limit direction is known."""

    PROVED = "proved"
    """A theorem covers it."""

    MEASURED = "measured"
    """Experiments agree with it. A theorem may cover the regularization path, but not the iterates."""

    CONJECTURE = "conjecture"
    """It is expected by analogy."""


@dataclass(frozen=True)
class Limit:
    """The Att-SVM that an optimizer is expected to converge to.

    Attributes
    ----------
    norm : Norm or None
        The norm that the Att-SVM minimises; None if it is not known.
    standing : Standing
    source : str
        Where the statement comes from.
    rank : int or None
        The largest rank that the weights can have, where the attention restricts it.
    logit_change : float or None
        The largest change of a logit in a step for which this holds; None if it does not depend on it.
    beyond : Limit or None
        What is known of longer steps.
    several : Limit or None
        What is known of several attention heads together; by default each head by itself is as a single one.
    """

    norm: Norm | None
    standing: Standing = Standing.CONJECTURE
    source: str = "no theorem; by analogy with the implicit bias of linear models"
    rank: int | None = None
    logit_change: float | None = None
    beyond: "Limit | None" = None
    several: "Limit | None" = None

    def at(self, logit_change: float) -> "Limit":
        """What is known of steps that change a logit by this much."""
        if self.beyond is None or self.logit_change is None or logit_change <= self.logit_change:
            return self
        return self.beyond.at(logit_change)

    def of_rank(self, rank: int | None) -> "Limit":
        """The same for weights of at most this rank, after steps of any length, of one or several heads."""
        beyond, several = (None if part is None else part.of_rank(rank) for part in (self.beyond, self.several))
        # the nuclear Att-SVM of bounded rank is that of each head by itself
        bounded = rank is not None and self.norm == Nuclear()
        return replace(self, rank=rank, beyond=beyond, several=None if bounded else several)


def written_limit(limit: Limit) -> dict[str, Any]:
    """A limit as JSON-able data."""
    written = {field.name: getattr(limit, field.name) for field in fields(limit)}
    written |= {name: written_limit(written[name]) for name in ("beyond", "several") if written[name] is not None}
    norm = None if limit.norm is None else written_norm(limit.norm)
    return written | {"norm": norm, "standing": limit.standing.value}


def read_limit(written: dict[str, Any]) -> Limit:
    """The limit that :func:`written_limit` wrote, and those of earlier versions."""
    found = dict(written)
    found |= {name: read_limit(found[name]) for name in ("beyond", "several") if found.get(name) is not None}
    norm = None if found["norm"] is None else read_norm(found["norm"])
    return Limit(**(found | {"norm": norm, "standing": Standing(found["standing"])}))


Limits = Mapping[str, Limit]
"""The limit for each attention: "combined", "prompt", "factored", "key_prompt"."""


def conjectured(norm: Norm | None) -> Limits:
    """The limits of an optimizer about which no theorem is known.

    In a product of parameters, half the sum of their squared norms is at least the nuclear norm of KQ', and the ℓ2 norm
    of Wp; for other norms than the Euclidean one, nothing is known.
    """
    of_matrix, of_vector = (Nuclear(), Lp(2.0)) if norm == Lp(2.0) else (None, None)
    return {
        "combined": Limit(norm),
        "prompt": Limit(norm),
        "factored": Limit(of_matrix),
        "key_prompt": Limit(of_vector),
    }


_PER_FACTOR = Limit(
    Nuclear(),
    Standing.CONJECTURE,
    "no theorem; measured: with each factor normalized by itself, runs end off this solution unless steps are short",
)


def euclidean(scope: str = "all") -> Limits:
    """The limits of gradient descent, whose gradients are normalized over this scope, if at all."""
    source = f"{TRANSFORMERS}: proved for the regularization path; measured for gradient descent"
    of_heads = (
        "no theorem for several heads; measured: margin ratio 0.9997 / 0.9996 on 12 problems with 2 heads, steps "
        "relative to the norm"
    )
    joint = Limit(SumOfHeads(Nuclear()), Standing.MEASURED, of_heads)
    measured = Limit(Nuclear(), Standing.MEASURED, source, several=joint)
    of_prompt = f"{TOKEN_SELECTION}: proved for the regularization path of u = Wp; measured for gradient descent"
    return {
        "combined": Limit(Lp(2.0), Standing.PROVED, f"{TRANSFORMERS}: local convergence"),
        "prompt": Limit(Lp(2.0), Standing.PROVED, f"{TOKEN_SELECTION}: local convergence"),
        "factored": measured if scope == "all" else _PER_FACTOR,
        "key_prompt": Limit(Lp(2.0), Standing.MEASURED, of_prompt),
    }


def mirrored(p: float, scope: str = "all") -> Limits:
    """The limits of ℓp mirror descent, whose gradients are normalized over this scope, if at all."""
    proved = Limit(Lp(p), Standing.PROVED, f"{MIRROR_DESCENT}: convergence in direction")
    limits = {**conjectured(Lp(p)), "combined": proved, "prompt": proved}
    return {**limits, "factored": _PER_FACTOR} if scope == "each" and limits["factored"].norm is not None else limits
