"""What one figure or table is: its claim, its sizes, its measurement, and the criterion that decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

Sizes = Mapping[str, Any]
Arrays = dict[str, np.ndarray]
Piece = Callable[..., Arrays]
"""``piece(name, function, *arguments)``: what ``function(*arguments)`` returns, computed now or in an earlier run."""


class Paper(StrEnum):
    """Where a claim was made."""

    TOKEN_SELECTION = "Max-Margin Token Selection in Attention Mechanism (2306.13596)"
    TRANSFORMERS = "Transformers as Support Vector Machines (2308.16898)"
    MIRROR_DESCENT = "Optimizing Attention with Mirror Descent (2410.14581)"
    OURS = "attsvm"


class Standing(StrEnum):
    """Whether a run supports its claim."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"


class Verdict(NamedTuple):
    """What a run says of a claim, and the sentence that says why."""

    standing: Standing
    why: str


class Row(NamedTuple):
    """A measured number, beside the published one where there is one."""

    name: str
    measured: str
    published: str = ""


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper, as something to run.

    Attributes
    ----------
    name : str
        What ``attsvm reproduce`` calls it.
    paper : Paper
    title : str
        Of the figure, in a few words.
    claim : str
        What it is to show.
    criterion : str
        When a run counts as support for the claim, in words; ``judge`` computes it.
    full, quick : dict
        Sizes, JSON-able: those of the paper, and small ones.
    measure : callable
        From sizes and a :data:`Piece` to the measured arrays. Every random number comes from a seed in the sizes.
    judge : callable
        From sizes and the measured arrays to a :class:`Verdict`.
    rows : callable
        From the measured arrays to the numbers worth reading.
    draw : callable
        From the measured arrays to a figure.
    """

    name: str
    paper: Paper
    title: str
    claim: str
    criterion: str
    full: Sizes
    quick: Sizes
    measure: Callable[[Sizes, Piece], Arrays]
    judge: Callable[[Sizes, Arrays], Verdict]
    rows: Callable[[Sizes, Arrays], Sequence[Row]]
    draw: Callable[[Sizes, Arrays], Figure]


def verdict(passed: Mapping[str, bool], why: str) -> Verdict:
    """All parts pass: holds; none does: does not hold; else in part, with the parts that fail named."""
    failed = [name for name, fine in passed.items() if not fine]
    if not failed:
        return Verdict(Standing.HOLDS, why)
    standing = Standing.FAILS if len(failed) == len(passed) else Standing.IN_PART
    return Verdict(standing, f"{why} Not as claimed: {'; '.join(failed)}.")
