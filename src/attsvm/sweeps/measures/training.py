"""The end of the training: its loss, and when the trials were decided."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from attsvm.sweeps.block import Block
from attsvm.sweeps.format import Output
from attsvm.sweeps.measure import Measure


class Loss(Measure):
    """The loss after the last step."""

    name = "loss"
    several_heads = True
    outputs: ClassVar[Mapping[str, Output]] = {"loss": Output("training loss")}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        return {"loss": np.asarray(block.run.loss)}


class Steps(Measure):
    """The steps made, and the first recorded step from which on every softmax is saturated; missing if undecided."""

    name = "decision_step"
    outputs: ClassVar[Mapping[str, Output]] = {
        "decision_step": Output("steps to decision", units="steps", count=True),
        "steps": Output("steps made", units="steps", count=True),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        return {"decision_step": block.trained.decided, "steps": np.asarray(block.run.step)}
