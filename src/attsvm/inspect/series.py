"""Inspections of two models, or of checkpoints in order, on the same batch, and what changed between them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float

from attsvm.errors import ProblemError
from attsvm.inspect.comparison import Comparison, HeadChange, compare
from attsvm.inspect.result import Inspection

Head = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Series:
    """At least two inspections of the same heads, in order.

    Attributes
    ----------
    names : list of str
    steps : list of int or None
        The training step of each; None if they are not checkpoints of one training.
    inspections : list of Inspection
    total : Comparison
        Of the first with the last.
    since_first, since_previous : dict of (int, int) to ndarray, shape (models - 1,)
        Share of changed selections of a head in each later model; NaN where that model lacks the head.
    """

    names: list[str]
    steps: list[int] | None
    inspections: list[Inspection]
    total: Comparison
    since_first: dict[Head, Float[np.ndarray, " later"]]
    since_previous: dict[Head, Float[np.ndarray, " later"]]

    @classmethod
    def of(cls, names: list[str], steps: list[int] | None, inspections: list[Inspection]) -> "Series":
        """Compare inspections.

        Raises
        ------
        ProblemError
            If there are fewer than two, or they cannot be compared.
        """
        if len(inspections) < 2:
            raise ProblemError(f"inspections: expected at least two, got {len(inspections)}")
        first, *later = inspections
        from_first = [compare(first, one) for one in later]
        steps_between = [compare(one, other) for one, other in pairwise(inspections)]
        return cls(names, steps, inspections, from_first[-1], _shares(from_first), _shares(steps_between))

    @property
    def places(self) -> list[int]:
        """Where each model is on an axis: its step, or its number."""
        return self.steps or list(range(1, 1 + len(self.names)))

    @property
    def ends(self) -> tuple[Inspection, Inspection]:
        """The first and the last inspection."""
        return self.inspections[0], self.inspections[-1]

    @property
    def moved(self) -> list[HeadChange]:
        """The heads whose margin ratio certainly moved from the first to the last."""
        return [one for one in self.total.heads if one.margin_moved]


def _shares(comparisons: list[Comparison]) -> dict[Head, Float[np.ndarray, " later"]]:
    found = [{(one.layer, one.head): one.changed for one in each.heads} for each in comparisons]
    return {head: np.array([each.get(head, np.nan) for each in found]) for head in found[-1]}


def training_order(models: Iterable[str]) -> tuple[list[str], list[int] | None]:
    """The models in the order of their training steps, and these steps; as given with None if they have none.

    Models have steps if they are three or more folders beside each other whose names differ only in the number at the
    end. Two models keep their order.

    Examples
    --------
    >>> from attsvm.inspect.series import training_order
    >>> training_order(["runs/checkpoint-1000", "runs/checkpoint-200", "runs/checkpoint-50"])
    (['runs/checkpoint-50', 'runs/checkpoint-200', 'runs/checkpoint-1000'], [50, 200, 1000])
    >>> training_order(["bert-2", "gpt-1", "bert-1"])
    (['bert-2', 'gpt-1', 'bert-1'], None)
    """
    given = list(models)
    found = [re.fullmatch(r"(.*?)(\d+)", str(Path(name))) for name in given]
    stems = {match[1] for match in found if match}
    if len(given) < 3 or None in found or len(stems) > 1:
        return given, None
    by_step = sorted((int(match[2]), name) for match, name in zip(found, given, strict=True) if match)
    return [name for _, name in by_step], [step for step, _ in by_step]
