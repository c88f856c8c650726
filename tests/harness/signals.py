"""Signals at random moments of every command, and what is left when the command is run again.

A case starts a command on small inputs, sends it a signal at a random moment, and checks how it ends: the exit status,
the time, one line on stderr, and nothing unfinished on the disk. It does so in every way in turn, each time with the
command that goes on from what is there. Then it lets the command end, and compares what is written with an undisturbed
run, bit for bit.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.campaign import Campaign, Outcome
from harness.signal_commands import COMMANDS, Command
from harness.written_files import differences

_ROOT = Path(__file__).parents[2]
_STATE = _ROOT / "out" / "soak" / "signals"
_UNFINISHED = "*.unfinished-attsvm"

SECONDS = 2.0
"""A command ends within this time after a signal, on a machine that is not busy."""


@dataclass(frozen=True)
class Way:
    """How a command is disturbed: the signal, how often, and whether from a terminal, which tells its children."""

    name: str
    signal: int
    times: int = 1
    terminal: bool = False


WAYS = (
    Way("SIGINT", signal.SIGINT),
    Way("SIGKILL", signal.SIGKILL),
    Way("Ctrl-C", signal.SIGINT, terminal=True),
    Way("SIGTERM", signal.SIGTERM),
    Way("two SIGINT", signal.SIGINT, times=2),
    Way("two Ctrl-C", signal.SIGINT, times=2, terminal=True),
)


@dataclass(frozen=True)
class Ended:
    """How a disturbed command ended."""

    status: int
    output: str  # on stderr, or on the terminal
    seconds: float  # from the first signal to the end
    sent: bool  # whether the command had not ended before the first signal
    handled: bool  # whether it had begun to handle signals then
    alive: tuple[str, ...]  # processes that it left
    slowdown: float  # how much longer it may take, because the machine is busy

    def seen(self, way: Way) -> str:
        """What happened, in words."""
        if not self.sent:
            return "ended before"
        return way.name if self.handled else "while Python starts"


class Signals(Campaign):
    """Interruptions of every command."""

    name = "signals"
    unit = "signals"
    full = 300
    small: ClassVar[tuple[int, ...]] = (16, 34)
    limit_s = 900.0

    def missing(self) -> str | None:
        """Signals and terminals of a Unix system, and its ``/proc``."""
        return None if Path("/proc/self/status").exists() else "there is no /proc"

    def check(self, case: int) -> Outcome:
        """Disturb a command in every way, let it end, and compare."""
        schedule = [command for command in COMMANDS if command.is_installed() for _ in range(command.weight)]
        random.Random(0).shuffle(schedule)
        command = schedule[case % len(schedule)]
        generator = random.Random(case)
        reference, seconds = _reference(command)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else a job in the background ignores it for all
        failures: list[str] = []
        counts: Counter[str] = Counter()
        with _folder() as work:
            for way in generator.sample(WAYS, len(WAYS)):
                if not (runs := command.next_runs(work)):
                    # complete before the last signal: the machine is less busy than when the reference was made
                    failures += _wrong_files(command, work, reference)
                    _remove(work.iterdir())
                    seconds *= 0.7
                    runs = command.next_runs(work)
                moment, pause = generator.uniform(0.0, seconds), generator.uniform(0.0, 0.4)
                ended = _disturb(runs[0], work, way, moment, pause)
                where = f"{command.name}, {way.name} after {moment:.2f} of {seconds:.2f} s (status {ended.status}): "
                failures += [where + failure for failure in _wrong_end(ended, way, _unfinished(work))]
                if way.signal == signal.SIGKILL:  # what it leaves is removed by hand
                    _remove(work.rglob(_UNFINISHED))
                counts[f"{command.name}: {ended.seen(way)}"] += 1
                counts["signals"] += ended.sent
                if ended.sent:
                    counts[f"ended within {math.ceil(4 * ended.seconds) / 4} s"] += 1
            failures += _wrong_files(command, work, reference)
        return Outcome(counts.pop("signals"), tuple(failures), counts)


def _wrong_end(ended: Ended, way: Way, left: list[str]) -> Iterator[str]:
    """What is wrong with the exit status, the time, the output and the processes."""
    complaints = [word for word in ("Traceback", "Exception ignored", "leaked", "Segmentation") if word in ended.output]
    by_signal = {-way.signal, 128 + way.signal}
    expected = {0, -way.signal if way.signal == signal.SIGKILL else 128 + way.signal}
    if not ended.handled:  # Python itself is starting: its own handler is a traceback
        expected |= {1} | by_signal
        complaints = []
    if ended.status not in expected:
        yield f"expected status {sorted(expected)}; {ended.output[-300:]!r}"
    if ended.seconds > SECONDS * ended.slowdown:
        yield f"took {ended.seconds:.2f} s to end ({ended.slowdown:.1f} processes a core)"
    if complaints:
        yield f"wrote {ended.output[-600:]!r}"
    if ended.handled and ended.status > 128 and not way.terminal and not _is_one_line(ended.output):
        yield f"expected one line on stderr, got {ended.output!r}"
    if way.terminal and ended.output.rfind("\x1b[?25l") > ended.output.rfind("\x1b[?25h"):
        yield "left the cursor hidden"
    if ended.alive:
        yield f"left processes: {', '.join(ended.alive)}"
    if left and way.signal != signal.SIGKILL:
        yield f"left {', '.join(left)}"


def _is_one_line(output: str) -> bool:
    # after some seconds there are lines of progress, too
    output = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\n", "", output, flags=re.MULTILINE)
    return output.count("\n") == 1 and output.startswith(("attsvm: ", "out: interrupted", "out.npz: interrupted"))


def _wrong_files(command: Command, work: Path, reference: Path) -> Iterator[str]:
    """What is wrong with the files when the command has been run again to its end."""
    with contextlib.ExitStack() as stack:
        for again in command.next_runs(work):
            done = stack.enter_context(_started(again, work, kept=True))
            _, said = done.communicate()
            if done.returncode != 0:
                yield f"attsvm {' '.join(again)} ended with {done.returncode}: {said[-600:]!r}"
                return
    if left := _unfinished(work):
        yield f"{command.name}: the next run left {', '.join(left)}"
    for difference in differences(reference, work, command.compare):
        yield f"{command.name}: {difference}"


def _disturb(arguments: list[str], work: Path, way: Way, moment: float, pause: float) -> Ended:
    with _started(arguments, work, way.terminal) as process:
        parts: list[str] = []
        reader = threading.Thread(target=_read, args=(process, parts))
        reader.start()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moment)
            sent = process.poll() is None
            slowdown = 1.0 if _has_priority(process.pid) else _processes_a_core()
            handled = _handles_signals(process.pid)
            began = time.monotonic()
            for number in range(way.times):
                time.sleep(pause * (number > 0))
                if process.poll() is None:
                    (os.killpg if way.terminal else os.kill)(process.pid, way.signal)
            process.wait()
            seconds = (time.monotonic() - began) * sent
            alive = _alive(process.pid, SECONDS * slowdown)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        reader.join()
    return Ended(process.returncode, "".join(parts), seconds, sent, handled, alive, slowdown)


def _has_priority(pid: int) -> bool:
    """Give a process priority over others, as if the machine were not busy; whether that is allowed."""
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), -15)
    except PermissionError:
        return False
    except FileNotFoundError:  # the process has ended
        pass
    return True


def _processes_a_core() -> float:
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def _handles_signals(pid: int) -> bool:
    """Whether a process catches SIGTERM, as Python does not by itself; one that has ended counts."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return True


