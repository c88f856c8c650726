"""Descent along the gradient with each row, or each column, divided by its length."""

from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.optimizers.matrix_descent import MatrixDescent
from attsvm.torch.optimizers.options import SharedOptions


class _LineDescent(MatrixDescent):
    """Base class: each line of the gradient along one axis is divided by its length."""

    _axis: int

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        *,
        heads: int = 1,
        fused: bool = False,
        normalize: bool = True,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(params, {"lr": lr, "heads": heads, "fused": fused, "normalize": normalize}, shared)

    def _along(self, group: dict[str, Any], matrices: Tensor, rounded: torch.dtype) -> Tensor:
        lengths = torch.linalg.vector_norm(matrices, dim=self._axis, keepdim=True)
        return matrices / torch.where(lengths > 0, lengths, 1.0)


class RowDescent(_LineDescent):
    """Steps of length lr of each row of a weight matrix: the gradient with each row divided by its length.

    A linear layer stores the transposed matrix: the rows of its weight (H·m, d) are the columns of the keys K_h (d, m).
    So short steps of this optimizer on two linear layers maximise the margin in the nuclear norm of W = KQ'.

    Parameters
    ----------
    params, lr, momentum, nesterov, weight_decay, maximize, nonfinite, foreach, compiled
        As in :class:`attsvm.torch.MirrorDescent`; a vector is normalised as a whole.
    heads, fused
        What is one matrix, as in :class:`attsvm.torch.SpectralDescent`.
    normalize : bool, default True
        False multiplies the step by the dual norm of each tensor, the sum of the lengths of the rows of b.

    Raises
    ------
    ValueError
        If an option is out of range or a parameter is complex.
    RuntimeError
        If a parameter is sharded over processes.

    See Also
    --------
    attsvm.torch.ColumnDescent, attsvm.torch.SpectralDescent
    attsvm.optimizers.row_descent : In JAX.

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import RowDescent
    >>> layer = torch.nn.Linear(4, 6)
    >>> layer(torch.ones(1, 4)).sum().backward()
    >>> before = layer.weight.detach().clone()
    >>> RowDescent([layer.weight], lr=0.5).step()
    >>> (layer.weight - before).norm(dim=1).allclose(torch.full((6,), 0.5))
    True
    """

    _axis = 2


class ColumnDescent(_LineDescent):
    """Steps of length lr of each column of a weight matrix: the gradient with each column divided by its length.

    A linear layer stores the transposed matrix: the columns of the m rows of a head in its weight (H·m, d) are the rows
    of the keys K_h (d, m). So short steps of this optimizer on two linear layers, with ``heads``, maximise the margin
    in the γ2 norm of W = KQ'.

    Parameters
    ----------
    params, lr, momentum, nesterov, weight_decay, maximize, nonfinite, foreach, compiled
        As in :class:`attsvm.torch.MirrorDescent`; a vector is normalised as a whole.
    heads, fused
        What is one matrix, as in :class:`attsvm.torch.SpectralDescent`.
    normalize : bool, default True
        False multiplies the step by the dual norm of each tensor, the sum of the lengths of the columns of b.

    Raises
    ------
    ValueError
        If an option is out of range or a parameter is complex.
    RuntimeError
        If a parameter is sharded over processes.

    See Also
    --------
    attsvm.torch.RowDescent, attsvm.torch.SpectralDescent
    attsvm.optimizers.column_descent : In JAX.

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import ColumnDescent
    >>> layer = torch.nn.Linear(4, 6)
    >>> layer(torch.ones(1, 4)).sum().backward()
    >>> before = layer.weight.detach().clone()
    >>> ColumnDescent([layer.weight], lr=0.5, heads=2).step()
    >>> (layer.weight - before).view(2, 3, 4).norm(dim=1).allclose(torch.full((2, 4), 0.5))
    True
    """

    _axis = 1
