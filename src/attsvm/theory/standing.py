"""What is known of the direction of a run: proved, measured, or a conjecture, and the reference."""

from enum import StrEnum
from typing import Any, NamedTuple

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Nuclear, parse_norm
from attsvm.problem import Problem
from attsvm.training import Run

TOKEN_SELECTION = "Tarzanagh, Li, Zhang and Oymak (2023), Max-Margin Token Selection in Attention Mechanism"
TRANSFORMERS = "Tarzanagh, Li, Thrampoulidis and Oymak (2023), Transformers as Support Vector Machines"
MIRROR_DESCENT = "Julistiono, Tarzanagh and Azizan (2025), Optimizing Attention with Mirror Descent"
EUCLIDEAN, NUCLEAR = Lp(2.0), Nuclear()
EUCLIDEAN_RULES = ("gradient_descent", "normalized_gradient_descent")


class Standing(StrEnum):
    """What is known of a predicted direction.

    ============== ==========================================================================================
    standing       meaning
    ============== ==========================================================================================
    ``proved``     A theorem shows that runs of this kind converge to the direction.
    ``measured``   Runs converge to the direction in all measurements; a related statement is proved.
    ``conjecture`` There is no theorem; the direction follows by analogy.
    ============== ==========================================================================================
    """

    PROVED = "proved"
    MEASURED = "measured"
    CONJECTURE = "conjecture"


class Known(NamedTuple):
    """A standing and its source."""

    standing: Standing
    source: str


CONJECTURE = Known(Standing.CONJECTURE, "no theorem; by analogy with the implicit bias of linear models")


def natural_norm(run: Run) -> Norm | None:
    """The norm of the Att-SVM that theory names for a run; None if it names none.

    For W and p it is the norm of the optimizer; for factors trained by Euclidean steps it is the nuclear norm.
    """
    if run.attention != "factored":
        return run.norm
    return NUCLEAR if run.norm == EUCLIDEAN else None


def norm_for(run: Run, norm: str | float | Norm | None) -> Norm:
    """The norm that is given, otherwise that of the run.

    Raises
    ------
    ProblemError
        If none is given and theory names none for the optimizer of the run.
    """
    used = natural_norm(run) if norm is None else parse_norm(norm)
    if used is None:
        reason = "steps on factors in this norm have" if run.attention == "factored" else f"{run.optimizer} has"
        raise ProblemError(f"norm: expected the norm of the Att-SVM to compare with, got None; {reason} no known one")
    return used


def standing_of(problem: Problem, run: Run, used: Norm) -> Known:
    """What is known of a run with a linear head that is not trained, for the Att-SVM in the norm ``used``."""
    if used != natural_norm(run) or problem.num_classes is not None:
        return CONJECTURE
    if run.attention == "factored":
        if _arguments(run).get("scope") == "each":
            return Known(Standing.CONJECTURE, "no theorem; runs that normalise each factor by itself stall elsewhere")
        if run.optimizer not in EUCLIDEAN_RULES:
            return CONJECTURE
        return Known(Standing.MEASURED, f"{TRANSFORMERS}: proved for the regularization path")
    if run.optimizer in EUCLIDEAN_RULES:
        paper = TOKEN_SELECTION if run.attention == "prompt" else TRANSFORMERS
        return Known(Standing.PROVED, f"{paper}: local convergence")
    if run.optimizer == "mirror_descent":
        return Known(Standing.PROVED, f"{MIRROR_DESCENT}: convergence in direction")
    return CONJECTURE


def standing_of_sets(run: Run, used: Norm) -> Known:
    """What is known of a run with a nonlinear head."""
    if natural_norm(run) == used == EUCLIDEAN:
        return Known(Standing.MEASURED, f"{TRANSFORMERS}, section on nonlinear heads")
    return CONJECTURE


def _arguments(run: Run) -> dict[str, Any]:
    """The arguments of the optimizer's factory."""
    if run.optimizer_config is not None:
        arguments: dict[str, Any] = run.optimizer_config["arguments"]
        return arguments
    return getattr(run.live_optimizer, "arguments", {})
