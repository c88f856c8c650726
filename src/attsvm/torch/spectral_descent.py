"""Spectral descent: steepest descent in the spectral norm, along the polar factor of each matrix."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.matrix_descent import MatrixDescent, Scale, unit_lines, without_scale
from attsvm.torch.optimizer import SharedOptions
from attsvm.torch.sharding import is_finite

_MUON = (3.4445, -4.7750, 2.0315)
_OF_PRODUCTS = (torch.bfloat16, torch.float32, torch.float64)
_OF_GRADIENTS = (torch.bfloat16, torch.float16)


class SpectralDescent(MatrixDescent):
    """Steps along UV' for the gradient UΣV' (or its momentum): steepest descent in the spectral norm.

    w ← w − lr·UV', b = UΣV' ← momentum·b + g. Every singular direction that the gradient has moves by lr.

    Parameters
    ----------
    params, lr, momentum, nesterov, weight_decay, maximize, nonfinite, foreach, compiled
        As in :class:`attsvm.torch.MirrorDescent`, and so are ``adamw``, ``betas`` and ``eps``. A vector is one column,
        with the direction b/‖b‖.
    normalize : bool, default True
        False multiplies the step by the dual norm of each tensor, the sum of the nuclear norms ‖b‖_* of its matrices.
    scale : {None, "match_rms", "muon"}, default None
        A factor of the step of each matrix (r, c). "match_rms": 0.2·√max(r, c), so that steps are about as long as
        those of AdamW and its learning rates fit. "muon": √max(1, r/c). They are "match_rms_adamw" and "original" of
        `torch.optim.Muon`.
    heads : int or tuple of int, default 1
        The rows of each matrix are this number of blocks of equal size, and each is a matrix of its own. For the weight
        (H·m, d) of a linear layer these are its heads of m rows. For queries, keys and values in one weight 3H, or
        (H, g, g) with keys and values of g groups of heads.
    blocks : tuple of int, optional
        In place of heads: the number of rows of each block.
    fused : bool, default False
        The heads of a tensor (H, d, m) are one matrix, [K_1, …, K_H]; with ``heads=1`` only, because those of a weight
        (H·m, d) then are one matrix anyway. It says nothing about speed, unlike ``fused`` of `torch.optim.AdamW`.
    flatten : bool or None, default None
        How a tensor of three or more axes is read: True as the matrix (first axis, all others), as for a convolution,
        False as a batch of matrices in the last two axes, as for experts (E, r, c). None is False, with a warning if
        the shape is that of a convolution.
    transposed : bool, default False
        The weight is stored as (inputs, outputs), as in GPT-2: heads are blocks of columns.
    iterations : int or None, default 5
        Number of Newton-Schulz iterations. They give singular values near 1 (after five iterations between about 0.7
        and 1.2). None: exact, by a singular value decomposition in float32 (float64 for float64 weights), of the
        singular values that exceed the rounding errors of the gradient: eps of its dtype times the largest one. Its
        decompositions are slow on accelerators.
    coefficients : tuple of float, default (3.4445, -4.775, 2.0315)
        a, b and c of an iteration X ← aX + (bXX' + c(XX')²)X. With (2, -1.5, 0.5) singular values converge to 1.
    dtype : torch.dtype, str or None, default "auto"
        Of the products of the iterations. None is that of the state (float32 or wider), and so is "auto" on the CPU; on
        accelerators "auto" is ``torch.bfloat16`` for float32, which changes the direction by about 1 %. Without
        iterations, the dtype whose rounding errors the gradient has; None and "auto" are its own. Under autocast it is
        a float32 tensor with the rounding errors of ``torch.bfloat16`` or ``torch.float16``.

    Raises
    ------
    ValueError
        If an option is out of range or a parameter is complex.
    RuntimeError
        If a parameter is sharded over processes, because its singular vectors cannot be computed from a shard.

    See Also
    --------
    attsvm.torch.param_groups_of : Groups of a whole transformer, with AdamW where there are no hidden matrices.
    attsvm.torch.SignDescent, attsvm.torch.RowDescent
    attsvm.optimizers.spectral_descent : In JAX, for ``attsvm.train``.

    Notes
    -----
    For float16 and bfloat16 weights the state holds float32 weights. Convergence in direction to the spectral Att-SVM
    is known for linear models with ``iterations=None``, and a conjecture for attention. With the coefficients of Muon
    the direction is not the polar factor, and the limit is measured only.

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
    >>> SpectralDescent([weight], lr=0.25, iterations=None).step()
    >>> weight.data.round(decimals=3) + 0.0
    tensor([[-0.2500,  0.0000],
            [ 0.0000, -0.2500]])
    """

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
        iterations: int | None = 5,
        coefficients: Sequence[float] = _MUON,
        dtype: torch.dtype | str | None = "auto",
        **shared: Unpack[SharedOptions],
    ) -> None:
        own: dict[str, Any] = {"lr": lr, "normalize": normalize, "scale": scale, "heads": heads, "blocks": blocks}
        own |= {"fused": fused, "flatten": flatten, "transposed": transposed}
        own |= {"iterations": iterations, "coefficients": coefficients, "dtype": dtype}
        super().__init__(params, own, shared)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        dtype = group["dtype"]
        known = _OF_GRADIENTS if group["iterations"] is None else _OF_PRODUCTS
        if dtype not in (None, "auto", *known):
            names = " or ".join(map(str, known))
            raise ValueError(
                f"dtype: expected None or 'auto' or {names} with iterations={group['iterations']}, got {dtype!r}"
            )

    def _along(self, group: dict[str, Any], stacks: list[Tensor], rounded: torch.dtype) -> list[Tensor]:
        given = None if group["dtype"] == "auto" else group["dtype"]
        iterations, coefficients = group["iterations"], group["coefficients"]
        found: dict[int, Tensor] = {}
        together: dict[tuple[int, int], list[int]] = {}
        for i, stack in enumerate(stacks):
            _, rows, columns = stack.shape
            if min(rows, columns) == 1:
                found[i] = unit_lines(stack, (-2, -1))
            elif iterations is None:
                found[i] = exact_polar_factor(without_scale(stack), given or rounded)
            else:
                together.setdefault((rows, columns), []).append(i)
        for alike in together.values():
            stack = stacks[alike[0]]
            on_accelerator = group["dtype"] == "auto" and stack.device.type != "cpu" and stack.dtype == torch.float32
            dtype = torch.bfloat16 if on_accelerator else given or stack.dtype
            for some in _batches(alike, stacks, dtype):
                joined = stacks[some[0]] if len(some) == 1 else torch.cat([stacks[i] for i in some])
                factors = newton_schulz(joined, iterations, coefficients, dtype)
                found.update(zip(some, torch.split(factors, [len(stacks[i]) for i in some]), strict=True))
        return [found[i] for i in range(len(stacks))]

    def _squares(self, rows: int, columns: int) -> int:
        return min(rows, columns)


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
    """X ← aX + (bXX' + c(XX')²)X, a number of times from X = G/‖G‖_F, in a dtype."""
    lengths = torch.linalg.matrix_norm(matrices, keepdim=True)
    # on accelerators reading a number would wait for the device
    low, high = map(float, torch.aminmax(lengths)) if matrices.device.type == "cpu" else (0.0, 0.0)
    if not (_SAFE[0] < low and high < _SAFE[1]):
        matrices = without_scale(matrices)
        lengths = torch.linalg.matrix_norm(matrices, keepdim=True)
        lengths = torch.where(lengths > 0, lengths, 1.0)
    tall = matrices.shape[1] > matrices.shape[2]
    wide: Tensor = matrices.mT if tall else matrices
    wide = wide / lengths if wide.dtype == dtype else wide.to(dtype).div_(lengths.to(dtype))
    if _apart(wide.shape, dtype, wide.device):
        found = [_iterated(x, torch.addmm, iterations, coefficients) for x in wide]
        wide = found[0][None] if len(found) == 1 else torch.stack(found)
    else:
        wide = _iterated(wide, torch.baddbmm, iterations, coefficients)
    return wide.mT if tall else wide


_SAFE = 1e-15, 1e15
"""Squares of smaller or larger lengths are not safe from underflow and overflow in float32."""


def _iterated(
    x: Tensor, plus_product: Callable[..., Tensor], iterations: int, coefficients: tuple[float, float, float]
) -> Tensor:
    # the shipped ones: the odd polynomial whose slope at 0 is steepest among those that keep [0, 1] near 1
    a, b, c = coefficients
    for _ in range(iterations):
        gram = x @ x.mT
        x = plus_product(x, plus_product(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _apart(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> bool:
    """Whether products of matrices (k, r, c), r ≤ c, take less time one after the other than as a batch."""
    count, rows, columns = shape
    # measured: on CPUs a batch of small products pays in bfloat16, and elsewhere for very small ones only
    return count == 1 or (
        device.type == "cpu" and rows**2 * columns >= (1 << 22 if dtype == torch.bfloat16 else 1 << 20)
    )


def _batches(alike: list[int], stacks: list[Tensor], dtype: torch.dtype) -> list[list[int]]:
    """Stacks of one shape, given by number, that take their products together."""
    first = stacks[alike[0]]
    rows, columns = sorted(first.shape[1:])
    if _apart((2, rows, columns), dtype, first.device):
        return [[i] for i in alike]
    # larger batches leave the caches of a CPU
    most, entries = 1 << 19 if first.device.type == "cpu" else 1 << 24, math.inf
    batches: list[list[int]] = []
    for i in alike:
        if entries + stacks[i].numel() > most:
            batches.append([])
            entries = 0
        batches[-1].append(i)
        entries += stacks[i].numel()
    return batches
