"""What learning rate mirror descent wants where SGD or Adam had a good one.

Mirror descent moves a weight by about lr·|w|^(2−p)/(p−1)·g, the slope of the link times the step of z; SGD moves it by
lr·g, Adam by about lr. Equal typical movement gives the rate: a start for a search, not its end.
"""

import math
from collections.abc import Callable, Iterable

from torch import Tensor

from attsvm.torch.optimizers import norms


def lr_from_sgd(parameters: Iterable[Tensor], lr: float, p: float = 1.1, *, normalize: bool = False) -> float:
    """The lr at which mirror descent first moves weights as far as SGD does with its own.

    Parameters
    ----------
    parameters : iterable of Tensor
        Weights, with the gradients of a representative batch in ``.grad``. Those without a gradient, or of zeros
        only (biases at the start), say nothing and are left out.
    lr : float
        SGD's learning rate (without momentum, or both with the same).
    p, normalize
        As :class:`attsvm.torch.MirrorDescent` will be given them; the norm per tensor.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If no parameter has both weights and gradients.
    """
    return _matched(parameters, p, normalize, lambda gradient: lr * _rms(gradient))


def lr_from_adam(parameters: Iterable[Tensor], lr: float, p: float = 1.1, *, normalize: bool = False) -> float:
    """The lr at which mirror descent first moves weights as far as Adam does with its own: by lr.

    Parameters, result and errors as :func:`lr_from_sgd`.
    """
    return _matched(parameters, p, normalize, lambda gradient: lr)


def _matched(parameters: Iterable[Tensor], p: float, normalize: bool, wanted: Callable[[Tensor], float]) -> float:
    logarithm, count = 0.0, 0
    for parameter in parameters:
        if parameter.grad is None:
            continue
        weights, gradient = parameter.detach().double(), parameter.grad.detach().double()
        size, slope = _rms(weights), _rms(gradient)
        if size == 0.0 or slope == 0.0:
            continue
        length = slope / _dual_norm(gradient, p) if normalize else slope
        unit_move = size ** (2.0 - p) / (p - 1.0) * length
        # the mean of logarithms over entries: a tensor counts by its size, and none by its scale
        logarithm += parameter.numel() * (math.log(wanted(gradient)) - math.log(unit_move))
        count += parameter.numel()
    if count == 0:
        raise ValueError("parameters: none has weights and a gradient other than zero; call backward() first")
    return math.exp(logarithm / count)


def _rms(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt())


def _dual_norm(gradient: Tensor, p: float) -> float:
    q = p / (p - 1.0)
    largest = norms.largest_entries([gradient])
    return float(largest[0] * norms.power_sums([gradient], largest, q)[0] ** (1.0 / q))
