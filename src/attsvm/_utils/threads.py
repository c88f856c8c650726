"""Threads: of the linear algebra library, and of computations that release the interpreter lock, as XLA does."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from attsvm._utils.interruption import is_interrupted
from attsvm._utils.workers import processors
from attsvm.errors import ProblemError

Result = TypeVar("Result")

WORTH_SHARING = 10_000_000
"""Number of multiplications in a product above which a second thread saves time."""


def threads_for(multiplications: int) -> AbstractContextManager[object]:
    """Limit BLAS to one thread: small products do not scale.

    ``multiplications``: number of multiplications in each product.
    """
    return nullcontext() if multiplications >= WORTH_SHARING else _one_thread()


@contextmanager
def _one_thread() -> Iterator[None]:
    # ThreadpoolController.limit does the same, but first collects all that is known of each library: 20 microseconds
    shared = [(library, before) for library in _libraries() if (before := library.num_threads) != 1]
    try:
        for library, _ in shared:
            library.set_num_threads(1)
        yield
    finally:
        for library, before in shared:
            library.set_num_threads(before)


@cache
def _libraries() -> list[Any]:
    # searching the loaded libraries takes milliseconds
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def num_threads() -> int:
    """The cores that this process may use; fewer with the environment variable ``ATTSVM_THREADS``.

    Raises ProblemError if that is no positive integer.
    """
    given, available = os.environ.get("ATTSVM_THREADS"), processors()
    if given and not (given.isdecimal() and int(given)):
        raise ProblemError(f"ATTSVM_THREADS: expected an integer >= 1, got {given!r}")
    return min(available, int(given or available))


@contextmanager
def thread_map(number: int) -> Iterator[Callable[[Callable[[Any], Result], Sequence[Any]], list[Result]]]:
    """Make a map over a sequence on this number of threads."""
    if number == 1:
        yield lambda function, items: [function(item) for item in items]
        return
    pool = ThreadPoolExecutor(number, thread_name_prefix="attsvm")
    try:

        def spread(function: Callable[[Any], Result], items: Sequence[Any]) -> list[Result]:
            futures: list[Future[Result]] = [pool.submit(function, item) for item in items]
            try:
                return [future.result() for future in futures]
            finally:
                # after Ctrl-C: drop the items that have not started, and wait for the others if the process goes on
                for future in futures:
                    future.cancel()
                if not is_interrupted():
                    wait(futures)

        yield spread
    finally:
        pool.shutdown(wait=not is_interrupted())
