"""What training returns."""

import os
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.optimizers import from_configuration
from attsvm.results import check_index
from attsvm.storage import read_npz, write_npz

STATUSES = ("finished", "converged", "stalled", "non_finite", "interrupted")


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A training run, or a batch of them: every array starts with the batch axes (trials first, then the problem's).

    Attributes
    ----------
    weights : ndarray, shape (*batch, d_k, d_q) or (*batch, d_k)
        What the Att-SVM speaks of: W, KQ' or p.
    parameters : dict of str to ndarray
        "W" | "K", "Q" | "p", and the head's ("v" for a linear one), trained or not.
    selected : int ndarray, shape (*batch, n[, Q])
        The token of largest logit, lowest index on ties; -1 for padded queries.
    probability : ndarray, shape (*batch, n[, Q])
        Its softmax probability; 0 for padded queries.
    loss : float or ndarray (*batch)
        Mean over the unmasked queries, penalty included.
    history : dict of str to ndarray
        ``steps`` (R,); ``loss`` (R, *batch), ``probability`` and ``selected`` (R, *batch, n[, Q]), ``weights``
        (R, *batch, ...) and the trained parameters of the head after that many updates.
    status : str or str ndarray (*batch)
        ``finished``; ``converged``: a tolerance was met; ``stalled``: the gradient became exactly zero (for
        mini-batches, throughout an epoch); ``non_finite``: the next step would have left the
        finite numbers, and the trial stands where it was before; ``interrupted``.
    step : int or int ndarray (*batch)
        Updates made; where the trial stopped, the step it stopped at.
    precise_until : int, None or int ndarray (*batch)
        The recorded step at which a logit had passed 1e8, from where the rounding of the logits makes the run a
        subgradient method on the margins. None if never; in a batch, -1.
    attention, head, optimizer, norm, seed
        How it was trained: names ("linear", "quadratic", "mlp", ... for the head), the optimiser's norm (None if
        unknown), the seed of the initial weights and the mini-batches.
    """

    weights: np.ndarray
    parameters: dict[str, np.ndarray]
    selected: np.ndarray
    probability: np.ndarray
    loss: Any
    history: dict[str, np.ndarray]
    status: Any
    step: Any
    precise_until: Any
    attention: str
    head: str
    optimizer: str
    norm: Norm | None
    seed: int
    optimizer_state: tuple[np.ndarray, ...] = ()
    optimizer_config: dict[str, Any] | None = None
    live_optimizer: Any = field(default=None, compare=False)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The axes of trials."""
        return np.shape(self.loss)

    @property
    def steps(self) -> int:
        """Updates made by the trial that made most."""
        return int(np.max(self.step, initial=0))

    def __getitem__(self, index: Any) -> "Run":
        """The run or runs at ``index`` of the batch axes."""
        check_index(index, self.batch_shape, "run")
        precise = np.asarray(self.precise_until)[index]
        later = index if isinstance(index, tuple) else (index,)
        return replace(
            self,
            **{name: getattr(self, name)[index] for name in ("weights", "selected", "probability")},
            **{name: plain(getattr(self, name)[index]) for name in ("loss", "status", "step")},
            precise_until=precise if np.ndim(precise) else (int(precise) if precise >= 0 else None),
            parameters={name: array[index] for name, array in self.parameters.items()},
            history={name: x if name == "steps" else x[(slice(None), *later)] for name, x in self.history.items()},
            optimizer_state=tuple(array[index] for array in self.optimizer_state),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run to an ``.npz`` file, optimiser state included, from which training can resume."""
        arrays = {name: np.asarray(getattr(self, name)) for name in _ARRAYS}
        arrays["precise_until"] = np.asarray(-1 if self.precise_until is None else self.precise_until)
        arrays |= {f"parameters/{name}": array for name, array in self.parameters.items()}
        arrays |= {f"history/{name}": array for name, array in self.history.items()}
        arrays |= {f"optimizer_state/{i}": array for i, array in enumerate(self.optimizer_state)}
        meta = {
            "attention": self.attention,
            "head": self.head,
            "optimizer": self.optimizer,
            "optimizer_config": self.optimizer_config,
            "norm": None if self.norm is None else self.norm.name,
            "seed": self.seed,
        }
        write_npz(path, "run", arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Run":
        """Read a run.

        Raises
        ------
        ProblemError
            If the file cannot be read or holds something else.
        """
        arrays, meta = read_npz(path, "run")
        parts: dict[str, dict[str, np.ndarray]] = {"parameters": {}, "history": {}, "optimizer_state": {}}
        for name in [name for name in arrays if "/" in name]:
            group, key = name.split("/", 1)
            parts.setdefault(group, {})[key] = arrays.pop(name)
        try:
            precise = arrays.pop("precise_until")
            return cls(
                **{name: plain(arrays[name]) for name in _ARRAYS},
                precise_until=precise if precise.ndim else (int(precise) if precise >= 0 else None),
                parameters=parts["parameters"],
                history=parts["history"],
                optimizer_state=tuple(parts["optimizer_state"][str(i)] for i in range(len(parts["optimizer_state"]))),
                norm=None if meta["norm"] is None else parse_norm(meta["norm"]),
                **{name: meta[name] for name in ("attention", "head", "optimizer", "optimizer_config", "seed")},
            )
        except KeyError as error:
            raise ProblemError(f"{path}: a run without {error}") from None

    def __repr__(self) -> str:
        how = f"{self.attention}, {self.optimizer}"
        if self.batch_shape:
            statuses, counts = np.unique(self.status, return_counts=True)
            ends = ", ".join(f"{count} {status}" for status, count in zip(statuses, counts, strict=True))
            batch = " × ".join(map(str, self.batch_shape))
            return f"Run({batch} trials of {how}; {self.steps:,} steps: {ends}; mean loss {np.mean(self.loss):.3g})"
        kept = self.probability[self.selected >= 0]
        parts = [
            how,
            f"{self.status} after {self.step:,} steps",
            f"loss {self.loss:.3g}",
            f"median largest probability {np.median(kept):.6g}",
        ]
        if self.precise_until is not None:
            parts.append(f"logits past 1e8 at step {self.precise_until:,}")
        return f"Run({'; '.join(parts)})"


_ARRAYS = ("weights", "selected", "probability", "loss", "status", "step")


def optimizer_of(run: Run) -> Any:
    """The optimiser that made a run.

    Raises
    ------
    ProblemError
        If the run comes from a file and its optimiser cannot be rebuilt from what stands there.
    """
    if run.live_optimizer is not None:
        return run.live_optimizer
    if run.optimizer_config is None:
        raise ProblemError(f"optimizer: {run.optimizer} cannot be rebuilt from the file; pass it to resume the run")
    return from_configuration(run.optimizer_config)


def plain(value: np.ndarray) -> Any:
    """An array, or the Python number or string that a 0-dimensional one holds."""
    return value.item() if np.ndim(value) == 0 else value
