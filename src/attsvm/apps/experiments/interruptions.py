"""Ctrl-C between two steps."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interruptions() -> Iterator[threading.Event]:
    """Set the event on Ctrl-C instead of raising, so that no step is cut in half. A second Ctrl-C raises."""
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return
    before = signal.getsignal(signal.SIGINT)

    def request(*_: object) -> None:
        requested.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, request)
    try:
        yield requested
    finally:
        signal.signal(signal.SIGINT, before)
