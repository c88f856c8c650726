"""Ctrl-C and SIGTERM: a command ends with one line, and loops stop between two steps."""

import atexit
import contextlib
import gc
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from attsvm._utils.files import remove_unfinished
from attsvm._utils.silence import standard_error
from attsvm._utils.text import one_line

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_IMPORT = "<frozen importlib._bootstrap>"  # the file of every frame that imports a module
_SECONDS_TO_SEND_AGAIN = 0.01


class Interrupted(SystemExit):
    """Raised in a command by Ctrl-C or SIGTERM. Blocks that clean up run, and the process ends with this status."""


class _RunningCommand:
    """The signals of the running command."""

    def __init__(self) -> None:
        self.says: Callable[[], str] = lambda: "run the command again"
        self.first: signal.Signals | None = None
        self.requested = threading.Event()
        self.keeps_steps = False
        self.loops = 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Stop the steps whose result is kept, or raise; end the process at the second signal, and within an import.

        A compiled module whose import is left by an exception can crash the interpreter; JAX's do. In its callback of
        the garbage collector an exception would be lost, so the signal is sent again in a moment.
        """
        running = [each.f_code for each, _ in traceback.walk_stack(frame)]
        if any(getattr(callback, "__code__", None) in running for callback in gc.callbacks):
            threading.Timer(_SECONDS_TO_SEND_AGAIN, os.kill, (os.getpid(), number)).start()
            return
        is_second, self.first = self.first is not None, self.first or signal.Signals(number)
        if not is_second and number == signal.SIGINT and self.keeps_steps and self.loops:
            _request(self.requested)
        elif is_second or any(code.co_filename == _IMPORT for code in running):
            self.say()
            remove_unfinished()
            os._exit(128 + self.first)
        else:
            raise Interrupted(128 + number)

    def say(self) -> None:
        """Write the line of a command that is interrupted, and show the cursor that a progress bar has hidden."""
        error = standard_error()
        cursor = "\r\x1b[2K\x1b[?25h" if os.isatty(error) else ""
        with contextlib.suppress(OSError):
            os.write(
                error, f"{cursor}attsvm: {_WORDS[self.first or signal.SIGINT]}; {one_line(self.says())}\n".encode()
            )


_command: _RunningCommand | None = None
_requests = 0


def num_requests() -> int:
    """Return how often Ctrl-C has asked a loop of this process to stop."""
    return _requests


def _request(requested: threading.Event) -> None:
    global _requests
    _requests += 1
    requested.set()


@contextlib.contextmanager
def command() -> Iterator[None]:
    """Handle SIGINT and SIGTERM while the block runs: it ends with status 130 or 143 and one line on stderr.

    A signal that is ignored, as SIGINT is in a background job of a shell, stays ignored.
    """
    global _command
    running = _command = _RunningCommand()
    is_main = threading.current_thread() is threading.main_thread()  # others cannot handle signals
    caught = [number for number in _WORDS if is_main and signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before: dict[int, Any] = {number: signal.signal(number, running.handle) for number in caught}
    try:
        yield
    except BaseException as error:
        # with the result of the steps before it, the command ends with a status of its own; other errors follow from it
        if is_interrupted() and (isinstance(error, Interrupted) or not isinstance(error, SystemExit)):
            running.say()
            raise Interrupted(128 + (running.first or 0)) from None
        raise
    finally:
        atexit.register(gc.freeze)  # the last collections of the interpreter would take seconds with PyTorch
        for number, handler in before.items():
            signal.signal(number, handler)
            atexit.register(signal.signal, number, signal.SIG_IGN)  # a signal while Python ends changes nothing
        _command = None


def on_interruption(says: Callable[[], str]) -> None:
    """Set what a command says after "interrupted" on stderr."""
    if _command is not None:
        _command.says = says


@contextlib.contextmanager
def keeping_steps(keeps: bool = True) -> Iterator[None]:
    """Declare that the command writes the result of the steps that a loop of the block has made when Ctrl-C comes.

    Where this is not declared, Ctrl-C raises :class:`Interrupted`, in loops as well.
    """
    running = _command or _RunningCommand()
    running.keeps_steps = keeps
    try:
        yield
    finally:
        running.keeps_steps = False


def is_interrupted() -> bool:
    """Return whether a signal ends the running command. Errors are its consequence then."""
    return _command is not None and _command.first is not None and not _command.requested.is_set()


def check_interrupted() -> None:
    """Raise :class:`Interrupted` if a signal ends the running command, and what it raised was lost in a finalizer."""
    if _command is not None and is_interrupted():
        raise Interrupted(128 + (_command.first or 0))


@contextlib.contextmanager
def interruptions() -> Iterator[threading.Event]:
    """Set the event on Ctrl-C instead of raising, so that no step is cut in half.

    A second Ctrl-C raises KeyboardInterrupt, or ends the running command.
    """
    if _command is not None:
        _command.loops += 1
        try:
            yield _command.requested
        finally:
            _command.loops -= 1
        return
    requested = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield requested
        return

    def request(*_: object) -> None:
        _request(requested)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, request)
    try:
        yield requested
    finally:
        signal.signal(signal.SIGINT, before)
