"""The limit of the steps of a run: the norm of the Att-SVM that its weights are compared with."""

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Nuclear, parse_norm
from attsvm.optimizers import Limit
from attsvm.theory.standing import notes
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
    """The limit of a run with steps of its length."""
    return run.limit.at(longest_change(run))


def norm_for(run: Run, norm: str | float | Norm | None) -> Norm:
    """The norm that is given, otherwise that of the limit of the optimizer.

    Raises ProblemError if none is given and the norm of the limit is not known.
    """
    limit = known_limit(run)
    used = limit.norm if norm is None else parse_norm(norm)
    if used is None:
        reason = "steps on factors in this norm have" if run.attention == "factored" else f"{run.optimizer} has"
        more = "".join(f"; {note}" for note in notes(limit.steps, run.attention))
        raise ProblemError(
            f"norm: expected the norm of the Att-SVM to compare with, got None; {reason} no known one{more}"
        )
    return used


def rank_for(run: Run, used: Norm) -> int | None:
    """The largest rank of the Att-SVM: that of the factors, in the norm for which it is known how to restrict it."""
    return run.limit.rank if used == Nuclear() else None
