"""Causal tests of the largest reasons of an explanation, on held-out sequences."""

from collections.abc import Callable
from typing import Any, NamedTuple

from attsvm._utils.progress import in_draws
from attsvm.errors import ProblemError
from attsvm.inspect.causal import CONTROLS, CausalTest, Running
from attsvm.inspect.explanation import Explanation, OriginPair, reason_of

MOST = 3
"""Reasons that are tested."""

LEAST_SHARE = 0.05
"""Share of the decision margin of a pair of origins that is tested as a reason."""


class TestedReason(NamedTuple):
    """A pair of origins and its causal test.

    Attributes
    ----------
    pair : OriginPair
    test : CausalTest or None
    untested : str
        Why there is no test.
    """

    pair: OriginPair
    test: CausalTest | None
    untested: str = ""


def tested_reasons(
    explanation: Explanation, running: Running, seed: int, callback: Callable[[Any], object] | None
) -> tuple[TestedReason, ...]:
    """The pairs with the largest shares, each tested as a reason on other sequences.

    ``running``: the same heads on sequences that they were not explained on. ``seed``: of the resampling and the
    controls. ``callback``: of the controls of all reasons.
    """
    pairs = [pair for pair in explanation.pairs(None) if pair.share >= LEAST_SHARE][:MOST]
    found = []
    for k, pair in enumerate(pairs):
        counted = in_draws(callback, k, len(pairs), "reason")
        try:
            test = running.test(reason_of(explanation, pair.query, pair.key), CONTROLS, seed, counted)
            found.append(TestedReason(pair, test))
        except ProblemError as error:  # for example without another origin for the controls
            found.append(TestedReason(pair, None, str(error)))
    return tuple(found)
