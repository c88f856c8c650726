"""Functions of flat tensors compiled as one pass over memory, for any length.

A kernel is compiled for an option and for dtypes, not for a model: it is not compiled again for other shapes or for a
gradient that is None.
"""

import contextlib
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from attsvm._utils.files import reason

FEWEST_ENTRIES = 1 << 20
"""With fewer entries the seconds of compilation are not worth it: a million take about 4 ms a step without."""

TYPICAL_LENGTH = 1 << 17
"""Kernels are compiled with this length: long enough for the compiler to parallelise their loops."""

NUM_NUMBERS = 5
"""The length of the last argument of each kernel."""


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
            f"attsvm.torch: steps on {device} are slower, because torch.compile fails here ({reason(error)}); it "
            "needs a C++ compiler. compiled=False takes the same steps without this warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def fits_kernel(tensors: Sequence[Tensor | None]) -> bool:
    """Whether a kernel takes a tensor with its gradient and state: contiguous, on one device, of more than one entry.

    `torch.compile` treats lengths 0 and 1 as constants, so it would compile separate kernels for them.
    """
    first = tensors[0]
    return (
        first is not None
        and first.numel() > 1
        and all(x is None or (x.is_contiguous() and x.device == first.device) for x in tensors)
    )


# the number of threads is an argument because the compiler writes it into the loops
@cache
def kernel(
    function: Callable[..., Tensor | None],
    options: tuple[Hashable, ...],
    dtypes: tuple[torch.dtype | None, ...],
    device: torch.device,
    threads: int,
) -> Callable[..., Any]:
    """Compile ``function(*options, *tensors, numbers)`` for flat tensors of these dtypes (None: no tensor)."""

    def step(*tensors: Any) -> Tensor | None:
        return function(*options, *tensors)

    typical = [None if dtype is None else torch.zeros(TYPICAL_LENGTH, dtype=dtype, device=device) for dtype in dtypes]
    for tensor in typical:
        if tensor is not None:
            # dynamic=True would do it in each call
            torch._dynamo.mark_dynamic(tensor, 0)
    # isolated: kernels made from one function would otherwise share one limit of recompilations
    compiler: Any = torch.compile
    given = (*typical, torch.ones(NUM_NUMBERS, dtype=dtypes[0], device=device))
    # While a kernel is compiled, its exponents are constants. torch would make a number that differs from that of an
    # earlier kernel a variable, and its cache of compiled graphs, which does not see the value, may then return the
    # kernel of another exponent.
    with torch._dynamo.config.patch(specialize_float=True):
        if device.type == "cpu":
            with contextlib.suppress(Exception):  # it uses what is internal to PyTorch and may change
                direct = _Direct(step)
                direct(*given)
                return direct
        made: Callable[..., Any] = compiler(step, fullgraph=True, isolate_recompiles=True)
        made(*given)
    return made


class _Direct:
    """A compiled function, whose generated code is called without the checks of `torch.compile` where it is known.

    These checks take 20 to 60 µs a call on a CPU, the code 4. Arguments differ between calls by their length only, and
    the code that has served a length is kept.
    """

    def __init__(self, function: Callable[..., Tensor | None]) -> None:
        compiler: Any = torch.compile
        self.checked = compiler(function, fullgraph=True, isolate_recompiles=True, backend=self._compile)
        self.known: dict[int, tuple[Callable[[list[Any]], Any], Callable[[tuple[Any, ...]], tuple[Any, ...]]]] = {}
        self.served: tuple[Any, list[int]] | None = None  # the last code, and its arguments as numbers

    def __call__(self, *tensors: Any) -> Any:
        length = tensors[0].shape[0]
        if length in self.known:
            code, order = self.known[length]
            found = code(list(order((*tensors, length))))
            return found[0] if found else None
        self.served = None
        result = self.checked(*tensors)
        if self.served is not None:
            made, given = self.served
            numbers = [None if x is None else x.data_ptr() for x in tensors] + [length]
            # tensors that share memory, such as a weight that is its own gradient, cannot be told apart
            apart = len({*numbers} - {None}) == sum(x is not None for x in numbers)
            if apart and all(x in numbers for x in given):
                self.known[length] = made, itemgetter(*map(numbers.index, given))
        return result

    def _compile(self, graph: Any, examples: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd
        from torch._inductor.decomposition import select_decomp_table

        backend = aot_autograd(
            fw_compiler=self._generate, decompositions=select_decomp_table(), keep_inference_input_mutations=True
        )
        return backend(graph, examples)

    def _generate(self, graph: Any, examples: Any) -> Any:
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx_inner

        with config.patch(split_reductions=False):  # sums are made in the pass that computes their terms
            code = compile_fx_inner(graph, examples)

        def run(inputs: list[Any]) -> Any:
            self.served = code, [x if isinstance(x, int) else x.data_ptr() for x in inputs]
            return code(inputs)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run
