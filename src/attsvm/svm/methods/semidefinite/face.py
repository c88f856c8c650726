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

Values = Float[np.ndarray, " N"]

MAX_STEPS = 12

MAX_UNKNOWNS = 600
"""Above this size a step of the interior point is cheaper."""

NEAR = 0.1
"""Residual below which the set of held rows is updated."""

MIX = 4.0
"""The matrix of rank r is added to X with this factor, to find their singular vectors and r."""

LAST = 3e-8
"""The step from a residual below this is the last one: convergence is quadratic, and the caller looks at the result."""

RIDGE = 0.1
"""This part of the residual is added to the equations, which may be singular: the optimum may not be unique."""


class FaceRows(NamedTuple):
    """The rows l_a z_a' of N problems, b_a, and which of them are equalities."""

    left: Float[np.ndarray, "N m d_k"]
    queries: Float[np.ndarray, "N m d_q"]
    right: RowVector
    equality: Bool[np.ndarray, "N m"]

    def at(self, place: np.ndarray | tuple[np.ndarray, np.ndarray]) -> "FaceRows":
        """The rows at these places."""
        return FaceRows(*(part[place] for part in self))

    def adjoint(self, multipliers: RowVector) -> Block:
        """A*(λ)."""
        return np.asarray((self.left * multipliers[:, :, None]).mT @ self.queries)

    def apply(self, weights: Block) -> RowVector:
        """A(W)."""
        return np.asarray(np.vecdot(self.left @ weights, self.queries))


class Turned(NamedTuple):
    """Rows and iterate in the coordinates U and V.

    Attributes
    ----------
    first, second : ndarray, shapes (N, k, d_k), (N, k, d_q)
        U'l and V'z.
    core : ndarray, shape (N, r)
        s.
    size : ndarray, shape (N,)
        t.
    others : ndarray, shape (N, min(d_k, d_q) - r)
        σ.
    """

    first: Float[np.ndarray, "N k d_k"]
    second: Float[np.ndarray, "N k d_q"]
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
    for _ in range(MAX_STEPS):
        short = rows.right - rows.apply(now.weights)
        off = np.abs(short).max(axis=-1, where=held, initial=0.0)[:, None]
        wrong = np.where(held, (now.multipliers < 0) & ~rows.equality, short > np.maximum(10 * off, 1e-12))
        wrong &= off <= NEAR
        changed = wrong.any(axis=-1)
        if changed.any():
            held = held ^ wrong
            now = now._replace(multipliers=np.where(wrong, 0.0, now.multipliers))
        U, sigma, Vt = np.linalg.svd(face.mixed(now.weights, rows.adjoint(now.multipliers)))
        before, ranks = ranks, (sigma > now.size[:, None]).sum(axis=-1)
        after = _stepped(face, rows, held, now, Basis(U, sigma, Vt.mT), ranks)
        going = np.isfinite(after.error) & ((after.error <= 10 * now.error) | changed | (ranks != before))
        ended = going & (after.error <= LAST)
        if ended.any():
            own = running[ended]
            weights[own], multipliers[own], converged[own] = after.weights[ended], after.multipliers[ended], True
            going &= ~ended
        now = after
        if not going.all():
            if not going.any():
                break
            running, held, ranks = running[going], held[going], ranks[going]
            now, rows = now.keep(going), rows.at(going)
    return weights, multipliers, converged


def _stepped(
    face: Face, rows: FaceRows, held: Bool[np.ndarray, "N m"], now: Iterate, basis: Basis, ranks: Int[np.ndarray, " N"]
) -> Iterate:
    """The iterate after a step, of problems of equal rank together; its error is NaN where that fails."""
    first = int(ranks[0])
    if (ranks == first).all():
        return _step(face, rows, held, now, basis, first)
    after = Iterate(*(part.copy() for part in now))
    for rank in np.unique(ranks).tolist():
        same = np.flatnonzero(ranks == rank)
        own = Basis(*(part[same] for part in basis))
        found = _step(face, rows.at(same), held[same], now.keep(same), own, rank)
        for part, new in zip(after, found, strict=True):
            part[same] = new
    return after


