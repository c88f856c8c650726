"""The nuclear Att-SVM over weights of rank at most m: the limit of factors K and Q with m columns."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgesv
from scipy.optimize import minimize

from attsvm._utils.checks import check_integer
from attsvm._utils.shapes import Bool, Float
from attsvm._utils.threads import threads_for
from attsvm.errors import ProblemError
from attsvm.norms import Norm, Nuclear
from attsvm.svm.certificate import SUPPORT_SLACK
from attsvm.svm.constraints.constraints import MOST_UNKNOWNS, Constraints
from attsvm.svm.constraints.rows import ReducedRows, reduced_rows
from attsvm.svm.loop import Stop
from attsvm.svm.methods.registry import Candidate, SolverSettings, undecided
from attsvm.svm.tolerances import FINEST, LEAST_RIDGE, ROUNDED

NEAR = 1e-2
"""Violation below which Newton's method is tried, and residual below which it updates the set of held rows."""

CONVERGED = 1e-8
"""Violation at which multipliers have converged, and largest residual of G V = U at a local minimum U S V'."""

NEGLIGIBLE = 1e-9
"""Singular values below this, relative to the first, are no part of the rank."""

MIXED_STARTS, RANDOM_STARTS = 8, 16
"""Starts from random mixtures of the factors of the nuclear solution, and from random factors.

A mixture leads to the lowest minimum about twice as often on most problems, but never on some.
"""

ROUND_STEPS = 100
"""Largest number of steps of L-BFGS between two updates of the multipliers."""

STIFFER = 4.0
"""The violation has to fall by this factor in each round; otherwise the penalty grows by it."""


def solve_at_rank(
    left: Float[np.ndarray, "m d_k"],
    queries: Float[np.ndarray, "m d_q"],
    right: Float[np.ndarray, " m"],
    equality: Bool[np.ndarray, " m"],
    weights: Float[np.ndarray, "d_k d_q"],
    multipliers: Float[np.ndarray, " m"],
    held: Bool[np.ndarray, " m"],
    threshold: float,
) -> tuple[Float[np.ndarray, "d_k d_q"], Float[np.ndarray, " m"]] | None:
    """Least ½‖U‖² + ½‖V‖² with U V' in the constraints, from a point nearby.

    The minimum is ‖U V'‖_*. With G = A*(λ), and if the rows that hold with equality are known, the optimum solves

        U = G V,    V = G'U,    l_a'U V'z_a = b_a,

    and if it is strictly complementary, Newton's method converges quadratically. Violated rows are added to the held
    rows, and rows whose multipliers become negative are removed.

    ``left``, ``queries``, ``right``, ``equality``: the rows l_a z_a' of one problem, b_a, and which of them are
    equalities. ``weights``, ``multipliers``: a point nearby, ‖weights‖_* about 1. ``held``: the initial set of rows
    that hold with equality. ``threshold``: singular values of the weights below it are dropped at the start; the rank
    is then constant.

    Returns weights and multipliers, or None if the iteration does not converge. The point may be a local minimum.

    References: Burer and Monteiro (2003), *A nonlinear programming algorithm for solving semidefinite programs via
    low-rank factorization*.
    """
    # balanced factors: U = P√Σ and V = Q√Σ of W = PΣQ'
    basis, sigma, other = np.linalg.svd(weights, full_matrices=False)
    rank = int(np.count_nonzero(sigma > threshold))
    root = np.sqrt(sigma[:rank])
    U, V, full = basis[:, :rank] * root, other[:rank].T * root, np.where(held, multipliers, 0.0)
    corner = U.size
    size = corner + V.size
    before = np.inf
    for _ in range(Stop(FINEST).max_steps):
        own, own_left, own_queries = full[held], left[held], queries[held]
        count = len(own)
        # with more rows than unknowns the equations have no solution in general
        if not 0 < count <= size or size + count > MOST_UNKNOWNS:
            return None
        # the residual of the three equations, with G = A*(λ) over the held rows
        pull = (own_left * own[:, None]).T @ own_queries
        images, partners = own_left @ U, own_queries @ V
        residual = np.concatenate(
            [(pull @ V - U).ravel(), (pull.T @ U - V).ravel(), right[held] - np.vecdot(images, partners)]
        )
        error = np.abs(residual).max()
        # far from the solution Newton's method diverges, and the caller goes on
        if not error <= 10 * before:
            return None
        if error <= NEAR:
            # rows outside the set that are violated enter, rows with λ < 0 leave
            short = np.vecdot(left @ U, queries @ V) < right - np.maximum(10 * error, ROUNDED)
            wrong = np.where(held, (full < 0) & ~equality, short)
            if wrong.any():
                held, before = held ^ wrong, np.inf
                full = np.where(held, full, 0.0)
                continue
            if error <= FINEST or error > 0.5 * before:
                return U @ V.T, full
        before = error
        # Newton: H (ΔU, ΔV, Δλ) = residual
        system = _system(pull, own_left, own_queries, images, partners)
        _, _, step, failed = dgesv(system, residual, overwrite_a=True, overwrite_b=True)
        if failed:
            return None
        U = U + step[:corner].reshape(U.shape)
        V = V + step[corner:size].reshape(V.shape)
        full[held] += step[size:]
    return None


