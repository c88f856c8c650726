"""The Att-SVM that theory predicts for a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool

from attsvm.checks import check_kind
from attsvm.errors import ProblemError
from attsvm.losses import Keeps
from attsvm.measures import attention_of
from attsvm.norms import Norm, read_norm, written_norm
from attsvm.optimizers import Standing
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Batched, Status, per_trial, shared
from attsvm.svm import Solution, solve_svm
from attsvm.theory.joint import joint_direction
from attsvm.theory.label_components import label_components
from attsvm.theory.standing import known_limit, limit_of, limit_of_sets, norm_for, rank_for
from attsvm.theory.trained import trained_part
from attsvm.training import Run

KEPT = 1e-3
"""Under a nonlinear head, the tokens whose probability exceeds this are kept."""


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Batched):
    """The direction that a run converges to, and what is known of it.

    Attributes
    ----------
    solution : Solution
        The Att-SVM; ``solution.direction`` is the predicted direction of ``run.weights``, or, if some parameters of the
        attention are fixed, of the one that is trained (of Q' for Q).
    norm : Norm
        The norm of the Att-SVM.
    selected : ndarray, shape (*batch_shape, n[, Q]) of int, or (*batch_shape, n[, Q], T) of bool
        The tokens that are kept: those of largest logit at the end of the run; under a nonlinear head, all tokens whose
        probability exceeds 1e-3.
    standing : Standing
        ``proved``, ``measured`` or ``conjecture``: what is known of runs of this kind, provided that the selection is
        locally optimal and final.
    source : str
        The reference.
    relaxed : bool ndarray, shape (*batch_shape, n[, Q]), or None
        For a head that is trained with the attention: the queries that need only a margin of 0, because their label has
        slack and the head grows faster than the attention.
    head : Solution or None
        For such a run: the max-margin head on the selected tokens, which is the direction of v.
    direction : ndarray, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k)
        The predicted direction of ``run.weights``.
    finite : ndarray, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k), or None
        For the token loss and the ℓ2 norm, the part of the weights that stays finite; ``run.weights`` minus this part
        has the predicted direction.

    See Also
    --------
    attsvm.predict_direction : Makes one.
    attsvm.direction_error : Compares it with the weights of a run.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=2000)
    >>> predicted = attsvm.predict_direction(problem, run)
    >>> predicted.norm.name, predicted.standing
    ('frobenius', <Standing.PROVED: 'proved'>)
    """

    kind: ClassVar[str] = "prediction"
    nested: ClassVar[Mapping[str, type[Batched]]] = {"solution": Solution, "head": Solution}

    solution: Solution = per_trial()
    norm: Norm = shared(write=written_norm, read=read_norm)
    selected: np.ndarray = per_trial()
    standing: Standing = shared(read=Standing)
    source: str = shared()
    relaxed: Bool[np.ndarray, "*queries"] | None = per_trial(None)
    head: Solution | None = per_trial(None)
    direction: np.ndarray | None = per_trial(None)
    finite: np.ndarray | None = per_trial(None)

    @property
    def status(self) -> Status | np.ndarray:
        """The status of the Att-SVM."""
        status: Status | np.ndarray = self.solution.status
        return status

    def _summary(self) -> str:
        return f"{self._batch_summary()}; {self.solution!r}"

    def _batch_summary(self) -> str:
        return f"{self.norm.name} Att-SVM, {self.standing}: {self.source}"


def predict_direction(problem: Problem, run: Run, norm: str | float | Norm | None = None) -> Prediction:
    """Predict the direction of a run: the Att-SVM of the tokens it selects.

    The norm and the standing are those of ``run.limit``, which the optimizer provides.

    ==================  ============================  ====================================================  ==========
    trained             by                            direction                                             standing
    ==================  ============================  ====================================================  ==========
    p, W                GD, normalised GD             ℓ2 / Frobenius Att-SVM                                proved
    W, p                ℓp mirror descent             ℓp Att-SVM                                            proved
    K, Q                GD, one norm over both        nuclear Att-SVM of KQ'                                measured
    K, Q with m < d     GD, one norm over both        nuclear Att-SVM of rank at most m, or a local         measured
                                                      minimum of it
    K, Q                GD, each factor normalised    none known; the nuclear Att-SVM is returned           conjecture
    K, Q                spectral, row, column, sign   Att-SVM of the norm that short steps induce on KQ':   measured
                        descent                       spectral, γ2, nuclear, ν
    K, Q                spectral, column, long steps  nuclear Att-SVM of KQ'                                measured
    K, Q                row, sign, long steps         none known                                            measured
    K, Q                Adam                          Att-SVM of ν; none known after long steps             conjecture
    K, Q with m < d     spectral, row, column, sign   that of short steps: a KKT point at most              conjecture
    (v, p), (v, W)      GD, mirror descent            relaxed if v's radius grows faster than the           measured
                                                      attention's; plain in the opposite order or without
                                                      slack
    W, p                descent in another norm       Att-SVM of that norm                                  conjecture
    W, nonlinear head   GD                            Frobenius Att-SVM of the set of kept tokens           measured
    the same, head too  GD                            the same, unless the head's output outgrows W         conjecture
    (W, p) of Wp        GD, one norm over both        ℓ2 Att-SVM of u = Wp                                  measured
    p of Wp, W fixed    as for p                      Att-SVM of p on the keys XW                           as for p
    W of Wp, p fixed    as for W                      Att-SVM of W with the query p                         as for W
    W, several heads    GD, one norm over all         each head: the Att-SVM of its own selection           measured
    several heads       others                        each head: as one                                     conjecture
    K, Q, heads         GD; spectral, each or fused   Att-SVM of the joint norm                             measured
    ==================  ============================  ====================================================  ==========

    Steps on factors are short if they change no logit by more than about 1. ``run.history["logit_change"]`` of the
    later half of each trial decides, in the median trial. Without a record of a step the answer is a conjecture, and so
    it is with a weight decay above 0.02, which keeps the logits small. Few columns are fewer than the rank that the
    solution may need: for norms that do not change under rotations of the queries, the number of queries.

    With several heads, the joint norm of gradient descent is a sum over the heads (of the nuclear norms for factors, of
    the squared Frobenius norms for W), so each head solves an Att-SVM of its own, and all reach the same margin: the
    directions of the heads together, as they are, predict the direction of all weights. Results have the axis of heads
    behind the batch axes of the run; a norm of all heads together has one solution for them.

    A factor of KQ' with the other one fixed is a matrix W of projected keys or queries.

    With the loss "token", the tokens kept do not depend on the run: they are those in the component of the label in the
    token-priority graph (:class:`attsvm.TokenGraph`). The Att-SVM is the graph-SVM. Its direction is proved for W and
    gradient descent if the graph has no cycles. Otherwise it was measured, and ``finite`` is the finite part. For ℓp
    mirror descent it is the ℓp graph-SVM, measured with and without cycles. For gradient descent on K and Q it is the
    nuclear graph-SVM, measured without cycles and a conjecture with them. The Att-SVM has the sequences of the problem.
    For many contexts, that of :meth:`attsvm.TokenGraph.problem` is smaller.

    For (K, Q) and for (v, p) and (v, W), theorems cover the regularization path; training was measured to follow it.
    With each factor normalized by itself, it was measured to end off the nuclear Att-SVM unless steps are short.

    Parameters
    ----------
    problem : Problem
        The problem of the run.
    run : Run
    norm : str, float or Norm, optional
        By default the norm of the optimizer, and the nuclear norm for Euclidean steps on factors. Required if the
        optimizer has no norm, as those of optax. If parameters are fixed, it is a norm of the trained one.

    Returns
    -------
    Prediction
        With the batch axes of the run.

    Raises
    ------
    ProblemError
        If the norm of the optimizer is not known and none is given, the run did not train its attention, or it does not
        fit the problem. For the token loss, if equal tokens have different keys, or a context lacks its label.

    See Also
    --------
    attsvm.Prediction : The result.
    attsvm.classify : The kind of the selection.
    attsvm.direction_error : Compares the run with it.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023): gradient descent on p, regularization paths of p and of (v, p). Tarzanagh,
    Li, Thrampoulidis and Oymak (2023): gradient descent on W, regularization path of (K, Q), nonlinear heads.
    Julistiono, Tarzanagh and Azizan (2025): mirror descent, alone and with v. Li, Huang, Ildiz, Rawat and Oymak (2024):
    next tokens.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=1000)
    >>> prediction = attsvm.predict_direction(problem, run)
    >>> prediction.norm.name, prediction.standing
    ('frobenius', <Standing.PROVED: 'proved'>)
    """
    check_is_problem(problem)
    check_kind("run", run, Run, "attsvm.train(problem)")
    shape = run.batch_shape + problem.query_shape[len(problem.model_shape) :]
    if run.selected.shape != shape:
        raise ProblemError(f"run: expected a selection of shape {shape}, that of the problem, got {run.selected.shape}")
    used = norm_for(run, norm)
    part, rank = trained_part(problem, run), rank_for(run, used)
    selected, relaxed, head, finite = run.selected, None, None, None
    if run.keeps is Keeps.LABEL_COMPONENT:
        selected, finite, known = label_components(problem, run, part, used)
        solution = solve_svm(part.problem, selected, norm=used, rank=rank)
    elif run.head != "linear":
        selected = _kept_sets(problem, run)
        known = limit_of_sets(run, used, trains_head=part.trains_head)
        solution = solve_svm(part.problem, selected, norm=used, rank=rank)
    elif part.trains_head and problem.num_classes is None and problem.num_heads is None:
        solution, head, relaxed, known = joint_direction(problem, run, part, used, known_limit(run))
    else:
        known = limit_of(problem, run, used, trains_head=part.trains_head)
        solution = solve_svm(part.problem, selected, norm=used, rank=rank)
    direction = part.whole(solution.direction)
    return Prediction(solution, used, selected, known.standing, known.source, relaxed, head, direction, finite)


def _kept_sets(problem: Problem, run: Run) -> Bool[np.ndarray, "*queries T"]:
    kept = problem.canonical.allowed & (attention_of(problem, run.weights) > KEPT)
    return kept if problem.has_query_axis else kept[..., 0, :]
