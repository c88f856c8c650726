"""Directions of matrices (k, r, c): of a tensor's matrices, or those of its heads, each to a matrix of norm 1."""

from collections.abc import Callable

import torch
from torch import Tensor

from attsvm.torch.optimizers.sharding import is_finite


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


def exact_polar_factor(matrices: Tensor, rounded: torch.dtype) -> Tensor:
    """UV' over the singular values above rounding errors, those of the decomposition and those of a dtype."""
    if not is_finite(matrices):  # the decomposition would raise in the middle of a step
        return torch.full_like(matrices, torch.nan)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    # independent rounding errors of all entries have a spectral norm below eps·σ₁ (half of it in measurements)
    eps = max(max(matrices.shape[1:]) * torch.finfo(matrices.dtype).eps, torch.finfo(rounded).eps)
    kept = values > eps * values[:, :1]
    factors: Tensor = (left * kept[:, None, :]) @ right
    return factors


def newton_schulz(
    matrices: Tensor, iterations: int, coefficients: tuple[float, float, float], dtype: torch.dtype
) -> Tensor:
    """X ← aX + (bXX' + c(XX')²)X, a number of times from X = G/‖G‖_F, with products in a dtype."""
    # the shipped ones: the odd polynomial whose slope at 0 is steepest among those that keep [0, 1] near 1
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    wide: Tensor = matrices.mT if tall else matrices
    lengths = torch.linalg.matrix_norm(wide, keepdim=True)
    wide = (wide / lengths.clamp(min=torch.finfo(wide.dtype).tiny)).to(dtype)
    # products of single matrices take less time outside a batch
    single = len(wide) == 1
    wide, plus_product = (wide[0], torch.addmm) if single else (wide, torch.baddbmm)
    for _ in range(iterations):
        gram = wide @ wide.mT
        wide = plus_product(wide, plus_product(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    wide = (wide[None] if single else wide).to(matrices.dtype)
    return wide.mT if tall else wide
