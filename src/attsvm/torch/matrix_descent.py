"""Descent along a direction of each weight matrix, or of each head of it: the base class, and descent by lines.

In descent by lines the direction is the gradient with each row or column divided by its length.
"""

import math
import warnings
from abc import abstractmethod
from typing import Any, Literal, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.gradients import Given
from attsvm.torch.matrices import check_layout, doubt_about, layout_of, taken_apart
from attsvm.torch.optimizer import MirrorOptimizer, SharedOptions
from attsvm.torch.sharding import sharding_of
from attsvm.torch.steps import Along, TensorBatch, accumulate

Scale = Literal["match_rms", "muon"] | None


class MatrixDescent(MirrorOptimizer):
    """Base class: w ← w − lr·D(b), where D maps each matrix to one of norm 1.

    A subclass provides :meth:`_along` and :meth:`_squares`.

    Parameters
    ----------
    params : iterable
        As in :class:`attsvm.torch.MirrorDescent`.
    own : dict
        ``lr``, ``normalize``, ``scale``, the fields of ``MatrixLayout``, and the options that only this optimiser has.
    shared : dict
        Options of :class:`SharedOptions`.
    """

    @abstractmethod
    def _along(self, group: dict[str, Any], stacks: list[Tensor], rounded: torch.dtype) -> list[Tensor]:
        """D of stacks of matrices (k, r, c), of gradients that were rounded to a dtype."""

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        if group["scale"] is not None and not group["normalize"]:
            raise ValueError(f"scale: expected None with normalize=False, got {group['scale']!r}")
        if not group["adamw"]:
            for parameter in group["params"]:
                check_layout(layout_of(group), parameter.shape)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        doubts = [] if group["adamw"] else [doubt_about(layout_of(group), x.shape) for x in group["params"]]
        if any(doubts):
            warnings.warn(f"{type(self).__name__}: {next(filter(None, doubts))}", UserWarning, stacklevel=5)

    def _of_earlier(self, saved: dict[str, Any], params: list[Tensor]) -> dict[str, Any]:
        """In 1.0 the heads of a tensor (H, …) were its first axis, all other axes columns, and fused ignored heads."""
        found = super()._of_earlier(saved, params)
        several = [x.shape for x in params if x.ndim > 2]
        if "flatten" in found and several:
            if saved["heads"] > 1 and all(len(shape) == 3 and shape[0] == saved["heads"] for shape in several):
                return {**found, "flatten": False, "heads": 1}
            found["flatten"] = not saved["fused"]
        return {**found, "heads": 1} if saved.get("fused") else found

    def _check_gradients(self, group: dict[str, Any], given: list[Given]) -> None:
        super()._check_gradients(group, given)
        split = None if group["adamw"] else next(((i, x) for i, x, _ in given if sharding_of(x).split), None)
        if split is not None:
            name = group["param_names"][split[0]] if "param_names" in group else f"parameter {split[0]} of a group"
            raise RuntimeError(
                f"{type(self).__name__}: expected whole matrices, got {name} of shape {tuple(split[1].shape)}, sharded "
                "over processes; MirrorDescent and SignDescent take steps on shards"
            )

    def _elementwise(self, group: dict[str, Any]) -> bool:
        return False

    def _directions(self, group: dict[str, Any], batches: list[TensorBatch], scale: float) -> list[Along]:
        found = []
        for batch in batches:
            parts = accumulate(batch, scale, group["momentum"], group["nesterov"])
            tensors = batch.apart(parts)
            along = self._along_each(group, tensors, batch.gradients[0].dtype)
            if group["normalize"]:
                lengths = parts[0].new_ones(len(along))
            else:  # ⟨b, D⟩ is the dual norm
                lengths = torch.stack([(x * y).sum() for x, y in zip(tensors, along, strict=True)])
            found.append(Along(batch.parts(along), lengths))
        return found

    def _along_each(self, group: dict[str, Any], tensors: list[Tensor], rounded: torch.dtype) -> list[Tensor]:
        """The directions of tensors, from those of the matrices of all of them."""
        layout, scale = layout_of(group), group["scale"]
        apart = [taken_apart(x, layout) for x in tensors if x.numel()]
        where = [i for i, x in enumerate(tensors) if x.numel()]
        matrices = [
            stack for i, (stacks, _) in zip(where, apart, strict=True) if tensors[i].ndim > 1 for stack in stacks
        ]
        along, found = iter(self._along(group, matrices, rounded)), list(tensors)
        for i, (stacks, put_back) in zip(where, apart, strict=True):
            if tensors[i].ndim < 2:  # a vector has norm 1 for every optimiser
                parts = [_scaled(scale, unit_lines(stack, (-2, -1)), 1) for stack in stacks]
            else:
                parts = [_scaled(scale, next(along), self._squares(*stack.shape[1:])) for stack in stacks]
            found[i] = put_back(parts).contiguous()
        return found

    @abstractmethod
    def _squares(self, rows: int, columns: int) -> int:
        """The sum of the squares of the entries of D of a matrix of full rank."""


