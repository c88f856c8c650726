"""The problem: tokens, queries, labels, head, keys and masks. Its public name is :class:`attsvm.Problem`."""

from attsvm.problem.problem import ARRAY_NAMES as ARRAY_NAMES
from attsvm.problem.problem import Canonical as Canonical
from attsvm.problem.problem import Problem as Problem
from attsvm.problem.problem import check_is_problem as check_is_problem
from attsvm.problem.problem import of_rows as of_rows

__all__ = ["Problem"]

# for the other packages of attsvm, beside the public names
__door__ = ("ARRAY_NAMES", "Canonical", "check_is_problem", "of_rows")
