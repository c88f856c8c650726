"""Ctrl-C and termination: a command ends within two seconds, whatever it is doing.

Python runs a signal handler in the main thread, between two bytecodes. A long call of a library delays it, and an
exception that it raises is lost in a callback that cannot raise, such as JAX's callback of the garbage collector. So
nothing is raised here. The interpreter writes the number of a signal to a pipe, and a thread that reads the pipe
removes what is unfinished and ends the process.
"""

import atexit
import contextlib
import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

SECONDS_TO_STOP = 1.0
"""After Ctrl-C during steps that can be stopped: the time to write the result of the steps that were made."""

SECONDS_TO_END = 0.6
"""The time for removing what is unfinished. If no steps were stopped before, their time is there, too."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_LEFT = 0  # no signal has this number


class _Command:
    """What the running command says and does when it is interrupted."""

    def __init__(self) -> None:
        self.says: Callable[[], str] = lambda: "run the command again"
        self.cleanup: Callable[[], object] = lambda: None
        self.stoppable = self.stopping = False
        self.stderr = 2
        self.lock = threading.Lock()

    def ask_to_stop(self) -> bool:
        """Ask for the end of the steps, if there are such and it was not asked before."""
        with self.lock:
            self.stopping, before = self.stoppable, self.stopping
            return self.stopping and not before


_command = _Command()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """End the process on SIGINT and SIGTERM while the block runs, with exit status 130 or 143 and one line on stderr.

    A signal that is ignored, as SIGINT is in a background job of a shell, stays ignored. When the process ends after
    the block, both are ignored.
    """
    global _command
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _command = _Command()
    with contextlib.suppress(OSError):  # it is closed
        _command.stderr = os.dup(2)  # a library that is silenced has none at times
    ends, writes = os.pipe()
    os.set_blocking(writes, False)
    pipe_before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    caught = [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, _nothing) for number in caught}
    watcher = threading.Thread(target=_watch, args=(ends, frozenset(caught)), name="attsvm-signals", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        atexit.register(_leave, caught)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(pipe_before)
        os.write(writes, bytes([_LEFT]))
        watcher.join()
        for descriptor in {ends, writes, _command.stderr} - {2}:
            os.close(descriptor)


def on_interruption(says: Callable[[], str] | None = None, cleanup: Callable[[], object] | None = None) -> None:
    """Set what the line on stderr says after "interrupted", and what is done before it is written."""
    _command.says = says or _command.says
    _command.cleanup = cleanup or _command.cleanup


def take_steps() -> bool:
    """Declare that the command makes steps which can be stopped; return whether to stop them."""
    with _command.lock:
        _command.stoppable = True
        return _command.stopping


def end_steps() -> None:
    """Declare that the steps are over: unless they were stopped, Ctrl-C ends the process at once again."""
    with _command.lock:
        _command.stoppable = _command.stopping


def _nothing(*_: object) -> None:
    """Handle a signal. The interpreter writes to the pipe only if there is a handler in Python."""


def _leave(numbers: list[signal.Signals]) -> None:
    """Let the interpreter end at once and undisturbed: its last collections would take seconds with PyTorch."""
    gc.freeze()
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def _watch(pipe: int, caught: frozenset[int]) -> None:
    deadline, asked = None, signal.SIGINT
    while True:
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([pipe], [], [], remaining)[0]:
            _end(asked, SECONDS_TO_END)
        for number in os.read(pipe, 512):
            if number == _LEFT:
                return
            if number in caught:
                if number == signal.SIGINT and _command.ask_to_stop():
                    deadline = time.monotonic() + SECONDS_TO_STOP
                else:
                    _end(signal.Signals(number), SECONDS_TO_END + SECONDS_TO_STOP * (deadline is None))


def _end(number: signal.Signals, seconds: float) -> None:
    """Clean up, say so and end the process, even if the cleaning does not end."""
    try:
        sys.setswitchinterval(1e-4)  # an import in the main thread would else delay each step of the cleaning by 5 ms
        threading.Thread(target=_give_up, args=(128 + number, seconds), daemon=True).start()
        _command.cleanup()
        line = f"attsvm: {_WORDS[number]}; {_command.says()}\n"
        if os.isatty(_command.stderr):
            line = f"\r\x1b[2K\x1b[?25h{line}"  # in place of a progress bar, which has hidden the cursor
        os.write(_command.stderr, line.encode())
        sys.stdout.flush()
    finally:
        os._exit(128 + number)


def _give_up(status: int, seconds: float) -> None:
    """End the process if the cleaning does not end.

    The time is counted in turns of the interpreter lock. While a long call of a library holds the lock, as the loading
    of a library does, there is no cleaning, and that time does not count.
    """
    for _ in range(60):
        time.sleep(seconds / 60)
    os._exit(status)
