"""Ctrl-C and SIGTERM end a command with one line."""

import signal
import subprocess
import sys

import pytest

# a shell's background jobs ignore Ctrl-C, and so would the tests run in one
COMMAND = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import attsvm.cli.main

def press(number=signal.SIGINT):
    os.kill(os.getpid(), number)
    time.sleep(20)

def call(run):
    import attsvm.cli.app
    attsvm.cli.app.run = run
    attsvm.cli.main.main()

{moment}
"""

DURING_IMPORTS = """
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "typer":
            press()
sys.meta_path.insert(0, Finder)
attsvm.cli.main.main()
"""

# JAX's crash if their import is left by an exception
WITHIN_THE_IMPORT_OF_A_COMPILED_MODULE = """
import importlib.machinery
class Compiled:
    def find_spec(name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, Compiled) if name == "compiled" else None
    def create_module(spec):
        return None
    def exec_module(module):
        try:
            press()
        except BaseException:
            os._exit(11)
sys.meta_path.insert(0, Compiled)
def run():
    import compiled
call(run)
"""

IN_A_CALLBACK_OF_THE_GARBAGE_COLLECTOR = """
import gc
presses = [signal.SIGINT]
def collected(phase, _):
    if presses:
        os.kill(os.getpid(), presses.pop())
def run():
    gc.callbacks.append(collected)
    gc.collect()
    for _ in range(400):
        time.sleep(0.05)
call(run)
"""

WHILE_A_LIBRARY_IS_SILENCED = """
from attsvm._utils.silence import silent
def run():
    with silent():
        press()
call(run)
"""

WHILE_A_LIBRARY_IS_SILENCED_WITHIN_AN_IMPORT = WHILE_A_LIBRARY_IS_SILENCED.replace(
    "press()", "compiled = compile('press()', '<frozen importlib._bootstrap>', 'exec'); exec(compiled)"
)

AND_IS_SWALLOWED = """
from attsvm.cli.shared import progress
def run():
    with progress() as callback:
        try:
            press()
        except BaseException:
            pass
        callback(None)
        time.sleep(20)
call(run)
"""

AND_BECOMES_ANOTHER_ERROR = """
from attsvm.cli.exits import run_command
def app(**_):
    try:
        press()
    except BaseException:
        raise OSError("a consequence")
call(lambda: run_command(app))
"""

WHILE_A_PROGRAM_WAITS = "call(lambda: press(signal.{name}))"


def outcome(moment):
    done = subprocess.run(
        [sys.executable, "-c", COMMAND.format(moment=moment)], capture_output=True, text=True, timeout=15, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "moment",
    [
        DURING_IMPORTS,
        WITHIN_THE_IMPORT_OF_A_COMPILED_MODULE,
        IN_A_CALLBACK_OF_THE_GARBAGE_COLLECTOR,
        WHILE_A_LIBRARY_IS_SILENCED,
        WHILE_A_LIBRARY_IS_SILENCED_WITHIN_AN_IMPORT,
        AND_IS_SWALLOWED,
        AND_BECOMES_ANOTHER_ERROR,
        WHILE_A_PROGRAM_WAITS.format(name="SIGINT"),
    ],
)
def test_ctrl_c_ends_with_one_line(moment):
    assert outcome(moment) == (130, "attsvm: interrupted; run the command again\n")


def test_termination_ends_with_one_line():
    moment = WHILE_A_PROGRAM_WAITS.format(name="SIGTERM")
    assert outcome(moment) == (128 + signal.SIGTERM, "attsvm: terminated; run the command again\n")


STEPS = """
from attsvm._utils.interruption import interruptions, keeping_steps, on_interruption

def run():
    on_interruption(lambda: "nothing was written")
    with keeping_steps({keeps}), interruptions() as requested:
        os.kill(os.getpid(), signal.SIGINT)
        while not requested.is_set():
            pass
    {then}
call(run)
"""


def test_steps_are_stopped_and_their_result_is_written():
    assert outcome(STEPS.format(keeps=True, then="sys.exit('written')")) == (1, "written\n")


@pytest.mark.parametrize(("keeps", "then"), [(True, "press()"), (False, "sys.exit('written')")])
def test_a_second_ctrl_c_ends_the_command_and_so_does_the_first_where_no_steps_are_kept(keeps, then):
    assert outcome(STEPS.format(keeps=keeps, then=then)) == (130, "attsvm: interrupted; nothing was written\n")


UNFINISHED = """
from pathlib import Path
from attsvm._utils.files import unfinished

def run():
    with unfinished({target!r}) as folder:
        folder.mkdir()
        (folder / "half").touch()
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            time.sleep(20)
        finally:
            if {twice}:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(20)
call(run)
"""


@pytest.mark.parametrize("twice", [False, True])
def test_what_is_unfinished_is_removed(tmp_path, twice):
    assert outcome(UNFINISHED.format(target=str(tmp_path / "out"), twice=twice))[0] == 143
    assert list(tmp_path.iterdir()) == []
