# ruff: noqa: D102 (methods are documented in the protocol Head)
"""From the pooled token to the output of a query: f = h(o)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import numpy as np

from attsvm.contractions import contract, settle
from attsvm.errors import ProblemError
from attsvm.problem import Problem

Array = jax.Array
Parameters = dict[str, Array]


@runtime_checkable
class Head(Protocol):
    """A head: equal heads share their compiled training, so they are hashable and hold no parameters themselves."""

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        """Parameters, each with the batch axes of the problem in front."""
        ...

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        """Outputs (n, Q, B), or (n, Q, C, B) for C classes, of pooled tokens (n, Q, d, B)."""
        ...


@dataclass(frozen=True)
class Linear:
    """h(o) = v'o, or one row of v for each class; v is the problem's head."""

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        return {"v": _head_of(problem)}

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        v = parameters["v"]
        return contract("nqd,d->nq" if v.ndim == 2 else "nqd,cd->nqc", pooled, v)


@dataclass(frozen=True)
class Quadratic:
    """h(o) = v'o − λ‖o‖²: linear, less what keeps the pooled token short; v is the problem's head (d,).

    Parameters
    ----------
    curvature : float
        λ. It is not trained.

    Raises
    ------
    ProblemError
        If λ is not a finite number; in training, if the problem has classes.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), section 6: a nonlinear head may prefer mixtures of tokens.
    """

    curvature: float

    def __post_init__(self) -> None:
        if not (np.ndim(self.curvature) == 0 and np.isfinite(self.curvature)):
            raise ProblemError(f"curvature: {self.curvature!r} found, a finite number wanted")

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        if problem.num_classes is not None:
            raise ProblemError(f"head: {self!r} has one output, the problem {problem.num_classes} classes")
        return {"v": _head_of(problem)}

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        # one product: its derivative is v − 2λo, entry by entry
        return contract("nqd,nqd->nq", pooled, parameters["v"] - self.curvature * pooled)


@dataclass(frozen=True)
class MLP:
    """h(o) = u'σ(H o + b): one hidden layer, with ReLU or GELU.

    Parameters
    ----------
    hidden : array, shape (*batch, width, d)
        H, one row a hidden unit. The batch axes of the problem, here and below, may be left out.
    output : array, shape (*batch, width) or (*batch, C, width), optional
        u, or one row for each of C classes; all ones by default.
    bias : array, shape (*batch, width), optional
        b; none by default.
    activation : {"relu", "gelu"}
        GELU is exact, o Φ(o), not its approximation by tanh. The slope of ReLU at 0 is 0.

    Raises
    ------
    ProblemError
        If the activation is unknown or an array is not finite; in training, if a shape does not fit.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), section 6, whose experiments sum ReLU(H o) over the hidden units.
    """

    hidden: Any = field(compare=False, repr=False)
    output: Any = field(default=None, compare=False, repr=False)
    bias: Any = field(default=None, compare=False, repr=False)
    activation: Literal["relu", "gelu"] = "relu"

    def __post_init__(self) -> None:
        if self.activation not in _ACTIVATIONS:
            raise ProblemError(f"activation: {self.activation!r} found, one of {', '.join(_ACTIVATIONS)} wanted")

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
        generator = np.random.default_rng(seed)
        hidden = generator.normal(scale=(2.0 / dim) ** 0.5, size=(width, dim))
        rows = (width,) if num_classes is None else (num_classes, width)
        return cls(hidden, generator.normal(scale=width**-0.5, size=rows), np.zeros(width), activation)

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        batch = problem.batch_shape
        hidden = _fit("hidden", self.hidden, batch, (None, problem.dim))
        width = hidden.shape[-2]
        rows = (width,) if problem.num_classes is None else (problem.num_classes, width)
        output = np.ones(rows) if self.output is None else self.output
        parameters = {"hidden": hidden, "output": _fit("output", output, batch, rows)}
        if self.bias is not None:
            parameters["bias"] = _fit("bias", self.bias, batch, (width,))
        return parameters

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        units = contract("nqd,hd->nqh", pooled, parameters["hidden"])
        if "bias" in parameters:
            units = units + parameters["bias"]
        u = parameters["output"]
        active = settle(_ACTIVATIONS[self.activation](units))
        return contract("nqh,h->nq" if u.ndim == 2 else "nqh,ch->nqc", active, u)


@dataclass(frozen=True)
class FunctionHead:
    """Any differentiable function of the pooled token.

    Parameters
    ----------
    function : callable
        (parameters, o) ↦ f of one pooled token o (d,), written in JAX: a number for labels ±1, (C,) for classes.
    parameters : mapping of str to array, optional
        Where the head starts (``train_head=True``), or what it is; shared by all problems of a batch.

    Raises
    ------
    ProblemError
        In training, if a parameter is no finite array, or has the name of one of the attention's or the history's.
    """

    function: Callable[[Parameters, Array], Array]
    parameters: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    def initial(self, problem: Problem) -> dict[str, np.ndarray]:
        taken = sorted(_TAKEN & set(self.parameters))
        if taken:
            raise ProblemError(f"head: parameter {taken[0]!r} found; that name is taken")
        arrays = {name: _numbers(name, value) for name, value in self.parameters.items()}
        return {name: np.broadcast_to(array, problem.batch_shape + array.shape) for name, array in arrays.items()}

    def outputs(self, parameters: Parameters, pooled: Array) -> Array:
        num_trials = pooled.shape[-1]
        in_axes = {name: None if value.shape[-1] == 1 else -1 for name, value in parameters.items()}
        parameters = {name: value[..., 0] if value.shape[-1] == 1 else value for name, value in parameters.items()}
        over_tokens = jax.vmap(jax.vmap(self.function, (None, 0)), (None, 0))
        return jax.vmap(over_tokens, (in_axes, -1), -1, axis_size=num_trials)(parameters, pooled)


_TAKEN = {"W", "K", "Q", "p", "steps", "loss", "probability", "selected", "weights"}


def _gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "gelu": _gelu}


def _head_of(problem: Problem) -> np.ndarray:
    if problem.head is None:
        raise ProblemError("problem: has no head; give it one, or pass head= to train")
    return problem.head


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(f"{name}: not an array of numbers ({error})") from None
    if not np.isfinite(array).all():
        raise ProblemError(f"{name}: an entry is not finite")
    return array


def _fit(name: str, value: Any, batch: tuple[int, ...], core: tuple[int | None, ...]) -> np.ndarray:
    """The array with the batch axes in front, broadcast where it lacks them; None in ``core`` is any length."""
    array = _numbers(name, value)
    lead, last = array.shape[: array.ndim - len(core)], array.shape[array.ndim - len(core) :]
    fits = len(last) == len(core) and all(want in (None, got) for want, got in zip(core, last, strict=True))
    if not fits or lead not in ((), batch) or 0 in array.shape:
        wanted = ", ".join("width" if size is None else str(size) for size in core)
        raise ProblemError(
            f"{name}: shape {array.shape} found, ({wanted}) wanted, after the batch axes {batch} or none"
        )
    return array if lead == batch else np.broadcast_to(array, batch + array.shape)
