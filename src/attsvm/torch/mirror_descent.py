"""ℓp mirror descent: ∇ψ(w⁺) = ∇ψ(w) − lr·g with the potential ψ = (1/p)‖·‖_p^p."""

import warnings
from typing import Any, Literal, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from attsvm.torch.changes import Trace
from attsvm.torch.gradients import Given, name_of
from attsvm.torch.link import Link
from attsvm.torch.norms import (
    Direction,
    PowerSum,
    divisor_and_sum,
    fits_one_pass,
    over_all_tensors,
    power_sums,
    power_sums_in_one_pass,
)
from attsvm.torch.optimizer import BUFFER, MirrorOptimizer, SharedOptions
from attsvm.torch.sharding import WHOLE, largest_entry, local_shard
from attsvm.torch.steps import Along, TensorBatch, accumulate


class MirrorDescent(MirrorOptimizer):
    r"""ℓp mirror descent: attention weights converge in direction to the ℓp Att-SVM.

    .. math:: z \leftarrow z - \mathrm{lr}\, g, \qquad w \leftarrow \mathrm{sign}(z)\,|z|^{1/(p-1)},

    and with ``normalize`` g is divided by its dual norm ‖g‖_q, q = p/(p−1). The state is the mirror variable
    z = ∇ψ(w) = sign(w)\|w\|^(p−1): at p = 1.1 a weight is \|z\|^10, which underflows in float32, and z could not be
    recovered from it. p below 2 favours a few large weights, p above 2 many of equal size; p = 2 is gradient descent.

    Parameters
    ----------
    params : iterable
        Parameters, named parameters or parameter groups, each of which may set any option.
    lr : float or Tensor
        Length of a step in the mirror variable. Learning rates of SGD and Adam do not carry over; see
        :func:`attsvm.torch.lr_from_sgd` and :func:`attsvm.torch.lr_from_adam`.
    p : float, default 1.1
        Exponent of the potential, 1 < p < ∞. A step is fastest where 4/(p−1) is an integer (p = 1.05, 1.1, 1.2, 1.25,
        1.5, 2, 3, 5, ...), because it needs no `pow`. Compiled steps of float32 weights without ``normalize`` need none
        where 3/(p−1) is an integer (1.3, 1.6, 1.75, 2.5, 4) either.
    momentum : float, default 0
        b ← momentum·b + g; the step is taken (and normalized) along b.
    nesterov : bool, default False
        The step is taken along g + momentum·b.
    weight_decay : float, default 0
        Decoupled: before the step w is multiplied by 1 − lr·weight_decay, as in AdamW, for every p. In the mirror
        variable this is z·(1 − lr·weight_decay)^(p−1), because ∇ψ is homogeneous of degree p − 1. With ``linear`` it is
        that up to (lr·weight_decay)².
    normalize : bool, default False
        Divide by the ℓq norm, so that lr is the length of every step in that norm. A zero gradient gives no step.
    scope : {"each", "all"}, default "each"
        Whether the norm is that of each tensor, or of all tensors of the parameter group together.
    linear : float, default 0
        δ in the link w = sign(z)\|z\|^(1/(p−1)) + δz, for p < 2. Without it dw/dz is 0 at 0, and weights that start at
        zero hardly move: at p = 1.1, w = 0.02 needs \|z\| = 0.68. With δ of about the size of the weights of a layer
        they move at once, and more weights stay small. ψ is then the Moreau envelope of (1/p)‖·‖_p^p.
    maximize : bool, default False
        Maximise instead of minimise.
    adamw : bool, default False
        For parameter groups: True updates the group by AdamW, with the ``lr``, ``weight_decay``, ``betas`` and ``eps``
        of the group, as `torch.optim.AdamW` does. :func:`attsvm.torch.param_groups_of` makes such groups.
    betas, eps : default (0.9, 0.999) and 1e-8
        Options of AdamW.
    nonfinite : {"skip", "raise", "unchecked"}, default "skip"
        What to do if a gradient of the group contains infinity or NaN, or is so large that new weights or state would
        (for p < 2 without ``normalize``, a finite gradient can have this effect). "skip" warns, counts the step in
        ``skipped_steps`` and leaves weights and state unchanged; "raise" raises an error and leaves them unchanged,
        too. Both synchronize with the device once per step, and copy weights and state before a step with such large
        gradients. "unchecked" does not test. With a GradScaler its test of the gradients is used instead, without a
        warning; new weights are not tested.
    foreach : bool or None, default None
        True updates many tensors at once, False one after the other, which takes less memory; None is True except for
        large tensors on the CPU, where False is faster. No effect on tensors with a compiled step.
    compiled : bool or None, default None
        Take the step in one pass over memory, in a kernel that `torch.compile` generates at the first step. This takes
        a few seconds and needs a C++ compiler. None compiles for parameter groups of at least 2^20 entries; if nothing
        can be compiled, it warns once and takes the steps without a kernel. True compiles for any group, and raises
        torch's error if that fails. Contiguous tensors of more than one entry are updated this way, the others as
        without it. `torch.compile(optimizer.step)` is allowed, and takes the step outside the compiled graph.

    Raises
    ------
    ValueError
        If an option is out of range or a parameter is complex.

    Warns
    -----
    RuntimeWarning
        Once, if more than a tenth of a tensor that started at zero is still near zero after 50 steps along nonzero
        gradients.

    See Also
    --------
    attsvm.torch.param_groups_of : Groups of a whole transformer, with AdamW for what should not be sparse.
    attsvm.torch.lr_from_adam, attsvm.torch.lr_from_sgd : Suitable values of lr.
    attsvm.optimizers.mirror_descent : In JAX.

    Notes
    -----
    The mirror variable and the momentum of float16 and bfloat16 weights are float32, so small steps are not lost to
    rounding. For p = 2 and wider weights the mirror variable is the weight itself, and there is no extra state.

    If weights are changed between steps (by loading a checkpoint into the model, or by a clamp), their mirror variable
    is recomputed. Changes through ``.data`` or NumPy are noticed where a tensor has another place in memory, at every
    entry of tensors of at most 2^14 entries, and at about a thousand entries of larger ones, which differ from step to
    step. So a change of few entries of a large tensor may be undone by the next step: make it under `torch.no_grad`,
    without ``.data``. On accelerators ``nonfinite="unchecked"`` compares the place in memory only.

    Convergence in direction to the ℓp Att-SVM is a theorem for ``linear=0``. With ``linear`` the power dominates the
    link only for ‖W‖ → ∞, so the limit is measured only.

    Sharded parameters: steps without ``normalize`` are elementwise and therefore correct under any sharding. Norms are
    completed over the processes for FSDP2 (``DTensor``). FSDP1 does not show that it shards, so steps with
    ``normalize`` are wrong with it.

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
        normalize: bool = False,
        scope: Literal["each", "all"] = "each",
        linear: float = 0.0,
        **shared: Unpack[SharedOptions],
    ) -> None:
        self._forget()
        super().__init__(params, {"lr": lr, "p": p, "normalize": normalize, "scope": scope, "linear": linear}, shared)

    def _forget(self) -> None:
        super()._forget()
        # by the id of a parameter: what the last step found, and this one if its gradients are not tested otherwise
        self._power_sums: dict[int, PowerSum] = {}
        # by the id of a parameter: 2^exponent was near the norm of its direction
        self._exponents: dict[int, int] = {}
        # by the id of a group: what |z| and |b| are at most
        self._bounds: dict[int, tuple[float, float]] = {}
        # by the id of a parameter that started at zero: the turn of its first step
        self._at_zero: dict[int, int] = {}

    def _link(self, group: dict[str, Any]) -> Link:
        return Link(float(group["p"]), float(group["linear"]))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        if group["linear"] and group["p"] >= 2.0:
            raise ValueError(f"linear: expected 0 with p = {group['p']}, got {group['linear']}; only p < 2 needs it")

    def _elementwise(self, group: dict[str, Any]) -> bool:
        return not group["normalize"]

    def _created(self, parameter: Tensor, link: Link) -> None:
        if link.p < 2.0 and not link.linear and _share(local_shard(parameter) == 0) > _MANY:
            self._at_zero[id(parameter)] = self._turn

    def _step_group(self, group: dict[str, Any], given: list[Given], scale: float) -> list[Trace]:
        traces = super()._step_group(group, given, scale)
        if self._at_zero:
            self._warn_of_zeros(group, given)
        return traces

    def _warn_of_zeros(self, group: dict[str, Any], given: list[Given]) -> None:
        """Warn once if weights that started at zero are still near zero, although their gradients are not zero."""
        for index, x, gradient in given:
            if self._turn - self._at_zero.get(id(x), self._turn) < _STEPS_AT_ZERO:
                continue
            del self._at_zero[id(x)]
            share = _share((local_shard(x).abs() < _NEAR_ZERO) & (local_shard(gradient) != 0))
            if share > _MANY:
                name = name_of(group, next(i for i, one in enumerate(self.param_groups) if one is group), index)
                warnings.warn(
                    f"MirrorDescent: {name} started at zero, and {share:.0%} of its entries are below {_NEAR_ZERO:g} "
                    f"after {_STEPS_AT_ZERO} steps along nonzero gradients. With p = {group['p']} weights leave zero "
                    "slowly. For such tensors, set adamw=True in their group, as attsvm.torch.param_groups_of does, "
                    "or p=2, or linear > 0",
                    RuntimeWarning,
                    stacklevel=8,
                )
                self._at_zero = {}
                return

    def _known_finite(self, everything: list[list[Given]]) -> set[int]:
        """Those whose directions have a finite norm, which is computed in one pass for a normalised step."""
        self._power_sums = {}
        if getattr(self, "found_inf", None) is not None:  # a GradScaler tests the gradients, and scales them
            return set()
        for group, given in zip(self.param_groups, everything, strict=True):
            if group["normalize"] and not group["adamw"]:
                q, scale, compiles = _dual_exponent(group), -1.0 if group["maximize"] else 1.0, self._compiles(group)
                directions = [(x, self._direction(group, x, g, scale)) for _, x, g in given if compiles(g.device)]
                self._measure(q, directions)
        # of larger ones the gradient may exceed the momentum
        return {key for key, one in self._power_sums.items() if one.exponent < 64}

    def _direction(self, group: dict[str, Any], parameter: Tensor, gradient: Tensor, scale: float) -> Direction:
        momentum = group["momentum"]
        buffer = self.state.get(parameter, {}).get(BUFFER) if momentum else None
        if group["nesterov"]:  # scale·g + momentum·(momentum·b + scale·g)
            return Direction(gradient, scale * (1.0 + momentum), buffer, momentum**2)
        return Direction(gradient, scale, buffer, momentum)

    def _measure(self, q: float, directions: list[tuple[Tensor, Direction]]) -> None:
        """Compute the power sums of the directions that fit and whose sum is not known."""
        fitting = [(id(x), d) for x, d in directions if id(x) not in self._power_sums and fits_one_pass(d, q)]
        guesses = [self._exponents.get(key) for key, _ in fitting]
        found = power_sums_in_one_pass([d for _, d in fitting], guesses, q)
        for (key, _), one in zip(fitting, found, strict=True):
            if one is not None:
                self._power_sums[key], self._exponents[key] = one, one.exponent

    def _may_overflow(self, group: dict[str, Any], given: list[Given], largest: float) -> bool:
        """For p < 2, w = sign(z)|z|^(1/(p−1)) can overflow where z does not.

        |b| ← momentum·|b| + |g| and |z| ← decay·|z| + lr·|D| are bounds as well. They are measured at the first step,
        after a change of the weights, and where they have grown too large.
        """
        p, bounds = float(group["p"]), self._bounds.pop(id(group), None)
        if super()._may_overflow(group, given, largest):
            return True
        if group["adamw"] or group["normalize"] or p >= 2.0 or not given:
            return False
        # 0.9 leaves room for rounding errors, which add up
        limit = 0.9 * min(torch.finfo(dtype).max for dtype in {x.dtype for x in group["params"]}) ** (p - 1.0)
        lr, momentum = float(group["lr"]), group["momentum"]
        shrink = abs(1.0 - lr * group["weight_decay"])
        decay = max(1.0, shrink) if group["linear"] else shrink ** (p - 1.0)
        if self._changed and not self._changed.isdisjoint(id(x) for _, x, _ in given):
            bounds = None
        for known in [None] if bounds is None else [bounds, None]:
            mirror, buffer = known or self._measured(group["params"], p)
            buffer = momentum * buffer + largest
            mirror = decay * mirror + lr * (largest + momentum * buffer if group["nesterov"] else buffer)
            if mirror <= limit:
                self._bounds[id(group)] = mirror, buffer
                return False
        return True

    def _measured(self, parameters: list[Tensor], p: float) -> tuple[float, float]:
        buffers = [self.state[x][BUFFER] for x in parameters if BUFFER in self.state.get(x, {})]
        return largest_entry(parameters) ** (p - 1.0), largest_entry(buffers)

    def _directions(self, group: dict[str, Any], batches: list[TensorBatch], scale: float) -> list[Along]:
        q = _dual_exponent(group)
        found = [self._measured_directions(group, batch, scale, q) for batch in batches]
        pairs = [pair for _, pair in found]
        if group["scope"] == "all":
            pairs = over_all_tensors(pairs, q)
        # b/‖b‖_q = (b/m)/s^(1/q)
        return [
            Along(parts, 1.0 / torch.where(sums > 0, sums, 1.0) ** (1.0 / q), divisors)
            for (parts, _), (divisors, sums) in zip(found, pairs, strict=True)
        ]

    def _measured_directions(
        self, group: dict[str, Any], batch: TensorBatch, scale: float, q: float
    ) -> tuple[list[Tensor] | None, tuple[Tensor, Tensor]]:
        """The directions of a batch, as in ``Along``, with their divisors m and sums Σ(|b|/m)^q."""
        directions: list[tuple[Tensor, Direction]] = []
        known: dict[int, PowerSum] = {}
        if batch.compiled and not batch.joined and batch.sharding is WHOLE:
            known = self._power_sums
            given = zip(batch.parameters, batch.gradients, strict=True)
            directions = [
                (x, self._direction(group, x, gradient, scale)) for x, gradient in given if id(x) not in known
            ]
            self._measure(q, directions)
        if not any(id(x) in known for x in batch.parameters):
            parts = accumulate(batch, scale, group["momentum"], group["nesterov"])
            return parts, power_sums(batch, parts, q)
        others = {id(x): divisor_and_sum(one.value(), q) for x, one in directions if id(x) not in known}
        pairs = [others[key] if key in others else known[key][:2] for key in map(id, batch.parameters)]
        divisors, sums = batch.mirrors[0].new_tensor(pairs).unbind(dim=1)
        return None, (divisors, sums)


_STEPS_AT_ZERO, _NEAR_ZERO, _MANY = 50, 1e-6, 0.1
"""After so many steps, so small weights are still at zero, and a larger share of a tensor is reported."""


def _share(found: Tensor) -> float:
    return float(found.float().mean()) if found.numel() else 0.0


def _dual_exponent(group: dict[str, Any]) -> float:
    p = float(group["p"])
    return p / (p - 1.0)
