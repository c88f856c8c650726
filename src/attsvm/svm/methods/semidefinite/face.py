r"""The least nuclear or spectral norm by Newton's method on the face of its optimum, near which it starts.

At the optimum one of W and G = A*(λ), here X, has r singular values t with vectors U₁ and V₁, its largest ones, and
the other one has rank r and is U₁SV₁' with S ⪰ 0:

    nuclear:  X = G, t = 1, W = U₁SV₁';      spectral:  X = W, t = N(W), G = U₁SV₁', tr S = 1.

So W and G have the singular vectors of X + cS, with any c > 0. Its singular values m determine theirs: max(m − t, 0)/c
is the one and min(m, t) the other. Let ω be those of W, and γ those of G. In the coordinates U and V of all singular
vectors, a change of G to P changes W to

    W_ij ± W_ji = (ω_i ± ω_j) / (γ_i ± γ_j) · (P_ij ± P_ji),    W_ii = ω_i,

as long as the divisor is not 0. It is 0 on the face: there W is unknown, and P_ij is 0 or γ_i. These entries of W
are changed by (P_ij − γ_i δ_ij) / ρ, with a small ρ: a proximal step, which leaves a positive definite matrix of the
rows that hold with equality. With ρ proportional to the residual the convergence is quadratic if r and these rows are
right and the optimum is strictly complementary.

References
----------
Overton (1988), *On minimizing the maximum eigenvalue of a symmetric matrix*, for the dual of the nuclear norm. Ding,
Sun, Sun and Toh (2018), *Spectral operators of matrices*, for the quotients.
"""

from functools import cache
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm._utils.linear_algebra import diagonal_of, solve_definite, svd
from attsvm.svm.constraints.pair_rows import Block, PairRows
from attsvm.svm.constraints.unit_rows import RowVector

Values = Float[np.ndarray, " N"]
Singular = Float[np.ndarray, "N c"]

MAX_STEPS = 15

LAST = 1e-8
"""The step from a residual below this is the last one: convergence is quadratic, and the caller looks at the result."""

LEAST_FREEDOM = 1e-10
"""ρ is the residual, but at least this, so that the equations keep enough digits."""

FEW_ENTRIES = 500
"""With more entries than this in W, those that do not change are left out of the products."""

TINY = 1e-300
"""Added to divisors that are 0 where the dividends are 0, too."""

ONLY = np.zeros((1, 1), int)
"""The index of a single problem."""

LARGEST = float(np.finfo(float).max)
"""Any number that is finite is at most this."""


class FaceRows(NamedTuple):
    """The rows l_a z_a' of N problems."""

    table: Float[np.ndarray, "N m columns"]  # l_a, z_a and b_a
    key_dim: int  # d_k
    inequality: Bool[np.ndarray, "N m"]

    @classmethod
    def of(cls, rows: PairRows, right: RowVector, equality: Bool[np.ndarray, "N m"]) -> "FaceRows":
        """Those of N problems, with the larger dimension first."""
        queries = rows.queries.take(rows.query_of, axis=1)
        first, second = (rows.left, queries) if rows.left.shape[2] >= queries.shape[2] else (queries, rows.left)
        return cls(np.concatenate([first, second, right[:, :, None]], axis=2), first.shape[2], ~equality)

    @property
    def left(self) -> Float[np.ndarray, "N m d_k"]:
        return self.table[:, :, : self.key_dim]

    @property
    def queries(self) -> Float[np.ndarray, "N m d_q"]:
        return self.table[:, :, self.key_dim : -1]

    @property
    def right(self) -> RowVector:
        return self.table[:, :, -1]

    def keep(self, some: np.ndarray) -> "FaceRows":
        return FaceRows(self.table[some], self.key_dim, self.inequality[some])

    def apply(self, weights: Block) -> RowVector:
        return np.asarray(np.vecdot(self.left @ weights, self.queries))


class Held(NamedTuple):
    """The held rows of each problem, padded with rows of zeros: their places, left factors, queries and right sides."""

    place: tuple[Int[np.ndarray, "N 1"], Int[np.ndarray, "N k"]]
    left: Float[np.ndarray, "N k d_k"]
    queries: Float[np.ndarray, "N k d_q"]
    right: Float[np.ndarray, "N k"]
    absent: Bool[np.ndarray, "N k"]

    @classmethod
    def of(cls, rows: FaceRows, held: Bool[np.ndarray, "N m"]) -> "Held":
        d = rows.key_dim
        if len(held) == 1:
            row = held[0].nonzero()[0]
            place, absent = (ONLY, row[None]), np.zeros((1, len(row)), bool)
            table = rows.table.take(row, axis=1)
        else:
            numbers = np.add.reduce(held, axis=-1)
            most = int(np.maximum.reduce(numbers))
            place = np.arange(len(held))[:, None], np.argsort(~held, axis=-1, kind="stable")[:, :most]
            absent, table = numbers[:, None] <= np.arange(most), rows.table[place]
            table[absent] = 0.0
        return cls(place, table[:, :, :d], table[:, :, d:-1], table[:, :, -1], absent)


