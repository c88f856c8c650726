"""How long a sweep takes and how much disk space it needs, from a few blocks that are computed."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from attsvm._utils.jax_devices import find_device, name_of, on_device
from attsvm.sweeps.compute import block_outputs, check_values, one_thread
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.executors import number_of_workers

DISK_BLOCK = 4096
"""A file takes whole blocks of this many bytes."""

FRAME = 64
"""The most bytes that zarr adds to the numbers of a chunk."""


@dataclass(frozen=True)
class Estimate:
    """What a sweep takes."""

    trials: int
    chunks: int
    seconds: float  # on ``workers`` workers, without the time to start them, to import and to compile
    # the most that imports and compilation add: with a program for each cell that differs in more than numbers with a
    # decimal point, such as a learning rate, and none of them in the cache of programs
    compile_seconds: float
    bytes: int  # on disk in blocks of 4 KiB, without compression
    workers: int
    measured: int  # the number of blocks that were computed for it


def estimate(definition: Definition, chunk: int, workers: int | None = None, device: str | None = None) -> Estimate:
    """Compute a block of the first, the middle and the last cell, twice: the first time programs are compiled.

    Raises ProblemError if a value of the sweep cannot be used, or there is no such device.
    """
    check_values(definition)
    home = find_device(device)
    cells = sorted({0, definition.num_cells // 2, definition.num_cells - 1})
    seconds, compilation = [], []
    with one_thread(), _without_cache(), on_device(home):
        for cell in cells:
            began = time.perf_counter()
            block_outputs(definition, cell, 0)
            compiled = time.perf_counter()
            outputs = block_outputs(definition, cell, 0)
            seconds.append(time.perf_counter() - compiled)
            compilation.append(compiled - began - seconds[-1])
    # the first cell includes what each worker does once, such as imports
    once, each = compilation[0], max(0.0, float(np.mean(compilation[1:] or [0.0])))
    programs = num_programs(definition)
    used = max(1, number_of_workers(workers, name_of(home)))  # 0 workers are this process
    trials = definition.num_cells * definition.trials
    chunks = definition.num_cells * -(-definition.trials // chunk)
    written = [min(chunk, definition.trials) * array[0].nbytes + FRAME for array in outputs.values()]
    others = 2 * len(outputs) + 3 * len(definition.grid) + 8  # folders and metadata
    return Estimate(
        trials=trials,
        chunks=chunks,
        seconds=float(np.mean(seconds)) * definition.num_cells * definition.num_blocks / used,
        compile_seconds=max(0.0, once - each) + each * programs / min(used, programs),
        bytes=DISK_BLOCK * (others + chunks * (1 + sum(-(-size // DISK_BLOCK) for size in written))),
        workers=used,
        measured=len(cells),
    )


def num_programs(definition: Definition) -> int:
    """The number of cells that differ in sizes, names or objects. Numbers with a decimal point change no program."""
    cells = map(definition.values, range(definition.num_cells))
    return len({tuple((k, str(x)) for k, x in cell.items() if not isinstance(x, float)) for cell in cells})


@contextlib.contextmanager
def _without_cache() -> Iterator[None]:
    """Compile every program: those in the cache would make the others look fast."""
    before: bool = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    try:
        _set_cache(False)
        yield
    finally:
        _set_cache(before)


def _set_cache(enabled: bool) -> None:
    jax.config.update("jax_enable_compilation_cache", enabled)
    reset_cache()  # the setting is read when a cache is first used
