"""Sums of norms, and the largest of several norms.

The dual ball of a sum Σ a_i N_i consists of the sums of points u_i with N_i*(u_i) ≤ a_i; that of max c_i N_i, of sums
with Σ N_i*(u_i)/c_i ≤ 1. What remains of x after the nearest such sum is the proximal point. The parts u_i are found
one after the other, each by a proximal map of its norm (Dykstra's method). If one step leaves nothing to change, as
for the nuclear and the Frobenius norm in this order, that is all.

The dual norm of these is a program. Any parts that sum to A bound it from above, so the bound that is returned is one
for every accuracy of the parts.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, product
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.checks import check_number
from attsvm.errors import ProblemError
from attsvm.norms.ball import share_between
from attsvm.norms.base import Norm
from attsvm.norms.dual_bounds import Combination, bound_by_parts
from attsvm.norms.forms import and_factor, linear_form, vector_forms
from attsvm.norms.infimal import Infimal, WithParts
from attsvm.norms.lifted import OnColumns, OnRows, OnSingularValues
from attsvm.norms.parts import EUCLIDEAN, MOST_ROUNDS, Parts, nearest_parts
from attsvm.norms.registry import NORMS, parse_norm, terms_of
from attsvm.norms.scaled import times
from attsvm.norms.sum_and_largest import Pair, largest_of_pairs


@dataclass(frozen=True)
class _Combined(Combination):
    """Norms and a positive number for each of them."""

    norms: tuple[Norm, ...]
    weights: tuple[float, ...]

    def __init__(self, norms: Sequence[Norm], weights: Sequence[float] | None = None) -> None:
        numbers = [1.0] * len(norms) if weights is None else list(weights)
        if len(norms) < 2 or len(numbers) != len(norms):
            raise ProblemError(
                f"weights: expected two norms or more and one number for each, got {len(norms)} norms and "
                f"{len(numbers)} numbers"
            )
        numbers = [check_number("weights", c, "numbers > 0", lambda c: 0 < c < np.inf) for c in numbers]
        object.__setattr__(self, "norms", tuple(norms))
        object.__setattr__(self, "weights", tuple(numbers))

    @property
    def parts(self) -> tuple[Norm, ...]:
        return self.norms

    @property
    def shape(self) -> tuple[int, ...] | None:
        """That of the first norm that has one."""
        return next((norm.shape for norm in self.norms if norm.shape is not None), None)

    @property
    def left_invariant(self) -> bool:
        return all(norm.left_invariant for norm in self.norms)

    @property
    def right_invariant(self) -> bool:
        return all(norm.right_invariant for norm in self.norms)

    @property
    def dual(self) -> Infimal:
        """The least size of parts that sum to an array."""
        for norm in self.norms:
            _ = norm.dual  # raises where there is none
        return Infimal(self)

    @property
    def of_vectors(self) -> Norm:
        """The same combination of the norms for vectors."""
        return type(self)([norm.of_vectors for norm in self.norms], self.weights)

    @abstractmethod
    def _merged(self, values: np.ndarray) -> np.ndarray:
        """The norm from the values of the norms, along the first axis, each times its number."""

    @abstractmethod
    def merged_pairs(self, pairs: list[tuple[Pair, ...]]) -> list[Pair]:
        """The pairs (α, β) of this norm if it is the largest α ‖W‖₁ + β ‖W‖_∞, from those of the norms."""

    @property
    def num_copies(self) -> int:
        """One for each norm."""
        return len(self.norms)

    def value_of_copies(self, copies: np.ndarray) -> float:
        """The norm from the values of each norm at its own array."""
        each = [c * norm.values(x) for norm, c, x in zip(self.norms, self.weights, copies, strict=True)]
        return float(self._merged(np.stack(each)))

    def dual_bound(self, x: np.ndarray, parts: np.ndarray | None = None) -> float:
        """That of the parts, or that of each norm alone."""
        return bound_by_parts(self, x, np.zeros((len(self.norms), *x.shape)) if parts is None else parts)

    def with_parts(self, parts: np.ndarray) -> Norm:
        """The same norm with a dual norm that uses the parts."""
        return WithParts(self, parts)

    def value(self, x: Any, axes: int = 2) -> Any:
        values = self.values(x, min(axes, np.ndim(x)))
        return values if values.ndim else float(values)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        each = [c * norm.values(x, axes) for norm, c in zip(self.norms, self.weights, strict=True)]
        return self._merged(np.stack(each))

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """What the nearest parts leave of x."""
        return np.asarray(x - sum(self.split(x, step).arrays))


@dataclass(frozen=True, init=False)
class Sum(_Combined):
    """Σ a_i N_i(W). :func:`sum_of` makes one.

    Parameters
    ----------
    norms : sequence of Norm
        With ``dual`` and ``prox``.
    weights : sequence of float, optional
        The numbers a_i > 0; by default 1.

    See Also
    --------
    attsvm.norms.sum_of, attsvm.norms.Largest

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Lp, Nuclear, sum_of
    >>> norm = sum_of([Nuclear(), Lp(1)], [1.0, 0.5])
    >>> type(norm).__name__, norm.value(np.eye(2))
    ('Sum', 3.0)
    """

    spelling: ClassVar[str] = '"<norm>+<c>*<norm>"'

    @property
    def name(self) -> str:
        """Return a name such as "nuclear+0.5*frobenius"."""
        return self.named([norm.name for norm in self.norms])

    def named(self, parts: Sequence[str]) -> str:
        """The names and their numbers with a plus between them."""
        return "+".join(map(times, self.weights, parts))

    @classmethod
    def parse(cls, text: str) -> Norm | None:
        """Read "nuclear+0.5*frobenius", also in parentheses."""
        inside = text.removeprefix("(").removesuffix(")")
        return _read(sum_of, terms_of(inside if text == f"({inside})" else text, "+"))

    def _merged(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values.sum(axis=0))

    def merged_pairs(self, pairs: list[tuple[Pair, ...]]) -> list[Pair]:
        """The sums of one pair of each norm."""
        return [
            (math.fsum(alpha for alpha, _ in each), math.fsum(beta for _, beta in each)) for each in product(*pairs)
        ]

    def split(self, x: np.ndarray, step: float, most_rounds: int = MOST_ROUNDS) -> Parts:
        """Compute the parts by Dykstra's method."""
        return nearest_parts(self.norms, [step * a for a in self.weights], x, most_rounds)

    def of_copies(self, copies: np.ndarray, step: float) -> np.ndarray:
        """The proximal maps of the norms."""
        each = zip(self.norms, self.weights, copies, strict=True)
        return np.stack([norm.prox(copy, step * a) for norm, a, copy in each])

    def dual_size(self, sizes: list[float]) -> float:
        """Return the largest N_i*(u_i)/a_i."""
        return max(size / a for size, a in zip(sizes, self.weights, strict=True))

    def steepest_of_dual(self, g: np.ndarray) -> np.ndarray:
        """The point of the dual ball with the largest product with g: the sum of those of the norms."""
        return np.asarray(sum(a * norm.dual.steepest(g) for norm, a in zip(self.norms, self.weights, strict=True)))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """The sum of those of the norms."""
        return math.fsum(a * norm.frobenius_factor(shape) for norm, a in zip(self.norms, self.weights, strict=True))


