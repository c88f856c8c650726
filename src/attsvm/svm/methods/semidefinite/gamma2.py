"""The least γ2 norm, by the largest margin over its unit ball."""

from attsvm.norms import Gamma2, Norm
from attsvm.norms.elliptope import MAX_STEPS, Diagonal, largest_margin
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.pair_rows import reduced_rows
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.one_by_one import Answer, one_by_one
from attsvm.svm.methods.registry import solver
from attsvm.svm.methods.semidefinite.pair_margins import WHY, PairMargins

ELLIPTOPE = "elliptope"


@solver(Gamma2, methods=(ELLIPTOPE,))
def solve_gamma2(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least γ2 norm; see :func:`attsvm.norms.elliptope.largest_margin`."""
    return one_by_one(constraints, norm, settings, _solve, ELLIPTOPE, WHY)


def _solve(constraints: Constraints, multipliers: TokenValues, settings: Settings) -> Answer:
    """One problem, given its multipliers in the Frobenius norm."""
    # the norm is that of these coordinates, so the weights are not restricted to the span of the data
    reduced = reduced_rows(constraints, left=False, right=False)
    unit, split = reduced.unit, constraints.weights_shape[0]
    rows, balance = PairMargins([reduced.rows], [unit]), Diagonal(sum(constraints.weights_shape))
    start = rows.inside(unit.gather(multipliers)[0])
    limit = settings.max_steps or MAX_STEPS
    found = largest_margin(rows, balance, start, split, max_steps=limit, report=settings.report)
    spread = unit.spread(found.multipliers[None], constraints.inequality.shape[1:])[0]
    return Answer(found.matrices[0, :split, split:], spread, found.steps)
