"""How many threads the linear algebra library takes."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

WORTH_SHARING = 10_000_000
"""Multiplications in a product from which a second thread saves time."""


def threads_for(multiplications: int) -> AbstractContextManager[object]:
    """Limit BLAS to one thread: small products do not scale.

    Parameters
    ----------
    multiplications : int
        In each of many products.
    """
    if multiplications >= WORTH_SHARING:
        return nullcontext()
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # searching the loaded libraries takes milliseconds
