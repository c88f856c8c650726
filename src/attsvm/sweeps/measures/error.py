"""The share of wrong predictions on the training and the test data."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from attsvm.errors import ProblemError
from attsvm.measures import attention_of
from attsvm.problem import Problem
from attsvm.sweeps.block import Block
from attsvm.sweeps.format import Output
from attsvm.sweeps.measure import Measure
from attsvm.training import Run


class Error(Measure):
    """The share of queries whose output has the wrong sign; ``test_error`` is missing if the source has no test data.

    An output of exactly 0 is wrong.
    """

    name = "error"
    outputs: ClassVar[Mapping[str, Output]] = {
        "train_error": Output("training error"),
        "test_error": Output("test error"),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        """Apply the trained attention and its linear head."""
        test = block.test
        wrong = _share_wrong(block.problem, block.run)
        return {
            "train_error": wrong,
            "test_error": np.full(wrong.shape, np.nan) if test is None else _share_wrong(test, block.run),
        }


def _share_wrong(problem: Problem, run: Run) -> Any:
    if run.head != "linear" or problem.num_classes is not None or problem.labels is None or problem.heads_shape:
        raise ProblemError("error: expected one attention head, a linear head and labels ±1")
    # the true scale of weights at the border of the floats makes no difference: every softmax is saturated there
    attention = attention_of(problem, run.weights)
    values = np.einsum("bntd,bd->bnt", problem.tokens, run.parameters["v"])
    outputs = np.einsum("bnqt,bnt->bnq", attention, values)
    labels = problem.labels if problem.has_query_axis else problem.labels[..., None]
    active = problem.canonical.active
    return np.sum(active & (labels * outputs <= 0), axis=(1, 2)) / active.sum(axis=(1, 2))
