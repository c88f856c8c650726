"""The limit that theory and measurements predict for a run."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.checks import check_kind
from attsvm._utils.extensions import named_by_file
from attsvm._utils.shapes import Bool
from attsvm.errors import ProblemError
from attsvm.losses import Keeps
from attsvm.measures import check_of_problem
from attsvm.norms import Norm, Nuclear, parse_norm, read_norm, written_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import NOT_RECORDED, Batched, Status, per_trial, shared
from attsvm.svm import Solution, solve_svm
from attsvm.theory.conditions import Hypothesis, read_hypotheses, written_hypotheses
from attsvm.theory.decayed import decayed_limit, more_steps
from attsvm.theory.hypotheses import (
    Theorem,
    arithmetic_hypotheses,
    decreasing_loss,
    gradient_descent,
    gradient_flow,
    mirror_descent,
    next_tokens,
    rotation_hypotheses,
    selection_hypotheses,
    separable,
    training_hypotheses,
)
from attsvm.theory.kept_tokens import as_margins, several_tokens
from attsvm.theory.limits import joint_direction, judge_penalised, label_components, penalised_minimiser
from attsvm.theory.mini_batches import MiniBatchDirection, limit_of_batches
from attsvm.theory.nearness import Place, place_of
from attsvm.theory.normalised import normalised_descent
from attsvm.theory.one_hot import one_hot_limit
from attsvm.theory.signs import place_of_signs, sign_hypotheses, solve_tokens
from attsvm.theory.standing import EUCLIDEAN, Standing, TrainedModel, judge, known_limits, norm_for, rank_for
from attsvm.theory.trained import TrainedPart, biases_vanish, trained_part
from attsvm.training import MAPS, Run, parse_map


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Batched):
    """The limit of a run, and its level of evidence.

    Attributes
    ----------
    solution : Solution
        The Att-SVM. ``solution.direction`` is the predicted direction of ``run.weights`` or, if some parameters of the
        attention are fixed, of the trained parameter (of Q' for Q), unless ``mini_batch`` or ``point`` predicts another
        direction. Under the sigmoid, it is the Att-SVM of n·T sequences (x_it, 0), which select the first or the second
        token.
    norm : Norm
        The norm of the Att-SVM.
    selected : ndarray, shape (*batch_shape, n[, Q]) of int, or (*batch_shape, n[, Q], T) of bool
        The tokens that are kept: those of largest logit at the end of the run. Sets under the cross-entropy of C ≥ 3
        classes, and under a nonlinear prediction head or a loss that does not decrease over the scores, where these are
        the tokens whose probability exceeds 1e-3; under the sigmoid those of positive logit.
    standing : Standing
        The level of evidence. ``proved``: every hypothesis of a theorem was checked on this run and holds.
        ``measured``: runs of this kind reached a mean margin ratio of at least 0.95, and this run is within the range
        that was measured. ``conjecture``: it is outside of that range. ``none``: nothing is predicted, and the Att-SVM
        is only for comparison. A batch has one level for all trials together.
    source : str
        The reference, or the measurement and its command.
    hypotheses : tuple of Hypothesis
        The assumptions of the theorem, if there is one, and of the measurement, each with the decisive number.
    relaxed : bool ndarray, shape (*batch_shape, n[, Q]), or None
        If the prediction head is trained with the attention: the queries that need only a margin of 0, because their
        label has slack and the head grows faster than the attention.
    head : Solution or None
        For such a run: the max-margin head on the selected tokens, which is the direction of v.
    direction : ndarray, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k)
        The predicted direction of ``run.weights``.
    finite : ndarray, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k), or None
        Where sets are kept, in the ℓ2 norm, the part of the weights that stays finite; ``run.weights`` minus this part
        has the predicted direction. Under nonlinear prediction heads it has the attention of the run.
    point : ndarray, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k), or None
        For a run with a penalty, the finite limit of its weights: the minimiser of loss plus penalty next to them;
        under sparsemax with λ ≤ λ* the Att-SVM itself, where its hypotheses hold, else None. For
        one with decoupled weight decay λ whose rates times λ add up to at least 10, the stationary point of
        :func:`attsvm.theory.constrained_limit` next to them. ``direction`` is its direction. ``solution`` is the limit
        as the penalty or the decay vanishes.
    distance : float, ndarray of shape (*batch_shape,), or None
        The Frobenius distance of the weights of the run to ``point``.
    mini_batch : MiniBatchDirection or None
        For ``log_gradient_descent`` on mini-batches: the direction of largest expected margin of a batch, with its
        certified gap. It is the predicted one, and ``solution`` is for comparison.

    See Also
    --------
    attsvm.predict_direction : Makes one.
    attsvm.direction_error : Compares it with the weights of a run.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=20_000)
    >>> predicted = attsvm.predict_direction(problem, run)
    >>> predicted.norm.name, predicted.standing
    ('frobenius', <Standing.PROVED: 'proved'>)
    """

    kind: ClassVar[str] = "prediction"

    solution: Solution = per_trial()
    norm: Norm = shared(write=written_norm, read=read_norm)
    selected: np.ndarray = per_trial()
    standing: Standing = shared(read=Standing)
    source: str = shared()
    hypotheses: tuple[Hypothesis, ...] = shared((), write=written_hypotheses, read=read_hypotheses)
    relaxed: Bool[np.ndarray, "*queries"] | None = per_trial(None)
    head: Solution | None = per_trial(None)
    direction: np.ndarray | None = per_trial(None)
    finite: np.ndarray | None = per_trial(None)
    point: np.ndarray | None = per_trial(None)
    distance: float | np.ndarray | None = per_trial(None)
    mini_batch: MiniBatchDirection | None = per_trial(None)

    @property
    def status(self) -> Status | np.ndarray:
        """The status of the Att-SVM."""
        status: Status | np.ndarray = self.solution.status
        return status

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the predicted direction of the weights: a matrix as a heat map, a prompt as bars, heads side by side.

        For a batch, the first prediction is drawn.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
        >>> attsvm.predict_direction(problem, attsvm.train(problem, steps=500)).plot().get_title()
        'frobenius Att-SVM, optimal'
        """
        return self._drawn(ax=ax)

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield from super()._rows()
        yield from ((one.statement, one.verdict) for one in self.hypotheses)

    def _summary(self) -> str:
        return f"{self._batch_summary()}; {self.solution.status}"

    def _batch_summary(self) -> str:
        failing = [one for one in self.hypotheses if one.holds is False] or [
            one for one in self.hypotheses if one.holds is None
        ]
        why = ""
        if failing and self.standing != Standing.PROVED:
            why = f"; {failing[0].name} {'is unknown' if failing[0].holds is None else 'does not hold'}"
        what = f"{self.norm.name} Att-SVM" if self.point is None else "finite point"
        what = what if self.mini_batch is None else f"largest expected margin of a batch in the {self.norm.name} norm"
        return f"{what}, {self.standing}{why}"


