"""The main function of sweeps: computes the chunks that a store lacks."""

import logging
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attsvm._utils.checks import check_integer
from attsvm._utils.extensions import did_you_mean, find_named, kind_check
from attsvm._utils.extras import check_installed
from attsvm._utils.jax_devices import find_device, on_device
from attsvm._utils.progress import Callback, Progress, counted, reports
from attsvm.errors import ProblemError
from attsvm.sweeps.compute import SweepChunk, check_values, compute, one_thread, tasks
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.executors import check_workers, connected, device_of_workers, number_of_workers, outcomes
from attsvm.sweeps.measure import Measure
from attsvm.sweeps.ready import READY
from attsvm.sweeps.store import SweepStore, open_sweep

if TYPE_CHECKING:
    import xarray

_log = logging.getLogger(__name__)

OPTIONS = tuple(each.name for each in fields(Definition) if each.name not in ("grid", "measures"))
"""The options of a definition."""

OTHER_NAMES = {"cluster": "scheduler", "source": "data"}
"""What other libraries call an argument."""

MOST_CHUNK = 1024
"""Trials of a chunk by default: seconds of training, and files of kilobytes."""


@reports("sweep")
def sweep(
    grid: Mapping[str, Sequence[Any]] | str | Definition,
    measures: Sequence[str | Measure | Callable[..., Any]] | None = None,
    *,
    store: str | os.PathLike[str],
    workers: int | None = None,
    scheduler: str | None = None,
    chunk: int | None = None,
    device: str | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    command: str = "attsvm.sweep",
    **options: Any,
) -> "xarray.Dataset":
    """Measure many random trials in each cell of a grid, on all cores or a cluster, and store them as they finish.

    The result does not depend, to the bit, on the number of workers, on the chunks, or on their order. If the process
    ends at any moment, the same call continues: only what was under way is lost. A chunk that fails three times is
    recorded with its error, which is warned of, and is tried again by the next call.

    Parameters
    ----------
    grid : mapping of str to sequence, str, or Definition
        Values by the name of an argument of the data source, of :func:`attsvm.train`, of the optimiser or of
        :func:`attsvm.solve_svm`; or the name of a ready sweep, as "phase-global"; or a definition.
    measures : sequence of str, Measure or callable
        Names, ``"margin_ratio=l1,nuclear"``, or functions (problem, run) -> dict of arrays with one number for each
        trial. Required with a mapping.
    store : path
        The folder of the result.
    workers : int, optional
        Worker processes with one thread each, by default one for each core of a CPU and none for a GPU. With 0 the
        trials are computed in this process, without Dask.
    scheduler : str, optional
        Address of a running Dask scheduler, as ``"tcp://10.0.0.1:8786"``. Its workers must see the folder of ``store``.
    chunk : int, optional
        Trials that are computed and committed together, a multiple of the block; 1024 at most by default. A store that
        exists keeps its own.
    device : str, optional
        Where each worker trains, as for :func:`attsvm.train`. The Att-SVM solvers run on the CPU.
    callback : callable, optional
        Called with a :class:`attsvm.Progress` before the first chunk and after each chunk. Its steps are trials. Its
        stage names the finished cells and failed chunks, and at first the dashboard of Dask. The sweep stops when it
        returns True.
    progress : bool
        Show the progress, as :func:`attsvm.train` does.
    command : str
        The command that the result names.
    **options
        Of :class:`attsvm.sweeps.Definition`: ``trials``; ``data``, the name of a source or a function
        ``draw(generators, *, ...)``, described there; ``fixed``, ``seed``, ``block``.

    Returns
    -------
    xarray.Dataset
        As :func:`attsvm.open_sweep` returns it.

    Raises
    ------
    ProblemError
        If an argument is not valid, no cell can use a value of the grid, a worker has no such device, or the store is
        of another sweep, version or kind of device, or in use.

    See Also
    --------
    attsvm.open_sweep
    attsvm.sweeps.Definition : The grid, checked.

    Examples
    --------
    >>> import attsvm, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     grid = {"dim": [2, 5]}
    ...     found = attsvm.sweep(grid, ["feasible"], store=f"{folder}/phase", trials=40, workers=0)
    ...     found.feasible.mean("trial").values
    array([0.225, 1.   ])
    """
    check_workers(scheduler, workers)
    check_installed("attsvm.sweep", "sweep", "xarray", "zarr", *(() if workers == 0 else ("dask", "distributed")))
    definition = define(grid, measures, **options)
    size = chunk_size(definition, chunk)
    device = device_of_workers(scheduler, device)
    folder = SweepStore(store)
    if not folder.exists:
        check_values(definition)
    with folder.claimed():
        size = folder.prepare(definition, size, command, device)
        done = folder.done()
        left = [task for task in tasks(definition.num_cells, definition.trials, size) if task not in done]
        failed = _compute(definition, folder, size, left, scheduler, workers, device, callback) if left else []
    if failed:
        warnings.warn(
            f"{store}: {counted(len(failed), 'chunk')} failed, the first one with {failed[0]}",
            RuntimeWarning,
            stacklevel=2,
        )
    return open_sweep(store)


