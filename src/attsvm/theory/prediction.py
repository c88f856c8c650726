"""The Att-SVM that theory names for a run."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool
from scipy.special import softmax

from attsvm.errors import ProblemError
from attsvm.measures import token_logits
from attsvm.norms import Lp, Norm, Nuclear, parse_norm
from attsvm.problem import Problem
from attsvm.svm import Solution, solve_head, solve_svm
from attsvm.training import Run

EUCLIDEAN, NUCLEAR = Lp(2.0), Nuclear()
KEPT = 1e-3
"""Under a nonlinear head a token is kept if its probability exceeds this."""
FEWEST = 3
"""Records that a trend needs."""
TREND = 0.1
"""Radii grow together if their ratio grows or falls more slowly than this power of the number of steps."""

TOKEN_SELECTION = "Tarzanagh, Li, Zhang and Oymak (2023), Max-Margin Token Selection in Attention Mechanism"
TRANSFORMERS = "Tarzanagh, Li, Thrampoulidis and Oymak (2023), Transformers as Support Vector Machines"
MIRROR_DESCENT = "Julistiono, Tarzanagh and Azizan (2025), Optimizing Attention with Mirror Descent"
EUCLIDEAN_RULES = ("gradient_descent", "normalized_gradient_descent")


@dataclass(frozen=True, eq=False)
class Prediction:
    """The direction that a run goes to, and what is known of that.

    Attributes
    ----------
    solution : Solution
        The Att-SVM; ``solution.direction`` is the predicted direction of ``run.weights``.
    norm : Norm
        The norm that it minimises.
    selected : ndarray, shape (*lead, n[, Q]) of int, or (*lead, n[, Q], T) of bool
        The tokens that it keeps: those of largest logit at the end of the run; under a nonlinear head all tokens whose
        probability exceeds 1e-3.
    standing : {"proved", "measured", "conjecture"}
        What is known of runs of this kind, given that the selection is locally optimal and final.
    source : str
        Where from.
    relaxed : bool ndarray (*lead, n[, Q]), or None
        For a head trained together with the attention: the queries of which only a margin of 0 is asked, for their
        label has slack and the head outgrows the attention.
    head : Solution or None
        For such a run: the max-margin head on the selected tokens, the direction of v.
    """

    solution: Solution
    norm: Norm
    selected: np.ndarray
    standing: str
    source: str
    relaxed: Bool[np.ndarray, "*queries"] | None = None
    head: Solution | None = None

    def __repr__(self) -> str:
        return f"Prediction({self.norm.name} Att-SVM, {self.standing}: {self.source}; {self.solution!r})"


def predict_direction(problem: Problem, run: Run, norm: str | float | Norm | None = None) -> Prediction:
    """Name the direction that theory predicts for a run: an Att-SVM of what it selects.

    ==================  ============================  ====================================================  ==========
    trained             by                            direction                                             standing
    ==================  ============================  ====================================================  ==========
    p, W                GD, normalised GD             ℓ2 / Frobenius Att-SVM                                proved
    W, p                ℓp mirror descent             ℓp Att-SVM                                            proved
    K, Q                GD, one norm over both        nuclear Att-SVM of KQ'                                measured
    K, Q                GD, each factor normalised    none known; the nuclear Att-SVM is returned           conjecture
    (v, p), (v, W)      GD, mirror descent            relaxed where v's radius outgrows the attention's,    measured
                                                      plain in the opposite order or without slack
    W, p                descent in another norm       Att-SVM of that norm                                  conjecture
    W, nonlinear head   GD                            Frobenius Att-SVM of the set of kept tokens           measured
    ==================  ============================  ====================================================  ==========

    Parameters
    ----------
    problem : Problem
        That the run was trained on.
    run : Run
    norm : str, float or Norm, optional
        By default that of the optimiser, and the nuclear norm for Euclidean steps on factors. Needed where the
        optimiser is not one of :mod:`attsvm.optimizers`.

    Returns
    -------
    Prediction
        With the run's batch axes.

    Raises
    ------
    ProblemError
        If the norm of the optimiser is not known and none is given, or the run does not fit the problem.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023): gradient descent on p, regularisation paths of p and of (v, p). Tarzanagh,
    Li, Thrampoulidis and Oymak (2023): gradient descent on W, regularisation path of (K, Q), nonlinear heads.
    Julistiono, Tarzanagh and Azizan (2025): mirror descent, alone and with v.
    """
    shape = run.batch_shape + problem.query_shape[len(problem.batch_shape) :]
    if run.selected.shape != shape:
        raise ProblemError(f"run: a selection of shape {run.selected.shape} does not fit the problem: {shape} wanted")
    natural = _natural_norm(run)
    used = natural if norm is None else parse_norm(norm)
    if used is None:
        reason = "factors under steps in another norm" if run.attention == "factored" else f"{run.optimizer} has no"
        raise ProblemError(f"norm: none given, and {reason} known one; name the norm of the Att-SVM to compare with")
    if run.head != "linear":
        selected = _kept_sets(problem, run)
        proved_for = natural == used == EUCLIDEAN
        standing, source = ("measured", f"{TRANSFORMERS}, section on nonlinear heads") if proved_for else _CONJECTURE
        return Prediction(solve_svm(problem, selected, norm=used), used, selected, standing, source)
    if "v" in run.history and problem.num_classes is None:
        return _joint(problem, run, used, natural == used)
    standing, source = _standing(problem, run, used, natural)
    return Prediction(solve_svm(problem, run.selected, norm=used), used, run.selected, standing, source)


_CONJECTURE = "conjecture", "no theorem; by analogy with the implicit bias of linear models"


def _natural_norm(run: Run) -> Norm | None:
    if run.attention != "factored":
        return run.norm
    return NUCLEAR if run.norm == EUCLIDEAN else None


def _standing(problem: Problem, run: Run, used: Norm, natural: Norm | None) -> tuple[str, str]:
    if used != natural or problem.num_classes is not None:
        return _CONJECTURE
    if run.attention == "factored":
        if _arguments(run).get("scope") == "each":
            return "conjecture", "no theorem; with each factor normalised by itself runs stall off this solution"
        if run.optimizer not in EUCLIDEAN_RULES:
            return _CONJECTURE
        return "measured", f"{TRANSFORMERS}: proved for the regularisation path"
    if run.optimizer in EUCLIDEAN_RULES:
        return "proved", f"{TOKEN_SELECTION if run.attention == 'prompt' else TRANSFORMERS}: local convergence"
    if run.optimizer == "mirror_descent":
        return "proved", f"{MIRROR_DESCENT}: convergence in direction"
    return _CONJECTURE


def _arguments(run: Run) -> dict[str, Any]:
    """How the optimiser was made."""
    if run.optimizer_config is not None:
        return run.optimizer_config["arguments"]
    return getattr(run.live_optimizer, "arguments", {})


def _joint(problem: Problem, run: Run, used: Norm, natural: bool) -> Prediction:
    """Relaxed or plain, as the radii of head and attention say."""
    exponent = used.p if isinstance(used, Lp) else 2.0
    head = solve_head(problem, run.selected, p=exponent)
    active = np.broadcast_to(problem.canonical.active, (*run.batch_shape, *problem.canonical.active.shape[-2:]))
    active = active.reshape(run.selected.shape)
    own = tuple(range(len(run.batch_shape), active.ndim))
    solved = np.asarray(head.status) == "optimal"
    slack = active & ~head.support & np.expand_dims(solved, own)
    trend = _radius_trend(run, used, exponent)
    relaxed = slack & np.expand_dims(trend > TREND, own)
    solution = solve_svm(problem, run.selected, norm=used, relaxed=relaxed)
    # in a batch the word is that of its least certain trial
    settled = np.asarray(solved & (~slack.any(axis=own) | (np.abs(trend) > TREND))).all()
    standing, source = "measured", f"{TOKEN_SELECTION}: proved for the regularisation path of head and attention"
    if exponent != 2.0:
        source = f"{MIRROR_DESCENT}: joint mirror descent"
    if not (natural and settled):
        standing, source = "conjecture", "no theorem: neither radius outgrows the other, or the norm is not the run's"
    return Prediction(solution, used, run.selected, standing, source, relaxed, head)


def _radius_trend(run: Run, norm: Norm, exponent: float) -> np.ndarray:
    """Slope of log(r/R) against log(step) over a trial's last decade of steps: r of v, R of the attention."""
    steps = run.history["steps"]
    heads = Lp(exponent).values(run.history["v"], 1).reshape(len(steps), -1)
    weights = norm.values(run.history["weights"], 1 if run.attention == "prompt" else 2).reshape(len(steps), -1)
    last = np.broadcast_to(run.step, run.batch_shape).reshape(-1)
    trend = np.zeros(last.size)
    for i in range(last.size):
        # a trial that stopped stands still in later records
        late = (steps >= last[i] / 10) & (steps <= last[i]) & (steps > 0) & (heads[:, i] > 0) & (weights[:, i] > 0)
        if late.sum() >= FEWEST:
            trend[i] = np.polyfit(np.log(steps[late]), np.log(heads[late, i] / weights[late, i]), 1)[0]
    return trend.reshape(run.batch_shape)


def _kept_sets(problem: Problem, run: Run) -> Bool[np.ndarray, "*queries T"]:
    canonical = problem.canonical
    logits = np.where(canonical.allowed, token_logits(problem, run.weights), -np.inf)
    probability = softmax(np.where(canonical.active[..., None], logits, 0.0), axis=-1)
    kept = canonical.allowed & (probability > KEPT)
    return kept if problem.has_query_axis else kept[..., 0, :]
