"""The base of every optimiser here: momentum, weight decay and a step in the mirror variable.

    b ← momentum·b + g,    z ← decay·z − lr·D(b),    w ← sign(z)|z|^(1/(p−1)),

with the state z = ∇ψ(w) = sign(w)|w|^(p−1). A subclass defines the direction D and the exponent p. A step is made for
all parameters or, if a gradient or a new weight is not finite, for none.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from itertools import chain
from operator import is_
from typing import Any, TypedDict

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from attsvm._utils.memory import enough_memory
from attsvm.torch.adamw import COUNT, FIRST, SECOND, Moments, adamw_step, add_moments, count_device
from attsvm.torch.changes import Trace, adopt_changes, is_changed, mirror_of, trace_of
from attsvm.torch.fused import compiler_works, compiling_pays, fits_kernel
from attsvm.torch.gradients import Given, gradient_scale, refuse
from attsvm.torch.link import Link
from attsvm.torch.options import OPTIONS, NonFinite, check_names, check_names_of_group, number, read_option
from attsvm.torch.sharding import LARGEST_JOINED, WHOLE, all_finite, is_finite, local_shard, sharding_of
from attsvm.torch.steps import Along, StepKind, TensorBatch, accumulate, descend, descend_along

MIRROR, BUFFER = "mirror", "momentum_buffer"


class SharedOptions(TypedDict, total=False):
    """Keyword arguments of every optimiser; :class:`attsvm.torch.MirrorDescent` documents them."""

    momentum: float
    nesterov: bool
    weight_decay: float
    maximize: bool
    nonfinite: NonFinite
    foreach: bool | None
    compiled: bool | None
    adamw: bool
    betas: tuple[float, float]
    eps: float


DEFAULTS: SharedOptions = {
    "momentum": 0.0,
    "nesterov": False,
    "weight_decay": 0.0,
    "maximize": False,
    "nonfinite": "skip",
    "foreach": None,
    "compiled": None,
    "adamw": False,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
}

ADAMW_ALONE = {"betas", "eps"}
"""Options that only groups with ``adamw`` read."""

ADAMW = {"lr", "weight_decay", "maximize", "adamw", *ADAMW_ALONE}
"""Options that these groups read."""


class MirrorOptimizer(Optimizer, ABC):
    """Base class: a `torch.optim.Optimizer` that descends in a mirror variable.

    A subclass passes its own options to ``__init__`` and provides :meth:`_directions`; it overrides the other hooks
    that do not fit.

    Parameters
    ----------
    params : iterable
        Parameters, named parameters or parameter groups. A group may set any option.
    own : dict
        ``lr``, and the options that only this optimiser has.
    shared : dict
        Options of :class:`SharedOptions`; those that are missing have their default.

    Attributes
    ----------
    skipped_steps : int
        Number of steps that were skipped, in this process, because a gradient was not finite, or new weights or state
        would not have been. The optimiser of accelerate, and so of a Trainer, has this one as its ``optimizer``.
    """

    # a GradScaler then passes its scale on instead of unscaling in place, which it refuses to do for float16 gradients
    _step_supports_amp_scaling = True

    def __init__(self, params: ParamsT, own: dict[str, Any], shared: SharedOptions) -> None:
        defaults: dict[str, Any] = {**own, **DEFAULTS}
        check_names(type(self).__name__, shared, defaults)
        defaults = {name: read_option(name, value) for name, value in {**defaults, **shared}.items()}
        given = sorted(ADAMW_ALONE & set(shared))
        nonfinite = defaults.pop("nonfinite")
        self.skipped_steps = 0
        self._forget()
        super().__init__(params, defaults)
        self.nonfinite: NonFinite = nonfinite
        if given and not any(group["adamw"] for group in self.param_groups):
            raise ValueError(f"{given[0]}: expected a group with adamw=True, because only such groups have this option")

    def _forget(self) -> None:
        """Forget what is kept between steps beside the state."""
        # by id, because hashing a tensor is a call of Python code; parameters live as long as their group
        self._seen: dict[int, tuple[int, Link]] = {}
        # by the id of a group: its options, as they were when they were checked
        self._checked: dict[int, list[Any]] = {}
        # what the last step has left in weights that are computed from mirror variables
        self._traces: list[Trace] = []
        self._turn = 0
        # ids of parameters whose weights are not what their last step has left, on every process that holds a part of
        # them and on this one
        self._changed: set[int] = set()
        self._changed_here: set[int] = set()

    # Hooks of a subclass

    _signs = False
    """Whether the direction of an elementwise step is sign(b)."""

    def _link(self, group: dict[str, Any]) -> Link:
        """The link from mirror variables to weights."""
        return Link(2.0)

    def _link_of(self, group: dict[str, Any]) -> Link:
        return Link(2.0) if group["adamw"] else self._link(group)

    def _check_group(self, group: dict[str, Any]) -> None:
        """Read the options of a group. Raises ValueError if one is of another type or out of range."""
        for name in OPTIONS:
            if name in group:
                group[name] = read_option(name, group[name])
        if group["nesterov"] and not group["momentum"]:
            raise ValueError("nesterov: expected momentum > 0 with nesterov=True, got momentum = 0")

    def _check_changed(self, group: dict[str, Any]) -> None:
        """Check a group again if an option was changed since; lr, which schedules change in every step, always."""
        if not 0.0 <= number(group["lr"]) < math.inf:
            read_option("lr", group["lr"])
        now, before = [group[name] for name in OPTIONS if name in group and name != "lr"], self._checked.get(id(group))
        # by identity, because 1 == 1.0 == True
        if before is None or len(now) != len(before) or not all(map(is_, now, before)):
            self._check_group(group)
            self._checked[id(group)] = now

    def _check_gradients(self, group: dict[str, Any], given: list[Given]) -> None:
        """Raise RuntimeError if a gradient cannot be used."""
        for _, parameter, gradient in given:
            if gradient.layout != torch.strided:
                raise RuntimeError(
                    f"{type(self).__name__} supports only dense gradients, got {gradient.layout} "
                    f"(of a parameter of shape {tuple(parameter.shape)}): use nn.Embedding(..., sparse=False)"
                )

    def _elementwise(self, group: dict[str, Any]) -> bool:
        """Whether the direction is b or sign(b), so that the whole step can be one pass."""
        return True

    def _created(self, parameter: Tensor, link: Link) -> None:
        """Called when the mirror variable of a parameter has been created."""

    def _known_finite(self, everything: list[list[Given]]) -> set[int]:
        """Ids of the parameters whose gradients are finite, as a computation before the step has shown."""
        return set()

    def _may_overflow(self, group: dict[str, Any], given: list[Given], largest: float) -> bool:
        """Whether gradients with a largest entry may make weights or state infinite; True where that is not known."""
        # float32 has room for momentum and for dual norms of any number of smaller entries
        return largest > math.sqrt(torch.finfo(torch.float32).max)

    @abstractmethod
    def _directions(self, group: dict[str, Any], batches: list[TensorBatch], scale: float) -> list[Along]:
        """The directions D(b) of each batch with their lengths, in units of lr, for steps that are not elementwise.

        Momentum buffers are updated here along scale times the gradients, unless the step is along them.
        """

    # The step

    # torch.compile(optimizer.step) leaves it out of its graphs: traced in parts, it would use the state of the first
    # parameter for all of them
    @_disable_dynamo
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step.

        Parameters
        ----------
        closure : callable, optional
            Evaluates the model again and returns the loss.

        Returns
        -------
        The loss, if there is a closure.

        Raises
        ------
        NonFiniteGradientError
            With ``nonfinite="raise"``, if a gradient is not finite or new weights or state would not be.
        RuntimeError
            If a gradient is sparse.
        MemoryError
            If the state, or what the step computes, does not fit into the memory of the device.

        After another error than this one weights and state are as before.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # in small models the time is that of Python touching each parameter: a gradient is looked up once
        everything = [
            [(i, x, gradient) for i, x in enumerate(group["params"]) if (gradient := x.grad) is not None]
            for group in self.param_groups
        ]
        for group, given in zip(self.param_groups, everything, strict=True):
            self._check_changed(group)
            self._check_gradients(group, given)
        policies = [group.get("nonfinite", self.nonfinite) for group in self.param_groups]
        found = gradient_scale(self, everything, policies, self._known_finite(everything))
        if found is None:
            self.skipped_steps += 1
            return loss
        scale, largest = found
        updated = [parameter for given in everything for _, parameter, _ in given]
        if not updated:
            return loss
        with enough_memory(updated[0].device, f"entries of {type(self).__name__}", sum(x.numel() for x in updated)):
            groups = list(zip(self.param_groups, everything, strict=True))
            traces = self._notice_changes(groups)
            # every group keeps account of every step; where gradients are not tested, new weights are not
            overflowing = [self._may_overflow(*group, largest) for group in groups]
            risky = any(overflowing) and largest < math.inf
            before = [self._copied(x) for x in updated] if risky else []
            for group, given in groups:
                traces += self._step_group(group, given, -scale if group["maximize"] else scale)
            self._traces = traces
            if risky and not all_finite([x for parameter in updated for x in self._written(parameter)]):
                self._take_back(everything, policies, before)
        return loss

    def _notice_changes(self, groups: list[tuple[dict[str, Any], list[Given]]]) -> list[Trace]:
        """Compare weights with what the last step has left; the traces of those that this step will not move."""
        self._turn += 1
        moving: set[int] = set()
        for group, given in groups:
            link, seen = self._link_of(group), self._seen
            moving.update([id(x) for _, x, _ in given])
            self._changed.update([id(x) for _, x, _ in given if seen.get(id(x)) != (x._version, link)])
        resting = []
        for trace in self._traces:
            ids = list(map(id, trace.parameters))
            if is_changed(trace):
                (self._changed if trace.whole else self._changed_here).update(ids)
            if not moving.issuperset(ids):
                rest = [x for x in trace.parameters if id(x) not in moving]
                resting.append(trace_of(rest, self._turn, whole=trace.whole, entries=trace.entries is not None))
        return resting

    def _written(self, parameter: Tensor) -> list[Tensor]:
        """What a step changes: a parameter and its state."""
        return [parameter, *self.state[parameter].values()]

    def _copied(self, parameter: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor] | None]:
        state = self.state.get(parameter)
        copies = None if state is None else {name: x.clone() for name, x in state.items()}
        return parameter, parameter.clone(), copies

    def _take_back(
        self,
        everything: list[list[Given]],
        policies: list[NonFinite],
        before: list[tuple[Tensor, Tensor, dict[str, Tensor] | None]],
    ) -> None:
        bad = {id(x) for x, _, _ in before if not all(map(is_finite, self._written(x)))}
        for parameter, weights, state in before:
            parameter.copy_(weights)
            if state is None:
                del self.state[parameter]
            else:
                self.state[parameter] = state
        refuse(self, everything, policies, "the new weights or state of {} would not be finite", bad)
        self.skipped_steps += 1

    def _step_group(self, group: dict[str, Any], given: list[Given], scale: float) -> list[Trace]:
        traces = self._adamw(group, given, scale) if group["adamw"] else self._descend(group, given, scale)
        link = self._link_of(group)
        self._seen.update({id(x): (x._version, link) for _, x, _ in given})
        for changed in (self._changed, self._changed_here):
            if changed:
                changed.difference_update([id(x) for _, x, _ in given])
        return traces

    def _adamw(self, group: dict[str, Any], given: list[Given], scale: float) -> list[Trace]:
        moments, narrow = [], []
        for _, parameter, gradient in given:
            mirror, _ = self._state_of(parameter, Link(2.0), 0.0)
            weights, state = parameter.detach() if mirror is None else mirror, self.state[parameter]
            add_moments(state, weights)
            own, slope, first, second = (local_shard(x) for x in (weights, gradient, state[FIRST], state[SECOND]))
            moments.append(Moments(own, slope, first, second, state[COUNT]))
            if mirror is not None:
                narrow.append((parameter, mirror))
        if moments:
            adamw_step(group, moments, scale)
        for parameter, mirror in narrow:
            parameter.copy_(mirror)
        reads = self.nonfinite != "unchecked"
        return [
            trace_of([x], self._turn, whole=sharding_of(x) is WHOLE, entries=reads or x.device.type == "cpu")
            for x, _ in narrow
        ]

    def _descend(self, group: dict[str, Any], given: list[Given], scale: float) -> list[Trace]:
        batches = self._batches(group, given)
        lr, link = float(group["lr"]), self._link(group)
        momentum, nesterov = group["momentum"], group["nesterov"]
        # ∇ψ is homogeneous of degree p − 1: multiplying w by c multiplies z by c^(p−1)
        shrink = 1.0 - lr * group["weight_decay"]
        decay = shrink if link.linear else math.copysign(abs(shrink) ** (link.p - 1.0), shrink)
        kind = StepKind(link, nesterov=nesterov)
        if lr == 0.0:
            # computing the weights from z rounds, so they must not even be written
            for batch in batches:
                accumulate(batch, scale, momentum, nesterov)
        elif self._elementwise(group):
            for batch in batches:
                descend(batch, kind._replace(sign=self._signs), lr, scale, momentum, decay)
        elif batches:
            for batch, along in zip(batches, self._directions(group, batches, scale), strict=True):
                descend_along(batch, kind, along, lr, scale, momentum, decay)
        return [self._trace_of(batch) for batch in batches if batch.weights[0] is not batch.mirrors[0]]

    def _trace_of(self, batch: TensorBatch) -> Trace:
        reads = self.nonfinite != "unchecked" or batch.weights[0].device.type == "cpu"
        whole = batch.sharding is WHOLE
        return trace_of(batch.parameters, self._turn, whole=whole, entries=reads, joined=batch.written)

    # State

    def _compiles(self, group: dict[str, Any]) -> Callable[[torch.device], bool]:
        """Whether compiled kernels update the parameters of a group, for each device."""
        if group["compiled"] is None:
            return compiler_works if compiling_pays(group["params"]) else lambda device: False
        return lambda device: group["compiled"]

    def _batches(self, group: dict[str, Any], given: list[Given]) -> list[TensorBatch]:
        sorted_out: dict[Any, list[list[Any]]] = {}
        compiles = self._compiles(group)
        link, momentum = self._link(group), group["momentum"]
        for _, parameter, gradient in given:
            row: list[Any] = [parameter.detach(), gradient, *self._state_of(parameter, link, momentum)]
            sharding = sharding_of(parameter)
            if sharding is not WHOLE:
                row = [None if x is None else local_shard(x) for x in row]
            if row[2] is None:
                row[2] = row[0]
            device, joined = parameter.device, group["foreach"]
            kernel = compiles(device) and fits_kernel(row)
            if joined is None or kernel:
                joined = row[0].numel() <= LARGEST_JOINED or (device.type != "cpu" and not kernel)
            # the state of a model whose dtype was changed has the one before
            state = row[2].dtype, None if row[3] is None else row[3].dtype
            key = (device, parameter.dtype, gradient.dtype, state, sharding, joined, kernel)
            sorted_out.setdefault(key, []).append([parameter, *row])
        batches = []
        for (*_, sharding, joined, kernel), rows in sorted_out.items():
            parameters, weights, gradients, mirrors, buffers = (list(column) for column in zip(*rows, strict=True))
            momenta = buffers if momentum else None
            joined = joined and len(rows) > 1
            batches.append(TensorBatch(parameters, weights, gradients, mirrors, momenta, joined, kernel, sharding))
        return batches

    def _state_of(self, parameter: Tensor, link: Link, momentum: float) -> tuple[Tensor | None, Tensor | None]:
        """Mirror variable (None if the weights are their own) and momentum buffer (if any), created if missing."""
        state = self.state[parameter]
        dtype = mirror_dtype(parameter.dtype)
        own_mirror = link.is_identity and dtype == parameter.dtype
        if not own_mirror:
            if MIRROR not in state:
                state[MIRROR] = mirror_of(parameter, link, dtype)
                self._created(parameter, link)
            elif id(parameter) in self._changed or id(parameter) in self._changed_here:
                adopt_changes(parameter, state[MIRROR], link)
        if momentum and BUFFER not in state:
            state[BUFFER] = torch.zeros_like(parameter, dtype=dtype, memory_format=torch.preserve_format)
        return None if own_mirror else state[MIRROR], state[BUFFER] if momentum else None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, after checking them and their options.

        Raises
        ------
        ValueError
            If an option is out of range or a parameter is not of a real floating-point type.
        TypeError
            If the group has an option that the optimiser has not.
        """
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            unread = set(self.defaults) - ADAMW if group["adamw"] is True else ADAMW_ALONE
            known = [name for name in self.defaults if name not in unread or group[name] == self.defaults[name]]
            check_names_of_group(type(self).__name__, group, [*known, "nonfinite"], [*self.defaults, "nonfinite"])
            self._check_group(group)
            for parameter in group["params"]:
                if not parameter.is_floating_point():
                    raise ValueError(f"params: expected real floating-point parameters, got {parameter.dtype}")
        except Exception:
            self.param_groups.pop()
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned; a resumed run is bit-identical.

        Tensors are copied and stay in float32 or wider. `Optimizer.load_state_dict` would cast them to the dtype of the
        parameter, which rounds the mirror variable of bfloat16 weights.

        Raises
        ------
        ValueError
            If the state is that of another optimiser or model, or an option is out of range. Nothing is changed.
        """
        final: dict[str, Any] = {}

        def look(_: Optimizer, seen: dict[str, Any]) -> None:
            final.update(seen)
            self._check_state(seen)

        def restore(_: Optimizer) -> None:
            saved = chain.from_iterable(group["params"] for group in final["param_groups"])
            own = chain.from_iterable(group["params"] for group in self.param_groups)
            for key, parameter in zip(saved, own, strict=True):
                for name, value in final["state"].get(key, {}).items():
                    if isinstance(value, Tensor) and name == COUNT:
                        self.state[parameter][name] = value.float().to(count_device(parameter.device), copy=True)
                    elif isinstance(value, Tensor):
                        dtype = mirror_dtype(parameter.dtype)
                        self.state[parameter][name] = value.to(parameter.device, dtype, copy=True)

        # as the last hook before loading and the first after it, so that other hooks work as usual
        hooks = [
            self.register_load_state_dict_pre_hook(look),
            self.register_load_state_dict_post_hook(restore, prepend=True),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _check_state(self, saved: dict[str, Any]) -> None:
        """Raise ValueError unless a state was saved by such an optimiser of such parameters."""
        kind = type(self).__name__
        entries = {name for state in saved["state"].values() for name in state}
        for group in saved["param_groups"]:
            missing = (set(self.defaults) & set(OPTIONS)) - set(group) - set(_ADDED_LATER)
            foreign = {name for name in group if name in OPTIONS and name not in {*self.defaults, "nonfinite"}}
            if missing or foreign or not entries <= {MIRROR, BUFFER, FIRST, SECOND, COUNT}:
                names = ", ".join(sorted(missing or foreign or entries))
                raise ValueError(f"state_dict: expected one of {kind}, got {'no ' if missing else ''}{names}")
        for group, own in zip(saved["param_groups"], self.param_groups, strict=False):
            self._check_group({**own, **group, **self._of_earlier(group, own["params"]), "params": own["params"]})
            for key, parameter in zip(group["params"], own["params"], strict=False):
                for name, value in saved["state"].get(key, {}).items():
                    if value.shape != parameter.shape and name != COUNT:
                        shapes = f"{tuple(parameter.shape)}, got {tuple(value.shape)}"
                        raise ValueError(f"state_dict: expected a {name} of the shape of its parameter, {shapes}")

    def _of_earlier(self, saved: dict[str, Any], params: list[Tensor]) -> dict[str, Any]:
        """The options that a group lacks that an earlier version has saved, as that version took its steps."""
        return {name: x for name, x in _ADDED_LATER.items() if name in self.defaults and name not in saved}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "nonfinite": self.nonfinite, "skipped_steps": self.skipped_steps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.update(self._of_earlier(group, group["params"]))
        # weights and mirror variables from elsewhere are compared at the next step
        self._forget()


# what a state of an earlier version may lack, with the values that change no step
_ADDED_LATER: dict[str, Any] = {
    "dtype": None,
    "scale": None,
    "blocks": None,
    "flatten": None,
    "transposed": False,
    "linear": 0.0,
    **{name: DEFAULTS[name] for name in ("adamw", "betas", "eps")},
}


@cache
def mirror_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the mirror variable and the momentum of weights of a dtype: float32 or wider."""
    return torch.promote_types(dtype, torch.float32)
