"""The margin of the weights over the best margin, in several norms."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from attsvm.measures import margin
from attsvm.norms import parse_norm
from attsvm.sweeps.block import Block, where_feasible
from attsvm.sweeps.format import Output
from attsvm.sweeps.measure import MEASURES, Measure


@dataclass(frozen=True)
class MarginRatio(Measure):
    """The margin ratio of the selected tokens in each norm; missing where their Att-SVM is infeasible.

    Parameters
    ----------
    norms : tuple of str
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
        """Compute the ratio in each norm."""
        ratios = []
        for norm in self.norms:
            solution = block.solution(norm)
            achieved = margin(block.problem, block.run.weights, block.run.selected, norm)
            ratios.append(where_feasible(solution, np.asarray(achieved) * np.asarray(solution.value)))
        return {"margin_ratio": np.stack(ratios, axis=-1)}

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Norms, divided by commas."""
        return cls(tuple(text.split(",")))


MEASURES.register(MarginRatio.name, MarginRatio)
