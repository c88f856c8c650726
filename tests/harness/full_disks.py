"""Disks that are full, read-only or forbidden, under every command that writes.

Each case mounts a small tmpfs and runs commands with ``--out`` on it: with a random number of free pages or inodes, so
that another file fails each time; mounted read-only; or in a folder that another user owns. The rule: one line on
stderr that names the output, a documented exit status, no traceback, nothing half-written, and what was there before is
intact.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attsvm
from attsvm._utils.archives import read_npz
from attsvm.cli.main import main
from harness.campaign import Campaign, Outcome
from harness.samples import write_reviews

PAGE = 4096
NOBODY = 65534
KINDS = ("full", "full", "full", "inodes", "read-only", "denied")


class FullDisks(Campaign):
    """Commands that write, on a small tmpfs; a case runs one command three times, in the small size once."""

    name = "full_disks"
    unit = "disks"
    full = 300
    small = (0, 1, 2, 24, 32)
    limit_s = 300.0

    def __init__(self) -> None:
        self._made: _Inputs | None = None

    def missing(self) -> str | None:
        """Mounting needs root, and permissions stop nobody else."""
        if not hasattr(os, "geteuid") or os.geteuid() != 0:
            return "a tmpfs can be mounted by root only"
        try:
            with _tmpfs("size=16k"):
                return None
        except OSError as error:
            return f"a tmpfs cannot be mounted here ({error})"

    def check(self, case: int) -> Outcome:
        """One command on one kind of disk, with three amounts of room."""
        generator = random.Random(case)
        inputs = self._made = self._made or _Inputs()
        names = list(inputs.commands)
        command, kind = names[case % len(names)], KINDS[case // len(names) % len(KINDS)]
        turns = 1 if case in self.small else 3
        failures: list[str] = []
        counts: Counter[str] = Counter()
        for turn in range(turns):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found, status = _attempt(inputs, command, kind, earlier=bool(turn % 2), generator=generator)
            counts[f"{kind}: {status}"] += 1
            failures += [f"case {case}, turn {turn}: {command}, {kind}: {one}" for one in found]
        return Outcome(turns, tuple(failures), counts)


class _Inputs:
    """What the commands read, and how much they write on a disk that has room."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="attsvm-disks-"))
        self.folder.chmod(0o755)
        attsvm.datasets.random_problem(8, 4, 3, seed=0).save(self.folder / "problem.npz")
        (self.folder / "texts.csv").write_text("text,label\n" + "good film,+\nbad film,-\n" * 8)
        problem, texts = str(self.folder / "problem.npz"), str(self.folder / "texts.csv")
        self.commands = {
            "train": ["train", problem, "--steps", "20"],
            "solve": ["solve", problem, "--selected", "optimal"],
            "fit": ["fit", problem, "--steps", "20"],
            "fit-text": ["fit-text", texts, "--steps", "20", "--min-documents", "1"],
            "reproduce": ["reproduce", "losses", "--quick"],
        }
        with contextlib.suppress(ImportError):  # of PyTorch or pyarrow
            write_reviews(self.folder, train=24, test=12)
            words = str(self.folder / "vocab.txt")
            options = ["--preset", "tiny", "--data", str(self.folder), "--vocabulary", words, "--epochs", "1"]
            self.commands["experiment"] = ["experiment", "imdb", *options]
        self.rooms: dict[str, tuple[int, int]] = {}

    def room(self, command: str) -> tuple[int, int]:
        """Pages and inodes that a command needs. It has been run once then, and its modules are loaded."""
        if command not in self.rooms:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / _name(command)
                status, stderr, _ = _run([*self.commands[command], "--out", str(out)])
                assert status in (0, 3), stderr
                entries = [out, *out.rglob("*")]
                pages = sum(-(-path.stat().st_size // PAGE) for path in entries if path.is_file())
            self.rooms[command] = pages, len(entries)
        return self.rooms[command]


def _name(command: str) -> str:
    """What the command calls its result here."""
    return "out.npz" if command in ("train", "solve") else "out"


def _attempt(
    inputs: _Inputs, command: str, kind: str, *, earlier: bool, generator: random.Random
) -> tuple[list[str], str]:
    """Run a command on a disk of a kind; what is wrong with how it ended, and its exit status in words."""
    pages, entries = inputs.room(command)
    arguments = inputs.commands[command]
    inodes = generator.randint(2, 2 + entries) if kind == "inodes" else 0
    with _tmpfs(f"size={8 * (pages + 64)}k,mode=755" + f",nr_inodes={inodes}" * bool(inodes)) as disk:
        home = disk / "home"
        home.mkdir()
        out = home / _name(command)
        if earlier and kind != "inodes":
            _run([*arguments, "--out", str(out)])
            arguments = [*arguments, *{"reproduce": [], "experiment": ["--resume"]}.get(command, ["--force"])]
        if kind == "full":
            _fill(disk / "ballast", leave=generator.randint(0, pages + 1))
        elif kind == "denied":
            home.chmod(0o555)
        before = _contents(disk)
        if kind == "read-only":
            _mount("-o", "remount,ro", str(disk))
        status, stderr, stdout = _run([*arguments, "--out", str(out)], NOBODY if kind == "denied" else 0)
        after = _contents(disk)
        found = _judged(status, stderr, out) if status not in (0, 3) else _halves(out)
        if kind in ("read-only", "denied") and status not in (2,):
            found.append(f"exit status {status}, expected 2: the output cannot be written")
        kept_pieces = command in ("reproduce", "experiment")
        if status not in (0, 3) and kept_pieces:
            found += _halves(out)
        elif status not in (0, 3) and after != before:
            found.append(f"left or changed {sorted(set(after.items()) ^ set(before.items()))[:3]}")
        if "Traceback" in stdout + stderr:
            found.append(f"a traceback: {stderr[-300:]!r}")
    return found, f"exit status {status}"


def _judged(status: object, stderr: str, out: Path) -> list[str]:
    """What is wrong with how a command failed."""
    found = []
    if status not in (1, 2):
        found.append(f"exit status {status}, expected 1 or 2")
    lines = [line for line in stderr.splitlines() if not line.startswith("attsvm: warning:")]
    if len(lines) != 1 or not lines[0].startswith(f"attsvm: {out}"):
        found.append(f"expected one line that names {out}, got {stderr[-400:]!r}")
    return found


def _halves(out: Path) -> list[str]:
    """The files of an output that are not whole, and temporary ones."""
    found = [str(path) for path in out.parent.rglob(".*")]
    for path in [out, *out.rglob("*")] if out.exists() else []:
        try:
            if path.is_dir():
                continue
            if path.suffix == ".png":
                assert path.read_bytes().endswith(b"IEND\xaeB`\x82")
            elif path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix in (".html", ".svg"):
                assert path.read_text().rstrip().endswith(f"</{path.suffix[1:]}>")
            elif path.suffix == ".safetensors":
                from safetensors.numpy import load_file

                load_file(path)
            elif path.suffix in (".pt", ".pth", ".bin"):  # PyTorch's files are archives
                assert zipfile.ZipFile(path).testzip() is None
            elif path.name == "sha256":
                others = (other for other in sorted(path.parent.iterdir()) if other != path)
                parts = (other.name.encode() + hashlib.sha256(other.read_bytes()).digest() for other in others)
                assert path.read_text() == hashlib.sha256(b"".join(parts)).hexdigest()
            elif path.name != "ballast":
                read_npz(path)
        except Exception as error:  # a half of a file can fail in any way
            found.append(f"{path}: not whole ({type(error).__name__}: {error})")
    return found


def _contents(folder: Path) -> dict[str, str]:
    """Every entry of a folder with a hash of what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path)] = "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _run(arguments: list[str], user: int = 0) -> tuple[object, str, str]:
    """Run a command in this process as a user: exit status, stderr, stdout. A traceback is in stderr."""
    stdout, stderr, argv, status = io.StringIO(), io.StringIO(), sys.argv, None
    sys.argv = ["attsvm", *arguments, "--quiet"]  # on a busy machine there would be lines of progress
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr), _as_user(user):
            main()
    except SystemExit as ended:
        status = ended.code
    except BaseException as error:
        stderr.write(f"Traceback: {type(error).__name__}: {error}")
    finally:
        sys.argv = argv
    return status, stderr.getvalue(), stdout.getvalue()


@contextlib.contextmanager
def _as_user(user: int) -> Iterator[None]:
    if user:
        os.seteuid(user)
    try:
        yield
    finally:
        if user:
            os.seteuid(0)


def _fill(ballast: Path, leave: int) -> None:
    """Fill the disk of a file but for some pages."""
    room = os.statvfs(ballast.parent)
    with ballast.open("wb") as stream:
        stream.write(bytes(PAGE * max(room.f_bavail * room.f_frsize // PAGE - leave, 0)))


@contextlib.contextmanager
def _tmpfs(options: str) -> Iterator[Path]:
    """A tmpfs in a temporary folder; it is unmounted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="attsvm-disk-"))
    try:
        _mount("-t", "tmpfs", "-o", options, "tmpfs", str(folder))
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)
    finally:
        folder.rmdir()


def _mount(*arguments: str) -> None:
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise OSError(error.stderr.strip() or "mount failed") from error


CAMPAIGN = FullDisks()
