"""Learning rates of mirror descent from good learning rates of SGD or Adam.

Mirror descent moves a weight by about lr·|w|^(2−p)/(p−1)·g, the slope of the link times the step of z. SGD moves it by
lr·g, Adam by about lr. The rate is that at which the typical movements are equal. Use it as the start of a search.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def lr_from_sgd(parameters: Iterable[Tensor], lr: float, p: float = 1.1, *, normalize: bool = False) -> float:
    """The lr at which the first step of mirror descent is about as long as that of SGD.

    Parameters
    ----------
    parameters : iterable of Tensor
        Weights, with the gradients of a representative batch in ``.grad``. Parameters without a gradient, and those
        that are zero (such as initial biases), are left out.
    lr : float
        Learning rate of SGD, without momentum or with the same momentum.
    p, normalize
        Options of :class:`attsvm.torch.MirrorDescent`; the norm is that of each tensor.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If no parameter has both weights and gradients.

    See Also
    --------
    attsvm.torch.lr_from_adam, attsvm.torch.MirrorDescent

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import lr_from_sgd
    >>> weight = torch.nn.Parameter(torch.full((4,), 0.5))
    >>> weight.grad = torch.full((4,), 0.1)
    >>> round(lr_from_sgd([weight], 0.1, p=1.1), 4)
    0.0187
    """
    return _matched(parameters, p, normalize, lambda gradient: lr * _rms(gradient))


def lr_from_adam(parameters: Iterable[Tensor], lr: float, p: float = 1.1, *, normalize: bool = False) -> float:
    """The lr at which the first step of mirror descent is about as long as that of Adam.

    Parameters, result and errors are those of :func:`lr_from_sgd`, with the learning rate of Adam.

    See Also
    --------
    attsvm.torch.lr_from_sgd, attsvm.torch.MirrorDescent

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import lr_from_adam
    >>> model = torch.nn.Linear(4, 2)
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> lr_from_adam([model.weight], 1e-3, p=1.5) > 0
    True
    """
    return _matched(parameters, p, normalize, lambda gradient: lr)


def _matched(parameters: Iterable[Tensor], p: float, normalize: bool, step_length: Callable[[Tensor], float]) -> float:
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
        # the mean of logarithms over entries weights a tensor by its size and not by its scale
        logarithm += parameter.numel() * (math.log(step_length(gradient)) - math.log(unit_move))
        count += parameter.numel()
    if count == 0:
        raise ValueError("parameters: expected nonzero weights with nonzero gradients, got none; call backward() first")
    return math.exp(logarithm / count)


def _rms(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt())


def _dual_norm(gradient: Tensor, p: float) -> float:
    largest = gradient.abs().max()
    return float(largest * torch.linalg.vector_norm(gradient / largest, p / (p - 1.0)))
