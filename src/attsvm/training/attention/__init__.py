"""Parametrizations of the logits, one file each: W, the factors (K, Q), or a prompt p."""

from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.training.attention.base import AnyArray, Attention, Data, Parameters
from attsvm.training.attention.combined import Combined
from attsvm.training.attention.factored import Factored
from attsvm.training.attention.prompt import Prompt

__all__ = ["AnyArray", "Attention", "Combined", "Data", "Factored", "Parameters", "Prompt", "parse_attention"]

ATTENTIONS: dict[str, type[Attention]] = {kind.name: kind for kind in (Combined, Factored, Prompt)}


def parse_attention(name: str | None, problem: Problem, rank: int | None) -> Attention:
    """Read ``attention`` and ``rank``, and check that they fit the problem.

    Raises
    ------
    ProblemError
        If the name is unknown, the problem has no queries for W or (K, Q) or has some for a prompt, or a rank is
        given for another parametrization.
    """
    name = ("combined" if problem.has_queries else "prompt") if name is None else name
    if name not in ATTENTIONS:
        raise ProblemError(f"attention: expected {', '.join(ATTENTIONS)}, got {name!r}")
    return ATTENTIONS[name].of(problem, rank)
