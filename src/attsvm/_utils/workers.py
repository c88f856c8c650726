"""Calls of a function, made side by side in the worker processes of joblib (loky)."""

import atexit
import gc
import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import starmap
from multiprocessing import resource_tracker
from typing import Any, TypeVar

import lazy_loader
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from attsvm._utils.extensions import FOLDERS, importable
from attsvm._utils.files import remove_unfinished

loky = lazy_loader.load("joblib.externals.loky", suppress_warning=True)

Result = TypeVar("Result")

SECONDS_IDLE = 300.0
"""A worker without calls ends after this time."""

_SECONDS_A_LOOK = 0.5
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def side_by_side(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], workers: int) -> Iterator[Result]:
    """Make the calls ``function(*arguments)``, and yield their results in the order of the calls.

    The function is defined at the top level of a module, as its arguments and results are sent between processes. The
    arguments of a call are read when a worker is free. Each worker has one thread of linear algebra. With one worker,
    or in a daemonic process, which must not start others, the calls are made in this process. If the caller stops
    early, or after an error, the workers are killed.
    """
    if workers == 1 or multiprocessing.current_process().daemon:
        with threadpool_limits(1, user_api="blas"):
            yield from starmap(function, calls)
        return
    pool = _pool(workers, os.getpid())
    made: deque[Future[Result]] = deque()
    try:
        for given in calls:
            # Ctrl-C in a terminal is for the process that waits
            made.append(without_interruptions(pool.submit, _called, tuple(FOLDERS), pickle.dumps((function, given))))
            busy = [future for future in made if not future.done()]
            if len(busy) >= workers:
                wait(busy, return_when=FIRST_COMPLETED)
            while made and made[0].done():
                yield made.popleft().result()
        while made:
            yield made.popleft().result()
    except BaseException:
        _pool.cache_clear()
        pool.shutdown(kill_workers=True)
        raise


def without_interruptions(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that starts processes, which Ctrl-C is not to end: a terminal sends it to them, too.

    The call is made in a thread that blocks the signal, as processes inherit that. It is not blocked in the main
    thread: a thread of linear algebra would receive it then, and would not wake the main thread.
    """

    def call() -> Result:
        if hasattr(signal, "pthread_sigmask"):
            resource_tracker.ensure_running()  # where a process starts it, Python unblocks the signal
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        return function(*arguments)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


@lru_cache(maxsize=1)
def _pool(workers: int, parent: int) -> Any:
    """Worker processes, for the next calls of the process ``parent``. They are not those of ``joblib.Parallel``."""
    environment = dict.fromkeys(_THREADS, "1")
    begin = {"initializer": _prepare, "initargs": (parent,), "env": environment}
    return loky.ProcessPoolExecutor(workers, timeout=SECONDS_IDLE, **begin)


def _called(folders: tuple[str, ...], pickled: bytes) -> Any:
    """Make a call, which is pickled, because its modules may be in ``folders``, too."""
    with importable(folders):
        function, arguments = pickle.loads(pickled)
        return function(*arguments)


def _prepare(parent: int) -> None:
    """Let a worker end with the process that waits for its results, and without delay."""
    os.dup2(2, 1)  # what a call prints is no result of the command
    atexit.register(gc.freeze)  # the last collections take long with JAX and PyTorch
    # joblib replaces a worker whose memory grows by 300 MB, which the import of JAX and compiled programs do
    loky.process_executor._MAX_MEMORY_LEAK_SIZE = math.inf

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_A_LOOK)
        remove_unfinished()
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()