def _alive(session: int, limit: float) -> tuple[str, ...]:
    """The processes of a session that have not ended within a time."""
    deadline = time.monotonic() + limit
    while True:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                name, _, rest = stat.read_text().rpartition(")")
                state, _, _, of_session = rest.split()[:4]
                if int(of_session) == session and state != "Z":
                    found.append(name)
        if not found or time.monotonic() > deadline:
            return tuple(found)
        time.sleep(0.05)


def _read(process: "subprocess.Popen[str]", parts: list[str]) -> None:
    if isinstance(process, _InTerminal):
        parts.append(process.read_output())
    elif process.stderr is not None:
        parts.append(process.stderr.read())


class _InTerminal(subprocess.Popen[str]):
    """A process with a pseudo-terminal for its output."""

    def __init__(self, arguments: list[str], **options: object) -> None:
        self._end, theirs = pty.openpty()
        super().__init__(arguments, stdin=theirs, stdout=theirs, stderr=theirs, **options)
        os.close(theirs)

    def read_output(self) -> str:
        """Everything that is written, until the last process that has the terminal ends."""
        parts = []
        with contextlib.suppress(OSError):  # the end of a terminal is an error
            while part := os.read(self._end, 65536):
                parts.append(part)
        os.close(self._end)
        return b"".join(parts).decode(errors="replace")


def _started(arguments: list[str], work: Path, terminal: bool = False, kept: bool = False) -> "subprocess.Popen[str]":
    """Start a command in a session of its own.

    If ``kept``, it uses the compiled programs of earlier calls: only what it writes is of interest.
    """
    run = [sys.executable, "-W", "ignore", "-m", "attsvm", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT / "src"), "TERM": "xterm", "HF_HUB_OFFLINE": "1"}
    if kept:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(_STATE / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    options = {"cwd": work, "env": environment, "start_new_session": True, "text": True}
    if terminal:
        return _InTerminal(run, **options)
    return subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)


def _reference(command: Command) -> tuple[Path, float]:
    """The folder of an undisturbed run with this source, and the seconds that it took; it is made once."""
    digest = hashlib.sha256()
    for path in sorted([*(_ROOT / "src").rglob("*.py"), Path(__file__).with_name("signal_commands.py")]):
        digest.update(path.read_bytes())
    state = _STATE / digest.hexdigest()[:16]
    state.mkdir(parents=True, exist_ok=True)
    with (state / f"{command.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder, took = state / command.name, state / f"{command.name}.seconds"
        if not took.exists():
            shutil.rmtree(folder, ignore_errors=True)
            command.make_inputs()
            folder.mkdir()
            began = time.monotonic()
            with _started(command.arguments, folder) as process:
                _, said = process.communicate()
            if process.returncode != 0:
                raise RuntimeError(f"undisturbed: attsvm {' '.join(command.arguments)} ended with {said}")
            took.write_text(json.dumps(time.monotonic() - began))
        return folder, json.loads(took.read_text())


def _unfinished(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(_UNFINISHED)]


def _remove(entries: Iterable[Path]) -> None:
    for entry in list(entries):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=_STATE) as work:
        yield Path(work)


CAMPAIGN = Signals()
