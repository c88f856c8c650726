"""What is known about the direction that an optimizer converges to."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from attsvm.norms import Lp, MaxOfHeads, Norm, Nuclear, SumOfHeads, read_norm, written_norm

TOKEN_SELECTION = "Tarzanagh, Li, Zhang and Oymak (2023), Max-Margin Token Selection in Attention Mechanism"
TRANSFORMERS = "Tarzanagh, Li, Thrampoulidis and Oymak (2023), Transformers as Support Vector Machines"
MIRROR_DESCENT = "Julistiono, Tarzanagh and Azizan (2025), Optimizing Attention with Mirror Descent"

FEW_COLUMNS = "no theorem; fewer columns than the rank of the solution may need: a KKT point at most"

# of weights of bounded rank, the heads are solved one by one
_OF_EACH_HEAD: Mapping[Norm, Norm] = {SumOfHeads(Nuclear()): Nuclear(), MaxOfHeads(Nuclear()): Nuclear()}


class Standing(StrEnum):
    """How well a statement about a limit direction is known.

    See Also
    --------
    attsvm.optimizers.Limit, attsvm.Prediction

    Examples
    --------
    >>> from attsvm.optimizers import Standing, gradient_descent
    >>> gradient_descent(0.1).limit("combined").standing
    <Standing.PROVED: 'proved'>
    >>> [standing.value for standing in Standing]
    ['proved', 'measured', 'conjecture']
    """

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
        What is known of several attention heads together; by default it is a conjecture that each is as a single one.
    few_columns : str or None
        The source for weights of a lower rank than the solution may need; None if nothing was measured.
    trained_head : str or None
        The source for attention that is trained with a linear head; None if nothing was measured.

    See Also
    --------
    attsvm.optimizers.Standing
    attsvm.predict_direction

    Examples
    --------
    >>> from attsvm.optimizers import mirror_descent
    >>> limit = mirror_descent(p=1.75).limit("combined")
    >>> limit.norm.name, limit.standing
    ('l1.75', <Standing.PROVED: 'proved'>)
    """

    norm: Norm | None
    standing: Standing = Standing.CONJECTURE
    source: str = "no theorem; by analogy with the implicit bias of linear models"
    rank: int | None = None
    logit_change: float | None = None
    beyond: "Limit | None" = None
    several: "Limit | None" = None
    few_columns: str | None = None
    trained_head: str | None = None

    def at(self, logit_change: float | None) -> "Limit":
        """What is known of steps that change a logit by this much, or, for None, by an unknown number."""
        if self.beyond is None or self.logit_change is None:
            return self
        if logit_change is None:
            source = f"the changes of logits are not known; for short steps: {self.source}"
            return replace(self, standing=Standing.CONJECTURE, source=source)
        return self if logit_change <= self.logit_change else self.beyond.at(logit_change)

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
        if self.few_columns is None:
            standing, source = Standing.CONJECTURE, f"{FEW_COLUMNS}; with enough columns: {self.source}"
        else:
            standing, source = self.standing, self.few_columns
        return replace(everywhere, norm=norm, rank=rank, standing=standing, source=source)

    def of_each_head(self) -> "Limit":
        """The same for several heads, of which nothing was measured."""
        beyond = None if self.beyond is None else self.beyond.of_each_head()
        source = f"several heads: not measured; one head: {self.source}"
        return replace(self, standing=Standing.CONJECTURE, source=source, beyond=beyond)


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
    measured = Limit(Nuclear(), Standing.MEASURED, source, several=joint, few_columns=source)
    of_prompt = f"{TOKEN_SELECTION}: proved for the regularization path of u = Wp; measured for gradient descent"
    head = f"{TOKEN_SELECTION}: proved for the regularization path of head and attention; measured for training"
    of_one = f"{TRANSFORMERS}: local convergence"
    of_several = Limit(Lp(2.0), Standing.MEASURED, f"several heads: measured; one head: {of_one}")
    return {
        "combined": Limit(Lp(2.0), Standing.PROVED, of_one, several=of_several, trained_head=head),
        "prompt": Limit(Lp(2.0), Standing.PROVED, f"{TOKEN_SELECTION}: local convergence", trained_head=head),
        "factored": measured if scope == "all" else _PER_FACTOR,
        "key_prompt": Limit(Lp(2.0), Standing.MEASURED, of_prompt, trained_head=head),
    }


def mirrored(p: float, scope: str = "all") -> Limits:
    """The limits of ℓp mirror descent, whose gradients are normalized over this scope, if at all."""
    head = f"{MIRROR_DESCENT}: joint mirror descent"
    proved = Limit(Lp(p), Standing.PROVED, f"{MIRROR_DESCENT}: convergence in direction", trained_head=head)
    limits = {**conjectured(Lp(p)), "combined": proved, "prompt": proved}
    return {**limits, "factored": _PER_FACTOR} if scope == "each" and limits["factored"].norm is not None else limits
