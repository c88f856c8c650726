"""Norms of the weights of all attention heads together, and the two that treat the heads alike: sum and maximum."""

import re
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from attsvm._utils.checks import check_groups
from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.norms.base import Norm, project_on_ball, refuse_joint_parts
from attsvm.norms.registry import NORMS, parse_norm

Heads = Float[np.ndarray, "H d_k d_q"]


@dataclass(frozen=True)
class JointNorm(Norm):
    """A norm of the weights of all attention heads together, arrays (H, d_k, d_q).

    With it :func:`attsvm.solve_svm` returns one solution for all heads, and :func:`attsvm.margin` measures the smallest
    margin of all heads. A subclass provides ``name``, :meth:`value_of_heads`, ``dual`` (a joint norm, too), and may
    provide :meth:`prox_of_heads`.

    Parameters
    ----------
    num_heads : int, optional
        Solvers give H to see the weights of the heads below each other, as matrices (H d_k, d_q).

    See Also
    --------
    attsvm.norms.SumOfHeads, attsvm.norms.MaxOfHeads, attsvm.norms.factors.FusedHeads

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Nuclear, SumOfHeads
    >>> SumOfHeads(Nuclear()).value(np.stack([np.eye(2), np.eye(2)]))
    4.0
    """

    num_heads: int | None = field(default=None, kw_only=True)

    head_axes: ClassVar[int] = 1

    def for_heads(self, num_heads: int | None) -> Self:
        """Return the same for matrices (H d_k, d_q).

        Raises ProblemError if there is no H.
        """
        if num_heads is None:
            raise ProblemError(
                f"norm: expected a problem with num_heads, because {self.name} measures all attention heads together"
            )
        return replace(self, num_heads=num_heads)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Return the shape of three heads, or of the heads below each other."""
        return (3, 4, 3) if self.num_heads is None else (4 * self.num_heads, 3)

    @abstractmethod
    def value_of_heads(self, x: Heads) -> float:
        """Return the norm of an array (H, d_k, d_q)."""

    def prox_of_heads(self, x: Heads, step: float) -> Heads:
        """Return the minimiser of N(w) + ‖w − x‖²/(2 step) over arrays (H, d_k, d_q)."""
        raise self._missing("prox", "proximal methods cannot use it")

    def value(self, x: Any, axes: int | None = None) -> float:
        """Compute the norm of one array (H, d_k, d_q), or (H, d_k) for prompts; with ``num_heads`` (H d_k, d_q)."""
        return float(self.value_of_heads(self._heads(np.asarray(x, dtype=np.float64))))

    def values(self, x: Any, axes: int | None = None) -> Float[np.ndarray, "*batch"]:
        """Return the norm over the last axes: 3, or 2 for prompts and with ``num_heads``."""
        return super().values(x, axes or (3 if self.num_heads is None else 2))

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        return self.prox_of_heads(self._heads(x), step).reshape(x.shape)

    def project_dual_ball(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x - self.prox(x, 1.0))

    def _heads(self, x: np.ndarray) -> Heads:
        if x.ndim == 3:
            return x
        if x.ndim != 2:
            raise ProblemError(f"norm: {self.name}: expected weights of shape (H, d_k, d_q), got {x.shape}")
        return x[..., None] if self.num_heads is None else x.reshape(self.num_heads, -1, x.shape[-1])

    def each_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the shape (d_k, d_q) of each head in an array that the norm measures."""
        return (shape[-2] // (self.num_heads or 1), shape[-1])

    def count(self, shape: tuple[int, ...]) -> int:
        """Return H in an array that the norm measures."""
        return shape[0] if self.num_heads is None else self.num_heads


@dataclass(frozen=True)
class OfEachHead(JointNorm):
    """A joint norm that is a norm of the numbers N(W_h), or, with groups, of the numbers N([W_h of the group])."""

    of: Norm  # N, a norm of the weights of one head, or of those of a group side by side
    num_groups: int | None = field(default=None, kw_only=True)  # g, consecutive heads each; None is one for each head

    word: ClassVar[str]

    @property
    def name(self) -> str:
        """Return a name such as "sum over heads of nuclear" or "max over 2 groups of spectral"."""
        what = "heads" if self.num_groups is None else f"{self.num_groups} group{'s' * (self.num_groups > 1)}"
        return f"{self.word} over {what} of {self.of.name}"

    def __post_init__(self) -> None:
        refuse_joint_parts(self)
        if self.num_groups is not None:
            check_groups("num_groups", self.num_groups, self.num_heads)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Return the shape of three heads, or of three in each group."""
        number = self.num_heads or 3 * (self.num_groups or 1)
        return (number, 4, 3) if self.num_heads is None else (4 * number, 3)

    @property
    def right_invariant(self) -> bool:
        return self.of.right_invariant

    def beside(self, x: Heads) -> Heads:
        """Return the weights (*batch, g, d_k, G d_q) of groups, each with its G heads side by side."""
        if self.num_groups is None:
            return x
        *batch, number, rows, columns = x.shape
        check_groups("num_groups", self.num_groups, number)
        of_groups = x.reshape(*batch, self.num_groups, -1, rows, columns).swapaxes(-3, -2)
        return of_groups.reshape(*batch, self.num_groups, rows, -1)

    def apart(self, x: Heads, num_heads: int) -> Heads:
        """Return the weights (*batch, H, d_k, d_q) of the heads, the inverse of :meth:`beside`."""
        if self.num_groups is None:
            return x
        *batch, groups, rows, columns = x.shape
        of_heads = x.reshape(*batch, groups, rows, num_heads // groups, -1).swapaxes(-3, -2)
        return of_heads.reshape(*batch, num_heads, rows, columns * groups // num_heads)

    def each_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the shape of the matrix whose norm is N."""
        rows, columns = super().each_shape(shape)
        return rows, columns * super().count(shape) // self.count(shape)

    def count(self, shape: tuple[int, ...]) -> int:
        """Return the number of these matrices."""
        return self.num_groups or super().count(shape)

    @classmethod
    def parse(cls, text: str) -> Norm | None:
        read = re.fullmatch(rf"{cls.word} over (?:heads|(\d+) groups?) of (.+)", text)
        return read and cls(parse_norm(read[2]), num_groups=None if read[1] is None else int(read[1]))


@dataclass(frozen=True)
class SumOfHeads(OfEachHead):
    """Σ_h N(W_h). Its Att-SVM is the Att-SVM of each attention head by itself.

    Parameters
    ----------
    of : Norm
        N, a norm of the weights of one head.
    num_groups : int, optional
        g: the norm is Σ N([W_1 … W_G]) over g groups of G = H/g consecutive heads, whose weights are side by side. That
        of the nuclear norm is the one of gradient descent on keys that the heads of a group share.

    See Also
    --------
    attsvm.norms.MaxOfHeads, attsvm.norms.JointNorm

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Nuclear, SumOfHeads
    >>> norm = SumOfHeads(Nuclear())
    >>> norm.name, norm.value(np.stack([np.eye(3), 2 * np.eye(3)]))
    ('sum over heads of nuclear', 9.0)
    >>> shared = SumOfHeads(Nuclear(), num_groups=1)
    >>> shared.name, round(shared.value(np.stack([3 * np.eye(3), 4 * np.eye(3)])), 12)
    ('sum over 1 group of nuclear', 15.0)
    """

    spelling: ClassVar[str] = '"sum over heads of <norm>", "sum over <g> groups of <norm>"'
    word: ClassVar[str] = "sum"

    @property
    def dual(self) -> "MaxOfHeads":
        return MaxOfHeads(self.of.dual, num_heads=self.num_heads, num_groups=self.num_groups)

    def value_of_heads(self, x: Heads) -> float:
        return float(self.of.values(self.beside(x)).sum())

    def prox_of_heads(self, x: Heads, step: float) -> Heads:
        return self.apart(self.of.proxes(self.beside(x), step), len(x))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return float(np.sqrt(self.count(shape))) * self.of.frobenius_factor(self.each_shape(shape))


@dataclass(frozen=True)
class MaxOfHeads(OfEachHead):
    """max_h N(W_h). The least value is the largest among the Att-SVMs of the single attention heads.

    Parameters
    ----------
    of : Norm
        N, a norm of the weights of one head.
    num_groups : int, optional
        As for :class:`SumOfHeads`.

    See Also
    --------
    attsvm.norms.SumOfHeads, attsvm.norms.JointNorm

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import MaxOfHeads, Spectral
    >>> MaxOfHeads(Spectral()).value(np.stack([np.eye(3), 2 * np.eye(3)]))
    2.0
    """

    spelling: ClassVar[str] = '"max over heads of <norm>", "max over <g> groups of <norm>"'
    word: ClassVar[str] = "max"

    @property
    def dual(self) -> "SumOfHeads":
        return SumOfHeads(self.of.dual, num_heads=self.num_heads, num_groups=self.num_groups)

    def value_of_heads(self, x: Heads) -> float:
        return float(self.of.values(self.beside(x)).max(initial=0.0))

    def prox_of_heads(self, x: Heads, step: float) -> Heads:
        """Project all attention heads onto balls of one radius. The dual norms of the rest add up to the step."""
        return np.asarray(x - project_on_ball(self.dual, x, step))

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return self.of.frobenius_factor(self.each_shape(shape))


def for_heads(norm: Norm, num_heads: int | None) -> Norm:
    """Return the norm for the weights of H attention heads below each other, if it is joint, and otherwise itself.

    Raises ProblemError if a norm is joint and there is no H.
    """
    return norm.for_heads(num_heads) if isinstance(norm, JointNorm) else norm


NORMS.register("sum over heads", SumOfHeads)
NORMS.register("max over heads", MaxOfHeads)
