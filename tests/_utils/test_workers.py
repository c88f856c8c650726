"""Calls side by side: their results come in order, and workers end with the process that started them."""

import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attsvm import ProblemError
from attsvm._utils.checks import check_integer
from attsvm._utils.workers import side_by_side, without_interruptions


def test_results_are_in_the_order_of_the_calls():
    calls = [(float(number),) for number in range(6)]
    assert list(side_by_side(math.sqrt, calls, 2)) == [math.sqrt(*arguments) for arguments in calls]


SLOW = "__import__('time').sleep(0.1) or __import__('os').getpid()"  # one worker is not fast enough for all calls


def test_workers_are_used_again_and_calls_are_read_when_one_is_free():
    pids = {pid for _ in range(3) for pid in side_by_side(eval, [(SLOW,)] * 6, 2)}
    assert len(pids) == 2
    assert os.getpid() not in pids
    read = []

    def calls():
        for number in range(9):
            read.append(number)
            yield ()

    for pid in side_by_side(os.getpid, calls(), 2):
        assert pid in pids
        assert len(read) < 9
        break


def test_a_worker_may_grow_by_what_jax_and_its_programs_need():
    grow = "import builtins, time; builtins.kept = b'x' * 350_000_000; time.sleep(1.1)"  # joblib looks once a second
    before = {pid for _ in range(3) for pid in side_by_side(eval, [(SLOW,)] * 6, 2)}
    list(side_by_side(exec, [(grow,)] * 2, 2))
    assert {*side_by_side(os.getpid, [()] * 6, 2)} <= before
    list(side_by_side(exec, [("import builtins; vars(builtins).pop('kept', None)",)] * 2, 2))


def test_an_error_of_a_call_is_raised_and_the_next_calls_are_made():
    calls = [("n", 1), ("n", -1), ("n", 2)]
    with pytest.raises(ProblemError, match="expected an integer >= 0, got -1"):
        list(side_by_side(check_integer, [(*call, 0) for call in calls], 2))
    assert list(side_by_side(math.sqrt, [(4.0,)] * 3, 2)) == [2.0] * 3


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(RuntimeError, match="unexpectedly terminated"):
        list(side_by_side(os._exit, [(7,)], 2))


FORKED = """
import multiprocessing, os
from attsvm._utils.workers import side_by_side
def parents_of_calls():
    return {*side_by_side(os.getppid, [()] * 2, 2)}
def is_own(): return parents_of_calls() == {os.getpid()}
def makes_calls_itself(_): return {*side_by_side(os.getpid, [()] * 2, 2)} == {os.getpid()}
assert is_own()
if (child := os.fork()) == 0:
    os._exit(0 if is_own() else 1)
assert os.waitpid(child, 0)[1] == 0 and is_own()
with multiprocessing.get_context("fork").Pool(1) as pool:
    assert pool.map(makes_calls_itself, [0]) == [True]
"""


def test_a_fork_has_workers_of_its_own_and_a_daemonic_process_has_none():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], timeout=60, check=True)


WAITING = """
import time
from attsvm._utils.workers import side_by_side
for result in side_by_side(time.sleep, [(0,), (60,), (60,)], 2):
    print("one is done", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_waits_for_them(number):
    # a shell's background jobs ignore Ctrl-C, and so would the tests run in one
    listening = "import signal; signal.signal(2, signal.default_int_handler)"
    process = subprocess.Popen(
        [sys.executable, "-c", listening + WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "one is done\n"
    process.send_signal(number)
    began = time.monotonic()
    # the end of the output is the end of the workers, which share it
    stdout, stderr = process.communicate(timeout=20)
    assert time.monotonic() - began < 10
    assert stdout == ""
    if number == signal.SIGINT:
        # joblib's tracker may name a semaphore after it, whose last user ends with the process
        tracker = r"^\S*resource_tracker\.py:.*\n +warnings\.warn\(.*\n+"
        assert re.sub(tracker, "", stderr, flags=re.MULTILINE).rstrip("\n").endswith("\nKeyboardInterrupt")
    else:  # joblib names the semaphores that it removes
        assert "leaked semlock" in stderr
        assert "Traceback" not in stderr


WRITE = """
import time
from attsvm._utils.files import unfinished
with unfinished({!r}) as file:
    file.touch()
    time.sleep(60)
"""


def test_workers_remove_what_they_write_when_the_process_that_waits_is_killed(tmp_path):
    calls = [(WRITE.format(str(tmp_path / name)),) for name in ("one", "two")]
    code = f"from attsvm._utils.workers import side_by_side; list(side_by_side(exec, {calls}, 2))"
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while len([*tmp_path.iterdir()]) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len([*tmp_path.iterdir()]) == 2
    process.kill()
    process.wait()
    while [*tmp_path.iterdir()] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [*tmp_path.iterdir()]


BLOCKED = """
import signal
from attsvm._utils.workers import side_by_side
masks = "__import__('time').sleep(0.1) or __import__('signal').pthread_sigmask(0, [])"
assert all(signal.SIGINT in mask for mask in side_by_side(eval, [(masks,)] * 4, 2))
"""


def test_the_first_workers_of_a_process_block_ctrl_c():
    subprocess.run([sys.executable, "-c", BLOCKED], timeout=60, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the signals that threads block")
def test_ctrl_c_is_blocked_for_processes_that_start_and_not_in_the_main_thread():
    main = f"/proc/{os.getpid()}/status"
    for path, is_blocked in (("/proc/thread-self/status", True), (main, False)):
        lines = without_interruptions(Path(path).read_text).splitlines()
        mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk"))
        assert bool(mask >> (signal.SIGINT - 1) & 1) == is_blocked
