"""How well a predicted limit is known, and the table of what was measured.

The table is ``standings.toml``. Its rows name the kind of steps (:attr:`attsvm.optimizers.Limit.steps`), what they
train, the norm of the Att-SVM, the range of numbers of steps and of changes of a logit that was measured, and the
command.
"""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any


class Standing(StrEnum):
    """How well a statement about a limit is known, for one run.

    See Also
    --------
    attsvm.Prediction, attsvm.theory.Hypothesis
    """

    PROVED = "proved"
    """A theorem covers the run: each of its hypotheses was checked and holds."""

    MEASURED = "measured"
    """Runs of this kind reached a mean margin ratio of at least 0.95, and this run lies within the measured range."""

    CONJECTURE = "conjecture"
    """It is expected, but the run lies outside of what was proved and measured."""

    NONE = "none"
    """Nothing is predicted; an Att-SVM is returned for comparison."""


class Found(StrEnum):
    """What a measurement says of the margin ratio, or of the correlation with the predicted direction."""

    MEASURED = "measured"
    """Its mean is at least 0.95 from some number of steps on."""

    RISING = "rising"
    """It is below 0.95 and still rising."""

    NONE = "none"
    """It is below 0.95 and grows slowly, if at all."""


@dataclass(frozen=True)
class Row:
    """One row of the table: what was trained, the Att-SVM, and what was measured."""

    steps: str  # steps, attention, norm: the kind of steps, the parametrization and the norm of the Att-SVM
    attention: str
    norm: str
    found: Found
    measure: str  # "margin ratio" or "correlation"
    # first, last: its mean and least value over the problems, after the least and the largest number of steps
    first: tuple[float, float]
    last: tuple[float, float]
    # num_steps, logit_change: the range that was measured; the change of a logit is that of the steps at the records
    num_steps: tuple[int, int]
    logit_change: tuple[float, float]
    command: str
    model: str = "fixed head"  # "fixed head", "trained head", "nonlinear head", "tokens, acyclic" or "tokens, cyclic"
    heads: str = "one"  # heads, columns: "one" or "several" attention heads; "all" or "few" columns of the factors
    columns: str = "all"
    decay: float = 0.0  # the decoupled weight decay
    batch: tuple[int, ...] = ()  # least and largest number of sequences in a step, or empty for all sequences
    sequences: int = 0  # n, for mini-batches

    @property
    def key(self) -> tuple[str, ...]:
        """What a run has to share with the row besides decay and batch."""
        return self.steps, self.attention, self.norm, self.model, self.heads, self.columns

    def text(self) -> str:
        """The numbers, mean / least."""
        (low, high), first, last = self.num_steps, self.first, self.last
        at_first = f"{first[0]:.3f} / {first[1]:.3f} after {low:,} steps, " if low != high else ""
        at_last = f"{last[0]:.3f} / {last[1]:.3f} after {high:,} steps"
        return f"{self.measure}, mean / least, {at_first}{at_last} ({self.command})"


@cache
def table() -> tuple[Row, ...]:
    rows = []
    for written in _file()["row"]:
        fields: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in written.items()}
        rows.append(Row(**(fields | {"found": Found(written["found"])})))
    return tuple(rows)


def notes(steps: str, attention: str) -> list[str]:
    """What else is to be said of steps of this kind: why they have no limit, and what to use instead."""
    return [note["text"] for note in _file()["note"] if note["steps"] == steps and attention in note["attention"]]


@cache
def _file() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((files(__package__) / "standings.toml").read_text(encoding="utf-8"))