@dataclass(frozen=True, init=False)
class SumWithLength(Sum):
    """a N(W) + b ‖W‖₂: its proximal map is that of N, and then that of ‖W‖₂. :func:`sum_of` makes one.

    Parameters
    ----------
    norms : sequence of two Norms
        The second one is ``Lp(2)``.
    weights : sequence of float, optional
        The numbers a and b > 0; by default 1.

    See Also
    --------
    attsvm.norms.sum_of, attsvm.norms.Sum

    References
    ----------
    Yu (2013), *On Decomposing the Proximal Map*.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Lp, sum_of
    >>> norm = sum_of([Lp(1), Lp(2)], [1.0, 0.5])
    >>> type(norm).__name__, norm.value(np.eye(4))
    ('SumWithLength', 5.0)
    """

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """Compute the proximal map in closed form."""
        return self.proxes(x, step, x.ndim)

    def proxes(self, x: np.ndarray, step: float, axes: int = 2) -> np.ndarray:
        (norm, length), (a, b) = self.norms, self.weights
        inner = norm.proxes(x, step * a, axes)
        lengths = length.values(inner, axes)
        shrunk = np.maximum(1 - step * b / np.where(lengths > 0, lengths, 1.0), 0.0)
        return np.asarray(inner * shrunk.reshape(*lengths.shape, *[1] * axes))