def _step(face: Face, rows: FaceRows, held: Bool[np.ndarray, "N m"], now: Iterate, basis: Basis, rank: int) -> Iterate:
    """Newton's equations on the held rows of each problem, padded with rows of zeros."""
    failed = now._replace(error=np.full(len(held), np.nan))
    number = held.sum(axis=-1)
    count = number.max()
    if rank == 0 or count == 0:
        return failed
    place = np.arange(len(held))[:, None], np.argsort(~held, axis=-1, kind="stable")[:, :count]
    there = np.arange(count) < number[:, None]
    before, own = now.multipliers[place], rows.at(place)  # multipliers are 0 on rows that are not held
    U, sigma, V = basis
    core = (sigma[:, :rank] - now.size[:, None]) / MIX
    turned = Turned((own.left * there[:, :, None]) @ U, own.queries @ V, core, now.size, sigma[:, rank:])
    links = face.links(turned)
    total = count + links.matrix.shape[2]
    if total > MAX_UNKNOWNS:
        return failed
    factor = _factor(face, turned)
    system = np.zeros((len(held), total, total))
    system[:, :count, :count] = factor @ factor.mT
    system[:, :count, count:] = links.matrix
    system[:, count:, :count] = links.matrix.mT
    wanted = np.concatenate([np.where(there, own.right, 0.0), np.broadcast_to(links.right, links.now.shape)], axis=1)
    known = np.concatenate([before, links.now], axis=1)
    right = wanted - (system @ known[:, :, None])[:, :, 0]
    error = np.abs(right).max(axis=-1)
    ridge = RIDGE * error[:, None]
    diagonal = system.reshape(len(held), -1)[:, :: total + 1]
    diagonal[:, :count] += np.where(there, ridge, 1.0)
    diagonal[:, count:] -= ridge
    try:
        known += np.linalg.solve(system, right[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        return failed
    own_multipliers = known[:, :count]
    multipliers = now.multipliers.copy()
    multipliers[place] = own_multipliers
    pull = (turned.first * own_multipliers[:, :, None]).mT @ turned.second
    moved, size = face.moved(turned, known[:, count:], pull)
    weights = U @ moved @ V.mT
    finite = np.isfinite(weights.sum(axis=(-2, -1)))
    return Iterate(weights, multipliers, size, np.where(finite, error, np.nan))


def _factor(face: Face, turned: Turned) -> Float[np.ndarray, "N k f"]:
    """Φ, so that ΦΦ'λ is A of the part of W that λ determines."""
    core, size, others = turned.core[:, None], turned.size[:, None, None], turned.others[:, :, None]
    N, count, _ = turned.first.shape
    rank, paired = core.shape[2], others.shape[1]
    first, second = turned.first[:, :, :rank], turned.second[:, :, :rank]
    below, beside = turned.first[:, :, rank:, None], turned.second[:, :, rank:, None]
    one = below[:, :, :paired] * second[:, :, None]
    two = beside[:, :, :paired] * first[:, :, None]
    parts = [
        (one + two) * np.sqrt(0.5 * face.weight(core / (size - others)))[:, None],
        (one - two) * np.sqrt(0.5 * face.weight(core / (size + others)))[:, None],
    ]
    alone = np.sqrt(face.weight(core / size))[:, None]
    if below.shape[2] > paired:
        parts.append(below[:, :, paired:] * (second[:, :, None] * alone))
    elif beside.shape[2] > paired:
        parts.append(beside[:, :, paired:] * (first[:, :, None] * alone))
    if rank > 1:
        i, j = pairs(rank, 1)
        mean = 0.5 * (turned.core[:, i] + turned.core[:, j]) / turned.size[:, None]
        turn = first[:, :, i] * second[:, :, j] - first[:, :, j] * second[:, :, i]
        parts.append(turn * np.sqrt(0.5 * face.weight(mean))[:, None])
    return np.concatenate([part.reshape(N, count, -1) for part in parts], axis=2)


@cache
def pairs(rank: int, offset: int = 0) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    """The places i and j >= i + ``offset`` of the upper triangle."""
    i, j = np.triu_indices(rank, offset)
    return i, j
