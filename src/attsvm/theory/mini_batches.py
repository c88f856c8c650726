"""The direction of steps on mini-batches that are normalised by the excess loss of their own batch."""

from dataclasses import dataclass
from math import comb
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attsvm._utils.checks import check_integer, check_number, selection_of
from attsvm.errors import ProblemError
from attsvm.norms import Norm, Owl, parse_norm, read_norm, written_norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Result, Status, per_trial, plain, plain_status, shared
from attsvm.selection import optimal_tokens, selection_sets
from attsvm.svm import Constraints, Solution, ordered_margin, solve_ordered, solve_svm
from attsvm.theory.conditions import Hypothesis, worst_case
from attsvm.theory.trained import TrainedPart
from attsvm.training import Run

DEALT = 1e-12
"""Multipliers whose sums exceed those of the weights by less than this part, a rounding error, can be dealt out."""


@dataclass(frozen=True, eq=False, repr=False)
class MiniBatchDirection(Result):
    """The weights of largest expected margin of a batch, with a certified gap, compared with the Att-SVM.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    status : Status, or ndarray of str
        ``optimal``: gap ≤ tol. ``infeasible``: multipliers prove that no weights of reasonable size have a positive
        expected margin.
        ``inaccurate``: neither.
    direction : ndarray, shape (*batch_shape, d_k, d_q), or (*batch_shape, d_k) for a prompt
        The optimum, with N(direction) = 1. NaN where infeasible.
    value : float
        Its ordered margin Σ_k w_k m_(k), the expected least margin of a batch. NaN where infeasible.
    bound : float
        N*(A*(λ)) of ``dual``: no weights with N(W) = 1 have a larger ordered margin.
    gap : float
        1 − value/bound, with a bound on the rounding errors of both; NaN where infeasible.
    margins : ndarray, shape (*batch_shape, n)
        The margin of each sequence, the smallest over its queries and tokens; ∞ for a sequence without other tokens.
    dual : ndarray, shape (*batch_shape, n[, Q], T)
        λ ≥ 0. Its sums over the sequences are a mean of permutations of ``order_weights``.
    changed : bool
        Whether the direction is another one than that of the Att-SVM, whose ordered margin is ``att_svm_margin``: more
        than tol below the value. True where the selection has no Att-SVM.
    att_svm_margin : float
        The ordered margin of the Att-SVM's direction at N(W) = 1; NaN where the Att-SVM is infeasible.
    excess : float
        The largest ratio of the sum of the k largest multipliers of the Att-SVM, those of sequences and scaled to the
        sum of the weights, and w_1 + … + w_k. At most 1 if the multipliers can be dealt out to the batches: they then
        prove that the Att-SVM is the solution. NaN where it is infeasible.
    att_svm : Solution
        The Att-SVM of the selection.
    order_weights : ndarray, shape (n,)
        w_k = C(n − k, b − 1)/C(n, b), the probability that the sequence of the k-th smallest margin has the smallest
        margin of a batch.
    selected : ndarray
        As it was passed.
    batch_size : int
        b.
    norm : Norm

    See Also
    --------
    attsvm.theory.mini_batch_direction : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
    >>> found = attsvm.theory.mini_batch_direction(problem, attsvm.optimal_tokens(problem), 2)
    >>> found.status, found.order_weights.round(3).tolist()
    (<Status.OPTIMAL: 'optimal'>, [0.333, 0.267, 0.2, 0.133, 0.067, 0.0])
    """

    kind: ClassVar[str] = "mini-batch direction"
    counted: ClassVar[str] = "problems"

    direction: np.ndarray = per_trial()
    value: float | np.ndarray = per_trial()
    bound: float | np.ndarray = per_trial()
    gap: float | np.ndarray = per_trial()
    margins: np.ndarray = per_trial()
    dual: np.ndarray = per_trial()
    changed: bool | np.ndarray = per_trial()
    att_svm_margin: float | np.ndarray = per_trial()
    excess: float | np.ndarray = per_trial()
    att_svm: Solution = per_trial()
    selected: np.ndarray = per_trial()
    order_weights: np.ndarray = shared(write=list, read=np.array)
    batch_size: int = shared()
    norm: Norm = shared(write=written_norm, read=read_norm)

    @property
    def sequence_multipliers(self) -> np.ndarray:
        """The sum of ``dual`` over the queries and tokens of each sequence, shape (*batch_shape, n)."""
        lead = (*self.batch_shape, len(self.order_weights))
        return np.asarray(self.dual.reshape(*lead, -1).sum(axis=-1))

    def _batch_summary(self) -> str:
        return f"{self.norm.name}, batches of {self.batch_size} of {len(self.order_weights)} sequences"

    def _summary(self) -> str:
        if self.status == Status.INFEASIBLE:
            return f"{self._batch_summary()}: infeasible"
        other = "another direction than" if self.changed else "the direction of"
        return f"{self._batch_summary()}: {self.status}, {other} the Att-SVM, gap = {self.gap:.1e}"


