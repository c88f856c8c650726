"""Hostile names: whatever a user calls a measure, an axis, a value or a token, it is shown, written and read as text.

A case makes names of pieces that are markup, patterns, paths, formulas or control characters somewhere, and gives them
to ``attsvm monitor``, to the page of a sweep and to the reader of texts. ``python -m harness.hostile_names CASE``
prints what it finds.
"""

import contextlib
import csv
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar
from unittest import mock

import numpy as np

from harness.campaign import Campaign, Outcome
from harness.mutations import pick
from oracles.hostile import NAMES, faults_of_csv, faults_of_output, faults_of_page, files_below

COUNT = 6
"""Names of a case."""

PIECES = ("", "a", "Word", " ", "é", "漢", "[", "]", "[/", "$", "{{", "}}", "<", ">", '"', "'", "\\", "\\1", "../", "/")
PIECES += ("\x1b[2J", "\r", "\n", "\t", "\u2028", "\x0b", "\x85", "\u202e", "\u2066", "=", "+", "-", "@", ",", ";", "_")

Check = Callable[[list[str], Path], Iterator[str]]


class HostileNames(Campaign):
    """Names of users in a terminal, a page, its files and its tables."""

    name: ClassVar[str] = "hostile_names"
    unit: ClassVar[str] = "names"
    full: ClassVar[int] = 3_000
    small: ClassVar[tuple[int, ...]] = (0, 1033)

    def check(self, case: int) -> Outcome:
        """Give some names to each command."""
        rng = np.random.default_rng(case)
        names = [*dict.fromkeys(_name(rng) for _ in range(COUNT))]
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fonts without a glyph, and axes without room
            checks = (_monitor, _sweep, _texts)
            found = [
                f"{check.__name__[1:]}: {fault}" for check in checks for fault in _faults(check, names, Path(folder))
            ]
        return Outcome(len(names), tuple(fault if len(fault) < 200 else f"{fault[:200]} …" for fault in found))

    def missing(self) -> str | None:
        """xarray is optional, and so are the readers of models."""
        try:
            import transformers  # noqa: F401
            import xarray  # noqa: F401
        except ModuleNotFoundError as error:
            return str(error)
        return None


CAMPAIGN = HostileNames()


def _name(rng: np.random.Generator) -> str:
    if rng.random() < 0.4:
        return str(pick(NAMES, rng))
    text = "".join(pick(PIECES, rng) for _ in range(int(rng.integers(1, 9))))
    return f"{text}{rng.integers(10)}" * (60 if rng.random() < 0.1 else 1)


def _faults(check: Check, names: list[str], folder: Path) -> list[str]:
    try:
        return [*check(names, folder)]
    except Exception as error:  # a traceback is a fault
        return [f"{type(error).__name__}: {error}"]


def _monitor(names: list[str], folder: Path) -> Iterator[str]:
    """The command, with names as measures."""
    outer, inner = folder / "monitor", folder / "monitor" / "inner"
    inner.mkdir(parents=True)
    for name in ("victim", "victim.png", "victim_map.png"):
        (outer / name).write_text("mine")
    with (inner / "heads.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(step, "0.0", name, 0.5 + step) for step in (0, 100) for name in names]
        csv.writer(file).writerows([("step", "head", "measure", "value"), *rows])
    before = files_below(outer)
    status, out, err = _command(inner, "monitor", "heads.csv", "--out", "page")
    if status != 0:
        yield f"status {status}: {err}"
        return
    yield from faults_of_output(out, names)
    yield from faults_of_output(err)
    written = files_below(outer)
    ours = {name.removeprefix("inner/page/") for name in written if name.startswith("inner/page/")}
    if {name: content for name, content in written.items() if not name.startswith("inner/page/")} != before:
        yield "writes outside of --out"
    drawn = [name for name in ours if name.startswith("figures/")]
    if ours - {*drawn} != {"index.html", "result.json"} or len(drawn) != len(names):
        yield f"writes {sorted(ours)}"
        return
    yield from faults_of_page(written["inner/page/index.html"].decode())
    if [*json.loads(written["inner/page/result.json"])["measures"]] != names:
        yield "result.json has other names"


def _sweep(names: list[str], folder: Path) -> Iterator[str]:
    """The page of a sweep, with names as its axis, the values of this, and an output with a long name."""
    import xarray as xr

    axis, output, *values = [names[0], f"{names[-1]}!", *names]
    dims = (axis, "trial")
    arrays = {
        output: (dims, np.arange(3.0 * len(values)).reshape(-1, 3), {"long_name": names[0]}),
        "done": (dims, np.ones((len(values), 3), bool)),
    }
    about = {"name": names[0], "version": "1", "command": names[0], "seed": 7, "hash": "abc"}
    dataset = xr.Dataset(arrays, {axis: values}, about)
    with mock.patch("attsvm.sweeps.open_sweep", return_value=dataset), mock.patch("attsvm.pages.terminal.WIDE", 20_000):
        for options, shown in (((), [axis, output, *values]), (("--json",), [])):
            status, out, err = _command(folder, "sweep", "show", "store", "--out", "sweep", "--force", *options)
            if status != 0:
                yield f"status {status}: {err}"
                return
            yield from faults_of_output(out, shown)
            yield from faults_of_output(err)
    yield from faults_of_page((folder / "sweep" / "index.html").read_text(encoding="utf-8"))
    yield from faults_of_csv((folder / "sweep" / "table.csv").read_bytes().decode(), [axis, output, *values])


def _texts(names: list[str], folder: Path) -> Iterator[str]:
    """The lines of a file of texts."""
    from attsvm.pretrained import read_texts

    lines = [name.replace("\n", " ").strip() for name in names if name.strip()]
    if lines:
        (folder / "texts.txt").write_bytes("\n".join(lines).encode())
        if read_texts(folder / "texts.txt") != lines:
            yield "reads other lines"


@contextlib.contextmanager
def _printed() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """What is printed on stdout and stderr, where a line has room for every table."""
    out, err = io.StringIO(), io.StringIO()
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "20000"
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield out, err
    finally:
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width


def _command(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run ``attsvm`` in a folder: exit status, stdout, stderr."""
    from attsvm.cli.main import main

    argv, home = sys.argv, Path.cwd()
    sys.argv = ["attsvm", *arguments]
    os.chdir(folder)
    try:
        with _printed() as (out, err):
            main()
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    except Exception as error:  # a traceback is what it looks for
        return 1, out.getvalue(), f"{type(error).__name__}: {error}"
    finally:
        sys.argv = argv
        os.chdir(home)
    raise AssertionError("a command ends with SystemExit")


if __name__ == "__main__":
    print(CAMPAIGN.check(int(sys.argv[1])))
