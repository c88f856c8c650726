"""Where chunks are computed: in this process, or by the workers of a Dask scheduler, and on which device."""

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from attsvm._utils.checks import check_integer
from attsvm._utils.interruption import blocked
from attsvm._utils.jax_devices import find_device, name_of
from attsvm.errors import ProblemError
from attsvm.sweeps import local_worker
from attsvm.sweeps.store import Task
from attsvm.sweeps.work import Failure, attempt, in_worker
from attsvm.training.engine.trials import num_threads

Call = Callable[[Task], object]
Outcome = tuple[Task, Failure | None]

AHEAD = 3
"""Chunks that are handed out for each worker, so that none waits for the client."""

SELDOM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.memory.monitor-interval": "1s",
}
"""How often Dask observes its own processes, which share the cores with the trials.

By default it looks at the Python stacks 100 times, at the event loops 50 times and at the memory 10 times a second.
"""

MEMORY = {"MALLOC_MMAP_THRESHOLD_": 2**25, "MALLOC_TRIM_THRESHOLD_": 2**28}
"""Environment of the workers, in which glibc keeps freed memory for the next block.

Dask has it return the memory at once; each block then causes 15,000 page faults and more.
"""


class Executor(ABC):
    """Computes the chunks of a queue, which may grow while it does."""

    dashboard: str = ""

    @abstractmethod
    def outcomes(self, queue: deque[Task], call: Call) -> Iterator[Outcome]:
        """Each task with its failure, or None, as they finish. Ends when the queue is empty and no task is running."""

    @abstractmethod
    def workers(self) -> int:
        """The number of workers now."""


class InProcess(Executor):
    """One chunk after the other in this process. Dask is not needed."""

    def outcomes(self, queue: deque[Task], call: Call) -> Iterator[Outcome]:
        while queue:
            task = queue.popleft()
            yield task, attempt(call, task)

    def workers(self) -> int:
        """Return 1, for this process."""
        return 1


class Distributed(Executor):
    """The workers of a Dask scheduler."""

    def __init__(self, client: Any) -> None:
        self.client, self.dashboard = client, client.dashboard_link or ""
        self._counted, self._workers = -math.inf, 0

    def outcomes(self, queue: deque[Task], call: Call) -> Iterator[Outcome]:
        from distributed import as_completed

        running: dict[Any, Task] = {}
        finished = as_completed()
        while queue or running:
            while queue and len(running) < AHEAD * max(1, self.workers()):
                task = queue.popleft()
                future = self.client.submit(in_worker, call, task, pure=False)
                running[future] = task
                finished.add(future)
            future = next(finished)
            task = running.pop(future)
            if future.status not in ("finished", "error"):
                raise ConnectionError(f"{self.client.scheduler.address}: the Dask scheduler ended")
            # an error of the future is one of Dask, such as the loss of several workers in turn
            failure = Failure.of(future.exception()) if future.status == "error" else future.result()
            future.release()
            yield task, failure

    def workers(self) -> int:
        """The number of threads of all workers that were connected a second ago."""
        if time.monotonic() - self._counted > 1:  # asking the scheduler takes milliseconds
            self._counted, self._workers = time.monotonic(), sum(self.client.nthreads().values())
        return self._workers


def check_workers(scheduler: str | None, workers: int | None) -> None:
    """Check how many workers are given.

    Raises ProblemError if it is no number of workers, or there is a scheduler, too.
    """
    if workers is not None:
        check_integer("workers", workers, 0)
    if scheduler is not None and workers is not None:
        raise ProblemError(f"workers: expected None with a scheduler, whose workers are used, got {workers}")


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
    with _connected(scheduler) as client:
        found = sorted(set(client.run(_own_device, device).values()))
    if len(found) > 1:
        raise ProblemError(f"device: expected one that all workers have, as they have {', '.join(found)}, got {device}")
    return found[0] if found else device


def _own_device(device: str | None) -> str:
    return name_of(find_device(device))


@contextlib.contextmanager
def executor(scheduler: str | None, workers: int) -> Iterator[Executor]:
    """An executor: a running scheduler, this process for 0 workers, or a cluster on this machine.

    Raises ProblemError if the scheduler cannot be reached.
    """
    if scheduler is not None:
        with _connected(scheduler) as client:
            yield Distributed(client)
        return
    if workers == 0:
        yield InProcess()
        return
    from distributed import Client

    with local_cluster(workers) as cluster, Client(cluster) as client:
        yield Distributed(client)


def _connected(scheduler: str) -> Any:
    """A client of a running scheduler."""
    from distributed import Client

    try:
        return Client(scheduler, timeout=10)
    except (OSError, TypeError, ValueError) as error:
        raise ProblemError(f"scheduler: expected the address of a Dask scheduler, got {scheduler!r}") from error


def local_cluster(workers: int) -> Any:
    """Worker processes with one thread each on this machine: a ``distributed.LocalCluster``."""
    import dask
    from distributed import LocalCluster

    preload = [*dask.config.get("distributed.worker.preload", ()), local_worker.__name__]
    spawn = dict(dask.config.get("distributed.nanny.pre-spawn-environ", {})) | MEMORY
    settings = SELDOM | {"distributed.worker.preload": preload, "distributed.nanny.pre-spawn-environ": spawn}
    with blocked(), dask.config.set(settings):  # Ctrl-C ends this process, and its workers end with it
        return LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0")
