r"""The last digits of the least nuclear or spectral norm: Newton's method on the face that the interior point nears.

At the optimum one of W and G = A*(λ), here X, has r singular values t with vectors U₁ and V₁, its largest ones, and
the other one has rank r and is U₁SV₁' with S ⪰ 0:

    nuclear:  X = G, t = 1, W = U₁SV₁';      spectral:  X = W, t = N(W), G = U₁SV₁', tr S = 1.

Together with A(W) = b on the rows that hold with equality, these are enough equations for W and λ. In coordinates with
S = diag(s) and U₂'XV₂ = diag(σ), a small change of U₁ by U₂P and of V₁ by V₂Q changes

    U₂'XV₁ = tP − σQ,    V₂'X'U₁ = tQ − σ'P    and    U₂U₂'(U₁SV₁') = U₂PS,    V₂V₂'(U₁SV₁')' = V₂QS.

So λ determines part of W, by a symmetric matrix that has the rows' products with all pairs as factors. The equations of
Newton's method have as unknowns the multipliers of the rows that hold with equality, and the other parts of W. If r and
these rows are right, and the optimum is strictly complementary, it converges quadratically.

References
----------
Overton (1988), *On minimizing the maximum eigenvalue of a symmetric matrix*, for the dual of the nuclear norm.
"""

from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.svm.constraints.pair_rows import Block
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.methods.semidefinite.dense import solve, svd

Values = Float[np.ndarray, " N"]

MAX_STEPS = 12

MAX_UNKNOWNS = 600
"""Above this size a step of the interior point is cheaper."""

NEAR = 0.1
"""Residual below which the set of held rows is updated."""

MIX = 4.0
"""The matrix of rank r is added to X with this factor, to find their singular vectors and r."""

LAST = 1e-7
"""The step from a residual below this is the last one: convergence is quadratic, and the caller looks at the result."""

RIDGE = 0.1
"""This part of the residual is added to the equations, which may be singular: the optimum may not be unique."""


class FaceRows(NamedTuple):
    """The rows l_a z_a' of N problems, b_a, and which of them are equalities."""

    left: Float[np.ndarray, "N m d_k"]
    queries: Float[np.ndarray, "N m d_q"]
    right: RowVector
    equality: Bool[np.ndarray, "N m"]

    def keep(self, some: np.ndarray) -> "FaceRows":
        """The rows of some of the problems."""
        return FaceRows(*(part[some] for part in self))

    def apply(self, weights: Block) -> RowVector:
        """A(W)."""
        return np.asarray(np.vecdot(self.left @ weights, self.queries))


class Held(NamedTuple):
    """The held rows of each problem, padded with rows of zeros: their places, left factors, queries and right sides."""

    place: tuple[Int[np.ndarray, "N 1"], Int[np.ndarray, "N k"]]
    left: Float[np.ndarray, "N k d_k"]
    queries: Float[np.ndarray, "N k d_q"]
    right: Float[np.ndarray, "N k"]
    absent: Float[np.ndarray, "N k"]

    @classmethod
    def of(cls, rows: FaceRows, held: Bool[np.ndarray, "N m"]) -> "Held":
        """The rows where ``held``."""
        number = held.sum(axis=-1)
        place = np.arange(len(held))[:, None], np.argsort(~held, axis=-1, kind="stable")[:, : number.max()]
        absent = np.arange(number.max()) >= number[:, None]
        left = rows.left[place]
        left[absent] = 0.0
        right = np.where(absent, 0.0, rows.right[place])
        return cls(place, left, rows.queries[place], right, absent.astype(np.float64))

    def adjoint(self, multipliers: Float[np.ndarray, "N k"]) -> Block:
        """A*(λ)."""
        return np.asarray((self.left * multipliers[:, :, None]).mT @ self.queries)

    def keep(self, some: np.ndarray) -> "Held":
        """Those of some of the problems; the places are still those of all."""
        return Held(self.place, *(part[some] for part in self[1:]))


class Turned(NamedTuple):
    """Rows and iterate in the coordinates U and V.

    Attributes
    ----------
    first, second : ndarray, shapes (N, k, d_k), (N, k, d_q)
        U'l and V'z.
    products : ndarray, shape (N, k, p)
        Sums of the products of their first r entries i and j, and j and i, for all i <= j.
    core : ndarray, shape (N, r)
        s.
    size : ndarray, shape (N,)
        t.
    others : ndarray, shape (N, min(d_k, d_q) - r)
        σ.
    """

    first: Float[np.ndarray, "N k d_k"]
    second: Float[np.ndarray, "N k d_q"]
    products: Float[np.ndarray, "N k p"]
    core: Float[np.ndarray, "N r"]
    size: Values
    others: Float[np.ndarray, "N c"]


