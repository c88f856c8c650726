"""Compare derivatives of the Att-SVM with finite differences, with cvxpylayers and with qpax.

Each row is the gradient of ⟨C, W⟩ with respect to tokens and queries, for the optimum W in a norm and a random C:
processor time of one thread, the least of several runs in turn. The first run compiles and is left out. The error is
that of the derivative along random directions, against differences of fourth order of certified solutions. qpax solves
the dual quadratic program (Frobenius only), and cvxpylayers the program in W. Peers that are not installed are left
out, and central differences at the largest size.

    python benchmarks/derivatives.py [--repeats 3]
"""

import one_thread  # noqa: F401  # isort: skip


import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np

import attsvm
from attsvm.svm import differentiable

SIZES = ((3, 4, 5), (6, 8, 10), (12, 10, 16))
"""Sequences, tokens and dimensions."""

EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "frobenius": lambda W: 0.5 * cp.sum_squares(W),
    "l1": lambda W: cp.sum(cp.abs(W)),
    "l2,1": lambda W: cp.sum(cp.norm(W, 2, axis=1)),
    "nuclear": cp.normNuc,
}

DIFFERENCES = "central differences"

LONG = 1.0
"""Seconds of a run that is not repeated."""

STEP = 1e-5
DIRECTIONS = 3

Arrays = tuple[np.ndarray, np.ndarray]
Gradient = Callable[[Arrays], Arrays]


class Task(NamedTuple):
    """A problem whose gradient is computed.

    Attributes
    ----------
    arrays : pair of ndarrays
        Tokens and queries.
    selected, weights : ndarrays
        The weights are C.
    norm : str
    """

    arrays: Arrays
    selected: np.ndarray
    weights: np.ndarray
    norm: str

    @classmethod
    def drawn(cls, size: tuple[int, int, int], norm: str) -> "Task":
        """The first random problem that has a derivative."""
        for seed in range(100):
            problem = attsvm.datasets.random_problem(*size, seed=seed)
            selected = attsvm.optimal_tokens(problem)
            found = differentiable.solve(problem.tokens, selected, problem.queries, norm=norm)
            if found.status == differentiable.OPTIMAL:
                weights = np.random.default_rng(seed).standard_normal((size[2], size[2]))
                return cls((problem.tokens, problem.queries), selected, weights, norm)
        raise SystemExit(f"no problem of size {size} in the norm {norm} has a derivative")

    def value(self, tokens: np.ndarray, queries: np.ndarray) -> float:
        """⟨C, W⟩."""
        problem = attsvm.Problem(tokens, queries=queries)
        return float(
            (attsvm.solve_svm(problem, self.selected, norm=self.norm, tol=1e-12).direction * self.weights).sum()
        )

    def rows(self, tokens: Any, queries: Any) -> Any:
        """The constraints as rows, in JAX."""
        n, T, _ = tokens.shape
        dropped = np.arange(T) != self.selected[:, None]
        differences = (tokens[np.arange(n), self.selected][:, None] - tokens)[dropped]
        pulled = jnp.repeat(queries, T - 1, axis=0)
        return (differences[:, :, None] * pulled[:, None, :]).reshape(len(differences), -1)

    def error(self, gradient: Arrays) -> float:
        """The largest relative error of the derivative along random directions."""
        rng, errors = np.random.default_rng(0), []
        for _ in range(DIRECTIONS):
            moves = [rng.standard_normal(x.shape) for x in self.arrays]

            def moved(step: float, moves: list[np.ndarray] = moves) -> float:
                return self.value(*(x + step * move for x, move in zip(self.arrays, moves, strict=True)))

            exact = (8 * (moved(STEP) - moved(-STEP)) - (moved(2 * STEP) - moved(-2 * STEP))) / (12 * STEP)
            along = sum(float((g * move).sum()) for g, move in zip(gradient, moves, strict=True))
            errors.append(abs(along - exact) / abs(exact))
        return max(errors)


def of_jax(function: Callable[[Any, Any], Any]) -> Gradient:
    """The gradient by JAX, compiled once."""
    compiled = jax.jit(jax.grad(function, argnums=(0, 1)))
    return lambda arrays: tuple(np.asarray(part) for part in compiled(*arrays))


