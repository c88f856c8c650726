"""Learning rates of the optimisers here from good learning rates of SGD or Adam.

Mirror descent moves a weight by about lr·|w|^(2−p)/(p−1)·g, the slope of the link times the step of z; the other
optimisers move it by lr·D(g). SGD moves it by lr·g, Adam by about lr. The rate is that at which the typical movements
are equal. Use it as the start of a search.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.gradients import name_of
from attsvm.torch.link import Link
from attsvm.torch.mirror_descent import MirrorDescent
from attsvm.torch.optimizer import MIRROR, MirrorOptimizer
from attsvm.torch.options import number
from attsvm.torch.sharding import is_finite


def lr_from_sgd(
    parameters: ParamsT,
    lr: float,
    p: float | None = None,
    *,
    optimizer: type[MirrorOptimizer] = MirrorDescent,
    **options: Any,
) -> float:
    """The lr at which the first step of an optimiser is about as long as that of SGD.

    Parameters
    ----------
    parameters : iterable
        Parameters, named parameters or parameter groups, with the gradients of a representative batch in ``.grad``.
        Parameters without a gradient, or whose gradient is zero, are left out. So are, for mirror descent, those that
        are zero (such as initial biases), if there are others. The ``lr`` of a group is not used, and groups with
        different options need a rate each.
    lr : float
        Learning rate of SGD, without momentum or with the same momentum.
    p : float, optional
        Of :class:`attsvm.torch.MirrorDescent`, with its default.
    optimizer : type, default MirrorDescent
        Or :class:`attsvm.torch.SignDescent`, :class:`attsvm.torch.SpectralDescent`, :class:`attsvm.torch.RowDescent`,
        :class:`attsvm.torch.ColumnDescent`.
    **options
        Options of the optimiser that change the length of its steps, such as ``normalize``, ``momentum`` or ``heads``.
        With momentum m a gradient moves the weights 1/(1 − m) times as far in all; with normalised steps √((1 + m)/(1 −
        m)) times, if gradients are mostly noise.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If no parameter has a usable gradient, a gradient is not finite, an option is out of range, or the options of
        the groups differ.

    See Also
    --------
    attsvm.torch.lr_from_adam, attsvm.torch.MirrorDescent

    Notes
    -----
    If all weights that have gradients are zero, as those of LoRA at the start, a rate of mirror descent is that at
    which they leave zero: their first step has the length of SGD's. Give them a parameter group of their own, as other
    weights may need a much smaller rate for p < 2.

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import SpectralDescent, lr_from_sgd
    >>> weight = torch.nn.Parameter(torch.full((4, 1), 0.5))
    >>> weight.grad = torch.full((4, 1), 0.1)
    >>> round(lr_from_sgd([weight], 0.1, p=1.1), 4)
    0.0187
    >>> round(lr_from_sgd([weight], 0.1, optimizer=SpectralDescent), 4)
    0.02
    """
    return _matched(parameters, lr, p, optimizer, options, adam=False)


def lr_from_adam(
    parameters: ParamsT,
    lr: float,
    p: float | None = None,
    *,
    optimizer: type[MirrorOptimizer] = MirrorDescent,
    **options: Any,
) -> float:
    """The lr at which the first step of an optimiser is about as long as that of Adam.

    Parameters, result and errors are those of :func:`lr_from_sgd`, with the learning rate of Adam. ``momentum`` is that
    of the optimiser here.

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
    return _matched(parameters, lr, p, optimizer, options, adam=True)


def _matched(
    parameters: ParamsT,
    lr: float,
    p: float | None,
    optimizer: type[MirrorOptimizer],
    options: dict[str, Any],
    *,
    adam: bool,
) -> float:
    if not (isinstance(optimizer, type) and issubclass(optimizer, MirrorOptimizer)):
        raise ValueError(f"optimizer: expected a class of attsvm.torch such as SpectralDescent, got {optimizer!r}")
    if not 0.0 < number(lr) < math.inf:
        raise ValueError(f"lr: expected a number > 0, got {lr!r}")
    made: Any = optimizer
    # checks parameters and options
    made = made(parameters, lr=1.0, **options, **({} if p is None else {"p": p}))
    rates: list[tuple[int, float]] = []
    rates_from_zero: list[tuple[int, float]] = []
    # groups for AdamW have its rate already
    own_groups = [(position, group) for position, group in enumerate(made.param_groups) if not group["adamw"]]
    if not own_groups:
        raise ValueError("parameters: expected some outside of the groups with adamw=True")
    first = own_groups[0][1]
    for position, group in own_groups:
        _check_equal(first, group)
        given = _gradients(made, position, group)
        gradients = [gradient.double() for _, gradient in given]
        wanted = [float(lr) * (1.0 if adam else _rms(gradient)) for gradient in gradients]
        if not isinstance(made, MirrorDescent):
            moved = _moved(made, group, given)
            rates += [(x.numel(), length / rms) for x, length, rms in zip(gradients, wanted, moved, strict=True)]
            continue
        for (parameter, _), direction, length in zip(given, _directions(group, gradients), wanted, strict=True):
            size, link = _rms(parameter.detach().double()), made._link(group)
            if size > 0.0 or link.linear:
                rates.append((parameter.numel(), length / (link.slope(size) * _rms(direction))))
            else:
                rates_from_zero.append((parameter.numel(), _rate_from_zero(direction, length, link.p - 1.0)))
    if not (rates or rates_from_zero):
        raise ValueError("parameters: expected nonzero gradients; call backward() first")
    # each gradient moves the weights by lr·g/(1 − momentum) in all, for SGD as well
    grows = 1.0 / (1.0 - first["momentum"])
    own = _growth(first)
    return _geometric_mean(rates or rates_from_zero) * (1.0 if adam else grows) / own