@dataclass(frozen=True, init=False)
class Largest(_Combined):
    """max(c_1 N_1(W), c_2 N_2(W)). :func:`max_of` makes one.

    Parameters
    ----------
    norms : sequence of two Norms
        With ``dual`` and ``prox``.
    weights : sequence of float, optional
        The numbers c_i > 0; by default 1.

    See Also
    --------
    attsvm.norms.max_of, attsvm.norms.Sum

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Lp, Nuclear, max_of
    >>> norm = max_of([Nuclear(), Lp(1)], [1.0, 0.5])
    >>> type(norm).__name__, norm.value(np.eye(3))
    ('Largest', 3.0)
    """

    spelling: ClassVar[str] = '"max(<norm>;<c>*<norm>)"'

    def __init__(self, norms: Sequence[Norm], weights: Sequence[float] | None = None) -> None:
        super().__init__(norms, weights)
        if len(self.norms) != 2:
            raise ProblemError(f"norms: expected two norms, got {len(self.norms)}")

    @property
    def name(self) -> str:
        """Return a name such as "max(frobenius;2*spectral)"."""
        return self.named([norm.name for norm in self.norms])

    def named(self, parts: Sequence[str]) -> str:
        """The names and their numbers with a semicolon between them; names of norms may contain commas."""
        return f"max({';'.join(map(times, self.weights, parts))})"

    @classmethod
    def parse(cls, text: str) -> Norm | None:
        """Read "max(frobenius;2*spectral)", or the same with more norms."""
        inside = text.removeprefix("max(").removesuffix(")")
        return _read(_largest_of, terms_of(inside, ";")) if text == f"max({inside})" else None

    def _merged(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values.max(axis=0))

    def merged_pairs(self, pairs: list[tuple[Pair, ...]]) -> list[Pair]:
        """Return the pairs of all norms."""
        return list(chain(*pairs))

    def split(self, x: np.ndarray, step: float, most_rounds: int = MOST_ROUNDS) -> Parts:
        """As for the sum with the weights θ c_1 and (1 − θ) c_2, whose proximal point has the same size in both."""

        def excess(share: float) -> float:
            left = self._left(x, self._levels(share, step), most_rounds)
            return self._excess(left, left)

        return nearest_parts(self.norms, self._levels(share_between(excess), step), x, most_rounds)

    def _left(self, x: np.ndarray, levels: tuple[float, float], most_rounds: int) -> np.ndarray:
        """The proximal point of the sum with these levels; its length does not matter unless it is 0."""
        return np.asarray(x - sum(nearest_parts(self.norms, levels, x, most_rounds).arrays))

    def of_copies(self, copies: np.ndarray, step: float) -> np.ndarray:
        """The proximal maps of the norms for the share at which both have the same size."""

        def proxes(share: float) -> list[np.ndarray]:
            each = zip(self.norms, self._levels(share, step), copies, strict=True)
            return [norm.prox(copy, level) if level > 0 else copy for norm, level, copy in each]

        return np.stack(proxes(share_between(lambda share: self._excess(*proxes(share)))))

    def _levels(self, share: float, step: float) -> tuple[float, float]:
        return step * share * self.weights[0], step * (1 - share) * self.weights[1]

    def _excess(self, first: np.ndarray, second: np.ndarray) -> float:
        """By how much the first norm of one array exceeds the second of another."""
        sizes = [
            c * float(norm.values(x, x.ndim))
            for norm, c, x in zip(self.norms, self.weights, (first, second), strict=True)
        ]
        return sizes[0] - sizes[1]

    def dual_size(self, sizes: list[float]) -> float:
        """Return the sum of N_i*(u_i)/c_i."""
        return math.fsum(size / c for size, c in zip(sizes, self.weights, strict=True))

    def steepest_of_dual(self, g: np.ndarray) -> np.ndarray:
        """The point of the dual ball with the largest product with g: that of the norm that is the larger one."""
        each = [c * norm.dual.steepest(g) for norm, c in zip(self.norms, self.weights, strict=True)]
        return max(each, key=lambda point: float(np.vdot(g, point)))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """The largest of those of the norms."""
        return max(c * norm.frobenius_factor(shape) for norm, c in zip(self.norms, self.weights, strict=True))


