"""The base of optimizers that step along a direction of each weight matrix, or of each head of it."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.optimizers.batches import Batch, Given, Shaped
from attsvm.torch.optimizers.optimizer import MirrorOptimizer
from attsvm.torch.optimizers.options import SharedOptions
from attsvm.torch.optimizers.sharding import sharding_of


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

    def __init__(self, params: ParamsT, own: dict[str, Any], shared: SharedOptions) -> None:
        super().__init__(params, own, shared)

    @abstractmethod
    def _along(self, group: dict[str, Any], matrices: Tensor, rounded: torch.dtype) -> Tensor:
        """D of matrices (k, r, c), whose largest entries are 1 or 0, of gradients that were rounded to a dtype."""

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        heads = group["heads"]
        if isinstance(heads, bool) or not isinstance(heads, int) or heads < 1:
            raise ValueError(f"heads: expected an integer >= 1, got {heads!r}")
        if not isinstance(group["fused"], bool):
            raise ValueError(f"fused: expected True or False, got {group['fused']!r}")
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
        self, group: dict[str, Any], batches: list[Batch], directions: list[list[Tensor]], lr: float
    ) -> list[Shaped]:
        shaped = []
        for batch, tensors in zip(batches, directions, strict=True):
            along = [self._direction(group, x, batch.gradients[0].dtype) for x in tensors]
            ones = [x.new_ones(()) for x in tensors]
            # ⟨b, D⟩ is the dual norm
            lengths = ones if group["normalize"] else [(x * y).sum() for x, y in zip(tensors, along, strict=True)]
            shaped.append((along, [lr * x for x in lengths], ones))
        return shaped

    def _direction(self, group: dict[str, Any], tensor: Tensor, rounded: torch.dtype) -> Tensor:
        if tensor.numel() == 0:
            return tensor
        matrices, put_back = taken_apart(tensor, group["heads"], fused=group["fused"])
        # the direction does not depend on the scale, but squares must not underflow
        largest = matrices.abs().amax(dim=(-2, -1), keepdim=True)
        matrices = matrices / torch.where(largest > 0, largest, 1.0)
        if tensor.ndim < 2:
            length = torch.linalg.vector_norm(matrices, dim=(-2, -1), keepdim=True)
            return put_back(matrices / torch.where(length > 0, length, 1.0))
        return put_back(self._along(group, matrices, rounded))


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
