"""Whether all other tokens are support tokens of the Att-SVM of the optimal tokens."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from attsvm.results import Status
from attsvm.sweeps.block import Block
from attsvm.sweeps.format import MISSING, YES_NO, Output
from attsvm.sweeps.measure import Measure


class AllSupport(Measure):
    """Whether every token that is not optimal is a support token of the Att-SVM of the optimal tokens.

    Nothing is trained for it. It is "no" for an infeasible Att-SVM, and missing for an inaccurate one.
    """

    name = "all_support"
    outputs: ClassVar[Mapping[str, Output]] = {"all_support": Output("all tokens support", codes=YES_NO)}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        solution = block.optimal_solution()
        canonical = block.problem.canonical
        # one token of each active query is selected
        others = canonical.allowed.sum(axis=(-3, -2, -1)) - canonical.active.sum(axis=(-2, -1))
        counts = solution.support.reshape(len(solution.support), -1).sum(axis=1)
        inaccurate = np.asarray(solution.status) == Status.INACCURATE
        return {"all_support": np.where(inaccurate, MISSING, counts == others)}
