"""Parametrizations of the logits.

They are W, the factors (K, Q), plain or rotated, a gain and W, a prompt p, or a prompt with keys (W, p).
"""

from attsvm._utils.extensions import did_you_mean
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.training.attention.base import AnyArray as AnyArray
from attsvm.training.attention.base import Attention as Attention
from attsvm.training.attention.base import Parameters as Parameters
from attsvm.training.attention.base import ProblemData as ProblemData
from attsvm.training.attention.base import ReducedProblem as ReducedProblem
from attsvm.training.attention.combined import CombinedAttention as CombinedAttention
from attsvm.training.attention.factored import FactoredAttention as FactoredAttention
from attsvm.training.attention.gain import GainAttention
from attsvm.training.attention.prompts import KeyPromptAttention as KeyPromptAttention
from attsvm.training.attention.prompts import PromptTuningAttention as PromptTuningAttention
from attsvm.training.attention.rotary import RotaryAttention

ATTENTIONS: dict[str, type[Attention]] = {
    kind.name: kind
    for kind in (
        CombinedAttention,
        FactoredAttention,
        GainAttention,
        RotaryAttention,
        PromptTuningAttention,
        KeyPromptAttention,
    )
}


def parse_attention(name: str | None, problem: Problem, rank: int | None) -> Attention:
    """Read ``attention`` and ``rank``, and check that they fit the problem.

    Raises ProblemError if the name is unknown, the problem has no queries for W or (K, Q) or has some for a prompt, it
    has groups of heads for another parametrization than (K, Q), or a rank is given for one.
    """
    if name is None:
        of_queries = "combined" if problem.key_groups is None else "factored"
        name = of_queries if problem.has_queries else "prompt"
    if name not in ATTENTIONS:
        meant = did_you_mean(str(name), ATTENTIONS)
        raise ProblemError(f"attention: expected {', '.join(ATTENTIONS)}, got {name!r}{meant}")
    return ATTENTIONS[name].of(problem, rank)
