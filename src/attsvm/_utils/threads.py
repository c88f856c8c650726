"""The number of threads of the linear algebra library."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

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