class Links(NamedTuple):
    """The unknowns besides the multipliers: A(their part of W) = ``matrix`` w, and ``matrix``' λ = ``right``."""

    matrix: Float[np.ndarray, "N k u"]
    right: Float[np.ndarray, " u"]
    now: Float[np.ndarray, "N u"]


class Face(Protocol):
    """The parts that depend on the norm."""

    def mixed(self, weights: Block, pull: Block) -> Block:
        """X and MIX times the other one of W and A*(λ)."""

    def first_size(self, value: Values) -> Values:
        """An estimate of t, from N(W)."""

    def weight(self, ratio: np.ndarray) -> np.ndarray:
        """The weight of the part of W that a pair determines, from s/(t ∓ σ)."""

    def links(self, turned: Turned) -> Links:
        """See :class:`Links`."""

    def moved(self, turned: Turned, now: Float[np.ndarray, "N u"], pull: Block) -> tuple[Block, Values]:
        """U'WV and t from the unknowns and U'A*(λ)V."""

    def values(self, weights: Float[np.ndarray, "N c"], pull: Float[np.ndarray, "N c"]) -> tuple[Values, Values]:
        """N(W) and N*(A*(λ)), from their singular values."""


class Iterate(NamedTuple):
    """W, λ and t of N problems, and the residual before the last step."""

    weights: Block
    multipliers: RowVector
    size: Values
    error: Values

    def keep(self, some: np.ndarray) -> "Iterate":
        """Some of the problems."""
        return Iterate(*(part[some] for part in self))


class Basis(NamedTuple):
    """The singular vectors and values of the mixed matrices."""

    U: Float[np.ndarray, "N d_k d_k"]
    sigma: Float[np.ndarray, "N c"]
    V: Float[np.ndarray, "N d_q d_q"]


def solve_on_face(
    face: Face, rows: FaceRows, weights: Block, multipliers: RowVector, held: Bool[np.ndarray, "N m"], value: Values
) -> tuple[Block, RowVector, Bool[np.ndarray, " N"]]:
    """Least N(W) for N problems together, from points nearby.

    Parameters
    ----------
    face : Face
        The norm.
    rows : FaceRows
    weights, multipliers
        The points, with values of about 1.
    held : bool ndarray, shape (N, m)
        The rows that hold with equality, at first: violated rows are added, and rows with negative multipliers removed.
    value : ndarray, shape (N,)
        N(W).

    Returns
    -------
    weights, multipliers and where the iteration converged. The caller has to check whether they are optimal.
    """
    now = Iterate(weights, np.where(held, multipliers, 0.0), face.first_size(value), np.full(len(weights), np.inf))
    weights, multipliers, converged = weights.copy(), now.multipliers.copy(), np.zeros(len(weights), bool)
    running, ranks = np.arange(len(weights)), np.full(len(weights), -1)
    own = Held.of(rows, held)
    for _ in range(MAX_STEPS):
        short = rows.right - rows.apply(now.weights)
        off = np.maximum.reduce(np.abs(short), axis=-1, where=held, initial=0.0)[:, None]
        wrong = (short > np.maximum(10 * off, 1e-12)) | ((now.multipliers < 0) & ~rows.equality)
        wrong &= off <= NEAR
        changed = np.logical_or.reduce(wrong, axis=-1)
        if changed.any():
            held = held ^ wrong
            now.multipliers[wrong] = 0.0
            own = Held.of(rows, held)
        inside = now.multipliers[own.place]  # 0 on rows that are not held
        U, sigma, Vt = svd(face.mixed(now.weights, own.adjoint(inside)))
        before, ranks = ranks, (sigma > now.size[:, None]).sum(axis=-1)
        after = _stepped(face, own, now._replace(multipliers=inside), Basis(U, sigma, Vt.mT), ranks)
        now.multipliers[own.place] = after.multipliers
        # the residual of NaN where the step failed compares as false
        going = (after.error <= 10 * now.error) | ((changed | (ranks != before)) & (after.error < np.inf))
        now = after._replace(multipliers=now.multipliers)
        ended = going & (now.error <= LAST)
        if ended.any():
            best = running[ended]
            weights[best], multipliers[best], converged[best] = now.weights[ended], now.multipliers[ended], True
            going &= ~ended
        if not going.all():
            if not going.any():
                break
            running, held, ranks = running[going], held[going], ranks[going]
            now, rows = now.keep(going), rows.keep(going)
            own = Held.of(rows, held)
    return weights, multipliers, converged


