"""The number of support tokens."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from attsvm.sweeps.block import Block
from attsvm.sweeps.format import MISSING, Output
from attsvm.sweeps.measure import Measure


class SupportCount(Measure):
    """The support tokens of the Att-SVM of the selected tokens.

    Missing where the trial is undecided or the Att-SVM has no solution of status ``optimal``.
    """

    name = "support_count"
    outputs: ClassVar[Mapping[str, Output]] = {"support_count": Output("support tokens", count=True)}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        solution = block.solution()
        counts = solution.support.reshape(len(solution.support), -1).sum(axis=1)
        return {"support_count": np.where(block.comparable(solution), counts, MISSING)}
