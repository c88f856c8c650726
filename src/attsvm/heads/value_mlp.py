"""The rest of a one-layer transformer: a value matrix and a hidden layer."""

from dataclasses import dataclass, field
from typing import Literal

import jax
import numpy as np
import numpy.typing as npt

from attsvm._utils.checks import check_seed
from attsvm._utils.contractions import contract, settle
from attsvm.heads.arguments import fitted
from attsvm.heads.base import Head, Parameters
from attsvm.heads.mlp import MLP
from attsvm.heads.registry import HEADS
from attsvm.problem import Problem

Array = jax.Array


@dataclass(frozen=True)
class ValueMLP(Head):
    """h(o) = mlp(V'o): with the attention, a transformer of one layer.

    With ``train_head=True`` all of V, H, u and b are trained; ``fixed=("hidden", "output", "bias")`` keeps the MLP.

    Parameters
    ----------
    value : array, shape (*batch, d, v)
        V. The batch axes of the problem may be left out.
    mlp : MLP
        The hidden layer, with inputs of dimension v.

    Raises
    ------
    ProblemError
        In training, if a shape does not fit.

    See Also
    --------
    attsvm.heads.MLP

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), section 6, whose head is an MLP of the attention's output.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    >>> head = attsvm.heads.ValueMLP.random(8, 6, 3, seed=0)
    >>> run = attsvm.train(problem, head=head, train_head=True, steps=100)
    >>> run.parameters["value"].shape, run.parameters["hidden"].shape
    ((6, 3), (8, 3))
    """

    value: npt.ArrayLike = field(compare=False, repr=False)
    mlp: MLP

    name = "value_mlp"
    defined_everywhere = True

    @classmethod
    def random(
        cls,
        width: int,
        dim: int,
        value_dim: int,
        num_classes: int | None = None,
        *,
        activation: Literal["relu", "gelu"] = "relu",
        seed: int = 0,
    ) -> "ValueMLP":
        """A head to train: entries of V N(0, 1/d), and a random MLP."""
        value = np.random.default_rng([check_seed(seed), 1]).normal(scale=dim**-0.5, size=(dim, value_dim))
        return cls(value, MLP.random(width, value_dim, num_classes, activation=activation, seed=seed))

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        """V, H, u and b, with the batch axes of the problem."""
        value = fitted("value", self.value, problem.batch_shape, (problem.dim, None))
        return {"value": value} | self.mlp.initial_of(problem, value.shape[-1])

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        """The output of the MLP at V'o of each query."""
        return self.mlp.outputs(parameters, settle(contract("nqd,dv->nqv", pooled, parameters["value"])))


HEADS.register("value_mlp", ValueMLP)
