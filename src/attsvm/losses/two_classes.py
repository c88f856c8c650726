"""Losses of margins, and the cross-entropy of two classes as one of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax

from attsvm.errors import ProblemError
from attsvm.losses.base import OutputLoss
from attsvm.losses.cross_entropy import CrossEntropy
from attsvm.losses.logistic import LOGISTIC
from attsvm.losses.registry import parse_loss

if TYPE_CHECKING:
    from attsvm.problem import Problem


def parse_margin_loss(
    problem: "Problem", loss: str | OutputLoss | Callable[[jax.Array], jax.Array]
) -> tuple["Problem", OutputLoss]:
    """Read a loss of the margin, and make two classes labels ±1.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes and the loss "cross_entropy".
    loss : str, OutputLoss or callable
        As for :func:`parse_loss`.

    Returns
    -------
    Problem
        ``problem.binary``.
    OutputLoss
        The loss; the logistic one for two classes, whose cross-entropy it is.

    Raises
    ------
    ProblemError
        If there are more than two classes, or the loss is unknown or does not fit the labels.

    See Also
    --------
    attsvm.losses.parse_loss

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.Problem([[[1.0, 0.0], [0.0, 1.0]]], labels=[1], head=[[0.0, 1.0], [2.0, 0.0]])
    >>> binary, loss = attsvm.losses.parse_margin_loss(problem, "cross_entropy")
    >>> binary.labels, binary.head, loss.name
    (array([1.]), array([ 2., -1.]), 'logistic')
    """
    binary = problem.binary
    parsed = parse_loss(loss, problem.num_classes)
    if binary is problem:
        return problem, parsed
    if not isinstance(parsed, CrossEntropy):
        raise ProblemError(f"loss: expected cross_entropy for two classes, got {parsed.name}")
    return binary, LOGISTIC
