r"""The least nuclear or spectral norm by Newton's method on the face of its optimum, near which it starts.

(1) At the optimum one of W and G = A*(λ), here X, has r singular values t with vectors U₁ and V₁, its largest ones, and
the other one has rank r and is U₁SV₁' with S ⪰ 0:

    nuclear:  X = G, t = 1, W = U₁SV₁';      spectral:  X = W, t = N(W), G = U₁SV₁', tr S = 1.

(2) So W and G have the singular vectors of X + cS, with any c > 0. Its singular values m determine theirs:
max(m − t, 0)/c is the one and min(m, t) the other. Let ω be those of W, and γ those of G. The rank r is the number of
m above t (:func:`decide_rank`).

(3) In the coordinates U and V of all singular vectors, a change of G to P changes W to

    W_ij ± W_ji = (ω_i ∓ ω_j) / (γ_i ∓ γ_j) · (P_ij ± P_ji),    W_ii = ω_i,

as long as the divisor is not 0. It is 0 on the face: there W is unknown, and P_ij is 0 or γ_i. These entries of W are
changed by (P_ij − γ_i δ_ij) / ρ, with a small ρ: a proximal step, which leaves a positive definite matrix of the rows
that hold with equality. With ρ proportional to the residual the convergence is quadratic if r and these rows are right
and the optimum is strictly complementary.

(4) Both cases together are W = ω + q∘(P − γ), entry by entry of sums and differences, with the quotients q. The rows F
in these coordinates give P = F'(λ + Δλ), and they hold with equality, FW = b, if

    F diag(q) F' Δλ = (b − Fω) − F diag(q) (F'λ − γ).

References
----------
Overton (1988), *On minimizing the maximum eigenvalue of a symmetric matrix*, for the dual of the nuclear norm. Ding,
Sun, Sun and Toh (2018), *Spectral operators of matrices*, for the quotients.
"""

from abc import ABC, abstractmethod
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np

from attsvm._utils.linear_algebra import diagonal_of, singular_values, solve_definite, svd
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.svm.constraints.rows import Block, Chosen, RowVector
from attsvm.svm.loop import Iterates, Iteration, Point, Stop, iterate
from attsvm.svm.methods.predictor_corrector import Values
from attsvm.svm.methods.semidefinite.problems import MatrixProblems
from attsvm.svm.tolerances import LEAST_RIDGE, ROUNDED

Singular = Float[np.ndarray, "N c"]

STOP = Stop(target=1e-8, max_steps=15)
"""The step from a residual (of equations scaled to a value of 1) below this is the last one: convergence is quadratic.

Answers hardly depend on it: where the gap is too large, the interior point follows. Of 60 random problems (6 sequences,
8 tokens, d = 10), all optimal, none needed that in the nuclear norm for 1e-13 to 1e-6, and 14 for 1e-4; in the spectral
norm 6 for 1e-8, 11 for 1e-7, 9 for 1e-12. ``tests/svm/test_semidefinite.py`` passes for 1e-7, 1e-9 and 1e-12, and fails
for 1e-4.
"""

FEW_ENTRIES = 500
"""With more entries than this in W, those that do not change are left out of the products."""

TINY = float(np.finfo(float).tiny)
"""Added to divisors that are 0 where the dividends are 0, too."""


