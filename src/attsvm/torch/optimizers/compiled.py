"""The update as one compiled pass over memory: it reads g and z and writes z and w.

A kernel is compiled for a recipe, not for a model. It takes `SLOTS` flat tensors of any length at a time, so it is not
compiled again for another number of parameters, other shapes, or a gradient that is None. Unused slots hold
placeholders. The cost of a call (about 20 µs) is shared by the slots, which matters for small parameters.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attsvm.torch.optimizers.powers import TENSOR, TENSOR_WITH_POW, power, signed_power

SLOTS = 16
# with fewer entries the seconds of compilation are not worth it: a million take about 4 ms a step without
FEWEST_ENTRIES = 1 << 20
# the length with which a kernel is compiled: long enough for the compiler to parallelise its loops
TYPICAL_LENGTH = 1 << 17


class Recipe(NamedTuple):
    """What an update kernel does, fixed when it is compiled."""

    exponent: float = 1.0  # of the link w = sign(z)|z|^exponent
    sign: bool = False  # whether to step along sign(d) in place of d
    nesterov: bool = False  # whether to look ahead of the momentum buffer


def pays(parameters: Iterable[Tensor]) -> bool:
    """Whether compiling the step of these parameters saves more than it takes, in a training of usual length."""
    return sum(x.numel() for x in parameters) >= FEWEST_ENTRIES


@cache
def works(device: torch.device) -> bool:
    """Whether `torch.compile` makes kernels for the device here. Warns at the first call if not."""
    compiler: Any = torch.compile
    try:
        compiler(lambda x: x + 1.0, fullgraph=True)(torch.zeros(2, device=device))
    except Exception as reason:  # whatever keeps it from compiling: no C++ compiler, a platform without support
        said = next(iter(str(reason).splitlines()), type(reason).__name__)
        warnings.warn(
            f"attsvm.torch: steps on {device} are slower, because torch.compile fails here ({said}). A C++ compiler is "
            "needed; compiled=False takes the same steps without this warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def fits(tensors: Sequence[Tensor | None]) -> bool:
    """Whether a kernel takes a parameter with its gradient and state: all contiguous, and of more than one entry.

    `torch.compile` treats lengths 0 and 1 as constants, so it would compile separate kernels for them.
    """
    return all(x is None or (x.is_contiguous() and x.numel() > 1) for x in tensors)


def descend(
    recipe: Recipe,
    weights: list[Tensor],
    mirrors: list[Tensor],
    gradients: list[Tensor],
    buffers: list[Tensor] | None = None,
    *,
    step: float = 0.0,
    scaling: tuple[list[Tensor], list[Tensor]] | None = None,
    scale: float = 1.0,
    momentum: float = 0.0,
    decay: float = 1.0,
) -> None:
    """In place: b ← momentum·b + scale·g, d = b (or ahead of it), z ← decay·z − step·d, w ← link(z).

    With ``scaling`` each tensor has its own step and divisor, 0-d tensors: z ← decay·z − step·(d/divisor).
    ``weights[i] is mirrors[i]`` if the weights are their own mirror variable.
    """
    first = mirrors[0]
    own_mirror = weights[0] is first
    kernel = _update_kernel(
        recipe,
        scaling is not None,
        (
            first.dtype,
            gradients[0].dtype,
            None if own_mirror else weights[0].dtype,
            None if buffers is None else first.dtype,
        ),
        first.device,
        torch.get_num_threads(),
    )
    columns = [mirrors, gradients, None if own_mirror else weights, buffers]
    scalars = first.new_tensor([scale, momentum, decay, step, 1.0])
    for start in range(0, len(mirrors), SLOTS):
        rows = slice(start, start + SLOTS)
        own = None if scaling is None else tuple(_padded(values[rows]) for values in scaling)
        kernel(columns, rows, scalars, own)


def power_sums(tensors: list[Tensor], largest: list[Tensor], q: float) -> list[Tensor]:
    """Σ(|x|/m)^q of each tensor as a 0-d tensor: `attsvm.torch.optimizers.norms.power_sums` in one pass."""
    first = tensors[0]
    kernel = _power_sum_kernel(q, first.dtype, first.device, torch.get_num_threads())
    sums: list[Tensor] = []
    for start in range(0, len(tensors), SLOTS):
        rows = slice(start, start + SLOTS)
        sums += kernel([tensors], rows, _padded(largest[rows]))[: len(tensors[rows])]
    return sums


class _Kernel:
    """A compiled function of `SLOTS` rows of flat tensors, and placeholders for unused rows.

    Columns that the kernel does not use are None.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        dtypes: tuple[torch.dtype | None, ...],
        device: torch.device,
        *arguments: Any,
    ) -> None:
        # isolated: kernels made from one function would otherwise share one limit of recompilations
        compiler: Any = torch.compile
        self.function = compiler(function, dynamic=True, fullgraph=True, isolate_recompiles=True)
        self.placeholders = _columns(dtypes, device, [2] * SLOTS)
        # compiled on different lengths, because equal ones would be assumed to be always equal
        self.function(*_columns(dtypes, device, [TYPICAL_LENGTH + i for i in range(SLOTS)]), *arguments)

    def __call__(self, columns: list[list[Tensor] | None], rows: slice, *arguments: Any) -> Any:
        filled = [
            None if column is None else _flat(column[rows], spare)
            for column, spare in zip(columns, self.placeholders, strict=True)
        ]
        return self.function(*filled, *arguments)


