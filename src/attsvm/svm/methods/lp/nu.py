"""The least ν, by cutting planes over vectors of signs."""

from functools import partial

from attsvm.norms import Norm, Nu
from attsvm.norms.nu import bound_by_atoms
from attsvm.norms.sign_cuts import GOOD_GAP, MOST_ROUNDS, largest_in_dual_ball
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.pair_rows import reduced_rows
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.one_by_one import TARGET, Answer, one_by_one
from attsvm.svm.methods.registry import solver
from attsvm.svm.methods.semidefinite.gamma2 import ELLIPTOPE, solve_gamma2

SIGN_CUTS = "sign-cuts"


@solver(Nu, methods=(SIGN_CUTS, ELLIPTOPE))
def solve_nu(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least ν by linear programs; for large matrices the least γ2, which brackets it."""
    if method == ELLIPTOPE or not Nu.is_exact(constraints.weights_shape):
        found = solve_gamma2(constraints, norm, settings)
        return found._replace(why="too many signs to enumerate: the least gamma2 norm is within 1.783 of the least nu")
    why = "the norm is a linear program over vectors of signs"
    return one_by_one(constraints, norm, settings, _solve_one, SIGN_CUTS, why)


def _solve_one(constraints: Constraints, multipliers: TokenValues, settings: Settings) -> Answer:
    reduced = reduced_rows(constraints, left=False, right=False)
    rows, unit = reduced.rows, reduced.unit
    left, queries = rows.left[0], rows.queries[0][rows.query_of]
    found = largest_in_dual_ball(
        unit.right[0],
        left[:, :, None] * queries[:, None, :],
        unit.equality[0],
        unit.gather(multipliers)[0],
        good_gap=max(GOOD_GAP, TARGET * settings.tol),
        max_steps=settings.max_steps or MOST_ROUNDS,
        report=settings.report,
    )
    spread = unit.spread(found.multipliers[None], constraints.inequality.shape[1:])[0]
    return Answer(found.atoms.sum, spread, found.rounds, partial(bound_by_atoms, found.atoms))
