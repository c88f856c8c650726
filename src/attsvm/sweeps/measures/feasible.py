"""Whether the optimal tokens are separable, with the certificate."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from attsvm.results import Status
from attsvm.sweeps.block import Block
from attsvm.sweeps.format import MISSING, YES_NO, Output
from attsvm.sweeps.measure import Measure

STATUSES = tuple(status.value for status in (Status.OPTIMAL, Status.INACCURATE, Status.INFEASIBLE))


class Feasible(Measure):
    """Whether the Att-SVM of the optimal tokens has a solution. Nothing is trained for it.

    ``feasible`` is missing where neither weights nor multipliers prove the answer: the status is ``inaccurate``.
    ``gap`` is the relative duality gap of the weights of a feasible problem. ``bound`` is what the multipliers of an
    infeasible problem prove. Each is missing in the other problems, so its mean is that of the problems that have it.
    """

    name = "feasible"
    outputs: ClassVar[Mapping[str, Output]] = {
        "feasible": Output("separable problems", codes=YES_NO),
        "feasibility_status": Output("status of the Att-SVM", codes=STATUSES),
        "gap": Output("relative duality gap", partial=True),
        "bound": Output("Farkas bound", partial=True),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        solution = block.optimal_solution()
        status = np.asarray(solution.status)
        place = np.argmax(status[..., None] == np.array(STATUSES), axis=-1)
        feasible = np.array([1, MISSING, 0])[place]
        return {
            "feasible": feasible,
            "feasibility_status": place,
            "gap": np.asarray(solution.gap),
            "bound": np.where(status == Status.INFEASIBLE, solution.bound, np.nan),
        }
