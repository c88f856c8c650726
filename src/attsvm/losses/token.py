"""The log loss −log f_y of shares f: of the attention that the tokens of each kind get together."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from attsvm.errors import ProblemError
from attsvm.losses.base import Keeps, OutputLoss, Outputs, Slope
from attsvm.losses.registry import LOSSES

if TYPE_CHECKING:
    from attsvm.heads import Head
    from attsvm.problem import Problem

Array = jax.Array


@dataclass(frozen=True)
class TokenLoss(OutputLoss):
    """−log f_y, where f_y is the attention on the tokens y of a context: the log loss of next-token prediction.

    It is for problems whose tokens are one-hot vectors of the token numbers and whose head is the identity, as
    :meth:`attsvm.TokenGraph.training_problem` makes them. Other problems and trained heads are refused. Training
    computes it from log f_y, so that it is finite where f_y underflows. A loss below 1e-16 is 0; steps do not depend on
    digits of a small loss.

    See Also
    --------
    attsvm.TokenGraph.training_problem
    attsvm.losses.CrossEntropy : Of class scores that are not shares.

    References
    ----------
    Li, Huang, Ildiz, Rawat and Oymak (2024), *Mechanics of Next Token Prediction with Self-Attention*, AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.losses import TokenLoss
    >>> shares = np.array([0.25, 0.75]).reshape(1, 1, 2, 1)
    >>> round(TokenLoss().values(shares, np.ones((1, 1, 1))).item(), 4)
    0.2877
    """

    name = "token"
    takes = Outputs.CLASS_SCORES
    keeps = Keeps.LABEL_COMPONENT
    reads_attention = True

    def check(self, problem: "Problem", head: "Head", *, trains_head: bool) -> None:
        """Check that the outputs are shares of the attention.

        Raises ProblemError if the head is trained, nonlinear or not the identity, the tokens are not one-hot vectors,
        or there are several attention heads.
        """
        if trains_head:
            raise ProblemError("train_head: expected False with the token loss, whose outputs are the attention")
        if head.name != "linear":
            raise ProblemError(f"head: expected the linear head with the token loss, got {head.name}")
        problem.check_one_head()
        if problem.head is None or not (problem.head == np.eye(problem.dim)).all():
            raise ProblemError("head: expected the identity matrix with the token loss, got another head")
        in_use = problem.canonical.allowed.any(axis=-2)
        ones = (problem.tokens == 1).sum(axis=-1)
        if not ((ones == 1) & (np.count_nonzero(problem.tokens, axis=-1) == 1))[in_use].all():
            raise ProblemError("tokens: expected one-hot vectors of token numbers with the token loss, got others")

    def values(self, outputs: Array, labels: Array, log_share: Array | None = None) -> Array:
        """−log f_y of each query; ``log_share`` is log f_y where it is known."""
        return -(jnp.log(self._share(outputs, labels)) if log_share is None else log_share)

    def slope(self, outputs: Array, labels: Array, log_share: Array | None = None) -> Slope:
        """Compute −onehot(y) / f_y of each query."""
        return Slope(-self._right(outputs, labels).astype(outputs.dtype), self.values(outputs, labels, log_share))

    @staticmethod
    def _right(outputs: Array, labels: Array) -> Array:
        classes = jax.lax.broadcasted_iota(jnp.int32, (1, 1, outputs.shape[2], 1), 2)
        return classes == labels[:, :, None]

    @classmethod
    def _share(cls, outputs: Array, labels: Array) -> Array:
        return jnp.sum(jnp.where(cls._right(outputs, labels), outputs, 0.0), axis=2)


LOSSES.register("token", TokenLoss())
