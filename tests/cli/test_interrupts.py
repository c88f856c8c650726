"""Ctrl-C and SIGTERM end a command at once, whatever Python is doing."""

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

IN_A_CALLBACK_OF_THE_GARBAGE_COLLECTOR = """
import gc
def run():
    gc.callbacks.append(lambda phase, _: press())
    gc.collect()
call(run)
"""

IN_A_FINALIZER = """
class Finalized:
    def __del__(self):
        press()
call(lambda: Finalized() and None)
"""

DURING_IMPORTS = """
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "typer":
            press()
sys.meta_path.insert(0, Finder)
attsvm.cli.main.main()
"""

WHILE_A_LIBRARY_IS_SILENCED = """
from attsvm._utils.reading import silent
def run():
    with silent():
        press()
call(run)
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
        IN_A_CALLBACK_OF_THE_GARBAGE_COLLECTOR,
        IN_A_FINALIZER,
        DURING_IMPORTS,
        WHILE_A_LIBRARY_IS_SILENCED,
        WHILE_A_PROGRAM_WAITS.format(name="SIGINT"),
    ],
)
def test_ctrl_c_ends_with_one_line(moment):
    assert outcome(moment) == (130, "attsvm: interrupted; run the command again\n")


def test_termination_ends_with_one_line():
    moment = WHILE_A_PROGRAM_WAITS.format(name="SIGTERM")
    assert outcome(moment) == (128 + signal.SIGTERM, "attsvm: terminated; run the command again\n")


STEPS = """
from attsvm.cli.interrupts import on_interruption, take_steps

def run():
    on_interruption(lambda: "nothing was written")
    take_steps()
    os.kill(os.getpid(), signal.SIGINT)
    while not take_steps():
        pass
    {then}
call(run)
"""


def test_steps_are_stopped_and_their_result_is_written():
    assert outcome(STEPS.format(then="sys.exit('written')")) == (1, "written\n")


@pytest.mark.parametrize("then", ["time.sleep(20)", "press()"])
def test_a_result_that_takes_too_long_or_a_second_ctrl_c_ends_the_command(then):
    assert outcome(STEPS.format(then=then)) == (130, "attsvm: interrupted; nothing was written\n")


WHILE_A_LIBRARY_HOLDS_THE_INTERPRETER_LOCK = """
import ctypes
from attsvm.cli.interrupts import on_interruption

def clean():
    for _ in range(6):
        time.sleep(.001)
    os.write(1, b"cleaned")

def run():
    on_interruption(cleanup=clean)
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(40):
        ctypes.PyDLL(None).usleep(200_000)
call(run)
"""


def test_there_is_time_to_clean_up_after_a_call_that_holds_the_interpreter_lock():
    moment = WHILE_A_LIBRARY_HOLDS_THE_INTERPRETER_LOCK
    run = [sys.executable, "-c", COMMAND.format(moment=moment)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=15, check=False)
    assert (done.returncode, done.stdout) == (130, "cleaned")
