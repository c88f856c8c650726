"""Where chunks are computed: in this process, or by the workers of a Dask scheduler, and on which device."""

import atexit
import contextlib
import gc
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from attsvm._utils.checks import check_integer
from attsvm._utils.compiled_programs import keep_programs
from attsvm._utils.extensions import FOLDERS, importable
from attsvm._utils.jax_devices import find_device, name_of
from attsvm._utils.threads import num_threads
from attsvm._utils.workers import without_interruptions
from attsvm.errors import ProblemError
from attsvm.sweeps.compute import Failure, SweepChunk, attempt

SETTINGS = {
    # By default Dask looks at the Python stacks 100 times, at the event loops 50 times and at the memory 10 times a
    # second, on the cores that compute the trials.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.memory.monitor-interval": "1s",
    # glibc keeps freed memory for the next block. Dask has it return the memory at once; each block then causes 15,000
    # page faults and more.
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**28,
    # They end with the process of the sweep, and the store records the errors of chunks.
    "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
}
"""Settings of Dask for the workers of this machine."""


def outcomes(
    client: Any, call: Callable[[SweepChunk], object], tasks: Iterable[SweepChunk]
) -> Iterator[tuple[SweepChunk, Failure | None]]:
    """Make a call for each task; yield it and its failure, or None, as they finish.

    ``client``: of a Dask scheduler, whose workers make the calls; None for this process.
    """
    if client is None:
        for task in tasks:
            yield task, attempt(call, task)
        return
    from distributed import as_completed
    from distributed.protocol.pickle import dumps

    given = list(tasks)
    in_worker = partial(_in_worker, tuple(FOLDERS), dumps(call))
    of_future = dict(zip(client.map(in_worker, given, pure=False), given, strict=True))
    for future, result in as_completed(list(of_future), client.loop, with_results=True, raise_errors=False):
        if future.status not in ("finished", "error"):
            raise ConnectionError(f"{client.scheduler.address}: the Dask scheduler ended")
        # an error is of Dask, such as the loss of several workers in turn
        yield of_future.pop(future), Failure.of(result[1], 1) if future.status == "error" else result


def _in_worker(folders: tuple[str, ...], call: bytes, task: SweepChunk) -> Failure | None:
    """Make a call, which is pickled, in a process that does nothing else. Its modules may be in ``folders``, too."""
    _prepare_worker()
    with importable(folders):
        return attempt(_unpickled(call), task)


@lru_cache(maxsize=1)
def _unpickled(call: bytes) -> Callable[[SweepChunk], object]:
    found: Callable[[SweepChunk], object] = pickle.loads(call)
    return found


@cache
def _prepare_worker() -> None:
    """Compute on one thread, keep compiled programs, and end without delay."""
    keep_programs()
    atexit.register(gc.freeze)  # the last collections take seconds with JAX
    # for good, because a worker may have several threads
    os.environ["ATTSVM_THREADS"] = "1"
    threadpool_limits(1, user_api="blas")


def check_workers(scheduler: str | None, workers: int | None) -> None:
    """Check how many workers are given.

    Raises ProblemError if it is no number of workers, or there is a scheduler, too.
    """
    if workers is not None:
        check_integer("workers", workers, 0)
    if scheduler is not None and workers is not None:
        raise ProblemError(f"workers: expected None with a scheduler, which has its own workers, got {workers}")


def number_of_workers(workers: int | None, device: str | None) -> int:
    """The worker processes on this machine: one for each core by default.

    On a GPU there is none by default: each process would reserve the memory of the GPU for itself.
    """
    if workers is not None:
        return workers
    return num_threads() if device == "cpu" else 0


def device_of_workers(scheduler: str | None, device: str | None) -> str | None:
    """The name of the device on which the chunks are computed.

    It is not known if the scheduler has no workers yet: then it is the given one.

    Raises ProblemError if a worker has no such device, or none is given and the workers have different ones.
    """
    if scheduler is None:
        return _own_device(device)
    with connected(scheduler, 0) as client:
        found = sorted(set(client.run(_own_device, device).values()))
    if len(found) > 1:
        raise ProblemError(f"device: expected one that all workers have; they have {', '.join(found)}, got {device}")
    return found[0] if found else device


def _own_device(device: str | None) -> str:
    return name_of(find_device(device))


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int) -> Iterator[Any]:
    """A Dask client of a running scheduler, or of a cluster on this machine; None for 0 workers.

    Raises ProblemError if the scheduler cannot be reached.
    """
    if scheduler is None and workers == 0:
        yield None
        return
    from distributed import Client

    with contextlib.ExitStack() as entered:
        address = entered.enter_context(local_cluster(workers)) if scheduler is None else scheduler
        client = Client.__new__(Client)
        try:
            Client.__init__(client, address, timeout=10, set_as_default=False)
        except (OSError, TypeError, ValueError) as error:
            # otherwise its collection closes it, and that fails the start of a later client in whose thread it happens
            if client.status != "newly-created":
                client.close()
            raise ProblemError(f"scheduler: expected the address of a Dask scheduler, got {scheduler!r}") from error
        yield entered.enter_context(client)


def local_cluster(workers: int) -> Any:
    """Worker processes with one thread each on this machine: a ``distributed.LocalCluster``."""
    import dask
    from distributed import LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    with dask.config.set(SETTINGS):  # Ctrl-C ends this process, and its workers end with it
        return without_interruptions(partial(LocalCluster, n_workers=workers, processes=True, **options))
