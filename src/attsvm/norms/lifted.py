"""Norms of matrices that are norms of a vector of sizes: of the singular values, or of the lengths of rows or columns.

The vector norm N is symmetric: it does not depend on the signs and the order of the entries. Then all pieces of the
matrix norm follow from those of N. Schatten norms and group norms are made in this way, and any :class:`Norm` of
vectors makes three norms of matrices.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms.base import Norm, SeveralAtOnce, refuse_joint_parts
from attsvm.norms.lp import Lp
from attsvm.norms.registry import NORMS
from attsvm.norms.scaled import scaled
from attsvm.norms.singular_values import Nuclear, Spectral, values_at_unit_scale


@dataclass(frozen=True)
class Lifted(SeveralAtOnce):
    """A symmetric norm of vectors, applied to sizes that a subclass takes from a matrix.

    A subclass provides :meth:`sizes` and :meth:`rebuilt`, and ``what``.
    """

    of: Norm  # symmetric: it does not depend on the signs and the order of the entries of a vector
    what: ClassVar[str]
    """What the sizes are, for names."""

    short_names: ClassVar[dict[float | None, str]]
    """The name with the ℓp norm of the sizes, for each p; that of None for any other p, written in the place of {}."""

    @property
    def name(self) -> str:
        """Return a name such as "schatten1.5" or "owl of 3 weights of the rows"."""
        return _short_name(self.of, self.short_names) or f"{self.of.name} of the {self.what}"

    def __post_init__(self) -> None:
        refuse_joint_parts(self)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Return a shape with as many sizes as the norm of vectors can measure."""
        inner = self.of.sample_shape
        return inner * 2 if len(inner) == 1 else inner

    @property
    def dual(self) -> Self:
        return type(self)(self.of.dual)

    @abstractmethod
    def sizes(self, x: np.ndarray) -> np.ndarray:
        """Return the sizes of matrices (*batch, d_k, d_q), at least 0, along one axis."""

    @abstractmethod
    def rebuilt(self, x: Any, change: Callable[[Any], Any]) -> Any:
        """Return the matrices with their sizes changed, in NumPy or JAX; a size of 0 stays 0."""

    @property
    def of_vectors(self) -> Norm:
        """Return the norm of a column, which has one size: its length."""
        return scaled(Lp(2.0), float(self.of.values(np.ones(1), 1)))

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        if axes == 1:
            return self.of_vectors.values(x, axes)
        return values_at_unit_scale(x, lambda matrices: self.of.values(self.sizes(matrices), 1))

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        return self.proxes(x, step, x.ndim)

    def proxes(self, x: np.ndarray, step: float, axes: int = 2) -> np.ndarray:
        if axes == 1:
            return self.of_vectors.proxes(x, step, axes)
        return np.asarray(self.rebuilt(x, lambda sizes: self.of.proxes(sizes, step, 1)))

    def steepest(self, g: Any) -> Any:
        if g.ndim == 1:
            return self.of_vectors.steepest(g)
        return self.rebuilt(g, self.of.steepest)

    def apart(self, x: Any, trials: Any) -> tuple[Any, Callable[[Any], Any]]:
        """Take matrices (r, c, B) apart, in JAX: their sizes (k, B), and the function that puts in other sizes."""
        raise ProblemError(f"norm: {self.name}: JAX cannot take a matrix apart into its {self.what}")

    def size_in_trials(self, tree: Any, trials: Any) -> Any:
        x = trials.only(self, tree)
        if x.ndim <= 2:
            return trials.size_of(self.of_vectors, tree)
        return trials.size_of(self.of, {"": self.apart(x, trials)[0]})

    def steepest_in_trials(self, gradient: Any, trials: Any) -> Any:
        xp = trials.jnp
        sizes, put = self.apart(gradient, trials)
        largest = trials.over_entries(xp.maximum, sizes)
        sizes = trials.settle(sizes / xp.where(largest > 0, largest, 1.0))
        return put(xp.where(sizes > 0, trials.steepest(self.of, sizes), 0.0))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return that of the vector norm: the sizes of a matrix have its Frobenius norm as their length."""
        return self.of.frobenius_factor((len(self.sizes(np.zeros(shape))), 1))


@dataclass(frozen=True)
class OnSingularValues(Lifted):
    """A symmetric norm of the singular values; ``Lp(p)`` gives the Schatten-p norm, :func:`schatten`.

    See Also
    --------
    attsvm.norms.schatten, attsvm.norms.OnRows

    Examples
    --------
    >>> from attsvm.norms import Lp, OnSingularValues
    >>> norm = OnSingularValues(Lp(1.5))
    >>> norm.name, norm.dual.name
    ('schatten1.5', 'schatten3')
    >>> round(norm.value([[3.0, 0.0], [0.0, 4.0]]), 3)
    5.584
    """

    spelling: ClassVar[str] = '"schatten<p>"'
    what: ClassVar[str] = "singular values"
    short_names: ClassVar[dict[float | None, str]] = {
        1: "nuclear",
        2: "frobenius",
        math.inf: "spectral",
        None: "schatten{}",
    }
    left_invariant = True
    right_invariant = True

    def sizes(self, x: np.ndarray) -> np.ndarray:
        return np.linalg.svd(x, compute_uv=False)

    def rebuilt(self, x: Any, change: Callable[[Any], Any]) -> Any:
        """Change the singular values; those that are rounding errors count as 0."""
        xp = x.__array_namespace__()
        U, sigma, Vt = xp.linalg.svd(x, full_matrices=False)
        kept = sigma > max(x.shape[-2:]) * float(xp.finfo(x.dtype).eps) * sigma[..., :1]
        changed = xp.where(kept, change(xp.where(kept, sigma, 0.0)), 0.0)
        return (U * changed[..., None, :]) @ Vt

    def apart(self, x: Any, trials: Any) -> tuple[Any, Callable[[Any], Any]]:
        """Take matrices apart into singular values, in JAX."""
        xp = trials.jnp
        left, values, right = trials.decomposed(self, x)
        eps = float(np.finfo(x.dtype).eps)
        counts = values > max(x.shape[:-1]) * eps * trials.over_entries(xp.maximum, values)
        return xp.where(counts, values, 0.0), lambda sizes: trials.contract("rk,ck->rc", left * sizes, right)

    @classmethod
    def parse(cls, text: str) -> Norm | None:
        """Read a name such as "schatten1.5"."""
        inner = _vector_norm(text.removeprefix("schatten")) if text.startswith("schatten") else None
        return None if inner is None else schatten(inner.p)


def schatten(p: float) -> Norm:
    """Return the Schatten-p norm (Σ σ^p)^(1/p): nuclear, Frobenius and spectral for p = 1, 2 and ∞.

    Parameters
    ----------
    p : float
        At least 1.

    See Also
    --------
    attsvm.norms.Nuclear, attsvm.norms.Spectral, attsvm.norms.OnSingularValues

    Examples
    --------
    >>> from attsvm.norms import schatten
    >>> schatten(1.5).dual
    OnSingularValues(of=Lp(p=3.0))
    >>> schatten(1)
    Nuclear()
    """
    of = Lp(p)
    return {1.0: Nuclear(), 2.0: of, math.inf: Spectral()}.get(of.p) or OnSingularValues(of)


@dataclass(frozen=True)
class OnRows(Lifted):
    """A symmetric norm of the lengths ‖row‖₂; ``Lp(1)`` gives the group norm ℓ2,1, ``Lp(inf)`` its dual, ℓ∞,2.

    See Also
    --------
    attsvm.norms.OnColumns, attsvm.norms.OnSingularValues

    Examples
    --------
    >>> from attsvm.norms import Lp, OnRows
    >>> norm = OnRows(Lp(1))
    >>> norm.name, norm.dual.name, norm.value([[3.0, 4.0], [0.0, 2.0]])
    ('l2,1', 'linf,2', 7.0)
    """

    spelling: ClassVar[str] = '"l2,<p>" or "linf,2"'
    what: ClassVar[str] = "rows"
    short_names: ClassVar[dict[float | None, str]] = {2: "frobenius", math.inf: "linf,2", None: "l2,{}"}
    right_invariant = True

    @property
    def of_vectors(self) -> Norm:
        """Return the norm itself: the rows of a column are its entries."""
        return self.of

    def sizes(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.sqrt(np.vecdot(x, x)))

    def rebuilt(self, x: Any, change: Callable[[Any], Any]) -> Any:
        """Change the lengths of the rows; rows of zeros stay."""
        xp = x.__array_namespace__()
        largest = xp.max(xp.abs(x), axis=-1, keepdims=True)
        unit = x / xp.where(largest > 0, largest, 1.0)  # whose squares neither over- nor underflow
        lengths = xp.sqrt(xp.sum(unit * unit, axis=-1)) * largest[..., 0]
        ratio = xp.where(lengths > 0, change(lengths) / xp.where(lengths > 0, lengths, 1.0), 0.0)
        return x * ratio[..., None]

    def apart(self, x: Any, trials: Any) -> tuple[Any, Callable[[Any], Any]]:
        """Take matrices apart into the lengths of their rows, in JAX."""
        lengths = trials.lengths(x, axis=1)[:, 0]
        return lengths, lambda sizes: (sizes / trials.jnp.where(lengths > 0, lengths, 1.0))[:, None] * x

    @classmethod
    def parse(cls, text: str) -> Norm | None:
        """Read "l2,1", "linf,2" or "l2,inf"; the exponent 2 is that of the rows. "l2,1-rows" is the same."""
        inner = _group(text.removesuffix("-rows"))
        return None if inner is None else cls(inner)


@dataclass(frozen=True)
class OnColumns(Lifted):
    """A symmetric norm of the lengths of the columns.

    See Also
    --------
    attsvm.norms.OnRows, attsvm.norms.OnSingularValues

    Examples
    --------
    >>> from attsvm.norms import Lp, OnColumns
    >>> norm = OnColumns(Lp(1))
    >>> norm.name, norm.value([[3.0, 0.0], [4.0, 2.0]])
    ('l2,1-columns', 7.0)
    """

    spelling: ClassVar[str] = '"l2,<p>-columns" or "linf,2-columns"'
    what: ClassVar[str] = "columns"
    short_names: ClassVar[dict[float | None, str]] = {2: "frobenius", math.inf: "linf,2-columns", None: "l2,{}-columns"}
    left_invariant = True

    def sizes(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.sqrt((x * x).sum(axis=-2)))

    def rebuilt(self, x: Any, change: Callable[[Any], Any]) -> Any:
        """Change the lengths of the columns; columns of zeros stay."""
        return OnRows(self.of).rebuilt(x.mT, change).mT

    def apart(self, x: Any, trials: Any) -> tuple[Any, Callable[[Any], Any]]:
        """Take matrices apart into the lengths of their columns, in JAX."""
        lengths = trials.lengths(x, axis=0)[0]
        return lengths, lambda sizes: (sizes / trials.jnp.where(lengths > 0, lengths, 1.0)) * x

    @classmethod
    def parse(cls, text: str) -> Norm | None:
        """Read "l2,1-columns", "linf,2-columns" or "l2,inf-columns"."""
        inner = _group(text.removesuffix("-columns")) if text.endswith("-columns") else None
        return None if inner is None else cls(inner)


def _short_name(of: Norm, names: dict[float | None, str]) -> str | None:
    """Return the name with an ℓp norm of the sizes; None for any other norm."""
    if not isinstance(of, Lp):
        return None
    return names.get(of.p) or str(names[None]).format(repr(of.p).removesuffix(".0"))


def _group(text: str) -> Lp | None:
    """Return the norm of the lengths that "l2,<p>" or "l<p>,2" names; None for other texts."""
    first, comma, second = text.partition(",")
    if not comma or "l2" not in (first, "l" + second):
        return None
    return _vector_norm(second if first == "l2" else first.removeprefix("l"))


def _vector_norm(p: str) -> Lp | None:
    try:
        number = float(p)
    except ValueError:
        return None
    return Lp(number)


NORMS.register("schatten", OnSingularValues)
NORMS.register("rows", OnRows)
NORMS.register("columns", OnColumns)
