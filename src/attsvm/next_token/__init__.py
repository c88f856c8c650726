"""Next-token prediction: which tokens of a context one layer of attention copies from."""

from attsvm.next_token.causal import causal_problem
from attsvm.next_token.graph import TokenGraph, token_graph
from attsvm.next_token.two_part import two_part_descent

__all__ = [
    "TokenGraph",
    "causal_problem",
    "token_graph",
    "two_part_descent",
]


def __dir__() -> list[str]:
    return sorted(__all__)