def _compute(
    definition: Definition,
    folder: SweepStore,
    chunk: int,
    left: list[SweepChunk],
    scheduler: str | None,
    workers: int | None,
    device: str | None,
    callback: Callback | None,
) -> list[str]:
    """Compute the chunks that are left; return the errors of those that failed."""
    began, trials = time.perf_counter(), definition.num_cells * definition.trials
    done = trials - sum(task.size for task in left)
    of_cells = Counter(task.cell for task in left)
    errors: list[str] = []

    def stops(dashboard: str = "") -> bool:
        """Call the callback; whether it stops the sweep."""
        finished = definition.num_cells - sum(number > 0 for number in of_cells.values())
        stage = [f"{finished:,}/{definition.num_cells:,} cells"]
        stage += [f"{counted(len(errors), 'chunk')} failed"] * bool(errors) + [f"dashboard {dashboard}"] * bool(
            dashboard
        )
        at = Progress(done, trials, time.perf_counter() - began, stage=", ".join(stage))
        return callback is not None and bool(callback(at))

    call = partial(run_chunk, definition, folder.path, chunk, folder.header()["digest"], device)
    with connected(scheduler, number_of_workers(workers, device)) as client:
        if stops("" if client is None else client.dashboard_link or ""):
            return errors
        for task, failure in outcomes(client, call, left):
            done += task.size  # a chunk that failed is no longer waited for
            if failure is None:
                of_cells[task.cell] -= 1
            else:
                if not errors:
                    _log.warning("%s: chunk %s failed with %s", folder.given, task.name, failure.error)
                folder.fail(definition, task, failure)
                errors.append(failure.error)
            if stops():
                break
    return errors


def run_chunk(
    definition: Definition, path: Path, chunk: int, digest: str, device: str | None, task: SweepChunk
) -> None:
    """Compute a chunk on one thread and on a device, and commit it to the store."""
    with one_thread(), on_device(find_device(device)):
        arrays = compute(definition, task)
    SweepStore(path).write(definition, chunk, digest, task, arrays)


def define(
    grid: Mapping[str, Sequence[Any]] | str | Definition, measures: Sequence[Any] | None = None, **options: Any
) -> Definition:
    """The definition that the arguments of :func:`sweep` describe.

    Raises ProblemError if they are not valid.
    """
    for name in options:
        if name not in OPTIONS:
            meant = did_you_mean(name, OPTIONS, OTHER_NAMES)
            raise ProblemError(f"{name}: expected one of {', '.join(OPTIONS)}, got another keyword{meant}")
    if isinstance(grid, Mapping):
        if measures is None:
            raise ProblemError("measures: expected at least one")
        return Definition(grid, measures, **options)
    definition = grid if isinstance(grid, Definition) else find_named("sweep", READY, grid, kind_check(Definition))
    changes = {**options, **({} if measures is None else {"measures": measures})}
    return definition.changed(**changes) if changes else definition


def chunk_size(definition: Definition, chunk: int | None) -> int:
    """The number of trials of a chunk, a multiple of the block.

    Raises ProblemError if the given number is not one.
    """
    width = definition.width
    if chunk is None:
        return min(definition.num_blocks, max(1, MOST_CHUNK // width)) * width
    if check_integer("chunk", chunk, width) % width:
        raise ProblemError(f"chunk: expected a multiple of the block, {width}, got {chunk}")
    return chunk
