import pytest

from attsvm.selection import selection_sets
from attsvm.svm.certificate import FROBENIUS, certify
from attsvm.svm.constraints.constraints import Constraints, check_relaxed


@pytest.fixture
def gap_without_rounding():
    """The gap between N(W) and b'λ alone. ``Solution.gap`` adds bounds on the rounding errors of their products."""

    def gap(problem, selected, solution, relaxed=None):
        sets = selection_sets(problem, selected)
        constraints = Constraints.of(problem, sets, check_relaxed(problem, relaxed, sets.shape[:-3]))
        weights = solution.direction.reshape(*constraints.batch_shape, *constraints.weights_shape)
        return certify(constraints, FROBENIUS, weights, solution.dual.reshape(constraints.right.shape)).gap

    return gap
