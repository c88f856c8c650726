"""How many threads the linear algebra library takes."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

WORTH_SHARING = 10_000_000
"""Multiplications in a product from which a second thread gains more than waiting for it may cost."""


def threads_for(multiplications: int) -> AbstractContextManager[object]:
    """One thread for small products, while others compute: where processors are busy each would wait for its threads.

    Parameters
    ----------
    multiplications : int
        In one product, of many that follow each other.
    """
    if multiplications >= WORTH_SHARING:
        return nullcontext()
    return _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # takes milliseconds: it looks through the libraries loaded
