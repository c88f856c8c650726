"""What is known of the direction of a run: the limit of its optimizer, and where theory says more or less."""

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Nuclear, parse_norm
from attsvm.optimizers import Limit, Standing
from attsvm.optimizers.standing import TRANSFORMERS
from attsvm.problem import Problem
from attsvm.training import Run

EUCLIDEAN = Lp(2.0)


def norm_for(run: Run, norm: str | float | Norm | None) -> Norm:
    """The norm that is given, otherwise that of the limit of the optimizer.

    Raises
    ------
    ProblemError
        If none is given and the norm of the limit is not known.
    """
    used = run.limit.norm if norm is None else parse_norm(norm)
    if used is None:
        reason = "steps on factors in this norm have" if run.attention == "factored" else f"{run.optimizer} has"
        raise ProblemError(f"norm: expected the norm of the Att-SVM to compare with, got None; {reason} no known one")
    return used


def rank_for(run: Run, used: Norm) -> int | None:
    """The largest rank of the Att-SVM: that of the factors, in the norm for which it is known how to restrict it."""
    return run.limit.rank if used == Nuclear() else None


def limit_of(problem: Problem, run: Run, used: Norm, *, trains_head: bool) -> Limit:
    """What is known of a run with a linear head, not trained with ±1 and one head, for the Att-SVM in ``used``."""
    known = used == run.limit.norm and problem.num_classes is None and not trains_head
    return run.limit if known else Limit(used)


def limit_of_sets(run: Run, used: Norm, *, trains_head: bool) -> Limit:
    """What is known of a run with a nonlinear head."""
    if trains_head:
        source = "no theorem; measured: W ends off this direction if the output of the head outgrows the weights"
        return Limit(used, Standing.CONJECTURE, source)
    if run.limit.norm == used == EUCLIDEAN:
        return Limit(used, Standing.MEASURED, f"{TRANSFORMERS}, section on nonlinear heads")
    return Limit(used)
