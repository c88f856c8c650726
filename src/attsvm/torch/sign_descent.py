"""Sign descent: steepest descent in the ℓ∞ norm."""

from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.optimizer import MirrorOptimizer, SharedOptions
from attsvm.torch.steps import Along, TensorBatch, accumulate


class SignDescent(MirrorOptimizer):
    """Steps along the sign of the gradient (or of its momentum): steepest descent in the ℓ∞ norm.

    w ← w − lr·sign(b), b ← momentum·b + g. Every weight moves by lr. Suitable values of lr are those of Adam, because
    this is the update of Adam without its running second moment.

    Parameters
    ----------
    params, lr, momentum, nesterov, weight_decay, maximize, nonfinite, foreach, compiled
        As in :class:`attsvm.torch.MirrorDescent`.
    normalize : bool, default True
        False multiplies the step by the dual norm ‖b‖_1 of each tensor, the plain steepest descent.

    Raises
    ------
    ValueError
        If an option is out of range or a parameter is complex.

    See Also
    --------
    attsvm.torch.MirrorDescent, attsvm.torch.SpectralDescent
    attsvm.optimizers.steepest_descent : In JAX, for ``attsvm.train``.

    Notes
    -----
    For float16 and bfloat16 weights the state holds float32 weights. Convergence in direction to the ℓ∞ Att-SVM is
    known for linear models and a conjecture for attention.

    References
    ----------
    Bernstein, Wang, Azizzadenesheli and Anandkumar (2018), *signSGD: Compressed Optimisation for Non-Convex Problems*.

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import SignDescent
    >>> weight = torch.nn.Parameter(torch.ones(2, 2))
    >>> (weight * torch.tensor([[1.0, -2.0], [3.0, -4.0]])).sum().backward()
    >>> SignDescent([weight], lr=0.25).step()
    >>> weight.data
    tensor([[0.7500, 1.2500],
            [0.7500, 1.2500]])
    """

    _signs = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor, *, normalize: bool = True, **shared: Unpack[SharedOptions]
    ) -> None:
        super().__init__(params, {"lr": lr, "normalize": normalize}, shared)

    def _elementwise(self, group: dict[str, Any]) -> bool:
        return bool(group["normalize"])

    def _directions(self, group: dict[str, Any], batches: list[TensorBatch], scale: float) -> list[Along]:
        along = []
        for batch in batches:
            parts = accumulate(batch, scale, group["momentum"], group["nesterov"])
            # ‖b‖_1 is the dual norm
            sums = batch.sharding.total(torch.stack([x.abs().sum() for x in batch.apart(parts)]))
            along.append(Along([torch.sign(x) for x in parts], sums))
        return along
