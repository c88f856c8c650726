"""Calls of a function, made side by side in worker processes."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from threading import Event
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from attsvm._utils.interruptions import blocked, end_with

Result = TypeVar("Result")


def side_by_side(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], workers: int) -> Iterator[Result]:
    """The results of ``function(*arguments)``, in the order of the calls.

    Parameters
    ----------
    function : callable
        Defined at the top level of a module, as its arguments and results are sent between processes.
    calls : iterable of tuple
        The arguments of each call. They are read when a worker is free.
    workers : int
        Processes. With one worker the calls are made in this process.

    Yields
    ------
    Result
        If the caller stops early, no further call is started, and those that were started are waited for.
    """
    ending = {"initializer": end_with, "initargs": (os.getpid(),)}
    with parallel_config("loky", inner_max_num_threads=1, **ending), threadpool_limits(1, user_api="blas"):
        call, ended = delayed(function), Event()
        jobs = (call(*arguments) for arguments in calls if not ended.is_set())
        with silent_trackers():
            if workers > 1:
                resource_tracker.ensure_running()  # starting it in the block would unblock the signals again
            with blocked():
                results = Parallel(n_jobs=workers, return_as="generator", pre_dispatch="n_jobs")(jobs)
        try:
            # not `yield from`: closing that would kill the processes under their manager
            for result in results:  # noqa: UP028
                yield result
        finally:
            ended.set()
            for _ in results:
                pass


@contextlib.contextmanager
def silent_trackers() -> Iterator[None]:
    """Start trackers that warn of nothing when a signal ends this process. They tidy up all the same."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [before, "ignore:resource_tracker"]))
    try:
        yield
    finally:
        del os.environ["PYTHONWARNINGS"]
        if before is not None:
            os.environ["PYTHONWARNINGS"] = before