def _system(
    pull: Float[np.ndarray, "d_k d_q"],
    left: Float[np.ndarray, "k d_k"],
    queries: Float[np.ndarray, "k d_q"],
    images: Float[np.ndarray, "k r"],
    partners: Float[np.ndarray, "k r"],
) -> Float[np.ndarray, "s s"]:
    """The matrix of Newton's equations in U, V and the multipliers of the held rows; images l'U, partners z'V."""
    count, rank = images.shape
    corner, size = rank * pull.shape[0], rank * (pull.shape[0] + pull.shape[1])
    system = np.zeros((size + count, size + count))
    # of column k of U and V: U − G V and V − G'U, linear in both
    for k in range(rank):
        system[k:corner:rank, corner + k : size : rank] = -pull
        system[corner + k : size : rank, k:corner:rank] = -pull.T
    # U and V can be rotated together without changing U V', which makes the equations singular
    system.reshape(-1)[: size * (size + count + 1) : size + count + 1] = 1 + LEAST_RIDGE
    # of row a: l_a'ΔU V'z_a + l_a'U ΔV'z_a, and its transpose with −Δλ_a
    by_row = system[size:]
    by_row[:, :corner] = (left[:, :, None] * partners[:, None, :]).reshape(count, -1)
    by_row[:, corner:size] = (queries[:, :, None] * images[:, None, :]).reshape(count, -1)
    system[:size, size:] = -by_row[:, :size].T
    return system


def check_rank(rank: int, norm: Norm, has_queries: bool) -> int:
    """Return the rank as an integer.

    Raises ProblemError if it is not an integer of at least 1, the norm is not the nuclear norm, or the weights are
    those of a prompt.
    """
    if not has_queries:
        raise ProblemError("rank: expected None for a problem without queries, whose weights are a vector")
    if norm != Nuclear():
        raise ProblemError(f"rank: expected the nuclear norm, got {norm.name}")
    return check_integer("rank", rank, 1)


def solve_rank(constraints: Constraints, rank: int, settings: SolverSettings, nuclear: Candidate) -> Candidate:
    """Weights K Q' of least ½(‖K‖² + ‖Q‖²) = ‖K Q'‖_*, where K and Q have ``rank`` columns.

    If the nuclear solution has at most this rank, it is the answer. Otherwise the problem is not convex: local minima
    are found from several starts by augmented Lagrangians and Newton's method, and the lowest is kept. The multipliers
    are always those of the nuclear norm, so the certificate compares the answer with the nuclear optimum, which no
    weights of any rank fall below.

    ``rank``: m. ``settings``: ``max_steps`` limits the number of starts, and ``report`` is called after each.
    ``nuclear``: the candidate of the nuclear norm for the same constraints.

    References: Burer and Monteiro (2003), *A nonlinear programming algorithm for solving semidefinite programs via
    low-rank factorization*. Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*.
    """
    flat = constraints.with_one_axis()
    weights = nuclear.weights.reshape(-1, *flat.weights_shape).copy()
    multipliers = nuclear.multipliers.reshape(flat.inequality.shape)
    warm = None if settings.warm_start is None else settings.warm_start.reshape(weights.shape)
    # only nuclear solutions of a larger rank are searched again; the others are the answer
    singular = np.linalg.svd(weights, compute_uv=False)
    wide = np.any(singular[:, rank:] > NEGLIGIBLE * singular[:, :1], axis=-1)
    unrestricted, weights = weights, truncated(weights, rank)
    steps = np.zeros(len(weights), int)
    for k in np.flatnonzero(wide & undecided(flat) & ~nuclear.ray.reshape(-1)):
        reduced = reduced_rows(flat[[k]])
        known = [unrestricted[k]] if warm is None else [unrestricted[k], warm[k]]
        starts = [reduced.contract(start[None])[0] for start in known]
        own = _FactoredProblem.of(reduced, reduced.unit.gather(multipliers[[k]])[0], rank)
        with threads_for(own.left.size * rank):
            found, steps[k] = own.lowest(starts, settings)
        weights[k] = reduced.expand(found[None])[0]
    if not steps.any():
        why = f"{nuclear.why}; its solution has rank at most {rank}"
        return nuclear._replace(weights=weights.reshape(nuclear.weights.shape), why=why)
    return Candidate(
        weights,
        multipliers,
        nuclear.ray.reshape(-1),
        steps,
        "factors",
        f"the nuclear solution has a rank above {rank}: local minima over factors, from {int(steps.max())} starts",
    ).with_axes_of(constraints)


