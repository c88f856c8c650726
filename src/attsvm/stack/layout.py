"""The parts of a stack, checked."""

import hashlib
from typing import Any

import numpy as np

from attsvm._utils.checks import as_floats, check_flag, check_integer
from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.problem import Problem, check_is_problem


class StackLayout:
    """The problem, the number of layers, and how they are connected; arguments as of :class:`attsvm.Stack`."""

    def __init__(
        self, problem: Problem, layers: int, *, residual: bool = True, causal: bool = False, values: Any = None
    ) -> None:
        check_is_problem(problem)
        for name in ("labels", "queries", "head"):
            if getattr(problem, name) is None:
                raise ProblemError(f"problem: expected {name}, but it has none")
        if problem.key_groups is not None:
            raise ProblemError(f"problem: expected one without key_groups, got key_groups={problem.key_groups}")
        if problem.keys is not None:
            raise ProblemError("problem: expected no keys, because the keys of a layer are its tokens")
        if problem.bias_index is not None or problem.offsets is not None:
            raise ProblemError("problem: expected one without bias_index and offsets, because layers have neither")
        if problem.mask is not None and problem.mask.ndim == problem.tokens.ndim:
            raise ProblemError("problem: expected a mask of shape (n, T), got one for each query")
        self.problem = problem
        self.layers = check_integer("layers", layers, 2)
        self.residual = check_flag("residual", residual)
        self.causal = check_flag("causal", causal)
        self.values = None if values is None else self._values(values)
        if values is None and problem.num_heads is not None:
            raise ProblemError(
                f"values: expected value matrices for {problem.num_heads} attention heads; heads with the same matrix "
                "would stay equal"
            )

    def _values(self, values: Any) -> Float[np.ndarray, "*batch layers d d"]:
        array = as_floats("values", values)
        own = (self.layers - 1, self.problem.dim, self.problem.dim)
        if array.shape != self.problem.heads_shape + own:
            raise ProblemError(f"values: expected shape {self.problem.heads_shape + own}, got {array.shape}")
        if not np.isfinite(array).all():
            raise ProblemError("values: expected finite numbers, got NaN or inf")
        return np.broadcast_to(array, self.problem.batch_shape + own)

    def __repr__(self) -> str:
        options = "" if self.residual else "; no residual"
        options += "; causal" if self.causal else ""
        return f"Stack({self.layers} layers{options}; {self.problem!r})"

    @property
    def data_hash(self) -> str:
        """SHA-256 of the problem and of how the layers are connected."""
        connected = f"{self.problem.data_hash}{self.layers}{self.residual}{self.causal}"
        digest = hashlib.sha256(connected.encode())
        if self.values is not None:
            digest.update(np.ascontiguousarray(self.values).tobytes())
        return digest.hexdigest()

    @property
    def num_positions(self) -> int:
        """How many queries a layer between others has."""
        return self.problem.num_sequences * self.problem.num_tokens

    @property
    def growth(self) -> float:
        """How much larger the entries of tokens may become from the first layer to the last."""
        d, heads = self.problem.dim, self.problem.num_heads or 1
        of_layer = 1.0 if self.values is None else heads * d * max(1.0, float(np.abs(self.values).max()))
        return float((1.0 + of_layer) ** (self.layers - 1))
