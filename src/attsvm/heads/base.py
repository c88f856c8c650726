"""The base class of prediction heads: parameters, and the output of a query from its pooled token."""

from abc import ABC, abstractmethod

import jax
import numpy as np

from attsvm.problem import Problem

Array = jax.Array
Parameters = dict[str, Array]


class Head(ABC):
    """A head f = h(o), from the pooled token o to the output of a query.

    A subclass provides ``name``, :meth:`initial` and :meth:`outputs`. Equal heads share their compiled training, so a
    subclass defines equality and a hash, for instance as a frozen dataclass, and holds no parameters in what it
    compares. :class:`FunctionHead` makes a head from any function of one pooled token.

    See Also
    --------
    attsvm.heads.FunctionHead : Without a class.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import jax.numpy as jnp, numpy as np
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> @dataclass(frozen=True)
    ... class Saturating(attsvm.heads.Head):
    ...     name = "saturating"
    ...     defined_everywhere = True
    ...
    ...     def initial(self, problem):
    ...         return {"v": problem.head}
    ...
    ...     def outputs(self, parameters, pooled):
    ...         return jnp.tanh(jnp.sum(parameters["v"] * pooled, axis=2))
    >>> attsvm.train(random_problem(4, 5, 3, 0), head=Saturating(), steps=10).head
    'saturating'
    """

    defined_everywhere: bool = False
    """Whether outputs and their derivatives are finite for all finite parameters and pooled tokens.

    Otherwise each step checks that they are, and a trial stops where they are not.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name; a class attribute ``name = "..."`` will do."""

    @abstractmethod
    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        """Initial parameters by name, each with the batch axes of the problem in front.

        Raises
        ------
        ProblemError
            If the head does not fit the problem.
        """

    @abstractmethod
    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        """The output of each query.

        Parameters
        ----------
        parameters : dict of str to Array, shape (..., B or 1)
            The trailing axis holds the trials, or has length 1 if they share the parameter.
        pooled : Array, shape (n, Q, d, B)

        Returns
        -------
        Array, shape (n, Q, B), or (n, Q, C, B) for C classes
        """
