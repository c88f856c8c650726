"""The table of what was measured of the limits of training, ``standings.toml``.

Its rows have the fields of the steps (:class:`attsvm.optimizers.Steps`) that are not those by default, what they train,
the norm of the Att-SVM, the range of numbers of steps and of changes of a logit that was measured, and the command.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from attsvm.optimizers import Steps, read_steps


class Found(StrEnum):
    """Kinds of measurements of the margin ratio, or of the correlation with the predicted direction."""

    MEASURED = "measured"
    """Its mean is at least :func:`enough` from some number of steps on."""

    RISING = "rising"
    """It is below that and still rising."""

    NONE = "none"
    """It is below that and grows slowly, if at all."""


@dataclass(frozen=True)
class Row:
    """One row of the table: what was trained, the Att-SVM, and what was measured."""

    steps: Steps
    attention: str  # attention, norm: the parametrization and the norm of the Att-SVM
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
    momentum: tuple[float, float] = (0.0, 0.0)  # the range of β
    # the range of R, for the stationary points of runs with decay: first is for the least of them, last for the largest
    radius: tuple[float, ...] = ()
    batch: tuple[int, ...] = ()  # least and largest number of sequences in a step, or empty for all sequences
    sequences: int = 0  # n, for mini-batches
    map: str = "softmax"
    # of maps that become one-hot: the range of λ/λ* (sparsemax), or of the distance of the point to the Att-SVM
    penalty: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Identify the runs that the row is about, besides decay and batch."""
        return self.steps, self.attention, self.norm, self.model, self.heads, self.columns, self.map

    def text(self) -> str:
        """The numbers, mean / least."""
        ends = [f"after {count:,} steps" for count in self.num_steps]
        if self.radius:
            ends = [f"for R = {radius:g}" for radius in self.radius]
        pairs = zip((self.first, self.last), ends, strict=True)
        numbers = [f"{mean:.3f} / {least:.3f} {end}" for (mean, least), end in pairs]
        return f"{self.measure} of other runs, mean / least, {', '.join(dict.fromkeys(numbers))} ({self.command})"


@cache
def table() -> tuple[Row, ...]:
    rows = []
    for written in contents()["row"]:
        fields: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in written.items()}
        rows.append(Row(**(fields | {"steps": read_steps(written["steps"]), "found": Found(written["found"])})))
    return tuple(rows)


def enough() -> float:
    """The mean margin ratio, or correlation, from which on a limit counts as measured."""
    return float(contents()["enough"])


def matches(steps: Steps, given: Mapping[str, Any]) -> bool:
    """Whether steps have these fields of a row of the table."""
    read = read_steps(given)
    return all(getattr(steps, name) == getattr(read, name) for name in given)


def notes(steps: Steps, attention: str) -> list[str]:
    """Say why such steps have no limit, and which to use instead."""
    return [
        note["text"] for note in contents()["note"] if matches(steps, note["steps"]) and attention in note["attention"]
    ]


@cache
def contents() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "standings.toml").read_text(encoding="utf-8"))
