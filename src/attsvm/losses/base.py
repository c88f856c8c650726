"""The base class of losses: the value and the logarithm of the slope."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import jax

if TYPE_CHECKING:
    from attsvm.heads import Head
    from attsvm.problem import Problem

Array = jax.Array


class Outputs(StrEnum):
    """The argument of a loss, which determines the labels that it takes.

    See Also
    --------
    attsvm.losses.OutputLoss
    """

    MARGIN = "margin"
    """The margin y f, for labels y = ±1."""

    CLASS_SCORES = "class scores"
    """Scores f of C classes, for labels 0..C−1."""


class Keeps(StrEnum):
    """Which tokens of a query training keeps. This determines the Att-SVM to which its weights converge.

    See Also
    --------
    attsvm.losses.OutputLoss, attsvm.predict_direction

    References
    ----------
    Li, Huang, Ildiz, Rawat and Oymak (2024), *Mechanics of Next Token Prediction with Self-Attention*, AISTATS:
    components of labels.

    Examples
    --------
    >>> from attsvm.losses import Keeps, parse_loss
    >>> parse_loss("token", 3).keeps.value, parse_loss("logistic", None).keeps.value
    ('component of the label', 'selection')
    """

    SELECTION = "selection"
    """Those that the trained weights select. They depend on the run."""

    LABEL_COMPONENT = "component of the label"
    """Those in the component of the label in the token-priority graph. They depend on the data alone."""


class Slope(NamedTuple):
    """The derivative ∂ℓ/∂f of each query as direction · exp(log_slope).

    Attributes
    ----------
    direction : Array, shape (n, Q, B), or (n, Q, C, B) for C classes
    log_slope : Array, shape (n, Q, B)

    See Also
    --------
    attsvm.losses.OutputLoss

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.losses import parse_loss
    >>> slope = parse_loss("exponential", None).slope(np.full((1, 1, 1), 2000.0), np.ones((1, 1, 1)))
    >>> slope.direction.item(), slope.log_slope.item()
    (-1.0, -2000.0)
    """

    direction: Array
    log_slope: Array


class OutputLoss(ABC):
    """Base of every loss: a function of the head's outputs and the labels.

    Most losses are functions of the margin and need no subclass: use :class:`attsvm.losses.Loss`. Equal losses share
    their compiled training, so a subclass defines equality and a hash, for instance as a frozen dataclass. The trailing
    axis of all arrays holds the trials.

    See Also
    --------
    attsvm.losses.Loss, attsvm.losses.CrossEntropy
    """

    takes: Outputs = Outputs.MARGIN
    """Whether it is a loss of margins or of class scores."""

    keeps: Keeps = Keeps.SELECTION
    """Which tokens training with this loss keeps."""

    reads_attention: bool = False
    """Whether training passes log f_y, shape (n, Q, B), to ``values`` and ``slope`` after the labels.

    f_y is the attention on the tokens of the label, for a loss whose outputs are attention; its logarithm is finite
    where it underflows.
    """

    defined_everywhere: bool = False
    """Whether value and slope are finite for all finite outputs, and for the label 0 of padded queries.

    Otherwise each step checks that they are, and a trial stops where they are not.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name; a class attribute ``name = "..."`` will do."""

    def check(self, problem: "Problem", head: "Head", *, trains_head: bool) -> None:  # noqa: B027  # most fit all
        """Check that the loss is defined for this model; every model by default.

        Raises
        ------
        ProblemError
            If it is not.
        """

    @abstractmethod
    def values(self, outputs: Array, labels: Array) -> Array:
        """The loss of each query.

        Parameters
        ----------
        outputs : Array, shape (n, Q, B), or (n, Q, C, B) for C classes
        labels : Array, shape (n, Q, B)
            ±1, or class numbers 0..C−1; 0 for padded queries.

        Returns
        -------
        Array, shape (n, Q, B)
        """

    @abstractmethod
    def slope(self, outputs: Array, labels: Array) -> Slope:
        """The derivative with respect to the outputs. Its logarithm does not underflow when the slope itself does."""


@dataclass(frozen=True)
class Loss(OutputLoss):
    """A loss ℓ(m) of the margin m = y f, for labels ±1. It decreases as m grows.

    Parameters
    ----------
    value : callable
        m ↦ ℓ(m), elementwise, of JAX arrays.
    log_slope : callable
        m ↦ log|ℓ'(m)|, elementwise; −inf where ℓ' = 0. Training uses it where ℓ' itself underflows.
    name : str, optional
    defined_everywhere : bool
        Whether both are finite for every finite margin. Otherwise each step checks that they are.

    See Also
    --------
    attsvm.losses.parse_loss
    attsvm.losses.OutputLoss : Losses of other outputs.

    Examples
    --------
    A loss that decreases like e^−m, trained where its slope is far below the smallest float:

    >>> import jax, attsvm
    >>> from attsvm.datasets import random_problem
    >>> sigmoid = attsvm.losses.Loss(
    ...     lambda m: jax.nn.sigmoid(-m), lambda m: -jax.nn.softplus(m) - jax.nn.softplus(-m), name="sigmoid"
    ... )
    >>> attsvm.train(random_problem(4, 5, 3, 0), loss=sigmoid, steps=100).status
    <Status.FINISHED: 'finished'>
    """

    value: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]
    name: str = "loss"
    defined_everywhere: bool = False

    def values(self, outputs: Array, labels: Array) -> Array:
        """ℓ(y f) of each query."""
        return self.value(labels * outputs)

    def slope(self, outputs: Array, labels: Array) -> Slope:
        """−y |ℓ'(y f)| of each query."""
        return Slope(-labels, self.log_slope(labels * outputs))
