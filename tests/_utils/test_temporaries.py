"""What an interrupted process leaves, and what the next one makes of it."""

import ctypes
import subprocess
import sys

import pytest

from attsvm._utils import temporaries
from attsvm._utils.temporaries import ENDING, finish, unfinished

HOLD = """
import sys, time
from attsvm._utils.temporaries import unfinished
with unfinished(sys.argv[1], folder=True) as folder:
    (folder / "half").touch()
    print(folder.name, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Start a process that is writing a folder; return it and the name of its temporary."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, tmp_path / "fit"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_stays(tmp_path, holder):
    dead, _ = holder()
    dead.kill()
    dead.wait()
    _, living = holder()
    (tmp_path / f".empty.12345678{ENDING}").touch()  # of a process that was killed before it wrote anything
    (tmp_path / ".fit.original").mkdir()  # a file of the user
    with unfinished(tmp_path / "fit") as temporary:
        assert {entry.name for entry in tmp_path.iterdir()} == {".fit.original", living, temporary.name}
    assert {entry.name for entry in tmp_path.iterdir()} == {".fit.original", living}


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_folder_takes_the_place_of_another(tmp_path, monkeypatch, in_one_step):
    if not in_one_step:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: None)
    target = tmp_path / "fit"
    target.mkdir()
    (target / "old").touch()
    with unfinished(target, folder=True) as folder:
        (folder / "new").touch()
        finish(folder, target)
    assert [entry.name for entry in tmp_path.iterdir()] == ["fit"]
    assert [entry.name for entry in target.iterdir()] == ["new"]
    assert temporaries.is_finished(target)


INTERRUPTED = """
import os, sys
from pathlib import Path
from attsvm._utils.temporaries import make_folder, remove_unfinished, unfinished
root = Path(sys.argv[1])
make_folder(root / "there" / "a" / "b")
make_folder(root / "kept")
make_folder(root / "kept" / "runs" / "adam")
(root / "kept" / "runs" / "checkpoint").touch()
with unfinished(root / "there" / "a" / "b" / "out", folder=True):
    remove_unfinished()
    os._exit(0)
"""


def test_an_interrupted_process_removes_the_empty_folders_that_it_made(tmp_path):
    (tmp_path / "there").mkdir()
    subprocess.run([sys.executable, "-c", INTERRUPTED, tmp_path], check=True)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"there", "kept", "kept/runs", "kept/runs/checkpoint"}
