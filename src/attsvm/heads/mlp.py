"""A head with one hidden layer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import jax
import numpy as np
import numpy.typing as npt

from attsvm._utils.checks import check_seed
from attsvm._utils.contractions import contract, settle
from attsvm.errors import ProblemError
from attsvm.heads.arguments import fitted
from attsvm.heads.base import Head, Parameters
from attsvm.heads.registry import HEADS
from attsvm.problem import Problem

Array = jax.Array


_ACTIVATIONS: dict[str, Callable[..., Array]] = {"relu": jax.nn.relu, "gelu": partial(jax.nn.gelu, approximate=False)}


@dataclass(frozen=True)
class MLP(Head):
    """h(o) = u'σ(H o + b): one hidden layer, with ReLU or GELU.

    Parameters
    ----------
    hidden : array, shape (*batch, width, d)
        H, one row per hidden unit. The batch axes of the problem, here and below, may be left out.
    output : array, shape (*batch, width) or (*batch, C, width), optional
        u, or one row for each of C classes; all ones by default.
    bias : array, shape (*batch, width), optional
        b; none by default.
    activation : {"relu", "gelu"}
        GELU is exact, o Φ(o), not its approximation by tanh. Below −37 (in float32 −13) it underflows, and its slope
        is 0, as that of ReLU up to 0: such a unit does not move.

    Raises
    ------
    ProblemError
        If the activation is unknown or an array is not finite; in training, if a shape does not fit.

    See Also
    --------
    attsvm.heads.ValueMLP, attsvm.heads.FunctionHead

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), section 6, whose experiments sum ReLU(H o) over the hidden units.

    Examples
    --------
    >>> import attsvm
    >>> import numpy as np
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> {name: array.shape for name, array in attsvm.heads.MLP(np.eye(5)).initial(problem).items()}
    {'hidden': (5, 5), 'output': (5,)}
    """

    hidden: npt.ArrayLike = field(compare=False, repr=False)
    output: npt.ArrayLike | None = field(default=None, compare=False, repr=False)
    bias: npt.ArrayLike | None = field(default=None, compare=False, repr=False)
    activation: Literal["relu", "gelu"] = "relu"

    name = "mlp"
    defined_everywhere = True

    def __post_init__(self) -> None:
        if self.activation not in _ACTIVATIONS:
            raise ProblemError(f"activation: expected one of {', '.join(_ACTIVATIONS)}, got {self.activation!r}")

    @classmethod
    def random(
        cls,
        width: int,
        dim: int,
        num_classes: int | None = None,
        *,
        activation: Literal["relu", "gelu"] = "relu",
        seed: int = 0,
    ) -> "MLP":
        """A head to train: hidden weights N(0, 2/d), output weights N(0, 1/width), biases zero."""
        generator = np.random.default_rng(check_seed(seed))
        hidden = generator.normal(scale=(2.0 / dim) ** 0.5, size=(width, dim))
        rows = (width,) if num_classes is None else (num_classes, width)
        return cls(hidden, generator.normal(scale=width**-0.5, size=rows), np.zeros(width), activation)

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        """H, u and b, with the batch axes of the problem."""
        return self.initial_of(problem, problem.dim)

    def initial_of(self, problem: Problem, dim: int) -> dict[str, np.ndarray]:
        """H, u and b for inputs of another dimension than the tokens, with the batch axes of the problem."""
        batch = problem.batch_shape
        hidden = fitted("hidden", self.hidden, batch, (None, dim))
        width = hidden.shape[-2]
        rows = (width,) if problem.num_classes is None else (problem.num_classes, width)
        output = np.ones(rows) if self.output is None else self.output
        parameters = {"hidden": hidden, "output": fitted("output", output, batch, rows)}
        if self.bias is not None:
            parameters["bias"] = fitted("bias", self.bias, batch, (width,))
        return parameters

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        """u'σ(H o + b) of each query and class."""
        units = contract("nqd,hd->nqh", pooled, parameters["hidden"])
        if "bias" in parameters:
            units = units + parameters["bias"]
        u = parameters["output"]
        active = settle(_ACTIVATIONS[self.activation](units))
        return contract("nqh,h->nq" if u.ndim == 2 else "nqh,ch->nqc", active, u)


HEADS.register("mlp", MLP)
