"""The parametrizations that are known by name, and how ``attention=`` is read."""

from attsvm._utils.extensions import Registry, did_you_mean, kind_check
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.training.attention.base import Attention

ATTENTIONS: Registry[type[Attention]] = Registry(
    "attention", group="attsvm.attentions", package="attsvm.training.attention", check=kind_check(Attention)
)


def parse_attention(name: str | None, problem: Problem, rank: int | None) -> Attention:
    """Read ``attention`` and ``rank``, and check that they fit the problem.

    Raises ProblemError if the name is unknown, the problem has no queries for W or (K, Q) or has some for a prompt, it
    has groups of heads for another parametrization than (K, Q), or a rank is given for one.
    """
    if name is None:
        of_queries = "combined" if problem.key_groups is None else "factored"
        name = of_queries if problem.has_queries else "prompt"
    if name not in ATTENTIONS:
        meant = did_you_mean(str(name), ATTENTIONS.names())
        raise ProblemError(f"attention: expected {', '.join(ATTENTIONS.names())}, got {name!r}{meant}")
    return ATTENTIONS.find(name).of(problem, rank)
