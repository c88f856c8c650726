"""Descent along a direction of each weight matrix, or of each head of it: spectral descent, and descent by lines.

The direction is that of steepest descent in the spectral norm, or the gradient with each row or column divided by its
length.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.optimizers.gradients import Given
from attsvm.torch.optimizers.matrix_directions import exact_polar_factor, newton_schulz, taken_apart, unit_lines
from attsvm.torch.optimizers.optimizer import MirrorOptimizer, SharedOptions, check_number
from attsvm.torch.optimizers.sharding import sharding_of
from attsvm.torch.optimizers.steps import Along, Batch


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

    def _directions(self, group: dict[str, Any], batches: list[Batch], momenta: list[list[Tensor]]) -> list[Along]:
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
    dtype : torch.dtype or None, default None
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
        dtype: torch.dtype | None = None,
        **shared: Unpack[SharedOptions],
    ) -> None:
        own: dict[str, Any] = {"lr": lr, "heads": heads, "fused": fused, "normalize": normalize}
        own |= {"iterations": iterations, "coefficients": tuple(coefficients), "dtype": dtype}
        super().__init__(params, own, shared)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        if group["iterations"] is not None:
            check_number("iterations", group["iterations"], 1, 100)
        if len(group["coefficients"]) != 3:
            raise ValueError(f"coefficients: expected three numbers, got {group['coefficients']!r}")
        dtype = group.get("dtype")  # absent from states that earlier versions have saved
        known = _OF_GRADIENTS if group["iterations"] is None else _OF_PRODUCTS
        if dtype is not None and dtype not in known:
            names = " or ".join(map(str, known))
            raise ValueError(f"dtype: expected None or {names} with iterations={group['iterations']}, got {dtype!r}")

    def _along(self, group: dict[str, Any], matrices: Tensor, rounded: torch.dtype) -> Tensor:
        if min(matrices.shape[1:]) == 1:
            return unit_lines(matrices, (-2, -1))
        dtype = group.get("dtype")
        if group["iterations"] is None:
            return exact_polar_factor(matrices, dtype or rounded)
        return newton_schulz(matrices, group["iterations"], group["coefficients"], dtype or matrices.dtype)
