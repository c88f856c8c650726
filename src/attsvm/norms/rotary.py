"""The norm of attention with rotated keys and queries, a sum of complex nuclear norms, and its dual, their maximum."""

import math
import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.checks import check_integer
from attsvm.errors import ProblemError
from attsvm.norms.base import Norm, SeveralAtOnce
from attsvm.norms.lp import shrunk_to_sum_one
from attsvm.norms.registry import NORMS
from attsvm.norms.singular_values import values_at_unit_scale


@dataclass(frozen=True)
class _OfComplexBlocks(SeveralAtOnce):
    """A norm of the singular values of M_j = A_j + iB_j, for weights [A_1; B_1; …; A_J; B_J] below each other."""

    num_frequencies: int
    right_invariant = True
    takes_biases = False

    def __post_init__(self) -> None:
        check_integer("num_frequencies", self.num_frequencies, 1)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Return the shape of blocks of two rows."""
        return (4 * self.num_frequencies, 3)

    def blocks(self, x: Any) -> Any:
        """Return M_j of weights (*batch, 2 J d, d_q), shape (*batch, J, d, d_q), in NumPy or JAX.

        Raises ProblemError if the number of rows is no multiple of 2J.
        """
        rows, columns = x.shape[-2:]
        if rows % (2 * self.num_frequencies):
            raise ProblemError(
                f"norm: expected weights with a multiple of 2J = {2 * self.num_frequencies} rows for {self.name} with "
                f"J = {self.num_frequencies}, got {rows} rows; Problem.with_rotations(frequencies) makes such a problem"
            )
        parts = x.reshape(*x.shape[:-2], self.num_frequencies, 2, -1, columns)
        return parts[..., 0, :, :] + 1j * parts[..., 1, :, :]

    @staticmethod
    def stacked(blocks: Any) -> Any:
        """Return the weights (*batch, 2 J d, d_q) whose blocks these are."""
        *batch, _, _, columns = blocks.shape
        parts = blocks.__array_namespace__().stack([blocks.real, blocks.imag], axis=-3)
        return parts.reshape(*batch, -1, columns)

    def _map(self, x: Any, change: Callable[[Any, Any], Any]) -> Any:
        """Return weights, or one column, with the singular values (*batch, J, k) of their blocks changed."""
        if x.ndim == 1:
            return self._map(x[:, None], change)[:, 0]
        U, sigma, Vh = x.__array_namespace__().linalg.svd(self.blocks(x), full_matrices=False)
        return self.stacked((U * change(x.__array_namespace__(), sigma)[..., None, :]) @ Vh)

    @abstractmethod
    def _reduce(self, singular: np.ndarray) -> np.ndarray:
        """Return the norm of singular values (*batch, J, k)."""

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        matrices = np.asarray(x, dtype=np.float64)
        matrices = matrices if axes == 2 else matrices[..., None]

        def of_scaled(matrices: np.ndarray) -> np.ndarray:
            return self._reduce(np.linalg.svd(self.blocks(matrices), compute_uv=False))

        return values_at_unit_scale(matrices, of_scaled)


@dataclass(frozen=True)
class Rotary(_OfComplexBlocks):
    """Σ_j ‖A_j + iB_j‖_*, for weights [A_1; B_1; …; A_J; B_J] below each other, as of rotated keys and queries.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Keys K and queries Q with rotary position embeddings have M_j = A_j + iB_j of rank one, and ½(‖K‖² + ‖Q‖²) is at
    least Σ_j ‖M_j‖_*. Half the nuclear norm of [[A, −B], [B, A]] is that of A + iB.

    Parameters
    ----------
    num_frequencies : int
        J. Weights have 2Jd rows.

    See Also
    --------
    attsvm.Problem.with_rotations : The problem whose weights have this form.
    attsvm.norms.Nuclear

    References
    ----------
    Su, Lu, Pan, Murtadha, Wen, Liu (2024), *RoFormer: Enhanced Transformer with Rotary Position Embedding*, eq. (16).

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms import Rotary
    >>> norm = Rotary(2)
    >>> norm.value(np.array([[3.0], [4.0], [1.0], [0.0]]))  # |3 + 4i| + |1|
    6.0
    >>> norm.dual.value(np.array([[3.0], [4.0], [1.0], [0.0]]))
    5.0
    """

    name = "rotary"
    spelling: ClassVar[str] = '"rotary<J>"'

    @classmethod
    def parse(cls, text: str) -> Norm | None:
        """Read "rotary4", the norm of four frequencies."""
        read = re.fullmatch(r"rotary([1-9]\d*)", text)
        return read and cls(int(read[1]))

    @property
    def dual(self) -> "DualRotary":
        return DualRotary(self.num_frequencies)

    def _reduce(self, singular: np.ndarray) -> np.ndarray:
        return np.asarray(singular.sum(axis=(-2, -1)))

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        return self.proxes(x, step, x.ndim)

    def proxes(self, x: np.ndarray, step: float, axes: int = 2) -> np.ndarray:
        """Reduce all singular values by the step, those below it to 0."""
        if axes == 1:
            return self.proxes(x[..., None], step)[..., 0]
        return np.asarray(self._map(x, lambda xp, sigma: xp.maximum(sigma - step, 0.0)))

    def project_dual_ball(self, x: Any) -> Any:
        """Set singular values above 1 to 1."""
        return self._map(x, lambda xp, sigma: xp.minimum(sigma, 1.0))

    def steepest(self, g: Any) -> Any:
        """Return u v* of the largest singular value of all blocks."""

        def first(xp: Any, sigma: Any) -> Any:
            flat = sigma.reshape(-1)
            chosen = (xp.arange(flat.shape[0]) == xp.argmax(flat)) & (flat > 0)
            return xp.where(chosen, 1.0, 0.0).reshape(sigma.shape)

        return self._map(g, first)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return √r for blocks with r singular values together."""
        rows, columns = shape
        return math.sqrt(self.num_frequencies * min(rows // (2 * self.num_frequencies), columns))


@dataclass(frozen=True)
class DualRotary(_OfComplexBlocks):
    """max_j ‖A_j + iB_j‖_op, the dual norm of :class:`Rotary`."""

    name = "dual of rotary"

    @property
    def dual(self) -> Rotary:
        return Rotary(self.num_frequencies)

    def _reduce(self, singular: np.ndarray) -> np.ndarray:
        return np.asarray(singular.max(axis=(-2, -1), initial=0.0))

    def project_dual_ball(self, x: Any) -> Any:
        """Reduce all singular values by a threshold until their sum is at most 1."""
        return self._map(x, lambda xp, sigma: shrunk_to_sum_one(sigma))

    def steepest(self, g: Any) -> Any:
        """Return U V* of each block, without singular values that are rounding errors."""

        def kept(xp: Any, sigma: Any) -> Any:
            rounding = max(g.shape) * float(xp.finfo(g.dtype).eps) * sigma[..., :1]
            return xp.where((sigma > rounding) & (sigma > 0), 1.0, 0.0)

        return self._map(g, kept)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return 1: the largest singular value is at most the Frobenius norm."""
        return 1.0


NORMS.register("rotary", Rotary)
