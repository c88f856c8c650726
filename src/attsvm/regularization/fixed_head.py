"""The head that a path keeps fixed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attsvm.errors import ProblemError
from attsvm.heads import Head, Linear, parse_head
from attsvm.losses import OutputLoss
from attsvm.problem import Problem
from attsvm.regularization.excess import Excess
from attsvm.regularization.nonlinear import excess_of
from attsvm.regularization.scalar import Scalar
from attsvm.training.attention import Attention
from attsvm.training.setup import make_objective


@dataclass(frozen=True)
class FixedHead:
    """A head and its parameters for each problem of a batch."""

    head: Head
    parameters: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, problem: Problem, layer: Attention, head: str | Head | None, loss: OutputLoss) -> "FixedHead":
        """The head, by default the linear one of the problem.

        Raises ProblemError if there is none, or it does not fit.
        """
        if head is None and problem.head is None:
            raise ProblemError(
                'problem: expected a head, or head_radii, got neither; problem.with_head("mean") fits a head'
            )
        parsed = Linear() if head is None else parse_head(head)
        _, parameters = make_objective(problem, layer, parsed, loss, train_head=False, penalized=False)
        return cls(parsed, parameters)

    def excess(self, problem: Problem, index: tuple[int, ...], loss: Scalar) -> Excess:
        """The excess of the problem at this index of the batch."""
        return excess_of(self.head, {name: x[index] for name, x in self.parameters.items()}, problem, loss)
