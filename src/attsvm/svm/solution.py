"""The answer to an Att-SVM, with its proof."""

import os
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from attsvm.norms import Norm, read_norm, written_norm
from attsvm.results import check_index
from attsvm.storage import read_npz, write_npz
from attsvm.svm.certificate import Certificate

SCHEMA = 1
_ARRAYS = (
    "direction",
    "value",
    "margin",
    "dual",
    "support",
    "gap",
    "violation",
    "raw_violation",
    "status",
    "bound",
    "objective",
    "selected",
    "relaxed",
)


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The weights of least norm that keep a selection, or the proof that there are none.

    Numbers are floats for one problem, arrays of shape (*lead,) for several; ``lead`` are the leading axes of the
    selection and the problem.

    Attributes
    ----------
    direction : ndarray, shape (*lead, d_k, d_q), or (*lead, d_k) for a prompt
        The optimum itself: N(direction) = value. NaN where infeasible.
    value : float
        N(direction); NaN where infeasible.
    margin : float
        min A(W) / N(W) over the rows with b = 1; NaN where there is none, or where infeasible.
    dual : ndarray, shape (*lead, n[, Q], T)
        λ with N*(A*(λ)) = 1, so that b'λ ≤ optimum; zero at masked and reference tokens. For a set the reference is
        its first token, and its other slots hold the free multipliers of (k_ref − k_t)'Wz = 0. Where infeasible: the
        Farkas multipliers, b'λ = 1. With slack: 0 ≤ λ ≤ C and W = A*(λ).
    support : bool ndarray, shape (*lead, n[, Q], T)
        The SVM-neighbours: constraints that hold with equality, slack ≤ 1e-6 ‖row‖ ‖W‖. With slack: λ > 0.
    gap : float
        Relative distance of the two bounds on the optimum, N(W) and b'λ; NaN where infeasible.
    violation : float
        Largest violation on the returned direction, over ‖row‖ ‖W‖ (Frobenius norms). ∞ where infeasible.
    raw_violation : float
        The same, not divided.
    status : str, or ndarray of str
        ``optimal``: gap ≤ max(tol, 1e-15 value) and violation ≤ 1e-9; ``infeasible``: proved by ``certificate``;
        ``inaccurate``: neither, and ``gap`` says how far.
    objective : float
        What was minimised: the value, or with slack ½‖W‖² + C Σ ξ.
    stats : dict
        ``method`` and ``why`` it was chosen, ``steps``, ``seconds``.
    selected : ndarray
        As it was passed.
    norm : Norm
    relaxed : bool ndarray or None
    slack : float or None
        As they were passed.
    bound : float
        The Farkas bound of ``certificate``; 0 where not infeasible.
    """

    direction: np.ndarray
    value: Any
    margin: Any
    dual: np.ndarray
    support: np.ndarray
    gap: Any
    violation: Any
    raw_violation: Any
    status: Any
    bound: Any
    objective: Any
    selected: np.ndarray
    norm: Norm
    relaxed: np.ndarray | None = None
    slack: float | None = None
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def lead(self) -> tuple[int, ...]:
        """Leading axes: one problem each."""
        return np.shape(self.value)

    @property
    def certificate(self) -> Certificate | None:
        """The Farkas multipliers and their bound where infeasible; None if no problem is."""
        infeasible = np.asarray(self.status) == "infeasible"
        if not infeasible.any():
            return None
        shape = infeasible.shape + (1,) * (self.dual.ndim - infeasible.ndim)
        return Certificate(self.dual * infeasible.reshape(shape), self.bound)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to an ``.npz`` file, without pickle."""
        arrays = {name: np.asarray(getattr(self, name)) for name in _ARRAYS if getattr(self, name) is not None}
        stats = {name: entry.tolist() if isinstance(entry, np.ndarray) else entry for name, entry in self.stats.items()}
        norm = written_norm(self.norm)
        write_npz(path, "solution", arrays, {"schema": SCHEMA, "norm": norm, "slack": self.slack, "stats": stats})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Solution":
        """Read what :meth:`save` wrote.

        Raises
        ------
        ProblemError
            If the file cannot be read or holds something else.
        """
        arrays, meta = read_npz(path, "solution")
        norm = read_norm(meta["norm"])
        plain = {name: _plain(array) for name, array in arrays.items()}
        stats = {name: np.asarray(entry) if isinstance(entry, list) else entry for name, entry in meta["stats"].items()}
        return cls(**plain, norm=norm, slack=meta["slack"], stats=stats)

    def __getitem__(self, index: Any) -> "Solution":
        """The solution or solutions at ``index`` of the leading axes."""
        check_index(index, self.lead, "solution")
        own = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        for name in _ARRAYS:
            if own[name] is not None:
                own[name] = _plain(own[name][index])
        own["stats"] = {
            name: _plain(entry[index]) if isinstance(entry, np.ndarray) else entry for name, entry in self.stats.items()
        }
        return Solution(**own)

    def __len__(self) -> int:
        if not self.lead:
            raise TypeError("a solution without batch axes has no length")
        return self.lead[0]

    def __repr__(self) -> str:
        if self.lead:
            names, counts = np.unique(np.asarray(self.status), return_counts=True)
            kinds = ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True))
            return f"Solution({' × '.join(map(str, self.lead))} problems, {self.norm.name}: {kinds})"
        if self.status == "infeasible":
            return f"Solution({self.norm.name}: infeasible, N(W) ≥ {self.bound:.1e} on unit rows)"
        number = int(self.support.sum())
        slack = "" if self.slack is None else f", objective = {self.objective:.6g} at C = {self.slack:g}"
        return (
            f"Solution({self.norm.name}: {self.status}, value = {self.value:.6g}{slack}, margin = {self.margin:.6g}, "
            f"{number} support tokens, gap = {self.gap:.1e})"
        )


def _plain(array: Any) -> Any:
    """A Python number or string where there is no axis left."""
    return array.item() if np.ndim(array) == 0 and isinstance(array, (np.ndarray, np.generic)) else array
