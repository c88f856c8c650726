"""The step of mirror descent on tensors: momentum, a step of the mirror variable, and the weights that belong to it.

    b ← momentum·b + g,    z ← decay·z − lr·D(b),    w ← sign(z)|z|^(1/(p−1)),

with the state z = ∇ψ(w) = sign(w)|w|^(p−1). Python calls take most of the time of small tensors, so these are joined
end to end. A large tensor takes its step alone, in one compiled pass over memory where that works.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from attsvm._utils.powers import Functions
from attsvm.torch.fused import kernel
from attsvm.torch.link import Link
from attsvm.torch.sharding import Sharding


class StepKind(NamedTuple):
    """What a step does, fixed when it is compiled."""

    link: Link
    sign: bool = False  # whether to step along sign(d) in place of d
    nesterov: bool = False  # whether to look ahead of the momentum buffer
    decays: bool = False  # whether z is that of smaller weights
    divides: bool = False  # whether d is divided by one


class Along(NamedTuple):
    """Steps −lr·length·direction/divisor of a batch, with a length and a divisor for each tensor."""

    directions: list[Tensor] | None  # of each part of the batch; None: along the momentum, which the step updates
    lengths: Tensor
    divisors: Tensor | None = None


@dataclass
class TensorBatch:
    """Tensors of one parameter group, of one device and of the same dtypes, that take their step in the same way.

    The *parts* of a batch are its tensors, or a single one that holds the entries of all of them end to end.
    """

    parameters: list[Tensor]
    # local shards, in the same order; ``mirrors[i] is weights[i]`` if the weights are their own mirror variable
    weights: list[Tensor]
    gradients: list[Tensor]
    mirrors: list[Tensor]
    buffers: list[Tensor] | None  # momentum buffers
    joined: bool  # whether there is one part
    compiled: bool  # whether a compiled kernel takes the step
    sharding: Sharding  # how norms are completed over processes
    written: Tensor | None = None  # the weights of the one part, as the step has left them

    def parts(self, tensors: list[Tensor]) -> list[Tensor]:
        """The parts of tensors of the batch; they share the memory of the tensors unless these are joined."""
        if self.joined:
            return [_flatten_dense_tensors(tensors)]  # type: ignore[no-untyped-call]
        return [x.view(-1) for x in tensors] if self.compiled else tensors

    def apart(self, parts: list[Tensor]) -> list[Tensor]:
        """The tensors of parts, which share their memory."""
        if self.joined:
            return list(_unflatten_dense_tensors(parts[0], self.weights))  # type: ignore[no-untyped-call]
        return [part.view(x.shape) for part, x in zip(parts, self.weights, strict=True)] if self.compiled else parts

    def write(self, tensors: list[Tensor], parts: list[Tensor]) -> None:
        """Copy parts into the tensors, unless they share their memory."""
        if self.joined:
            torch._foreach_copy_(tensors, self.apart(parts))

    def per_part(self, values: Tensor) -> list[Tensor]:
        """A number of each tensor, as a number of each part or of each of its entries."""
        if not self.joined:
            return list(values.unbind())
        sizes = torch.tensor([x.numel() for x in self.weights], device=values.device)
        return [values.repeat_interleave(sizes)]


def accumulate(batch: TensorBatch, scale: float, momentum: float, nesterov: bool) -> list[Tensor]:
    """Update the momentum buffers in place; the directions of each part, scale·g without momentum."""
    dtype = batch.mirrors[0].dtype
    gradients = [x.to(dtype) for x in batch.parts(batch.gradients)]
    if batch.buffers is None:
        return gradients if scale == 1.0 else [x * scale for x in gradients]
    buffers = batch.parts(batch.buffers)
    directions = [torch.empty_like(b) for b in buffers] if nesterov else buffers
    numbers = buffers[0].new_tensor([scale, momentum, 1.0, 1.0, 1.0])
    add: Callable[..., None] = partial(_accumulate, nesterov)
    if batch.compiled:
        own = buffers[0].dtype
        dtypes = own, gradients[0].dtype, own if nesterov else None
        add = kernel(_accumulate, (nesterov,), dtypes, buffers[0].device, torch.get_num_threads())
    for buffer, gradient, direction in zip(buffers, gradients, directions, strict=True):
        add(buffer, gradient, direction if nesterov else None, numbers)
    batch.write(batch.buffers, buffers)
    return directions


def _accumulate(nesterov: bool, buffer: Tensor, gradient: Tensor, direction: Tensor | None, numbers: Tensor) -> None:
    found = _accumulated(gradient, buffer, numbers[0], numbers[1], nesterov)
    if direction is not None:
        direction.copy_(found)


def descend(batch: TensorBatch, kind: StepKind, lr: float, scale: float, momentum: float, decay: float) -> None:
    """Take an elementwise step in place, along b or sign(b)."""
    if kind.sign and batch.buffers is None:
        scale = math.copysign(1.0, scale)
    along = Along(None, batch.mirrors[0].new_ones(1 if batch.joined else len(batch.mirrors)))
    descend_along(batch, kind, along, lr, scale, momentum, decay)


def descend_along(
    batch: TensorBatch, kind: StepKind, along: Along, lr: float, scale: float, momentum: float, decay: float
) -> None:
    """Take a step in place along directions."""
    directions, buffers = along.directions, None
    if directions is None:
        directions, buffers = batch.parts(batch.gradients), batch.buffers
        if buffers is None:  # one pass less than the product with each entry
            lr *= scale
    lengths, divisors = lr * along.lengths, along.divisors
    if batch.joined and len(lengths) > 1:
        # each entry has the length of its tensor
        (joined,), (factors,) = directions, batch.per_part(lengths)
        joined = joined if divisors is None else joined / batch.per_part(divisors)[0]
        directions, lengths, divisors = [joined * factors], torch.ones_like(lengths[:1]), None
    kind = kind._replace(decays=decay != 1.0, divides=divisors is not None)
    fixed = lengths.new_tensor([scale, momentum, decay]).expand(len(lengths), 3)
    columns = [fixed, lengths[:, None], (lengths if divisors is None else divisors)[:, None]]
    _take(batch, kind, directions, buffers, list(torch.cat(columns, dim=1).unbind()))


def _take(
    batch: TensorBatch,
    kind: StepKind,
    directions: list[Tensor],
    own_buffers: list[Tensor] | None,
    numbers: list[Tensor],
) -> None:
    mirrors = batch.parts(batch.mirrors)
    buffers = None if own_buffers is None else batch.parts(own_buffers)
    weights = None
    if batch.weights[0] is not batch.mirrors[0]:
        # joined weights are only written
        dtype = batch.weights[0].dtype
        weights = [torch.empty_like(mirrors[0], dtype=dtype)] if batch.joined else batch.parts(batch.weights)
    steps: dict[torch.dtype, Callable[..., None]] = {}
    for dtype in {x.dtype for x in directions}:  # those of vectors and of matrices may differ
        steps[dtype] = partial(_update, kind, False)
        if batch.compiled:
            dtypes = mirrors[0].dtype, dtype, *(x and x[0].dtype for x in (buffers, weights))
            steps[dtype] = kernel(_update, (kind, True), dtypes, mirrors[0].device, torch.get_num_threads())
    absent = [None] * len(mirrors)
    for tensors in zip(mirrors, directions, buffers or absent, weights or absent, numbers, strict=True):
        steps[tensors[1].dtype](*tensors)
    batch.write(batch.mirrors, mirrors)
    if own_buffers is not None and buffers is not None:
        batch.write(own_buffers, buffers)
    if weights is not None:
        batch.write(batch.weights, weights)
        batch.written = weights[0] if batch.joined else None


def _update(
    kind: StepKind,
    compiled: bool,
    mirror: Tensor,
    gradient: Tensor,
    buffer: Tensor | None,
    weights: Tensor | None,
    numbers: Tensor,
) -> None:
    """The step in place, as it is taken by operations one after the other or compiled as one pass over memory."""
    scale, momentum, decay, step, divisor = numbers.unbind()
    direction = gradient.to(mirror.dtype)
    if buffer is not None:
        direction = _accumulated(direction, buffer, scale, momentum, kind.nesterov)
    if kind.sign:
        direction = torch.sign(direction)
    if kind.divides:
        direction = direction / divisor
    # z ← decay·z − step·d; cube roots in float64 take minutes to compile
    functions = POWERS_BY_CUBE_ROOTS if compiled and mirror.dtype == torch.float32 else POWERS
    if kind.decays and kind.link.linear:
        mirror.copy_(kind.link.shrunk(mirror, decay, functions))
    elif kind.decays:
        mirror.mul_(decay)
    mirror.addcmul_(direction, step, value=-1.0)
    if weights is None:
        return
    linked = kind.link.weights(mirror, functions)
    if compiled and mirror.device.type == "cpu":
        # A processor fetches a line of memory before it writes to it, and fetches lines that are read earlier. So the
        # weights are read, in a condition that never selects them.
        linked = torch.where(momentum >= 0.0, linked, weights)
    weights.copy_(linked)


def _accumulated(gradient: Tensor, buffer: Tensor, scale: Tensor, momentum: Tensor, nesterov: bool) -> Tensor:
    # b ← momentum·b + scale·g; the direction is b, or scale·g + momentum·b
    buffer.mul_(momentum).addcmul_(gradient, scale)
    return torch.addcmul(gradient * scale, buffer, momentum) if nesterov else buffer


# The powers of tensors, with a cube root that compiled kernels compute faster than `pow`.


class _Guess(NamedTuple):
    """How x^(−1/3) of a dtype is guessed from its bits, and the number of iterations after it."""

    integers: torch.dtype
    offset: float
    iterations: int


# The bits of x, read as an integer, are about 2^m (log2(x) + b), m the bits of the significand and b the offset of the
# exponent. So the bits of x^(−1/3) are about (4/3)·2^m·b less a third of those of x. The shift 0.045 balances the
# error, which is at most 3.5 %. An iteration leaves a relative error of 14/3 times its cube: 2e-4, 4e-11, 0.
_GUESSES = {
    torch.float32: _Guess(torch.int32, 4 / 3 * 2**23 * (127 - 0.045), 2),
    torch.float64: _Guess(torch.int64, 4 / 3 * 2**52 * (1023 - 0.045), 3),
}


def cube_root(x: Tensor) -> Tensor:
    """x^(1/3) for normal x ≥ 0 in float32 or float64, by multiplications alone; smaller x ≥ 0 stay finite.

    Six times as fast as `pow` in a compiled kernel, and more accurate.
    """
    integers, offset, iterations = _GUESSES[x.dtype]
    bits = offset - x.view(integers).to(x.dtype) / 3.0
    inverse = bits.to(integers).view(x.dtype)
    for _ in range(iterations):
        # (1 − e)^(−1/3) = 1 + e/3 + 2e²/9 + …
        error = 1.0 - x * inverse * inverse * inverse
        inverse = inverse + inverse * (error * (1.0 / 3.0 + error * (2.0 / 9.0)))
    return x * inverse * inverse


POWERS = Functions(torch.sqrt, torch.copysign, torch.pow)
POWERS_BY_CUBE_ROOTS = POWERS._replace(cube_root=cube_root)