def mini_batch_direction(
    problem: Problem,
    selected: Any,
    batch_size: int,
    norm: str | float | Norm = "frobenius",
    *,
    tol: float = 1e-8,
    max_steps: int | None = None,
) -> MiniBatchDirection:
    """Find the weights of largest expected margin of a mini-batch, to which descent on the log excess of batches leads.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Maximise E_B[min over i in B of m_i(W)] over N(W) ≤ 1, where B is a batch of b of the n sequences, and m_i the
    margin of a sequence: the smallest of its queries and of their tokens. With the margins in ascending order, the
    expectation is Σ_k w_k m_(k) with w_k = C(n − k, b − 1)/C(n, b). For b = n it is the smallest margin, which the
    Att-SVM maximises, and for b = 1 the mean.

    This was measured to be the limit of steps along −∇ log(L_B − L_B*)
    (:func:`attsvm.optimizers.log_gradient_descent`); it is not proved. It is not the limit of gradients that are not
    normalised, or that are normalised by all sequences: they keep the Att-SVM.

    The solver adds 10 to 300 linear bounds on the expected margin, one by one, and solves an Att-SVM after each. The
    problems of a batch are solved one after the other. Norms other than the Frobenius one take up to 20 s for
    n, T, d = 20, 8, 12.

    Parameters
    ----------
    problem : Problem
        Only tokens (or keys), queries and masks matter. One attention head.
    selected : int array, shape (*batch, n[, Q]); or Run, Solution, Prediction
        The token that each query keeps.
    batch_size : int
        b, from 1 to n. If b does not divide n, an epoch leaves out the rest, other sequences each time, so that the
        batch of a step is any b of the n sequences with equal probability.
    norm : str, float or Norm
        As for :func:`attsvm.solve_svm`. Norms without ``prox`` and ``project_dual_ball`` need ``steepest``.
    tol : float
        Largest relative gap of an answer that is called optimal.
    max_steps : int, optional
        Largest number of rounds, each of which solves an Att-SVM.

    Returns
    -------
    MiniBatchDirection
        With ``changed``, whether the batch size changes the direction, and the multipliers. The status follows from
        bounds that are computed from the returned arrays. A selection that has no Att-SVM may have a direction.

    Raises
    ------
    ProblemError
        If an argument does not fit the problem, the selection keeps sets of tokens, the problem has several attention
        heads, or the norm lacks what a solver needs.

    See Also
    --------
    attsvm.theory.MiniBatchDirection : The result.
    attsvm.solve_svm : The same for b = n.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
    >>> selected = attsvm.optimal_tokens(problem)
    >>> attsvm.theory.mini_batch_direction(problem, selected, 2).changed
    False
    >>> attsvm.theory.mini_batch_direction(problem, selected, 1).changed
    True
    """
    check_is_problem(problem)
    check_number("tol", tol, "a number > 0", lambda x: x > 0)
    if max_steps is not None:
        check_integer("max_steps", max_steps, 1)
    return _direction(problem, selection_of(selected), batch_size, parse_norm(norm), None, tol, max_steps)


def _direction(
    problem: Problem,
    selected: np.ndarray,
    batch_size: int,
    norm: Norm,
    att_svm: Solution | None,
    tol: float = 1e-8,
    max_steps: int | None = None,
) -> MiniBatchDirection:
    """Compute it with the Att-SVM of the selection, if it is known."""
    n = problem.num_sequences
    size = check_integer("batch_size", batch_size, 1, n)
    if problem.num_heads is not None or norm.head_axes:
        raise ProblemError("problem: expected one attention head, got several; pass the problem of one head")
    sets = selection_sets(problem, selected)
    constraints = Constraints.of(problem, sets)
    if constraints.equality is not None:
        raise ProblemError("selected: expected one token for each query, got sets of tokens")
    constraints.check_lengths()
    used = norm if problem.has_queries else norm.of_vectors
    if att_svm is None:
        att_svm = solve_svm(problem, selected, norm=norm, tol=min(tol, 1e-8))
    # w_k: the share of batches whose smallest margin is the k-th smallest of all sequences
    # C(n − k, b − 1) of the C(n, b) batches have the k-th one, and b − 1 of the n − k after it
    order_weights = np.array([comb(n - k, size - 1) / comb(n, size) for k in range(1, n + 1)])

    batch, flat = sets.shape[:-3], constraints.with_one_axis()
    own_shape = problem.weights_shape
    directions = np.asarray(att_svm.direction).reshape(-1, *constraints.weights_shape)
    duals = np.asarray(att_svm.dual).reshape(-1, *constraints.inequality.shape[-3:])
    each = [_one(flat[k], order_weights, used, directions[k], duals[k], tol, max_steps) for k in range(len(directions))]

    def stacked(name: str, own: tuple[int, ...] = ()) -> Any:
        return plain(np.array([getattr(one, name) for one in each]).reshape(batch + own))

    return MiniBatchDirection(
        status=plain_status(np.array([one.status.value for one in each]).reshape(batch)),
        direction=stacked("direction", own_shape),
        value=stacked("value"),
        bound=stacked("bound"),
        gap=stacked("gap"),
        margins=stacked("margins", (n,)),
        dual=stacked("dual", sets.shape[len(batch) :] if problem.has_query_axis else (n, sets.shape[-1])),
        changed=stacked("changed"),
        att_svm_margin=stacked("att_svm_margin"),
        excess=stacked("excess"),
        att_svm=att_svm,
        selected=np.broadcast_to(selected, batch + problem.query_shape[len(problem.batch_shape) :]).copy(),
        order_weights=order_weights,
        batch_size=size,
        norm=norm,
    )


