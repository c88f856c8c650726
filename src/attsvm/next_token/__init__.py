"""Next-token prediction: which tokens of a context one layer of attention copies from."""

from attsvm.next_token.causal import causal_problem
from attsvm.next_token.finite import FiniteMinimiser
from attsvm.next_token.graph import TokenGraph, token_graph
from attsvm.next_token.prediction import KeptTokens
from attsvm.next_token.two_part import TwoPartRun, two_part_descent

__all__ = [
    "FiniteMinimiser",
    "KeptTokens",
    "TokenGraph",
    "TwoPartRun",
    "causal_problem",
    "token_graph",
    "two_part_descent",
]


def __dir__() -> list[str]:
    return sorted(__all__)
