"""The main function of sweeps: computes the chunks that a store lacks."""

import logging
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attsvm._utils.checks import check_callback, check_integer
from attsvm._utils.extensions import find_named, kind_check
from attsvm._utils.jax_devices import find_device, on_device
from attsvm._utils.progress import counted, reports
from attsvm.errors import ProblemError
from attsvm.sweeps.compute import Task, check_values, compute, one_thread, tasks
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.executors import check_workers, connected, device_of_workers, number_of_workers, outcomes
from attsvm.sweeps.measure import Measure
from attsvm.sweeps.ready import READY
from attsvm.sweeps.store import Store, check_installed, open_sweep

if TYPE_CHECKING:
    import xarray

_log = logging.getLogger(__name__)

OPTIONS = tuple(each.name for each in fields(Definition) if each.name not in ("grid", "measures"))
"""The options of a definition."""

OTHER_NAMES = {"cluster": "scheduler", "source": "data"}
"""What other libraries call an argument."""

MOST_CHUNK = 1024
"""Trials of a chunk by default: seconds of training, and files of kilobytes."""


@dataclass(frozen=True)
class SweepProgress:
    """What the callback of a sweep receives after each chunk.

    Attributes
    ----------
    trials, done : int
        Trials in total, and those that are committed.
    cells, finished : int
        Cells in total, and those whose trials are all committed.
    failed : int
        Chunks whose error is recorded.
    rate : float
        Trials per second since the first chunk of this call, which includes start and compilation; 0 until the second.
    seconds_left : float or None
        None until the second chunk.
    workers : int
    dashboard : str
        Address of the Dask dashboard; "" without Dask.

    See Also
    --------
    attsvm.sweep

    Examples
    --------
    >>> from attsvm.sweeps import SweepProgress
    >>> progress = SweepProgress(1000, 250, 10, 2, 0, 125.0, 6.0, 2, "")
    >>> f"{progress.done / progress.trials:.0%}, {progress.seconds_left:.0f} s left"
    '25%, 6 s left'
    """

    trials: int
    done: int
    cells: int
    finished: int
    failed: int
    rate: float
    seconds_left: float | None
    workers: int
    dashboard: str
    stage: None = None

    @property
    def step(self) -> int:
        """The number of committed trials."""
        return self.done

    @property
    def steps(self) -> int:
        """The number of all trials."""
        return self.trials

    def details(self) -> list[str]:
        """What is known beside the trials, in words."""
        known = [f"{self.finished:,}/{self.cells:,} cells"]
        if self.rate:
            known.append(f"{self.rate:,.0f} trials/s")
        known.append(counted(self.workers, "worker"))
        return known + ([f"{counted(self.failed, 'chunk')} failed"] if self.failed else [])


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
    callback: Callable[[SweepProgress], object] | None = None,
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
        Values by the name of an argument of the data source, of :func:`attsvm.train`, of the optimizer or of
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
        Address of a running Dask scheduler, as "tcp://10.0.0.1:8786". Its workers must see the folder of ``store``.
    chunk : int, optional
        Trials that are computed and committed together, a multiple of the block; 1024 at most by default. A store that
        exists keeps its own.
    device : str, optional
        Where each worker trains, as for :func:`attsvm.train`. The Att-SVM solvers run on the CPU.
    callback : callable, optional
        Called with a :class:`attsvm.sweeps.SweepProgress` before the first chunk and after each chunk. The sweep stops
        when it returns True.
    progress : bool
        Show the progress, as :func:`attsvm.train` does.
    command : str
        The command that the result names.
    **options
        Of :class:`attsvm.sweeps.Definition`: ``trials``; ``data``, the name of a source or a function
        ``draw(generators, *, ...)``, described there; ``fixed``, ``seed``, ``budget``, ``block``.

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
    check_installed("xarray", "zarr", *(() if workers == 0 else ("dask", "distributed")))
    definition = define(grid, measures, **options)
    check_callback(callback)
    size = chunk_size(definition, chunk)
    device = device_of_workers(scheduler, device)
    folder = Store(store)
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
    return open_sweep(store, verify=False)  # what was there before is verified, what is new was written now


def _compute(
    definition: Definition,
    folder: Store,
    chunk: int,
    left: list[Task],
    scheduler: str | None,
    workers: int | None,
    device: str | None,
    callback: Callable[[SweepProgress], object] | None,
) -> list[str]:
    """Compute the chunks that are left; return the errors of those that failed."""
    count = _Count(definition, left)
    errors: list[str] = []
    call = partial(run_chunk, definition, folder.path, chunk, folder.identity(), device)
    with connected(scheduler, number_of_workers(workers, device)) as client:
        if callback is not None and callback(count.progress(client)):
            return errors
        for task, failure in outcomes(client, call, left):
            if failure is None:
                count.commit(task)
            else:
                if not errors:
                    _log.warning("%s: chunk %s failed with %s", folder.given, task.name, failure.error)
                folder.fail(definition, task, failure)
                errors.append(failure.error)
                count.failed += 1
            if callback is not None and callback(count.progress(client)):
                break
    return errors


def run_chunk(definition: Definition, path: Path, chunk: int, identity: str, device: str | None, task: Task) -> None:
    """Compute a chunk on one thread and on a device, and commit it to the store."""
    with one_thread(), on_device(find_device(device)):
        arrays = compute(definition, task)
    Store(path).write(definition, chunk, identity, task, arrays)


def define(
    grid: Mapping[str, Sequence[Any]] | str | Definition, measures: Sequence[Any] | None = None, **options: Any
) -> Definition:
    """The definition that the arguments of :func:`sweep` describe.

    Raises ProblemError if they are not valid.
    """
    for name in options:
        if name not in OPTIONS:
            meant = OTHER_NAMES.get(name) or next(iter(get_close_matches(name, OPTIONS)), ", ".join(OPTIONS))
            raise ProblemError(f"{name}: expected {meant}, got a keyword that sweep does not have")
    if isinstance(grid, Mapping):
        if measures is None:
            raise ProblemError("measures: expected at least one, got none")
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


class _Count:
    """How many trials are committed, and how fast."""

    def __init__(self, definition: Definition, left: list[Task]) -> None:
        self.cells = definition.num_cells
        self.trials = definition.num_cells * definition.trials
        self.done = self.trials - sum(task.size for task in left)
        self.failed = 0
        self._left = Counter(task.cell for task in left)
        self._began, self._new = 0.0, 0

    def commit(self, task: Task) -> None:
        """Count a chunk that was committed."""
        if self._began:
            self._new += task.size
        else:
            self._began = time.perf_counter()  # what was before is start and compilation
        self.done += task.size
        self._left[task.cell] -= 1

    def progress(self, client: Any) -> SweepProgress:
        """The state after a chunk. ``client``: of Dask, or None for this process."""
        rate = self._new / (time.perf_counter() - self._began) if self._new else 0.0
        return SweepProgress(
            trials=self.trials,
            done=self.done,
            cells=self.cells,
            finished=self.cells - sum(number > 0 for number in self._left.values()),
            failed=self.failed,
            rate=rate,
            seconds_left=(self.trials - self.done) / rate if rate else None,
            workers=1 if client is None else sum(client.nthreads().values()),
            dashboard="" if client is None else client.dashboard_link or "",
        )
