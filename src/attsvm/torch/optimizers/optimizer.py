"""What every optimiser here shares: momentum, decay and a step in the mirror variable, taken whole or not at all.

    b ← momentum·b + g,    z ← decay·z − lr·D(b),    w ← sign(z)|z|^(1/(p−1)),

with z = ∇ψ(w) = sign(w)|w|^(p−1) the state. A subclass says what the direction D is, and which p.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from attsvm.torch.optimizers import compiled, eager
from attsvm.torch.optimizers.finiteness import all_finite, is_finite
from attsvm.torch.optimizers.powers import signed_power
from attsvm.torch.optimizers.sharding import WHOLE, Sharding, local_shard, sharding_of

NONFINITE = ("skip", "raise", "unchecked")
MIRROR, BUFFER = "mirror", "momentum_buffer"

# a parameter that has a gradient: its place in its group, itself, the gradient
Given = tuple[int, Tensor, Tensor]
# the directions of a batch, the step and the divisor of each
Shaped = tuple[list[Tensor], list[Tensor], list[Tensor]]


class NonFiniteGradientError(RuntimeError):
    """A gradient holds an infinity or a NaN; weights and state are as before the step."""


@dataclass
class Batch:
    """Tensors of one parameter group that can be updated together: one device, dtype, sharding and way of stepping.

    Attributes
    ----------
    weights, gradients, mirrors : list of Tensor
        Local shards, in equal order; ``mirrors[i] is weights[i]`` where the weights are their own mirror variable.
    buffers : list of Tensor or None
        Momentum buffers.
    compiled : bool
        Whether the compiled kernels take them.
    sharding : Sharding
        How norms are completed over processes.
    """

    weights: list[Tensor]
    gradients: list[Tensor]
    mirrors: list[Tensor]
    buffers: list[Tensor] | None
    compiled: bool
    sharding: Sharding


class MirrorOptimizer(Optimizer):
    """Base class: a `torch.optim.Optimizer` that descends in a mirror variable.

    Parameters
    ----------
    params : iterable
        Parameters, named parameters or parameter groups. A group may set any option but ``nonfinite``.
    defaults : dict
        The options of a group: those documented in :class:`attsvm.torch.MirrorDescent`.
    nonfinite : {"skip", "raise", "unchecked"}
        See there.

    Attributes
    ----------
    skipped_steps : int
        How many steps met a gradient that is not finite, in this process.
    """

    # GradScaler hands its scale over instead of unscaling in place, which it refuses to do on float16 gradients
    _step_supports_amp_scaling = True

    def __init__(self, params: ParamsT, defaults: dict[str, Any], nonfinite: str) -> None:
        if nonfinite not in NONFINITE:
            raise ValueError(f"nonfinite: {nonfinite!r} is none of {', '.join(map(repr, NONFINITE))}")
        self.skipped_steps = 0
        # by id, since hashing a tensor takes a call of Python: parameters live as long as their group
        self._seen: dict[int, tuple[int, float]] = {}
        super().__init__(params, defaults)
        self.nonfinite = nonfinite

    # What a subclass says

    def _potential(self, group: dict[str, Any]) -> float:
        """The p of the potential (1/p)‖w‖_p^p."""
        return 2.0

    def _check_group(self, group: dict[str, Any]) -> None:
        """Raise ValueError where an option of the group is out of range."""
        check_number("lr", float(group["lr"]), 0.0, math.inf)
        check_number("momentum", group["momentum"], 0.0, 1.0)
        check_number("weight_decay", group["weight_decay"], 0.0, math.inf)
        if group["nesterov"] and not group["momentum"]:
            raise ValueError("nesterov: looks ahead of the momentum, so it needs momentum > 0")

    def _check_gradients(self, given: list[Given]) -> None:
        """Raise RuntimeError where a gradient cannot be stepped along."""
        for _, parameter, gradient in given:
            if gradient.layout != torch.strided:
                raise RuntimeError(
                    f"{type(self).__name__} takes dense gradients only, not {gradient.layout} "
                    f"(of a parameter of shape {tuple(parameter.shape)}): use nn.Embedding(..., sparse=False)"
                )

    def _signs(self, group: dict[str, Any]) -> bool:
        """Whether the direction is sign(b): then the kernels take it elementwise."""
        return False

    def _elementwise(self, group: dict[str, Any]) -> bool:
        """Whether the direction is b or sign(b), so that the whole step may be one pass."""
        return True

    def _directions(
        self, group: dict[str, Any], batches: list[Batch], directions: list[list[Tensor]], lr: float
    ) -> list[Shaped]:
        """For directions that are not elementwise: what to step along, the step, the divisors, for each batch."""
        raise NotImplementedError

    # The step

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step.

        Parameters
        ----------
        closure : callable, optional
            Evaluates the model again and returns the loss.

        Returns
        -------
        The loss, where there is a closure.

        Raises
        ------
        NonFiniteGradientError
            With ``nonfinite="raise"``, if a gradient is not finite.
        RuntimeError
            If a gradient is sparse.

        In every case of an error weights and state are as before.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # small models are a matter of how often Python touches a parameter: its gradient is looked up once
        everything = [
            [(i, x, gradient) for i, x in enumerate(group["params"]) if (gradient := x.grad) is not None]
            for group in self.param_groups
        ]
        for group, given in zip(self.param_groups, everything, strict=True):
            check_number("lr", float(group["lr"]), 0.0, math.inf)
            self._check_gradients(given)
        scale = self._gradient_scale(everything)
        if scale is None:
            self.skipped_steps += 1
            return loss
        for group, given in zip(self.param_groups, everything, strict=True):
            self._step_group(group, given, -scale if group["maximize"] else scale)
        return loss

    def _step_group(self, group: dict[str, Any], given: list[Given], scale: float) -> None:
        batches = self._batches(group, given)
        lr, p = float(group["lr"]), self._potential(group)
        momentum, nesterov = group["momentum"], group["nesterov"]
        # ∇ψ is homogeneous of degree p − 1: shrinking w by c is shrinking z by c^(p−1)
        shrink = 1.0 - lr * group["weight_decay"]
        decay = math.copysign(abs(shrink) ** (p - 1.0), shrink)
        recipe = compiled.Recipe(1.0 / (p - 1.0), self._signs(group), nesterov)
        if self._elementwise(group) and lr > 0.0:
            for batch in batches:
                _descend(batch, recipe, lr, scale, momentum, decay)
        else:
            directions = [
                eager.accumulate(_full_precision(batch), batch.buffers, scale, momentum, nesterov) for batch in batches
            ]
            # the link rounds: a step of no length must not even touch the weights
            if batches and lr > 0.0:
                for batch, shaped in zip(batches, self._directions(group, batches, directions, lr), strict=True):
                    _descend_along(batch, recipe, shaped, decay)
        for _, parameter, _ in given:
            self._seen[id(parameter)] = (parameter._version, p)

    # State

    def _batches(self, group: dict[str, Any], given: list[Given]) -> list[Batch]:
        sorted_out: dict[Any, list[list[Any]]] = {}
        for index, parameter, gradient in given:
            mirror, buffer = self._state_of(group, parameter)
            row = [parameter.detach(), gradient, mirror, buffer]
            sharding = sharding_of(parameter)
            if sharding is not WHOLE:
                row = [None if x is None else local_shard(x) for x in row]
            if mirror is None:
                row[2] = row[0]
            kernel = bool(group["compiled"]) and compiled.fits(row)
            together = eager.pays_in_lists(parameter) if group["foreach"] is None else group["foreach"]
            alone = None if together or kernel else index
            key = (parameter.device, parameter.dtype, gradient.dtype, sharding, kernel, alone)
            sorted_out.setdefault(key, []).append(row)
        batches = []
        for (_, _, _, sharding, kernel, _), rows in sorted_out.items():
            weights, gradients, mirrors, buffers = (list(column) for column in zip(*rows, strict=True))
            batches.append(Batch(weights, gradients, mirrors, buffers if group["momentum"] else None, kernel, sharding))
        return batches

    def _state_of(self, group: dict[str, Any], parameter: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Mirror variable (None where the weights are their own) and momentum buffer (if any), made where missing."""
        state, p = self.state[parameter], self._potential(group)
        dtype = _mirror_dtype(parameter.dtype)
        own_mirror = p == 2.0 and dtype == parameter.dtype
        if not own_mirror:
            if MIRROR not in state:
                state[MIRROR] = _mirror_of(parameter, p, dtype)
            elif self._seen.get(id(parameter)) != (parameter._version, p):
                _adopt_changes(parameter, state[MIRROR], p)
        if group["momentum"] and BUFFER not in state:
            state[BUFFER] = torch.zeros_like(parameter, dtype=dtype, memory_format=torch.preserve_format)
        return None if own_mirror else state[MIRROR], state[BUFFER] if group["momentum"] else None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, after checking them and their options.

        Raises
        ------
        ValueError
            If an option is out of range or a parameter is not of a real floating-point type.
        """
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check_group(group)
            for parameter in group["params"]:
                if not parameter.is_floating_point():
                    raise ValueError(f"params: real floating-point parameters wanted, not {parameter.dtype}")
        except Exception:
            self.param_groups.pop()
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what :meth:`state_dict` returned; a run goes on bit for bit.

        Tensors are copied, and stay in float32 or wider: `Optimizer.load_state_dict` casts state to the parameter's
        dtype, which would round the mirror variable of bfloat16 weights.
        """
        final: dict[str, Any] = {}

        def look(_: Optimizer, seen: dict[str, Any]) -> None:
            final.update(seen)

        def restore(_: Optimizer) -> None:
            saved = chain.from_iterable(group["params"] for group in final["param_groups"])
            own = chain.from_iterable(group["params"] for group in self.param_groups)
            for key, parameter in zip(saved, own, strict=True):
                for name, value in final["state"].get(key, {}).items():
                    if isinstance(value, Tensor):
                        dtype = _mirror_dtype(parameter.dtype)
                        self.state[parameter][name] = value.to(parameter.device, dtype, copy=True)

        # as the last hook before and the first after: other hooks see, and may change, what they would otherwise
        hooks = [
            self.register_load_state_dict_pre_hook(look),
            self.register_load_state_dict_post_hook(restore, prepend=True),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "nonfinite": self.nonfinite, "skipped_steps": self.skipped_steps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # weights and mirror variables that come from elsewhere are compared at the next step
        self._seen = {}

    # Gradients

    def _gradient_scale(self, everything: list[list[Given]]) -> float | None:
        """What gradients are to be multiplied by; None where one is not finite and the step must not be taken."""
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        if found_inf is not None:
            # a scaler has looked; it lowers its scale and tries again, which is no cause for a warning
            grad_scale = getattr(self, "grad_scale", None)
            scale = torch.ones_like(found_inf) if grad_scale is None else grad_scale.to(found_inf.device)
            found, value = torch.stack([found_inf.double(), scale.double()]).tolist()
            return None if found else 1.0 / value
        if self.nonfinite == "unchecked":
            return 1.0
        if all_finite([gradient for given in everything for _, _, gradient in given]):
            return 1.0
        names = [
            _name_of(group, number, index)
            for number, (group, given) in enumerate(zip(self.param_groups, everything, strict=True))
            for index, _, gradient in given
            if not is_finite(gradient)
        ] or ["a parameter on another process"]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        message = (
            f"step skipped, weights and state are untouched: the gradient of {', '.join(names[:3])}{more} is not finite"
        )
        if self.nonfinite == "raise":
            raise NonFiniteGradientError(message)
        # the caller of step, past this method, step itself and the two wrappers that torch puts around it
        warnings.warn(message, RuntimeWarning, stacklevel=5)
        return None


def _descend(batch: Batch, recipe: compiled.Recipe, lr: float, scale: float, momentum: float, decay: float) -> None:
    """An elementwise step: all of it in one pass, where that is compiled."""
    if batch.compiled:
        tensors = batch.weights, batch.mirrors, batch.gradients, batch.buffers
        compiled.descend(recipe, *tensors, step=lr, scale=scale, momentum=momentum, decay=decay)
        return
    directions = _full_precision(batch)
    if recipe.sign or batch.buffers is not None:
        directions = eager.accumulate(directions, batch.buffers, scale, momentum, recipe.nesterov)
    else:
        lr = lr * scale
    if recipe.sign:
        directions = list(torch._foreach_sign(directions))
    eager.descend(batch.weights, batch.mirrors, directions, exponent=recipe.exponent, step=lr, decay=decay)


def _descend_along(batch: Batch, recipe: compiled.Recipe, shaped: Shaped, decay: float) -> None:
    """A step along given directions, each of a length of its own."""
    directions, steps, divisors = shaped
    tensors = batch.weights, batch.mirrors, directions
    if batch.compiled:
        plain = recipe._replace(sign=False, nesterov=False)
        compiled.descend(plain, *tensors, scaling=(steps, divisors), decay=decay)
    else:
        eager.descend(*tensors, exponent=recipe.exponent, scaling=(steps, divisors), decay=decay)


def _full_precision(batch: Batch) -> list[Tensor]:
    dtype = batch.mirrors[0].dtype
    return [x.to(dtype) for x in batch.gradients]


@cache
def _mirror_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _mirror_of(parameter: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    weights = parameter.detach().to(dtype)
    mirror = signed_power(weights, p - 1.0)
    return mirror.clone() if mirror is weights else mirror


def _adopt_changes(parameter: Tensor, mirror: Tensor, p: float) -> None:
    """Follow weights that somebody else wrote (a checkpoint, a clamp); the others keep their mirror variable.

    Recomputing it from all of them would lose it wherever the weight has underflowed.
    """
    weights = parameter.detach()
    linked = signed_power(mirror, 1.0 / (p - 1.0)).to(weights.dtype)
    limits = torch.finfo(weights.dtype)
    # compiled and eager steps round the last digits differently, and subnormal numbers to nothing (not float16's: they
    # are of use, and two units in their last place is what they may differ by)
    tolerance = 4.0 * limits.eps * weights.abs() + min(limits.tiny, 2.0**-23)
    changed = (linked - weights).abs() > tolerance
    mirror.copy_(torch.where(changed, _mirror_of(parameter, p, mirror.dtype), mirror))


def _name_of(group: dict[str, Any], number: int, index: int) -> str:
    names = group.get("param_names")
    return repr(names[index]) if names else f"parameter {index} of group {number}"


def check_number(name: str, value: float, low: float, high: float) -> None:
    """Raise ValueError unless low ≤ value < high."""
    if not low <= value < high:
        raise ValueError(f"{name}: {value!r} is not in [{low}, {high})")
