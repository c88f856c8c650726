"""The results of ``regularization_path`` and ``penalty_path``."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.extras import check_installed
from attsvm.measures import direction_error
from attsvm.norms import MissingPiece, Norm, read_norm, written_norm
from attsvm.results import Result, Status, per_record, per_trial, shared

CONVERGED = 1e-8
"""Largest residual of a radius that is solved."""


@dataclass(frozen=True, eq=False, repr=False)
class PathResult(Result):
    """Hold what both kinds of path share.

    Arrays along the path have its L points as axis 0; the problem's batch axes follow. Indexing selects problems of
    the batch.
    """

    equal_shapes: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("weights", "limit"),
        ("head_weights", "head_limit"),
        ("loss", "log_excess", "residual", "head_residual", "size"),
    )

    weights: np.ndarray = per_record()
    loss: np.ndarray = per_record()
    log_excess: np.ndarray = per_record()
    selected: np.ndarray = per_record()
    residual: np.ndarray = per_record()
    limit: np.ndarray = per_trial()
    limit_status: Status | np.ndarray = per_trial()
    kept: np.ndarray = per_record()
    norm: Norm = shared(write=written_norm, read=read_norm)
    attention: str = shared()
    rank: int | None = shared(None)

    @property
    def solved(self) -> np.ndarray:
        """Whether each point was solved to its tolerance: residuals of at most 1e-8; bool, shape (L, *batch_shape)."""
        return is_solved(self.residual)

    @property
    def direction_errors(self) -> np.ndarray:
        """1 − cosine between the weights and ``limit``, shape (L, *batch_shape); 1 at W = 0, NaN without a limit."""
        return _errors(self.weights, self.limit, self._axes)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the direction error against the radius, or against the logarithm of the penalty.

        For a batch, the line is the median of the problems, and the band is their 10-90 % range.

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
        >>> attsvm.regularization_path(problem, [1.0, 10.0, 100.0]).plot().get_xlabel()
        'radius'
        """
        return self._drawn(ax=ax)

    def to_frame(self) -> Any:
        """The numbers along the path as a pandas DataFrame: one row for each point and problem.

        Raises ProblemError if pandas is not installed.
        """
        check_installed("to_frame", "frames", "pandas")
        import pandas as pd

        columns = {name: getattr(self, name) for name in ("loss", "log_excess", "residual")}
        columns["direction_error"] = self.direction_errors
        return pd.DataFrame({name: np.ravel(x) for name, x in columns.items()}, index=self._index((self._points(),)))

    def _points(self) -> tuple[str, np.ndarray]:
        """Name what counts the points of the path, and return its values."""
        raise NotImplementedError

    def _coordinates(self) -> dict[str, Any]:
        return {"record": self._points()[1]}

    @property
    def _axes(self) -> int:
        return self.limit.ndim - len(self.batch_shape)

    def _summary(self) -> str:
        return f"{self._batch_summary()}; {self.status}"

    def _parts(self, points: str) -> list[str]:
        """Begin every summary."""
        parts = [points, f"{self.solved.sum()} of {self.solved.size} solved"]
        last = self.direction_errors[-1]
        if np.isnan(last).all():
            return [*parts, "the last selection is infeasible"]
        worst = " at most" if self.batch_shape else ""
        return [*parts, f"last direction error{worst} {np.nanmax(last):.1e}"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RegularizationPath(PathResult):
    """Minimisers of the loss in balls of increasing radius.

    Arrays along the path have the L radii as axis 0; the problem's batch axes follow. Indexing selects problems of the
    batch.

    Attributes
    ----------
    status : Status, or ndarray of str, shape (*batch_shape,)
        ``converged``: the point of every radius is stationary to its tolerance, see ``solved``. The problem is not
        convex, so a lower minimum may exist. ``inaccurate``: some point is not stationary.
        ``interrupted``: a callback stopped the computation. The path then holds the radii solved so far, without the
        comparison of all branches; in a batch, radii that a problem did not reach hold NaN (``selected``: -1).
    weights : ndarray, shape (L, *batch_shape, d_k, d_q) or (L, *batch_shape, d_k)
        W_R or p_R; for factors their product.
    loss : ndarray, shape (L, *batch_shape)
        L(W_R).
    log_excess : ndarray, shape (L, *batch_shape)
        Log of the loss minus the loss of the optimal tokens alone. It keeps its digits where the loss equals its
        infimum to rounding. −inf where the loss is not larger.
    selected : int ndarray, shape (L, *batch_shape, n[, Q])
        The token of largest logit; -1 for padded queries.
    residual : ndarray, shape (L, *batch_shape)
        How far W_R is from stationary: 1 − ⟨−G, W⟩/(N*(G) N(W)) on the sphere, N*(G) N(W) inside the ball. G is the
        gradient of ``log_excess`` over the selected tokens, with the multiplier of the cone where it is active.
    limit : ndarray, shape (*batch_shape, d_k, d_q) or (*batch_shape, d_k)
        The Att-SVM, in the norm of the path, of the tokens selected at the largest radius; with a nonlinear head of
        the tokens kept there. If the head's radius is larger there, queries whose label has slack are relaxed. NaN
        where infeasible.
    limit_status : Status, or ndarray of str, shape (*batch_shape,)
        Status of that Att-SVM. Where it is ``infeasible`` the path has no limit direction.
    radii : ndarray, shape (L,)
    norm : Norm
        N: the norm of W or p; nuclear for factors.
    attention : str
        "combined", "factored" or "prompt".
    rank : int, optional
        The largest rank of the weights, if the factors have fewer columns than rows.
    head_radii : ndarray, shape (L,), optional
        Radii of the head, if the path includes it.
    head_weights : ndarray, shape (L, *batch_shape, d), optional
        v.
    head_limit : ndarray, shape (*batch_shape, d), optional
        The max-margin direction of v.
    head_residual : ndarray, shape (L, *batch_shape), optional
        The residual in v.
    kept : bool ndarray, shape (L, *batch_shape, n[, Q], T)
        The tokens that ``limit`` keeps if L is the last radius: those of attention above 1e-3 for a nonlinear head, the
        selected ones for a linear head.

    See Also
    --------
    attsvm.regularization_path : Makes one.
    attsvm.regularization.PenaltyPath

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> path = attsvm.regularization_path(problem, [1.0, 10.0, 1000.0])
    >>> path.status, path.weights.shape
    (<Status.CONVERGED: 'converged'>, (3, 5, 5))
    >>> bool(path.direction_errors[-1] < 1e-4)
    True
    """

    kind: ClassVar[str] = "path"

    radii: np.ndarray = shared(read=np.array)
    head_radii: np.ndarray | None = shared(None, read=np.array)
    head_weights: np.ndarray | None = per_record(None)
    head_limit: np.ndarray | None = per_trial(None)
    head_residual: np.ndarray | None = per_record(None)

    @property
    def solved(self) -> np.ndarray:
        """Whether each radius was solved to its tolerance: residuals of at most 1e-8; bool, shape (L, *batch_shape)."""
        return is_solved(self.residual, self.head_residual)

    @property
    def head_direction_errors(self) -> np.ndarray | None:
        """Compare the head with its limit at each point; None if the head is fixed."""
        if self.head_weights is None or self.head_limit is None:
            return None
        return _errors(self.head_weights, self.head_limit, 1)

    def _points(self) -> tuple[str, np.ndarray]:
        return "radius", self.radii

    def _batch_summary(self) -> str:
        span = f"{len(self.radii)} radii, {self.radii[0]:g} to {self.radii[-1]:g}"
        parts = self._parts(f"{self.attention}, {self.norm.name}: {span}")
        try:
            size = self.norm.values(self.weights[-1], self._axes)
        except MissingPiece:  # the norm of a file whose class cannot be imported here
            size = self.radii[-1]
        # there N(W) ≤ R is not active, so that larger balls have this minimum, too
        if (size < 0.999 * self.radii[-1]).any():
            parts.append(f"the minimum lies inside the last ball, at norm {np.min(size):.4g}")
        of_head = self.head_direction_errors
        if of_head is not None and not np.isnan(of_head[-1]).all():
            parts.append(f"of the head {np.nanmax(of_head[-1]):.1e}")
        return "; ".join(parts)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PenaltyPath(PathResult):
    """Minimisers of the loss plus a penalty that decreases to zero.

    Arrays along the path have the L penalties as axis 0; the problem's batch axes follow. Indexing selects problems of
    the batch.

    Attributes
    ----------
    status : Status, or ndarray of str, shape (*batch_shape,)
        As for :class:`attsvm.RegularizationPath`, with penalties in place of radii.
    weights : ndarray, shape (L, *batch_shape, d_k, d_q) or (L, *batch_shape, d_k)
        W_λ or p_λ; for factors their product.
    loss : ndarray, shape (L, *batch_shape)
        L(W_λ), without the penalty.
    log_excess, selected, limit, limit_status, kept
        As for :class:`attsvm.RegularizationPath`.
    residual : ndarray, shape (L, *batch_shape)
        How far W_λ is from stationary: the residual of W_λ in the ball of its own radius, or the relative difference
        between the slope of the loss along the radius and that of the penalty, if that is larger.
    size : ndarray, shape (L, *batch_shape)
        N(W_λ). W_λ is the minimiser of the loss in the ball of this radius.
    log_penalties : ndarray, shape (L,)
        Log λ.
    norm : Norm
        N: the norm of W or p; nuclear for factors.
    attention : str
        "combined", "factored" or "prompt".
    rank : int, optional
        The largest rank of the weights, if the factors have fewer columns than rows.
    power, scale : float
        The penalty is λ · scale · N(W)^power. For factors, λ(‖K‖² + ‖Q‖²) is at least 2λ‖KQ'‖_*.

    See Also
    --------
    attsvm.regularization.penalty_path : Makes one.
    attsvm.RegularizationPath

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> path = attsvm.regularization.penalty_path(problem, [-10.0, -100.0, -1000.0])
    >>> path.status, path.weights.shape
    (<Status.CONVERGED: 'converged'>, (3, 5, 5))
    >>> bool(path.direction_errors[-1] < 1e-4)
    True
    """

    kind: ClassVar[str] = "penalty path"

    size: np.ndarray = per_record()
    log_penalties: np.ndarray = shared(read=np.array)
    power: float = shared()
    scale: float = shared()

    def _points(self) -> tuple[str, np.ndarray]:
        return "log_penalty", self.log_penalties

    def _batch_summary(self) -> str:
        span = f"{len(self.log_penalties)} penalties, log {self.log_penalties[0]:g} to {self.log_penalties[-1]:g}"
        return "; ".join(self._parts(f"{self.attention}, {self.norm.name}: {span}"))


def is_solved(residual: np.ndarray, head_residual: np.ndarray | None = None) -> np.ndarray:
    """Whether residuals are within the tolerance of a path."""
    largest: Any = residual if head_residual is None else np.maximum(residual, head_residual)
    return np.asarray(largest <= CONVERGED)


def _errors(weights: np.ndarray, limit: np.ndarray, axes: int) -> np.ndarray:
    """Direction errors along the path; NaN where there is no limit or the point was not reached."""
    over = tuple(range(-axes, 0))
    known = np.isfinite(limit).all(axis=over) & np.isfinite(weights).all(axis=over)
    shown = np.expand_dims(known, over)
    # zeros in place of NaN, which direction_error refuses; their errors are hidden below
    errors = direction_error(np.where(shown, weights, 0.0), np.where(shown, limit, 0.0), over)
    return np.where(known, np.asarray(errors), np.nan)
