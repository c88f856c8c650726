"""The base class of the rules that make a step from a gradient: the extension point behind every optimizer."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm
from attsvm.optimizers.scales import Scales, Tree

Array = jax.Array


class Rule(ABC):
    """How an optimizer steps. Equal rules share their compiled training: define a rule as a frozen dataclass.

    A subclass provides :meth:`update`, and :meth:`init` if it has a state. The trailing axis of each array holds the
    trials. Numbers that may change without compiling anew, such as a learning rate, are returned by :attr:`numbers`,
    take no part in comparisons, and are shared by the trials.

    See Also
    --------
    attsvm.optimizers.chain, attsvm.optimizers.Transformation

    Examples
    --------
    Gradient descent with a step that does not exceed 1:

    >>> from dataclasses import dataclass
    >>> import jax.numpy as jnp
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> @dataclass(frozen=True)
    ... class Clipped(attsvm.optimizers.Rule):
    ...     def update(self, gradient, state, params, numbers, scales, value):
    ...         return {x: -jnp.clip(g * jnp.exp(scales[x]), -1, 1) for x, g in gradient.items()}, state
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=Clipped(), steps=100).optimizer
    'Clipped'
    """

    @property
    def numbers(self) -> Mapping[str, float]:
        """Learning rate and the like."""
        return {}

    @property
    def norm(self) -> Norm | None:
        """The norm in which the rule descends, whose Att-SVM it is compared with; None if it is not known."""
        return None

    @property
    def gradient_norm(self) -> Norm:
        """The norm by which :class:`Normalize` divides the gradient by default."""
        return Lp(2.0)

    @property
    def scale_free(self) -> bool:
        """Whether steps do not depend on the gradient's size, so that a gradient too small for a float still counts."""
        return False

    @property
    def state_degree(self) -> float | None:
        """The degree to which the state is homogeneous in the weights; None if it is not, or it is not known.

        With a degree, relative steps can go on from weights and state that are multiplied by powers of two.
        """
        return None

    @property
    def heads_apart(self) -> bool:
        """Whether each attention head is a parameter of its own, with its own scale.

        Otherwise the parameters of several heads are one array (..., H, B), with one scale: next to a head whose
        gradient is far larger, the gradient of another may underflow.
        """
        return False

    @property
    def needs_two_factors(self) -> bool:
        """Whether steps are defined only for two parameters that are matrices, the factors K and Q of one product."""
        return False

    @property
    def concurrent(self) -> bool:
        """Whether steps may run on several threads at once. Steps that call LAPACK must not: they can deadlock."""
        return True

    def init(self, params: Tree) -> Any:
        """State before the first step: any tree of arrays whose trailing axis holds the trials."""
        return ()

    @abstractmethod
    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        """Updates and next state.

        Parameters
        ----------
        gradient : dict of str to Array, shape (..., B)
            The true gradient is gradient·exp(scales[name]). The largest entry over the parameters that share a scale
            is 1, or 0 if they all are zero; then their scale is −inf.
        state : tree of Array
        params : dict of str to Array
        numbers : dict of str to Array
        scales : Scales
        value : Array, shape (B,)
            The loss.

        Returns
        -------
        updates : dict of str to Array
            They are added to the parameters.
        state : tree of Array
        """

    def follow(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        """As :meth:`update`, for scales that transformations have changed."""
        return self.update(gradient, state, params, numbers, scales.resolved(gradient), value)

    def size_of_weights(self, names: Iterable[str], params: Tree, state: Any) -> Array:
        """The size of some parameters, by which relative steps are multiplied, shape (B,).

        Raises
        ------
        ProblemError
            If the rule does not define it.
        """
        raise ProblemError(f"Relative: {type(self).__name__} does not define the size of its weights")

    def reach(self, name: str, params: Tree, state: Any) -> Array:
        """The size of a parameter to which the change of a logit by a unit step of the other factor is proportional.

        The size of the weights by default.
        """
        return self.size_of_weights((name,), params, state)


class ProportionalRule(Rule):
    """A rule whose updates are proportional to the gradient, and whose scales are used as they are.

    A factor that is multiplied to the scale rounds once, where one that is multiplied to each entry rounds twice.
    """

    def follow(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        """As :meth:`update`: scales that are marked as normalized are used as they are."""
        return self.update(gradient, state, params, numbers, scales, value)