def _scaled(scale: Scale, along: Tensor, squares: int) -> Tensor:
    """Directions of matrices (k, r, c) that each have this sum of squares of their entries, times their factor."""
    _, rows, columns = along.shape
    if scale is None:
        return along
    # 0.2 is about the root mean square of the steps of Adam, in units of lr
    matched = 0.2 * math.sqrt(rows * columns / squares)
    return along * (math.sqrt(max(1.0, rows / columns)) if scale == "muon" else matched)


class _LineDescent(MatrixDescent):
    """Base class: each line of the gradient along one axis is divided by its length."""

    _axis: int

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        *,
        normalize: bool = True,
        scale: Scale = None,
        heads: int | tuple[int, ...] = 1,
        blocks: tuple[int, ...] | None = None,
        fused: bool = False,
        flatten: bool | None = None,
        transposed: bool = False,
        **shared: Unpack[SharedOptions],
    ) -> None:
        own: dict[str, Any] = {"lr": lr, "normalize": normalize, "scale": scale, "heads": heads, "blocks": blocks}
        super().__init__(params, {**own, "fused": fused, "flatten": flatten, "transposed": transposed}, shared)

    def _along(self, group: dict[str, Any], stacks: list[Tensor], rounded: torch.dtype) -> list[Tensor]:
        return [unit_lines(x, self._axis) for x in stacks]

    def _squares(self, rows: int, columns: int) -> int:
        return rows if self._axis == 2 else columns


class RowDescent(_LineDescent):
    """Steps of length lr for each row of a weight matrix: the gradient with each row divided by its length.

    A linear layer stores the transposed matrix: the rows of its weight (H·m, d) are the columns of the keys K_h (d, m).
    So short steps of this optimiser on two linear layers maximise the margin in the nuclear norm of W = KQ'.

    Parameters
    ----------
    params, lr, momentum, nesterov, weight_decay, maximize, nonfinite, foreach, compiled
        As in :class:`attsvm.torch.MirrorDescent`; a vector is normalised as a whole.
    scale, heads, blocks, fused, flatten, transposed
        As in :class:`attsvm.torch.SpectralDescent`; "match_rms" is the factor 0.2·√c here, of a matrix (r, c).
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
    """Steps of length lr for each column of a weight matrix: the gradient with each column divided by its length.

    A linear layer stores the transposed matrix: the columns of the m rows of a head in its weight (H·m, d) are the rows
    of the keys K_h (d, m). So short steps of this optimiser on two linear layers, with ``heads``, maximise the margin
    in the γ2 norm of W = KQ'.

    Parameters
    ----------
    params, lr, momentum, nesterov, weight_decay, maximize, nonfinite, foreach, compiled
        As in :class:`attsvm.torch.MirrorDescent`; a vector is normalised as a whole.
    scale, heads, blocks, fused, flatten, transposed
        As in :class:`attsvm.torch.SpectralDescent`; "match_rms" is the factor 0.2·√r here, of a matrix (r, c).
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


def unit_lines(matrices: Tensor, axes: int | tuple[int, int]) -> Tensor:
    """Lines along an axis, or matrices along two, each over its ℓ2 length; zeros stay zero."""
    matrices = without_scale(matrices, axes)
    lengths = torch.linalg.vector_norm(matrices, dim=axes, keepdim=True)
    return matrices / torch.where(lengths > 0, lengths, 1.0)


def without_scale(matrices: Tensor, axes: int | tuple[int, int] = (-2, -1)) -> Tensor:
    """Lines or matrices of (k, r, c), each over its largest entry, so that squares do not underflow."""
    largest = matrices.abs().amax(dim=axes, keepdim=True)
    return matrices / torch.where(largest > 0, largest, 1.0)
