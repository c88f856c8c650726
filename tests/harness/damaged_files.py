"""Damaged files: every reader gives its result, or one line that names the file, and changes nothing on disk.

A case damages valid files of every format in 50 ways: 49 are read in this process, by the function that a command
calls, and one by the command itself. ``python -m harness.damaged_files CASE`` prints what each of them gives.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from attsvm.errors import ProblemError
from harness.campaign import Campaign, Outcome
from harness.file_formats import FORMATS, Format, write_samples
from harness.mutations import pick

FILES = 50
SECONDS = 10.0
COMMAND_SECONDS = 100.0
MEMORY = 2 << 30
"""What a reader may take, in bytes, beyond what the process has."""


class Hangs(BaseException):
    """Raised where a reader takes too long. It is no ``Exception``, so that no reader catches it."""


class DamagedFiles(Campaign):
    """Mutation fuzzing of every file format that attsvm reads."""

    name: ClassVar[str] = "damaged_files"
    unit: ClassVar[str] = "mutated files"
    full: ClassVar[int] = 10_000
    small: ClassVar[tuple[int, ...]] = (0, 1, 2, 3)
    limit_s: ClassVar[float] = 300.0

    def check(self, case: int) -> Outcome:
        """Damage 50 files, and read them."""
        failures, counts = [], Counter[str]()
        for number in range(FILES):
            rng = np.random.default_rng((case, number))
            by_command = number == FILES - 1
            able = [one for one in FORMATS if one.commands or not by_command]
            kind = able[(case if by_command else case * FILES + number) % len(able)]
            mutated = _damaged(kind, rng)
            trace(f"case {case}, file {number}: {kind.name}")
            found = _through_command(kind, mutated, rng) if by_command else _in_process(kind, mutated)
            counts[found if found in ("read", "refused") else "failed"] += 1
            trace(f"  {found}")
            if found not in ("read", "refused"):
                failures.append(f"file {number} of case {case} ({kind.name}{', command' * by_command}): {found}")
        return Outcome(FILES, tuple(failures), counts)

    def missing(self) -> str | None:
        """Transformers and pyarrow are optional."""
        try:
            import pyarrow  # noqa: F401
            import transformers  # noqa: F401
        except ModuleNotFoundError as error:
            return str(error)
        return None


def trace(text: str) -> None:
    """Say what happens next, for the search for what ends the process."""
    if os.environ.get("ATTSVM_HARNESS_TRACE"):
        print(text, file=sys.stderr, flush=True)


@cache
def _samples() -> Path:
    """A folder with valid files of every format, for the rest of the process."""
    folder = tempfile.TemporaryDirectory(prefix="attsvm-files-")
    _kept.append(folder)
    write_samples(Path(folder.name))
    return Path(folder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _damaged(kind: Format, rng: np.random.Generator) -> bytes:
    content = original = (_samples() / kind.file).read_bytes()
    while content == original:
        for _ in range(int(pick((1, 1, 1, 2), rng))):
            with contextlib.suppress(Exception):  # what is damaged already has no structure to change
                content = pick(kind.mutations, rng)(content, rng)
    return content


def _in_process(kind: Format, content: bytes) -> str:
    """Read a damaged file: "read", "refused", or what is wrong."""
    folder = _samples()
    with _replaced(folder / kind.file, content), contextlib.chdir(folder), tempfile.TemporaryFile() as printed:
        before = _listing(folder)
        began = time.perf_counter()
        try:
            with _limited(), _printing_to(printed.fileno()), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some damage is warned of
                kind.read(folder)
            found = "read"
        except (ProblemError, OSError) as error:
            found = _judged(kind, str(error))
        except Hangs:
            found = f"takes more than {SECONDS:g} s"
        except BaseException as error:  # a panic of a library in Rust is no Exception
            found = f"{type(error).__name__}: {str(error)[:200]!r} after {time.perf_counter() - began:.1f} s"
        if _listing(folder) != before:
            return f"changed the disk: {sorted(set(_listing(folder)) ^ set(before))}"
        printed.seek(0)
        text = printed.read().decode(errors="replace")
        return f"prints {text[:200]!r}" if text else found


def _judged(kind: Format, message: str) -> str:
    if "\n" in message or not message.strip():
        return f"expected a message of one line, got {message[:200]!r}"
    if not any(part in message for part in Path(kind.file).parts):
        return f"expected a message that names the file, got {message[:200]!r}"
    return "refused"


def _through_command(kind: Format, content: bytes, rng: np.random.Generator) -> str:
    folder = _samples()
    arguments = pick(kind.commands, rng)
    with _replaced(folder / kind.file, content), tempfile.TemporaryDirectory() as out:
        before = _listing(folder)
        words = [word.replace("OUT", out) for word in arguments.split()]
        command = [sys.executable, "-m", "attsvm", *words]
        try:
            ended = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS,
                input="y\n" * 100, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"attsvm {arguments}: takes more than {COMMAND_SECONDS:g} s"
        said = f"attsvm {arguments}: status {ended.returncode}, stderr {ended.stderr[-300:]!r}"
        if "Traceback" in ended.stderr or not 0 <= ended.returncode < 10:
            return said
        if _listing(folder) != before:
            return f"{said}; changed the disk"
        if ended.returncode not in (1, 2):
            return "read"
        one_line = ended.stderr.count("\n") == 1 and ended.stderr.startswith("attsvm: ")
        return "refused" if one_line and not ended.stdout and not os.listdir(out) else said


@contextlib.contextmanager
def _replaced(path: Path, content: bytes) -> Iterator[None]:
    original = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(original)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise where the block takes too long, and let it take a limited amount of memory."""

    def hangs(*_: object) -> None:
        raise Hangs

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    earlier = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def _printing_to(descriptor: int) -> Iterator[None]:
    """Send what the block prints, from native code too, to a file."""
    kept = os.dup(1), os.dup(2)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, earlier in zip((1, 2), kept, strict=True):
            os.dup2(earlier, number)
            os.close(earlier)


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in folder.rglob("*"):
        about = path.stat()
        found[str(path.relative_to(folder))] = (about.st_size, about.st_mtime_ns if path.is_file() else 0)
    return found


CAMPAIGN = DamagedFiles()

if __name__ == "__main__":
    os.environ["ATTSVM_HARNESS_TRACE"] = "1"
    outcome = CAMPAIGN.check(int(sys.argv[1]))
    print(*outcome.failures, dict(outcome.counts), sep="\n")