def predict_direction(problem: Problem, run: Run, norm: str | float | Norm | None = None) -> Prediction:
    """Predict the limit of a run: the Att-SVM of the tokens it selects, or a minimiser where the weights stay finite.

    The norm is that of ``run.limit``, which the optimiser provides:

    ==================  ============================  ====================================================
    trained             by                            direction
    ==================  ============================  ====================================================
    p, W                GD, normalised GD             ℓ2 / Frobenius Att-SVM
    W, p                ℓp mirror descent             ℓp Att-SVM
    W, p                descent in another norm       Att-SVM of that norm
    K, Q                GD, one norm over both        nuclear Att-SVM of KQ', of rank at most the columns
    K, Q                spectral, row, column, sign   Att-SVM of the norm that short steps induce on KQ':
                        descent                       spectral, γ2, nuclear, ν
    K, Q                spectral, column, long steps  nuclear Att-SVM of KQ'
    K, Q                Adam                          Att-SVM of ν; none known after long steps
    g, W of diag(g) W   GD, one norm over both        Att-SVM of Σ_r ‖row r‖ of diag(g) W
    K, Q, rotated       GD, one norm over both        Att-SVM of Σ_j ‖A_j + iB_j‖_* if its ranks are at most 1
    (v, p), (v, W)      GD, mirror descent            relaxed if v's radius grows faster than the attention's;
                                                      plain in the opposite order or without slack
    W, nonlinear h      GD                            Frobenius Att-SVM of the set of kept tokens
    W, C ≥ 3 classes    GD                            Frobenius Att-SVM of the tokens of least cross-entropy
    (W, p) of Wp        GD, one norm over both        ℓ2 Att-SVM of u = Wp
    p of Wp, W fixed    as for p                      Att-SVM of p on the keys XW
    W of Wp, p fixed    as for W                      Att-SVM of W with the query p
    W_h of several      GD                            each attention head: the Att-SVM of its own selection
    K_h, Q_h            GD; spectral, each or fused   Att-SVM of the joint norm
    K of groups, Q_h    GD; spectral, row, sign       Att-SVM of the norm of [W_1 … W_G] of a group
                        descent of each head
    W and biases b      as for W                      Att-SVM of both blocks under one norm
    K, Q and b          GD, one norm over all         nuclear Att-SVM of KQ' alone: b vanishes
    any, with penalty   any                           the minimiser of loss plus penalty, a point
    p, W on batches     log GD                        largest expected margin of a batch
    W, p; K, Q; heads   unit steps with weight decay  a stationary point in the ball of radius 1/λ, or of each head
    W, p, sparsemax     any, with penalty λ ≤ λ*      the Att-SVM itself, norm included, a point
    W, p, 1.5-entmax    any, with penalty             the minimum next to twice the Att-SVM, a point
    any, sigmoid        any                           the SVM of single tokens, by the signs of the run's logits
    ==================  ============================  ====================================================

    The level of evidence, ``standing``, depends on the run, whose ``hypotheses`` are listed with their numbers:

    - *proved* only if every hypothesis of a theorem holds. Theorems are known for gradient descent on W and p with a
      small constant learning rate or with normalised steps, once the weights are in a cone that these do not leave, and
      for the token loss on graphs without cycles. Most default runs reach such a cone. For mirror descent the paper
      states no numbers for its hypotheses, so they are not checked. For a penalty, gradient descent converges to the
      only minimiser if the penalty outweighs the curvature of the loss.
    - *measured* if steps of this kind reached a mean margin ratio of at least 0.95, and the number of steps, the change
      of a logit in a step, the batch and the decay are within the range that was measured. The table is
      ``attsvm/theory/standings.toml``.
    - *conjecture* outside of that range, and for custom losses and schedules. ``source`` says which steps were
      measured.
    - *none* if nothing is predicted: after at most one step, where mini-batches or decay lead elsewhere or were not
      measured, where the loss increases, where the selection is not locally optimal, or if ``norm`` is not that of the
      steps. The Att-SVM is returned for comparison.

    Steps on factors are short if they change no logit by more than about 1, which is read from
    ``run.history["logit_change"]`` in the later half of each trial. Factors have few columns if these are fewer than
    the rank that the solution may need: for norms that do not change under rotations of the queries, the number of
    queries.

    With several attention heads, the joint norm of gradient descent is a sum over them (of the nuclear norms for
    factors, of the squared Frobenius norms for W), so each head solves its own Att-SVM, and all reach the same margin:
    the directions of all attention heads together, without rescaling, predict the direction of all weights. Results
    have their axis behind the batch axes of the run; a norm of all attention heads together has one solution for them.

    Rotated K and Q (RoPE) have one pair of columns for each frequency, and their products are complex matrices of rank
    one. The norm of the Att-SVM is a convex bound on ½(‖K‖² + ‖Q‖²). Where a rank of the Att-SVM exceeds 1 the bound is
    not known to be attained, and nothing is predicted. The margin ratio among the hypotheses is then the part of the
    bound that the run reached.

    With ``key_groups``, the joint norm of gradient descent is the sum over groups of the nuclear norm of [W_1 … W_G],
    the weights of the heads that share K side by side. It has one solution for all heads of a group.

    A factor of KQ' with the other one fixed is a matrix W of projected keys or queries. A W behind a fixed gain is one
    of scaled keys, and a gain in front of a fixed W a prompt of the keys k ∘ Wz.

    The cross-entropy of C ≥ 3 classes is convex in the pooled token, so that a mixture can be better than each token.
    Under the fixed linear head of the problem, attention keeps the support of the minimum over the attention of each
    query, or over the tokens that the run does not drop before. ``finite`` gives the kept tokens the attention of the
    minimum. Steps of a constant length move back and forth around it; shorter ones come nearer. Two classes are treated
    as labels ±1 with the difference of both heads.

    Under sparsemax the Att-SVM is a local minimum of the loss with a penalty λ ≤ λ* = min c_i D_it / (2 (μ_it + Σ_u
    μ_iu)), over its support tokens, where γ are the scores, D_it = γ_iα − γ_it, c_i = |ℓ'(γ_iα)|/N, and μ the
    multipliers of W_svm = Σ μ_it (x_iα − x_it) z_i'. Without a penalty training stops where all margins are 1, and
    nothing is predicted. Under the sigmoid each support token must have a logit of the sign of its score.

    With the loss "token", the tokens kept do not depend on the run: they are those in the component of the label in the
    token-priority graph (:class:`attsvm.TokenGraph`). The Att-SVM is the graph-SVM, and ``finite`` is the finite part
    of the weights. The Att-SVM has the sequences of the problem. For many contexts, that of
    :meth:`attsvm.TokenGraph.problem` is smaller.

    Parameters
    ----------
    problem : Problem
        The problem of the run.
    run : Run
    norm : str, float or Norm, optional
        By default the norm of the limit. Required if that norm is not known, as for most optax optimisers; it is known
        for those for which a norm was measured, with default options and without decay. If parameters are fixed, it is
        a norm of the trained parameter.

    Returns
    -------
    Prediction
        With the batch axes of the run.

    Raises
    ------
    ProblemError
        If the norm of the limit is not known and not given, or differs between trials (the message lists them); if the
        run did not train its attention, or does not fit the problem. For the token loss, if equal tokens have different
        keys, or a context lacks its label.

    See Also
    --------
    attsvm.Prediction : The result.
    attsvm.theory.Hypothesis : One hypothesis.
    attsvm.classify : The kind of the selection.
    attsvm.direction_error : Compares the run with it.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023): gradient descent on p, regularisation paths of p and of (v, p). Tarzanagh,
    Li, Thrampoulidis and Oymak (2023): gradient descent on W, regularisation path of (K, Q), nonlinear prediction
    heads.
    Julistiono, Tarzanagh and Azizan (2025): mirror descent, alone and with v. Li, Huang, Ildiz, Rawat and Oymak (2024):
    next tokens. Sheen, Chen, Wang and Zhou (2024): gradient flow on (K, Q).

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=20_000)
    >>> prediction = attsvm.predict_direction(problem, run)
    >>> prediction.norm.name, prediction.standing
    ('frobenius', <Standing.PROVED: 'proved'>)
    """
    check_is_problem(problem)
    check_kind("run", run, Run, "attsvm.train(problem)")
    shape = run.batch_shape + problem.query_shape[len(problem.model_shape) :]
    if run.selected.shape != shape or not run.selected.size:
        raise ProblemError(f"run: expected a selection of shape {shape}, that of the problem, got {run.selected.shape}")
    check_of_problem(problem, run)
    with named_by_file():
        of = parse_map(run.map)
    if of.name not in MAPS.names() or of != MAPS.find(of.name):
        raise ProblemError(f"run: expected a map whose limit is known, {', '.join(MAPS.names())}, got {run.map}")
    # two classes: the cross-entropy is the logistic loss of the difference of both heads, with labels ±1
    problem, run = as_margins(problem, run)
    penalised = run.penalty not in (0, NOT_RECORDED)
    if math.isfinite(of.one_hot_margin):
        # the norm is that of the penalty, whatever the steps are
        if norm is not None and parse_norm(norm) != EUCLIDEAN:
            raise ProblemError(f"norm: expected frobenius, the norm of the penalty, under {run.map}, got {norm!r}")
        assumed = [*training_hypotheses(run, (), EUCLIDEAN), decreasing_loss(problem, run)]
        one_hot = one_hot_limit(problem, run, trained_part(problem, run), of, assumed)
        point, direction = one_hot.point, one_hot.solution.direction if one_hot.point is None else one_hot.point
        end: dict[str, Any] = {"direction": direction, "point": point, "distance": one_hot.distance}
        return Prediction(one_hot.solution, EUCLIDEAN, run.selected, *one_hot.judgement, **end)
    known = known_limits(run)
    # the minimiser of loss plus penalty needs no norm
    unknown = any(limit.norm is None for limit in known)
    used = norm_for(run, EUCLIDEAN if penalised and norm is None and unknown else norm)
    part, rank = trained_part(problem, run), rank_for(run, used)
    selected, relaxed, head, finite, theorem, of_batches = run.selected, None, None, None, None, None
    place: Place | None = None
    rows = [*training_hypotheses(run, known, used), *biases_vanish(problem, run), decreasing_loss(problem, run)]
    if run.keeps is Keeps.LABEL_COMPONENT:
        # the token loss keeps the component of the label in the token-priority graph, whatever the run selects
        selected, finite, cyclic = label_components(problem, run, part, used)
        solution = solve_svm(part.problem, selected, norm=used, rank=rank)
        rows.append(separable(solution))
        model = "tokens, cyclic" if cyclic else "tokens, acyclic"
        if part.attention == "combined" and used == EUCLIDEAN:
            # Li et al. (2024) treat gradient descent on W, whose norm is the Frobenius one
            theorem = next_tokens(part.problem, run, rows, cyclic=cyclic)
    elif of.by_sign:
        tokens = solve_tokens(part, run, used, rank)
        selected, solution, place = tokens.kept, tokens.solution, place_of_signs(problem, run, part, tokens, used)
        rows, model = (
            [*rows, *sign_hypotheses(problem, run, part, tokens)],
            "trained head" if part.trains_head else "fixed head",
        )
    elif (kept := several_tokens(problem, run, part, used, rows[-1])) is not None:
        # a mixture may be better than each token: sets are kept, and no theorem covers the run
        selected, solution, finite, model, more = kept
        # the last row, the decreasing loss, is among `more` where it is needed
        rows = [*rows[:-1], *more]
    elif part.trains_head and problem.num_heads is None:
        # (v, W) or (v, p): queries are relaxed as on the joint regularisation path of the papers
        solution, head, relaxed, more = joint_direction(problem, run, part, used)
        rows, model = [*rows, *more], "trained head"
    else:
        solution = solve_svm(part.problem, selected, norm=used, rank=rank)
        rows += selection_hypotheses(part.problem, selected, solution)
        of_batches, more = limit_of_batches(part, run, used, solution)
        # the batches are part of their limit
        rows = [one for one in (*rows, *more) if of_batches is None or one.name != "full_batch"]
        model = "trained head" if part.trains_head else "fixed head"
        theorem = _theorem(part, run, rows)
    rows += rotation_hypotheses(solution, used)
    # decoupled decay keeps N(W) ≤ 1/λ: with enough of it the limit is a point, not a direction
    decayed = decayed_limit(problem, run, part, training_hypotheses(run, known, used))
    if decayed is not None:
        end = {"direction": decayed.point, "finite": finite, "point": decayed.point, "distance": decayed.distance}
        return Prediction(solution, used, selected, *decayed.judgement, relaxed=relaxed, head=head, **end)
    trained = TrainedModel(
        part.attention, model, "one" if problem.num_heads is None else "several", problem.num_sequences, run.map
    )
    direction = part.whole(solution.direction if of_batches is None else of_batches.direction)
    if not penalised:
        if theorem is not None:
            # theorems are about exact arithmetic: rounding must not decide where the run goes
            theorem = theorem._replace(hypotheses=(*theorem.hypotheses, *arithmetic_hypotheses(problem, run)))
        # the margin ratio belongs to the plain Att-SVM; other directions are compared by the correlation
        is_plain = of_batches is None and (relaxed is None or not relaxed.any())
        if place is None:
            place = place_of(part, run, solution, selected, used, None if is_plain else direction)
        found = judge(run, known, used, trained, rows, theorem, place)
        found = found._replace(source=found.source + more_steps(problem, run, part))
        return Prediction(solution, used, selected, *found, relaxed, head, direction, finite, mini_batch=of_batches)
    # with λ‖θ‖² the weights end where ∇L(θ) + 2λθ = 0
    limit = penalised_minimiser(problem, run)
    found = judge_penalised(problem, run, limit, training_hypotheses(run, known, used))
    point, distance = (direction, None) if limit is None else (limit.point, limit.distance)
    return Prediction(
        solution, used, selected, *found, relaxed, head, point, None, None if limit is None else point, distance
    )


def _theorem(part: TrainedPart, run: Run, rows: list[Hypothesis]) -> Theorem | None:
    """The theorem on these steps with a fixed linear head; None if there is none."""
    steps = run.limit.steps
    if part.attention == "factored":
        # Sheen et al. (2024): gradient flow on K and Q, with the nuclear Att-SVM as its limit
        return gradient_flow() if run.limit.norm == Nuclear() else None
    # no theorem has momentum, or steps that are normalised by a running average
    if steps.momentum != 0 or steps.normalised == "average":
        return None
    if steps.kind == "gradient" and part.attention in ("combined", "prompt"):
        descent = normalised_descent if steps.normalised == "step" else gradient_descent
        return descent(part.problem, run, rows)
    return mirror_descent(run) if steps.kind == "mirror" else None
