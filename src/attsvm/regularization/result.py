"""What following a regularisation path returns."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.measures import direction_error
from attsvm.norms import Norm, parse_norm
from attsvm.storage import read_npz, write_npz

_ARRAYS = ("weights", "loss", "log_excess", "selected", "status", "residual", "limit", "limit_status")
_OF_HEAD = ("head_weights", "head_limit", "head_residual")


@dataclass(frozen=True, eq=False, repr=False)
class Path:
    """Minimisers of the loss in balls of growing radius: L of them, then the problem's batch axes in every array.

    Attributes
    ----------
    radii : ndarray, shape (L,)
    weights : ndarray, shape (L, *batch, d_k, d_q) or (L, *batch, d_k)
        W_R; for factors their product.
    loss : ndarray, shape (L, *batch)
        L(W_R).
    log_excess : ndarray, shape (L, *batch)
        log of what L(W_R) lies above the loss of the optimal tokens alone, which it says where the loss no longer can.
        −inf where it does not.
    selected : int ndarray, shape (L, *batch, n[, Q])
        The token of largest logit; -1 for padded queries.
    status : str ndarray, shape (L, *batch)
        ``converged``: the residual is at most 1e-8; ``stalled``: it is not.
    residual : ndarray, shape (L, *batch)
        How far W_R is from stationary: 1 − ⟨−G, W⟩/(N*(G) N(W)) on the sphere, N*(G) N(W) inside the ball, G the
        gradient of ``log_excess`` over the selected tokens (with the multiplier of the cone where that presses).
    limit : ndarray, shape (*batch, d_k, d_q) or (*batch, d_k)
        The Att-SVM, in the path's norm, of the tokens selected at the largest radius; the relaxed one where the head's
        radius is the larger one there. NaN where infeasible.
    limit_status : str or str ndarray (*batch)
        Its status: ``optimal``, ``inaccurate``, or ``infeasible``, where the path has no limit direction.
    norm : Norm
        N: that of W, or p; nuclear for factors.
    attention : str
    head_radii : ndarray, shape (L,), optional
        Where the head is on the path too.
    head_weights, head_limit, head_residual : ndarray, optional
        v (L, *batch, d), its max-margin direction (*batch, d), and the residual in v (L, *batch).
    """

    radii: np.ndarray
    weights: np.ndarray
    loss: np.ndarray
    log_excess: np.ndarray
    selected: np.ndarray
    status: np.ndarray
    residual: np.ndarray
    limit: np.ndarray
    limit_status: Any
    norm: Norm
    attention: str
    head_radii: np.ndarray | None = None
    head_weights: np.ndarray | None = None
    head_limit: np.ndarray | None = None
    head_residual: np.ndarray | None = None

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The axes of problems."""
        return self.loss.shape[1:]

    @property
    def direction_errors(self) -> np.ndarray:
        """1 − cosine between W_R and ``limit``, shape (L, *batch); 1 at W = 0, NaN where the limit is infeasible."""
        return _errors(self.weights, self.limit, 1 if self.attention == "prompt" else 2)

    @property
    def head_direction_errors(self) -> np.ndarray | None:
        """The same of the head; None where it is fixed."""
        if self.head_weights is None or self.head_limit is None:
            return None
        return _errors(self.head_weights, self.head_limit, 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to an ``.npz`` file, without pickle."""
        arrays = {name: np.asarray(getattr(self, name)) for name in ("radii", *_ARRAYS)}
        arrays |= {name: getattr(self, name) for name in ("head_radii", *_OF_HEAD) if getattr(self, name) is not None}
        write_npz(path, "path", arrays, {"norm": self.norm.name, "attention": self.attention})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Path":
        """Read what :meth:`save` wrote.

        Raises
        ------
        ProblemError
            If the file cannot be read or holds something else.
        """
        arrays, meta = read_npz(path, "path")
        try:
            arrays["limit_status"] = _plain(arrays["limit_status"])
            return cls(**arrays, norm=parse_norm(meta["norm"]), attention=meta["attention"])
        except (KeyError, TypeError) as error:
            raise ProblemError(f"{path}: not the arrays of a path ({error})") from None

    def __len__(self) -> int:
        return len(self.radii)

    def __repr__(self) -> str:
        span = f"{len(self)} radii, {self.radii[0]:g} to {self.radii[-1]:g}"
        converged = int((self.status == "converged").sum())
        parts = [f"{self.attention}, {self.norm.name}: {span}", f"{converged} of {self.status.size} converged"]
        last = self.direction_errors[-1]
        if np.isnan(last).all():
            parts.append("the last selection is infeasible")
        else:
            worst = " at most" if self.batch_shape else ""
            parts.append(f"last direction error{worst} {np.nanmax(last):.1e}")
        size = self.norm.values(self.weights[-1], 1 if self.attention == "prompt" else 2)
        if (size < 0.999 * self.radii[-1]).any():
            parts.append(f"the loss is least inside the last ball, at norm {np.min(size):.4g}")
        of_head = self.head_direction_errors
        if of_head is not None and not np.isnan(of_head[-1]).all():
            parts.append(f"of the head {np.nanmax(of_head[-1]):.1e}")
        return f"Path({'; '.join(parts)})"


def _errors(weights: np.ndarray, limit: np.ndarray, axes: int) -> np.ndarray:
    """Direction errors along the radii, NaN where there is no limit."""
    over = tuple(range(-axes, 0))
    there = np.isfinite(limit).all(axis=over, keepdims=True)
    errors = np.asarray(direction_error(weights, np.where(there, limit, 0.0), over))
    return np.where(there.reshape(there.shape[:-axes]), errors, np.nan)


def _plain(array: np.ndarray) -> Any:
    return array.item() if np.ndim(array) == 0 else array