# the number of threads is an argument because the compiler writes it into the loops
@cache
def _update_kernel(
    recipe: Recipe, scaled: bool, dtypes: tuple[torch.dtype | None, ...], device: torch.device, threads: int
) -> _Kernel:
    def update(
        mirrors: list[Tensor],
        gradients: list[Tensor],
        weights: list[Tensor] | None,
        buffers: list[Tensor] | None,
        scalars: Tensor,
        scaling: tuple[Tensor, Tensor] | None,
    ) -> None:
        scale, momentum, decay, step = scalars[0], scalars[1], scalars[2], scalars[3]
        for i in range(SLOTS):
            mirror = mirrors[i]
            direction = gradients[i].to(mirror.dtype) * scale
            if buffers is not None:
                buffer = momentum * buffers[i] + direction
                buffers[i].copy_(buffer)
                direction = direction + momentum * buffer if recipe.nesterov else buffer
            if scaling is not None:
                step, direction = scaling[0][i], direction / scaling[1][i]
            if recipe.sign:
                direction = torch.sign(direction)
            moved = decay * mirror - step * direction
            mirror.copy_(moved)
            if weights is not None:
                linked = signed_power(moved, recipe.exponent, arithmetic)
                # A processor fetches a line of memory before it writes to it, and fetches lines that are read earlier.
                # So the weights are read, in a condition that never selects them.
                weights[i].copy_(torch.where(scalars[4] > 0, linked, weights[i]) if on_cpu else linked)

    mirror_dtype, on_cpu = dtypes[0], device.type == "cpu"
    # cube roots in float64 take minutes to compile
    arithmetic = TENSOR if mirror_dtype == torch.float32 else TENSOR_WITH_POW
    scaling = tuple(torch.ones(SLOTS, dtype=mirror_dtype, device=device) for _ in range(2)) if scaled else None
    return _Kernel(update, dtypes, device, torch.ones(5, dtype=mirror_dtype, device=device), scaling)


@cache
def _power_sum_kernel(q: float, dtype: torch.dtype, device: torch.device, threads: int) -> _Kernel:
    def sums(tensors: list[Tensor], largest: Tensor) -> list[Tensor]:
        # with cube roots these sums take minutes to compile
        return [power((tensors[i] / largest[i]).abs(), q, TENSOR_WITH_POW).sum() for i in range(SLOTS)]

    return _Kernel(sums, (dtype,), device, torch.ones(SLOTS, dtype=dtype, device=device))


def _columns(
    dtypes: tuple[torch.dtype | None, ...], device: torch.device, lengths: list[int]
) -> list[list[Tensor] | None]:
    return [
        None if dtype is None else [torch.zeros(length, dtype=dtype, device=device) for length in lengths]
        for dtype in dtypes
    ]


def _flat(tensors: list[Tensor], spare: list[Tensor] | None) -> list[Tensor]:
    assert spare is not None
    return [x if x.ndim == 1 else x.view(-1) for x in tensors] + spare[len(tensors) :]


def _padded(values: list[Tensor]) -> Tensor:
    stacked = torch.stack(values)
    return torch.nn.functional.pad(stacked, (0, SLOTS - len(values)), value=1.0)