def ours(task: Task) -> Gradient:
    """Implicit differentiation through the certified active set."""
    return of_jax(
        lambda tokens, queries: (
            differentiable.solve(tokens, task.selected, queries, norm=task.norm).direction * task.weights
        ).sum()
    )


def by_differences(task: Task) -> Gradient:
    """Central differences of certified solutions."""

    def gradient(arrays: Arrays) -> Arrays:
        parts = []
        for place, x in enumerate(arrays):
            part = np.empty(x.shape)
            for index in np.ndindex(x.shape):
                ends = []
                for step in (STEP, -STEP):
                    moved = x.copy()
                    moved[index] += step
                    ends.append(task.value(*(*arrays[:place], moved, *arrays[place + 1 :])))
                part[index] = (ends[0] - ends[1]) / (2 * STEP)
            parts.append(part)
        return parts[0], parts[1]

    return gradient


def by_qpax(task: Task) -> Gradient:
    """Through the dual quadratic program."""
    import qpax

    def function(tokens: Any, queries: Any) -> Any:
        rows = task.rows(tokens, queries)
        m = len(rows)
        multipliers = qpax.solve_qp_primal(
            rows @ rows.T,
            -jnp.ones(m),
            jnp.zeros((0, m)),
            jnp.zeros(0),
            -jnp.eye(m),
            jnp.zeros(m),
            solver_tol=1e-9,
            target_kappa=1e-9,
        )
        return (multipliers @ rows) @ task.weights.ravel()

    return of_jax(function)


def by_cvxpylayers(task: Task) -> Gradient:
    """Through the program in W, in cone form. It cannot be compiled by JAX."""
    from cvxpylayers.jax import CvxpyLayer

    d = len(task.weights)
    W, rows = cp.Variable((d, d)), cp.Parameter((len(task.rows(*task.arrays)), d * d))
    program = cp.Problem(cp.Minimize(EXPRESSIONS[task.norm](W)), [rows @ cp.vec(W, order="C") >= 1])
    layer = CvxpyLayer(program, parameters=[rows], variables=[W])

    def function(tokens: Any, queries: Any) -> Any:
        (found,) = layer(task.rows(tokens, queries))
        return (found * task.weights).sum()

    gradient = jax.grad(function, argnums=(0, 1))
    return lambda arrays: tuple(np.asarray(part) for part in gradient(*map(jnp.asarray, arrays)))


def best_times(gradients: dict[str, Gradient], task: Task, repeats: int) -> dict[str, tuple[float, Arrays]]:
    """Seconds of the best run of each, in turn, and its gradient. Runs of more than a second are not repeated."""
    found = {}
    for name, gradient in gradients.items():
        start = time.process_time()
        arrays = gradient(task.arrays)
        seconds = time.process_time() - start
        found[name] = seconds if seconds > LONG and name == DIFFERENCES else np.inf, arrays
    for _ in range(repeats):
        for name in [name for name, (seconds, _) in found.items() if not LONG < seconds < np.inf]:
            start = time.process_time()
            arrays = gradients[name](task.arrays)
            found[name] = min(found[name][0], time.process_time() - start), arrays
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_x64", True)
    for size in SIZES:
        n, T, d = size
        print(f"\n| n={n} T={T} d={d} | ms | ratio | error |\n| --- | ---: | ---: | ---: |")
        for norm in EXPRESSIONS:
            task = Task.drawn(size, norm)
            gradients = {"attsvm": ours(task)}
            if size != SIZES[-1]:
                gradients[DIFFERENCES] = by_differences(task)
            if norm == "frobenius" and importlib.util.find_spec("qpax"):
                gradients["qpax"] = by_qpax(task)
            if importlib.util.find_spec("cvxpylayers"):
                gradients["cvxpylayers"] = by_cvxpylayers(task)
            found = best_times(gradients, task, repeats)
            for name, (seconds, gradient) in found.items():
                ratio = seconds / found["attsvm"][0]
                print(
                    f"| {norm}, {name} | {1e3 * seconds:.2f} | {ratio:.1f} | {task.error(gradient):.1e} |", flush=True
                )


if __name__ == "__main__":
    main()
