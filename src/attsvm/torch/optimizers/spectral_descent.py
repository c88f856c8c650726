"""Spectral descent: steepest descent in the spectral norm of each weight matrix."""

from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.optimizers.batches import Batch, Given, Shaped
from attsvm.torch.optimizers.optimizer import MirrorOptimizer
from attsvm.torch.optimizers.options import SharedOptions, check_number
from attsvm.torch.optimizers.sharding import sharding_of


class SpectralDescent(MirrorOptimizer):
    """Steps along UV' of the gradient UΣV' (or of its momentum's): steepest descent in the spectral norm.

    w ← w − lr·UV', b = UΣV' ← momentum·b + g. Every singular direction that the gradient has moves by lr.

    Parameters
    ----------
    params, lr, momentum, nesterov, weight_decay, maximize, nonfinite, foreach, compiled
        As in :class:`attsvm.torch.MirrorDescent`. A tensor of three or more axes (a convolution) is reshaped to the
        matrix (first axis, all others); a vector is one column, with the direction b/‖b‖.
    normalize : bool, default True
        False multiplies the step by the dual norm of each tensor, the nuclear norm ‖b‖_*.
    iterations : int or None, default None
        None: exact, by a singular value decomposition in float32 (float64 for float64 weights). A number: that many
        Newton-Schulz iterations. They are much faster on large matrices, and give singular values near 1 (after five
        iterations between about 0.7 and 1.2).

    Raises
    ------
    ValueError
        If an option is out of range or a parameter is complex.
    RuntimeError
        If a parameter is sharded over processes, because its singular vectors cannot be computed from a shard.

    Notes
    -----
    For float16 and bfloat16 weights the state holds float32 weights. Convergence in direction to the spectral Att-SVM
    is known for linear models and a conjecture for attention.

    References
    ----------
    Carlson, Cevher and Carin (2015), *Stochastic Spectral Descent for Restricted Boltzmann Machines*; the iteration's
    coefficients are those of Jordan et al. (2024), *Muon: An optimizer for hidden layers in neural networks*.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        *,
        normalize: bool = True,
        iterations: int | None = None,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(params, {"lr": lr, "normalize": normalize, "iterations": iterations}, shared)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        if group["iterations"] is not None:
            check_number("iterations", group["iterations"], 1, 100)

    def _check_gradients(self, given: list[Given]) -> None:
        super()._check_gradients(given)
        if any(sharding_of(parameter).split for _, parameter, _ in given):
            raise RuntimeError(
                "SpectralDescent: expected whole matrices, got a parameter that is sharded over processes"
            )

    def _elementwise(self, group: dict[str, Any]) -> bool:
        return False

    def _directions(
        self, group: dict[str, Any], batches: list[Batch], directions: list[list[Tensor]], lr: float
    ) -> list[Shaped]:
        shaped = []
        for tensors in directions:
            factors = [_polar_factor(x, group["iterations"]) for x in tensors]
            # ⟨b, UV'⟩ is the nuclear norm
            duals = [(x * y).sum() for x, y in zip(tensors, factors, strict=True)]
            ones = [torch.ones_like(dual) for dual in duals]
            shaped.append((factors, [lr * x for x in (ones if group["normalize"] else duals)], ones))
        return shaped


def _polar_factor(tensor: Tensor, iterations: int | None) -> Tensor:
    """UV' over the singular values above rounding errors, in the shape of the tensor."""
    if tensor.numel() == 0:
        return tensor
    matrix = tensor.reshape(tensor.shape[0], -1) if tensor.ndim > 1 else tensor.reshape(-1, 1)
    # UV' does not depend on the scale, but its square must not underflow
    largest = matrix.abs().max()
    matrix = matrix / torch.where(largest > 0, largest, 1.0)
    if min(matrix.shape) == 1:
        factor = matrix / torch.linalg.vector_norm(matrix).clamp(min=torch.finfo(matrix.dtype).tiny)
    elif iterations is None:
        factor = _exact_factor(matrix)
    else:
        factor = _newton_schulz(matrix, iterations)
    shaped: Tensor = factor.reshape(tensor.shape).contiguous()
    return shaped


def _exact_factor(matrix: Tensor) -> Tensor:
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    kept = values > values[0] * max(matrix.shape) * torch.finfo(matrix.dtype).eps
    factor: Tensor = (left * kept) @ right
    return factor


def _newton_schulz(matrix: Tensor, iterations: int) -> Tensor:
    # the odd polynomial whose slope at 0 is steepest among those that keep [0, 1] near 1 (Jordan et al., 2024)
    a, b, c = 3.4445, -4.7750, 2.0315
    wide: Tensor = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
    wide = wide / torch.linalg.matrix_norm(wide).clamp(min=torch.finfo(wide.dtype).tiny)
    for _ in range(iterations):
        gram = wide @ wide.mT
        wide = a * wide + (b * gram + c * (gram @ gram)) @ wide
    return wide if matrix.shape[0] <= matrix.shape[1] else wide.mT
