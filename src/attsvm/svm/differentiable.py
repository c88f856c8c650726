"""The Att-SVM as a differentiable function of its tokens, queries and keys, for JAX.

:ref:`Provisional <provisional>`: it may change in any minor version.

This module imports JAX, so :mod:`attsvm.svm` does not import it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.problem import Canonical, Problem
from attsvm.results import Status
from attsvm.selection import selection_sets
from attsvm.svm.certificate import VIOLATION_ALLOWED
from attsvm.svm.constraints.constraints import check_relaxed
from attsvm.svm.methods.registry import SolverSettings
from attsvm.svm.solve import solve_svm
from attsvm.svm.tolerances import FAILED
from attsvm.svm.variants.active_set import FactorRows, Sensitivity, sensitivity

__all__ = ["STATUSES", "DifferentiableSolution", "solve"]

Array = jax.Array
AnyArray = np.ndarray | Array
Arrays = dict[str, Any]

STATUSES = (Status.OPTIMAL, Status.INACCURATE, Status.INFEASIBLE, Status.DEGENERATE)
"""The meaning of the numbers in ``DifferentiableSolution.status``."""

OPTIMAL, INACCURATE, INFEASIBLE, DEGENERATE = range(4)


def __dir__() -> list[str]:
    return sorted(__all__)


class DifferentiableSolution(NamedTuple):
    """What :func:`solve` returns.

    Attributes
    ----------
    direction : Array, shape (*batch, d_k, d_q), or (*batch, d_k) for a prompt
        The optimum W. NaN where infeasible.
    value : Array, shape (*batch,)
        N(W). NaN where infeasible.
    status : int8 Array, shape (*batch,)
        Index into :data:`STATUSES`: 0 optimal, 1 inaccurate, 2 infeasible, 3 degenerate.

    See Also
    --------
    attsvm.svm.differentiable.solve : Makes one.

    Examples
    --------
    >>> from attsvm.svm.differentiable import solve
    >>> found = solve([[[2.0, 0.0], [0.0, 0.0]]], [0])
    >>> found.direction.round(3).tolist()
    [0.5, 0.0]
    """

    direction: Array
    value: Array
    status: Array


def solve(
    tokens: AnyArray,
    selected: Any,
    queries: AnyArray | None = None,
    keys: AnyArray | None = None,
    *,
    mask: Any = None,
    query_mask: Any = None,
    norm: str | float | Norm = "frobenius",
    relaxed: Any = None,
) -> DifferentiableSolution:
    """Solve the Att-SVM, as a function that ``jax.grad``, ``jax.vjp``, ``jax.jit`` and ``jax.vmap`` accept.

    The derivative with respect to tokens, queries and keys follows from the implicit function theorem: near a solution
    whose active set is not degenerate, the same constraints stay active, and W solves a smooth system of equations.
    For norms other than the Frobenius norm the system contains the derivative of ``norm.prox`` by finite differences,
    which is dense: cost and memory grow like (d_k d_q)³ and (d_k d_q)².

    Parameters
    ----------
    tokens, queries, keys : array
        As for :class:`attsvm.Problem`; these may be traced. The result has the type of the tokens. Enable 64-bit
        numbers in JAX for derivatives of more than 7 digits.
    selected, mask, query_mask, relaxed
        As for :class:`attsvm.Problem` and :func:`attsvm.solve_svm`. They cannot be traced.
    norm : str, float or Norm
        A norm with ``dual``, and ``prox`` or ``project_dual_ball``.

    Returns
    -------
    DifferentiableSolution
        There is a derivative where the status is 0 (optimal). Its status is 3 (degenerate) where an active constraint
        has the multiplier 0, where the active constraints do not determine the solution, where the proximal map has no
        derivative, and where its finite differences do not determine the derivative to six digits. Where the status is
        not 0, gradients are NaN.

    Raises
    ------
    ProblemError
        As for :func:`attsvm.solve_svm`, and if the norm has no prox. Inside ``jax.jit`` numbers that are not finite
        give the status 1 (inaccurate) instead.

    See Also
    --------
    attsvm.solve_svm
    attsvm.svm.differentiable.DifferentiableSolution : The result.

    References
    ----------
    Amos and Kolter (2017), *OptNet: Differentiable Optimization as a Layer in Neural Networks*, for quadratic programs.

    Examples
    --------
    How the margin of a selection, 1/‖W‖, depends on the tokens:

    >>> import jax
    >>> import numpy as np
    >>> from attsvm.svm.differentiable import solve
    >>> tokens = np.array([[[2.0, 0.0], [0.0, 0.0]]])
    >>> def margin(tokens):
    ...     return 1 / solve(tokens, [0]).value
    >>> with jax.enable_x64(True):
    ...     print(margin(tokens), jax.grad(margin)(tokens)[0].tolist())
    2.0 [[1.0, 0.0], [-1.0, 0.0]]
    """
    given = {"tokens": tokens, "queries": queries, "keys": keys}
    arrays = {name: jnp.asarray(x) for name, x in given.items() if x is not None}
    parsed = parse_norm(norm)
    _ = parsed.dual, parsed.prox(np.ones((1, 1)), 1.0)  # raise where one of them is missing
    layer = _FixedArguments.of(parsed, selected=selected, mask=mask, query_mask=query_mask, relaxed=relaxed)
    problem = layer.problem({name: np.zeros(x.shape) for name, x in arrays.items()})
    check_relaxed(problem, relaxed, layer.sets(problem).shape[:-3])
    if not any(isinstance(x, jax.core.Tracer) for x in arrays.values()):
        layer.problem(arrays)  # raises where a number is not finite
    return DifferentiableSolution(*_solution(layer, arrays))


@dataclass(frozen=True)
class _FixedArguments:
    """The arguments that are not differentiated. Equal ones share what JAX compiles."""

    norm: Norm
    constants: tuple[tuple[str, bytes, str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, norm: Norm, **given: Any) -> "_FixedArguments":
        """Keep the contents of arrays as bytes, so that arguments can be compared and hashed."""
        arrays = {name: np.asarray(x) for name, x in given.items() if x is not None}
        return cls(norm, tuple((name, x.tobytes(), x.dtype.str, x.shape) for name, x in arrays.items()))

    def constant(self, wanted: str) -> np.ndarray | None:
        """One of these arrays; None if it was not given."""
        found = (np.frombuffer(x, dtype).reshape(shape) for name, x, dtype, shape in self.constants if name == wanted)
        return next(found, None)

    def problem(self, arrays: Arrays) -> Problem:
        own = {name: np.asarray(x) for name, x in arrays.items()}
        return Problem(**own, mask=self.constant("mask"), query_mask=self.constant("query_mask"))

    def sets(self, problem: Problem) -> np.ndarray:
        """The selection as sets, shape (*batch, n, Q, T)."""
        return selection_sets(problem, self.constant("selected"))

    def shapes(self, arrays: Arrays) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Those of direction, value, status and multipliers."""
        problem, dtype = self.problem({name: np.zeros(x.shape) for name, x in arrays.items()}), arrays["tokens"].dtype
        sets = self.sets(problem).shape
        own = problem.weights_shape
        shapes = ((*sets[:-3], *own), dtype), (sets[:-3], dtype), (sets[:-3], np.int8), (sets, dtype)
        return tuple(jax.ShapeDtypeStruct(*x) for x in shapes)

    def solve(self, arrays: Arrays) -> tuple[np.ndarray, ...]:
        """Direction, value, status and multipliers, for a callback of JAX, which allows no exceptions."""
        shapes = self.shapes(arrays)
        # NaN and "inaccurate" remain where nothing is found
        weights, value, status, dual = (np.full(x.shape, np.nan) for x in shapes)
        status[...] = INACCURATE
        try:
            problem = self.problem(arrays)
        except ProblemError:  # a number is not finite
            return tuple(x.astype(shape.dtype) for x, shape in zip((weights, value, status, dual), shapes, strict=True))
        relaxed = self.constant("relaxed")
        # Newton's method on the active set goes on from there
        found = solve_svm(problem, self.constant("selected"), self.norm, relaxed=relaxed, tol=FAILED)
        weights[...], value[...], dual[...] = found.direction, found.value, found.dual.reshape(dual.shape)
        status[(np.asarray(found.gap) <= SolverSettings.tol) & (np.asarray(found.violation) <= VIOLATION_ALLOWED)] = (
            OPTIMAL
        )
        status[np.asarray(found.status) == Status.INFEASIBLE] = INFEASIBLE
        # Newton's method on the active set replaces the answer by a more precise one
        for index, at in self._sensitivities(problem, weights, status, dual):
            status[index] = OPTIMAL if at.adjoint is not None else DEGENERATE
            weights[index] = at.weights.reshape(weights[index].shape)
            value[index] = self._own_norm(problem).values(at.weights)
            dual[index] = 0.0
            dual[index][tuple(at.active.place[:3])] = at.multipliers
        return tuple(x.astype(shape.dtype) for x, shape in zip((weights, value, status, dual), shapes, strict=True))

    def pull(self, arrays: Arrays, found: tuple[Array, ...], cotangents: tuple[Array, Array]) -> Arrays:
        """The gradient with respect to each array, for a callback of JAX."""
        weights, _, status, dual = (np.asarray(x) for x in found)
        pulled = {name: np.zeros(x.shape, x.dtype) for name, x in arrays.items()}
        of_keys = pulled["keys" if "keys" in arrays else "tokens"]
        moved = {"keys": of_keys} | ({"queries": pulled["queries"]} if "queries" in arrays else {})
        if (status == INACCURATE).all():
            for x in moved.values():
                x[...] = np.nan
            return pulled
        problem = self.problem(arrays)
        canonical, batch = problem.canonical, dual.shape[:-3]
        gradients = {
            "keys": np.zeros((*batch, *canonical.keys.shape[-3:])),
            "queries": np.zeros((*batch, *canonical.queries.shape[-3:])),
        }
        # where there is no derivative the gradient says so
        for x in gradients.values():
            x[status != OPTIMAL] = np.nan
        of_weights, of_value = (np.asarray(x, dtype=np.float64) for x in cotangents)
        for index, at in self._sensitivities(problem, weights, status, dual):
            sequence, query, token, reference = at.active.place
            of_left, of_right = at.pull(of_weights[index].reshape(at.weights.shape), float(of_value[index]))
            # l = k_r − k_t: the gradient of a row goes to both keys
            np.add.at(gradients["keys"][index], (sequence, reference), of_left)
            np.add.at(gradients["keys"][index], (sequence, token), -of_left)
            np.add.at(gradients["queries"][index], (sequence, query), of_right)
        if not problem.has_query_axis:
            gradients["queries"] = gradients["queries"][..., 0, :]
        for name, x in moved.items():  # an array that problems share has fewer axes
            x[...] = gradients[name].sum(axis=tuple(range(gradients[name].ndim - x.ndim)))
        return pulled

    def _own_norm(self, problem: Problem) -> Norm:
        return self.norm if problem.has_queries else self.norm.of_vectors

    def _sensitivities(
        self, problem: Problem, weights: np.ndarray, status: np.ndarray, dual: np.ndarray
    ) -> Iterator[tuple[tuple[int, ...], Sensitivity]]:
        """The solved problems whose weights are not zero, with their place in the batch."""
        sets, canonical = self.sets(problem), problem.canonical
        batch = sets.shape[:-3]
        relaxed = check_relaxed(problem, self.constant("relaxed"), batch)
        shape = canonical.keys.shape[-1], canonical.queries.shape[-1]
        for index in np.ndindex(batch):
            if status[index] != OPTIMAL or not weights[index].any():
                continue
            own = index[len(batch) - len(problem.batch_shape) :]
            one = Canonical(*(x[own] for x in canonical))
            rows = FactorRows.of(one, sets[index], None if relaxed is None else relaxed[index])
            multipliers = dual[index][tuple(rows.place[:3])].astype(np.float64)
            start = weights[index].reshape(shape).astype(np.float64)
            yield index, sensitivity(rows, self._own_norm(problem), start, multipliers)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _solution(layer: _FixedArguments, arrays: Arrays) -> tuple[Array, ...]:
    return _solved(layer, arrays)[:3]


def _solved(layer: _FixedArguments, arrays: Arrays) -> tuple[Array, ...]:
    found: tuple[Array, ...] = jax.pure_callback(layer.solve, layer.shapes(arrays), arrays, vmap_method="sequential")
    return found


def _forward(layer: _FixedArguments, arrays: Arrays) -> tuple[tuple[Array, ...], Any]:
    found = _solved(layer, arrays)
    return found[:3], (arrays, found)


def _backward(layer: _FixedArguments, kept: Any, cotangents: Any) -> tuple[Arrays]:
    arrays, found = kept
    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in arrays.items()}
    pulled = jax.pure_callback(layer.pull, shapes, arrays, found, cotangents[:2], vmap_method="sequential")
    return (pulled,)


_solution.defvjp(_forward, _backward)
