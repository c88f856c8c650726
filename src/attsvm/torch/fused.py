"""Functions of flat tensors compiled as one pass over memory, for any length.

A kernel is compiled for an option and for dtypes, not for a model: it is not compiled again for other shapes or for a
gradient that is None.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from attsvm._utils.files import reason

FEWEST_ENTRIES = 1 << 20
"""With fewer entries the seconds of compilation are not worth it: a million take about 4 ms a step without."""

TYPICAL_LENGTH = 1 << 17
"""Kernels are compiled with this length: long enough for the compiler to parallelise their loops."""


def compiling_pays(parameters: Iterable[Tensor]) -> bool:
    """Whether compiling the step of these parameters saves more than it takes, in a training of usual length."""
    return sum(x.numel() for x in parameters) >= FEWEST_ENTRIES


@cache
def compiler_works(device: torch.device) -> bool:
    """Whether `torch.compile` makes kernels for the device here. Warns at the first call if not."""
    compiler: Any = torch.compile
    try:
        compiler(lambda x: x + 1.0, fullgraph=True)(torch.zeros(2, device=device))
    except Exception as error:  # whatever keeps it from compiling: no C++ compiler, a platform without support
        warnings.warn(
            f"attsvm.torch: steps on {device} are slower, because torch.compile fails here ({reason(error)}). A C++ "
            "compiler is needed; compiled=False takes the same steps without this warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def fits_kernel(tensors: Sequence[Tensor | None]) -> bool:
    """Whether a kernel takes a tensor with its gradient and state: all contiguous, and of more than one entry.

    `torch.compile` treats lengths 0 and 1 as constants, so it would compile separate kernels for them.
    """
    return all(x is None or (x.is_contiguous() and x.numel() > 1) for x in tensors)


# the number of threads is an argument because the compiler writes it into the loops
@cache
def kernel(
    function: Callable[..., None],
    options: tuple[Hashable, ...],
    dtypes: tuple[torch.dtype | None, ...],
    device: torch.device,
    threads: int,
) -> Callable[..., None]:
    """Compile ``function(*options, *tensors, numbers)`` for flat tensors of these dtypes (None: no tensor)."""

    def step(*tensors: Any) -> None:
        function(*options, *tensors)

    # isolated: kernels made from one function would otherwise share one limit of recompilations
    compiler: Any = torch.compile
    made: Callable[..., None] = compiler(step, fullgraph=True, isolate_recompiles=True)
    typical = [None if dtype is None else torch.zeros(TYPICAL_LENGTH, dtype=dtype, device=device) for dtype in dtypes]
    for tensor in typical:
        if tensor is not None:
            # dynamic=True would do it in each call
            torch._dynamo.mark_dynamic(tensor, 0)
    with constant_numbers():
        made(*typical, torch.ones(5, dtype=dtypes[0], device=device))
    return made


def constant_numbers() -> Any:
    """While a kernel is compiled: its exponents are constants.

    torch would make a number that differs from that of an earlier kernel a variable, and its cache of compiled graphs,
    which does not see the value, may then return the kernel of another exponent.
    """
    return torch._dynamo.config.patch(specialize_float=True)