def _stepped(face: Face, held: Held, now: Iterate, basis: Basis, ranks: Int[np.ndarray, " N"]) -> Iterate:
    """The iterate after a step, of problems of equal rank together; its error is NaN where that fails."""
    first = int(ranks[0])
    if (ranks == first).all():
        return _step(face, held, now, basis, first)
    after = Iterate(*(part.copy() for part in now))
    for rank in np.unique(ranks).tolist():
        same = np.flatnonzero(ranks == rank)
        own = Basis(*(part[same] for part in basis))
        found = _step(face, held.keep(same), now.keep(same), own, rank)
        for part, new in zip(after, found, strict=True):
            part[same] = new
    return after


def _step(face: Face, held: Held, now: Iterate, basis: Basis, rank: int) -> Iterate:
    """Newton's equations on the held rows."""
    N, count = held.right.shape
    U, sigma, V = basis
    failed = now._replace(error=np.full(N, np.nan))
    if rank == 0 or count == 0:
        return failed
    first, second = held.left @ U, held.queries @ V
    i, j = pairs(rank)
    outer = first[:, :, :rank, None] * second[:, :, None, :rank]
    one, two = outer[:, :, i, j], outer[:, :, j, i]
    core = (sigma[:, :rank] - now.size[:, None]) / MIX
    turned = Turned(first, second, one + two, core, now.size, sigma[:, rank:])
    links = face.links(turned)
    total = count + links.matrix.shape[2]
    if total > MAX_UNKNOWNS:
        return failed
    across, turn = _factors(face, turned, one - two)
    system = np.zeros((N, total, total))
    system[:, :count, :count] = across @ across.mT
    system[:, :count, :count] += turn @ turn.mT
    system[:, :count, count:] = links.matrix
    system[:, count:, :count] = links.matrix.mT
    known, wanted = np.empty((N, total)), np.empty((N, total))
    known[:, :count], known[:, count:] = now.multipliers, links.now
    wanted[:, :count], wanted[:, count:] = held.right, links.right
    wanted -= (system @ known[:, :, None])[:, :, 0]
    error = np.abs(wanted).max(axis=-1)
    ridge = RIDGE * error[:, None]
    diagonal = system.reshape(N, -1)[:, :: total + 1]
    diagonal[:, :count] += ridge + held.absent
    diagonal[:, count:] -= ridge
    try:
        known += solve(system, wanted)
    except np.linalg.LinAlgError:
        return failed
    multipliers = known[:, :count]
    pull = (first * multipliers[:, :, None]).mT @ second
    moved, size = face.moved(turned, known[:, count:], pull)
    weights = U @ moved @ V.mT
    error += 0.0 * weights.sum(axis=(-2, -1))  # NaN if they are not finite
    return Iterate(weights, multipliers, size, error)


def _factors(face: Face, turned: Turned, differences: Float[np.ndarray, "N k p"]) -> tuple[np.ndarray, np.ndarray]:
    """Φ and Ψ: (ΦΦ' + ΨΨ')λ is A of the part of W that λ determines, ΨΨ' for a rotation of U₁ against V₁."""
    core, size, others = turned.core, turned.size[:, None], turned.others
    N, rank = core.shape
    paired = others.shape[1]
    one = turned.first[:, :, rank:, None] * turned.second[:, :, None, :rank]
    two = turned.second[:, :, rank:, None] * turned.first[:, :, None, :rank]
    longer = one if one.shape[2] > paired else two
    alone = longer.shape[2] - paired
    across = np.concatenate([one[:, :, :paired] + two[:, :, :paired], one[:, :, :paired] - two[:, :, :paired]], axis=2)
    if alone:
        across = np.concatenate([across, longer[:, :, paired:]], axis=2)
    apart = np.empty((N, 2 * paired + alone, 1))
    apart[:, :paired, 0], apart[:, paired : 2 * paired, 0] = size - others, size + others
    apart[:, 2 * paired :, 0] = size
    weight = face.weight(core[:, None] / apart)
    weight[:, : 2 * paired] *= 0.5
    across *= np.sqrt(weight)[:, None]
    i, j = pairs(rank)
    turn = differences * np.sqrt(0.5 * face.weight((core[:, i] + core[:, j]) / (2 * size)))[:, None]
    return across.reshape(N, one.shape[1], -1), turn


@cache
def pairs(rank: int) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    """The places i <= j of the upper triangle."""
    i, j = np.triu_indices(rank)
    return i, j