class Face(ABC):
    """The parts that depend on the norm; by default, the singular values of W on the face are independent."""

    mix: ClassVar[float]  # c, the factor of the matrix of rank r
    ridge: ClassVar[float]  # this part of the residual is added to the equations: rows may depend on each other

    @abstractmethod
    def mixed(self, weights: Block, pull: Block) -> Block:
        """Return X + cS, from W and A*(λ)."""

    @abstractmethod
    def first_size(self, value: Values) -> Values:
        """Return an estimate of t, from N(W)."""

    @abstractmethod
    def sizes(self, core: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ω and γ, from the singular values s and those of X."""

    @abstractmethod
    def free(self, inside: Bool[np.ndarray, " d"], sums: Bool[np.ndarray, "d c"]) -> Bool[np.ndarray, "d c"]:
        """Return the unknown entries of W: ``inside`` are the first r places, ``sums`` those of the sums."""

    @abstractmethod
    def values(self, weights: Singular, pull: Singular) -> tuple[Values, Values]:
        """Return N(W) and N*(A*(λ)), from their singular values."""

    def gather(self, diagonal: np.ndarray, inside: np.ndarray, pull: Singular | None = None) -> None:
        """Overwrite the first number of each diagonal by the sum of the first r, if these are equal in W.

        Of the difference to the singular values ``pull``, it becomes the one to their given sum.
        """
        return

    def spread(self, diagonal: np.ndarray, inside: np.ndarray) -> None:
        """Apply the transpose of ``gather``."""
        return

    def size(self, before: Values, weights: Block) -> Values:
        """Return t, given U'WV."""
        return before


class NuclearFace(Face):
    """A*(λ) has r singular values 1 and W has rank r: U₁'A*(λ)V₁ = I up to a rotation, and S is unknown."""

    mix = 4.5
    ridge = 0.1

    def mixed(self, weights: Block, pull: Block) -> Block:
        return np.asarray(self.mix * weights + pull)

    def first_size(self, value: Values) -> Values:
        return np.ones(len(value))

    def sizes(self, core: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return core, rest

    def free(self, inside: Bool[np.ndarray, " d"], sums: Bool[np.ndarray, "d c"]) -> Bool[np.ndarray, "d c"]:
        """Return the symmetric part of U₁'WV₁."""
        return np.asarray(sums & inside[:, None] & inside[: sums.shape[1]])

    def values(self, weights: Singular, pull: Singular) -> tuple[Values, Values]:
        return weights.sum(axis=-1), pull[:, 0]


class SpectralFace(Face):
    """W has r singular values t and A*(λ) has rank r: tr S = 1 and U₂'A*(λ)V₂ = 0; t and U₂'WV₂ are unknown."""

    mix = 3.0
    ridge = 1.0

    def mixed(self, weights: Block, pull: Block) -> Block:
        return np.asarray(weights + self.mix * pull)

    def first_size(self, value: Values) -> Values:
        return value

    def sizes(self, core: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return rest, core

    def free(self, inside: Bool[np.ndarray, " d"], sums: Bool[np.ndarray, "d c"]) -> Bool[np.ndarray, "d c"]:
        """Return U₂'WV₂; and t, in the first place."""
        free = ~(inside[:, None] | inside[: sums.shape[1]])
        free[0, 0] = True
        return np.asarray(free)

    def gather(self, diagonal: np.ndarray, inside: np.ndarray, pull: Singular | None = None) -> None:
        """Sum the first r, which are t in W."""
        c = diagonal.shape[1]
        diagonal[:, 0] = np.einsum("nc...,nc->n...", diagonal, inside[:, :c])
        if pull is not None:
            diagonal[:, 0] += pull.sum(axis=-1) - 1

    def spread(self, diagonal: np.ndarray, inside: np.ndarray) -> None:
        """Repeat t r times."""
        diagonal[:, 1:] += inside[:, 1 : diagonal.shape[-1]] * diagonal[:, :1]

    def size(self, before: Values, weights: Block) -> Values:
        return weights[:, 0, 0].copy()

    def values(self, weights: Singular, pull: Singular) -> tuple[Values, Values]:
        return weights[:, 0], pull.sum(axis=-1)


def solve_on_face(
    face: Face,
    problems: MatrixProblems,
    weights: Block,
    multipliers: RowVector,
    held: Bool[np.ndarray, "N m"],
    value: Values,
    target: float,
) -> Point:
    """Least N(W) for N problems together, from points nearby; the gap is ∞ where the iteration did not converge.

    ``weights``, ``multipliers``: the points, with values of about 1. ``held``: the rows that hold with equality, at
    first: violated rows are added, and rows with negative multipliers removed. ``value``: N(W). ``target``: see
    :meth:`MatrixProblems.measure`.
    """
    long = weights.shape[1] >= weights.shape[2]
    now = _FaceIterate.first(face, weights if long else weights.mT, np.where(held, multipliers, 0.0), value)
    newton = _FaceNewton(face, _OuterRows.of(problems, long), held, now)
    found = iterate(newton, Point.unsolved(now.weights, now.multipliers), STOP)
    weights = found.weights if long else found.weights.mT
    multipliers = np.where(problems.equality, found.multipliers, np.maximum(found.multipliers, 0.0))
    norm, size = face.values(singular_values(weights), singular_values(problems.rows.adjoint(multipliers)))
    multipliers /= size[:, None]
    error, _ = problems.measure(weights, problems.rows.apply(weights), norm, multipliers, target)
    return found._replace(
        weights=weights, multipliers=multipliers, gap=np.where(found.gap <= STOP.target, error, np.inf)
    )


class _OuterRows(NamedTuple):
    """The rows l_a z_a' of N problems, with the larger dimension first: all numbers of a row are gathered together."""

    table: Float[np.ndarray, "N m columns"]  # l_a, z_a and b_a
    d: int
    inequality: Bool[np.ndarray, "N m"]

    @classmethod
    def of(cls, problems: MatrixProblems, long: bool) -> "_OuterRows":
        """Return those of N problems, transposed unless ``long``."""
        rows, queries = problems.rows, problems.rows.queries.take(problems.rows.query_of, axis=1)
        first, second = (rows.left, queries) if long else (queries, rows.left)
        table = np.concatenate([first, second, problems.right[:, :, None]], axis=2)
        return cls(table, first.shape[2], ~problems.equality)

    def select(self, some: Chosen) -> "_OuterRows":
        return self._replace(table=self.table[some], inequality=self.inequality[some])

    def lacking(self, weights: Block) -> RowVector:
        """Return b − A(W)."""
        left, queries = self.table[:, :, : self.d], self.table[:, :, self.d : -1]
        return np.asarray(self.table[:, :, -1] - np.vecdot(left @ weights, queries))


class _ActiveRows(NamedTuple):
    """The rows of each problem that hold with equality, padded with rows of zeros."""

    place: tuple[Int[np.ndarray, "N 1"], Int[np.ndarray, "N k"]]
    left: Float[np.ndarray, "N k d"]
    queries: Float[np.ndarray, "N k c"]
    right: Float[np.ndarray, "N k"]
    absent: Bool[np.ndarray, "N k"]

    @classmethod
    def of(cls, rows: _OuterRows, held: Bool[np.ndarray, "N m"]) -> "_ActiveRows":
        if len(held) == 1:  # without padding, in a quarter of the time
            row = held[0].nonzero()[0]
            place, absent = (np.zeros((1, 1), int), row[None]), np.zeros((1, len(row)), bool)
            table = rows.table.take(row, axis=1)
        else:
            numbers = np.add.reduce(held, axis=-1)
            most = int(np.maximum.reduce(numbers))
            place = np.arange(len(held))[:, None], np.argsort(~held, axis=-1, kind="stable")[:, :most]
            absent, table = numbers[:, None] <= np.arange(most), rows.table[place]
            table[absent] = 0.0
        return cls(place, table[:, :, : rows.d], table[:, :, rows.d : -1], table[:, :, -1], absent)


class _FaceIterate(NamedTuple):
    """W, λ and t of N problems, and the residual and r before the last step."""

    weights: Block
    multipliers: RowVector
    size: Values
    error: Values
    rank: Int[np.ndarray, " N"]

    @classmethod
    def first(cls, face: Face, weights: Block, multipliers: RowVector, value: Values) -> "_FaceIterate":
        count = len(weights)
        return cls(weights, multipliers, face.first_size(value), np.full(count, np.inf), np.zeros(count, int))


class _FaceNewton(Iteration):
    """The problems that still run. Only the last iterate of each, after a small residual, is a solution."""

    def __init__(self, face: Face, rows: _OuterRows, held: Bool[np.ndarray, "N m"], now: _FaceIterate) -> None:
        self.face, self.rows, self.held_mask, self.now = face, rows, held, now
        self.held = _ActiveRows.of(rows, held)
        self.places = _SymmetricPlaces.of(face, *now.weights.shape[1:])
        self.alive = np.ones(len(held), bool)

    def evaluate(self) -> Iterates:
        now = self.now
        return Iterates(now.weights, now.multipliers, np.where(now.error <= STOP.target, now.error, np.inf), self.alive)

    def select(self, going: Bool[np.ndarray, " N"]) -> None:
        self.rows, self.now = self.rows.select(going), _FaceIterate(*(part[going] for part in self.now))
        self.held_mask = self.held_mask[going]
        self.held = _ActiveRows.of(self.rows, self.held_mask)

    def advance(self) -> None:
        """Exchange rows, and make one step."""
        now, rows = self.now, self.rows
        short = rows.lacking(now.weights)
        off = np.maximum.reduce(np.abs(short * self.held_mask), axis=-1)
        wrong = (now.multipliers < 0) & rows.inequality | (short > np.maximum(off, ROUNDED)[:, None])
        if np.count_nonzero(wrong):
            self.held_mask = self.held_mask ^ wrong
            self.held = _ActiveRows.of(rows, self.held_mask)
            now = now._replace(multipliers=np.where(wrong, 0.0, now.multipliers))
            off = np.maximum.reduce(np.abs(short * self.held_mask), axis=-1)
        self.now = _step(self.face, self.places, self.held, now, off)
        # a residual may grow after a change of the face; a NaN, where the step failed, compares as false
        self.alive = self.now.error <= 10 * now.error
        if np.count_nonzero(self.alive) < len(self.alive):
            other_face = np.logical_or.reduce(wrong, axis=-1) | (self.now.rank != now.rank)
            self.alive |= other_face & np.isfinite(self.now.error)


class _SymmetricPlaces(NamedTuple):
    """Constants of matrices of one shape, d ≥ c: sums stand on and above the diagonal, differences below it."""

    sign: Float[np.ndarray, "d c"]  # −1 for sums and 1 for others: the signs of the singular values in (3)
    fold: Float[np.ndarray, "c c 1"]  # 1 for sums, −1 for differences, and 0 on the diagonal
    share: Float[np.ndarray, "d c"]  # the factor of the product of two sums or of two differences
    inside: Float[np.ndarray, "ranks d"]  # the first r places, for each r
    free: Bool[np.ndarray, "ranks d c"]  # the unknown entries of W, for each r

    @classmethod
    @cache
    def of(cls, face: Face, d: int, c: int) -> "_SymmetricPlaces":
        i, j = np.arange(d)[:, None], np.arange(c)
        sums = i <= j
        inside = np.arange(d) < np.arange(c + 1)[:, None]
        return cls(
            np.where(sums, -1.0, 1.0),
            (np.where(sums, 1.0, -1.0)[:c] - np.eye(c))[:, :, None],
            np.where((i == j) | (i >= c), 1.0, 0.5),
            inside.astype(np.float64),
            np.stack([face.free(first, sums) for first in inside]),
        )

    def folded(self, matrices: Float[np.ndarray, "N d c k"]) -> Float[np.ndarray, "N entries k"]:
        """Return sums and differences of the entries (i, j) and (j, i), which are overwritten, on one axis."""
        square = matrices[:, : len(self.fold)]
        square += self.fold * square.swapaxes(1, 2)
        return matrices.reshape(len(matrices), -1, matrices.shape[-1])

    def unfolded(self, entries: Float[np.ndarray, "N entries"]) -> Block:
        """Apply the transpose of ``folded``."""
        matrices = entries.reshape(len(entries), -1, len(self.fold))
        square = matrices[:, : len(self.fold)]
        square += (self.fold[:, :, 0] * square).swapaxes(1, 2)
        return matrices

    def diagonal(self, entries: np.ndarray) -> np.ndarray:
        """Return the diagonals, as a view, of matrices whose entries are on one axis, the second one."""
        c = len(self.fold)
        return entries[:, : c * c : c + 1]


def decide_rank(mixed: Singular, size: Values) -> Int[np.ndarray, " N"]:
    """Return the rank r of the face, (2): how many singular values of X + cS are above t.

    Near the optimum m_i = t + c s_i for the first r and m_i ≤ t for the others, so the gap in m around t is as wide as
    strict complementarity allows. The rank may change from step to step until it is right; nothing is rounded.
    """
    return np.asarray(np.add.reduce(mixed > size[:, None], axis=-1))


def _step(face: Face, places: _SymmetricPlaces, held: _ActiveRows, now: _FaceIterate, off: Values) -> _FaceIterate:
    """Make a step of Newton's method with the equations (1) to (4) on the held rows; the error is NaN where they fail.

    ``off``: the residual of these rows.
    """
    N, d, c = now.weights.shape
    multipliers = now.multipliers[held.place]  # 0 on absent rows
    if held.right.shape[1] == 0:
        return now._replace(error=np.full(N, np.nan))

    # (1), (2): the singular vectors of W and G, their singular values and r; absent ones are 0
    pull = (held.left * multipliers[:, :, None]).mT @ held.queries
    U, mixed, Vt = svd(face.mixed(now.weights, pull))
    rank = decide_rank(mixed, now.size)
    inside = places.inside.take(rank, axis=0)
    sizes = np.zeros((2, N, d))
    core, rest = sizes
    rest[:, :c] = np.minimum(mixed, now.size[:, None])
    core[:, :c] = (mixed - rest[:, :c]) / face.mix
    omega, gamma = face.sizes(core, rest)

    # (4): the rows F in these coordinates, F'λ − γ and b − Fω
    first, second = U.mT @ held.left.mT, Vt @ held.queries.mT
    rows = places.folded(first[:, :, None] * second[:, None])
    lacking = (rows @ multipliers[:, :, None])[:, :, 0]
    of_rows, of_lacking = places.diagonal(rows), places.diagonal(lacking)
    short = held.right - (omega[:, None, :c] @ of_rows)[:, 0]
    of_lacking -= gamma[:, :c]
    face.gather(of_lacking, inside, gamma)
    face.gather(of_rows, inside)
    error = np.maximum(np.maximum.reduce(np.abs(lacking), axis=-1), off)

    # (3): the quotients, 1/ρ for the entries of W that are unknown on the face
    dividend, divisor = face.sizes(*(sizes[:, :, :, None] + places.sign * sizes[:, :, None, :c]))
    freedom = np.maximum(error, LEAST_RIDGE)[:, None, None]
    quotient = np.where(places.free[rank], 1 / freedom, dividend / (divisor + TINY)) * places.share

    # (4), with √q F in place of F: Δλ
    root = np.sqrt(quotient).reshape(N, d * c, 1)
    used = np.flatnonzero(root.any(axis=(0, 2))) if d * c > FEW_ENTRIES else slice(None)
    root_used = root[:, used]
    factors, moved = root_used * rows[:, used], root_used * lacking[:, used, None]
    system = factors.mT @ factors
    diagonal_of(system)[:] += (face.ridge * error)[:, None] + held.absent
    try:
        change = solve_definite(system, short - (factors.mT @ moved)[:, :, 0])
    except np.linalg.LinAlgError:
        return now._replace(error=np.full(N, np.nan), rank=rank)

    # (4): W = ω + q∘(F'(λ + Δλ) − γ), in the coordinates U and V
    entries = np.zeros((N, d * c))
    entries[:, used] = (root_used * (moved + factors @ change[:, :, None]))[:, :, 0]
    of_weights = places.diagonal(entries)
    face.spread(of_weights, inside)
    of_weights += omega[:, :c]
    turned = places.unfolded(entries)
    after = now.multipliers.copy()
    after[held.place] = multipliers + change
    error = error + 0.0 * np.add.reduce(change, axis=-1)  # NaN if they are not finite
    return _FaceIterate(U @ turned @ Vt, after, face.size(now.size, turned), error, rank)