class Face(Protocol):
    """The parts that depend on the norm."""

    mix: ClassVar[float]
    """c, the factor of the matrix of rank r."""

    ridge: ClassVar[float]
    """This part of the residual is added to the diagonal of the equations: rows may depend on each other."""

    def __hash__(self) -> int:
        """Faces are keys of a cache."""

    def mixed(self, weights: Block, pull: Block) -> Block:
        """X + cS, from W and A*(λ)."""

    def first_size(self, value: Values) -> Values:
        """An estimate of t, from N(W)."""

    def sizes(self, core: Singular, rest: Singular) -> tuple[Singular, Singular]:
        """The singular values of W and those of A*(λ), from s and those of X."""

    def free(self, inside: Bool[np.ndarray, " d"], sums: Bool[np.ndarray, "d c"]) -> Bool[np.ndarray, "d c"]:
        """The unknown entries of W: ``inside`` are the first r places, ``sums`` those of the sums."""

    def gather(self, diagonal: np.ndarray, inside: np.ndarray, pull: Singular | None = None) -> None:
        """Overwrite the first number of each diagonal by the sum of the first r, if these are equal in W.

        Of the difference to the singular values ``pull``, it becomes the one to their given sum.
        """

    def spread(self, diagonal: np.ndarray, inside: np.ndarray) -> None:
        """The transpose of ``gather``."""

    def size(self, before: Values, weights: Block) -> Values:
        """Return t, given U'WV."""

    def values(self, weights: Singular, pull: Singular) -> tuple[Values, Values]:
        """N(W) and N*(A*(λ)), from their singular values."""


class Iterate(NamedTuple):
    """W, λ and t of N problems, and the residual and r before the last step."""

    weights: Block
    multipliers: RowVector
    size: Values
    error: Values
    rank: Int[np.ndarray, " N"]

    def keep(self, some: np.ndarray) -> "Iterate":
        return Iterate(*(part[some] for part in self))


class Found(NamedTuple):
    """W and λ of N problems, where the iteration converged, and its steps."""

    weights: Block
    multipliers: RowVector
    converged: Bool[np.ndarray, " N"]
    steps: Int[np.ndarray, " N"]


class Places(NamedTuple):
    """Constants of matrices of one shape, d ≥ c: sums stand on and above the diagonal, differences below it."""

    sign: Float[np.ndarray, "d c"]  # −1 for sums and 1 for others: the signs of the singular values in the quotients
    fold: Float[np.ndarray, "c c 1"]  # 1 for sums, −1 for differences, and 0 on the diagonal
    share: Float[np.ndarray, "d c"]  # the factor of the product of two sums or of two differences
    inside: Float[np.ndarray, "ranks d"]  # the first r places, for each r
    free: Bool[np.ndarray, "ranks d c"]  # the unknown entries of W, for each r

    @classmethod
    @cache
    def of(cls, face: Face, d: int, c: int) -> "Places":
        """Those of a norm."""
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

    def folded(self, matrices: Float[np.ndarray, "N d c k"]) -> Float[np.ndarray, "N d c k"]:
        """Sums and differences of the entries, which are vectors and are overwritten."""
        square = matrices[:, : len(self.fold)]
        square += self.fold * square.swapaxes(1, 2)
        return matrices

    def unfolded(self, matrices: Float[np.ndarray, "N d c k"]) -> Float[np.ndarray, "N d c k"]:
        """The transpose of ``folded``."""
        square = matrices[:, : len(self.fold)]
        square += (self.fold * square).swapaxes(1, 2)
        return matrices

    def diagonal(self, entries: np.ndarray) -> np.ndarray:
        """The diagonals, as a view, of matrices whose entries are on one axis, the second one."""
        c = len(self.fold)
        return entries[:, : c * c : c + 1]


def solve_on_face(
    face: Face, rows: FaceRows, weights: Block, multipliers: RowVector, held: Bool[np.ndarray, "N m"], value: Values
) -> Found:
    """Least N(W) for N problems together, from points nearby.

    ``face``: the norm. ``weights``, ``multipliers``: the points, with values of about 1. ``held``: the rows that hold
    with equality, at first: violated rows are added, and rows with negative multipliers removed. ``value``: N(W).

    The caller has to check whether it is optimal.
    """
    size, no_rank = face.first_size(value), np.zeros(len(weights), int)
    now = Iterate(weights, np.where(held, multipliers, 0.0), size, np.full(len(weights), np.inf), no_rank)
    found = Found(weights.copy(), now.multipliers.copy(), np.zeros(len(weights), bool), no_rank.copy())
    running = np.arange(len(weights))
    own = Held.of(rows, held)
    places = Places.of(face, *weights.shape[1:])
    for step in range(1, MAX_STEPS + 1):
        short = rows.right - rows.apply(now.weights)
        off = np.maximum.reduce(np.abs(short * held), axis=-1)
        wrong = (now.multipliers < 0) & rows.inequality
        wrong |= short > np.maximum(off, 1e-12)[:, None]
        if np.count_nonzero(wrong):
            held = held ^ wrong
            now.multipliers[wrong] = 0.0
            own = Held.of(rows, held)
            off = np.maximum.reduce(np.abs(short * held), axis=-1)
        before, now = now, _step(face, places, own, now, off)
        # a NaN where the step failed compares as false
        going = now.error <= 10 * before.error
        if np.count_nonzero(going) < len(going):
            other_face = np.logical_or.reduce(wrong, axis=-1) | (now.rank != before.rank)
            going |= other_face & (now.error <= LARGEST)
        ended = going & (now.error <= LAST)
        if np.count_nonzero(ended):
            best = running[ended]
            found.weights[best], found.multipliers[best] = now.weights[ended], now.multipliers[ended]
            found.converged[best], found.steps[best] = True, step
            going &= ~ended
        number = np.count_nonzero(going)
        if number < len(going):
            if number == 0:
                break
            running, held = running[going], held[going]
            now, rows = now.keep(going), rows.keep(going)
            own = Held.of(rows, held)
    return found