def _growth(group: dict[str, Any]) -> float:
    """How many times as far a gradient moves the weights in all, with momentum."""
    momentum = group["momentum"]
    # gradients of independent noise of variance σ² have b of variance σ²/(1 − momentum²), which normalising divides by
    return math.sqrt((1.0 + momentum) / (1.0 - momentum)) if group["normalize"] else 1.0 / (1.0 - momentum)


def rate_of_weights(
    count: int, size: float, lr: float, optimizer: type[MirrorOptimizer], options: dict[str, Any]
) -> float:
    """The lr at which steps are about as long as those of AdamW, if gradients have independent normal entries.

    ``count`` and ``size``: number of entries of a tensor, and their root mean square. ``optimizer``: mirror descent or
    sign descent.
    """
    group = {"normalize": True, "momentum": 0.0, "linear": 0.0, **options}
    if not issubclass(optimizer, MirrorDescent):
        return lr / _growth(group)
    if not group["normalize"]:
        raise ValueError("normalize: expected True, because no gradient is given; see lr_from_adam")
    p = float(group["p"])
    q = p / (p - 1.0)
    # ‖g‖_q = (n·E|x|^q)^(1/q), and E|x|^q of a normal x
    moment = 0.5 * q * math.log(2.0) + math.lgamma(0.5 * (q + 1.0)) - 0.5 * math.log(math.pi)
    norm = math.exp((math.log(count) + moment) / q)
    return lr * norm / Link(p, float(group["linear"])).slope(size) / _growth(group)


def _check_equal(first: dict[str, Any], group: dict[str, Any]) -> None:
    for name in ("p", "normalize", "scope", "momentum"):
        if group.get(name) != first.get(name):
            raise ValueError(
                f"{name}: expected one value for all groups, got {first[name]!r} and {group[name]!r}; compute the rate "
                "of each group"
            )


def _gradients(made: MirrorOptimizer, position: int, group: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """The parameters of a group that have a nonzero gradient, with it."""
    given = [(i, x, x.grad.detach()) for i, x in enumerate(group["params"]) if x.grad is not None]
    made._check_gradients(group, given)
    for index, _, gradient in given:
        if not is_finite(gradient):
            raise ValueError(f"parameters: expected finite gradients, got that of {name_of(group, position, index)}")
    return [(x, gradient) for _, x, gradient in given if gradient.any()]


def _moved(made: MirrorOptimizer, group: dict[str, Any], given: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The typical movement of a weight, in units of lr, by a step that does not depend on the weights."""
    taken = {name: group[name] for name in made.defaults if name not in _OF_LATER_STEPS}
    probes = []
    for parameter, gradient in given:
        probe = torch.nn.Parameter(torch.zeros_like(parameter))
        probe.grad = gradient
        probes.append(probe)
    if not probes:
        return []
    kind: Any = type(made)
    trial = kind(probes, **{**taken, "lr": 1.0, "compiled": False, "nonfinite": "unchecked"})
    trial.step()
    # half precision rounds the weights and not their mirror variable
    return [_rms(trial.state[x].get(MIRROR, x.detach()).double()) for x in probes]


_OF_LATER_STEPS = ("momentum", "nesterov", "weight_decay", "maximize", "foreach", "adamw", "betas", "eps")


def _directions(group: dict[str, Any], gradients: list[Tensor]) -> list[Tensor]:
    """The steps of mirror variables, in units of lr."""
    if not (group["normalize"] and gradients):
        return gradients
    q = float(group["p"]) / (float(group["p"]) - 1.0)
    norms = torch.stack([_norm(x, q) for x in gradients])
    norms = _norm(norms, q).expand_as(norms) if group["scope"] == "all" else norms
    return [x / norm for x, norm in zip(gradients, norms, strict=True)]


def _rate_from_zero(direction: Tensor, length: float, exponent: float) -> float:
    """The rate at which the weights (lr·|d|)^(1/exponent) after a step from zero have a typical size."""
    largest = direction.abs().max()
    relative = _rms((direction.abs() / largest) ** (1.0 / exponent))
    return float((length / relative) ** exponent / float(largest))


def _geometric_mean(rates: list[tuple[int, float]]) -> float:
    # over entries, it weights a tensor by its size and not by its scale
    return math.exp(sum(n * math.log(rate) for n, rate in rates) / sum(n for n, _ in rates))


def _rms(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt())


def _norm(tensor: Tensor, q: float) -> Tensor:
    largest = tensor.abs().max()
    found: Tensor = largest * torch.linalg.vector_norm(tensor / largest, q)
    return found
