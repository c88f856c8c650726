"""The rank of the trained weights."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from attsvm.errors import ProblemError
from attsvm.sweeps.block import Block
from attsvm.sweeps.format import Output
from attsvm.sweeps.measure import Measure

RELATIVE = 1e-6
"""Singular values below this fraction of the largest do not count."""


class Rank(Measure):
    """The singular values above 1e-6 of the largest, and the effective rank exp(−Σ p log p), p = σ/Σσ."""

    name = "rank"
    outputs: ClassVar[Mapping[str, Output]] = {
        "rank": Output("rank", count=True),
        "effective_rank": Output("effective rank"),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        if not block.problem.has_queries:
            raise ProblemError("rank: expected a problem with queries, got a prompt, whose weights are a vector")
        values = np.linalg.svd(block.run.weights, compute_uv=False)
        total = values.sum(axis=-1, keepdims=True)
        share = values / np.where(total > 0, total, 1.0)
        entropy = -np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=-1)
        return {
            "rank": np.sum((values > RELATIVE * values[..., :1]) & (values > 0), axis=-1),
            "effective_rank": np.where(total[..., 0] > 0, np.exp(entropy), 0.0),
        }
