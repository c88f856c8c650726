"""What a user would pick in place of ``solve_svm``: conic and quadratic solvers, each in the form that suits it best.

Every peer takes the tokens, the queries and the selection, and returns weights and multipliers. The forms of the
Frobenius problem are the least norm over W and its dual, min ½λ'Kλ − 1'λ over λ ≥ 0 with the Gram matrix K of the rows;
those of ℓ1 and ℓ∞ are linear programs. qpax and mpax compile a program for each shape; they are left out where they are
not installed.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import clarabel
import cvxpy as cp
import numpy as np
import scipy.optimize
import scipy.sparse as sp
import scs

Peer = Callable[["Data"], "Answer"]


class Data(NamedTuple):
    """Tokens (n, T, d), queries (n, d) and the selected token of each sequence."""

    tokens: np.ndarray
    queries: np.ndarray
    selected: np.ndarray


class Answer(NamedTuple):
    """Weights, and multipliers (n, T) of their constraints."""

    weights: np.ndarray
    multipliers: np.ndarray


class Rows(NamedTuple):
    """The constraints left_j' W right_j ≥ 1, and where their multipliers belong."""

    left: np.ndarray
    right: np.ndarray
    dropped: np.ndarray

    @classmethod
    def of(cls, data: Data) -> "Rows":
        """The constraints of all tokens that are not selected."""
        tokens, queries, selected = data
        n, T, _ = tokens.shape
        dropped = np.arange(T) != selected[:, None]
        left = (tokens[np.arange(n), selected][:, None] - tokens)[dropped]
        return cls(left, np.repeat(queries, T - 1, axis=0), dropped)

    @property
    def matrix(self) -> np.ndarray:
        """(m, d²)"""
        return (self.left[:, :, None] * self.right[:, None, :]).reshape(len(self.left), -1)

    @property
    def gram(self) -> np.ndarray:
        """(m, m)"""
        return (self.left @ self.left.T) * (self.right @ self.right.T)

    def sides(self, weights: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """The margins of weights, A*(λ) and the sum of the multipliers, of which negative ones count as 0."""
        kept = np.maximum(multipliers, 0)
        return np.vecdot(self.left, self.right @ weights.T), (kept[:, None] * self.left).T @ self.right, kept.sum()

    def answer(self, weights: np.ndarray, multipliers: np.ndarray) -> Answer:
        """Weights of any shape, and one multiplier for each row."""
        of_tokens = np.zeros(self.dropped.shape)
        of_tokens[self.dropped] = multipliers
        return Answer(weights.reshape(self.left.shape[1], -1), of_tokens)

    def answer_of_dual(self, multipliers: np.ndarray) -> Answer:
        """W = A*(λ), scaled to the margin 1."""
        weights = (self.left * multipliers[:, None]).T @ self.right
        return self.answer(weights / np.vecdot(self.left, self.right @ weights.T).min(), multipliers)


def with_cvxpy(p: float, solver: str, **options: Any) -> Peer:
    """All constraints as one matrix times the vector of weights."""

    def solve(data: Data) -> Answer:
        rows = Rows.of(data)
        weights = cp.Variable(rows.matrix.shape[1])
        constraint = rows.matrix @ weights >= 1
        cp.Problem(cp.Minimize(cp.norm(weights, p)), [constraint]).solve(solver=solver, **options)
        return rows.answer(weights.value, constraint.dual_value)

    return solve


def clarabel_on_the_dual(data: Data) -> Answer:
    """Clarabel on the dual, the fastest of the forms that were tried.

    It uses the supernodal factorisation: on a dense matrix Clarabel's other factorisation takes ten times as long. With
    W as d² variables the linear system would be larger.
    """
    rows = Rows.of(data)
    gram = sp.triu(sp.csc_array(rows.gram), format="csc")
    m = len(rows.left)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.direct_solve_method = False, "faer"
    sign = sp.csc_matrix(-sp.identity(m))
    cones = [clarabel.NonnegativeConeT(m)]
    solver = clarabel.DefaultSolver(sp.csc_matrix(gram), -np.ones(m), sign, np.zeros(m), cones, settings)
    return rows.answer_of_dual(np.maximum(np.asarray(solver.solve().x), 0.0))


def scs_on_the_dual(data: Data) -> Answer:
    rows = Rows.of(data)
    m = len(rows.left)
    given = {
        "P": sp.csc_matrix(sp.triu(rows.gram)),
        "A": sp.csc_matrix(-sp.identity(m)),
        "b": np.zeros(m),
        "c": -np.ones(m),
    }
    found = scs.SCS(given, {"l": m}, verbose=False, eps_abs=1e-9, eps_rel=1e-9).solve()
    return rows.answer_of_dual(np.maximum(found["x"], 0.0))


def qpax_on_the_dual(data: Data) -> Answer:
    rows = Rows.of(data)
    m = len(rows.left)
    found = _qpax()(rows.gram, -np.ones(m), np.zeros((0, m)), np.zeros(0), -np.eye(m), np.zeros(m))
    return rows.answer_of_dual(np.maximum(np.asarray(found[0]), 0.0))


def mpax_on_the_primal(data: Data) -> Answer:
    """On the dual, mpax ends without a solution."""
    rows = Rows.of(data)
    matrix = rows.matrix
    m, D = matrix.shape
    found = _mpax("create_qp")(np.eye(D), np.zeros(D), np.zeros((0, D)), np.zeros(0), matrix, np.ones(m))
    return rows.answer(np.asarray(found.primal_solution), np.asarray(found.dual_solution))


class LinearProgram(NamedTuple):
    """min c'x over G x ≥ h, of which the first m rows are those of the Att-SVM; W is ``weights(x)``."""

    c: np.ndarray
    G: np.ndarray
    h: np.ndarray
    weights: Callable[[np.ndarray], np.ndarray]


def linear_program(rows: Rows, p: float) -> LinearProgram:
    """ℓ1 with W = u − v, u, v ≥ 0; ℓ∞ with −t ≤ W ≤ t."""
    matrix = rows.matrix
    m, D = matrix.shape
    if p == 1:
        G, c = np.vstack([np.hstack([matrix, -matrix]), np.eye(2 * D)]), np.ones(2 * D)
        return LinearProgram(c, G, np.concatenate([np.ones(m), np.zeros(2 * D)]), lambda x: x[:D] - x[D:])
    ones = np.ones((D, 1))
    G = np.vstack([np.hstack([matrix, np.zeros((m, 1))]), np.hstack([np.eye(D), ones]), np.hstack([-np.eye(D), ones])])
    return LinearProgram(np.eye(D + 1)[-1], G, np.concatenate([np.ones(m), np.zeros(2 * D)]), lambda x: x[:D])


def highs(p: float) -> Peer:
    def solve(data: Data) -> Answer:
        rows = Rows.of(data)
        c, G, h, weights = linear_program(rows, p)
        found = scipy.optimize.linprog(c, A_ub=-G, b_ub=-h, bounds=(None, None), method="highs")
        return rows.answer(weights(found.x), -found.ineqlin.marginals[: len(rows.left)])

    return solve


def clarabel_program(p: float) -> Peer:
    def solve(data: Data) -> Answer:
        rows = Rows.of(data)
        c, G, h, weights = linear_program(rows, p)
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        none = sp.csc_matrix((len(c), len(c)))
        cones = [clarabel.NonnegativeConeT(len(h))]
        found = clarabel.DefaultSolver(none, c, sp.csc_matrix(-G), -h, cones, settings).solve()
        return rows.answer(weights(np.asarray(found.x)), np.asarray(found.z)[: len(rows.left)])

    return solve


def scs_program(p: float) -> Peer:
    def solve(data: Data) -> Answer:
        rows = Rows.of(data)
        c, G, h, weights = linear_program(rows, p)
        given = {"A": sp.csc_matrix(-G), "b": -h, "c": c}
        found = scs.SCS(given, {"l": len(h)}, verbose=False, eps_abs=1e-9, eps_rel=1e-9, max_iters=100_000).solve()
        return rows.answer(weights(found["x"]), found["y"][: len(rows.left)])

    return solve


def qpax_program(p: float) -> Peer:
    def solve(data: Data) -> Answer:
        rows = Rows.of(data)
        c, G, h, weights = linear_program(rows, p)
        size = len(c)
        found = _qpax()(np.zeros((size, size)), c, np.zeros((0, size)), np.zeros(0), -G, -h)
        return rows.answer(weights(np.asarray(found[0])), np.asarray(found[2])[: len(rows.left)])

    return solve


def mpax_program(p: float) -> Peer:
    def solve(data: Data) -> Answer:
        rows = Rows.of(data)
        c, G, h, weights = linear_program(rows, p)
        found = _mpax("create_lp")(c, np.zeros((0, len(c))), np.zeros(0), G, h)
        return rows.answer(
            weights(np.asarray(found.primal_solution)), np.asarray(found.dual_solution)[: len(rows.left)]
        )

    return solve


@cache
def _qpax() -> Callable[..., Any]:
    import jax
    import qpax

    jax.config.update("jax_enable_x64", True)
    return jax.jit(lambda *arrays: qpax.solve_qp(*arrays, solver_tol=1e-9))


@cache
def _mpax(create: str) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp
    import mpax

    jax.config.update("jax_enable_x64", True)
    solver = mpax.raPDHG(eps_abs=1e-9, eps_rel=1e-9, iteration_limit=100_000)
    compiled: dict[Any, Callable[..., Any]] = {}

    def solve(*arrays: Any) -> Any:
        bound = jnp.full(arrays[-2].shape[1], jnp.inf)
        program = getattr(mpax, create)(*map(jnp.asarray, arrays), -bound, bound, False)
        leaves, structure = jax.tree.flatten(program)
        # mpax decides in Python by what is no array, and compiles anew in each call of its own
        is_array = tuple(isinstance(x, jax.Array) and x.ndim > 0 for x in leaves)

        def optimize(given: list[Any]) -> Any:
            rest = iter(given)
            return solver.optimize(
                jax.tree.unflatten(structure, [next(rest) if a else x for a, x in zip(is_array, leaves, strict=True)])
            )

        key = tuple(x.shape for x, a in zip(leaves, is_array, strict=True) if a)
        run = compiled.setdefault(key, jax.jit(optimize))
        return run([x for x, a in zip(leaves, is_array, strict=True) if a])

    return solve


def peers(p: float) -> dict[str, Peer]:
    """The peers of an ℓp norm, p = 1, 2 or ∞, by name."""
    found = {
        "CVXPY, Clarabel": with_cvxpy(p, "CLARABEL"),
        "CVXPY, SCS": with_cvxpy(p, "SCS", eps=1e-9, max_iters=100_000),
    }
    if p == 2:
        found |= {"Clarabel on the dual": clarabel_on_the_dual, "SCS on the dual": scs_on_the_dual}
        of_jax = {"qpax": qpax_on_the_dual, "mpax": mpax_on_the_primal}
    else:
        found |= {"HiGHS": highs(p), "Clarabel": clarabel_program(p), "SCS": scs_program(p)}
        of_jax = {"qpax": qpax_program(p), "mpax": mpax_program(p)}
    return found | {name: peer for name, peer in of_jax.items() if find_spec(name)}