def _factors(weights: Float[np.ndarray, "d_k d_q"]) -> Float[np.ndarray, "d_k+d_q r"]:
    """Balanced factors, K above Q."""
    left, singular, right = np.linalg.svd(weights, full_matrices=False)
    return np.asarray(np.vstack([left, right.T]) * np.sqrt(singular))


def _unit(factors: Float[np.ndarray, "d_k+d_q m"]) -> Float[np.ndarray, "numbers"]:
    """Flat factors with ½(‖K‖² + ‖Q‖²) = 1."""
    return np.asarray(factors * np.sqrt(2) / (np.linalg.norm(factors) or 1.0)).reshape(-1)


def truncated(weights: Float[np.ndarray, "*batch d_k d_q"], rank: int) -> Float[np.ndarray, "*batch d_k d_q"]:
    """The nearest weights of at most this rank."""
    left, singular, right = np.linalg.svd(weights, full_matrices=False)
    return np.asarray((left[..., :rank] * singular[..., None, :rank]) @ right[..., :rank, :])


class _FactoredProblem(NamedTuple):
    """One problem over factors, at the scale at which the nuclear optimum has the value 1."""

    # left, queries, right, equality: the rows l_a z_a' of unit norm, b_a, and which of them are equalities
    left: Float[np.ndarray, "m d_k"]
    queries: Float[np.ndarray, "m d_q"]
    right: Float[np.ndarray, " m"]
    equality: Bool[np.ndarray, " m"]
    multipliers: Float[np.ndarray, " m"]  # of the nuclear optimum
    rank: int

    @classmethod
    def of(cls, reduced: ReducedRows, multipliers: Float[np.ndarray, " m"], rank: int) -> "_FactoredProblem":
        rows, unit = reduced.rows, reduced.unit
        there = unit.there[0]
        left, queries = rows.left[0, there], rows.queries[0, rows.query_of][there]
        right, multipliers = unit.right[0, there], multipliers[there]
        # N*(A*(λ)) = ‖A*(λ)‖₂; divided by it, b'λ is a lower bound on the nuclear optimum
        size = np.linalg.svd((left * multipliers[:, None]).T @ queries, compute_uv=False)[0]
        multipliers = multipliers / (size or 1.0)
        value = float(multipliers @ right)  # the bound on the optimum that these multipliers prove
        scale = value if value > 0 else 1.0
        return cls(left, queries, right / scale, unit.equality[0, there], multipliers, rank)

    def lowest(
        self, starts: list[Float[np.ndarray, "d_k d_q"]], settings: SolverSettings
    ) -> tuple[Float[np.ndarray, "d_k d_q"], int]:
        """The best weights that any start leads to, and the number of starts. The first is the nuclear solution."""
        best, least, step = starts[0], np.inf, 0
        for step, start in enumerate(self._starts(starts), start=1):
            found = self.local_minimum(start)
            size = self.size(found)
            if size < least or step == 1:
                best, least = found, size
            # the nuclear optimum is 1 at this scale, so 1 − 1/least bounds the gap
            stop = settings.report is not None and settings.report(step, max(1 - 1 / least, 0.0))
            if stop or step == settings.max_steps or least <= 1 + 0.1 * settings.tol:
                break
        return best, step

    def _starts(self, known: list[Float[np.ndarray, "d_k d_q"]]) -> Iterator[Float[np.ndarray, "numbers"]]:
        """Factors: of the known weights, mixtures of those of the first, and random ones."""
        for weights in known:
            yield _unit(_factors(weights)[:, : self.rank])
        generator, of_first = np.random.default_rng(0), _factors(known[0])
        for _ in range(MIXED_STARTS):
            yield _unit(of_first @ generator.standard_normal((of_first.shape[1], self.rank)))
        for _ in range(RANDOM_STARTS):
            yield _unit(generator.standard_normal((len(of_first), self.rank)))

    def local_minimum(self, factors: Float[np.ndarray, "numbers"]) -> Float[np.ndarray, "d_k d_q"]:
        """The weights at a local minimum near a start, or nearly feasible ones if there is none.

        The multipliers of the augmented Lagrangian are updated until Newton's method converges to a local minimum.
        """
        # those of the nuclear norm are exact if the rank does not bind
        multipliers, before = self.multipliers, np.inf
        # β: the terms of a violated row, λ s + ½β s², are of the size of the objective
        stiffness = 1 / float(np.mean(self.right[self.right > 0] ** 2))
        stiffest = stiffness / CONVERGED
        smallest = float(np.min(self.right[self.right > 0]))
        # a start whose violation has not fallen with the largest penalty leads to no weights of this rank
        while stiffness < stiffest:
            # L(U, V; λ, β) is minimised as precisely as the last violation allows the next one to fall
            precision = {"maxiter": ROUND_STEPS, "gtol": NEAR * min(before, NEAR), "ftol": 0.0}
            arguments = (multipliers, stiffness)
            factors = minimize(self._lagrangian, factors, arguments, "L-BFGS-B", True, options=precision).x
            short = self.right - self._products(factors)
            # a row with λ = 0 and slack is not violated: max(b − A, −λ/β)
            wrong = np.where(self.equality, np.abs(short), np.maximum(short, -multipliers / stiffness))
            # λ ← (λ + β(b − A))₊
            multipliers = self._signed(multipliers + stiffness * short)
            violation = float(np.abs(wrong).max()) / smallest
            if violation <= NEAR:
                refined = self._refined(factors, multipliers)
                if refined is not None:
                    return refined
            if violation <= CONVERGED:
                break
            # β grows where the violation falls too slowly
            if violation > before / STIFFER:
                stiffness *= STIFFER
            before = violation
        return self._product(factors)

    def _refined(
        self, factors: Float[np.ndarray, "numbers"], multipliers: Float[np.ndarray, " m"]
    ) -> Float[np.ndarray, "d_k d_q"] | None:
        """The local minimum that Newton's method converges to from factors nearby; None if it does not."""
        weights = self._product(factors)
        # complementarity: rows with a positive multiplier hold with equality
        held = self.equality | (multipliers > SUPPORT_SLACK * multipliers.max())
        found = solve_at_rank(
            self.left, self.queries, self.right, self.equality, weights, multipliers, held, NEGLIGIBLE
        )
        if found is None or not self.size(found[0]) <= (1 + NEAR) * 0.5 * float(factors @ factors):
            return None
        left, singular, right = np.linalg.svd(found[0], full_matrices=False)
        kept = singular > NEGLIGIBLE * singular[0]
        # G V = U at a stationary point of ½‖K‖² + ½‖Q‖² on the constraints
        pull = (self.left * found[1][:, None]).T @ self.queries
        error = np.abs(pull @ right[kept].T - left[:, kept]).max()
        return found[0] if error <= CONVERGED else None

    def _lagrangian(
        self, factors: Float[np.ndarray, "numbers"], multipliers: Float[np.ndarray, " m"], stiffness: float
    ) -> tuple[float, Float[np.ndarray, "numbers"]]:
        """½(‖K‖² + ‖Q‖²) with the constraints, each by its multiplier and the square of its violation; the gradient."""
        K, Q = self._split(factors)
        images, partners = self.left @ K, self.queries @ Q
        # ∂L/∂A(W) is −(λ + β(b − A))₊, which pulls on K through Q and on Q through K
        push = self._signed(multipliers + stiffness * (self.right - np.vecdot(images, partners)))
        value = 0.5 * float(factors @ factors) + 0.5 * float(push @ push - multipliers @ multipliers) / stiffness
        of_K, of_Q = self.left.T @ (push[:, None] * partners), self.queries.T @ (push[:, None] * images)
        return value, factors - np.concatenate([of_K.reshape(-1), of_Q.reshape(-1)])

    def _signed(self, multipliers: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        return np.where(self.equality, multipliers, np.maximum(multipliers, 0.0))

    def _split(
        self, factors: Float[np.ndarray, "numbers"]
    ) -> tuple[Float[np.ndarray, "d_k m"], Float[np.ndarray, "d_q m"]]:
        rows = factors.reshape(-1, self.rank)
        return rows[: self.left.shape[1]], rows[self.left.shape[1] :]

    def _product(self, factors: Float[np.ndarray, "numbers"]) -> Float[np.ndarray, "d_k d_q"]:
        K, Q = self._split(factors)
        return np.asarray(K @ Q.T)

    def _products(self, factors: Float[np.ndarray, "numbers"]) -> Float[np.ndarray, " m"]:
        K, Q = self._split(factors)
        return np.asarray(np.vecdot(self.left @ K, self.queries @ Q))

    def size(self, weights: Float[np.ndarray, "d_k d_q"]) -> float:
        """‖W‖_* divided by the smallest margin; ∞ where the weights cannot be scaled to satisfy the constraints."""
        value = float(np.linalg.svd(weights, compute_uv=False).sum())
        margins = np.vecdot(self.left @ weights, self.queries)
        asked = self.right > 0
        smallest = float(np.min(margins[asked] / self.right[asked]))
        rest = np.where(self.equality, np.abs(margins), -margins)[~asked].max(initial=0.0)
        return value / smallest if smallest > 0 and rest <= 1e-7 * value else np.inf