@dataclass(frozen=True, init=False)
class LargestWithLength(Largest):
    """max(c_1 N_1(W), c_2 N_2(W)) with ‖W‖₂ for N_1 or N_2. :func:`max_of` makes one.

    The proximal map of ‖W‖₂ comes last and changes the length alone, so that of the other norm determines the share at
    which both have the same size.

    See Also
    --------
    attsvm.norms.max_of, attsvm.norms.Largest

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Lp, max_of
    >>> norm = max_of([Lp(1), Lp(2)], [0.5, 1.0])
    >>> type(norm).__name__, norm.value(np.eye(4))
    ('LargestWithLength', 2.0)
    """

    def _left(self, x: np.ndarray, levels: tuple[float, float], most_rounds: int) -> np.ndarray:
        norm, level = next((norm, level) for norm, level in zip(self.norms, levels, strict=True) if norm != EUCLIDEAN)
        return norm.prox(x, level) if level > 0 else x


def sum_of(norms: Sequence[Norm], weights: Sequence[float] | None = None) -> Norm:
    """Σ a_i N_i(W). If all norms are norms of the singular values, or of the rows or the columns, so is their sum.

    Parameters
    ----------
    norms : sequence of Norm
        With ``dual`` and ``prox``.
    weights : sequence of float, optional
        The numbers a_i > 0; by default 1.

    See Also
    --------
    attsvm.norms.max_of, attsvm.norms.Sum

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Lp, Nuclear, sum_of
    >>> norm = sum_of([Nuclear(), Lp(2)], [1.0, 0.5])
    >>> norm.name, norm.value(np.eye(4))
    ('nuclear+0.5*frobenius', 5.0)
    """
    whole = _unscaled(Sum(norms, weights))
    order = sorted(range(len(norms)), key=lambda i: whole.norms[i] == EUCLIDEAN)
    kind = SumWithLength if len(norms) == 2 and EUCLIDEAN in whole.norms else Sum
    return _put_on_sizes(kind([whole.norms[i] for i in order], [whole.weights[i] for i in order]))


def max_of(norms: Sequence[Norm], weights: Sequence[float] | None = None) -> Norm:
    """max(c_1 N_1(W), c_2 N_2(W)). If both are norms of the singular values, or of the rows or columns, so is this.

    Parameters
    ----------
    norms : sequence of two Norms
        With ``dual`` and ``prox``.
    weights : sequence of float, optional
        The numbers c_i > 0; by default 1.

    See Also
    --------
    attsvm.norms.sum_of, attsvm.norms.Largest

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Lp, Spectral, max_of
    >>> norm = max_of([Lp(2), Spectral()], [1.0, 2.0])
    >>> norm.value(np.eye(3)), norm.value(np.eye(9))
    (2.0, 3.0)
    """
    whole = _unscaled(Largest(norms, weights))
    kind = LargestWithLength if whole.norms.count(EUCLIDEAN) == 1 else Largest
    return _put_on_sizes(kind(whole.norms, whole.weights))


def _largest_of(norms: Sequence[Norm]) -> Norm:
    """The largest of two norms or more."""
    return reduce(lambda first, second: max_of([first, second]), norms)


def _read(combine: Callable[[Sequence[Norm]], Norm], terms: Sequence[str]) -> Norm | None:
    """The combination of the norms that the terms name; None if there is one term, or one that names no norm."""
    if len(terms) < 2:
        return None
    try:
        norms = [parse_norm(term) for term in terms]
    except ProblemError:
        return None
    return combine(norms)


def _put_on_sizes(whole: _Combined) -> Norm:
    """The same combination of norms of vectors on singular values, rows or columns, if each norm is of that kind.

    Combinations of ℓ1 and ℓ∞ alone have a closed form, too.
    """
    pairs = [linear_form(norm) for norm in whole.norms]
    if all(pairs):
        weighted = [tuple((c * a, c * b) for a, b in each) for c, each in zip(whole.weights, pairs, strict=True)]
        return largest_of_pairs(whole.merged_pairs(weighted))
    for onto in (OnSingularValues, OnRows, OnColumns):
        forms = [vector_forms(norm).get(onto) for norm in whole.norms]
        if None not in forms and forms != list(whole.norms):  # the form of ‖W‖₂ is itself
            return onto(_put_on_sizes(type(whole)([form for form in forms if form is not None], whole.weights)))
    return whole


def _unscaled(whole: _Combined) -> _Combined:
    """The same with the factors of norms that are multiplied by one among the weights."""
    norms, weights = zip(*map(and_factor, whole.norms, whole.weights), strict=True)
    return type(whole)(norms, weights)


NORMS.register("sum", Sum)
NORMS.register("max", Largest)
