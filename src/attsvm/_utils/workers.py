"""Calls of a function, made side by side in worker processes.

A worker reads calls from its standard input and writes results to its standard output. It does not import the script
that started it, and ends with the process that started it.
"""

import atexit
import contextlib
import gc
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from attsvm._utils.extensions import FOLDERS
from attsvm._utils.interruption import blocked

Result = TypeVar("Result")

SECONDS_IDLE = 300.0
"""A worker without calls ends after this time."""

SECONDS_TO_END = 1.0
"""The time that a worker has to remove what is unfinished."""

_SECONDS_A_LOOK = 0.5
_IDLE_TOO_LONG = 75  # the status of a worker that ended because it had no calls
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

_idle: "list[_Worker]" = []


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def side_by_side(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], workers: int) -> Iterator[Result]:
    """Make the calls ``function(*arguments)``, and yield their results in the order of the calls.

    The function is defined at the top level of a module, as its arguments and results are sent between processes. The
    arguments of a call are read when a worker is free. Each worker has one thread of linear algebra. With one worker,
    and on Windows, the calls are made in this process. If the caller stops early, or after an error, the calls that are
    under way are ended.
    """
    if workers == 1 or os.name == "nt":  # Windows has no signals to end workers with
        with threadpool_limits(1, user_api="blas"):
            for arguments in calls:
                yield function(*arguments)
        return
    free = [_idle.pop() if _idle else _Worker() for _ in range(workers)]
    busy: dict[_Worker, int] = {}
    results: dict[int, Result] = {}
    read = made = 0

    def receive() -> None:
        """Take the results of the workers that finish next."""
        for worker in select.select([*busy], [], [])[0]:
            results[busy[worker]] = worker.receive()
            del busy[worker]
            free.append(worker)

    try:
        for arguments in calls:
            worker = free.pop()
            busy[worker] = read
            worker.send(function, arguments)
            read += 1
            while not free:
                receive()
            while made in results:
                yield results.pop(made)
                made += 1
        while made < read:
            while made not in results:
                receive()
            yield results.pop(made)
            made += 1
    finally:
        _idle.extend(free)
        _end([*busy])


class _Worker:
    """A worker process, seen from the process that started it."""

    def __init__(self) -> None:
        self.process = _started()

    def fileno(self) -> int:
        """Return the descriptor of its results."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Send a call, to a new process if this one has ended because it had no calls for a long time."""
        if self.process.poll() is not None:
            self.process = _started()
        self._call = function, arguments
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended just now, which receive() notices
            pickle.dump(self._call, self.process.stdin)
            self.process.stdin.flush()

    def receive(self) -> Any:
        """Wait for the result of the call, and return it or raise its error."""
        assert self.process.stdout is not None
        try:
            result, error, where = pickle.load(self.process.stdout)
        except EOFError:
            status = self.process.wait()
            if status == _IDLE_TOO_LONG:  # it did so while the call was sent, and has not begun it
                self.process = _started()
                self.send(*self._call)
                return self.receive()
            raise RuntimeError(f"a worker process ended with status {status}") from None
        del self._call
        if error is not None:
            raise error from RuntimeError(f"in a worker process:\n{where}")
        return result


def _started() -> "subprocess.Popen[bytes]":
    path = [*sys.path, *FOLDERS]
    code = f"import sys; sys.path[:] = {path!r}; from attsvm._utils.workers import serve; serve({os.getpid()})"
    command = [sys.executable, *(f"-W{option}" for option in sys.warnoptions), "-c", code]
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
    with blocked():  # Ctrl-C in a terminal is for the process that waits
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def _end(workers: list[_Worker]) -> None:
    """End workers, which remove what they have not finished."""
    for worker in workers:
        worker.process.terminate()
    deadline = time.monotonic() + SECONDS_TO_END
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()


def serve(parent: int) -> None:
    """Answer the calls on standard input until it ends: the work of a worker.

    This module imports nothing slow, so a worker looks for its parent before it imports what a call needs.
    """
    atexit.register(gc.freeze)  # the last collections take long with JAX and PyTorch
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a call prints is no answer
    idle_since, ending = time.monotonic(), False

    def look(number: int, _: object) -> None:
        """End the process if it was asked to end, its parent has ended, or it had no calls for a long time."""
        nonlocal ending
        ending = ending or number == signal.SIGTERM or os.getppid() != parent
        if ending:  # what is lost in a callback of JAX is raised again; no signal is handled inside a builtin
            sys.unraisablehook = id
        if ending or time.monotonic() - idle_since > SECONDS_IDLE:
            raise SystemExit(1 if ending else _IDLE_TOO_LONG)

    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, look)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_A_LOOK, _SECONDS_A_LOOK)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            idle_since = time.monotonic()
            try:
                function, arguments = pickle.load(calls)
            except Exception:
                if ending:  # modules of C++ turn the end of their import into an ImportError
                    return
                raise
            idle_since = math.inf
            answer: tuple[Any, Exception | None, str]
            try:
                answer = function(*arguments), None, ""
            except Exception as error:  # raised again where the result is read
                answer = None, error, traceback.format_exc()
            answers.write(pickle.dumps(answer))
            answers.flush()
