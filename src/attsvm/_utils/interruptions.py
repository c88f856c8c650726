"""Ctrl-C between two steps.

An exception of Python's own handler is lost if the handler runs in a callback that cannot raise, such as JAX's callback
of the garbage collector. A request that is kept is not lost.
"""

import atexit
import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator

from attsvm._utils.temporaries import remove_unfinished


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Block Ctrl-C for the processes that the block starts: a terminal sends it to them, too."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with(parent: int) -> None:
    """End this process soon after its parent, without what it has not finished: no parent stops its workers.

    A parent that ends waits for its workers, so their last collections of garbage are left out: they take long with JAX
    and PyTorch. This module imports nothing slow, so the parent is watched before a worker imports what it needs.
    """
    atexit.register(gc.freeze)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        remove_unfinished()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def interruptions() -> Iterator[threading.Event]:
    """Set the event on Ctrl-C instead of raising, so that no step is cut in half. A second Ctrl-C raises."""
    requested = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield requested
        return

    def request(*_: object) -> None:
        requested.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, request)
    try:
        yield requested
    finally:
        signal.signal(signal.SIGINT, before)
