"""How long a sweep takes and how much disk space it needs, from a few blocks that are computed."""

import time
from dataclasses import dataclass

import numpy as np

from attsvm.sweeps.definition import Definition
from attsvm.sweeps.work import block_outputs, one_thread
from attsvm.training.engine.trials import num_threads

DISK_BLOCK = 4096
"""A file takes whole blocks of this many bytes."""

FRAME = 64
"""The most bytes that zarr adds to the numbers of a chunk."""


@dataclass(frozen=True)
class Estimate:
    """What a sweep takes.

    Attributes
    ----------
    trials, chunks : int
    seconds : float
        On ``workers`` workers, without the time to start them and to compile.
    bytes : int
        On disk in blocks of 4 KiB, without compression.
    workers : int
    measured : int
        The number of blocks that were computed for it.
    """

    trials: int
    chunks: int
    seconds: float
    bytes: int
    workers: int
    measured: int


def estimate(definition: Definition, chunk: int, workers: int | None = None) -> Estimate:
    """Compute a block of the first, the middle and the last cell, twice: the first time programs are compiled."""
    cells = sorted({0, definition.num_cells // 2, definition.num_cells - 1})
    seconds = []
    with one_thread():
        for cell in cells:
            block_outputs(definition, cell, 0)
            began = time.perf_counter()
            outputs = block_outputs(definition, cell, 0)
            seconds.append(time.perf_counter() - began)
    used = num_threads() if workers is None else max(1, workers)  # 0 workers are this process
    trials = definition.num_cells * definition.trials
    chunks = definition.num_cells * -(-definition.trials // chunk)
    written = [min(chunk, definition.trials) * array[0].nbytes + FRAME for array in outputs.values()]
    others = 2 * len(outputs) + 3 * len(definition.grid) + 8  # folders and metadata
    return Estimate(
        trials=trials,
        chunks=chunks,
        seconds=float(np.mean(seconds)) * definition.num_cells * definition.num_blocks / used,
        bytes=DISK_BLOCK * (others + chunks * sum(-(-size // DISK_BLOCK) for size in written)),
        workers=used,
        measured=len(cells),
    )