def _step(face: Face, places: Places, held: Held, now: Iterate, off: Values) -> Iterate:
    """Newton's equations on the held rows; the error is NaN where they fail. The multipliers are overwritten."""
    N, d, c = now.weights.shape
    multipliers = now.multipliers[held.place]  # 0 on absent rows
    if held.right.shape[1] == 0:
        return now._replace(error=np.full(N, np.nan))
    # W and G = A*(λ) have the singular vectors of X + cS, whose singular values are m; r of them are above t
    U, sigma, Vt = svd(face.mixed(now.weights, (held.left * multipliers[:, :, None]).mT @ held.queries))
    size = now.size[:, None]
    ranks = np.add.reduce(sigma > size, axis=-1)
    inside = places.inside.take(ranks, axis=0)
    # min(m, t) and max(m − t, 0)/c are ω and γ, the singular values of W and G, in the order of the norm
    sizes = np.zeros((2, N, d))
    of_weights, of_pull = face.sizes(sizes[0], sizes[1])
    core, rest = sizes[:, :, :c]
    np.minimum(sigma, size, out=rest)
    np.divide(sigma - rest, face.mix, out=core)

    # the rows (u_i'l_a)(v_j'z_a) and P = U'A*(λ)V, as sums and differences of the entries (i, j) and (j, i)
    first, second = U.mT @ held.left.mT, Vt @ held.queries.mT
    products = places.folded(first[:, :, None] * second[:, None]).reshape(N, d * c, -1)
    of_rows, pull = places.diagonal(products), (products @ multipliers[:, :, None])[:, :, 0]
    of_pulled = places.diagonal(pull)
    # what W lacks of the right sides, b_a − Σ ω_i (row a)_ii, and on the diagonal P_ii − γ_i
    short = held.right - (of_weights[:, None, :c] @ of_rows)[:, 0]
    of_pulled -= of_pull[:, :c]
    face.gather(of_pulled, inside, of_pull)
    face.gather(of_rows, inside)
    # the residual, which ρ is proportional to
    error = np.maximum(np.maximum.reduce(np.abs(pull), axis=-1), off)

    # (ω_i ± ω_j)/(γ_i ± γ_j), and 1/ρ for the entries of W that are unknown on the face
    of_core, of_rest = sizes[:, :, :, None] + places.sign * sizes[:, :, None, :c]
    dividend, divisor = face.sizes(of_core, of_rest)
    freedom = np.maximum(error, LEAST_FREEDOM)[:, None, None]
    divisor += TINY
    quotient = np.divide(dividend, divisor)
    np.copyto(quotient, 1 / freedom, where=places.free[ranks])
    quotient *= places.share
    # with F = √quotient · rows, Δλ solves (F'F + ridge) Δλ = short − F' √quotient · P
    scale = np.sqrt(quotient).reshape(N, d * c, 1)
    used = np.flatnonzero(scale.any(axis=(0, 2))) if d * c > FEW_ENTRIES else slice(None)
    factors = scale[:, used] * products[:, used]
    moved = (scale * pull[:, :, None])[:, used]
    system = factors.mT @ factors
    diagonal = diagonal_of(system)
    diagonal += (face.ridge * error)[:, None] + held.absent
    try:
        change = solve_definite(system, short - (factors.mT @ moved)[:, :, 0])
    except np.linalg.LinAlgError:
        return now._replace(error=np.full(N, np.nan), rank=ranks)
    # W = ω + quotient · (P + ΔP) in the coordinates U and V
    moved += factors @ change[:, :, None]
    scale[:, used] *= moved
    diagonal = places.diagonal(scale[:, :, 0])
    face.spread(diagonal, inside)
    diagonal += of_weights[:, :c]
    turned = places.unfolded(scale.reshape(N, d, c, 1))[:, :, :, 0]
    now.multipliers[held.place] = multipliers + change
    error += 0.0 * np.add.reduce(change, axis=-1)  # NaN if they are not finite
    return Iterate(U @ turned @ Vt, now.multipliers, face.size(now.size, turned), error, ranks)
