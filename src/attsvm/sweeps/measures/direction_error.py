"""The distance of the trained direction from that of the Att-SVM."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from attsvm.measures import direction_error
from attsvm.sweeps.block import Block
from attsvm.sweeps.format import Output
from attsvm.sweeps.measure import Measure


class DirectionError(Measure):
    """1 − correlation of the weights and the Att-SVM of the selected tokens.

    Missing where the trial is undecided or the Att-SVM has no solution of status ``optimal``.
    """

    name = "direction_error"
    outputs: ClassVar[Mapping[str, Output]] = {"direction_error": Output("direction error")}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        solution = block.solution()
        axes = (-2, -1) if block.trained_problem.has_queries else -1
        error = direction_error(block.trained_weights, np.nan_to_num(solution.direction), axis=axes)
        return {"direction_error": np.where(block.comparable(solution), error, np.nan)}
