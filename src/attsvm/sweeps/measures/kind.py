"""The kind of convergence."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from attsvm.sweeps.block import Block
from attsvm.sweeps.format import Output
from attsvm.sweeps.measure import Measure
from attsvm.theory.kinds import Kind, classify

KINDS = tuple(kind.value for kind in Kind)


class KindOfConvergence(Measure):
    """Whether a run ends at the optimal tokens, at a local optimum, or at neither (:func:`attsvm.classify`)."""

    name = "kind"
    outputs: ClassVar[Mapping[str, Output]] = {"kind": Output("kind of convergence", codes=KINDS)}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        kinds = classify(block.problem, block.run, block.norm).kind
        return {"kind": np.argmax(np.asarray(kinds)[..., None] == np.array(KINDS), axis=-1)}
