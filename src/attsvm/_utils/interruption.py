"""Ctrl-C and SIGTERM: one handler, and a flag that loops read between two steps.

Python runs a signal handler in the main thread, between two bytecodes. What the handler raises is lost in a callback
that cannot raise, such as JAX's callback of the garbage collector; the flag is not.
"""

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from attsvm._utils.files import remove_unfinished
from attsvm._utils.text import one_line

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_AGAIN = (signal.SIGALRM,) if hasattr(signal, "SIGALRM") else ()  # raises again what was lost; Windows has none
_SECONDS_TO_RAISE_AGAIN = 0.01
_IMPORT = "<frozen importlib._bootstrap>"  # the file of every frame that imports a module


class Interrupted(SystemExit):
    """Raised in a command by Ctrl-C or SIGTERM. Blocks that clean up run, and the process ends with this status."""


class _RunningCommand:
    """The signals of the running command."""

    def __init__(self) -> None:
        self.says: Callable[[], str] = lambda: "run the command again"
        self.first: int | None = None
        self.requested = threading.Event()
        self.keeps_steps = False
        self.loops = 0
        self.stderr = 2

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: stop the steps whose result is kept, raise, or end the process at the second signal."""
        if self.first is not None:
            self.end()
        self.first = number
        if number == signal.SIGINT and self.keeps_steps and self.loops:
            self.requested.set()
        else:
            self.interrupt(number, frame)

    def interrupt(self, _: int | None = None, frame: FrameType | None = None) -> NoReturn:
        """Raise :class:`Interrupted`, or end the process where that is not safe.

        A compiled module whose import is left by an exception can crash the interpreter; JAX's do.
        """
        while frame is not None:
            if frame.f_code.co_filename == _IMPORT:
                self.end()
            frame = frame.f_back
        raise Interrupted(128 + (self.first or signal.SIGINT))

    def lost(self, unraisable: Any) -> None:
        """Raise an interruption again, in a moment and by SIGALRM, that was lost in a callback that cannot raise."""
        if not isinstance(unraisable.exc_value, Interrupted):
            sys.__unraisablehook__(unraisable)
        elif _AGAIN:
            signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_RAISE_AGAIN)
        else:
            self.end()

    def end(self) -> NoReturn:
        """Remove what is unfinished, say what is kept, and end the process."""
        number = signal.Signals(self.first or signal.SIGINT)
        for each in (*_SIGNALS, *_AGAIN):  # what is raised below would come here a second time
            signal.signal(each, signal.SIG_IGN)
        remove_unfinished()
        with contextlib.suppress(OSError, RuntimeError):  # closed, or in use by what was interrupted
            sys.stdout.flush()
        line = f"attsvm: {_WORDS[number]}; {one_line(self.says())}\n"
        if os.isatty(self.stderr):
            line = f"\r\x1b[2K\x1b[?25h{line}"  # in place of a progress bar, which has hidden the cursor
        with contextlib.suppress(OSError):
            os.write(self.stderr, line.encode())
        os._exit(128 + number)


_command: _RunningCommand | None = None


@contextlib.contextmanager
def command() -> Iterator[None]:
    """Handle SIGINT and SIGTERM while the block runs: end the process with status 130 or 143 and one line on stderr.

    A signal that is ignored, as SIGINT is in a background job of a shell, stays ignored.
    """
    global _command
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    running = _command = _RunningCommand()
    with contextlib.suppress(OSError):  # it is closed
        running.stderr = os.dup(2)  # a library that is silenced has none at times
    caught = [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    handlers: dict[int, Any] = dict.fromkeys(caught, running.handle)
    handlers |= dict.fromkeys(_AGAIN, running.interrupt)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    hook_before, sys.unraisablehook = sys.unraisablehook, running.lost
    try:
        yield
    except BaseException as error:
        # with the result of the steps before it, the command ends with a status of its own
        if isinstance(error, Interrupted) or (is_interrupted() and not isinstance(error, SystemExit)):
            running.end()
        raise
    finally:
        atexit.register(_leave, caught)
        for number, handler in before.items():
            signal.signal(number, handler)
        _command, sys.unraisablehook = None, hook_before
        if running.stderr != 2:
            os.close(running.stderr)


def on_interruption(says: Callable[[], str]) -> None:
    """Set what a command says after "interrupted" on stderr."""
    if _command is not None:
        _command.says = says


@contextlib.contextmanager
def keeping_steps(keeps: bool = True) -> Iterator[None]:
    """Declare that the command writes the result of the steps that a loop of the block has made when Ctrl-C comes.

    Where this is not declared, Ctrl-C raises :class:`Interrupted`, in loops as well.
    """
    if _command is None:
        yield
        return
    _command.keeps_steps = keeps
    try:
        yield
    finally:
        _command.keeps_steps = False


def is_interrupted() -> bool:
    """Return whether a signal ends the running command. Errors are its consequence then."""
    return _command is not None and _command.first is not None and not _command.requested.is_set()


def check_interrupted() -> None:
    """Raise :class:`Interrupted` if a signal ends the running command and what it raised did not."""
    if _command is not None and is_interrupted():
        _command.interrupt()


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
        requested.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, request)
    try:
        yield requested
    finally:
        signal.signal(signal.SIGINT, before)


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


def _leave(numbers: list[signal.Signals]) -> None:
    """Let the interpreter end at once and undisturbed: its last collections would take seconds with PyTorch."""
    gc.freeze()
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
