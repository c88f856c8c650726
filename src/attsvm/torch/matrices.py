"""What is one matrix: how a tensor is taken apart into matrices, and put together again."""

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor


class MatrixLayout(NamedTuple):
    """How the matrices lie in a tensor, as the options of a parameter group give it."""

    heads: int | tuple[int, ...] = 1
    blocks: tuple[int, ...] | None = None
    fused: bool = False
    flatten: bool | None = None
    transposed: bool = False

    def block_rows(self, rows: int) -> list[int]:
        """The number of rows of each block of a matrix. Raises ValueError if the blocks do not fit."""
        if self.blocks is not None:
            if sum(self.blocks) != rows:
                raise ValueError(f"blocks: expected rows that add up to {rows}, got {self.blocks}")
            return list(self.blocks)
        count = self.heads if isinstance(self.heads, int) else sum(self.heads)
        if rows % count:
            raise ValueError(f"heads: expected a divisor of the {rows} rows of a matrix, got {self.heads}")
        return [rows // count] * count


def layout_of(group: dict[str, Any]) -> MatrixLayout:
    """The layout of the tensors of a parameter group."""
    return MatrixLayout(*(group[name] for name in MatrixLayout._fields))


def check_layout(layout: MatrixLayout, shape: torch.Size) -> None:
    """Raise ValueError unless a tensor of a shape has such blocks."""
    if layout.blocks is not None and (layout.heads != 1 or layout.fused):
        raise ValueError("blocks: expected None with heads or fused, which define the blocks")
    if layout.fused and layout.heads != 1:
        raise ValueError(f"fused: expected heads=1, as it joins all heads to one matrix, got heads={layout.heads}")
    if len(shape) < 2 or shape.numel() == 0:
        return
    try:
        layout.block_rows(_as_matrices(torch.empty(shape, device="meta"), layout)[0].shape[1])
    except ValueError as error:
        raise ValueError(f"{error}, for a parameter of shape {tuple(shape)}") from None


def doubt_about(layout: MatrixLayout, shape: torch.Size) -> str | None:
    """Why a tensor of three or more axes may be meant in another way than it is read; None if there is no doubt."""
    if len(shape) < 3 or layout.flatten is not None or layout.fused:
        return None
    count = shape[:-2].numel()
    read = f"a parameter of shape {tuple(shape)} is read as {count} matrices of shape {tuple(shape[-2:])}"
    # kernels of a convolution are small, experts are not
    if shape[-1] <= 16 if len(shape) == 3 else max(shape[-2:]) <= 32:
        return f"{read}. For a convolution pass flatten=True, for a batch of matrices flatten=False"
    if layout.heads == shape[0] > 1:
        return (
            f"{read}, each of {layout.heads} heads. If its first axis is the attention heads, pass heads=1, else "
            "flatten=False"
        )
    return None


def taken_apart(tensor: Tensor, layout: MatrixLayout) -> tuple[list[Tensor], Callable[[list[Tensor]], Tensor]]:
    """The matrices of a tensor, and the function that makes a tensor of them.

    There is one stack (k, r, c) for each run of blocks of the same number of rows. A vector is one column.
    """
    if tensor.ndim < 2:
        return [tensor.reshape(1, -1, 1)], lambda parts: parts[0].reshape(tensor.shape)
    matrices, put_back = _as_matrices(tensor, layout)
    count, rows, columns = matrices.shape
    runs = [(size, len(list(run))) for size, run in groupby(layout.block_rows(rows))]
    parts = torch.split(matrices, [size * number for size, number in runs], dim=1)
    stacks = [part.reshape(-1, size, columns) for part, (size, _) in zip(parts, runs, strict=True)]

    def together(found: list[Tensor]) -> Tensor:
        parts = [x.reshape(count, -1, columns) for x in found]
        return put_back(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))

    return stacks, together


def _as_matrices(tensor: Tensor, layout: MatrixLayout) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The tensor as (k, r, c), with outputs as rows."""
    shape = tensor.shape
    if layout.flatten and tensor.ndim > 2:
        return tensor.reshape(1, shape[0], -1), lambda x: x.reshape(shape)
    stack = tensor.reshape(-1, *shape[-2:])
    if layout.transposed:
        stack = stack.mT
    if layout.fused and len(stack) > 1:  # [K_1, …, K_H]
        beside = stack.movedim(0, 1)
        joined = beside.reshape(1, len(beside), -1)
        return joined, lambda x: _as_stored(x.reshape(beside.shape).movedim(1, 0), layout, shape)
    return stack, lambda x: _as_stored(x, layout, shape)


def _as_stored(stack: Tensor, layout: MatrixLayout, shape: torch.Size) -> Tensor:
    return (stack.mT if layout.transposed else stack).reshape(shape)
