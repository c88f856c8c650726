"""What is known of the direction of a run: the limit of its optimizer, and where theory says more or less."""

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Nuclear, parse_norm
from attsvm.optimizers import Limit, Standing
from attsvm.optimizers.standing import TRANSFORMERS
from attsvm.problem import Problem
from attsvm.training import Run

EUCLIDEAN = Lp(2.0)


def longest_change(run: Run) -> float | None:
    """The largest change of a logit in a recorded step of the later half of a trial, in the median trial.

    Earlier steps do not matter for the direction of factors that have grown since. None if no change is known: runs of
    version 0.1 have none, and neither do step 0 and records after the last step of a trial.
    """
    if "logit_change" not in run.history:
        return None
    steps, ends = run.history["steps"], np.ravel(run.step)
    changes = run.history["logit_change"].reshape(len(steps), -1)
    known = [(steps > 0) & (steps <= end) for end in ends]
    late = [made & (2 * steps >= steps[made].max(initial=0)) for made in known]
    largest = [changes[rows, trial].max() for trial, rows in enumerate(late) if rows.any()]
    return float(np.median(largest)) if largest else None


def known_limit(run: Run) -> Limit:
    """What is known of the limit of a run with steps of its length."""
    return run.limit.at(longest_change(run))


def norm_for(run: Run, norm: str | float | Norm | None) -> Norm:
    """The norm that is given, otherwise that of the limit of the optimizer.

    Raises
    ------
    ProblemError
        If none is given and the norm of the limit is not known.
    """
    limit = known_limit(run)
    used = limit.norm if norm is None else parse_norm(norm)
    if used is None:
        reason = "steps on factors in this norm have" if run.attention == "factored" else f"{run.optimizer} has"
        measured = f" ({limit.source})" if limit.standing is Standing.MEASURED else ""
        raise ProblemError(
            f"norm: expected the norm of the Att-SVM to compare with, got None; {reason} no known one{measured}"
        )
    return used


def rank_for(run: Run, used: Norm) -> int | None:
    """The largest rank of the Att-SVM: that of the factors, in the norm for which it is known how to restrict it."""
    return run.limit.rank if used == Nuclear() else None


def limit_of(problem: Problem, run: Run, used: Norm, *, trains_head: bool) -> Limit:
    """What is known of a run with a linear head, not trained with ±1 and one head, for the Att-SVM in ``used``."""
    limit = known_limit(run)
    known = used == limit.norm and problem.num_classes is None and not trains_head
    return limit if known else Limit(used)


def limit_of_sets(run: Run, used: Norm, *, trains_head: bool) -> Limit:
    """What is known of a run with a nonlinear head."""
    if trains_head:
        source = "no theorem; measured: W ends off this direction if the output of the head outgrows the weights"
        return Limit(used, Standing.CONJECTURE, source)
    if run.limit.norm == used == EUCLIDEAN:
        return Limit(used, Standing.MEASURED, f"{TRANSFORMERS}, section on nonlinear heads")
    return Limit(used)
