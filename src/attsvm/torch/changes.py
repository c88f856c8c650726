"""Weights that other code has changed between two steps: how it is noticed, and what their mirror variables become.

A step computes weights from mirror variables, so it would undo such a change. torch counts changes in the version of a
tensor, but not those through `.data` or through NumPy. So a step leaves a trace: where the weights are in memory, and
their entries, or some of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

from attsvm.torch.link import Link
from attsvm.torch.sharding import LARGEST_JOINED, local_shard
from attsvm.torch.steps import POWERS

SAMPLED, RUN = 1 << 10, 16
"""About so many entries of a large tensor are compared, in runs: each run is one access to memory."""


class Trace(NamedTuple):
    """What a step has left in the weights of some parameters."""

    parameters: list[Tensor]
    whole: bool  # whether they are not sharded over processes
    entries: Tensor | None  # of all of them end to end; None if reading them would wait for the device
    turn: int | None  # decides which entries of large tensors these are; None if they are all entries
    pointers: list[int]  # none if the entries are all entries


def trace_of(
    parameters: list[Tensor], turn: int, *, whole: bool, entries: bool = True, joined: Tensor | None = None
) -> Trace:
    """The trace of parameters as they are now; ``joined``: their weights end to end, if they are known."""
    weights = parameters if whole else [local_shard(x) for x in parameters]
    if not entries:
        return Trace(parameters, whole, None, None, [x.data_ptr() for x in weights])
    if all(x.numel() <= LARGEST_JOINED for x in weights):
        everything = _entries(weights, None) if joined is None else joined
        # the entries of one tensor may share its memory
        return Trace(parameters, whole, everything.clone() if len(weights) == 1 else everything, None, [])
    return Trace(parameters, whole, _entries(weights, turn), turn, [x.data_ptr() for x in weights])


def is_changed(trace: Trace) -> bool:
    """Whether the weights are not those of a trace, as far as this process holds them."""
    weights = trace.parameters if trace.whole else [local_shard(x) for x in trace.parameters]
    if trace.pointers and trace.pointers != [x.data_ptr() for x in weights]:
        return True
    return trace.entries is not None and not _are_equal(_entries(weights, trace.turn), trace.entries)


def _entries(weights: Sequence[Tensor], turn: int | None) -> Tensor:
    """Every entry of small tensors, and about ``SAMPLED`` of each large one, others in every turn."""
    if turn is None:
        return _flatten_dense_tensors(weights)  # type: ignore[no-any-return, no-untyped-call]
    parts = [_sample(x, turn) for x in weights]
    return torch.cat(parts if all(x.ndim == 2 for x in parts) else [x.reshape(-1) for x in parts])


def _are_equal(one: Tensor, other: Tensor) -> bool:
    if one.device.type != "cpu" or one.dtype != other.dtype:
        return one.dtype == other.dtype and torch.equal(one, other)
    # bit by bit, which NumPy does in a fifth of the time
    bits = _BITS[one.element_size()]
    return bool(np.array_equal(one.view(bits).numpy(), other.view(bits).numpy()))


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _sample(x: Tensor, turn: int) -> Tensor:
    count = x.numel()
    if count <= SAMPLED:
        return x.reshape(-1)
    if not x.is_contiguous():
        # where channels are last in memory, this is no copy
        x = (x.movedim(1, -1) if x.ndim > 2 else x).reshape(-1)
    # an odd stride, so that runs begin in every column, and after so many turns at every entry
    stride = count * RUN // SAMPLED | 1
    start = RUN * turn % stride
    # in one operation, because each takes as long as the copy
    return x.as_strided(((count - start - RUN) // stride + 1, RUN), (stride, 1), x.storage_offset() + start)


def mirror_of(parameter: Tensor, link: Link, dtype: torch.dtype) -> Tensor:
    """The mirror variable of a parameter, as a new tensor."""
    weights = parameter.detach().to(dtype)
    mirror = link.mirror(weights, POWERS)
    return mirror.clone() if mirror is weights else mirror


def adopt_changes(parameter: Tensor, mirror: Tensor, link: Link) -> None:
    """Update the mirror variable of the weights that were changed between steps (by a checkpoint or a clamp).

    The other entries keep their mirror variable: recomputing it would lose it wherever the weight has underflowed.
    """
    weights = parameter.detach()
    linked = link.weights(mirror, POWERS).to(weights.dtype)
    limits = torch.finfo(weights.dtype)
    # compiled and eager steps round the last digits differently, and flush subnormal numbers to zero (but not those of
    # float16, which are needed; they may differ by two units in the last place)
    tolerance = 4.0 * limits.eps * weights.abs() + min(limits.tiny, 2.0**-23)
    changed = (linked - weights).abs() > tolerance
    mirror.copy_(torch.where(changed, mirror_of(parameter, link, mirror.dtype), mirror))