def limit_of_batches(
    part: TrainedPart, run: Run, norm: Norm, att_svm: Solution
) -> tuple[MiniBatchDirection | None, list[Hypothesis]]:
    """The limit of a run whose steps are normalised by the excess of each batch, and what it assumes.

    No direction for other steps and models, and for all sequences in a step.
    """
    size, problem, steps = run.batch_size, part.problem, run.limit.steps
    if steps.kind != "log gradient" or steps.momentum != 0:
        return None, []
    # with other tokens the excess does not vanish, and the steps become those of plain gradient descent
    best = run.selected == optimal_tokens(problem)
    optimal = worst_case(
        "optimal_tokens", "the selected tokens are the optimal ones", best, best.mean(), "of the queries"
    )
    one_matrix = part.attention in ("combined", "prompt") and problem.num_heads is None
    if not one_matrix or not isinstance(size, int):
        return None, [optimal]
    found = _direction(problem, run.selected, size, norm, att_svm)
    least = found.margins.min(axis=-1)
    # a sequence of negative margin selects another token, whose gradient is not that of its margin
    statement = "in this direction all sequences have a positive margin"
    return found, [optimal, worst_case("all_margins", statement, least > 0, least)]


class _One(NamedTuple):
    """The fields of one problem."""

    status: Status
    direction: np.ndarray
    value: float
    bound: float
    gap: float
    margins: np.ndarray
    dual: np.ndarray
    changed: bool
    att_svm_margin: float
    excess: float


def _one(
    constraints: Constraints,
    order_weights: np.ndarray,
    norm: Norm,
    att_svm: np.ndarray,
    multipliers: np.ndarray,
    tol: float,
    max_steps: int | None,
) -> _One:
    """Solve one problem. ``att_svm``, ``multipliers``: of its Att-SVM, NaN and a ray where it is infeasible."""
    n, separable = len(order_weights), bool(np.isfinite(att_svm).all() and att_svm.any())
    rows = constraints.inequality.reshape(n, -1)
    if not rows.any():
        raise ProblemError("selected: expected a token that is not selected, got none, so there is no margin")
    att_svm_margin = excess = np.nan
    # start at the Att-SVM, whose multipliers certify it where they can be dealt out to the order weights
    start, dealt = att_svm, None
    if separable:
        # the ordered margin is homogeneous, so that it is that of the direction with N(W) = 1
        att_svm_margin = ordered_margin(constraints, order_weights, att_svm)[0] / float(norm.values(att_svm))
        # a sequence without other tokens has the margin ∞, comes last in the order, and has no multipliers
        present = order_weights[: np.count_nonzero(rows.any(axis=1))]
        scaled = multipliers * (present.sum() / multipliers.sum())
        # a vector is a mean of permutations of w if the sums of its k largest entries are at most those of w
        excess = float(Owl(order_weights.tolist()).dual.values(scaled.reshape(n, -1).sum(axis=1), 1))
        dealt = scaled if excess <= 1 + DEALT else None
    else:
        # A*(1) over the number of rows, the gradient of their mean margin
        pull = constraints.adjoint(constraints.inequality / np.count_nonzero(rows))
        start = pull if pull.any() else np.ones(constraints.weights_shape)
    found = solve_ordered(constraints, order_weights, norm, start, dealt, tol, max_steps)
    # weak duality: Σ w_k m_(k)(W) ≤ ⟨A*(λ), W⟩ ≤ N*(A*(λ)) for N(W) = 1
    gap = max(1 - found.value / found.bound, 0.0) if found.value > 0 else np.inf
    solved = _One(
        status=Status.OPTIMAL if gap <= tol else Status.INACCURATE,
        direction=found.weights,
        value=found.value,
        bound=found.bound,
        gap=gap,
        margins=np.where(rows, constraints.apply(found.weights).reshape(n, -1), np.inf).min(axis=1),
        dual=found.multipliers,
        changed=not (separable and att_svm_margin >= found.value * (1 - tol)),
        att_svm_margin=att_svm_margin,
        excess=excess,
    )
    if not found.infeasible:
        return solved
    nothing: dict[str, Any] = {
        name: np.full(np.shape(getattr(solved, name)), np.nan) for name in ("direction", "margins")
    }
    return solved._replace(status=Status.INFEASIBLE, value=np.nan, gap=np.nan, changed=True, **nothing)
