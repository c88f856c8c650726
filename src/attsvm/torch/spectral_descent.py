"""Spectral descent: steepest descent in the spectral norm, along the polar factor of each matrix."""

from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.matrix_descent import MatrixDescent, unit_lines
from attsvm.torch.optimizer import SharedOptions
from attsvm.torch.sharding import is_finite

_MUON = (3.4445, -4.7750, 2.0315)
_OF_PRODUCTS = (torch.bfloat16, torch.float32, torch.float64)
_OF_GRADIENTS = (torch.bfloat16, torch.float16)


class SpectralDescent(MatrixDescent):
    """Steps along UV' of the gradient UΣV' (or of its momentum's): steepest descent in the spectral norm.

    w ← w − lr·UV', b = UΣV' ← momentum·b + g. Every singular direction that the gradient has moves by lr.

    Parameters
    ----------
    params, lr, momentum, nesterov, weight_decay, maximize, nonfinite, foreach, compiled
        As in :class:`attsvm.torch.MirrorDescent`. A tensor of three or more axes (a convolution) is reshaped to the
        matrix (first axis, all others); a vector is one column, with the direction b/‖b‖.
    heads : int, default 1
        H: the first axis of each tensor holds H heads, and each is a matrix of its own. For the weight (H·m, d) of a
        linear layer these are its blocks of m rows; a tensor (H, d, m) has them along its first axis. For a projection
        to queries, keys and values in one weight, 3H.
    fused : bool, default False
        The heads are one matrix: (H·m, d), and [K_1, …, K_H] of a tensor (H, d, m).
    normalize : bool, default True
        False multiplies the step by the dual norm of each tensor, the sum of the nuclear norms ‖b‖_* of its matrices.
    iterations : int or None, default None
        None: exact, by a singular value decomposition in float32 (float64 for float64 weights), of the singular values
        that exceed the rounding errors of the gradient: eps of its dtype times the largest one. A number: that many
        Newton-Schulz iterations. They are much faster on large matrices, and give singular values near 1 (after five
        iterations between about 0.7 and 1.2).
    coefficients : tuple of float, default (3.4445, -4.775, 2.0315)
        a, b and c of an iteration X ← aX + (bXX' + c(XX')²)X. With (2, -1.5, 0.5) singular values converge to 1.
    dtype : torch.dtype, str or None, default None
        Of the products of the iterations; None is that of the state. ``torch.bfloat16`` is several times as fast where
        the processor multiplies in it, and changes the direction by about 1 %. With 5 iterations it is the direction of
        `torch.optim.Muon`. Without iterations, the dtype whose rounding errors the gradient has; None is its own. Under
        autocast it is a float32 tensor with the rounding errors of ``torch.bfloat16`` or ``torch.float16``.

    Raises
    ------
    ValueError
        If an option is out of range or a parameter is complex.
    RuntimeError
        If a parameter is sharded over processes, because its singular vectors cannot be computed from a shard.

    See Also
    --------
    attsvm.torch.SignDescent, attsvm.torch.RowDescent
    attsvm.optimizers.spectral_descent : In JAX, for ``attsvm.train``.

    Notes
    -----
    For float16 and bfloat16 weights the state holds float32 weights. Convergence in direction to the spectral Att-SVM
    is known for linear models and a conjecture for attention.

    References
    ----------
    Carlson, Cevher and Carin (2015), *Stochastic Spectral Descent for Restricted Boltzmann Machines*; the iteration's
    coefficients are those of Jordan et al. (2024), *Muon: An optimizer for hidden layers in neural networks*.

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import SpectralDescent
    >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
    >>> weight.grad = torch.diag(torch.tensor([3.0, 0.5]))
    >>> SpectralDescent([weight], lr=0.25).step()
    >>> weight.data.round(decimals=3) + 0.0
    tensor([[-0.2500,  0.0000],
            [ 0.0000, -0.2500]])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        *,
        heads: int = 1,
        fused: bool = False,
        normalize: bool = True,
        iterations: int | None = None,
        coefficients: Sequence[float] = _MUON,
        dtype: torch.dtype | str | None = None,
        **shared: Unpack[SharedOptions],
    ) -> None:
        own: dict[str, Any] = {"lr": lr, "heads": heads, "fused": fused, "normalize": normalize}
        own |= {"iterations": iterations, "coefficients": coefficients, "dtype": dtype}
        super().__init__(params, own, shared)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        dtype = group["dtype"]
        known = _OF_GRADIENTS if group["iterations"] is None else _OF_PRODUCTS
        if dtype is not None and dtype not in known:
            names = " or ".join(map(str, known))
            raise ValueError(f"dtype: expected None or {names} with iterations={group['iterations']}, got {dtype!r}")

    def _along(self, group: dict[str, Any], matrices: Tensor, rounded: torch.dtype) -> Tensor:
        if min(matrices.shape[1:]) == 1:
            return unit_lines(matrices, (-2, -1))
        dtype = group["dtype"]
        if group["iterations"] is None:
            return exact_polar_factor(matrices, dtype or rounded)
        return newton_schulz(matrices, group["iterations"], group["coefficients"], dtype or matrices.dtype)


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
