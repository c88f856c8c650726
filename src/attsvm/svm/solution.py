"""The answer to an Att-SVM, with its certificate."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.displays import blocks_in_words
from attsvm.norms import Lp, Norm, read_norm, written_norm
from attsvm.results import Result, Status, per_trial, plain, shared
from attsvm.svm.certificate import Certificate


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Result):
    """The weights of least norm that keep a selection, or a certificate that no weights of reasonable size keep it.

    Numbers are floats for one problem and arrays of shape (*batch_shape,) for several; the batch axes are the leading
    axes of the selection and the problem.

    Attributes
    ----------
    status : Status, or ndarray of str
        ``optimal``: gap ≤ tol and violation ≤ 1e-9. ``infeasible``: proved by ``certificate``
        for weights of a norm of up to 1e12, on rows of unit length.
        ``inaccurate``: neither; ``gap`` and ``violation`` say how far the answer is from optimal.
    direction : ndarray, shape (*batch_shape, d_k, d_q), or (*batch_shape, d_k) for a prompt
        The optimum itself, W. NaN where infeasible. If N is a norm of all attention heads together, their axis follows
        the batch axes, here and in ``dual`` and ``support``.
    value : float
        N(W), or N(W − center); NaN where infeasible.
    margin : float
        min A(W) / N(W) over the rows with b = 1; NaN where there is none, where W = 0, or where infeasible. With
        ``required`` or ``center``: min A(W) − b over all rows.
    dual : ndarray, shape (*batch_shape, n[, Q], T)
        λ with N*(A*(λ)) = 1, so that b'λ ≤ optimum, or (b − A(center))'λ ≤ optimum; zero at masked and reference
        tokens, and at tokens whose key an earlier one has. For a set, to which all tokens with its keys belong, the
        reference is its first token, and its other slots hold the free multipliers of (k_ref − k_t)'Wz = 0. Where
        infeasible: the Farkas multipliers, b'λ = 1. With slack: 0 ≤ λ ≤ C and W = A*(λ).
    support : bool ndarray, shape (*batch_shape, n[, Q], T)
        The support tokens: constraints that hold with equality, slack ≤ 1e-6 ‖row‖ ‖W‖. With slack: λ > 0.
    gap : float
        Relative distance between the two bounds on the optimum, N(W) divided by the smallest margin and b'λ; NaN where
        infeasible. It contains a bound on the rounding errors of A(W) and A*(λ), and of A(center); for sums of many
        terms it is the probabilistic one of Higham and Mary (2019). Where this bound alone is larger than ``tol``,
        these products are computed without rounding errors, unless they are too many or there is a centre.
    violation : float
        Largest violation of a constraint by the returned direction, divided by ‖row‖ ‖W‖, or ‖row‖ ‖W − center‖
        (Frobenius norms), with a bound on the rounding errors of A(W). ∞ where infeasible.
    raw_violation : float
        The same, not divided.
    bound : float
        The Farkas bound of ``certificate``. Where the status is ``inaccurate`` the largest one that was found, at most
        1e12, or 0; if ``required`` margins nearly contradict each other, the weights violate them least. Otherwise 0.
    objective : float
        The minimum: the value, or with slack ½‖W‖² + C Σ ξ.
    selected : ndarray
        As it was passed.
    norm : Norm
    required : ndarray or None
        As it was passed.
    center : ndarray or None
        As it was passed.
    relaxed : bool ndarray or None
        As it was passed.
    slack : float or None
        The C that was passed.
    rank : int or None
        The largest rank that was passed. Where the nuclear solution has a larger one, ``dual`` is that of the nuclear
        solution, and ``gap`` is the relative distance to its value.
    num_biases : int
        m for a problem with biases: the last m rows and the last column of ``direction`` hold b
        (:meth:`attsvm.Problem.blocks`). 0 without them.
    stats : dict
        ``method`` and ``why`` it was chosen, ``steps``, ``seconds``; ``selected_by``, the type of the result that the
        selection was taken from, if it was.

    See Also
    --------
    attsvm.solve_svm : Makes one.
    attsvm.margin_ratio : How close weights come to it.
    attsvm.svm.Certificate : The proof that a selection is infeasible.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(seed=0)
    >>> solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    >>> solution.status, solution.direction.shape
    (<Status.OPTIMAL: 'optimal'>, (10, 10))
    """

    kind: ClassVar[str] = "solution"
    equal_shapes: ClassVar[tuple[tuple[str, ...], ...]] = (("dual", "support"),)
    counted: ClassVar[str] = "problems"

    direction: np.ndarray = per_trial()
    value: float | np.ndarray = per_trial()
    margin: float | np.ndarray = per_trial()
    dual: np.ndarray = per_trial()
    support: np.ndarray = per_trial()
    gap: float | np.ndarray = per_trial()
    violation: float | np.ndarray = per_trial()
    raw_violation: float | np.ndarray = per_trial()
    bound: float | np.ndarray = per_trial()
    objective: float | np.ndarray = per_trial()
    selected: np.ndarray = per_trial()
    norm: Norm = shared(Lp(2.0), write=written_norm, read=read_norm)
    required: np.ndarray | None = per_trial(None)
    center: np.ndarray | None = per_trial(None)
    relaxed: np.ndarray | None = per_trial(None)
    slack: float | None = shared(None)
    rank: int | None = shared(None)
    num_biases: int = shared(0)
    stats: dict[str, Any] = per_trial(None)

    @property
    def certificate(self) -> Certificate | None:
        """The Farkas multipliers and their bound where infeasible; None if no problem is infeasible."""
        infeasible = np.asarray(self.status) == Status.INFEASIBLE
        if not infeasible.any():
            return None
        shape = infeasible.shape + (1,) * (self.dual.ndim - infeasible.ndim)
        return Certificate(self.dual * infeasible.reshape(shape), plain(np.where(infeasible, self.bound, 0.0)))

    @property
    def leave_one_out(self) -> float | np.ndarray | None:
        """The share of the n sequences that have support tokens; None for the reason in ``no_leave_one_out``.

        A sequence without support tokens can be left out: the solution stays the same, and selects its tokens. So the
        share is at least the leave-one-out error. In expectation over n exchangeable sequences it bounds the
        probability that the solution of n − 1 of them does not select the token of another one [1]_.

        This assumes that the token of a sequence depends on this sequence alone, as with
        :func:`attsvm.optimal_tokens`. An array of tokens is taken to be so; the selection of a Run depends on all
        sequences. NaN in a batch where the status is not ``optimal``.

        References
        ----------
        .. [1] Vapnik and Chapelle (2000), *Bounds on Error Expectation for Support Vector Machines*, Neural Computation
           12(9), with the theorem of Luntz and Brailovsky on leaving one out.
        """
        if self.no_leave_one_out:
            return None
        lead = len(self.batch_shape)
        with_support = self.support.reshape(*self.support.shape[: lead + 1], -1).any(axis=-1)
        present = (self.selected >= 0).reshape(*self.selected.shape[: lead + 1], -1).any(axis=-1)
        share = with_support.sum(axis=-1) / present.sum(axis=-1)
        found: float | np.ndarray = plain(np.where(np.asarray(self.status) == Status.OPTIMAL, share, np.nan))
        return found

    @property
    def no_leave_one_out(self) -> str:
        """Why ``leave_one_out`` is None; empty where it is not."""
        norm = self.norm.of_vectors if self.direction.ndim == len(self.batch_shape) + 1 else self.norm
        if not (isinstance(norm, Lp) and 1 < norm.p < np.inf):
            return f"the solution in the norm {norm.name} need not be unique"
        for name in ("required", "center", "relaxed", "rank"):
            if getattr(self, name) is not None:
                return f"it is not known with {name}="
        if self.selected.dtype == bool and (self.selected.sum(axis=-1) > 1).any():
            return "it is not known for sets of tokens"
        if "selected_by" in (self.stats or {}):
            return f"the tokens are those of a {self.stats['selected_by']}, which depend on all sequences"
        if not (np.asarray(self.status) == Status.OPTIMAL).any():
            return "no solution is optimal" if self.batch_shape else f"the status is {self.status}"
        return ""

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the direction: a matrix as a heat map, a prompt as bars, several attention heads side by side.

        For a batch, the first problem is drawn.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes

        Raises
        ------
        ProblemError
            If the batch is empty.

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
        >>> attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).plot().get_title()
        'frobenius Att-SVM, optimal'
        """
        return self._drawn(ax=ax)

    def _batch_summary(self) -> str:
        name, of_vectors = self.norm.name, self.norm.of_vectors.name
        if self.direction.ndim == len(self.batch_shape) + 1 and name != of_vectors:
            name = f"{name}, for a prompt the same as {of_vectors}"
        return name if self.rank is None else f"{name}, rank at most {self.rank}"

    def _summary(self) -> str:
        if self.status == Status.INFEASIBLE:
            return f"{self._batch_summary()}: infeasible, N(W) ≥ {self.bound:.1e} on unit rows"
        number = int(self.support.sum())
        margin = "margin" if self.required is None and self.center is None else "least A(W) - b"
        margin = f"{margin} = {self.margin:z.6g}" if np.isfinite(self.margin) else f"no {margin}"
        slack = "" if self.slack is None else f", objective = {self.objective:z.6g} at C = {self.slack:g}"
        found = (
            f"{self._batch_summary()}: {self.status}, value = {self.value:.6g}{slack}, {margin}, "
            f"{number} support tokens, gap = {self.gap:.1e}"
        )
        return ", ".join([found, *blocks_in_words(self.direction, self.num_biases)])
