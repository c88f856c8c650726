"""The problem: tokens, queries, labels, head, keys and masks."""

from attsvm.problem.problem import ARRAY_NAMES, Canonical, Problem, check_is_problem

__all__ = ["ARRAY_NAMES", "Canonical", "Problem", "check_is_problem"]


def __dir__() -> list[str]:
    return sorted(__all__)
