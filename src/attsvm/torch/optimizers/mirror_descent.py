"""ℓp mirror descent: ∇ψ(w⁺) = ∇ψ(w) − lr·g with the potential ψ = (1/p)‖·‖_p^p."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.optimizers import compiled, norms
from attsvm.torch.optimizers.optimizer import Batch, MirrorOptimizer, Shaped

SCOPES = ("each", "all")


class MirrorDescent(MirrorOptimizer):
    r"""ℓp mirror descent, whose implicit bias is the ℓp norm: attention goes to the ℓp-AttSVM.

    .. math:: z \leftarrow z - \mathrm{lr}\, g, \qquad w \leftarrow \mathrm{sign}(z)\,|z|^{1/(p-1)},

    and with ``normalize`` g is divided by its dual norm ‖g‖_q, q = p/(p−1). The state is the mirror variable
    z = ∇ψ(w) = sign(w)\|w\|^(p−1): at p = 1.1 a weight is \|z\|^10, which underflows in float32 and would never come
    back if z were computed from it. p below 2 favours few large weights, p above 2 many of equal size; p = 2 is
    gradient descent.

    Parameters
    ----------
    params : iterable
        Parameters, named parameters or parameter groups, each of which may set any option but ``nonfinite``.
    lr : float or Tensor
        Length of a step in the mirror variable. It is not that of SGD or Adam: see :func:`attsvm.torch.lr_from_sgd`
        and :func:`attsvm.torch.lr_from_adam`.
    p : float, default 1.1
        Of the potential, 1 < p < ∞. No `pow` is needed where 4/(p−1) is a whole number (p = 1.05, 1.1, 1.2, 1.25, 1.5,
        2, 3, 5, ...).
    momentum : float, default 0
        b ← momentum·b + g, and the step is taken (and normalised) along b.
    nesterov : bool, default False
        The step is taken along g + momentum·b.
    weight_decay : float, default 0
        Decoupled: before the step w is multiplied by 1 − lr·weight_decay, as in AdamW and whatever p is. In mirror
        space that is z·(1 − lr·weight_decay)^(p−1), for ∇ψ is homogeneous of degree p − 1.
    normalize : bool, default False
        Divide by the ℓq norm, so that lr is the length of every step in that norm. A gradient of zeros moves nothing.
    scope : {"each", "all"}, default "each"
        What the norm spans: each tensor by itself, or all tensors of the parameter group.
    maximize : bool, default False
        Ascend.
    nonfinite : {"skip", "raise", "unchecked"}, default "skip"
        What to do where a gradient holds an infinity or a NaN. "skip" warns, counts it in ``skipped_steps`` and leaves
        weights and state as they are; "raise" raises and leaves them so too. Both wait for the device once a step.
        "unchecked" does not look. Under a GradScaler its own test is used instead, and nothing is said.
    foreach : bool or None, default None
        True updates many tensors at once, False one after the other, which takes less memory; None is True except for
        large tensors on the CPU, where False is faster. Without effect on compiled tensors.
    compiled : bool, default False
        Take the step in one pass over memory, in a kernel that `torch.compile` makes at the first step (some seconds,
        a compiler needed). Contiguous tensors of more than one entry go that way, the others as without it.

    Raises
    ------
    ValueError
        If an option is out of range or a parameter is complex.

    Notes
    -----
    float16 and bfloat16 weights have a float32 mirror variable (and momentum), which keeps what they round away. For
    p = 2 and other weights the mirror variable is the weight, and no state is held.

    Weights that are changed between steps (a checkpoint loaded into the model, a clamp) are noticed by their version,
    and their mirror variable is computed anew; a change through ``.data`` is not.

    Sharded parameters: unnormalised steps are elementwise, hence right under any sharding. Norms are completed over
    the processes for FSDP2 (``DTensor``); FSDP1 hides that it shards, so only unnormalised steps are right with it.

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent: Generalized Max-Margin Token
    Selection*, Algorithm 1 (ℓp-AttGD) and its normalised form.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = MirrorDescent(model.parameters(), lr=1e-2, p=1.5)
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        p: float = 1.1,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        normalize: bool = False,
        scope: str = "each",
        maximize: bool = False,
        nonfinite: str = "skip",
        foreach: bool | None = None,
        compiled: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "p": p,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "normalize": normalize,
            "scope": scope,
            "maximize": maximize,
            "foreach": foreach,
            "compiled": compiled,
        }
        super().__init__(params, defaults, nonfinite)

    def _potential(self, group: dict[str, Any]) -> float:
        return float(group["p"])

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        p = float(group["p"])
        if not 1.0 < p < math.inf:
            raise ValueError(f"p: {p!r} has no mirror map; 1 < p < inf is wanted (p = 1.05 is close to l1)")
        if group["scope"] not in SCOPES:
            raise ValueError(f"scope: {group['scope']!r} is none of 'each', 'all'")

    def _elementwise(self, group: dict[str, Any]) -> bool:
        return not group["normalize"]

    def _directions(
        self, group: dict[str, Any], batches: list[Batch], directions: list[list[Tensor]], lr: float
    ) -> list[Shaped]:
        p = self._potential(group)
        q = p / (p - 1.0)
        largest, sums = [], []
        for batch, tensors in zip(batches, directions, strict=True):
            here = batch.sharding.largest(torch.stack(norms.largest_entries(tensors)))
            # a tensor of zeros: 0/1 moves nothing, where 0/0 would
            here = torch.where(here > 0, here, 1.0)
            power_sums = compiled.power_sums if batch.compiled else norms.power_sums
            sums.append(batch.sharding.total(torch.stack(power_sums(tensors, list(here.unbind()), q))))
            largest.append(here)
        if group["scope"] == "all":
            largest, sums = norms.joined(largest, sums, q)
        shaped = []
        for tensors, here, total in zip(directions, largest, sums, strict=True):
            # the sum holds a 1 for the largest entry, unless all are zero
            steps = lr / total.clamp(min=1.0) ** (1.0 / q)
            shaped.append((tensors, list(steps.unbind()), list(here.unbind())))
        return shaped
