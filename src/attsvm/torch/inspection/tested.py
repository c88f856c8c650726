"""Causal tests of the largest reasons of an explanation, on held-out sequences."""

from typing import Any, NamedTuple

from attsvm.errors import ProblemError
from attsvm.torch.inspection.causal import CausalTest
from attsvm.torch.inspection.explanation import Explanation, OriginPair

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


def tested_reasons(explanation: Explanation, batch: Any, seed: int) -> tuple[TestedReason, ...]:
    """The pairs with the largest shares, each tested as a reason on other sequences.

    Parameters
    ----------
    explanation : Explanation
    batch : mapping
        Arguments of the model for sequences that the head was not explained on.
    seed : int
        Of the resampling and the controls.
    """
    pairs = [pair for pair in explanation.pairs(None) if pair.share >= LEAST_SHARE][:MOST]
    found = []
    for pair in pairs:
        try:
            found.append(TestedReason(pair, explanation.test(batch, pair.query, pair.key, seed=seed)))
        except ProblemError as error:  # for example a head that attends by position
            found.append(TestedReason(pair, None, str(error).removeprefix("explanation: ")))
    return tuple(found)
