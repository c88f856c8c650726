"""The number of threads of the linear algebra library."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

WORTH_SHARING = 10_000_000
"""Number of multiplications in a product above which a second thread saves time."""


def threads_for(multiplications: int) -> AbstractContextManager[object]:
    """Limit BLAS to one thread: small products do not scale.

    Parameters
    ----------
    multiplications : int
        Number of multiplications in each product.
    """
    if multiplications >= WORTH_SHARING:
        return nullcontext()
    limited: AbstractContextManager[object] = _controller().limit(limits=1)
    return limited


@cache
def _controller() -> ThreadpoolController:
    # searching the loaded libraries takes milliseconds
    return ThreadpoolController().select(user_api="blas")
