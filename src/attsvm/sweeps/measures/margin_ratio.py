"""The margin of the weights over the best margin, in several norms."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from attsvm.measures import margin
from attsvm.norms import parse_norm
from attsvm.norms.registry import norms_in
from attsvm.sweeps.block import Block
from attsvm.sweeps.format import Output
from attsvm.sweeps.measure import Measure


@dataclass(frozen=True)
class MarginRatio(Measure):
    """The margin ratio of the selected tokens in each norm.

    Missing where the trial is undecided or the Att-SVM has no solution of status ``optimal``.
    """

    norms: tuple[str, ...] = ("frobenius",)
    name = "margin_ratio"

    def __post_init__(self) -> None:
        for norm in self.norms:
            parse_norm(norm)

    def declared(self) -> Mapping[str, Output]:
        """One output, with an axis of norms."""
        return {"margin_ratio": Output("margin ratio", axes={"measured_norm": self.norms})}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        ratios = []
        for norm in self.norms:
            solution = block.solution(norm)
            achieved = margin(block.trained_problem, block.trained_weights, block.run.selected, norm)
            ratio = np.asarray(achieved) * np.asarray(solution.value)
            ratios.append(np.where(block.comparable(solution), ratio, np.nan))
        return {"margin_ratio": np.stack(ratios, axis=-1)}

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Norms, divided by semicolons, or by commas unless the whole text names one norm."""
        return cls(tuple(norms_in(text)))
