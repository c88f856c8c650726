"""Descent along a direction of each weight matrix, or of each head of it: the base class, and descent by lines.

In descent by lines the direction is the gradient with each row or column divided by its length.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.gradients import Given
from attsvm.torch.optimizer import MirrorOptimizer, SharedOptions
from attsvm.torch.sharding import sharding_of
from attsvm.torch.steps import Along, TensorBatch


class MatrixDescent(MirrorOptimizer):
    """Base class: w ← w − lr·D(b), where D maps each matrix to one of norm 1.

    A subclass provides :meth:`_along`.

    Parameters
    ----------
    params : iterable
        As in :class:`attsvm.torch.MirrorDescent`.
    own : dict
        ``lr``, ``normalize``, ``heads``, ``fused``, and the options that only this optimizer has.
    shared : dict
        Options of :class:`SharedOptions`.
    """

    @abstractmethod
    def _along(self, group: dict[str, Any], matrices: Tensor, rounded: torch.dtype) -> Tensor:
        """D of matrices (k, r, c), whose largest entries are 1 or 0, of gradients that were rounded to a dtype."""

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        heads = group["heads"]
        for parameter in group["params"]:
            if parameter.ndim > 1 and parameter.shape[0] % heads:
                shape = tuple(parameter.shape)
                raise ValueError(
                    f"heads: expected a divisor of the first axis of each parameter, got {heads} for {shape}"
                )

    def _check_gradients(self, given: list[Given]) -> None:
        super()._check_gradients(given)
        if any(sharding_of(parameter).split for _, parameter, _ in given):
            raise RuntimeError(
                f"{type(self).__name__}: expected whole matrices, got a parameter that is sharded over processes"
            )

    def _elementwise(self, group: dict[str, Any]) -> bool:
        return False

    def _directions(
        self, group: dict[str, Any], batches: list[TensorBatch], momenta: list[list[Tensor]]
    ) -> list[Along]:
        found = []
        for batch, parts in zip(batches, momenta, strict=True):
            matrices = batch.apart(parts)
            along = [self._direction(group, x, batch.gradients[0].dtype) for x in matrices]
            if group["normalize"]:
                lengths = parts[0].new_ones(len(along))
            else:  # ⟨b, D⟩ is the dual norm
                lengths = torch.stack([(x * y).sum() for x, y in zip(matrices, along, strict=True)])
            found.append(Along(batch.parts(along), lengths))
        return found

    def _direction(self, group: dict[str, Any], tensor: Tensor, rounded: torch.dtype) -> Tensor:
        if tensor.numel() == 0:
            return tensor
        matrices, put_back = taken_apart(tensor, group["heads"], fused=group["fused"])
        # the direction does not depend on the scale, but squares must not underflow
        largest = matrices.abs().amax(dim=(-2, -1), keepdim=True)
        matrices = matrices / torch.where(largest > 0, largest, 1.0)
        if tensor.ndim < 2:
            return put_back(unit_lines(matrices, (-2, -1)))
        return put_back(self._along(group, matrices, rounded))


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
        return unit_lines(matrices, self._axis)


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


def taken_apart(tensor: Tensor, heads: int, *, fused: bool) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The matrices (k, r, c) of a tensor, and the function that makes a tensor of them.

    ``tensor``: a vector, which is one column, or a tensor whose first axis is (heads, …): the weight (H·m, d) of a
    linear layer, or keys (H, d, m) of H heads. ``fused``: whether all heads are one matrix: (H·m, d), and [K_1, …, K_H]
    of keys (H, d, m).
    """
    shape = tensor.shape
    if tensor.ndim == 3 and heads > 1 and shape[0] == heads:
        if not fused:
            return tensor, torch.Tensor.contiguous
        beside = tensor.movedim(0, 1)
        return beside.reshape(1, shape[1], -1), lambda x: x.reshape(beside.shape).movedim(1, 0).contiguous()
    blocks = 1 if fused or tensor.ndim < 2 else heads
    rows = 1 if tensor.ndim == 0 else shape[0]
    return tensor.reshape(blocks, rows // blocks, -1), lambda x: x.reshape(shape).contiguous()


def unit_lines(matrices: Tensor, axes: int | tuple[int, int]) -> Tensor:
    """Lines along an axis, or matrices along two, each over its ℓ2 length; zeros stay zero."""
    lengths = torch.linalg.vector_norm(matrices, dim=axes, keepdim=True)
    return matrices / torch.where(lengths > 0, lengths, 1.0)
